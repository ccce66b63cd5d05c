//! References between functions.

use std::collections::BTreeSet;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::graph::{Expr, Function};
use crate::ir::{GlobalVar, IRModule};
use crate::pass::{Analyses, Analysis};

/// The globals that a function refers to, each once, in the order of first mention.
#[derive(Clone, Copy, Debug)]
pub struct Callees;

impl Analysis for Callees {
    const NAME: &'static str = "Callees";
    type Unit = Function;
    type Output = Vec<GlobalVar>;

    fn compute(function: &Function, _: &Analyses<'_>) -> Vec<GlobalVar> {
        let mut callees: Vec<GlobalVar> = Vec::new();
        let mut seen: BTreeSet<&GlobalVar> = BTreeSet::new();
        for &id in function.global_refs() {
            if let Expr::GlobalVar(global) = function.expr(id)
                && seen.insert(global)
            {
                callees.push(global.clone());
            }
        }
        callees
    }
}

/// The references between the functions of a module.
#[derive(Clone, Copy, Debug)]
pub struct CallGraph;

impl Analysis for CallGraph {
    const NAME: &'static str = "CallGraph";
    type Unit = IRModule;
    type Output = Calls;

    fn compute(module: &IRModule, analyses: &Analyses<'_>) -> Calls {
        let callees = module
            .functions()
            .map(|(global, function)| (global.clone(), analyses.get::<Callees>(function)));
        Calls { callees: callees.collect() }
    }
}

/// The globals that each graph function refers to.
#[derive(PartialEq, Debug)]
pub struct Calls {
    callees: IndexMap<GlobalVar, Arc<Vec<GlobalVar>>>,
}

impl Calls {
    /// The globals that a function refers to; none for a definition that is no graph function.
    pub fn callees(&self, caller: &GlobalVar) -> &[GlobalVar] {
        self.callees.get(caller).map_or(&[], |callees| callees)
    }

    /// These functions, and all functions that they refer to, directly or not.
    pub fn reachable(&self, from: impl IntoIterator<Item = GlobalVar>) -> BTreeSet<GlobalVar> {
        let mut pending: Vec<GlobalVar> = from.into_iter().collect();
        let mut reached: BTreeSet<GlobalVar> = pending.iter().cloned().collect();
        while let Some(global) = pending.pop() {
            for callee in self.callees(&global) {
                if reached.insert(callee.clone()) {
                    pending.push(callee.clone());
                }
            }
        }
        reached
    }
}
