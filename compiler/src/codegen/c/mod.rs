//! The C code generator.
