//! `transpose`: axes in another order (ONNX `Transpose`).

use serde::{Deserialize, Serialize};

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::{Dim, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::{EvalCx, axis_of, dense_strides, offsets};
use crate::ops::{EvalError, InferCx, OpDef, OpPattern, values};
use crate::tir::PrimExpr;

/// Attributes of `transpose`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TransposeAttrs {
    /// For each axis of the result the axis of the argument that it is: every axis once.
    pub axes: Vec<i64>,
}

/// The result's axis `i` is the argument's axis `axes[i]`.
pub static TRANSPOSE: OpDef =
    OpDef::new("transpose", "the axes in another order", X, infer, eval, compute)
        .attributes::<TransposeAttrs>()
        .pattern(OpPattern::Injective)
        .shape_value(shape_value);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: TransposeAttrs = cx.attrs()?;
    let x = cx.tensor(0)?;
    let listed = cx.axis_mask(0, &attrs.axes)?;
    ensure!(
        listed.iter().all(|&listed| listed),
        "axes {:?} must list each of the {} axes of input `x`, which is {x}",
        attrs.axes,
        listed.len()
    );
    let mut dims = Vec::with_capacity(listed.len());
    for &axis in &attrs.axes {
        dims.push(x.shape[cx.axis(0, axis)?].clone());
    }
    cx.result(dims, x.dtype)
}

/// Pairs that are listed the other way round, as of padding.
fn shape_value(cx: &InferCx<'_>) -> Option<Vec<Dim>> {
    let attrs: TransposeAttrs = cx.attrs().ok()?;
    let (dims, ty) = values::value(cx, 0)?;
    let shape = values::usizes(&ty.shape)?;
    let dense = dense_strides(&shape);
    let axes = attrs.axes.iter().map(|&axis| cx.axis(0, axis).ok());
    let axes: Vec<usize> = axes.collect::<Option<_>>()?;
    let turned: Vec<usize> = axes.iter().map(|&axis| shape[axis]).collect();
    let strides: Vec<isize> = axes.iter().map(|&axis| dense[axis]).collect();
    values::picked(dims, offsets(&turned, &strides, 0))
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: TransposeAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let dense = dense_strides(x.shape());
    let strides: Vec<isize> = attrs
        .axes
        .iter()
        .map(|&axis| Ok(dense[axis_of(x, axis)?]))
        .collect::<Result<_, EvalError>>()?;
    cx.picked(x, offsets(cx.shape(), &strides, 0))
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: TransposeAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let rank = cx.dag.shape(x).len();
    let axes: Vec<usize> =
        attrs.axes.iter().map(|&axis| cx.axis(axis, rank)).collect::<Result<_, _>>()?;
    cx.element(|dag, index| {
        let mut at = vec![PrimExpr::index(0); rank];
        for (i, &axis) in index.iter().zip(&axes) {
            at[axis] = i.clone();
        }
        dag.at(x, &at)
    })
}
