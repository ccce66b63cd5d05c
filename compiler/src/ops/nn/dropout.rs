//! `nn.dropout`: at inference nothing is dropped (ONNX `Dropout`).

use serde::{Deserialize, Serialize};

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, DType, TensorType, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::EvalCx;
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, OpDef, OpPattern};
use crate::tir::PrimExpr;

/// Attributes of `nn.dropout`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropoutAttrs {
    /// The share of elements that training drops, from 0 to 1; of no effect here.
    pub rate: f64,
}

/// `(x, mask)`; the boolean mask of what was kept is true everywhere.
pub static DROPOUT: OpDef = OpDef::new(
    "nn.dropout",
    "the argument and a mask that keeps all of it",
    X,
    infer,
    eval,
    compute,
)
.attributes::<DropoutAttrs>()
.defaults(|| Attrs::new().with("rate", 0.5))
.pattern(OpPattern::Opaque);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: DropoutAttrs = cx.attrs()?;
    ensure!(
        (0.0..=1.0).contains(&attrs.rate),
        "attribute `rate` must be from 0 to 1, but it is {}",
        attrs.rate
    );
    let x = cx.tensor_of(0, DTypes::Float)?;
    Ok(Type::tuple([x.clone().into(), TensorType::new(x.shape.clone(), DType::Bool).into()]))
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    cx.results([cx.arg(0)?.elements().clone(), Elements::Int(vec![1; cx.len()])])
}

/// At inference nothing is dropped, and the mask says so.
fn compute(cx: &mut Compute<'_>) -> Stages {
    let x = cx.arg(0)?;
    let mut stages = cx.element(|dag, index| dag.at(x, index))?;
    for (shape, dtype) in cx.results.iter().skip(1) {
        let kept = PrimExpr::int(1, *dtype);
        stages.push(cx.dag.compute(cx.op.name, shape, *dtype, |_, _| kept));
    }
    Ok(stages)
}
