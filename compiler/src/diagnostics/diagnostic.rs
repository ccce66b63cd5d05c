//! What there is to say about a program, by a pass, a parser or the verifier.

use std::fmt;

use super::Excerpt;
use crate::ir::Span;

/// How grave a diagnostic is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Level {
    /// niello itself is at fault; fails the pass.
    Bug,
    /// The program is wrong; fails the pass.
    Error,
    /// The program may not do what was meant.
    Warning,
    /// More about another diagnostic.
    Note,
    /// How to do it better.
    Help,
}

impl Level {
    /// Whether a pass that emits it fails.
    pub fn is_failure(self) -> bool {
        matches!(self, Level::Bug | Level::Error)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Level::Bug => "bug",
            Level::Error => "error",
            Level::Warning => "warning",
            Level::Note => "note",
            Level::Help => "help",
        })
    }
}

/// A message about a place of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// How grave it is.
    pub level: Level,
    /// What is the matter: lower case, no final full stop.
    pub message: String,
    /// The place.
    pub span: Span,
    /// The text to show, if it is not that of the file that `span` is about: a module that passes
    /// have changed is in no file.
    pub excerpt: Option<Box<Excerpt>>,
    /// What more there is to say: notes and help.
    pub children: Vec<Diagnostic>,
}

impl Diagnostic {
    /// A diagnostic about a place.
    pub fn new(level: Level, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { level, message: message.into(), span, excerpt: None, children: Vec::new() }
    }

    /// An error about no place in particular.
    pub fn error(message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(Level::Error, Span::Unknown, message)
    }

    /// Shows a text.
    #[must_use]
    pub fn showing(mut self, excerpt: impl Into<Option<Excerpt>>) -> Diagnostic {
        self.excerpt = excerpt.into().map(Box::new);
        self
    }

    /// Adds what else is to be said.
    #[must_use]
    pub fn with(mut self, child: Diagnostic) -> Diagnostic {
        self.children.push(child);
        self
    }

    /// Adds a note about no place in particular.
    #[must_use]
    pub fn note(self, message: impl Into<String>) -> Diagnostic {
        self.with(Diagnostic::new(Level::Note, Span::Unknown, message))
    }

    /// Adds what would be better.
    #[must_use]
    pub fn help(self, message: impl Into<String>) -> Diagnostic {
        self.with(Diagnostic::new(Level::Help, Span::Unknown, message))
    }
}

impl fmt::Display for Diagnostic {
    /// `error: message`, then `--> place` if the place is known; one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.level, self.message)?;
        match &self.span {
            Span::Unknown => Ok(()),
            span @ (Span::Onnx(_) | Span::Text { .. }) => write!(f, " --> {span}"),
        }
    }
}
