//! A pass function has no type parameters.

use niello::ir::IRModule;
use niello::pass::{PassContext, module_pass};

#[module_pass(opt_level = 1)]
fn generic<T>(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

#[module_pass(opt_level = 1)]
fn any(module: impl Into<IRModule>, _cx: &PassContext) -> IRModule {
    module.into()
}

fn main() {}
