//! `Delay`: a signal that comes later, an operator with an attribute.

use niello::graph::TypeError;
use niello::graph::interp::{Elements, Tensor};
use niello::ir::Type;
use niello::onnx::{Node, NodeError, OnnxOp, Outputs};
use niello::ops::{Compute, DTypes, EvalCx, EvalError, InferCx, Input, OpDef, OpPattern, Stages};
use niello::tir::PrimExpr;
use serde::{Deserialize, Serialize};

niello::register_onnx_op!(OnnxOp::new("audio", "Delay", &[1], (1, 1), delay));
niello::register_op!(DELAY);

/// Attributes of `audio.delay`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DelayAttrs {
    /// By how many elements of the last axis.
    pub steps: i64,
}

/// `y[.., t]` is `x[.., t - steps]`, and zero before that.
pub static DELAY: OpDef = OpDef::new(
    "audio.delay",
    "a signal that comes later",
    &[Input::required("x")],
    infer,
    eval,
    compute,
)
.attributes::<DelayAttrs>()
.pattern(OpPattern::Injective);

fn delay(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let steps = node.attrs.int("steps")?.unwrap_or(1);
    let x = node.input(0)?;
    Ok(vec![node.call_with(&DELAY, &[x], &DelayAttrs { steps })?])
}

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let DelayAttrs { steps } = cx.attrs()?;
    let x = cx.tensor_of(0, DTypes::Float)?;
    // There is a last axis.
    cx.axis(0, -1)?;
    if steps < 0 {
        return Err(TypeError::new(format!("attribute `steps` must be at least 0, not {steps}")));
    }
    Ok(x.clone().into())
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let DelayAttrs { steps } = cx.attrs()?;
    let length = cx.shape().last().copied().unwrap_or(1).max(1);
    let zeros = usize::try_from(steps).map_or(length, |steps| steps.min(length));
    let mut values = Vec::new();
    for row in cx.floats(0)?.chunks(length) {
        values.extend(std::iter::repeat_n(0.0, zeros));
        values.extend_from_slice(&row[..length - zeros]);
    }
    cx.result(Elements::Float(values))
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let DelayAttrs { steps } = cx.attrs()?;
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    let Some(last) = shape.len().checked_sub(1) else { return cx.unsupported("of a scalar") };
    cx.element(|dag, index| {
        let mut at = index.to_vec();
        at[last] = index[last].clone() - steps;
        let heard = index[last].clone().greater_equal(steps);
        PrimExpr::select(heard, dag.at(x, &at), PrimExpr::zero(dtype))
    })
}

#[cfg(test)]
mod tests;
