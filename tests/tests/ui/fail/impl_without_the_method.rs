//! An impl block must have the method of its kind of pass.

use niello::graph::Function;
use niello::ir::IRModule;
use niello::pass::{PassContext, function_pass, module_pass};

struct Swapped;

#[module_pass(opt_level = 1)]
impl Swapped {
    fn transform_function(&self, f: Function, _module: &IRModule, _cx: &PassContext) -> Function {
        f
    }
}

struct Misspelt;

#[function_pass(opt_level = 1)]
impl Misspelt {
    fn transfrom_function(&self, f: Function, _module: &IRModule, _cx: &PassContext) -> Function {
        f
    }
}

struct Mutable;

#[module_pass(opt_level = 1)]
impl Mutable {
    fn transform_module(&mut self, module: IRModule, _cx: &PassContext) -> IRModule {
        module
    }
}

fn main() {}
