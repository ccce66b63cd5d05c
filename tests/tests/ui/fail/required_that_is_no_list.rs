//! Requirements are a list of names or paths.

use niello::ir::IRModule;
use niello::pass::{PassContext, module_pass};

#[module_pass(opt_level = 1, required = "InferType")]
fn no_list(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

#[module_pass(opt_level = 1, required = [42], preserves = some)]
fn no_name(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

fn main() {}
