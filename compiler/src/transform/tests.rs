//! Tests of the passes together, and what their own tests share.

mod semantics;
pub(crate) mod support;
