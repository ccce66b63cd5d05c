//! Where a command's text goes.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use super::Failure;
use crate::diagnostics::Problem;

/// The human text of a command: on the standard output, unless JSON goes there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Output {
    to_stderr: bool,
}

impl Output {
    /// Text on the standard output.
    pub(super) fn stdout() -> Self {
        Output { to_stderr: false }
    }

    /// Text beside a JSON file.
    pub(super) fn beside(json: Option<&Path>) -> Self {
        Output { to_stderr: json.is_some_and(is_stdout) }
    }

    /// Writes a line. A reader that has gone away, as in `niello test | head`, is no error.
    pub(super) fn line(self, text: &str) {
        self.text(&format!("{text}\n"));
    }

    /// Writes text as it is.
    pub(super) fn text(self, text: &str) {
        if self.to_stderr {
            Self::error(text.trim_end_matches('\n'));
        } else {
            let _ = io::stdout().lock().write_all(text.as_bytes());
        }
    }

    /// Writes a line to the standard error.
    pub(super) fn error(text: &str) {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }
}

fn is_stdout(path: &Path) -> bool {
    path == Path::new("-") || path == Path::new("/dev/stdout")
}

/// Writes one JSON object to a file, or to the standard output.
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Problem::new(format!("{}: cannot write the JSON file: {error}", path.display()))
    };
    let text = serde_json::to_string(value).map_err(|error| failed(&error))? + "\n";
    let written = if is_stdout(path) {
        io::stdout().lock().write_all(text.as_bytes())
    } else {
        fs::write(path, text)
    };
    written.map_err(|error| failed(&error).into())
}
