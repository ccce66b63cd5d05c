//! How `niello opt` tells what is wrong.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;

use clap::ValueEnum;

use super::panics;
use crate::cli::Failure;
use crate::cli::output::Output;
use crate::diagnostics::{Diagnostic, JsonRenderer, Renderer, Report, Source, renderer};
use crate::pass::PassError;

/// How diagnostics are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(super) enum ErrorFormat {
    /// For people, with excerpts
    #[default]
    Human,
    /// One JSON object a line
    Json,
}

/// Tells diagnostics about one file, on the standard error.
pub(super) struct Teller {
    renderer: Arc<dyn Renderer>,
    source: Source,
}

impl Teller {
    /// One for the file of that path.
    pub(super) fn new(format: ErrorFormat, path: &Path) -> Teller {
        let renderer = match format {
            ErrorFormat::Human => renderer(stderr_is_styled()),
            ErrorFormat::Json => Arc::new(JsonRenderer),
        };
        Teller { renderer, source: Source::new(path.display().to_string(), "") }
    }

    /// Says that the file is that text.
    pub(super) fn set_text(&mut self, text: String) {
        self.source.text = text;
    }

    /// Writes diagnostics.
    pub(super) fn tell(&self, diagnostics: &[Diagnostic]) {
        for diagnostic in diagnostics {
            let text = self.renderer.render(diagnostic, Some(&self.source));
            Output::error(text.trim_end_matches('\n'));
        }
    }

    /// Writes diagnostics, and ends the command.
    pub(super) fn fail(&self, diagnostics: &[Diagnostic]) -> Failure {
        self.tell(diagnostics);
        Failure::Told
    }

    /// The diagnostics of a failure, with the place in the source if a pass panicked.
    pub(super) fn of_failure(error: &PassError) -> Vec<Diagnostic> {
        let mut failures = error.diagnostics();
        failures.retain(|diagnostic| diagnostic.level.is_failure());
        if let (Some(first), Some(place)) = (failures.first_mut(), panics::place_of(error)) {
            *first =
                first.clone().note(format!("at {place}; RUST_BACKTRACE=1 shows the way there"));
        }
        failures
    }

    /// Writes problems, and ends the command.
    pub(super) fn fail_with(&self, report: &Report) -> Failure {
        self.fail(&report.problems.iter().map(Diagnostic::from).collect::<Vec<_>>())
    }
}

/// Whether the standard error is a terminal that shows colours, and no one objects.
fn stderr_is_styled() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|value| value == "dumb");
    std::io::stderr().is_terminal() && !dumb && !set("NO_COLOR")
}
