//! A pass needs a level, even if it has a name.

use niello::graph::Function;
use niello::ir::IRModule;
use niello::pass::{PassContext, function_pass};

#[function_pass(name = "x")]
fn p(function: Function, _module: &IRModule, _cx: &PassContext) -> Function {
    function
}

fn main() {}
