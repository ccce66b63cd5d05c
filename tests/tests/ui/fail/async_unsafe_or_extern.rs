//! A pass is a plain function.

use niello::ir::IRModule;
use niello::pass::{PassContext, module_pass};

#[module_pass(opt_level = 1)]
async fn later(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

#[module_pass(opt_level = 1)]
unsafe fn dangerous(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

#[module_pass(opt_level = 1)]
extern "C" fn foreign(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

fn main() {}
