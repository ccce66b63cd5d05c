//! The values of small integer tensors as dimensions: how `Shape → Gather → Concat → Reshape` stays
//! symbolic.
//!
//! A value is only claimed where evaluation yields the same number: arithmetic must not have left
//! the data type. Symbols are extents, which are taken to fit the index type that a model computes
//! them in.

use super::InferCx;
use super::eval::{broadcast_strides, num_elements, offsets};
use crate::arith::Facts;
use crate::ir::{DType, Dim, Shape, TensorType};

/// Most elements that a value is followed through; more than any shape, axis list or padding has.
const MAX_VALUES: usize = 64;

/// The values, if each is a number within the data type, or an expression without overflow.
pub(super) fn checked(values: Vec<Dim>, dtype: DType) -> Option<Vec<Dim>> {
    let (low, high) = dtype.int_range()?;
    let fits = |dim: &Dim| match dim.as_const() {
        Some(value) => (low..=high).contains(&value.into()),
        None => !dim.is_poison() && matches!(dtype, DType::I32 | DType::I64),
    };
    values.iter().all(fits).then_some(values)
}

/// The value and type of an argument whose extents are numbers.
pub(super) fn value<'a>(cx: &InferCx<'a>, index: usize) -> Option<(&'a [Dim], &'a TensorType)> {
    let arg = cx.arg(index)?;
    let (dims, ty) = (arg.shape_value?, arg.ty.as_tensor()?);
    // The rest relies on there being as many values as the type has elements.
    (ty.num_elements() == Some(dims.len() as u64)).then_some((dims, ty))
}

/// The value of the first argument unchanged: for operators that keep the order of the elements.
pub(super) fn unchanged(cx: &InferCx<'_>) -> Option<Vec<Dim>> {
    value(cx, 0).map(|(dims, _)| dims.to_vec())
}

/// A function of each element of the first argument.
pub(super) fn map(cx: &InferCx<'_>, f: impl Fn(&Dim) -> Dim) -> Option<Vec<Dim>> {
    let (dims, ty) = value(cx, 0)?;
    checked(dims.iter().map(f).collect(), ty.dtype)
}

/// A function of the elements of two arguments that broadcasting brings together.
pub(super) fn zip(
    cx: &InferCx<'_>,
    f: impl Fn(&Facts, &Dim, &Dim) -> Option<Dim>,
) -> Option<Vec<Dim>> {
    let ((a, a_ty), (b, b_ty)) = (value(cx, 0)?, value(cx, 1)?);
    let extents = usizes(&Shape::new(cx.broadcast(&a_ty.shape, &b_ty.shape).ok()?))?;
    if num_elements(&extents) > MAX_VALUES {
        return None;
    }
    let a_strides = broadcast_strides(&usizes(&a_ty.shape)?, &extents);
    let b_strides = broadcast_strides(&usizes(&b_ty.shape)?, &extents);
    let values: Option<Vec<Dim>> = offsets(&extents, &a_strides, 0)
        .zip(offsets(&extents, &b_strides, 0))
        .map(|(at, bt)| f(cx.facts, a.get(at)?, b.get(bt)?))
        .collect();
    checked(values?, a_ty.dtype)
}

/// The extents of a shape as numbers.
pub(super) fn usizes(shape: &Shape) -> Option<Vec<usize>> {
    shape.as_consts()?.into_iter().map(|d| usize::try_from(d).ok()).collect()
}

/// The values at these places.
pub(super) fn picked(dims: &[Dim], places: impl Iterator<Item = usize>) -> Option<Vec<Dim>> {
    // One more than is kept, so that a hostile shape is not written out before it is dropped.
    let values: Option<Vec<Dim>> =
        places.take(MAX_VALUES + 1).map(|at| dims.get(at).cloned()).collect();
    values.filter(|values| values.len() <= MAX_VALUES)
}
