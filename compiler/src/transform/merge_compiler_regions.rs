//! Neighbours of one code generator as one function.

use cranelift_entity::SecondaryMap;

use super::external::{COMPILER, Closed, enclose, taken_scopes};
use crate::analysis::{Anf, bound_values};
use crate::graph::visit::Users;
use crate::graph::{ExprId, Function, Rewriter};
use crate::ir::{Attrs, IRModule};
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

crate::register_pass_config_option! {
    /// Code generators whose closures stay as they are: each has one call.
    pub APART: Vec<String> = "relay.MergeCompilerRegions.apart";
}

/// Joins closures with the same attribute `Compiler` where one alone uses what the other computes.
///
/// A closure whose value is used by calls that have become one closure, and by nothing else, joins
/// them: so each has one result, and none waits for what depends on it. Values that are bound by
/// name are computed where they are, and so is what `relay.MergeCompilerRegions.apart` lists.
#[function_pass(opt_level = 0, required = [InferType], clears = [Anf])]
pub fn merge_compiler_regions(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    let closures = Closed::of(&function, COMPILER);
    if function.attrs().flag("Primitive") || closures.is_empty() {
        return Ok(function);
    }
    let apart = cx.get(&APART);
    let live = function.live();
    let bound = bound_values(&function, &live);
    let taken = taken_scopes(&function);
    let users = Users::new(&function);
    // The last call of what a call belongs to; users have larger ids than what they use.
    let mut roots: SecondaryMap<ExprId, Option<ExprId>> = SecondaryMap::new();
    let mut is_result: SecondaryMap<ExprId, bool> = SecondaryMap::new();
    for (_, scope) in function.scopes() {
        is_result[scope.result] = true;
    }
    for id in function.ids().rev().filter(|&id| live[id]) {
        let scope = function.data_of(id).scope;
        let called = closures.called(id).filter(|_| !taken[scope]);
        let called = called.filter(|(name, _)| !apart.iter().any(|other| other == name));
        let Some((compiler, _)) = called else { continue };
        let root = users.of(id).first().and_then(|&user| roots[user]).filter(|&root| {
            function.data_of(root).scope == scope
                && closures.called(root).is_some_and(|(other, _)| other == compiler)
                && users.of(id).iter().all(|&user| roots[user] == Some(root))
                && !bound[id]
                && !is_result[id]
        });
        roots[id] = Some(root.unwrap_or(id));
    }
    let mut members: SecondaryMap<ExprId, Vec<ExprId>> = SecondaryMap::new();
    for id in function.ids() {
        if let Some(root) = roots[id] {
            members[root].push(id);
        }
    }
    let mut rewriter = Rewriter::new(function.clone());
    while let Some(id) = rewriter.next_call()? {
        let (calls, Some((compiler, _))) = (&members[id], closures.called(id)) else { continue };
        if calls.len() < 2 {
            continue;
        }
        let attrs = Attrs::new().with(COMPILER, compiler);
        let new = enclose(&mut rewriter, calls, Some(&closures), None, attrs)?;
        cx.count("merged regions", calls.len() as u64 - 1);
        rewriter.replace(new);
    }
    Ok(rewriter.finish()?)
}
