//! Activation functions: ONNX's operators of the same names under Relay's `nn.`.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::erf::erf;
use super::expr::{binary, like, negative, one, unary, weighted};
use super::{X, map, same_type};
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, DType, Type};
use crate::ops::compute::{Compute, Stages, multiply_add};
use crate::ops::eval::{EvalCx, broadcast_strides, offsets};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern};
use crate::te::StageId;
use crate::tir::{Intrinsic, PrimExpr};

/// The type relation of a function from floats to floats with attributes.
fn same_float<A: DeserializeOwned>(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    cx.attrs::<A>()?;
    Ok(cx.tensor_of(0, DTypes::Float)?.clone().into())
}

/// Evaluates a function of one float with attributes.
fn map_with<A: DeserializeOwned>(
    cx: &EvalCx<'_>,
    f: fn(&A, f64) -> f64,
) -> Result<Vec<Tensor>, EvalError> {
    let attrs: A = cx.attrs()?;
    Ok(vec![cx.arg(0)?.map(|v| f(&attrs, v), |i| i)])
}

/// Defines functions of one float, with or without attributes: the attributes and their defaults, name
/// in the text format, summary, the function, and its tensor expression.
macro_rules! activations {
    ($(
        $(#[$doc:meta])*
        $op:ident $(($attrs:ty $(, $($field:ident = $default:expr),+)?))? = $name:literal, $summary:literal, |$($p:ident),+| $f:expr,
        te: $te:expr;
    )*) => {$(
        $(#[$doc])*
        pub static $op: OpDef = OpDef::new(
            $name,
            $summary,
            X,
            activations!(@infer $($attrs)?),
            activations!(@eval $op $(($attrs))?, |$($p),+| $f),
            $te,
        )
        $(.attributes::<$attrs>()$(.defaults(|| Attrs::new()$(.with(stringify!($field), $default))+))?)?
        .pattern(OpPattern::ElemWise);
    )*};
    (@infer) => { |cx| same_type(cx, DTypes::Float) };
    (@infer $attrs:ty) => { same_float::<$attrs> };
    (@eval $op:ident, |$v:ident| $f:expr) => {
        |cx| map(cx, |$v| $f, |i| i)
    };
    (@eval $op:ident ($attrs:ty), |$a:ident, $v:ident| $f:expr) => {
        |cx| map_with::<$attrs>(cx, |$a, $v| $f)
    };
}

/// Attributes of `nn.leaky_relu`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeakyReluAttrs {
    /// Slope where the element is negative.
    pub alpha: f64,
}

/// Attributes of `nn.elu`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EluAttrs {
    /// The function tends to `-alpha` where the element is very negative.
    pub alpha: f64,
}

/// Attributes of `nn.celu`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CeluAttrs {
    /// The function tends to `-alpha` where the element is very negative.
    pub alpha: f64,
}

/// Attributes of `nn.selu`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeluAttrs {
    /// As in `nn.elu`.
    pub alpha: f64,
    /// Factor of the whole.
    pub gamma: f64,
}

/// Attributes of `nn.hardsigmoid`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HardsigmoidAttrs {
    /// Slope of the middle part.
    pub alpha: f64,
    /// Value at zero.
    pub beta: f64,
}

/// Attributes of `nn.thresholded_relu`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ThresholdedReluAttrs {
    /// Elements up to here become zero.
    pub alpha: f64,
}

/// How `nn.gelu` computes the normal distribution.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GeluApproximation {
    /// By the error function.
    None,
    /// By `tanh(√(2/π)·(x + 0.044715·x³))`.
    Tanh,
}

/// Attributes of `nn.gelu`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GeluAttrs {
    /// How the normal distribution is computed.
    pub approximate: GeluApproximation,
}

/// The function between `-1` and `x` that [`ELU`] and [`CELU`] scale: `x` where it is not negative.
fn elu(alpha: f64, scale: f64, v: f64) -> f64 {
    if v < 0.0 { alpha * (v / scale).exp_m1() } else { v }
}

/// `log(1 + eˣ)` without overflow.
fn softplus(v: f64) -> f64 {
    v.max(0.0) + (-v.abs()).exp().ln_1p() + if v.is_nan() { v } else { 0.0 }
}

