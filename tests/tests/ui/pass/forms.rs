//! Every form that a pass may have.

use niello::graph::Function;
use niello::ir::IRModule;
use niello::pass::{PassContext, function_pass, module_pass, prim_func_pass};

type Module = IRModule;
type Fallible<T> = Result<T, std::fmt::Error>;

#[module_pass(opt_level = 0)]
fn minimal(module: IRModule, _: &PassContext) -> IRModule {
    module
}

/// Uses aliases, and fails with an error of its own.
#[module_pass(opt_level = 1, name = "ui.Aliased", required = [Minimal, "FoldConstant"])]
pub fn aliased(module: Module, _cx: &PassContext) -> Fallible<Module> {
    Ok(module)
}

#[function_pass(opt_level = 2, preserves = all, crate = ::niello)]
fn with_lifetimes<'a>(
    function: Function,
    _module: &'a IRModule,
    _cx: &'a PassContext,
) -> niello::pass::Result<Function> {
    Ok(function)
}

#[prim_func_pass(opt_level = 0)]
fn keep(function: niello::tir::PrimFunc, _: &IRModule, _: &PassContext) -> Option<niello::tir::PrimFunc> {
    Some(function)
}

#[cfg(any())]
#[module_pass(opt_level = 0)]
fn not_here(module: IRModule, _: &PassContext) -> IRModule {
    module
}

struct Configured {
    _length: usize,
}

#[function_pass(opt_level = 1)]
impl Configured {
    fn helper<T>(&self, value: T) -> T {
        value
    }

    fn transform_function(&self, f: Function, _: &IRModule, _: &PassContext) -> Function {
        self.helper(f)
    }
}

fn main() {
    use niello::pass::{Pass as _, PassBody as _, Registry};
    let module = IRModule::new();
    assert!(Minimal.apply(module.clone()).unwrap().same(&module));
    assert!(minimal(module.clone(), &PassContext::default()).same(&module));
    assert!(aliased(module.clone(), &PassContext::default()).is_ok());
    assert_eq!(Aliased.info().name(), "ui.Aliased");
    assert_eq!(Configured { _length: 1 }.info().name(), "Configured");
    let registry = Registry::global();
    for name in ["minimal", "ui.aliased", "with-lifetimes", "Keep"] {
        assert!(registry.get(name).is_ok(), "{name}");
    }
    assert!(registry.get("Configured").is_err());
}
