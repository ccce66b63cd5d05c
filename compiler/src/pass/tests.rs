//! Tests of the pass infrastructure.

mod analyses;
mod by_function;
mod constraints;
mod contexts;
mod instruments;
pub(super) mod macros;
mod passes;
mod pipelines;
mod properties;
mod sequences;
mod support;
