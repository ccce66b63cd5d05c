//! `nn.batch_norm`: normalisation by given statistics (ONNX `BatchNormalization` at inference).

use serde::{Deserialize, Serialize};

use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, Shape, TensorType, Type};
use crate::ops::compute::{Compute, Stages, multiply_add};
use crate::ops::eval::{AxisSplit, EvalCx, axis_of};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern};
use crate::tir::{Intrinsic, PrimExpr};

/// Attributes of `nn.batch_norm`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchNormAttrs {
    /// The axis of the channels, counted from either end; 1 in ONNX.
    pub axis: i64,
    /// Added to the variance.
    pub epsilon: f64,
    /// Whether `beta` is added.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub center: bool,
    /// Whether the quotients are multiplied by `gamma`.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub scale: bool,
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_yes(value: &bool) -> bool {
    *value
}

impl BatchNormAttrs {
    /// A normalisation of the channels along an axis, with `gamma` and `beta`.
    pub fn new(axis: i64, epsilon: f64) -> BatchNormAttrs {
        BatchNormAttrs { axis, epsilon, center: true, scale: true }
    }
}

/// `(gamma · (x - moving_mean) / √(moving_var + epsilon) + beta, moving_mean, moving_var)`, a tuple
/// as in Relay, without `gamma` or `beta` if the attributes say so. All inputs but `x` have one element for each channel.
pub static BATCH_NORM: OpDef = OpDef::new(
    "nn.batch_norm",
    "normalisation by given statistics",
    &[
        Input::required("x"),
        Input::required("gamma"),
        Input::required("beta"),
        Input::required("moving_mean"),
        Input::required("moving_var"),
    ],
    infer,
    eval,
    compute,
)
.attributes::<BatchNormAttrs>()
.defaults(|| Attrs::new().with("axis", 1).with("epsilon", 1e-5))
.pattern(OpPattern::Broadcast);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: BatchNormAttrs = cx.attrs()?;
    let x = cx.tensor_of(0, DTypes::Float)?;
    let axis = cx.axis(0, attrs.axis)?;
    let channels = TensorType::new(Shape::new([x.shape[axis].clone()]), x.dtype);
    for index in 1..5 {
        cx.expect_type(index, &channels, "the channels of input `x`")?;
    }
    let statistics = Type::from(channels);
    Ok(Type::tuple([x.clone().into(), statistics.clone(), statistics]))
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: BatchNormAttrs = cx.attrs()?;
    let (gamma, beta, mean, var) = (cx.floats(1)?, cx.floats(2)?, cx.floats(3)?, cx.floats(4)?);
    let split = AxisSplit::new(cx.shape(), axis_of(cx.arg(0)?, attrs.axis)?);
    let normalised = cx.floats(0)?.iter().enumerate().map(|(index, &x)| {
        let channel = index / split.inner % split.extent;
        let gamma = if attrs.scale { gamma[channel] } else { 1.0 };
        let beta = if attrs.center { beta[channel] } else { 0.0 };
        let scale = gamma / (var[channel] + attrs.epsilon).sqrt();
        (x - mean[channel]) * scale + beta
    });
    cx.results([
        Elements::Float(normalised.collect()),
        Elements::Float(mean.to_vec()),
        Elements::Float(var.to_vec()),
    ])
}

/// Inference only: the statistics are handed on.
fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: BatchNormAttrs = cx.attrs()?;
    let (x, gamma, beta) = (cx.arg(0)?, cx.arg(1)?, cx.arg(2)?);
    let (mean, variance) = (cx.arg(3)?, cx.arg(4)?);
    let axis = cx.axis(attrs.axis, cx.dag.shape(x).len())?;
    let (_, dtype) = cx.result();
    let wide = dtype.accumulator();
    let mut stages = cx.element(|dag, index| {
        let channel = &index[axis..=axis];
        let of_channel = |stage| dag.at(stage, channel).cast(wide);
        let spread = of_channel(variance) + PrimExpr::float(attrs.epsilon, wide);
        let one = PrimExpr::float(1.0, wide);
        let gamma = if attrs.scale { of_channel(gamma) } else { one };
        let scale = gamma / PrimExpr::call(Intrinsic::Sqrt, spread);
        let deviation = dag.at(x, index).cast(wide) - of_channel(mean);
        let normal = match attrs.center {
            true => multiply_add(deviation, scale, of_channel(beta)),
            false => deviation * scale,
        };
        normal.cast(dtype)
    })?;
    for (stage, (shape, dtype)) in [mean, variance].into_iter().zip(cx.results.iter().skip(1)) {
        stages.push(cx.dag.compute(cx.op.name, shape, *dtype, |dag, index| dag.at(stage, index)));
    }
    Ok(stages)
}
