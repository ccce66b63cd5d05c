//! The Python environment that some tests take their expectations from.
//!
//! `cargo xtask setup` makes it. A test that needs it and has none says so and passes: `cargo test` alone works on a
//! machine with nothing but Rust and a C compiler.

use std::env;
use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

use crate::workspace;

/// The environment's interpreter, ready for a script of this repository; None after saying that `what` is skipped.
pub fn python(what: &str) -> Option<Command> {
    let interpreter = match env::var_os("NIELLO_TEST_PYTHON") {
        Some(interpreter) => PathBuf::from(interpreter),
        None => made_by_setup(),
    };
    if !interpreter.is_file() {
        skip(what, "no Python environment; `cargo xtask setup` makes it");
        return None;
    }
    let mut command = Command::new(interpreter);
    // Without -B, importing one script from another would leave files in the source tree.
    command.arg("-B").current_dir(workspace());
    Some(command)
}

/// Says that `what` is not tested and why.
///
/// The test runner shows what a test prints only if it fails, but does not catch what goes to the stream itself.
/// `cargo xtask test` collects these lines and repeats them at its end.
pub fn skip(what: &str, why: &str) {
    // A closed stream is no reason to fail.
    let _ = writeln!(std::io::stderr(), "skipped: {what}: {why}");
}

fn made_by_setup() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let folder = workspace().join(target).join("python");
    if cfg!(windows) { folder.join("Scripts/python.exe") } else { folder.join("bin/python") }
}
