//! Tests that cross the crates of niello.

pub mod filetest;
mod python;
pub mod random;
pub mod values;

use std::path::{Path, PathBuf};

pub use python::{python, skip};

/// The target folder of all packages outside the workspace, which share what they depend on; inside the
/// folder that Cargo gives tests.
pub fn packages_outside(tmpdir: &str) -> PathBuf {
    Path::new(tmpdir).join("outside")
}

/// The folder of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in the workspace")
}
