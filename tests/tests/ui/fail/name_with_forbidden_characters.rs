//! A textual pipeline must be able to spell the name.

use niello::ir::IRModule;
use niello::pass::{PassContext, module_pass};

#[module_pass(opt_level = 1, name = "a b")]
fn blank(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

#[module_pass(opt_level = 1, name = "x(y)")]
fn bracket(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

#[module_pass(opt_level = 1, name = NAME)]
fn constant(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

fn main() {}
