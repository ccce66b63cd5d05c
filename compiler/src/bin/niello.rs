//! The `niello` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    niello::cli::main()
}
