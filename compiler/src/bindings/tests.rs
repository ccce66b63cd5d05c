//! Tests of the bindings.
