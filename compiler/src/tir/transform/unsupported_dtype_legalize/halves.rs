//! Functions that compute in `float16`.

use super::convert;
use crate::ir::DType;
use crate::tir::{BinaryOp, PrimExpr, PrimFunc, PrimFuncData, Stmt};

/// Whether products of `float16` are added up.
pub(super) fn are_summed(func: &PrimFunc) -> bool {
    let mut found = false;
    func.body.walk_exprs(&mut |expr| {
        found |= matches!(expr, PrimExpr::MulAdd { c, .. } if c.dtype() == DType::F16);
    });
    found
}

/// Computes in `float32` what is no arithmetic: functions, remainders, reductions of a vector, and
/// conversions from and to integers, which are the same that way.
pub(super) fn widen_others(mut func: PrimFunc) -> PrimFunc {
    let data = func.make_mut();
    let body = std::mem::replace(&mut data.body, Stmt::nop());
    data.body = body.map_exprs(&mut |expr| expr.rewrite(&mut |expr| widened(data, expr)));
    func
}

/// The operands of `expr` are widened already.
fn widened(data: &mut PrimFuncData, expr: PrimExpr) -> PrimExpr {
    let is_half = |expr: &PrimExpr| expr.dtype() == DType::F16;
    match expr {
        PrimExpr::Call { intrinsic, args } if args.iter().any(is_half) => {
            let args = args.into_iter().map(|arg| widen(data, arg)).collect();
            narrow(data, PrimExpr::Call { intrinsic, args })
        }
        PrimExpr::Binary { op: BinaryOp::Rem, lhs, rhs } if is_half(&lhs) => {
            let [lhs, rhs] = [*lhs, *rhs].map(|value| widen(data, value));
            narrow(data, PrimExpr::binary(BinaryOp::Rem, lhs, rhs))
        }
        PrimExpr::VectorReduce { op, value } if is_half(&value) => {
            let value = Box::new(widen(data, *value));
            narrow(data, PrimExpr::VectorReduce { op, value })
        }
        PrimExpr::Cast { value, dtype } if is_half(&value) => widen(data, *value).cast(dtype),
        PrimExpr::Cast { value, dtype: DType::F16 } => {
            let value = if value.dtype().is_float() { *value } else { value.cast(DType::F32) };
            narrow(data, value)
        }
        other => other,
    }
}

/// A value in `float32`, if it is `float16`.
fn widen(data: &mut PrimFuncData, value: PrimExpr) -> PrimExpr {
    match value.dtype() {
        DType::F16 => convert::from_bits(data, value.reinterpret(DType::U16), DType::F16),
        _ => value,
    }
}

/// A value in `float16`.
fn narrow(data: &mut PrimFuncData, value: PrimExpr) -> PrimExpr {
    convert::to_bits(data, value, DType::F16).reinterpret(DType::F16)
}
