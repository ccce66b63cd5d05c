//! `reinterpret`: the same bits as another data type (ONNX `BitCast`).

use serde::{Deserialize, Serialize};

use super::X;
use super::expr::unary;
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::{DType, TensorType, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::EvalCx;
use crate::ops::{EvalError, InferCx, OpDef, OpPattern};

/// Attributes of `reinterpret`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReinterpretAttrs {
    /// The data type of the result, as wide as that of the argument.
    pub dtype: DType,
}

/// The bits of the elements as another data type of their width, which is at least a byte. As a
/// boolean, every byte but 0 is true.
pub static REINTERPRET: OpDef =
    OpDef::new("reinterpret", "the same bits as another data type", X, infer, eval, compute)
        .attributes::<ReinterpretAttrs>()
        .pattern(OpPattern::ElemWise);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: ReinterpretAttrs = cx.attrs()?;
    let x = cx.tensor(0)?;
    // A boolean takes a byte.
    let (from, to) = (x.dtype.bytes(), attrs.dtype.bytes());
    ensure!(
        from.is_some() && from == to,
        "input `x`, which is {x}, cannot be read as {}: both must have elements of the same number \
         of whole bytes",
        attrs.dtype
    );
    Ok(TensorType::new(x.shape.clone(), attrs.dtype).into())
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: ReinterpretAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    Ok(vec![Tensor::from_bytes(attrs.dtype, x.shape(), &x.to_bytes())?])
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: ReinterpretAttrs = cx.attrs()?;
    unary(cx, |x| {
        let x = if x.dtype() == DType::Bool { x.cast(DType::U8) } else { x };
        match attrs.dtype {
            DType::Bool => x.reinterpret(DType::U8).cast(DType::Bool),
            dtype => x.reinterpret(dtype),
        }
    })
}
