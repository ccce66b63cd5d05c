//! The values of small integer tensors as dimensions: how `Shape → Gather → Concat → Reshape` stays
//! symbolic.
//!
//! A value is only claimed where evaluation yields the same number: arithmetic must not have left
//! the data type. Symbols are extents, which are taken to fit the type that a model computes them in;
//! some exporters take floats. Of those, positive whole numbers are claimed, as zero has a sign, up to
//! the first that has a neighbour more than one away.

use super::InferCx;
use super::eval::{broadcast_strides, num_elements, offsets};
use crate::graph::MAX_SHAPE_VALUE;
use crate::ir::{DType, Dim, Shape, TensorType};

/// The values, if each is a number within the data type, or an expression without overflow. Those of
/// booleans are 0 and 1.
pub(crate) fn checked(values: Vec<Dim>, dtype: DType) -> Option<Vec<Dim>> {
    let (low, high) = match dtype {
        DType::Bool => (0, 1),
        DType::F32 => (1, 1 << f32::MANTISSA_DIGITS),
        DType::F64 => (1, 1 << f64::MANTISSA_DIGITS),
        _ => dtype.int_range()?,
    };
    let fits = |dim: &Dim| match dim.as_const() {
        Some(value) => (low..=high).contains(&value.into()),
        None => {
            let types = [DType::I32, DType::I64, DType::F32, DType::F64];
            !dim.is_poison() && types.contains(&dtype)
        }
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

/// A function of the elements of two arguments that broadcasting brings together; the result has
/// the data type of the arguments.
pub(super) fn zip(
    cx: &InferCx<'_>,
    f: impl Fn(&InferCx<'_>, &Dim, &Dim) -> Option<Dim>,
) -> Option<Vec<Dim>> {
    let (_, ty) = value(cx, 0)?;
    checked(broadcast(cx, [0, 1], |[a, b]| f(cx, a, b))?, ty.dtype)
}

/// A function of the elements of arguments that broadcasting brings together.
pub(super) fn broadcast<const N: usize>(
    cx: &InferCx<'_>,
    inputs: [usize; N],
    f: impl Fn([&Dim; N]) -> Option<Dim>,
) -> Option<Vec<Dim>> {
    let mut extents = Vec::new();
    for index in inputs {
        extents = cx.broadcast(&extents, &value(cx, index)?.1.shape).ok()?;
    }
    let extents = usizes(&Shape::new(extents))?;
    if num_elements(&extents) as u64 > MAX_SHAPE_VALUE {
        return None;
    }
    let mut operands = Vec::with_capacity(N);
    for index in inputs {
        let (dims, ty) = value(cx, index)?;
        let strides = broadcast_strides(&usizes(&ty.shape)?, &extents);
        let operand: Option<Vec<&Dim>> =
            offsets(&extents, &strides, 0).map(|at| dims.get(at)).collect();
        operands.push(operand?);
    }
    let tuple = |at: usize| std::array::from_fn(|operand| operands[operand][at]);
    (0..num_elements(&extents)).map(|at| f(tuple(at))).collect()
}

/// The extents of a shape as numbers.
pub(super) fn usizes(shape: &Shape) -> Option<Vec<usize>> {
    shape.as_consts()?.into_iter().map(|d| usize::try_from(d).ok()).collect()
}

/// The values at these places.
pub(super) fn picked(dims: &[Dim], places: impl Iterator<Item = usize>) -> Option<Vec<Dim>> {
    // One more than is kept, so that a hostile shape is not written out before it is dropped.
    let values: Option<Vec<Dim>> =
        places.take(MAX_SHAPE_VALUE as usize + 1).map(|at| dims.get(at).cloned()).collect();
    values.filter(|values| values.len() as u64 <= MAX_SHAPE_VALUE)
}
