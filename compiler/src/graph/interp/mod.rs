//! The reference interpreter of the graph IR: plain, exact where it can be, never fast. Results of
//! compiled code are compared with its results.

mod call;
mod compare;
mod evaluate;
mod plan;
mod symbols;
mod tensor;
mod value;

#[cfg(test)]
mod tests;

pub use compare::{Tolerance, compare};
pub use evaluate::{DEFAULT_STEP_LIMIT, Evaluation, InterpError, Interpreter, evaluate};
pub use tensor::{Elements, Tensor, TensorError};
pub(crate) use tensor::{round_float, wrap_int};
pub use value::{FunctionValue, Value};
