//! Declares whether tensors may overlap.

use crate::ir::IRModule;
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::PrimFunc;

crate::register_pass_config_option! {
    /// Whether generated code may assume that no two tensors of a kernel overlap.
    ///
    /// Tensors that the executor passes never overlap, except for those that a kernel computes in
    /// place.
    pub NOALIAS: bool = "tir.noalias", default = true;
}

/// The attribute whose value is `false` for functions whose tensors may overlap.
pub const NOALIAS_ATTR: &str = "tir.noalias";

/// Notes in the function that its tensors may overlap, if the context says so.
#[prim_func_pass(opt_level = 0, name = "tir.AnnotateNoAlias", crate = crate)]
pub fn annotate_no_alias(mut func: PrimFunc, _module: &IRModule, cx: &PassContext) -> PrimFunc {
    let is_noted = func.attrs.get(NOALIAS_ATTR).is_some_and(|value| value == "false");
    if !cx.get(&NOALIAS) && !is_noted {
        func.make_mut().attrs.insert(NOALIAS_ATTR.to_owned(), "false".to_owned());
    }
    func
}
