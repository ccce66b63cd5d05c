//! Row 9: a pass owns what it returns.

use niello::ir::IRModule;
use niello::pass::{PassContext, module_pass};

#[module_pass(opt_level = 1)]
fn p(module: &mut IRModule, _cx: &PassContext) -> IRModule {
    module.clone()
}

fn main() {}
