//! Executors: how the kernels of a model are called in order.

pub mod aot;
mod artifact;
mod package;
mod program;
#[cfg(test)]
pub(crate) mod testing;
mod verify;

pub use artifact::{CompiledModel, ObjectFile, TensorInfo};
pub use package::{Package, PackageOptions, write_if_changed, write_package};
pub use program::{Kernel, KernelId, Program, Step, Value, ValueId, ValueKind};
