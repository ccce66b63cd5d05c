//! niello: an ahead-of-time compiler that inlays machine-learning models into Rust binaries.
//!
//! The way of the data, stage by stage, is one function: `compile::compile`.

// The macros' expansions name the crate from outside, here as everywhere.
extern crate self as niello;

pub mod analysis;
pub mod arith;
pub mod bindings;
#[cfg(feature = "cli")]
pub mod cli;
pub mod codegen;
pub mod compile;
pub mod diagnostics;
pub mod driver;
pub mod executor;
mod files;
pub mod graph;
pub mod ir;
pub mod memory;
pub mod onnx;
pub mod ops;
pub mod options;
mod parallel;
pub mod pass;
pub mod samples;
pub mod schedule;
pub mod strategy;
pub mod target;
pub mod te;
pub mod tir;
pub mod transform;
pub mod tuned;

pub use compile::compile;
/// Maps by the ids of expressions, scopes and the like, which public signatures name.
pub use cranelift_entity as entity;
pub use driver::build;
