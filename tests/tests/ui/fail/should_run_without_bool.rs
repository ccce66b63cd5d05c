//! `should_run` returns a boolean.

use niello::ir::IRModule;
use niello::pass::{PassInfo, pass_instrument};

struct Watch;

#[pass_instrument]
impl Watch {
    fn should_run(&self, _module: &IRModule, _info: &PassInfo) {}
}

fn main() {}
