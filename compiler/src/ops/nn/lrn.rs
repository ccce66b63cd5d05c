//! `nn.lrn`: local response normalisation over neighbouring channels (ONNX `LRN`).

use serde::{Deserialize, Serialize};

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, Type};
use crate::ops::compute::{Compute, Stages, multiply_add, within};
use crate::ops::eval::{AxisSplit, EvalCx};
use crate::ops::relation::{DTypes, at_least};
use crate::ops::{EvalError, InferCx, OpDef, OpPattern};
use crate::tir::{BinaryOp, PrimExpr};

/// Attributes of `nn.lrn`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LrnAttrs {
    /// Number of channels in a sum: `(size - 1) / 2` before, the rest after.
    pub size: i64,
    /// Factor of the mean of squares.
    pub alpha: f64,
    /// Exponent.
    pub beta: f64,
    /// Summand.
    pub bias: f64,
}

/// `x / (bias + alpha / size · Σ x²)^beta`, the sum over `size` channels of `(N, C, …)` around each.
pub static LRN: OpDef =
    OpDef::new("nn.lrn", "normalisation over neighbouring channels", X, infer, eval, compute)
        .attributes::<LrnAttrs>()
        .defaults(|| Attrs::new().with("alpha", 1e-4).with("beta", 0.75).with("bias", 1.0))
        .pattern(OpPattern::Opaque);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: LrnAttrs = cx.attrs()?;
    let x = cx.tensor_of(0, DTypes::Float)?;
    ensure!(x.shape.rank() >= 2, "input `x` must have dimensions (N, C, …), but it is {x}");
    at_least("size", attrs.size, 1)?;
    Ok(x.clone().into())
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: LrnAttrs = cx.attrs()?;
    let x = cx.floats(0)?;
    let split = AxisSplit::new(cx.shape(), 1);
    let size = usize::try_from(attrs.size).unwrap_or(usize::MAX);
    let (before, after) = ((size - 1) / 2, size / 2);
    let mut values = vec![0.0; x.len()];
    for start in split.starts() {
        for channel in 0..split.extent {
            let window = channel.saturating_sub(before)
                ..=channel.saturating_add(after).min(split.extent - 1);
            let sum: f64 = window.map(|c| x[start + c * split.inner].powi(2)).sum();
            let at = start + channel * split.inner;
            values[at] =
                x[at] / (attrs.bias + attrs.alpha / attrs.size as f64 * sum).powf(attrs.beta);
        }
    }
    cx.result(Elements::Float(values))
}

/// The sum of squares goes over the channels around each; there are none before the first and after
/// the last.
fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: LrnAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    let channels = shape[1];
    let (before, after) = (((attrs.size - 1) / 2).min(channels), (attrs.size / 2).min(channels));
    let over = [before + after + 1];
    let wide = dtype.accumulator();
    let (op, zero) = (cx.op.name, PrimExpr::zero(wide));
    let sum = cx.dag.reduce(op, &shape, wide, BinaryOp::Add, &over, |dag, index, by| {
        let channel = index[1].clone() + by[0].clone() - before;
        let mut at = index.to_vec();
        at[1] = channel.clone();
        let element = dag.at(x, &at).cast(wide);
        let value = PrimExpr::select(within(&channel, 0, channels), element, zero);
        value.clone() * value
    });
    cx.element(|dag, index| {
        let share = PrimExpr::float(attrs.alpha / attrs.size as f64, wide);
        let base = multiply_add(dag.at(sum, index), share, PrimExpr::float(attrs.bias, wide));
        (dag.at(x, index).cast(wide) / base.pow(PrimExpr::float(attrs.beta, wide))).cast(dtype)
    })
}
