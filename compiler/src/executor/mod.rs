//! Executors: how the kernels of a model are called in order.

mod artifact;

pub use artifact::{CompiledModel, ObjectFile, TensorInfo};
