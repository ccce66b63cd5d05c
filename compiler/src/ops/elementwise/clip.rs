//! `clip`: elements held between two bounds (ONNX `Clip`, with constant bounds).

use serde::{Deserialize, Serialize};

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::{Attrs, Type};
use crate::ops::eval::EvalCx;
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, OpDef, OpPattern};

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
)
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

fn eval(attrs: &Attrs, args: &[Option<&Tensor>]) -> Result<Vec<Tensor>, EvalError> {
    let cx = EvalCx::new(&CLIP, attrs, args)?;
    let ClipAttrs { min, max } = cx.attrs()?;
    let (low, high) = (min.unwrap_or(f64::NEG_INFINITY), max.unwrap_or(f64::INFINITY));
    // `as` saturates, so infinite bounds are beyond every integer type.
    let (int_low, int_high) = (low.ceil() as i128, high.floor() as i128);
    Ok(vec![cx.arg(0)?.map(
        |v| if v.is_nan() { v } else { v.max(low).min(high) },
        |i| i.max(int_low).min(int_high),
    )])
}
