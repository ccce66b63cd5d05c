//! `shape_of` and `ndarray_size`: the extents of a tensor as data (ONNX `Shape` and `Size`).

use serde::{Deserialize, Serialize};

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{DType, Dim, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::{InferCx, OpDef, OpPattern, values};
use crate::te::StageId;
use crate::tir::PrimExpr;

/// Attributes of `shape_of` and `ndarray_size`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShapeOfAttrs {
    /// The integer type of the result; `int64` in ONNX.
    pub dtype: DType,
}

/// The extents, as a vector.
pub static SHAPE_OF: OpDef = OpDef::new(
    "shape_of",
    "the extents as a vector",
    X,
    |cx| infer(cx, |x| vec![Dim::from(x.len())]),
    |cx| cx.result(Elements::Int(cx.arg(0)?.shape().iter().map(|&d| d as i128).collect())),
    compute_shape,
)
.attributes::<ShapeOfAttrs>()
.pattern(OpPattern::Injective)
.shape_value(|cx| extents(cx, |shape| shape.to_vec()));

/// The number of elements, as a scalar.
pub static NDARRAY_SIZE: OpDef = OpDef::new(
    "ndarray_size",
    "the number of elements",
    X,
    |cx| infer(cx, |_| Vec::new()),
    |cx| cx.result(Elements::Int(vec![cx.arg(0).map(Tensor::len)? as i128])),
    compute_size,
)
.attributes::<ShapeOfAttrs>()
.pattern(OpPattern::Injective)
.shape_value(|cx| {
    extents(cx, |shape| vec![shape.iter().fold(Dim::from(1i64), |product, d| product * d)])
});

fn infer(cx: &InferCx<'_>, shape: fn(&[Dim]) -> Vec<Dim>) -> Result<Type, TypeError> {
    let attrs: ShapeOfAttrs = cx.attrs()?;
    ensure!(
        attrs.dtype.is_int() && !attrs.dtype.is_storage_only(),
        "attribute `dtype` must be an integer type of at least 8 bits, but it is {}",
        attrs.dtype
    );
    cx.result(shape(&cx.tensor(0)?.shape), attrs.dtype)
}

fn extents(cx: &InferCx<'_>, f: fn(&[Dim]) -> Vec<Dim>) -> Option<Vec<Dim>> {
    let attrs: ShapeOfAttrs = cx.attrs().ok()?;
    values::checked(f(&cx.arg(0)?.ty.as_tensor()?.shape), attrs.dtype)
}

fn compute_shape(cx: &mut Compute<'_>) -> Stages {
    let extents = cx.dag.shape(cx.arg(0)?).to_vec();
    let (_, dtype) = cx.result();
    let op = cx.op.name;
    let parts: Vec<StageId> = extents
        .into_iter()
        .map(|extent| cx.dag.compute(op, &[1], dtype, |_, _| PrimExpr::int(extent, dtype)))
        .collect();
    if parts.is_empty() {
        return cx.element(|_, _| PrimExpr::zero(dtype));
    }
    Ok(vec![cx.dag.concat(op, 0, &parts)])
}

fn compute_size(cx: &mut Compute<'_>) -> Stages {
    let (_, dtype) = cx.result();
    let extents = cx.dag.shape(cx.arg(0)?);
    // A tensor without elements may have any other extents.
    let size = if extents.contains(&0) {
        0
    } else {
        extents.iter().fold(1i64, |size, &extent| size.saturating_mul(extent))
    };
    cx.element(|_, _| PrimExpr::int(size, dtype))
}
