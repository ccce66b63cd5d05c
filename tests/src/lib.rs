//! Tests that cross the crates of niello.

pub mod filetest;
mod python;
pub mod random;
pub mod values;

use std::path::Path;

pub use python::{python, skip};

/// The folder of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in the workspace")
}
