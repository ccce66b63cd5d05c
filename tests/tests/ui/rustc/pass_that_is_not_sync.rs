//! A pass is shared by threads; rustc's own message.

use std::rc::Rc;

use niello::ir::IRModule;
use niello::pass::{PassContext, module_pass};

struct Counts(Rc<u32>);

#[module_pass(opt_level = 1)]
impl Counts {
    fn transform_module(&self, module: IRModule, _cx: &PassContext) -> IRModule {
        assert_eq!(*self.0, 0);
        module
    }
}

fn main() {}
