//! Arithmetic on `float16`.

use super::unsupported_dtype_legalize::compute_legalize;
use crate::ir::{DType, IRModule};
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::PrimFunc;

/// Computes `float16` arithmetic in `float32`: values are cast where they are loaded and stored.
#[prim_func_pass(opt_level = 0, name = "tir.FP16ComputeLegalize", crate = crate)]
pub fn fp16_compute_legalize(func: PrimFunc, _module: &IRModule, _cx: &PassContext) -> PrimFunc {
    compute_legalize(func, |dtype| dtype == DType::F16)
}
