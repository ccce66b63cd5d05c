//! `cast`: conversion to another data type (ONNX `Cast`).

use serde::{Deserialize, Serialize};

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::{Attrs, DType, Dim, TensorType, Type};
use crate::ops::eval::EvalCx;
use crate::ops::{EvalError, InferCx, OpDef, OpPattern, values};

/// Attributes of `cast`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CastAttrs {
    /// The data type of the result.
    pub dtype: DType,
}

/// The elements in another data type.
///
/// Floats become integers by truncation and saturate, as Rust's `as`; integers wrap; floats are
/// rounded to nearest, ties to even; what is not zero becomes true.
pub static CAST: OpDef = OpDef::new("cast", "the elements in another data type", X, infer, eval)
    .pattern(OpPattern::ElemWise)
    .shape_value(shape_value);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: CastAttrs = cx.attrs()?;
    Ok(TensorType::new(cx.tensor(0)?.shape.clone(), attrs.dtype).into())
}

fn shape_value(cx: &InferCx<'_>) -> Option<Vec<Dim>> {
    let attrs: CastAttrs = cx.attrs().ok()?;
    let dims = cx.arg(0)?.shape_value?;
    values::checked(dims.to_vec(), attrs.dtype)
}

fn eval(attrs: &Attrs, args: &[Option<&Tensor>]) -> Result<Vec<Tensor>, EvalError> {
    let cx = EvalCx::new(&CAST, attrs, args)?;
    cx.result(cx.arg(0)?.elements().clone())
}
