//! Never gets so far.
