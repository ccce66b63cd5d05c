//! Parameters have the types of their places; rustc's own message.

use niello::graph::Function;
use niello::ir::IRModule;
use niello::pass::{PassContext, PassInfo, function_pass, pass_instrument};

#[function_pass(opt_level = 1)]
fn swapped(_module: &IRModule, function: Function, _cx: &PassContext) -> Function {
    function
}

struct Watch;

#[pass_instrument]
impl Watch {
    fn run_before_pass(&self, _info: &PassInfo, _module: &IRModule) {}
}

fn main() {}
