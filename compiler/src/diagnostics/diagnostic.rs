//! What a pass has to say about the program it works on.

use std::fmt;

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
}

impl Diagnostic {
    /// A diagnostic about a place.
    pub fn new(level: Level, span: Span, message: impl Into<String>) -> Diagnostic {
        Diagnostic { level, message: message.into(), span }
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
