//! Executors: how the kernels of a model are called in order.

mod artifact;
mod program;

pub use artifact::{CompiledModel, ObjectFile, TensorInfo};
pub use program::{Kernel, KernelId, Program, Step, Value, ValueId, ValueKind};
