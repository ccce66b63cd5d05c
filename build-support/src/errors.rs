//! Everything that kept a model from being compiled.

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use niello::diagnostics::{Problem, Report};

use crate::cargo::Directives;

/// The problems of one model, in order; there is at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Errors {
    pub(crate) model: PathBuf,
    pub(crate) report: Report,
    pub(crate) log: Option<PathBuf>,
    pub(crate) in_build_script: bool,
}

impl Errors {
    /// The problems.
    pub fn problems(&self) -> &[Problem] {
        &self.report.problems
    }

    /// The file with the full report, if it could be written.
    pub fn log(&self) -> Option<&Path> {
        self.log.as_deref()
    }

    /// Prints a line for each problem and ends the process.
    ///
    /// In a build script the lines are Cargo's own errors, and the process ends in success: Cargo
    /// then fails the build and shows these lines alone, while a failing build script would have
    /// all its output shown. Elsewhere they go to standard error and the status is 1.
    pub fn exit(&self) -> ! {
        let (text, status) = self.last_words();
        // Nobody is left to hear that a stream is closed.
        let _ = match status {
            0 => std::io::stdout().write_all(text.as_bytes()),
            _ => std::io::stderr().write_all(text.as_bytes()),
        };
        std::process::exit(status)
    }

    /// What `exit` prints, and its status; 0 is for standard output.
    pub(crate) fn last_words(&self) -> (String, i32) {
        let lines = self.to_string();
        if self.in_build_script {
            let mut directives = Directives::default();
            lines.lines().for_each(|line| directives.error(line));
            (directives.text(), 0)
        } else {
            let log = self.log.as_ref().map(|log| format!("full report: {}\n", log.display()));
            (format!("{lines}\n{}", log.unwrap_or_default()), 1)
        }
    }
}

impl fmt::Display for Errors {
    /// One line a problem, without a line break after the last.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A path may hold line breaks as well.
        let model = Problem::new(self.model.display().to_string()).to_string();
        for (index, problem) in self.report.lines().into_iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            // What concerns the file as a whole begins with its name already.
            if !problem.starts_with(&format!("{model}: ")) {
                write!(f, "{model}: ")?;
            }
            f.write_str(&problem)?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}
