//! Operators of one argument, element by element.

use super::{Effect, EvalError, InferCx, Input, OpDef, OpPattern};
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::{Attrs, Type};

/// The type relation of a function from a numeric tensor to one of the same type, without
/// attributes.
fn same_type(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    cx.attrs::<()>()?;
    Ok(cx.tensor(0)?.clone().into())
}

/// `max(x, 0)`; a NaN stays one.
pub(super) static RELU: OpDef = OpDef {
    name: "nn.relu",
    summary: "the greater of the element and zero",
    inputs: &[Input::required("x")],
    effect: Effect::Pure,
    pattern: OpPattern::ElemWise,
    infer: same_type,
    shape_value: None,
    eval: relu,
};

fn relu(_: &Attrs, args: &[Option<&Tensor>]) -> Result<Vec<Tensor>, EvalError> {
    let Some(x) = args.first().copied().flatten() else {
        return Err(EvalError::new("input `x` is missing"));
    };
    Ok(vec![x.map(|v| if v < 0.0 { 0.0 } else { v }, |v| v.max(0))])
}
