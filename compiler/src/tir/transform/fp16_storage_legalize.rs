//! `float16` in memory.

use super::unsupported_dtype_legalize::legalize;
use crate::ir::{DType, IRModule};
use crate::pass::{PassContext, Result, prim_func_pass};
use crate::tir::PrimFunc;

/// Keeps `float16` in memory as the integers of its bits, and makes casts intrinsics on these.
///
/// The function is flattened. Remaining arithmetic on `float16` is done in `float32`.
///
/// # Errors
///
/// None: these elements share no bytes.
#[prim_func_pass(opt_level = 0, name = "tir.FP16StorageLegalize", crate = crate)]
pub fn fp16_storage_legalize(
    func: PrimFunc,
    _module: &IRModule,
    _cx: &PassContext,
) -> Result<PrimFunc> {
    legalize(func, |dtype| dtype == DType::F16)
}
