//! Where a command's text and files go.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::Failure;
use crate::diagnostics::Problem;
use crate::executor::Contents;

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

/// Writes a file, which appears whole under its name or not at all.
///
/// # Errors
///
/// Those of the file system.
pub(super) fn write_file<'a>(
    path: &Path,
    contents: impl Into<Contents<'a>>,
) -> Result<(), Problem> {
    let contents: Contents<'_> = contents.into();
    let failed = |error: io::Error| {
        Problem::new(format!("{}: cannot write the file: {error}", path.display()))
    };
    // A device or a pipe cannot be replaced by a file, and must not.
    if fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir()) {
        return contents.write_file(path).map_err(failed);
    }
    // The file that a link leads to is replaced, not the link.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let temporary = beside(&target);
    let written = contents.write_file(&temporary).and_then(|()| fs::rename(&temporary, &target));
    written.map_err(|error| {
        // The error is told; a file that is left over as well would only confuse.
        let _ = fs::remove_file(&temporary);
        failed(error)
    })
}

/// A name in the folder of `path` that no other process takes.
fn beside(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}.tmp", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_appears_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write_file(&path, b"old".as_slice()).unwrap();
        // What has the file open goes on reading the old one.
        let mut open = fs::File::open(&path).unwrap();
        write_file(&path, b"new".as_slice()).unwrap();
        let mut old = Vec::new();
        io::Read::read_to_end(&mut open, &mut old).unwrap();
        assert_eq!((old, fs::read(&path).unwrap()), (b"old".to_vec(), b"new".to_vec()));
        assert!(write_file(&folder.path().join("none/file"), b"".as_slice()).is_err());
        let taken = folder.path().join("folder");
        fs::create_dir(&taken).unwrap();
        let error = write_file(&taken, b"".as_slice()).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{}: cannot write the file: ", taken.display())));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing else is left");
    }

    #[cfg(unix)]
    #[test]
    fn links_and_devices_are_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, b"old".as_slice()).unwrap();
        std::os::unix::fs::symlink("file", &link).unwrap();
        write_file(&link, b"new".as_slice()).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        write_file(Path::new("/dev/null"), b"text".as_slice()).unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
    }
}
