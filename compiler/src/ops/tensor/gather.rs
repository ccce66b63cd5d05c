//! `gather` and `gather_nd`: elements or slices at places that a tensor of indices names
//! (ONNX `GatherElements`, `GatherND`).

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{clamped, from_either_end};
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::{Attrs, Dim, TensorType, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::{EvalCx, axis_of, dense_strides, num_elements, offsets};
use crate::ops::relation::{DTypes, at_least};
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern};
use crate::tir::PrimExpr;

/// Attributes of `gather`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatherAttrs {
    /// The axis that is indexed, counted from either end.
    pub axis: i64,
}

/// The element at the same place, but for the axis, where the index says which. The result has the
/// shape of `indices`, which is nowhere longer than `x` but along the axis. A negative index counts
/// from the end.
pub static GATHER: OpDef = OpDef::new(
    "gather",
    "elements by their index along an axis",
    &[Input::required("x"), Input::required("indices")],
    infer_gather,
    eval_gather,
    compute_gather,
)
.attributes::<GatherAttrs>()
.pattern(OpPattern::Injective);

/// Attributes of `gather_nd`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatherNdAttrs {
    /// How many leading axes both inputs share.
    pub batch_dims: i64,
}

/// Slices by their indices along several axes: the last axis of `indices` holds one index for each
/// of the axes after the shared ones. A negative index counts from the end.
pub static GATHER_ND: OpDef = OpDef::new(
    "gather_nd",
    "slices by their indices along several axes",
    &[Input::required("x"), Input::required("indices")],
    infer_gather_nd,
    eval_gather_nd,
    compute_gather_nd,
)
.attributes::<GatherNdAttrs>()
.defaults(|| Attrs::new().with("batch_dims", 0))
.pattern(OpPattern::Injective);

/// Checks that `indices` is nowhere longer than `x` but along the axis.
pub(super) fn fits_beside_axis(
    x: &TensorType,
    indices: &TensorType,
    axis: usize,
) -> Result<(), TypeError> {
    ensure!(
        indices.shape.rank() == x.shape.rank(),
        "input `indices` must have {} dimensions, as input `x` has, but it is {indices}",
        x.shape.rank()
    );
    for (other, (i, e)) in indices.shape.iter().zip(x.shape.iter()).enumerate() {
        if let (Some(i), Some(e), true) = (i.as_const(), e.as_const(), other != axis) {
            ensure!(i <= e, "dimension {other} of input `indices`, {i}, exceeds that of `x`, {e}");
        }
    }
    Ok(())
}

/// Checks that an axis in which indices of input 1 look for elements has some.
pub(super) fn is_not_empty(cx: &InferCx<'_>, axis: usize) -> Result<(), TypeError> {
    let (x, indices) = (cx.tensor(0)?, cx.tensor(1)?);
    let looks = indices.shape.iter().all(|dim| dim.as_const().is_some_and(|extent| extent > 0));
    ensure!(
        !looks || x.shape[axis].as_const() != Some(0),
        "axis {axis} of input `x`, which is {x}, is empty, but input `indices` is {indices}"
    );
    Ok(())
}

/// Checks that there are elements in the axes of `x` that indices of input 1 are for, in turn, and
/// that each index which is known is that of one.
pub(super) fn indices_lie_within(cx: &InferCx<'_>, axes: Range<usize>) -> Result<(), TypeError> {
    for axis in axes.clone() {
        is_not_empty(cx, axis)?;
    }
    let x = cx.tensor(0)?;
    let Some(known) = cx.arg(1).and_then(|arg| arg.constant?.to_i64_vec()) else { return Ok(()) };
    for (index, axis) in known.into_iter().zip(axes.cycle()) {
        let Some(extent) = x.shape[axis].as_const() else { continue };
        ensure!(
            (-extent..extent).contains(&index),
            "index {index} in input `indices` is out of range for axis {axis} of input `x`, which \
             is {x}: it must be from {} to {}",
            -extent,
            extent - 1
        );
    }
    Ok(())
}

fn infer_gather(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: GatherAttrs = cx.attrs()?;
    let (x, indices) = (cx.tensor(0)?, cx.tensor_of(1, DTypes::Int)?);
    let axis = cx.axis(0, attrs.axis)?;
    fits_beside_axis(x, indices, axis)?;
    indices_lie_within(cx, axis..axis + 1)?;
    cx.result(indices.shape.to_vec(), x.dtype)
}

/// An index that is data as a position, or an error.
pub(super) fn position(index: i128, extent: usize) -> Result<usize, EvalError> {
    let from_start = if index < 0 { index + extent as i128 } else { index };
    usize::try_from(from_start).ok().filter(|&position| position < extent).ok_or_else(|| {
        EvalError::new(format!("index {index} is out of range for an axis of {extent} elements"))
    })
}

