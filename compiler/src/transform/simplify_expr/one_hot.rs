//! Products of one-hot vectors.

use super::Site;
use super::moves::{RESHAPES, argument_of, reshape_to};
use crate::graph::{ExprId, FunctionBuilder};
use crate::ir::{Constant, DType, SharedBytes, TensorType};
use crate::ops::elementwise::{ADD, LESS, MINIMUM, WHERE};
use crate::ops::nn::{MATMUL, MatmulAttrs};
use crate::ops::tensor::{ONE_HOT, OneHotAttrs, TAKE, TakeAttrs, TakeMode};
use crate::pass::Result;
use crate::transform::calls::{call, call_of, call_with, cast, extents, tensor, uniform_of};

/// Rows of a constant matrix for one-hot vectors of their numbers, times the matrix. A vector without a
/// mark, whose number is out of range, is a row of zeros.
pub(super) fn simpler(b: &mut FunctionBuilder, site: &Site<'_>) -> Result<Option<ExprId>> {
    let (Some(marks), Some(matrix)) = (site.arg(0), site.arg(1)) else { return Ok(None) };
    if !site.op.is(&MATMUL) {
        return Ok(None);
    }
    let MatmulAttrs { transpose_a, transpose_b, out_dtype } = site.attrs.parse()?;
    let source = argument_of(b, marks, &RESHAPES).unwrap_or(marks);
    let Some(one_hot) = call_of(b, source, &ONE_HOT) else { return Ok(None) };
    let &[Some(indices), Some(on), Some(off)] = &one_hot.args[..] else { return Ok(None) };
    let OneHotAttrs { depth, axis } = one_hot.attrs.parse()?;
    let Some(depth) = depth.as_const() else { return Ok(None) };
    let rank = tensor(b, source)?.shape.rank();
    let is_last = axis == -1 || axis == rank as i64 - 1;
    let is_marked = uniform_of(b, on) == Some(1.0) && uniform_of(b, off) == Some(0.0);
    let keeps_rows = tensor(b, marks)?.shape.last() == tensor(b, source)?.shape.last();
    if transpose_a || transpose_b || out_dtype.is_some() || !is_last || !is_marked || !keeps_rows {
        return Ok(None);
    }
    // Of the greatest numbers of 64 bits without a sign, one of 64 bits with a sign is another.
    if tensor(b, indices)?.dtype == DType::U64 {
        return Ok(None);
    }
    let constant = b.expr(matrix).as_constant();
    let Some(rows) = constant.and_then(|matrix| with_zeros(matrix, site.strict)) else {
        return Ok(None);
    };
    let number = |b: &mut FunctionBuilder, value: i64| {
        Constant::scalar(value as f64, DType::I64).map(|constant| b.constant(constant))
    };
    let (Some(none), Some(zero)) = (number(b, depth), number(b, 0)) else { return Ok(None) };
    let at = cast(b, indices, DType::I64)?;
    let from_end = call(b, &ADD, &[at, none])?;
    let is_from_end = call(b, &LESS, &[at, zero])?;
    let at = call(b, &WHERE, &[is_from_end, from_end, at])?;
    let is_below = call(b, &LESS, &[at, zero])?;
    let within = call(b, &MINIMUM, &[at, none])?;
    let at = call(b, &WHERE, &[is_below, none, within])?;
    let rows = b.constant(rows);
    let attrs = TakeAttrs { axis: 0, mode: TakeMode::Fast };
    let taken = call_with(b, &TAKE, &[rows, at], &attrs)?;
    match tensor(b, taken)? == *site.ty {
        true => Ok(Some(taken)),
        false => reshape_to(b, taken, site.ty),
    }
}

/// A matrix with a row of zeros behind its last one; none if a product with zero is not zero for each
/// of its elements, or if one is -0, to which `strict` sums would be another zero.
fn with_zeros(matrix: &Constant, strict: bool) -> Option<Constant> {
    let ty = matrix.ty();
    let &[depth, columns] = extents(ty)?.as_slice() else { return None };
    if ty.dtype.is_float() {
        let values = matrix.to_f64_vec()?;
        let keeps = |value: &f64| {
            value.is_finite() && !(strict && *value == 0.0 && value.is_sign_negative())
        };
        if !values.iter().all(keeps) {
            return None;
        }
    }
    let mut bytes = matrix.to_bytes()?.to_vec();
    let row = usize::try_from(columns).ok()?.checked_mul(ty.dtype.bytes()?)?;
    bytes.resize(bytes.len() + row, 0);
    let ty = TensorType::from_consts(&[depth + 1, columns], ty.dtype);
    Constant::new(ty, SharedBytes::new(bytes)).ok()
}
