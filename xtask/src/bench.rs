//! `cargo xtask bench models`: latency of compiled models beside ONNX Runtime, in one run.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::{Result, process, setup, workspace};

/// Where the table goes in the document, between these lines.
const BEGIN: &str = "<!-- models: begin -->";
const END: &str = "<!-- models: end -->";

#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Latency of whole models, one thread
    Models {
        /// Folders with `model.onnx`, or model files [default: the digits model]
        models: Vec<PathBuf>,
        /// Write the table to docs/benchmarks.md as well
        #[arg(long)]
        write: bool,
        #[command(flatten)]
        setup: setup::Options,
    },
}

/// Measures, prints, and writes the document if asked to.
pub(crate) fn run(options: &Options) -> Result {
    let What::Models { models, write, setup } = &options.what;
    let python = setup::prepare(setup)?
        .python
        .ok_or("the peers run in Python; run `cargo xtask setup` first")?;
    let mut build = process::cargo();
    process::run(build.args(["build", "--release", "--package", "niello", "--features", "cli"]))?;
    let niello =
        workspace::target().join("release").join(format!("niello{}", std::env::consts::EXE_SUFFIX));
    let digits = [workspace::root().join("examples/digits/models/digits.onnx")];
    let models = if models.is_empty() { &digits[..] } else { models };
    let script = workspace::root().join("tests/bench/latency.py");
    let output = Command::new(python).arg("-B").arg(script).arg(niello).args(models).output()?;
    let table = String::from_utf8(output.stdout)?;
    print!("{table}");
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    if *write {
        let path = workspace::root().join("docs/benchmarks.md");
        let text = fs::read_to_string(&path)?;
        fs::write(&path, replaced(&text, &table)?)?;
    }
    Ok(())
}

/// The document with the table between its marks.
fn replaced(text: &str, table: &str) -> Result<String> {
    let (before, rest) = text.split_once(BEGIN).ok_or("docs/benchmarks.md has lost its marks")?;
    let (_, after) = rest.split_once(END).ok_or("docs/benchmarks.md has lost its marks")?;
    Ok(format!("{before}{BEGIN}\n\n{}\n\n{END}{after}", table.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_goes_between_the_marks() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = replaced(&text, "| t |\n").unwrap();
        assert_eq!(new, format!("a\n{BEGIN}\n\n| t |\n\n{END}\nb\n"));
        assert!(replaced("a", "t").is_err());
    }
}
