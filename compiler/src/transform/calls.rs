//! Calls of operators, as passes look at them and make them.

use super::fold_constant::MAX_GROWN_BYTES;
use super::plan_layouts::VECTOR_BITS;
use crate::graph::{Call, Callee, Expr, ExprId, FunctionBuilder};
use crate::ir::{Attrs, DType, TensorType};
use crate::ops::elementwise::{CAST, CastAttrs};
use crate::ops::nn::is_narrow;
use crate::ops::tensor::{EXPAND_DIMS, ExpandDimsAttrs};
use crate::ops::{Op, OpDef};
use crate::pass::{PassContext, PassError, Result};

/// The call that an expression is, if it calls that operator.
pub(super) fn call_of<'a>(b: &'a FunctionBuilder, id: ExprId, def: &OpDef) -> Option<&'a Call> {
    b.expr(id).as_call().filter(|call| matches!(call.callee, Callee::Op(op) if op.is(def)))
}

/// The operator of a call, unless a function is called.
pub(super) fn op_of(expr: &Expr) -> Option<(Op, &Call)> {
    match expr {
        Expr::Call(call @ Call { callee: Callee::Op(op), .. }) => Some((*op, call)),
        _ => None,
    }
}

/// Calls an operator that has no attributes.
pub(super) fn call(
    b: &mut FunctionBuilder,
    def: &'static OpDef,
    args: &[ExprId],
) -> Result<ExprId> {
    Ok(b.call(Op::new(def), args, Attrs::new())?)
}

/// Calls an operator with attributes.
pub(super) fn call_with(
    b: &mut FunctionBuilder,
    def: &'static OpDef,
    args: &[ExprId],
    attrs: &impl serde::Serialize,
) -> Result<ExprId> {
    Ok(b.call(Op::new(def), args, Attrs::from_struct(attrs)?)?)
}

/// The value in another data type; the value itself if it has that one.
pub(super) fn cast(b: &mut FunctionBuilder, value: ExprId, dtype: DType) -> Result<ExprId> {
    if tensor(b, value)?.dtype == dtype {
        return Ok(value);
    }
    call_with(b, &CAST, &[value], &CastAttrs::to(dtype))
}

/// The type of a value that must be a tensor.
pub(super) fn tensor(b: &FunctionBuilder, value: ExprId) -> Result<TensorType> {
    let ty = b.ty(value);
    let tensor = ty.as_tensor().cloned();
    tensor.ok_or_else(|| PassError::new(format!("a tensor was expected, not {ty}")))
}

/// Whether products and convolutions of `float32` read constant weights of a type as they are stored.
/// Smaller ones are in a cache in any case, and would have to be widened again for each tile.
pub(super) fn stays_narrow(weight: &TensorType, cx: &PassContext) -> bool {
    let elements = weight.num_elements().unwrap_or(0);
    let is_large = elements > MAX_GROWN_BYTES / u64::from(DType::F32.bits() / 8);
    // Levels of x86 with vectors of 256 bits convert halves by an instruction.
    let converts = || cx.target().has_fp16_conversion() || cx.get(&VECTOR_BITS) >= 256;
    let is_cheap = is_narrow(weight.dtype) && (weight.dtype != DType::F16 || converts());
    is_large && is_cheap
}

/// The extents of a tensor, if all are known.
pub(super) fn extents(ty: &TensorType) -> Option<Vec<i64>> {
    ty.shape.iter().map(|dim| dim.as_const()).collect()
}

/// The number that an expression is in every place, if it is such a constant.
pub(super) fn uniform_of(b: &FunctionBuilder, id: ExprId) -> Option<f64> {
    b.expr(id).as_constant()?.uniform()
}

/// A vector with enough axes of extent one after it to run along `axis` of `rank` axes.
pub(super) fn along_axis(
    b: &mut FunctionBuilder,
    vector: ExprId,
    axis: usize,
    rank: usize,
) -> Result<ExprId> {
    if axis + 1 == rank {
        return Ok(vector);
    }
    let attrs = ExpandDimsAttrs { axis: (1..(rank - axis) as i64).collect() };
    call_with(b, &EXPAND_DIMS, &[vector], &attrs)
}
