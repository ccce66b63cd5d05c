//! Results of the wrong type: the traits behind the macros say what is expected.

use niello::graph::Function;
use niello::ir::IRModule;
use niello::pass::{PassContext, PassInfo, function_pass, module_pass, pass_instrument};

#[module_pass(opt_level = 1)]
fn optional(module: IRModule, _cx: &PassContext) -> Option<IRModule> {
    Some(module)
}

#[function_pass(opt_level = 1)]
fn text(_function: Function, _module: &IRModule, _cx: &PassContext) -> String {
    String::new()
}

struct Watch;

#[pass_instrument]
impl Watch {
    fn should_run(&self, _module: &IRModule, _info: &PassInfo) -> u32 {
        1
    }
}

fn main() {}
