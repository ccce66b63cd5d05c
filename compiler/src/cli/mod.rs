//! The `niello` command: what its subcommands are and how they end.
//!
//! Exit status 0 means that what was asked for was done; 1 that a model, a pass or a test case
//! failed; 2 that the command was not understood.

mod bench;
mod cache;
mod case;
mod code;
mod compile;
mod inspect;
mod isolated;
mod operators;
mod opt;
mod output;
mod passes;
mod progress;
mod quantize;
mod run;
mod test;
mod tune;

use std::path::Path;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::compile::Model;
use crate::diagnostics::{Problem, Report, spell_options_as_arguments};
use output::Output;

/// Ahead-of-time compiler for machine-learning models.
#[derive(Parser, Debug)]
#[command(name = "niello", version)]
struct Niello {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Compile a model to objects, sources, bindings or a shared library
    Compile(compile::Args),
    /// Run a model on inputs from files
    Run(run::Args),
    /// Quantise a model, with ranges from sample inputs
    Quantize(quantize::Args),
    /// Run ONNX test cases and compare with their outputs
    Test(test::Args),
    /// Compile a model, check it and measure how fast it is
    Bench(bench::Args),
    /// Measure the ways in which kernels of a model can be made, and write the fastest to a file
    Tune(tune::Args),
    /// Run passes on a model and print the module
    Opt(opt::Args),
    /// Show what a model consists of
    Inspect(inspect::Args),
    /// List the ONNX operators that can be imported
    Operators(operators::Args),
    /// List the passes, or show one
    Passes(passes::Args),
    /// Show or empty the cache of compiled kernels
    Cache(cache::Args),
    /// Run one test case in this process; `test` starts it
    #[command(name = test::CHILD, hide = true)]
    TestCase(test::ChildArgs),
    /// Measure a model in this process; `bench` starts it
    #[command(name = bench::CHILD, hide = true)]
    BenchChild(bench::ChildArgs),
}

/// Why a command ended early.
#[derive(Debug)]
enum Failure {
    /// Problems to be told; the exit status is 1.
    Report(Report),
    /// Everything has been told already.
    Told,
}

impl From<Report> for Failure {
    fn from(report: Report) -> Self {
        Failure::Report(report)
    }
}

impl From<Problem> for Failure {
    fn from(problem: Problem) -> Self {
        Failure::Report(problem.into())
    }
}

/// What people call a model: its file's name without ending, or the name of the folder if the file is
/// called `model`, as in every test case.
fn title(path: &Path, model: &Model) -> String {
    let folder = path
        .canonicalize()
        .ok()
        .and_then(|path| Some(path.parent()?.file_name()?.to_string_lossy().into_owned()));
    folder.filter(|_| model.stem == "model").unwrap_or_else(|| model.stem.clone())
}

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    spell_options_as_arguments();
    let result = match Niello::parse().command {
        Command::Compile(args) => compile::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Quantize(args) => quantize::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Tune(args) => tune::run(&args),
        Command::Opt(args) => opt::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Operators(args) => operators::run(&args),
        Command::Passes(args) => passes::run(&args),
        Command::Cache(args) => cache::run(&args),
        Command::TestCase(args) => test::run_child(&args),
        Command::BenchChild(args) => bench::run_child(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Told) => ExitCode::FAILURE,
        Err(Failure::Report(report)) => {
            for line in report.lines() {
                Output::error(&format!("error: {line}"));
            }
            ExitCode::FAILURE
        }
    }
}
