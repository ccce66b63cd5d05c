//! Hooks take `&self`, because instruments are shared.

use niello::ir::IRModule;
use niello::pass::{PassInfo, pass_instrument};

struct Watch(usize);

#[pass_instrument]
impl Watch {
    fn run_before_pass(&mut self, _module: &IRModule, _info: &PassInfo) {
        self.0 += 1;
    }

    fn exit_pass_ctx(self) {}

    fn enter_pass_ctx() {}
}

fn main() {}
