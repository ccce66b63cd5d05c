//! References between functions.

use std::collections::{BTreeMap, BTreeSet};
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

    /// The graph functions in groups of those that refer to each other, directly or not; each group
    /// after all that it refers to.
    pub fn groups(&self) -> Vec<Vec<GlobalVar>> {
        // Tarjan's algorithm, on a stack of its own.
        let mut groups = Vec::new();
        let mut number: BTreeMap<&GlobalVar, usize> = BTreeMap::new();
        let mut lowest: BTreeMap<&GlobalVar, usize> = BTreeMap::new();
        let mut open: Vec<&GlobalVar> = Vec::new();
        let mut is_open: BTreeSet<&GlobalVar> = BTreeSet::new();
        for start in self.callees.keys() {
            let mut path: Vec<(&GlobalVar, usize)> = vec![(start, 0)];
            while let Some((global, next)) = path.pop() {
                if next == 0 {
                    if number.contains_key(global) {
                        continue;
                    }
                    number.insert(global, number.len());
                    lowest.insert(global, number[global]);
                    open.push(global);
                    is_open.insert(global);
                } else if let Some(callee) = self.callees(global).get(next - 1)
                    && is_open.contains(callee)
                {
                    // The callee has been walked through, or is on the path.
                    let low = lowest[global].min(lowest[callee]);
                    lowest.insert(global, low);
                }
                match self.callees(global).get(next) {
                    Some(callee) => {
                        path.push((global, next + 1));
                        if let Some((callee, _)) = self.callees.get_key_value(callee) {
                            path.push((callee, 0));
                        }
                    }
                    None if lowest[global] == number[global] => {
                        let at = open.iter().rposition(|other| *other == global).unwrap_or(0);
                        let group = open.split_off(at);
                        group.iter().for_each(|global| {
                            is_open.remove(global);
                        });
                        groups.push(group.into_iter().cloned().collect());
                    }
                    None => {}
                }
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::parse_module;
    use crate::pass::PassContext;

    #[test]
    fn groups_come_after_what_they_refer_to() {
        let module = parse_module(
            "def @main() -> () { let %_ = @a(); @d() }
             def @a() -> () { let %_ = @b(); @c() }
             def @b() -> () { @a() }
             def @c() -> () { @outside() }
             def @d() -> () { @d() }
             extern def @outside() -> ();",
        )
        .unwrap();
        let groups = PassContext::current().analysis::<CallGraph>(&module).groups();
        let names: Vec<Vec<&str>> =
            groups.iter().map(|group| group.iter().map(GlobalVar::name).collect()).collect();
        assert_eq!(names, [vec!["c"], vec!["a", "b"], vec!["d"], vec!["main"]]);
    }
}
