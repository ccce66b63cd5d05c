//! `cargo xtask bench sweep`: random small models beside ONNX Runtime and OpenVINO, to find what is
//! slow, by `tests/bench/sweep.py`.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::{code_generator, machine, write};
use crate::command::{self, Backend};
use crate::{Result, process, setup, workspace};

#[derive(clap::Args)]
pub(super) struct Sweep {
    /// How many models
    #[arg(long, value_name = "N", default_value_t = 200)]
    cases: u64,
    /// Which models: the same seed gives the same ones
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Number of the first model, to measure one of a former run again
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u64,
    /// Backend to measure [default: llvm, or c where LLVM is missing]
    #[arg(long, value_enum)]
    backend: Option<Backend>,
    /// Most models that are listed, the slowest first
    #[arg(long, value_name = "N", default_value_t = 30)]
    worst: u64,
    /// Write the models that are listed to a folder
    #[arg(long, value_name = "DIR")]
    save: Option<PathBuf>,
    /// Write all results to a file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the tables to docs/benchmarks.md as well
    #[arg(long)]
    write: bool,
    #[command(flatten)]
    setup: setup::Options,
}

/// Measures, prints, and writes the document if asked to.
pub(super) fn run(options: &Sweep) -> Result {
    let environment = setup::prepare(&options.setup)?;
    let backend = code_generator(options.backend, &environment)?;
    let python = environment.python()?;
    setup::add_packages(python, "requirements-bench.txt")?;
    let niello = command::build(&environment)?;
    let mut measure = Command::new(python);
    measure.arg("-B").arg(workspace::root().join("tests/bench/sweep.py")).arg(&niello);
    measure.args(["--backend", backend.name()]).args(arguments(options));
    if let Some(folder) = &options.save {
        measure.arg("--save").arg(folder);
    }
    if let Some(file) = &options.json {
        measure.arg("--json").arg(file);
    }
    // Progress goes to the terminal at once, the tables when they are complete.
    let output = measure.stderr(Stdio::inherit()).output()?;
    let tables = String::from_utf8(output.stdout)?;
    std::io::stdout().write_all(tables.as_bytes())?;
    if !output.status.success() {
        return Err(format!("{}: {}", process::shown(&measure), output.status).into());
    }
    if options.write {
        let given: String = arguments(options).iter().map(|given| format!(" {given}")).collect();
        let command = format!("cargo xtask bench sweep --write{given}");
        write("sweep", &format!("`{command}` on {}:\n\n{tables}", machine()))?;
    }
    Ok(())
}

/// What the script is told of the options that change what is measured.
fn arguments(options: &Sweep) -> Vec<String> {
    let numbers = [
        ("--cases", options.cases),
        ("--seed", options.seed),
        ("--first", options.first),
        ("--worst", options.worst),
    ];
    numbers.map(|(name, number)| format!("{name}={number}")).to_vec()
}
