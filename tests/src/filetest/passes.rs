//! Tests of passes.

use niello::arith::Symbol;
use niello::graph::interp::{Value, evaluate};
use niello::graph::verify_module;
use niello::ir::{Definition, IRModule};
use niello::pass::{PassContext, PipelineText, Registry};
use niello::target::Target;
use niello::tir::transform::{RunTimeLength, RunTimeLengths};
use niello::tir::{InterpError, Param, PrimFunc, VarId, interpret};

use super::{TestFile, shown, valid_module};
use crate::values::{close, sample_inputs};

/// The header's options beside the passes.
pub(super) struct Options {
    pub(super) opt_level: Option<String>,
    /// Options as `key=json`.
    pub(super) config: Vec<String>,
    /// An architecture, with a CPU if given.
    pub(super) target: Option<String>,
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
    if let Some(text) = &options.target {
        builder = builder.target(Target::of_machine(text).map_err(|error| error.to_string())?);
    }
    let cx = builder.build().map_err(|report| report.to_string())?;
    let list = PipelineText::parse(passes).and_then(|text| text.build(&Registry::global()));
    let list = list.map_err(|error| error.to_string())?;
    let mut after = before.clone();
    for pass in list.passes() {
        after = pass.run(after, &cx).map_err(|error| shown(&error.diagnostics(), &file.text))?;
    }
    same_values(&before, &after)?;
    same_loops(&before, &after)?;
    Ok(after.to_string())
}

/// The values for all dimensions of loop functions.
const SIZES: [i64; 3] = [1, 4, 19];

/// Checks that loop functions leave the same contents in their parameters before and after.
/// Functions whose parameters change their size are skipped.
fn same_loops(before: &IRModule, after: &IRModule) -> Result<(), String> {
    let functions = before.prim_funcs().flat_map(|function| SIZES.map(|size| (function, size)));
    for ((global, func), size) in functions {
        let Some(Definition::Prim(lowered)) = after.get(global) else { continue };
        let dims = vec![size; func.dims.len()];
        let (Ok(func), Ok(lowered)) = (func.with_extents(&dims), lowered.with_extents(&dims))
        else {
            continue;
        };
        let bytes = |func: &PrimFunc| -> Option<Vec<usize>> {
            let bytes = |param: &Param| {
                let buffer = &func.buffers[param.buffer];
                let elements = usize::try_from(buffer.spec.physical_len().ok()?).ok()?;
                Some(elements * buffer.dtype.bytes()?)
            };
            func.params.iter().map(bytes).collect()
        };
        let Some(sizes) = bytes(&func).filter(|sizes| Some(sizes) == bytes(&lowered).as_ref())
        else {
            continue;
        };
        let run = |func: &PrimFunc| {
            // Small numbers of any type, different in each element.
            let fill =
                |size: &usize| (0..*size).map(|at| (at / 4 % 7 * (at % 4 / 3)) as u8).collect();
            let mut args: Vec<Vec<u8>> = sizes.iter().map(fill).collect();
            interpret(func, &mut args, &dims)?;
            // Nobody reads what is behind the elements of a run.
            for length in RunTimeLengths::of(func).0 {
                forget_behind(func, &length, &dims, &mut args);
            }
            Ok::<_, InterpError>(args)
        };
        let Ok(expected) = run(&func) else { continue };
        let found = run(&lowered)
            .map_err(|error| format!("{global} can no longer be interpreted: {error}"))?;
        if found != expected {
            return Err(format!("{global} leaves something else in its parameters"));
        }
    }
    Ok(())
}

/// Zeroes what a dense parameter has behind the elements of a run along an axis.
fn forget_behind(func: &PrimFunc, length: &RunTimeLength, dims: &[i64], args: &mut [Vec<u8>]) {
    let RunTimeLength { param, axis, extent } = length;
    let (Some(arg), Some(param)) = (args.get_mut(*param), func.params.get(*param)) else { return };
    let buffer = &func.buffers[param.buffer];
    let value = |symbol: &Symbol| {
        let named = |dim: &VarId| func.vars[*dim].name == symbol.name();
        dims.get(func.dims.iter().position(named)?).copied()
    };
    let Ok(end) = extent.eval(&value) else { return };
    let inner: i64 = buffer.shape()[axis + 1..].iter().product();
    for (at, element) in arg.chunks_mut(buffer.dtype.bytes().unwrap_or(1)).enumerate() {
        if at as i64 / inner % buffer.shape()[*axis] >= end {
            element.fill(0);
        }
    }
}

/// Checks that `main` yields the same before and after, if it can be evaluated on generated inputs.
fn same_values(before: &IRModule, after: &IRModule) -> Result<(), String> {
    let lowered = after.iter().any(|(_, definition)| matches!(definition, Definition::Prim(_)));
    let Some(inputs) = before.function("main").and_then(sample_inputs) else { return Ok(()) };
    let expected = evaluate(before, "main", &inputs);
    let (Ok(expected), false) = (expected, lowered) else { return Ok(()) };
    let found: Value = evaluate(after, "main", &inputs)
        .map_err(|error| format!("`main` can no longer be evaluated: {error}"))?;
    close(&expected, &found).map_err(|error| format!("`main` yields something else: {error}"))
}
