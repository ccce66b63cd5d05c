//! Errors of the parser, with their places.

use std::fmt;

use super::lexer::Pos;
use crate::diagnostics::{Diagnostic, Level, Problem, Report};
use crate::ir::Span;

/// Number of errors after which parsing stops: further ones would mostly follow from the first
/// ones.
pub(super) const MAX_ERRORS: usize = 32;

/// Longest piece of a line that a message shows, in characters.
const MAX_EXCERPT: usize = 100;

/// An error at a place of a text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// The message: lower case, no final full stop.
    pub message: String,
    /// What the author probably meant.
    pub help: Option<String>,
    /// The line of the error, or the part of a long line around the column.
    excerpt: String,
    /// The column within the excerpt, in characters from 0.
    caret: usize,
}

impl fmt::Display for ParseError {
    /// `3:14: message; help`, then the line with a caret below the column.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)?;
        if let Some(help) = &self.help {
            write!(f, "; {help}")?;
        }
        write!(f, "\n  | {}\n  | {:caret$}^", self.excerpt, "", caret = self.caret)
    }
}

impl std::error::Error for ParseError {}

impl ParseError {
    pub(super) fn new(text: &str, pos: Pos, message: String, help: Option<String>) -> ParseError {
        let (excerpt, caret) = excerpt(text, pos.offset);
        ParseError { line: pos.line, column: pos.column, message, help, excerpt, caret }
    }
}

/// The line around an offset, cut to a printable length, and the offset's position in it.
fn excerpt(text: &str, offset: usize) -> (String, usize) {
    let (before, after) = text.split_at(offset);
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let mut left: Vec<char> =
        before.chars().rev().take_while(|&c| c != '\n').take(MAX_EXCERPT / 2).collect();
    left.reverse();
    let right = after.chars().take_while(|&c| c != '\n').take(MAX_EXCERPT / 2);
    let caret = left.len();
    let excerpt: String = left.into_iter().chain(right).map(printable).collect();
    (excerpt.trim_end().to_owned(), caret)
}

/// All errors of a text, in the order of its lines; at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseErrors(pub Vec<ParseError>);

impl fmt::Display for ParseErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ParseErrors {}

impl ParseErrors {
    /// The errors as diagnostics about the text.
    pub fn diagnostics(&self) -> Vec<Diagnostic> {
        let diagnostic = |error: &ParseError| {
            let ParseError { line, column, message, help, excerpt: _, caret: _ } = error;
            let span = Span::Text { line: *line, column: *column };
            let diagnostic = Diagnostic::new(Level::Error, span, message);
            match help {
                Some(help) => diagnostic.help(help),
                None => diagnostic,
            }
        };
        self.0.iter().map(diagnostic).collect()
    }
}

impl From<ParseErrors> for Report {
    fn from(errors: ParseErrors) -> Report {
        let mut report = Report::new();
        report.extend(errors.0.into_iter().map(|error| {
            let ParseError { line, column, message, help, excerpt: _, caret: _ } = error;
            let problem = Problem::new(format!("{line}:{column}: {message}"));
            match help {
                Some(help) => problem.help(help),
                None => problem,
            }
        }));
        report
    }
}
