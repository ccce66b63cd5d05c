//! Functions that nothing calls.

use super::{FuseOps, InferType, SimplifyInference};
use crate::analysis::CallGraph;
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
#[module_pass(opt_level = 1, preserves = [InferType, SimplifyInference, FuseOps])]
pub fn remove_unused_functions(mut module: IRModule, cx: &PassContext) -> IRModule {
    let entries: Vec<GlobalVar> = cx
        .get(&ENTRY_FUNCTIONS)
        .iter()
        .map(|name| GlobalVar::new(name))
        .filter(|global| module.get(global).is_some())
        .collect();
    if entries.is_empty() {
        return module;
    }
    let reached = cx.analysis::<CallGraph>(&module).reachable(entries);
    module.retain(|global, _| reached.contains(global));
    module
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{Definition, FuncType, Type};
    use crate::pass::Pass;
    use crate::transform::tests::support::Net;

    fn module(calls: &[(&str, &[&str])]) -> IRModule {
        let ty = FuncType { params: vec![], ret: Type::tuple([]) };
        let mut module = IRModule::new();
        for (name, callees) in calls {
            let mut net = Net::default();
            for callee in *callees {
                let callee = net.0.global(GlobalVar::new(callee), ty.clone());
                let call = net.0.call_function(callee, &[]).unwrap();
                net.0.bind("_", call);
            }
            let unit = net.0.tuple(&[]);
            module.insert(GlobalVar::new(name), Definition::Graph(net.finish(unit)));
        }
        module
    }

    fn names(module: &IRModule) -> Vec<&str> {
        module.iter().map(|(global, _)| global.name()).collect()
    }

    #[test]
    fn functions_reachable_from_entries_stay_in_order() {
        let before =
            module(&[("z", &["a"]), ("main", &["b"]), ("a", &[]), ("b", &["c"]), ("c", &["b"])]);
        assert_eq!(
            names(&RemoveUnusedFunctions.apply(before.clone()).unwrap()),
            ["main", "b", "c"]
        );
        let cx = PassContext::builder()
            .config(&ENTRY_FUNCTIONS, vec!["z".to_owned(), "nothing".to_owned()])
            .build()
            .unwrap();
        assert_eq!(names(&RemoveUnusedFunctions.run(before, &cx).unwrap()), ["z", "a"]);
        let library = module(&[("f", &[]), ("g", &[])]);
        assert!(RemoveUnusedFunctions.apply(library.clone()).unwrap().same(&library));
    }
}
