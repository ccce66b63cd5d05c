//! `cargo xtask fuzz onnx`: random ONNX graphs against ONNX Runtime, by the scripts in `tests/fuzz`.

use std::path::PathBuf;
use std::process::Command;

use crate::command::{self, Backend};
use crate::{Result, process, setup, workspace};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How many graphs
    #[arg(long, value_name = "N", default_value_t = 400)]
    cases: u64,
    /// Which graphs: the same seed gives the same ones
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Number of the first graph, to try one of a former run again
    #[arg(long, value_name = "N", default_value_t = 0)]
    first: u64,
    /// Backend to run; may be given more than once [default: llvm, or c where LLVM is missing]
    #[arg(long, value_enum)]
    backend: Vec<Backend>,
    /// Folder that failures are written to [default: fuzz/onnx in the target folder]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Most failures that are made smaller and written
    #[arg(long, value_name = "N", default_value_t = 40)]
    keep: u64,
    /// Graphs that are compiled at a time [default: one a processor]
    #[arg(long, value_name = "N")]
    jobs: Option<u64>,
    #[command(flatten)]
    setup: setup::Options,
}

/// Runs the generator on each backend; fails if one of them has failures.
pub(crate) fn run(options: &Options) -> Result {
    let environment = setup::prepare(&options.setup)?;
    let python = environment.python()?;
    let fastest = if environment.llvm.is_some() { Backend::Llvm } else { Backend::C };
    let asked = if options.backend.is_empty() { &[fastest][..] } else { &options.backend };
    let backends = command::backends(asked, &environment)?;
    let niello = command::build(&environment)?;
    let out = options.out.clone().unwrap_or_else(|| workspace::target().join("fuzz/onnx"));
    let mut failed = Vec::new();
    for backend in backends {
        let mut fuzz = Command::new(python);
        fuzz.arg("-B").arg(workspace::root().join("tests/fuzz/fuzz.py")).arg(&niello);
        fuzz.args(["--backend", backend.name()]);
        let numbers = [
            ("--cases", Some(options.cases)),
            ("--seed", Some(options.seed)),
            ("--first", Some(options.first)),
            ("--keep", Some(options.keep)),
            ("--jobs", options.jobs),
        ];
        for (name, value) in numbers {
            fuzz.args(value.map(|value| format!("{name}={value}")));
        }
        fuzz.arg("--out").arg(&out);
        println!("{}: seed {}", backend.title(), options.seed);
        if !fuzz.status().map_err(|error| format!("{}: {error}", process::shown(&fuzz)))?.success()
        {
            failed.push(backend.title());
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!("random graphs fail by {}; see {}", failed.join(" and "), workspace::shown(&out))
        .into())
}
