//! A method that is spelt almost like a hook is an error.

use niello::ir::IRModule;
use niello::pass::{PassInfo, pass_instrument};

struct Watch;

#[pass_instrument]
impl Watch {
    fn run_befor_pass(&self, _module: &IRModule, _info: &PassInfo) {}

    fn shouldrun(&self, _module: &IRModule, _info: &PassInfo) -> bool {
        true
    }
}

fn main() {}
