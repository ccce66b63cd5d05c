//! `nn.dropout`: at inference nothing is dropped (ONNX `Dropout`).

use serde::{Deserialize, Serialize};

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, DType, TensorType, Type};
use crate::ops::eval::EvalCx;
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, OpDef, OpPattern};

/// Attributes of `nn.dropout`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DropoutAttrs {
    /// The share of elements that training drops, from 0 to 1; of no effect here.
    pub rate: f64,
}

/// `(x, mask)`; the boolean mask of what was kept is true everywhere.
pub static DROPOUT: OpDef =
    OpDef::new("nn.dropout", "the argument and a mask that keeps all of it", X, infer, eval)
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

fn eval(attrs: &Attrs, args: &[Option<&Tensor>]) -> Result<Vec<Tensor>, EvalError> {
    let cx = EvalCx::new(&DROPOUT, attrs, args)?;
    cx.results([cx.arg(0)?.elements().clone(), Elements::Int(vec![1; cx.len()])])
}
