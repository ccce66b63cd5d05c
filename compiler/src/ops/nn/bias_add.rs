//! `nn.bias_add`: one summand for each position along an axis.

use serde::{Deserialize, Serialize};

use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, Shape, TensorType, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::{AxisSplit, EvalCx, axis_of};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern};

/// Attributes of `nn.bias_add`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BiasAddAttrs {
    /// The axis that the bias runs along, counted from either end.
    pub axis: i64,
}

/// `x + bias`, where `bias` is a vector along an axis of `x`.
pub static BIAS_ADD: OpDef = OpDef::new(
    "nn.bias_add",
    "one summand for each position along an axis",
    &[Input::required("x"), Input::required("bias")],
    infer,
    eval,
    compute,
)
.attributes::<BiasAddAttrs>()
.defaults(|| Attrs::new().with("axis", 1))
.pattern(OpPattern::Broadcast);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: BiasAddAttrs = cx.attrs()?;
    let x = cx.tensor_of(0, DTypes::Numeric)?;
    let axis = cx.axis(0, attrs.axis)?;
    let bias = TensorType::new(Shape::new([x.shape[axis].clone()]), x.dtype);
    cx.expect_type(1, &bias, &format!("axis {} of input `x`", attrs.axis))?;
    Ok(x.clone().into())
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: BiasAddAttrs = cx.attrs()?;
    let split = AxisSplit::new(cx.shape(), axis_of(cx.arg(0)?, attrs.axis)?);
    let at = |index: usize| index / split.inner % split.extent;
    cx.result(match cx.arg(0)?.elements() {
        Elements::Float(x) => {
            let bias = cx.floats(1)?;
            Elements::Float(x.iter().enumerate().map(|(i, &x)| x + bias[at(i)]).collect())
        }
        Elements::Int(x) => {
            let bias = cx.ints(1)?;
            Elements::Int(x.iter().enumerate().map(|(i, &x)| x + bias[at(i)]).collect())
        }
    })
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let (x, bias) = (cx.arg(0)?, cx.arg(1)?);
    let rank = cx.dag.shape(x).len();
    let axis = match cx.attrs.get("axis") {
        Some(crate::ir::AttrValue::Int(axis)) => *axis,
        _ => 1,
    };
    let axis = cx.axis(axis, rank)?;
    cx.element(|dag, index| dag.at(x, index) + dag.at(bias, &index[axis..=axis]))
}
