//! Tensor expressions: what an operator computes, element by element.
