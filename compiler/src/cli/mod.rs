//! The `niello` command: what its subcommands are and how they end.
//!
//! Exit status 0 means that what was asked for was done; 1 that a model, a pass or a test case
//! failed; 2 that the command was not understood.

mod case;
mod code;
mod compile;
mod inspect;
mod isolated;
mod opt;
mod output;
mod passes;
mod runner;
mod test;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::diagnostics::{Problem, Report};
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
    /// Run ONNX test cases and compare with their outputs
    Test(test::Args),
    /// Run passes on a model and print the module
    Opt(opt::Args),
    /// Show what a model consists of
    Inspect(inspect::Args),
    /// List the passes, or show one
    Passes(passes::Args),
    /// Run one test case in this process; `test` starts it
    #[command(name = test::CHILD, hide = true)]
    TestCase(test::ChildArgs),
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

/// Runs the command that the process was started with.
pub fn main() -> ExitCode {
    let result = match Niello::parse().command {
        Command::Compile(args) => compile::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Opt(args) => opt::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Passes(args) => passes::run(&args),
        Command::TestCase(args) => test::run_child(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Told) => ExitCode::FAILURE,
        Err(Failure::Report(report)) => {
            for problem in &report.problems {
                Output::error(&format!("error: {problem}"));
            }
            ExitCode::FAILURE
        }
    }
}