fn hardsigmoid(alpha: f64, beta: f64, v: f64) -> f64 {
    (alpha * v + beta).clamp(0.0, 1.0)
}

fn gelu(approximation: GeluApproximation, v: f64) -> f64 {
    match approximation {
        GeluApproximation::None => 0.5 * v * (1.0 + erf(v * std::f64::consts::FRAC_1_SQRT_2)),
        GeluApproximation::Tanh => {
            let root = (2.0 / std::f64::consts::PI).sqrt();
            0.5 * v * (1.0 + (root * (v + 0.044715 * v * v * v)).tanh())
        }
    }
}

activations! {
    /// `x`, but `alpha·(exp(x/alpha) - 1)` where `x` is negative.
    CELU(CeluAttrs, alpha = 1.0) = "nn.celu", "continuously differentiable exponential linear unit",
        |a, v| elu(a.alpha, a.alpha, v),
        te: |cx| {
            let attrs: CeluAttrs = cx.attrs()?;
            weighted(cx, |x| {
                let alpha = like(attrs.alpha, &x);
                let curve = exp_minus_one(x.clone() / alpha.clone()) * alpha;
                PrimExpr::select(negative(&x), curve, x)
            })
        };
    /// `x`, but `alpha·(exp(x) - 1)` where `x` is negative.
    ELU(EluAttrs, alpha = 1.0) = "nn.elu", "exponential linear unit", |a, v| elu(a.alpha, 1.0, v),
        te: |cx| {
            let attrs: EluAttrs = cx.attrs()?;
            weighted(cx, |x| {
                let curve = exp_minus_one(PrimExpr::zero(x.ty()).min(x.clone())) * like(attrs.alpha, &x);
                PrimExpr::select(negative(&x), curve, x)
            })
        };
    /// `x·Φ(x)` with the normal distribution's `Φ`.
    GELU(GeluAttrs, approximate = "none") = "nn.gelu", "Gaussian error linear unit", |a, v| gelu(a.approximate, v),
        te: |cx| {
            let attrs: GeluAttrs = cx.attrs()?;
            weighted(cx, |x| expr_gelu(x, attrs.approximate))
        };
    /// `alpha·x + beta`, held between 0 and 1.
    HARDSIGMOID(HardsigmoidAttrs, alpha = 0.2, beta = 0.5) = "nn.hardsigmoid", "piecewise linear sigmoid",
        |a, v| hardsigmoid(a.alpha, a.beta, v),
        te: |cx| {
            let attrs: HardsigmoidAttrs = cx.attrs()?;
            weighted(cx, |x| expr_hardsigmoid(&x, attrs.alpha, attrs.beta))
        };
    /// `x·hardsigmoid(x)` with `alpha` 1/6 and `beta` 0.5.
    HARDSWISH = "nn.hardswish", "the element times its hard sigmoid",
        |v| v * hardsigmoid(1.0 / 6.0, 0.5, v),
        te: |cx| weighted(cx, |x| expr_hardsigmoid(&x, 1.0 / 6.0, 0.5) * x);
    /// `x`, but `alpha·x` where `x` is negative.
    LEAKY_RELU(LeakyReluAttrs, alpha = 0.01) = "nn.leaky_relu", "rectifier with a slope below zero",
        |a, v| if v < 0.0 { a.alpha * v } else { v },
        te: |cx| {
            let attrs: LeakyReluAttrs = cx.attrs()?;
            weighted(cx, |x| {
                let scaled = x.clone() * like(attrs.alpha, &x);
                PrimExpr::select(negative(&x), scaled, x)
            })
        };
    /// `x·tanh(log(1 + eˣ))`.
    MISH = "nn.mish", "the element times the tangent of its soft plus",
        |v| v * softplus(v).tanh(),
        te: compute_mish;
    /// `gamma·x`, but `gamma·alpha·(exp(x) - 1)` where `x` is not positive.
    SELU(SeluAttrs, alpha = f64::from(1.673_263_2_f32), gamma = f64::from(1.050_701_f32)) = "nn.selu", "scaled exponential linear unit",
        |a, v| a.gamma * elu(a.alpha, 1.0, v),
        te: |cx| {
            let attrs: SeluAttrs = cx.attrs()?;
            weighted(cx, |x| {
                let curve = exp_minus_one(PrimExpr::zero(x.ty()).min(x.clone())) * like(attrs.alpha, &x);
                let gamma = like(attrs.gamma, &x);
                PrimExpr::select(negative(&x), curve, x) * gamma
            })
        };
    /// `log(1 + eˣ)`.
    SOFTPLUS = "nn.softplus", "smooth rectifier", |v| softplus(v),
        te: compute_softplus;
    /// `x / (1 + |x|)`.
    SOFTSIGN = "nn.softsign", "the element divided by one plus its magnitude",
        |v| v / (1.0 + v.abs()),
        te: |cx| unary(cx, |x| {
            let magnitude = PrimExpr::call(Intrinsic::Abs, x.clone());
            x.clone() / (one(&x) + magnitude)
        });
    /// `x` where it is greater than `alpha`, else zero.
    THRESHOLDED_RELU(ThresholdedReluAttrs, alpha = 1.0) = "nn.thresholded_relu",
        "the element where it is over a threshold, else zero",
        |a, v| if v > a.alpha { v } else { 0.0 },
        te: |cx| {
            let attrs: ThresholdedReluAttrs = cx.attrs()?;
            weighted(cx, |x| {
                let above = x.clone().greater(like(attrs.alpha, &x));
                let zero = PrimExpr::zero(x.ty());
                PrimExpr::select(above, x, zero)
            })
        };
}

