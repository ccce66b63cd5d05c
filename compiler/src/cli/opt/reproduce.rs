//! `niello opt --run-reproducer`: a failure, once more.

use std::path::Path;

use super::errors::Teller;
use super::watch::Watch;
use crate::cli::Failure;
use crate::cli::output::Output;
use crate::diagnostics::{Diagnostic, Level};
use crate::graph::{PrintOptions, print_module};
use crate::ir::Span;
use crate::pass::instruments::{Replay, Reproducer};

/// Repeats the failure of a file, watched by instruments. What comes out if nothing fails is
/// printed.
pub(super) fn run(path: &Path, watch: &Watch, teller: &mut Teller) -> Result<(), Failure> {
    let reproducer = Reproducer::read(path).map_err(|report| teller.fail_with(&report))?;
    if let Ok(text) = std::fs::read_to_string(path) {
        teller.set_text(text);
    }
    let replay = reproducer.run(watch.instruments.iter().cloned());
    watch.finish()?;
    let note = |text: String| Diagnostic::new(Level::Note, Span::Unknown, text);
    match replay.map_err(|error| teller.fail(&error.diagnostics()))? {
        Replay::SameFailure(error) => {
            let mut told = Teller::of_failure(&error);
            told.push(note("this is the failure that the file was written for".to_owned()));
            Err(teller.fail(&told))
        }
        Replay::OtherFailure(error) => {
            let mut told = Teller::of_failure(&error);
            let text = "this is not the failure that the file was written for, which was";
            told.push(note(format!("{text}: {}", reproducer.failure)));
            Err(teller.fail(&told))
        }
        Replay::NoFailure(module) => {
            Output::stdout().text(&print_module(&module, &PrintOptions::default()));
            let text = "the failure that the file was written for does not occur any more";
            teller.tell(&[note(format!("{text}: {}", reproducer.failure))]);
            Ok(())
        }
    }
}
