//! `nn.layer_norm`: normalisation over the innermost axes (ONNX `LayerNormalization`).

use serde::{Deserialize, Serialize};

use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, Type};
use crate::ops::compute::{Compute, Stages, broadcast, multiply_add};
use crate::ops::eval::{EvalCx, axis_of, broadcast_strides, floats, num_elements, offsets};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern};
use crate::te::ComputeDag;
use crate::tir::{BinaryOp, Intrinsic, PrimExpr};

/// Attributes of `nn.layer_norm`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerNormAttrs {
    /// The first of the axes that are normalised together, counted from either end; the others are
    /// all that follow it.
    pub axis: i64,
    /// Added to the variance.
    pub epsilon: f64,
}

/// `gamma · (x - mean) / √(variance + epsilon) + beta`, with mean and variance over the axes from
/// `axis` on. `gamma` and `beta` broadcast to `x`; an absent one changes nothing.
pub static LAYER_NORM: OpDef = OpDef::new(
    "nn.layer_norm",
    "normalisation over the innermost axes",
    &[Input::required("x"), Input::optional("gamma"), Input::optional("beta")],
    infer,
    eval,
    compute,
)
.attributes::<LayerNormAttrs>()
.defaults(|| Attrs::new().with("axis", -1).with("epsilon", 1e-5))
.pattern(OpPattern::OutElemWiseFusable);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: LayerNormAttrs = cx.attrs()?;
    let x = cx.tensor_of(0, DTypes::Float)?;
    cx.axis(0, attrs.axis)?;
    for index in [1, 2] {
        let Some(factor) = cx.optional_tensor(index)? else { continue };
        cx.same_dtype(0, index)?;
        ensure!(
            cx.broadcasts_to(&factor.shape, &x.shape),
            "input `{}` is {factor}, which does not broadcast to input `x`, {x}",
            cx.input_name(index)
        );
    }
    Ok(x.clone().into())
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: LayerNormAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let mut values = floats(x)?.to_vec();
    let len = num_elements(&x.shape()[axis_of(x, attrs.axis)?..]);
    for group in values.chunks_mut(len.max(1)) {
        let mean = group.iter().sum::<f64>() / len as f64;
        let variance = group.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / len as f64;
        let scale = 1.0 / (variance + attrs.epsilon).sqrt();
        group.iter_mut().for_each(|v| *v = (*v - mean) * scale);
    }
    if let Some(gamma) = cx.optional(1) {
        let strides = broadcast_strides(gamma.shape(), x.shape());
        let gamma = floats(gamma)?;
        let places = offsets(x.shape(), &strides, 0);
        values.iter_mut().zip(places).for_each(|(v, at)| *v *= gamma[at]);
    }
    if let Some(beta) = cx.optional(2) {
        let strides = broadcast_strides(beta.shape(), x.shape());
        let beta = floats(beta)?;
        let places = offsets(x.shape(), &strides, 0);
        values.iter_mut().zip(places).for_each(|(v, at)| *v += beta[at]);
    }
    cx.result(Elements::Float(values))
}

/// Mean and variance are found in two passes, so that a mean far from zero takes no digits from the
/// variance.
fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: LayerNormAttrs = cx.attrs()?;
    let (x, gamma, beta) = (cx.arg(0)?, cx.optional(1), cx.optional(2));
    let (shape, dtype) = cx.result();
    let axis = cx.axis(attrs.axis, shape.len())?;
    let (outer, over) = shape.split_at(axis);
    let wide = dtype.accumulator();
    let count = PrimExpr::float(over.iter().map(|&extent| extent as f64).product(), wide);
    let at = |index: &[PrimExpr], by: &[PrimExpr]| [&index[..axis], by].concat();
    let op = cx.op.name;
    let dag: &mut ComputeDag = cx.dag;
    let sum = dag.reduce(op, outer, wide, BinaryOp::Add, over, |dag, index, by| {
        dag.at(x, &at(index, by)).cast(wide)
    });
    let mean = dag.compute(op, outer, wide, |dag, index| dag.at(sum, index) / count.clone());
    let deviation = dag.compute(op, &shape, wide, |dag, index| {
        dag.at(x, index).cast(wide) - dag.at(mean, &index[..axis])
    });
    let squares = dag.reduce(op, outer, wide, BinaryOp::Add, over, |dag, index, by| {
        let deviation = dag.at(deviation, &at(index, by));
        deviation.clone() * deviation
    });
    let scale = dag.compute(op, outer, wide, |dag, index| {
        let variance = dag.at(squares, index) / count + PrimExpr::float(attrs.epsilon, wide);
        PrimExpr::float(1.0, wide) / PrimExpr::call(Intrinsic::Sqrt, variance)
    });
    cx.element(|dag, index| {
        let at = |stage| dag.at(stage, &broadcast(dag.shape(stage), &shape, index)).cast(wide);
        let (deviation, scale) = (dag.at(deviation, index), dag.at(scale, &index[..axis]));
        let (value, factor) = match gamma {
            Some(gamma) => (deviation * scale, at(gamma)),
            None => (deviation, scale),
        };
        let value = match beta {
            Some(beta) => multiply_add(value, factor, at(beta)),
            None => value * factor,
        };
        value.cast(dtype)
    })
}
