//! The `niello` command, built in release mode with the backends that this machine can build.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::setup::Environment;
use crate::{Result, process, workspace};

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

    /// The text of that list.
    pub(crate) fn listed(self) -> String {
        std::fs::read_to_string(self.list()).unwrap_or_default()
    }
}

/// The backends that were asked for, or all that can be built here; says which cannot.
///
/// # Errors
///
/// One that was asked for cannot be built.
pub(crate) fn backends(asked: &[Backend], environment: &Environment) -> Result<Vec<Backend>> {
    let all = if asked.is_empty() { Backend::value_variants() } else { asked };
    if environment.llvm.is_some() || !all.contains(&Backend::Llvm) {
        return Ok(all.to_vec());
    }
    if !asked.is_empty() {
        return Err("LLVM 19 is missing; run `cargo xtask setup` first".into());
    }
    println!("skipped: llvm: LLVM 19 is missing");
    Ok(all.iter().copied().filter(|&backend| backend != Backend::Llvm).collect())
}

/// Builds the command with every backend that can be built here and returns its path.
pub(crate) fn build(environment: &Environment) -> Result<PathBuf> {
    let features = if environment.llvm.is_some() { "cli,llvm" } else { "cli" };
    let mut build = process::cargo();
    build.args(["build", "--release", "--package", "niello", "--features", features]);
    environment.tell_prefix(&mut build);
    process::run(&mut build)?;
    Ok(workspace::target().join("release").join(format!("niello{}", std::env::consts::EXE_SUFFIX)))
}
