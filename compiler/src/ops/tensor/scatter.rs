//! `scatter_elements` and `scatter_nd`: a tensor with elements or slices replaced at places that a
//! tensor of indices names (ONNX `ScatterElements`, `ScatterND`).

use serde::{Deserialize, Serialize};

use super::gather::{fits_beside_axis, indices_lie_within, position, tuple_length};
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, DType, Type};
use crate::ops::elementwise::{maximum, minimum};
use crate::ops::eval::{EvalCx, axis_of, dense_strides, num_elements, offsets};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef};

/// What becomes of an element and an update for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScatterReduction {
    /// The update; of several for one place the last, where ONNX leaves it open.
    Update,
    /// Their sum.
    Add,
    /// Their product.
    Mul,
    /// The lesser; NaN if either is.
    Min,
    /// The greater; NaN if either is.
    Max,
}

/// Attributes of `scatter_elements`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScatterElementsAttrs {
    /// The axis that is indexed, counted from either end.
    pub axis: i64,
    /// What becomes of an element and its update.
    pub reduction: ScatterReduction,
}

const INPUTS: &[Input] =
    &[Input::required("x"), Input::required("indices"), Input::required("updates")];

/// `x` with each element of `updates` put to the same place, but for the axis, where the index says
/// which. `indices` and `updates` have one shape. A negative index counts from the end.
pub static SCATTER_ELEMENTS: OpDef = OpDef::new(
    "scatter_elements",
    "elements put to places along an axis",
    INPUTS,
    infer_scatter_elements,
    eval_scatter_elements,
);

/// Attributes of `scatter_nd`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScatterNdAttrs {
    /// What becomes of an element and its update.
    pub reduction: ScatterReduction,
}

/// `x` with slices put to places: the last axis of `indices` holds one index for each of the first
/// axes of `x`, the rest of the axes are the slice. A negative index counts from the end.
pub static SCATTER_ND: OpDef = OpDef::new(
    "scatter_nd",
    "slices put to places along several axes",
    INPUTS,
    infer_scatter_nd,
    eval_scatter_nd,
);

fn check_reduction(reduction: ScatterReduction, dtype: DType) -> Result<(), TypeError> {
    let combines = reduction == ScatterReduction::Update || dtype != DType::Bool;
    ensure!(combines, "attribute `reduction` must be `update` for elements of {dtype}");
    Ok(())
}

fn infer_scatter_elements(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: ScatterElementsAttrs = cx.attrs()?;
    let (x, indices) = (cx.tensor(0)?, cx.tensor_of(1, DTypes::Int)?);
    let updates = cx.tensor(2)?;
    cx.same_dtype(0, 2)?;
    check_reduction(attrs.reduction, x.dtype)?;
    let axis = cx.axis(0, attrs.axis)?;
    fits_beside_axis(x, indices, axis)?;
    indices_lie_within(cx, axis..axis + 1)?;
    ensure!(
        updates.shape.rank() == indices.shape.rank()
            && updates.shape.iter().zip(indices.shape.iter()).all(|(a, b)| cx.same(a, b)),
        "inputs `indices` and `updates` must have one shape, but they are {indices} and {updates}"
    );
    cx.result(x.shape.to_vec(), x.dtype)
}

/// Puts updates, each with its place, into a copy of the elements.
fn scatter(
    elements: &Elements,
    updates: &Elements,
    places: &[usize],
    reduction: ScatterReduction,
    dtype: DType,
) -> Elements {
    match (elements, updates) {
        (Elements::Float(elements), Elements::Float(updates)) => {
            let mut elements = elements.clone();
            for (&place, &update) in places.iter().zip(updates) {
                let old = elements[place];
                elements[place] = match reduction {
                    ScatterReduction::Update => update,
                    ScatterReduction::Add => old + update,
                    ScatterReduction::Mul => old * update,
                    ScatterReduction::Min => minimum(old, update),
                    ScatterReduction::Max => maximum(old, update),
                };
            }
            Elements::Float(elements)
        }
        (Elements::Int(elements), Elements::Int(updates)) => {
            let mut elements = elements.clone();
            for (&place, &update) in places.iter().zip(updates) {
                let old = elements[place];
                elements[place] = wrapped(
                    match reduction {
                        ScatterReduction::Update => update,
                        ScatterReduction::Add => old + update,
                        ScatterReduction::Mul => old.wrapping_mul(update),
                        ScatterReduction::Min => old.min(update),
                        ScatterReduction::Max => old.max(update),
                    },
                    dtype,
                );
            }
            Elements::Int(elements)
        }
        // The type relation has made sure that both are of one data type.
        (elements, _) => elements.clone(),
    }
}

