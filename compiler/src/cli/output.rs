//! Where a command's text and files go.

use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

use super::Failure;
use crate::diagnostics::Problem;
use crate::files::write_file;

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
            let mut stdout = io::stdout().lock();
            let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
        }
    }

    /// Writes a line to the standard error.
    pub(super) fn error(text: &str) {
        let _ = writeln!(io::stderr().lock(), "{text}");
    }
}

/// Whether a path means the standard output.
pub(super) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-") || path == Path::new("/dev/stdout")
}

/// Writes one JSON object to a file, or to the standard output.
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    let failed = |error: &dyn std::fmt::Display| {
        Problem::new(format!("{}: cannot write the JSON file: {error}", path.display()))
    };
    let text = serde_json::to_string(value).map_err(|error| failed(&error))? + "\n";
    if is_stdout(path) {
        let written = io::stdout().lock().write_all(text.as_bytes());
        return written.map_err(|error| failed(&error).into());
    }
    Ok(write_file(path, text.as_bytes())?)
}