/// `max(x, 0)`; a NaN stays one. Integers are allowed, as in ONNX since opset 14.
pub static RELU: OpDef = OpDef::new(
    "nn.relu",
    "the greater of the element and zero",
    X,
    |cx| same_type(cx, DTypes::Numeric),
    |cx| map(cx, |v| if v < 0.0 { 0.0 } else { v }, |i| i.max(0)),
    |cx| unary(cx, |x| PrimExpr::zero(x.ty()).max(x)),
)
.pattern(OpPattern::ElemWise);

/// `x`, but `slope·x` where `x` is negative.
///
/// The slope broadcasts to `x` as in numpy and ONNX: one per channel of `(N, C, H, W)` has the shape
/// `(C, 1, 1)`.
pub static PRELU: OpDef = OpDef::new(
    "nn.prelu",
    "rectifier with a given slope below zero",
    &[Input::required("x"), Input::required("slope")],
    infer_prelu,
    eval_prelu,
    |cx| {
        binary(cx, |x, slope| {
            let scaled = x.clone() * slope;
            PrimExpr::select(negative(&x), scaled, x)
        })
    },
)
.pattern(OpPattern::Broadcast);

fn infer_prelu(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    cx.attrs::<()>()?;
    let (x, slope) = (cx.tensor_of(0, DTypes::Numeric)?, cx.tensor_of(1, DTypes::Numeric)?);
    cx.same_dtype(0, 1)?;
    ensure!(
        cx.broadcasts_to(&slope.shape, &x.shape),
        "input `slope` is {slope}, which does not broadcast to input `x`, {x}; \
         a slope per channel has the shape (C, 1, 1)"
    );
    Ok(x.clone().into())
}

fn eval_prelu(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let (x, slope) = (cx.arg(0)?, cx.arg(1)?);
    let strides = broadcast_strides(slope.shape(), x.shape());
    let at = offsets(x.shape(), &strides, 0);
    cx.result(match (x.elements(), slope.elements()) {
        (Elements::Float(x), Elements::Float(slope)) => Elements::Float(
            x.iter().zip(at).map(|(&v, at)| if v < 0.0 { slope[at] * v } else { v }).collect(),
        ),
        _ => Elements::Int(
            (cx.ints(0)?.iter().zip(at).zip(std::iter::repeat(cx.ints(1)?)))
                .map(|((&v, at), slope)| if v < 0 { slope[at].wrapping_mul(v) } else { v })
                .collect(),
        ),
    })
}

