//! Operators that work element by element, with or without broadcasting.

mod activation;
mod binary;
mod cast;
mod clip;
mod compare;
mod erf;
mod expr;
mod reinterpret;
mod select;
mod unary;

pub use activation::{
    CELU, CeluAttrs, ELU, EluAttrs, GELU, GeluApproximation, GeluAttrs, HARDSIGMOID, HARDSWISH,
    HardsigmoidAttrs, LEAKY_RELU, LeakyReluAttrs, MISH, PRELU, RELU, SELU, SOFTPLUS, SOFTSIGN,
    SeluAttrs, THRESHOLDED_RELU, ThresholdedReluAttrs,
};
pub use binary::{
    ADD, BITWISE_AND, BITWISE_OR, BITWISE_XOR, DIVIDE, FLOOR_MOD, LEFT_SHIFT, LOGICAL_AND,
    LOGICAL_OR, LOGICAL_XOR, MAXIMUM, MINIMUM, MOD, MULTIPLY, POWER, RIGHT_SHIFT, SUBTRACT,
};
pub(super) use binary::{maximum, minimum};
pub(super) use cast::cast;
pub use cast::{CAST, CastAttrs};
pub use clip::{CLIP, ClipAttrs};
pub use compare::{EQUAL, GREATER, GREATER_EQUAL, ISINF, ISNAN, LESS, LESS_EQUAL, NOT_EQUAL};
pub use reinterpret::{REINTERPRET, ReinterpretAttrs};
pub use select::WHERE;
pub use unary::{
    ABS, ACOS, ACOSH, ASIN, ASINH, ATAN, ATANH, BITWISE_NOT, CEIL, COS, COSH, ERF, EXP, FLOOR, LOG,
    LOGICAL_NOT, NEGATIVE, RECIPROCAL, ROUND, RSQRT, SIGMOID, SIGN, SIN, SINH, SQRT, TAN, TANH,
};

use super::eval::EvalCx;
use super::relation::DTypes;
use super::{EvalError, InferCx, Input};
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::Type;

/// The inputs of an operator of one argument.
const X: &[Input] = &[Input::required("x")];

/// The type relation of a function without attributes from a tensor to one of the same type.
fn same_type(cx: &InferCx<'_>, dtypes: DTypes) -> Result<Type, TypeError> {
    cx.attrs::<()>()?;
    Ok(cx.tensor_of(0, dtypes)?.clone().into())
}

/// Evaluates a function of one element without attributes.
fn map(
    cx: &EvalCx<'_>,
    float: impl Fn(f64) -> f64,
    int: impl Fn(i128) -> i128,
) -> Result<Vec<Tensor>, EvalError> {
    Ok(vec![cx.arg(0)?.map(float, int)])
}
