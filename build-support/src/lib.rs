//! Compiles machine-learning models to native code and typed Rust bindings from a build script.
