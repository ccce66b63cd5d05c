//! User passes on the loops of kernels.

use std::sync::{Arc, Mutex};

use super::*;
use crate::ir::IRModule;
use crate::pass::{PassInfo, PassInstrument, prim_func_pass};
use crate::tir::PrimFunc;

/// Marks the function as visited.
#[prim_func_pass(opt_level = 0, name = "test.Sign", crate = crate)]
fn sign(mut func: PrimFunc, _module: &IRModule, cx: &PassContext) -> PrimFunc {
    cx.count("kernels", 1);
    func.make_mut().origin.push("signed".to_owned());
    func
}

/// Fails.
#[prim_func_pass(opt_level = 0, name = "test.Refuse", crate = crate)]
fn refuse(
    _func: PrimFunc,
    _module: &IRModule,
    _cx: &PassContext,
) -> Result<PrimFunc, &'static str> {
    Err("it does not like kernels")
}

/// The options with a configuration value for passes.
fn with(name: &str, value: serde_json::Value) -> CompileOptions {
    CompileOptions { config: [(name.to_owned(), value)].into(), ..pinned(2) }
}

#[test]
fn passes_of_the_users_run_on_kernels() {
    let options = with("tir.add_lower_pass", serde_json::json!([[2, "test.Sign"]]));
    let passes = Passes::new(&options).unwrap();
    let signed = compile(&dense(), &options, &passes).unwrap();
    let kernels: Vec<&PrimFunc> =
        signed.program.kernels.values().flat_map(|kernel| &kernel.versions).collect();
    assert!(!kernels.is_empty());
    assert!(kernels.iter().all(|kernel| kernel.origin.last().is_some_and(|line| line == "signed")));
    let count = passes.context.statistics()[&("test.Sign".to_owned(), "kernels")];
    assert_eq!(count, kernels.len() as u64);
    let plain = run(&dense(), &pinned(2)).unwrap();
    assert_ne!(plain.model.symbol, signed.model.symbol);
}

#[test]
fn a_pass_that_fails_is_named_with_the_kernel() {
    let options = with("tir.add_lower_pass", serde_json::json!([[3, "test.Refuse"]]));
    let report = run(&dense(), &options).unwrap_err().to_string();
    assert!(report.contains("pass test.Refuse, function @"), "{report}");
    assert!(report.contains("add_nn_relu: it does not like kernels"), "{report}");
}

#[test]
fn options_of_passes_are_checked() {
    let error = run(&dense(), &with("tir.add_lower_pas", true.into())).unwrap_err().to_string();
    assert!(error.contains("did you mean `tir.add_lower_pass`?"), "{error}");
}

/// Notes the loop passes that run, and on how many functions.
#[derive(Default)]
struct LoopPasses(Mutex<Vec<(String, usize)>>);

impl PassInstrument for LoopPasses {
    fn run_after_pass(&self, module: &IRModule, info: &PassInfo) -> crate::pass::HookResult {
        if info.name().starts_with("tir.") {
            let seen = (info.name().to_owned(), module.prim_funcs().count());
            self.0.lock().unwrap().push(seen);
        }
        Ok(())
    }
}

#[test]
fn instruments_see_the_passes_and_change_nothing() {
    let options = pinned(2);
    let plain = run(&dense(), &options).unwrap();
    let instrument = Arc::new(LoopPasses::default());
    let context = Passes::context(&options).shared_instrument(instrument.clone());
    let passes = Passes { context: context.build().unwrap(), extensions: Default::default() };
    let watched = compile(&dense(), &options, &passes).unwrap();
    assert_eq!(watched.model, plain.model);
    let seen = instrument.0.lock().unwrap();
    let kernels = plain.program.kernels.len();
    assert!(seen.contains(&("tir.VectorizeLoop".to_owned(), kernels)), "{seen:?}");
    assert_eq!(seen.last(), Some(&("tir.Lower".to_owned(), kernels)));
}
