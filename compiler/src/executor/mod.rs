//! Executors: how the kernels of a model are called in order.

pub(crate) mod aligned;
pub mod aot;
mod artifact;
mod compare;
mod computed;
mod contents;
pub(crate) mod dynamic;
mod graph;
mod graph_json;
mod graph_module;
mod interp;
#[cfg(feature = "llvm")]
mod jit;
mod library;
mod literal;
mod package;
mod program;
mod region;
mod report;
mod shared;
mod sizes;
#[cfg(test)]
pub(crate) mod testing;
mod verify;

pub use aot::Weights;
pub use artifact::{CompiledModel, ObjectFile, TensorInfo};
pub use compare::compare_kernels;
pub use contents::Contents;
pub use graph::GraphExecutor;
pub use graph_json::graph_json;
pub use graph_module::GraphModule;
pub use interp::interpret;
pub use library::{LoadedCall, LoadedModel};
pub use package::{Package, PackageOptions, write_if_changed, write_package};
pub use program::{
    Kernel, KernelId, Loops, Moves, Program, Scheduled, Step, Value, ValueId, ValueKind,
};
pub use region::{Part, Region, RegionKind};
pub use report::{KernelReport, KernelRow};
pub use shared::{SHARED_ENTRY, SHARED_LIMIT, write_shared_library};
pub(crate) use sizes::Truncation;
pub use sizes::{Count, RunTimeAxis, RunTimeSize, RunTimeSizes, Units};
