//! Functions that nothing calls.

use std::collections::BTreeSet;

use crate::graph::Expr;
use crate::ir::{GlobalVar, IRModule};
use crate::pass::{PassContext, module_pass};

crate::register_pass_config_option! {
    /// Functions that are called from outside, and so never unused.
    pub ENTRY_FUNCTIONS: Vec<String> = "relay.RemoveUnusedFunctions.entry_functions",
        default = vec!["main".to_owned()];
}

/// Removes the functions that the entry functions do not reach.
///
/// A module without an entry function is left as it is.
#[module_pass(opt_level = 1, preserves = all)]
pub fn remove_unused_functions(mut module: IRModule, cx: &PassContext) -> IRModule {
    let mut pending: Vec<GlobalVar> = cx
        .get(&ENTRY_FUNCTIONS)
        .iter()
        .map(|name| GlobalVar::new(name))
        .filter(|global| module.get(global).is_some())
        .collect();
    if pending.is_empty() {
        return module;
    }
    let mut reached: BTreeSet<GlobalVar> = pending.iter().cloned().collect();
    while let Some(global) = pending.pop() {
        let Some(function) = module.get(&global).and_then(|definition| definition.as_graph())
        else {
            continue;
        };
        for &id in function.global_refs() {
            if let Expr::GlobalVar(callee) = function.expr(id)
                && reached.insert(callee.clone())
            {
                pending.push(callee.clone());
            }
        }
    }
    module.retain(|global, _| reached.contains(global));
    module
}