/// `e^-|x|`, which does not overflow, as a stage of its own.
fn compute_tail(cx: &mut Compute<'_>, x: StageId) -> StageId {
    let (shape, dtype) = cx.result();
    cx.dag.compute(cx.op.name, &shape, dtype, |dag, index| {
        PrimExpr::call(Intrinsic::Exp, -PrimExpr::call(Intrinsic::Abs, dag.at(x, index)))
    })
}

/// `log(1 + eˣ) = max(x, 0) + log(1 + t)` with `t = e^-|x|`. That logarithm is `2·artanh(q/2)` with
/// `q = t / (1 + t/2)`, which is at most two thirds: few terms of `q·(1 + q²/(3·4) + q⁴/(5·16) + …)`
/// are exact.
fn compute_softplus(cx: &mut Compute<'_>) -> Stages {
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    // What is left out is below (1/9)^7 / 15 of the sum, or (1/9)^16 / 33.
    let terms: i32 = if dtype == DType::F64 { 16 } else { 7 };
    let tail = compute_tail(cx, x);
    let quotient = cx.dag.compute(cx.op.name, &shape, dtype, |dag, index| {
        let tail = dag.at(tail, index);
        tail.clone() / multiply_add(tail.clone(), like(0.5, &tail), one(&tail))
    });
    let square = cx.dag.compute(cx.op.name, &shape, dtype, |dag, index| {
        dag.at(quotient, index) * dag.at(quotient, index)
    });
    cx.element(|dag, index| {
        let (x, quotient) = (dag.at(x, index), dag.at(quotient, index));
        let square = dag.at(square, index);
        let term = |k: i32| like(0.25f64.powi(k) / f64::from(2 * k + 1), &x);
        let sum = (0..terms - 1)
            .rev()
            .fold(term(terms - 1), |sum, k| multiply_add(sum, square.clone(), term(k)));
        PrimExpr::zero(dtype).max(x.clone()) + quotient * sum
    })
}

/// `x·tanh(log(1 + eˣ))` by one exponential: with `t = e^-|x|`, the tangent is `n / (n + 2)` where
/// `x` is negative, `n = t·(t + 2)`, else `n / (n + 2t²)`, `n = 1 + 2t`.
fn compute_mish(cx: &mut Compute<'_>) -> Stages {
    let x = cx.arg(0)?;
    let tail = compute_tail(cx, x);
    cx.element(|dag, index| {
        let (x, tail) = (dag.at(x, index), dag.at(tail, index));
        let two = like(2.0, &x);
        let by_sign = |below, above| PrimExpr::select(negative(&x), below, above);
        let above = multiply_add(tail.clone(), two.clone(), one(&x));
        let numerator = by_sign(tail.clone() * (tail.clone() + two.clone()), above);
        let rest = by_sign(two.clone(), two * tail.clone() * tail);
        x.clone() * (numerator.clone() / (numerator + rest))
    })
}

fn exp_minus_one(x: PrimExpr) -> PrimExpr {
    let one = one(&x);
    PrimExpr::call(Intrinsic::Exp, x) - one
}

fn expr_hardsigmoid(x: &PrimExpr, alpha: f64, beta: f64) -> PrimExpr {
    let line = multiply_add(x.clone(), like(alpha, x), like(beta, x));
    one(x).min(PrimExpr::zero(x.ty()).max(line))
}

fn expr_gelu(x: PrimExpr, approximate: GeluApproximation) -> PrimExpr {
    let half = like(0.5, &x) * x.clone();
    let bend = match approximate {
        GeluApproximation::None => {
            PrimExpr::call(Intrinsic::Erf, x.clone() * like(std::f64::consts::FRAC_1_SQRT_2, &x))
        }
        GeluApproximation::Tanh => {
            let cube = x.clone() * x.clone() * x.clone();
            let scale = like((2.0 / std::f64::consts::PI).sqrt(), &x);
            let sum = multiply_add(cube, like(0.044_715, &x), x.clone());
            PrimExpr::call(Intrinsic::Tanh, sum * scale)
        }
    };
    multiply_add(half.clone(), bend, half)
}
