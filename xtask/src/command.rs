//! The `niello` command, built in release mode with the backends that this machine can build.

use std::path::PathBuf;

use clap::ValueEnum;
use serde_json::Value;

use crate::{Result, process, setup, workspace};

/// What runs a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    C,
    Llvm,
    Interp,
}

impl Backend {
    /// The name as an argument of the command.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::C => "c",
            Self::Llvm => "llvm",
            Self::Interp => "interp",
        }
    }

    /// The name for people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::C => "C",
            Self::Llvm => "LLVM",
            Self::Interp => "interpreter",
        }
    }

    /// The committed list of the cases that pass.
    pub(crate) fn list(self) -> PathBuf {
        workspace::root().join("tests/conformance").join(format!("{}.txt", self.name()))
    }
}

/// The backends that were asked for, or all that can be built here; says which cannot.
///
/// # Errors
///
/// One that was asked for cannot be built.
pub(crate) fn backends(
    asked: &[Backend],
    environment: &setup::Environment,
) -> Result<Vec<Backend>> {
    let obstacle = if !has_feature("llvm")? {
        Some("the compiler has no feature `llvm`")
    } else if !environment.llvm {
        Some("LLVM 19 is missing")
    } else {
        None
    };
    let Some(obstacle) = obstacle else {
        return Ok(if asked.is_empty() {
            Backend::value_variants().to_vec()
        } else {
            asked.to_vec()
        });
    };
    if asked.contains(&Backend::Llvm) {
        return Err(format!("the backend llvm cannot be built: {obstacle}").into());
    }
    if asked.is_empty() {
        println!("skipped: the backend llvm: {obstacle}");
        return Ok(vec![Backend::C, Backend::Interp]);
    }
    Ok(asked.to_vec())
}

/// Builds the command with what the backends need and returns its path.
pub(crate) fn build(backends: &[Backend]) -> Result<PathBuf> {
    let features = if backends.contains(&Backend::Llvm) { "cli,llvm" } else { "cli" };
    let mut build = process::cargo();
    build.args(["build", "--release", "--package", "niello", "--features", features]);
    process::run(&mut build)?;
    Ok(workspace::target().join("release").join(format!("niello{}", std::env::consts::EXE_SUFFIX)))
}

/// Whether the compiler has a feature of that name.
fn has_feature(name: &str) -> Result<bool> {
    let mut metadata = process::cargo();
    metadata.args(["metadata", "--no-deps", "--offline", "--format-version", "1"]);
    let text = process::output(&mut metadata)
        .ok_or_else(|| format!("{} fails", process::shown(&metadata)))?;
    let metadata: Value = serde_json::from_str(&text)?;
    let packages = metadata["packages"].as_array().ok_or("cargo names no packages")?;
    let compiler = packages.iter().find(|package| package["name"] == "niello");
    Ok(compiler.is_some_and(|package| package["features"].get(name).is_some()))
}
