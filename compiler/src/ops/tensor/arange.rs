//! `arange`: integers at equal distances (ONNX `Range`, where its length is a size of the model).

use serde::{Deserialize, Serialize};

use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{DType, Dim, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::EvalCx;
use crate::ops::{EvalError, InferCx, OpDef, OpPattern};

/// Attributes of `arange`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArangeAttrs {
    /// The first element, which may depend on sizes of inputs.
    pub start: Dim,
    /// From one element to the next.
    pub step: i64,
    /// The number of elements.
    pub length: Dim,
    /// The type of the elements: integers of at least 8 bits.
    pub dtype: DType,
}

/// `start`, `start + step`, and so on.
pub static ARANGE: OpDef =
    OpDef::new("arange", "integers at equal distances, `start` first", &[], infer, eval, compute)
        .attributes::<ArangeAttrs>()
        .pattern(OpPattern::Injective);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let ArangeAttrs { length, dtype, .. } = cx.attrs()?;
    ensure!(
        dtype.is_int() && !dtype.is_storage_only(),
        "attribute `dtype` must be an integer type of at least 8 bits, but it is {dtype}"
    );
    cx.result([length], dtype)
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let ArangeAttrs { start, step, .. } = cx.attrs()?;
    let start = start.as_const().ok_or_else(|| {
        EvalError::new(format!("attribute `start` {start} must be known, as sizes are in a run"))
    })?;
    let element = |place: usize| i128::from(start) + i128::from(step) * place as i128;
    cx.result(Elements::Int((0..cx.len()).map(element).collect()))
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let ArangeAttrs { start, step, .. } = cx.attrs()?;
    let (_, dtype) = cx.result();
    let start = cx.size(&start)?;
    cx.element(|_, index| (index[0].clone() * step + start).cast(dtype))
}
