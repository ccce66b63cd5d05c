//! A level is an integer literal from 0 up.

use niello::ir::IRModule;
use niello::pass::{PassContext, module_pass};

#[module_pass(opt_level = "2")]
fn text(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

#[module_pass(opt_level = -1)]
fn negative(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

#[module_pass(opt_level = 2.5)]
fn fraction(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

#[module_pass(opt_level)]
fn nothing(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

fn main() {}
