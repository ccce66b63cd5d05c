//! A pass takes its module by value.

use niello::ir::IRModule;
use niello::pass::{PassContext, module_pass};

#[module_pass(opt_level = 1)]
fn p(module: &mut IRModule, _cx: &PassContext) -> IRModule {
    module.clone()
}

fn main() {}