fn eval_gather(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: GatherAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let axis = axis_of(x, attrs.axis)?;
    let strides = dense_strides(x.shape());
    // The place with index 0 along the axis, for each element of the result.
    let mut beside = strides.clone();
    beside[axis] = 0;
    let mut places = Vec::with_capacity(cx.len());
    for (place, &index) in offsets(cx.shape(), &beside, 0).zip(cx.ints(1)?) {
        places.push(place + position(index, x.shape()[axis])? * strides[axis] as usize);
    }
    cx.picked(x, places.into_iter())
}

/// Number of indices in each tuple, after checking that there are as many axes to index.
pub(super) fn tuple_length(
    x: &TensorType,
    indices: &TensorType,
    batch: usize,
) -> Result<usize, TypeError> {
    ensure!(
        indices.shape.rank() > batch,
        "input `indices` must have more than {batch} dimensions, but it is {indices}"
    );
    let last = &indices.shape[indices.shape.rank() - 1];
    let Some(length) = last.as_const() else {
        bail!("the last dimension of input `indices` must be a number, but it is {last}");
    };
    let most = x.shape.rank().saturating_sub(batch);
    ensure!(
        length >= 1 && length <= most as i64,
        "the last dimension of input `indices` must be from 1 to {most}, as `x` is {x}, but it is {length}"
    );
    Ok(length as usize)
}

fn infer_gather_nd(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: GatherNdAttrs = cx.attrs()?;
    let (x, indices) = (cx.tensor(0)?, cx.tensor_of(1, DTypes::Int)?);
    at_least("batch_dims", attrs.batch_dims, 0)?;
    let batch = usize::try_from(attrs.batch_dims).unwrap_or(usize::MAX);
    let length = tuple_length(x, indices, batch)?;
    indices_lie_within(cx, batch..batch + length)?;
    for axis in 0..batch {
        let (a, b) = (&x.shape[axis], &indices.shape[axis]);
        ensure!(cx.same(a, b), "dimension {axis} is shared, but it is {a} and {b}");
    }
    let outer = &indices.shape[..indices.shape.rank() - 1];
    let dims: Vec<Dim> = outer.iter().chain(&x.shape[batch + length..]).cloned().collect();
    cx.result(dims, x.dtype)
}

fn eval_gather_nd(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: GatherNdAttrs = cx.attrs()?;
    let (x, indices) = (cx.arg(0)?, cx.arg(1)?);
    let batch = attrs.batch_dims as usize;
    let length = indices.shape().last().copied().unwrap_or(0);
    let strides = dense_strides(x.shape());
    let slice = num_elements(&x.shape()[batch + length..]);
    if cx.len() == 0 {
        return cx.picked(x, std::iter::empty());
    }
    let tuples = num_elements(&indices.shape()[..indices.shape().len() - 1]);
    let batches = num_elements(&x.shape()[..batch]);
    let in_batch = num_elements(&x.shape()[batch..]);
    let mut starts = Vec::with_capacity(tuples);
    for (number, tuple) in cx.ints(1)?.chunks_exact(length).enumerate() {
        let mut start = number / (tuples / batches) * in_batch;
        for (axis, &index) in (batch..).zip(tuple) {
            start += position(index, x.shape()[axis])? * strides[axis] as usize;
        }
        starts.push(start);
    }
    cx.picked(x, starts.into_iter().flat_map(|start| start..start + slice))
}

fn compute_gather(cx: &mut Compute<'_>) -> Stages {
    let attrs: GatherAttrs = cx.attrs()?;
    let (x, indices) = (cx.arg(0)?, cx.arg(1)?);
    let shape = cx.dag.shape(x).to_vec();
    let axis = cx.axis(attrs.axis, shape.len())?;
    cx.element(|dag, index| {
        let mut at = index.to_vec();
        at[axis] = clamped(from_either_end(dag.at(indices, index), shape[axis]), shape[axis]);
        dag.at(x, &at)
    })
}

fn compute_gather_nd(cx: &mut Compute<'_>) -> Stages {
    let attrs: GatherNdAttrs = cx.attrs()?;
    let (x, indices) = (cx.arg(0)?, cx.arg(1)?);
    let (shape, outer) = (cx.dag.shape(x).to_vec(), cx.dag.shape(indices).len() - 1);
    let length = cx.dag.shape(indices)[outer] as usize;
    let batch = usize::try_from(attrs.batch_dims).unwrap_or(0);
    cx.element(|dag, index| {
        let mut at = index[..batch].to_vec();
        for position in 0..length {
            let extent = shape[batch + position];
            let which = dag.at(indices, &tuple_place(&index[..outer], position));
            at.push(clamped(from_either_end(which, extent), extent));
        }
        at.extend_from_slice(&index[outer..]);
        dag.at(x, &at)
    })
}

/// The place of one index of a tuple.
pub(super) fn tuple_place(outer: &[PrimExpr], position: usize) -> Vec<PrimExpr> {
    let mut place = outer.to_vec();
    place.push(PrimExpr::index(position as i64));
    place
}
