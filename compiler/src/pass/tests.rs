//! Tests of the infrastructure. Numbers are those of the specification's conformance cases.

mod contexts;
mod instruments;
pub(super) mod macros;
mod passes;
mod sequences;
mod support;
