//! Other functions and impl blocks that cannot be passes.

use niello::ir::IRModule;
use niello::pass::{PassContext, module_pass, prim_func_pass};
use niello::tir::PrimFunc;

#[module_pass(opt_level = 1)]
fn changes_the_context(module: IRModule, _cx: &mut PassContext) -> IRModule {
    module
}

#[module_pass(opt_level = 1)]
fn no_parameters() -> IRModule {
    IRModule::new()
}

#[prim_func_pass(opt_level = 1)]
fn returns_nothing(_function: PrimFunc, _module: &IRModule, _cx: &PassContext) {}

struct Generic<T>(T);

#[module_pass(opt_level = 1)]
impl<T> Generic<T> {
    fn transform_module(&self, module: IRModule, _cx: &PassContext) -> IRModule {
        module
    }
}

struct Unbound;

#[module_pass(opt_level = 1)]
impl Unbound {
    fn transform_module(module: IRModule, _cx: &PassContext) -> IRModule {
        module
    }
}

struct Empty;

#[module_pass(opt_level = 1)]
impl Empty {}

struct Trait;

#[module_pass(opt_level = 1)]
impl Clone for Trait {
    fn clone(&self) -> Self {
        Trait
    }
}

fn main() {}
