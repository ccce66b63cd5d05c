//! A pass must return a module.

use niello::ir::IRModule;
use niello::pass::{PassContext, module_pass};

#[module_pass(opt_level = 1)]
fn p(_module: IRModule, _cx: &PassContext) {}

fn main() {}
