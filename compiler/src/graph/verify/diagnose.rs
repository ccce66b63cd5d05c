//! Violations as diagnostics.

use super::check::ids_are_in_range;
use super::{FunctionErrors, VerifyErrors, VerifyPlace};
use crate::diagnostics::{Diagnostic, Level};
use crate::graph::print::{of_line, print_with_lines};
use crate::graph::visit::ScopeTree;
use crate::ir::Span;

impl VerifyErrors {
    /// One error a violation, with the line of the function's text that it is about and the place
    /// that came from.
    pub fn diagnostics(&self) -> Vec<Diagnostic> {
        self.0.iter().flat_map(of_function).collect()
    }
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
        // A scope that belongs to no expression is the function's own.
        let line = expr.map_or(Some(0), |id| printed.lines[id]);
        let excerpt = line.and_then(|line| of_line(&printed.text, global.as_ref(), line as usize));
        Diagnostic::new(Level::Error, span, &error.message).showing(excerpt)
    };
    errors.iter().map(diagnostic).collect()
}
