//! `nn.rms_norm` and `nn.l2_normalize`: elements by the root of a sum of squares (ONNX
//! `RMSNormalization`, and `LpNormalization` of order two).

use serde::{Deserialize, Serialize};

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, Type};
use crate::ops::compute::{Compute, Stages, broadcast};
use crate::ops::eval::{EvalCx, axis_of, broadcast_strides, floats, num_elements, offsets};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern};
use crate::te::StageId;
use crate::tir::{BinaryOp, Intrinsic, PrimExpr};

/// Attributes of `nn.rms_norm`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RmsNormAttrs {
    /// The first of the axes that are normalised together, counted from either end; the others are
    /// all that follow it.
    pub axis: i64,
    /// Added to the mean of the squares.
    pub epsilon: f64,
}

/// Attributes of `nn.l2_normalize`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct L2NormalizeAttrs {
    /// The least sum of squares that is divided by.
    pub eps: f64,
    /// The axes that are normalised together, counted from either end.
    pub axis: Vec<i64>,
}

/// `gamma · x / √(mean(x²) + epsilon)`, with the mean over the axes from `axis` on. `gamma`
/// broadcasts to `x`; if it is absent, nothing is multiplied.
pub static RMS_NORM: OpDef = OpDef::new(
    "nn.rms_norm",
    "elements by the root of their mean square, over the innermost axes",
    &[Input::required("x"), Input::optional("gamma")],
    infer_rms,
    eval_rms,
    |cx| {
        let attrs: RmsNormAttrs = cx.attrs()?;
        let rank = cx.result().0.len();
        let axes: Vec<usize> = (cx.axis(attrs.axis, rank)?..rank).collect();
        compute(cx, &axes, |sum, count| {
            let wide = sum.dtype();
            sum / PrimExpr::float(count, wide) + PrimExpr::float(attrs.epsilon, wide)
        })
    },
)
.attributes::<RmsNormAttrs>()
.defaults(|| Attrs::new().with("axis", -1).with("epsilon", 1e-5))
.pattern(OpPattern::OutElemWiseFusable);

/// `x / √max(Σ x², eps)`, with the sum over `axis`.
pub static L2_NORMALIZE: OpDef = OpDef::new(
    "nn.l2_normalize",
    "elements by the root of the sum of their squares",
    X,
    |cx| {
        let attrs: L2NormalizeAttrs = cx.attrs()?;
        let x = cx.tensor_of(0, DTypes::Float)?;
        cx.axis_mask(0, &attrs.axis)?;
        ensure!(!attrs.axis.is_empty(), "attribute `axis` must name the axes of the sum");
        Ok(x.clone().into())
    },
    eval_l2,
    |cx| {
        let attrs: L2NormalizeAttrs = cx.attrs()?;
        let rank = cx.result().0.len();
        let axes: Vec<usize> =
            attrs.axis.iter().map(|&axis| cx.axis(axis, rank)).collect::<Result<_, _>>()?;
        compute(cx, &axes, |sum, _| {
            let least = PrimExpr::float(attrs.eps, sum.dtype());
            sum.max(least)
        })
    },
)
.attributes::<L2NormalizeAttrs>()
.defaults(|| Attrs::new().with("eps", 1e-12))
.pattern(OpPattern::OutElemWiseFusable);

fn infer_rms(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: RmsNormAttrs = cx.attrs()?;
    let x = cx.tensor_of(0, DTypes::Float)?;
    cx.axis(0, attrs.axis)?;
    if let Some(gamma) = cx.optional_tensor(1)? {
        cx.same_dtype(0, 1)?;
        ensure!(
            cx.broadcasts_to(&gamma.shape, &x.shape),
            "input `gamma` is {gamma}, which does not broadcast to input `x`, {x}"
        );
    }
    Ok(x.clone().into())
}

fn eval_rms(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: RmsNormAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let mut values = floats(x)?.to_vec();
    let len = num_elements(&x.shape()[axis_of(x, attrs.axis)?..]);
    for group in values.chunks_mut(len.max(1)) {
        let mean = group.iter().map(|v| v * v).sum::<f64>() / len as f64;
        group.iter_mut().for_each(|v| *v /= (mean + attrs.epsilon).sqrt());
    }
    if let Some(gamma) = cx.optional(1) {
        let strides = broadcast_strides(gamma.shape(), x.shape());
        let gamma = floats(gamma)?;
        let places = offsets(x.shape(), &strides, 0);
        values.iter_mut().zip(places).for_each(|(v, at)| *v *= gamma[at]);
    }
    cx.result(Elements::Float(values))
}

fn eval_l2(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: L2NormalizeAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let mut rows = x.shape().to_vec();
    for &axis in &attrs.axis {
        rows[axis_of(x, axis)?] = 1;
    }
    let strides = broadcast_strides(&rows, x.shape());
    let mut values = floats(x)?.to_vec();
    let mut sums = vec![0.0; num_elements(&rows)];
    for (value, at) in values.iter().zip(offsets(x.shape(), &strides, 0)) {
        sums[at] += value * value;
    }
    for (value, at) in values.iter_mut().zip(offsets(x.shape(), &strides, 0)) {
        // A NaN stays one.
        let divisor = if sums[at] < attrs.eps { attrs.eps } else { sums[at] };
        *value /= divisor.sqrt();
    }
    cx.result(Elements::Float(values))
}

/// `x / √square(Σ x², n)`, times the second argument if there is one; the sum is of the `n` elements
/// along `axes`.
fn compute(
    cx: &mut Compute<'_>,
    axes: &[usize],
    square: impl Fn(PrimExpr, f64) -> PrimExpr,
) -> Stages {
    let (x, gamma) = (cx.arg(0)?, cx.optional(1));
    let (shape, dtype) = cx.result();
    let wide = dtype.accumulator();
    let mut rows = shape.clone();
    axes.iter().for_each(|&axis| rows[axis] = 1);
    let over: Vec<i64> = axes.iter().map(|&axis| shape[axis]).collect();
    let count = over.iter().map(|&extent| extent as f64).product();
    let op = cx.op.name;
    let sum: StageId = cx.dag.reduce(op, &rows, wide, BinaryOp::Add, &over, |dag, index, by| {
        let mut at = index.to_vec();
        axes.iter().zip(by).for_each(|(&axis, by)| at[axis] = by.clone());
        let value = dag.at(x, &at).cast(wide);
        value.clone() * value
    });
    let scale = cx.dag.compute(op, &rows, wide, |dag, index| {
        let root = PrimExpr::call(Intrinsic::Sqrt, square(dag.at(sum, index), count));
        PrimExpr::float(1.0, wide) / root
    });
    cx.element(|dag, index| {
        let scale = dag.at(scale, &broadcast(&rows, &shape, index));
        let value = dag.at(x, index).cast(wide) * scale;
        let value = match gamma {
            Some(gamma) => {
                value * dag.at(gamma, &broadcast(dag.shape(gamma), &shape, index)).cast(wide)
            }
            None => value,
        };
        value.cast(dtype)
    })
}
