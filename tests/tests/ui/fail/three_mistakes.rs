//! Three mistakes are three errors.

use niello::ir::IRModule;
use niello::pass::{PassContext, module_pass};

#[module_pass(opt_level = "high", required = InferType)]
async fn p(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

fn main() {}
