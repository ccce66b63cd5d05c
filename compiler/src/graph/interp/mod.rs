//! The reference interpreter of the graph IR: plain, exact where it can be, never fast.

mod tensor;

pub use tensor::{Elements, Tensor, TensorError};
