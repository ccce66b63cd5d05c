//! `clip`: elements held between two bounds (ONNX `Clip`, with constant bounds).

use serde::{Deserialize, Serialize};

use super::X;
use super::expr::{like, unary};
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::Type;
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::EvalCx;
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, OpDef, OpPattern};
use crate::tir::PrimExpr;

/// Attributes of `clip`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClipAttrs {
    /// Lower bound, if there is one.
    pub min: Option<f64>,
    /// Upper bound, if there is one.
    pub max: Option<f64>,
}

/// `min(max(x, lower), upper)`: if the bounds cross, the upper one wins. A NaN stays one.
pub static CLIP: OpDef = OpDef::new(
    "clip",
    "the element, but no less than one bound and no more than the other",
    X,
    infer,
    eval,
    compute,
)
.attributes::<ClipAttrs>()
.pattern(OpPattern::ElemWise);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: ClipAttrs = cx.attrs()?;
    for (name, bound) in [("min", attrs.min), ("max", attrs.max)] {
        ensure!(
            !bound.is_some_and(f64::is_nan),
            "attribute `{name}` is NaN; leave it out for no bound"
        );
    }
    Ok(cx.tensor_of(0, DTypes::Numeric)?.clone().into())
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let ClipAttrs { min, max } = cx.attrs()?;
    let (low, high) = (min.unwrap_or(f64::NEG_INFINITY), max.unwrap_or(f64::INFINITY));
    // `as` saturates, so infinite bounds are beyond every integer type.
    let (int_low, int_high) = (low.ceil() as i128, high.floor() as i128);
    Ok(vec![cx.arg(0)?.map(
        |v| if v.is_nan() { v } else { v.max(low).min(high) },
        |i| i.max(int_low).min(int_high),
    )])
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: ClipAttrs = cx.attrs()?;
    unary(cx, |x| {
        // The operand is on the right: a NaN passes.
        let above = match attrs.min {
            Some(min) => expr_bound(min, f64::ceil, &x).max(x),
            None => x,
        };
        match attrs.max {
            Some(max) => expr_bound(max, f64::floor, &above).min(above),
            None => above,
        }
    })
}

/// A bound of `x`. Between integers it is the next one inwards, which `round` finds; an integer type
/// cannot leave its range in any case.
fn expr_bound(value: f64, round: fn(f64) -> f64, x: &PrimExpr) -> PrimExpr {
    match x.dtype().int_range() {
        Some((low, high)) => {
            PrimExpr::int((round(value) as i128).clamp(low, high) as i64, x.dtype())
        }
        None => like(value, x),
    }
}
