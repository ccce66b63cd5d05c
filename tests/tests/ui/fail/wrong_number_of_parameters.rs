//! A pass takes what it is called with.

use niello::graph::Function;
use niello::ir::IRModule;
use niello::pass::{PassContext, function_pass, module_pass};

#[module_pass(opt_level = 1)]
fn one(module: IRModule) -> IRModule {
    module
}

#[module_pass(opt_level = 1)]
fn none() -> IRModule {
    IRModule::new()
}

#[function_pass(opt_level = 1)]
fn two(function: Function, _cx: &PassContext) -> Function {
    function
}

fn main() {}