/// An integer reduced to the range of its type, as compiled code does.
pub(super) fn wrapped(value: i128, dtype: DType) -> i128 {
    let Some((low, high)) = dtype.int_range() else { return value };
    value.wrapping_sub(low).rem_euclid(high - low + 1) + low
}

fn eval_scatter_elements(
    attrs: &Attrs,
    args: &[Option<&Tensor>],
) -> Result<Vec<Tensor>, EvalError> {
    let cx = EvalCx::new(&SCATTER_ELEMENTS, attrs, args)?;
    let attrs: ScatterElementsAttrs = cx.attrs()?;
    let (x, indices, updates) = (cx.arg(0)?, cx.arg(1)?, cx.arg(2)?);
    let axis = axis_of(x, attrs.axis)?;
    let strides = dense_strides(x.shape());
    let mut beside = strides.clone();
    beside[axis] = 0;
    let mut places = Vec::with_capacity(num_elements(indices.shape()));
    for (place, &index) in offsets(indices.shape(), &beside, 0).zip(cx.ints(1)?) {
        places.push(place + position(index, x.shape()[axis])? * strides[axis] as usize);
    }
    let dtype = x.ty().dtype;
    cx.result(scatter(x.elements(), updates.elements(), &places, attrs.reduction, dtype))
}

fn infer_scatter_nd(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: ScatterNdAttrs = cx.attrs()?;
    let (x, indices) = (cx.tensor(0)?, cx.tensor_of(1, DTypes::Int)?);
    let updates = cx.tensor(2)?;
    cx.same_dtype(0, 2)?;
    check_reduction(attrs.reduction, x.dtype)?;
    let length = tuple_length(x, indices, 0)?;
    indices_lie_within(cx, 0..length)?;
    let outer = &indices.shape[..indices.shape.rank() - 1];
    let expected: Vec<_> = outer.iter().chain(&x.shape[length..]).collect();
    ensure!(
        updates.shape.rank() == expected.len()
            && updates.shape.iter().zip(expected).all(|(a, b)| cx.same(a, b)),
        "input `updates` must have the dimensions of `indices` but the last, and those of `x` from \
         {length} on, but they are {updates}, {indices} and {x}"
    );
    cx.result(x.shape.to_vec(), x.dtype)
}

fn eval_scatter_nd(attrs: &Attrs, args: &[Option<&Tensor>]) -> Result<Vec<Tensor>, EvalError> {
    let cx = EvalCx::new(&SCATTER_ND, attrs, args)?;
    let attrs: ScatterNdAttrs = cx.attrs()?;
    let (x, indices, updates) = (cx.arg(0)?, cx.arg(1)?, cx.arg(2)?);
    let length = indices.shape().last().copied().unwrap_or(1).max(1);
    let strides = dense_strides(x.shape());
    let slice = num_elements(&x.shape()[length..]);
    let mut places = Vec::with_capacity(num_elements(updates.shape()));
    for tuple in cx.ints(1)?.chunks_exact(length) {
        let mut start = 0;
        for (axis, &index) in tuple.iter().enumerate() {
            start += position(index, x.shape()[axis])? * strides[axis] as usize;
        }
        places.extend(start..start + slice);
    }
    let dtype = x.ty().dtype;
    cx.result(scatter(x.elements(), updates.elements(), &places, attrs.reduction, dtype))
}
