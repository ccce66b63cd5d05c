//! `broadcast_to`: elements repeated to a given shape (ONNX `Expand`, once its shape is known).

use serde::{Deserialize, Serialize};

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::{Dim, Shape, Type};
use crate::ops::eval::{EvalCx, broadcast_strides, offsets};

use crate::ops::compute::{Compute, Stages, broadcast};
use crate::ops::{EvalError, InferCx, OpDef, OpPattern, values};

/// Attributes of `broadcast_to`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BroadcastToAttrs {
    /// The extents of the result.
    pub shape: Vec<Dim>,
}

/// Repeats axes of extent one, and adds axes at the front, until the shape is the one given.
pub static BROADCAST_TO: OpDef =
    OpDef::new("broadcast_to", "the elements repeated to a shape", X, infer, eval, compute)
        .attributes::<BroadcastToAttrs>()
        .pattern(OpPattern::Broadcast)
        .shape_value(shape_value);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: BroadcastToAttrs = cx.attrs()?;
    let x = cx.tensor(0)?;
    let to = Shape::new(attrs.shape);
    ensure!(
        cx.broadcasts_to(&x.shape, &to),
        "input `x`, which is {x}, does not broadcast to the shape {to}"
    );
    cx.result(to.iter().cloned(), x.dtype)
}

fn shape_value(cx: &InferCx<'_>) -> Option<Vec<Dim>> {
    let attrs: BroadcastToAttrs = cx.attrs().ok()?;
    let (dims, ty) = values::value(cx, 0)?;
    let to = values::usizes(&Shape::new(attrs.shape))?;
    let strides = broadcast_strides(&values::usizes(&ty.shape)?, &to);
    values::picked(dims, offsets(&to, &strides, 0))
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let x = cx.arg(0)?;
    let strides = broadcast_strides(x.shape(), cx.shape());
    cx.picked(x, offsets(cx.shape(), &strides, 0))
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let x = cx.arg(0)?;
    let (shape, _) = cx.result();
    cx.element(|dag, index| dag.at(x, &broadcast(dag.shape(x), &shape, index)))
}
