//! Project automation: `cargo xtask setup | test | conformance | zoo | fuzz | sanitize | machines | bench | ratchet | tidy`.
//!
//! It depends on neither LLVM nor the compiler, so that it can install what those need.

#![allow(clippy::print_stdout, reason = "what a command has to say goes to standard output")]

mod bench;
mod command;
mod conformance;
mod fuzz;
mod machines;
mod operators;
mod process;
mod ratchet;
mod sanitize;
mod setup;
mod test;
mod tidy;
mod workspace;
mod zoo;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// What can go wrong in a task: a sentence for the person who ran it.
type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Project automation for niello")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Installs what the tests need: LLVM 19 and a Python environment under `target/`
    Setup(setup::Options),
    /// Sets up, then runs every test and the examples that classify
    Test(setup::Options),
    /// Runs the ONNX node tests and compares the passing cases with the committed lists
    Conformance(conformance::Options),
    /// Runs models of many families, made with random weights, beside ONNX Runtime
    Zoo(zoo::Options),
    /// Looks for faults with random inputs
    #[command(subcommand)]
    Fuzz(fuzz::Kind),
    /// Runs the node tests and models under sanitizers, and with checks of every index
    Sanitize(sanitize::Options),
    /// Runs the examples that classify on machines of other kinds, by emulators
    Machines(machines::Options),
    /// Measures compiled models beside ONNX Runtime and OpenVINO
    Bench(bench::Options),
    /// Runs everything that must not get worse, and compares with the committed figures
    Ratchet(ratchet::Options),
    /// Checks the source tree: module lines, file lengths, paths named in documents, layering
    Tidy,
}

fn main() -> ExitCode {
    let result = match Arguments::parse().task {
        Task::Setup(options) => setup::run(&options),
        Task::Test(options) => test::run(&options),
        Task::Conformance(options) => conformance::run(&options),
        Task::Zoo(options) => zoo::run(&options),
        Task::Fuzz(kind) => fuzz::run(&kind),
        Task::Sanitize(options) => sanitize::run(&options),
        Task::Machines(options) => machines::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::Ratchet(options) => ratchet::run(&options),
        Task::Tidy => tidy::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent() {
        Arguments::command().debug_assert();
    }
}
