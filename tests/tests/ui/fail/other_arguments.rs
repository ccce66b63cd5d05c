//! Other arguments of the wrong kind.

use niello::ir::IRModule;
use niello::pass::{PassContext, module_pass};

#[module_pass(opt_level = 1, name = Mine)]
fn name_without_quotes(module: IRModule, _: &PassContext) -> IRModule {
    module
}

#[module_pass(opt_level = 1, preserves = everything)]
fn preserves_a_word(module: IRModule, _: &PassContext) -> IRModule {
    module
}

#[module_pass(opt_level = 1, holds = 3)]
fn holds_a_number(module: IRModule, _: &PassContext) -> IRModule {
    module
}

#[module_pass(opt_level = 1, crate = "niello")]
fn crate_in_quotes(module: IRModule, _: &PassContext) -> IRModule {
    module
}

#[module_pass(1)]
fn level_without_name(module: IRModule, _: &PassContext) -> IRModule {
    module
}

#[module_pass(opt_level)]
fn level_without_value(module: IRModule, _: &PassContext) -> IRModule {
    module
}

fn main() {}
