//! Expansions of the attributes on functions and `impl` blocks.

use super::support::{chain, module};
use crate::graph::Function;
use crate::ir::{Definition, GlobalVar, IRModule};
use crate::pass::{
    BoxError, NamedPass, Pass, PassBody, PassContext, PassKind, Registry, function_pass,
    module_pass, prim_func_pass,
};
use crate::tir::PrimFunc;

/// Does nothing.
///
/// And says so at length.
#[module_pass(opt_level = 3)]
fn direct_transform(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

fn always(_: &IRModule) -> bool {
    true
}

/// Has always been done.
#[module_pass(opt_level = 0, holds = always)]
pub(super) fn holds_always(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

type MyResult<T> = Result<T, BoxError>;
type Module = IRModule;

/// Fails on functions that are longer than three.
#[function_pass(opt_level = 1, name = "test.Short", required = [DirectTransform, "holds-always"], preserves = [DirectTransform])]
fn only_short(function: Function, _module: &Module, _cx: &PassContext) -> MyResult<Function> {
    if function.len() > 3 { Err("too long".into()) } else { Ok(function) }
}

/// Deletes every loop function.
#[prim_func_pass(opt_level = 0, preserves = all)]
fn no_loops(_function: PrimFunc, _module: &IRModule, _cx: &PassContext) -> Option<PrimFunc> {
    None
}

/// Returns a module that it was given, or its argument.
struct TestPipeline {
    module: IRModule,
    replace: bool,
}

#[module_pass(opt_level = 1)]
impl TestPipeline {
    fn transform_module(&self, module: IRModule, _cx: &PassContext) -> IRModule {
        if self.replace { self.module.clone() } else { module }
    }
}

/// A struct with a default is registered.
#[derive(Default)]
struct Configurable {
    length: usize,
}

/// Replaces every function by a chain.
#[function_pass(opt_level = 2)]
impl Configurable {
    fn transform_function(
        &self,
        _function: Function,
        _module: &IRModule,
        _cx: &PassContext,
    ) -> Function {
        chain(self.length)
    }
}

#[test]
fn a_function_becomes_a_pass_of_its_name() {
    let info = DirectTransform.info();
    assert_eq!(
        (info.name(), info.opt_level(), info.kind()),
        ("DirectTransform", 3, PassKind::Module)
    );
    assert_eq!(info.summary(), "Does nothing.");
    let m = module([("f", chain(1))]);
    assert!(DirectTransform.apply(m.clone()).unwrap().same(&m));
    // The function can still be called.
    assert!(direct_transform(m.clone(), &PassContext::default()).same(&m));
}

#[test]
fn arguments_go_into_the_info() {
    let info = OnlyShort.info();
    assert_eq!((info.name(), OnlyShort::NAME), ("test.Short", "test.Short"));
    let required: Vec<&str> = info.required().iter().map(|required| required.name()).collect();
    assert_eq!(required, ["DirectTransform", "holds-always"]);
    assert!(info.preserves().contains("direct_transform") && !info.preserves().contains("Other"));
    assert!(NoLoops.info().preserves().contains("Other"));
    assert_eq!(NoLoops.info().kind(), PassKind::PrimFunc);
    let error = OnlyShort.apply(module([("f", chain(3))])).unwrap_err();
    assert_eq!(error.to_string(), "pass test.Short, function @f: too long");
    assert!(HoldsAlways.info().holds(&IRModule::new()));
}

#[test]
fn registered_passes_are_found_under_every_spelling() {
    let registry = Registry::global();
    for name in ["OnlyShort", "test.short", "Test.Short"] {
        let found = registry.get(name);
        assert_eq!(found.is_ok(), name != "OnlyShort", "{name}");
    }
    let entry = registry.entry("transform.DirectTransform").unwrap();
    assert_eq!(entry.doc(), "Does nothing.\n\nAnd says so at length.");
    assert!(entry.origin().file.ends_with("macros.rs"));
    assert_eq!(entry.origin().package, "niello");
    assert!(registry.get("Configurable").is_ok());
    // A pass that needs configuration is only used by value.
    assert!(registry.get("TestPipeline").is_err());
    assert!(TestPipeline::make_default().is_none());
}

#[test]
fn the_struct_form_has_configuration() {
    let (m1, m2) = (module([("f", chain(1))]), module([("g", chain(2))]));
    let pass = TestPipeline { module: m2.clone(), replace: true };
    assert_eq!(pass.info().name(), "TestPipeline");
    assert!(pass.apply(m1.clone()).unwrap().same(&m2));
    let pass = TestPipeline { module: m2, replace: false };
    assert!(pass.apply(m1.clone()).unwrap().same(&m1));
    let after = Configurable { length: 7 }.apply(m1).unwrap();
    assert_eq!(after.function("f").unwrap().len(), 8);
}

#[test]
fn prim_func_passes_delete() {
    let mut m = module([("f", chain(1))]);
    let prim = PrimFunc::new(crate::tir::PrimFuncData::new("k"));
    m.insert(GlobalVar::new("k"), Definition::Prim(prim));
    assert_eq!(NoLoops.apply(m).unwrap().len(), 1);
}
