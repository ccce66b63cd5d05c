//! `cargo xtask bench throughput`: builds the program in tests/bench that measures how runs scale, and
//! runs it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::{code_generator, machine, write};
use crate::command::Backend;
use crate::{Result, process, setup, workspace};

#[derive(clap::Args)]
pub(super) struct Throughput {
    /// Folders with `model.onnx`, or model files [default: the digits model]
    model: Vec<PathBuf>,
    /// Backend to measure [default: llvm, or c where LLVM is missing]
    #[arg(long, value_enum)]
    backend: Option<Backend>,
    /// Number of threads; may be given more than once [default: 1, 2, 4 … and all that there are]
    #[arg(long, value_name = "N")]
    threads: Vec<u16>,
    /// Rounds in which both ways take turns
    #[arg(long, default_value_t = 5)]
    rounds: u16,
    /// Write the table to docs/benchmarks.md as well
    #[arg(long)]
    write: bool,
    #[command(flatten)]
    setup: setup::Options,
}

/// Measures, prints, and writes the document if asked to.
pub(super) fn run(options: &Throughput) -> Result {
    let environment = setup::prepare(&options.setup)?;
    let backend = code_generator(options.backend, &environment)?;
    let mut build = process::cargo();
    build.args(["build", "--release", "--package", "niello-bench", "--bin", "niello-throughput"]);
    if environment.llvm.is_some() {
        build.args(["--features", "niello/llvm"]);
    }
    environment.tell_prefix(&mut build);
    process::run(&mut build)?;

    let name = format!("release/niello-throughput{}", std::env::consts::EXE_SUFFIX);
    let mut measure = Command::new(workspace::target().join(name));
    measure.args(arguments(options, backend));
    let table = workspace::target().join("throughput.md");
    measure.arg("--markdown").arg(&table);
    if options.model.is_empty() {
        measure.arg(workspace::root().join("examples/digits/models/digits.onnx"));
    }
    process::run(measure.args(&options.model))?;
    if options.write {
        let given = arguments(options, backend).into_iter().map(|argument| format!(" {argument}"));
        let models = if options.model.is_empty() { "" } else { " MODEL…" };
        let given = given.collect::<String>() + models;
        let command = format!("cargo xtask bench throughput --write{given}");
        let table = fs::read_to_string(&table)?;
        write("throughput", &format!("`{command}` on {}:\n\n{table}", machine()))?;
    }
    Ok(())
}

/// What the program is told of the options that change what is measured.
fn arguments(options: &Throughput, backend: Backend) -> Vec<String> {
    let threads = options.threads.iter().map(|threads| format!("--threads={threads}"));
    let others = [format!("--backend={}", backend.name()), format!("--rounds={}", options.rounds)];
    threads.chain(others).collect()
}
