//! `take`: elements or slices by their index along an axis (ONNX `Gather`).

use serde::{Deserialize, Serialize};

use super::gather::{indices_lie_within, is_not_empty};
use super::{clamped, from_either_end};
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::DType;
use crate::ir::{Dim, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::{AxisSplit, EvalCx, axis_of};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern, values};
use crate::tir::PrimExpr;

/// What `take` does with an index that is not within the axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TakeMode {
    /// A negative index counts from the end, as in ONNX. One outside of `-extent..extent` is a
    /// fault of the model: evaluation fails, and compiled code may read any element.
    Fast,
    /// The nearest index that is within the axis.
    Clip,
    /// The index modulo the extent.
    Wrap,
}

impl TakeMode {
    /// The position along an axis of that extent, or `None` if there is none.
    fn position(self, index: i128, extent: usize) -> Option<usize> {
        let extent = extent as i128;
        let position = match self {
            _ if extent == 0 => return None,
            TakeMode::Fast if index < 0 => index + extent,
            TakeMode::Fast => index,
            TakeMode::Clip => index.clamp(0, extent - 1),
            TakeMode::Wrap => index.rem_euclid(extent),
        };
        (0..extent).contains(&position).then_some(position as usize)
    }
}

/// Attributes of `take`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TakeAttrs {
    /// The axis that is indexed, counted from either end.
    pub axis: i64,
    /// What is done with an index that is not within the axis.
    pub mode: TakeMode,
}

/// The result's shape is that of `x` with the axis replaced by the shape of `indices`.
pub static TAKE: OpDef = OpDef::new(
    "take",
    "slices by their index along an axis",
    &[Input::required("x"), Input::required("indices")],
    infer,
    eval,
    compute,
)
.attributes::<TakeAttrs>()
.pattern(OpPattern::Injective)
.shape_value(shape_value);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: TakeAttrs = cx.attrs()?;
    let (x, indices) = (cx.tensor(0)?, cx.tensor_of(1, DTypes::Int)?);
    let axis = cx.axis(0, attrs.axis)?;
    if attrs.mode == TakeMode::Fast {
        indices_lie_within(cx, axis..axis + 1)?;
    } else {
        is_not_empty(cx, axis)?;
    }
    let (before, after) = (&x.shape[..axis], &x.shape[axis + 1..]);
    cx.result(before.iter().chain(indices.shape.iter()).chain(after).cloned(), x.dtype)
}

/// Only of vectors, as shapes are; the indices must be numbers.
fn shape_value(cx: &InferCx<'_>) -> Option<Vec<Dim>> {
    let attrs: TakeAttrs = cx.attrs().ok()?;
    let ((dims, ty), (indices, _)) = (values::value(cx, 0)?, values::value(cx, 1)?);
    if ty.shape.rank() != 1 {
        return None;
    }
    let position = |index: &Dim| attrs.mode.position(index.as_const()?.into(), dims.len());
    let positions: Option<Vec<usize>> = indices.iter().map(position).collect();
    values::picked(dims, positions?.into_iter())
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: TakeAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let split = AxisSplit::new(x.shape(), axis_of(x, attrs.axis)?);
    let mut positions = Vec::with_capacity(cx.ints(1)?.len());
    for &index in cx.ints(1)? {
        positions.push(attrs.mode.position(index, split.extent).ok_or_else(|| {
            EvalError::new(format!(
                "index {index} is out of range for axis {} of input `x`, which is {}",
                attrs.axis,
                x.ty()
            ))
        })?);
    }
    let outer = if cx.len() == 0 { 0 } else { split.outer };
    let positions = &positions;
    let places = (0..outer).flat_map(|outer| {
        positions.iter().flat_map(move |position| {
            let start = (outer * split.extent + position) * split.inner;
            start..start + split.inner
        })
    });
    cx.picked(x, places)
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: TakeAttrs = cx.attrs()?;
    let (x, indices) = (cx.arg(0)?, cx.arg(1)?);
    let shape = cx.dag.shape(x).to_vec();
    let axis = cx.axis(attrs.axis, shape.len())?;
    let taken = cx.dag.shape(indices).len();
    let extent = shape[axis];
    let dtype = cx.dag.dtype(indices);
    cx.element(|dag, index| {
        let which = dag.at(indices, &index[axis..axis + taken]);
        let which = match attrs.mode {
            TakeMode::Fast => from_either_end(which, extent),
            // Brought into the range of an index while it is still what it was.
            TakeMode::Clip if dtype == DType::U64 => {
                which.min(PrimExpr::int(extent - 1, dtype)).cast(DType::I64)
            }
            TakeMode::Wrap if dtype == DType::U64 => {
                which.floormod(PrimExpr::int(extent.max(1), dtype)).cast(DType::I64)
            }
            TakeMode::Clip => which.cast(DType::I64),
            TakeMode::Wrap => which.cast(DType::I64).floormod(extent.max(1)),
        };
        let which = clamped(which, extent);
        let mut at = index[..axis].to_vec();
        at.push(which);
        at.extend_from_slice(&index[axis + taken..]);
        dag.at(x, &at)
    })
}
