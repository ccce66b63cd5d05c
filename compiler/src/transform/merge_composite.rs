//! Patterns of operators as functions, for code generators that know them.

use cranelift_entity::SecondaryMap;

use super::external::{COMPOSITE, enclose, taken_scopes};
use crate::analysis::{Anf, bound_values};
use crate::diagnostics::Problem;
use crate::graph::{ExprId, Function, Pattern, Rewriter};
use crate::ir::{Attrs, IRModule};
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

crate::register_pass_config_option! {
    /// Names of patterns with the patterns, such as `["dsp.dense_relu", "nn.relu(nn.dense(*, const))"]`;
    /// [`Pattern`] tells how they are written. The first that fits is taken.
    pub COMPOSITE_PATTERNS: Vec<(String, String)> = "relay.MergeComposite.patterns";
}

/// Makes each instance of a pattern a closure with the attribute `Composite`, the pattern's name.
///
/// Patterns are in `relay.MergeComposite.patterns`. Values within an instance have no other use.
/// Sums and products fit in both orders of their operands. Where instances overlap, the pattern that
/// is listed first has it, and of one pattern the instance that is computed first.
#[function_pass(opt_level = 0, required = [InferType], clears = [Anf])]
pub fn merge_composite(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    let mut patterns = Vec::new();
    for (name, text) in cx.get(&COMPOSITE_PATTERNS) {
        let pattern: Pattern = text.parse().map_err(|what| {
            let option = COMPOSITE_PATTERNS.name();
            Problem::new(format!("{option}: the pattern `{name}`: {what}"))
        })?;
        if !pattern.is_of_calls() {
            let option = COMPOSITE_PATTERNS.name();
            let what = "is not of a call of an operator, as `nn.relu(*)` is";
            Err(Problem::new(format!("{option}: the pattern `{name}`, `{text}`, {what}")))?;
        }
        patterns.push((name, pattern));
    }
    if function.attrs().flag("Primitive") || patterns.is_empty() {
        return Ok(function);
    }
    let live = function.live();
    let uses = function.use_counts_among(&live);
    let bound = bound_values(&function, &live);
    let scopes = taken_scopes(&function);
    // The calls of earlier instances.
    let mut taken: SecondaryMap<ExprId, bool> = SecondaryMap::with_capacity(function.len());
    let mut instances: SecondaryMap<ExprId, Option<(usize, Vec<ExprId>)>> = SecondaryMap::new();
    for (index, (_, pattern)) in patterns.iter().enumerate() {
        for id in function.ids().filter(|&id| live[id]) {
            let scope = function.data_of(id).scope;
            let is_inner = |call: ExprId| {
                function.data_of(call).scope == scope && uses[call] == 1 && !bound[call]
            };
            let accepts = |call: ExprId| !taken[call] && (call == id || is_inner(call));
            let found =
                (!scopes[scope]).then(|| pattern.find_if(&function, id, &accepts)).flatten();
            let mut calls = found.map(|found| found.calls().to_vec()).unwrap_or_default();
            if calls.is_empty() {
                continue;
            }
            calls.sort_unstable();
            for &call in &calls {
                taken[call] = true;
            }
            instances[id] = Some((index, calls));
        }
    }
    let mut rewriter = Rewriter::new(function.clone());
    while let Some(id) = rewriter.next_expr()? {
        let Some((index, calls)) = &instances[id] else { continue };
        let attrs = Attrs::new().with(COMPOSITE, patterns[*index].0.as_str());
        let new = enclose(&mut rewriter, calls, None, None, attrs)?;
        cx.count("composite functions", 1);
        rewriter.replace(new);
    }
    Ok(rewriter.finish()?)
}
