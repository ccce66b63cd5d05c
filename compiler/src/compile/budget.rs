//! Whether a compiled model takes no more than it may.

use std::collections::BTreeMap;

use crate::codegen::object::text_bytes;
use crate::diagnostics::{Problem, Report, options_are_arguments};
use crate::executor::{CompiledModel, Program, ValueKind};
use crate::options::Budget;

/// Most of the greatest parts that are named.
const NAMED_PARTS: usize = 3;

/// Checks a model against its budget.
///
/// # Errors
///
/// For each limit that is exceeded what takes most of it.
pub(super) fn check(
    budget: &Budget,
    model: &CompiledModel,
    program: &Program,
) -> Result<(), Report> {
    let Budget { workspace_bytes, weight_bytes, code_bytes, macs } = *budget;
    let mut report = Report::new();
    let values = |of_kind: fn(&ValueKind) -> bool| {
        let values = program.values.values().filter(|value| of_kind(&value.kind));
        parts(values.map(|value| (&value.name, value.physical_bytes().unwrap_or(0))))
    };
    if let Some(allowed) = exceeded(workspace_bytes, model.workspace_bytes) {
        let parts = values(|kind| matches!(kind, ValueKind::Computed | ValueKind::State));
        let used = format!("the workspace takes {} bytes", model.workspace_bytes);
        report.push(problem(&used, "workspace-bytes", allowed, &parts));
    }
    if let Some(allowed) = exceeded(weight_bytes, model.weights.len() as u64) {
        let parts = values(|kind| matches!(kind, ValueKind::Constant(_)));
        let used = format!("the weights take {} bytes", model.weights.len());
        report.push(problem(&used, "weight-bytes", allowed, &parts));
    }
    if code_bytes.is_some() {
        let sizes: Vec<(&String, u64)> = (model.objects.iter())
            .map(|object| Ok((&object.name, text_bytes(object)?)))
            .collect::<Result<_, Problem>>()?;
        let used = sizes.iter().map(|(_, size)| size).sum();
        if let Some(allowed) = exceeded(code_bytes, used) {
            let used = format!("the code takes {used} bytes");
            report.push(problem(&used, "code-bytes", allowed, &parts(sizes)));
        }
    }
    if let Some(allowed) = exceeded(macs, model.macs) {
        let kernels = model.kernels.rows.iter();
        let parts = parts(kernels.map(|row| (&row.name, row.macs * row.calls as u64)));
        let used = format!("an inference takes {} multiply-accumulates", model.macs);
        report.push(problem(&used, "macs", allowed, &parts));
    }
    if report.is_empty() { Ok(()) } else { Err(report) }
}

/// The limit, if there is one and it is less than what is used.
fn exceeded(limit: Option<u64>, used: u64) -> Option<u64> {
    limit.filter(|&limit| used > limit)
}

/// The names and sizes of the greatest parts, those of one name together.
fn parts<'a>(parts: impl IntoIterator<Item = (&'a String, u64)>) -> Vec<(&'a str, u64)> {
    let mut sizes: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, size) in parts {
        *sizes.entry(name).or_default() += size;
    }
    let mut sizes: Vec<(&str, u64)> = sizes.into_iter().filter(|(_, size)| *size > 0).collect();
    sizes.sort_by_key(|&(name, size)| (std::cmp::Reverse(size), name));
    sizes.truncate(NAMED_PARTS);
    sizes
}

fn problem(used: &str, option: &str, allowed: u64, parts: &[(&str, u64)]) -> Problem {
    let option = match options_are_arguments() {
        true => format!("--max-{option} {allowed}"),
        false => format!(".max_{}({allowed})", option.replace('-', "_")),
    };
    let problem = Problem::new(format!("{used}, but `{option}` allows no more"));
    let parts: Vec<String> =
        parts.iter().map(|(name, size)| format!("`{name}` ({size})")).collect();
    match parts.is_empty() {
        true => problem,
        false => problem.help(format!("the greatest parts are {}", parts.join(", "))),
    }
}
