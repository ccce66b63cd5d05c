//! Tests of the passes together, and what their own tests share.

mod semantics;
pub(super) mod support;
