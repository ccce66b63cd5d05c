//! `full`: one value in every place of a shape (ONNX `ConstantOfShape`, once its shape is known).

use serde::{Deserialize, Serialize};

use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::{Dim, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::EvalCx;
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern, values};

/// Attributes of `full`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FullAttrs {
    /// The extents of the result.
    pub shape: Vec<Dim>,
}

/// A scalar in every place.
pub static FULL: OpDef = OpDef::new(
    "full",
    "a scalar in every place",
    &[Input::required("fill_value")],
    infer,
    eval,
    compute,
)
.attributes::<FullAttrs>()
.pattern(OpPattern::Broadcast)
.shape_value(shape_value);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: FullAttrs = cx.attrs()?;
    let fill = cx.tensor(0)?;
    ensure!(fill.shape.rank() == 0, "input `fill_value` must be a scalar, but it is {fill}");
    cx.result(attrs.shape, fill.dtype)
}

fn shape_value(cx: &InferCx<'_>) -> Option<Vec<Dim>> {
    let (dims, _) = values::value(cx, 0)?;
    let Type::Tensor(ty) = infer(cx).ok()? else { return None };
    let len = usize::try_from(ty.num_elements()?).ok()?;
    values::picked(dims, std::iter::repeat_n(0, len))
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    cx.picked(cx.arg(0)?, std::iter::repeat_n(0, cx.len()))
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let fill = cx.arg(0)?;
    cx.element(|dag, _| dag.at(fill, &[]))
}
