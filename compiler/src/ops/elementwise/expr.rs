//! What the tensor expressions of elementwise operators share.

use crate::ir::DType;
use crate::ops::compute::{Compute, Stages, broadcast};
use crate::tir::PrimExpr;

/// A function of one element.
pub(super) fn unary(cx: &mut Compute<'_>, body: impl FnOnce(PrimExpr) -> PrimExpr) -> Stages {
    let x = cx.arg(0)?;
    cx.element(|dag, index| body(dag.at(x, index)))
}

/// A function with coefficients, which floats of 16 bits would round: it is computed in 32.
pub(super) fn weighted(cx: &mut Compute<'_>, body: impl FnOnce(PrimExpr) -> PrimExpr) -> Stages {
    unary(cx, |x| match x.dtype() {
        dtype @ (DType::F16 | DType::BF16) => body(x.cast(DType::F32)).cast(dtype),
        _ => body(x),
    })
}

/// A function of two elements that broadcasting brings together.
pub(super) fn binary(
    cx: &mut Compute<'_>,
    body: impl FnOnce(PrimExpr, PrimExpr) -> PrimExpr,
) -> Stages {
    let (lhs, rhs) = (cx.arg(0)?, cx.arg(1)?);
    let (shape, _) = cx.result();
    cx.element(|dag, index| {
        let a = dag.at(lhs, &broadcast(dag.shape(lhs), &shape, index));
        let b = dag.at(rhs, &broadcast(dag.shape(rhs), &shape, index));
        body(a, b)
    })
}

/// A constant of the type of `x`.
pub(super) fn like(value: f64, x: &PrimExpr) -> PrimExpr {
    let ty = x.ty();
    let value = if ty.dtype.is_float() {
        PrimExpr::float(value, ty.dtype)
    } else {
        PrimExpr::int(value as i64, ty.dtype)
    };
    value.broadcast_to(ty.lanes)
}

/// One of the type of `x`.
pub(super) fn one(x: &PrimExpr) -> PrimExpr {
    like(1.0, x)
}

/// Whether an element is less than zero.
pub(super) fn negative(x: &PrimExpr) -> PrimExpr {
    x.clone().less(PrimExpr::zero(x.ty()))
}
