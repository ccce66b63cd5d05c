//! Violations as diagnostics.

use indexmap::IndexMap;

use super::check::ids_are_in_range;
use super::{FunctionErrors, PrimFuncErrors, VerifyErrors, VerifyPlace};
use crate::diagnostics::{Diagnostic, Level};
use crate::graph::parse::statement_lines;
use crate::graph::print::{of_line, print_with_lines};
use crate::graph::visit::ScopeTree;
use crate::ir::Span;
use crate::tir::{VerifyError, print_as};

impl VerifyErrors {
    /// One error per violation, with the line of the function's text and the origin of that line.
    pub fn diagnostics(&self) -> Vec<Diagnostic> {
        self.diagnostics_in("")
    }

    /// As [`diagnostics`](Self::diagnostics), for a module parsed from that text: errors in loop
    /// functions show the place of the statement in it.
    pub fn diagnostics_in(&self, text: &str) -> Vec<Diagnostic> {
        let lines = if self.1.is_empty() { IndexMap::new() } else { statement_lines(text) };
        let loops = self.1.iter().flat_map(|found| {
            let lines = lines.get(&found.global).map_or(&[][..], Vec::as_slice);
            of_prim_func(found, lines)
        });
        self.0.iter().flat_map(of_function).chain(loops).collect()
    }
}

/// `lines` are the lines of the statements in the text that the function was parsed from, if it
/// was.
fn of_prim_func(found: &PrimFuncErrors, lines: &[u32]) -> Vec<Diagnostic> {
    let PrimFuncErrors { global, function, errors } = found;
    let text = print_as(function, global.name(), &[]);
    let diagnostic = |error: &VerifyError| {
        // The error is printed under the line that it is about.
        let marked = print_as(function, global.name(), std::slice::from_ref(error));
        let differs = marked.lines().zip(text.lines()).position(|(marked, line)| marked != line);
        let line = differs.unwrap_or(text.lines().count()).saturating_sub(1);
        let in_text = error.statement.and_then(|statement| lines.get(statement));
        let span = in_text.map_or(Span::Unknown, |&line| Span::Text { line, column: 1 });
        let excerpt = of_line(&text, Some(global), line);
        Diagnostic::new(Level::Error, span, &error.message).showing(excerpt)
    };
    errors.iter().map(diagnostic).collect()
}

fn of_function(found: &FunctionErrors) -> Vec<Diagnostic> {
    let FunctionErrors { global, function, errors } = found;
    let plain = |message: &str| Diagnostic::error(message);
    if !ids_are_in_range(function) {
        let name = global.as_ref().map_or_else(|| "a function".to_owned(), ToString::to_string);
        let note = format!("{name} cannot be shown");
        return errors.iter().map(|error| plain(&error.message).note(&note)).collect();
    }
    let printed = print_with_lines(function, global.as_ref());
    let tree = ScopeTree::new(function);
    let diagnostic = |error: &super::VerifyError| {
        let expr = match error.place {
            VerifyPlace::Expr(id) => Some(id),
            VerifyPlace::Scope(scope) => tree.owner(scope),
        };
        let span = expr.map_or(Span::Unknown, |id| function.span(id).clone());
        // A scope without an owner is the function's body.
        let line = expr.map_or(Some(0), |id| printed.lines[id]);
        let excerpt = line.and_then(|line| of_line(&printed.text, global.as_ref(), line as usize));
        Diagnostic::new(Level::Error, span, &error.message).showing(excerpt)
    };
    errors.iter().map(diagnostic).collect()
}
