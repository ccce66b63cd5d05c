//! An argument may be given only once.

use niello::ir::IRModule;
use niello::pass::{PassContext, module_pass};

#[module_pass(opt_level = 1, opt_level = 2)]
fn p(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

fn main() {}
