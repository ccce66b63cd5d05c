//! Prints functions with errors under the lines that they are about.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::check::ids_are_in_range;
use super::{FunctionErrors, VerifyError, VerifyPlace};
use crate::graph::print::{Printed, print_with_lines};
use crate::graph::visit::ScopeTree;

/// Number of lines up to which a function is printed whole.
const WHOLE_LINES: usize = 200;
/// Lines printed before and after a line with an error in a longer function.
const CONTEXT_LINES: usize = 5;

pub(super) fn render(found: &FunctionErrors) -> String {
    let FunctionErrors { global, function, errors } = found;
    let mut out = String::new();
    if !ids_are_in_range(function) {
        let name = global.as_ref().map_or_else(|| "a function".to_owned(), ToString::to_string);
        let _ = writeln!(out, "; {name} cannot be shown");
        errors.iter().for_each(|error| message(&mut out, error));
        return out;
    }
    let Printed { text, lines } = print_with_lines(function, global.as_ref());
    let tree = ScopeTree::new(function);
    let mut by_line: BTreeMap<usize, Vec<&VerifyError>> = BTreeMap::new();
    let mut nowhere = Vec::new();
    for error in errors {
        let line = match error.place {
            VerifyPlace::Expr(id) => lines[id],
            VerifyPlace::Scope(scope) => match tree.owner(scope) {
                Some(owner) => lines[owner],
                None => Some(0),
            },
        };
        match line {
            Some(line) => by_line.entry(line as usize).or_default().push(error),
            None => nowhere.push(error),
        }
    }
    let text_lines: Vec<&str> = text.lines().collect();
    let shown = |line: usize| {
        let near = line.saturating_sub(CONTEXT_LINES)..=line + CONTEXT_LINES;
        text_lines.len() <= WHOLE_LINES || by_line.range(near).next().is_some()
    };
    let mut skipped = false;
    for (index, line) in text_lines.iter().enumerate() {
        if !shown(index) {
            if !skipped {
                out.push_str("; ...\n");
            }
            skipped = true;
            continue;
        }
        skipped = false;
        let _ = writeln!(out, "{line}");
        by_line.get(&index).into_iter().flatten().for_each(|error| message(&mut out, error));
    }
    if !nowhere.is_empty() {
        out.push_str("; in expressions that are not shown, because nothing uses them:\n");
        nowhere.into_iter().for_each(|error| message(&mut out, error));
    }
    out
}

fn message(out: &mut String, error: &VerifyError) {
    // One line per error, even if names in the message contain line breaks.
    let _ = writeln!(out, "; error: {}", error.to_string().replace(['\n', '\r'], " "));
}
