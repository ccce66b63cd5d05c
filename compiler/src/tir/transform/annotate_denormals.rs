//! Whether a function runs with denormal numbers flushed to zero.

use crate::ir::IRModule;
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::PrimFunc;

crate::register_pass_config_option! {
    /// Whether denormal numbers count as zeros while a function runs, on targets that can do that.
    ///
    /// The code that calls the function sets the processor's mode and restores it.
    pub FLUSH_DENORMALS: bool = "tir.flush_denormals", default = false;
}

/// The attribute of functions that run with denormal numbers flushed to zero, where it is `true`.
pub const FLUSH_DENORMALS_ATTR: &str = "tir.flush_denormals";

/// Notes in the function that denormal numbers are flushed to zero, if the context says so.
#[prim_func_pass(opt_level = 0, name = "tir.AnnotateDenormals", crate = crate)]
pub fn annotate_denormals(mut func: PrimFunc, _module: &IRModule, cx: &PassContext) -> PrimFunc {
    let flushes = cx.get(&FLUSH_DENORMALS) && cx.target().can_flush_denormals();
    if flushes && !func.flushes_denormals() {
        func.make_mut().attrs.insert(FLUSH_DENORMALS_ATTR.to_owned(), "true".to_owned());
    }
    func
}
