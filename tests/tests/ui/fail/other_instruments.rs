//! Instruments with other mistakes.

use niello::ir::IRModule;
use niello::pass::{PassInfo, pass_instrument};

struct Idle;

#[pass_instrument]
impl Idle {
    fn report(&self) {}
}

struct Watch;

#[pass_instrument(name = Watch, crat = niello)]
impl Watch {
    async fn enter_pass_ctx(&self) {}

    fn run_before_pass(&self, _info: &PassInfo) {}

    fn run_after_pass<T>(&self, _module: &IRModule, _info: &PassInfo) {}

    unsafe fn exit_pass_ctx(&self) {}
}

fn main() {}
