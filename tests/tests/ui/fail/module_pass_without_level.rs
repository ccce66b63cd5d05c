//! A pass states the level at which it is enabled.

use niello::ir::IRModule;
use niello::pass::{PassContext, module_pass};

#[module_pass]
fn p(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

fn main() {}
