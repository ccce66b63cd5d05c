//! An unknown argument is an error with a suggestion.

use niello::ir::IRModule;
use niello::pass::{PassContext, module_pass};

#[module_pass(optlevel = 2)]
fn near(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

#[module_pass(opt_level = 2, colour = "red")]
fn far(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

fn main() {}
