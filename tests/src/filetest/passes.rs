//! Tests of passes.

use niello::graph::interp::{Value, evaluate};
use niello::graph::verify_module;
use niello::ir::{Definition, IRModule};
use niello::pass::{PassContext, Registry};

use super::{TestFile, shown, valid_module};
use crate::values::{close, sample_inputs};

/// What the header says beside the passes.
pub(super) struct Options {
    pub(super) opt_level: Option<String>,
    /// `key=json` each.
    pub(super) config: Vec<String>,
}

/// The text of the module after the passes, which are given by name.
pub(super) fn run(file: &TestFile, passes: &str, options: &Options) -> Result<String, String> {
    let before = valid_module(file)?;
    let mut builder =
        PassContext::builder().verify_with(|module| verify_module(module).map_err(Into::into));
    if let Some(level) = &options.opt_level {
        let level = level.parse().map_err(|_| format!("`{level}` is not a level"))?;
        builder = builder.opt_level(level);
    }
    for config in &options.config {
        let (key, value) = config.split_once('=').ok_or("a config line must be `key=json`")?;
        let value: serde_json::Value = serde_json::from_str(value.trim())
            .map_err(|error| format!("config `{}`: {error}", key.trim()))?;
        builder = builder.config_value(key.trim(), value);
    }
    let cx = builder.build().map_err(|report| report.to_string())?;
    let registry = Registry::global();
    let mut after = before.clone();
    for name in passes.split(',').map(str::trim) {
        let pass = registry.get(name).map_err(|error| error.to_string())?;
        after = pass.run(after, &cx).map_err(|error| shown(&error.diagnostics(), &file.text))?;
    }
    same_values(&before, &after)?;
    Ok(after.to_string())
}

/// Checks that `main` yields the same before and after, if it can be evaluated on made-up inputs.
fn same_values(before: &IRModule, after: &IRModule) -> Result<(), String> {
    let lowered = after.iter().any(|(_, definition)| matches!(definition, Definition::Prim(_)));
    let Some(inputs) = before.function("main").and_then(sample_inputs) else { return Ok(()) };
    let expected = evaluate(before, "main", &inputs);
    let (Ok(expected), false) = (expected, lowered) else { return Ok(()) };
    let found: Value = evaluate(after, "main", &inputs)
        .map_err(|error| format!("`main` can no longer be evaluated: {error}"))?;
    close(&expected, &found).map_err(|error| format!("`main` yields something else: {error}"))
}
