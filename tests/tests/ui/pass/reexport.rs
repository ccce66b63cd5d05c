//! The macros work through another crate's name for niello.

use niello::pass::module_pass;

mod framework {
    pub use niello as compiler;
    pub use niello::pass::module_pass as pass;
}

mod mine {
    use crate::framework::compiler::ir::IRModule;
    use crate::framework::compiler::pass::PassContext;

    /// Knows niello by another name.
    #[crate::framework::pass(opt_level = 0, crate = crate::framework::compiler)]
    pub fn renamed(module: IRModule, _cx: &PassContext) -> IRModule {
        module
    }
}

#[module_pass(opt_level = 0, required = [mine::Renamed])]
fn after_it(module: niello::ir::IRModule, _: &niello::pass::PassContext) -> niello::ir::IRModule {
    module
}

fn main() {
    use niello::pass::{Pass as _, Sequential};
    Sequential::default().then(AfterIt).apply(niello::ir::IRModule::new()).unwrap();
}
