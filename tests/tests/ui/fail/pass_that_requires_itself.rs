//! A pass cannot require itself.

use niello::ir::IRModule;
use niello::pass::{PassContext, module_pass};

#[module_pass(opt_level = 1, required = [MyPass])]
fn my_pass(module: IRModule, _cx: &PassContext) -> IRModule {
    module
}

struct Other;

#[module_pass(opt_level = 1, required = [Self])]
impl Other {
    fn transform_module(&self, module: IRModule, _cx: &PassContext) -> IRModule {
        module
    }
}

fn main() {}
