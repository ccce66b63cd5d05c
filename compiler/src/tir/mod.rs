//! The loop IR: statements and scalar or vector expressions over buffers.
