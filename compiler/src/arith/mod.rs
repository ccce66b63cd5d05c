//! Canonical integer expressions over named symbols, and what is known about them.
//!
//! Tensor dimensions and loop indices are both [`IntExpr`]. An expression is canonical by
//! construction: there is no way to hold one that is not simplified, so `==` answers most questions.
//! What needs more than the expression itself (a symbol's bounds, an equality between two symbols)
//! is in [`Facts`].

mod canonical;
mod division;
mod eval;
mod expr;
mod facts;
mod facts_text;
mod interval;
mod modular;
mod operators;
mod prove;
mod serial;
mod symbol;
mod text;
mod unify;

pub use eval::EvalError;
pub use expr::{Atom, Factor, IntExpr, MAX_DEPTH, MAX_SIZE, Poison, Polynomial, Term, View};
pub use facts::Facts;
pub use interval::Interval;
pub use modular::Modular;
pub use serial::INT_EXPR;
pub use symbol::Symbol;
pub use text::ParseError;
pub use unify::Mismatch;

#[cfg(test)]
mod tests;
