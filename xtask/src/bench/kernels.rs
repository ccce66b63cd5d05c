//! `cargo xtask bench kernels`: builds the program in tests/bench, which measures, and runs it.

use std::fs;
use std::process::Command;

use super::{machine, write};
use crate::command::{self, Backend};
use crate::{Result, process, setup, workspace};

#[derive(clap::Args)]
pub(super) struct Kernels {
    /// Only kernels whose name contains this; may be given more than once
    #[arg(long, value_name = "NAME")]
    filter: Vec<String>,
    /// Backend to measure; may be given more than once [default: all]
    #[arg(long, value_enum)]
    backend: Vec<Backend>,
    /// Thread count; may be given more than once [default: 1, and 2 if there are two cores]
    #[arg(long, value_name = "N")]
    threads: Vec<u16>,
    /// Rounds in which all take turns
    #[arg(long, default_value_t = 5)]
    rounds: u16,
    /// Write the table to docs/benchmarks.md as well
    #[arg(long)]
    write: bool,
    #[command(flatten)]
    setup: setup::Options,
}

/// Measures, prints, and writes the document if asked to.
pub(super) fn run(options: &Kernels) -> Result {
    let environment = setup::prepare(&options.setup)?;
    let mut backends = command::backends(&options.backend, &environment)?;
    if options.backend.contains(&Backend::Interp) {
        return Err("the interpreter is not measured; name a code generator".into());
    }
    backends.retain(|&backend| backend != Backend::Interp);
    let mut build = process::cargo();
    build.args(["build", "--release", "--package", "niello-bench"]);
    if environment.llvm.is_some() {
        build.args(["--features", "niello/llvm"]);
    }
    environment.tell_prefix(&mut build);
    process::run(&mut build)?;

    let name = format!("release/niello-bench{}", std::env::consts::EXE_SUFFIX);
    let mut measure = Command::new(workspace::target().join(name));
    measure.args(arguments(options));
    measure.args(backends.iter().map(|backend| format!("--backend={}", backend.name())));
    if let Some(python) = &environment.python {
        // Without the peers, the rest is still worth measuring.
        if let Err(error) = setup::add_packages(python, "requirements-bench.txt") {
            eprintln!("the peers could not be installed: {error}");
        }
        measure.arg("--python").arg(python);
    }
    let table = workspace::target().join("kernels.md");
    if options.write {
        measure.arg("--markdown").arg(&table);
    }
    process::run(&mut measure)?;
    if options.write {
        let given = arguments(options).into_iter().map(|argument| format!(" {argument}"));
        let command = format!("cargo xtask bench kernels --write{}", given.collect::<String>());
        let table = fs::read_to_string(&table)?;
        write("kernels", &format!("`{command}` on {}:\n\n{table}", machine()))?;
    }
    Ok(())
}

/// What the program is told of the options that change what is measured.
fn arguments(options: &Kernels) -> Vec<String> {
    let filter = options.filter.iter().map(|name| format!("--filter={name}"));
    let threads = options.threads.iter().map(|threads| format!("--threads={threads}"));
    filter.chain(threads).chain([format!("--rounds={}", options.rounds)]).collect()
}
