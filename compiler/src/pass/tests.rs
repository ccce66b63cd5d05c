//! Tests of the infrastructure. Numbers are those of the specification's conformance cases; `cases`
//! checks that none is missing.

mod analyses;
mod cases;
mod constraints;
mod contexts;
mod instruments;
pub(super) mod macros;
mod passes;
mod pipelines;
mod properties;
mod sequences;
mod support;
