//! Tests of the passes together, and helpers for the tests of single passes.

mod semantics;
pub(crate) mod support;
