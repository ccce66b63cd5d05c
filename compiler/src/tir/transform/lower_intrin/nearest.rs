//! Integers of few bits that are nearest to a float, as quantisation has them.

use super::math::{Math, ROUNDER};
use crate::ir::DType;
use crate::tir::{BinaryOp, Intrinsic, PrimExpr};

/// Greatest bits of an integer, and of its zero point, that the lowest bits of [`ROUNDER`] hold.
const MOST_BITS: u32 = 16;

/// The number whose nearest integer this is, and the integer that is added to it, if it is that.
fn nearest(value: &PrimExpr) -> Option<(&PrimExpr, Option<PrimExpr>)> {
    match value {
        PrimExpr::Call { intrinsic: Intrinsic::Round, args } if value.dtype() == DType::F32 => {
            Some((args.first()?, None))
        }
        PrimExpr::Binary { op: BinaryOp::Add, lhs, rhs } => match nearest(lhs)? {
            (value, None) => Some((value, Some(small_integer(rhs)?))),
            _ => None,
        },
        _ => None,
    }
}

/// A float as the `int32` that it is, if that has at most [`MOST_BITS`] bits.
fn small_integer(value: &PrimExpr) -> Option<PrimExpr> {
    match value {
        PrimExpr::Broadcast { value, lanes } => Some(small_integer(value)?.broadcast_to(*lanes)),
        PrimExpr::Cast { value, .. } => {
            let fits = value.dtype().is_int() && value.dtype().bits() <= MOST_BITS;
            fits.then(|| (**value).clone().cast(DType::I32))
        }
        PrimExpr::Float { value, .. } => {
            let value = value.get();
            let fits = value.fract() == 0.0 && value.abs() < f64::from(1 << MOST_BITS);
            fits.then(|| PrimExpr::int(value as i64, DType::I32))
        }
        _ => None,
    }
}

/// Whether this is an integer multiplied by a finite constant.
fn is_finite_product(value: &PrimExpr) -> bool {
    let PrimExpr::Binary { op: BinaryOp::Mul, lhs, rhs } = value else { return false };
    let is_integer = matches!(&**lhs, PrimExpr::Cast { value, .. } if value.dtype().is_int());
    is_integer && rhs.as_float().is_some_and(f64::is_finite)
}

impl Math<'_> {
    /// A conversion of a `float32` to an integer of few bits. If that is the nearest integer, moved by
    /// a zero point, the number is cut off at the range first, which the zero point moves, and is then
    /// rounded by the addition of [`ROUNDER`], whose lowest bits are the integer. The zero point comes
    /// after that unless it is known to be even: an odd one would change which integers are.
    pub(super) fn small_integer(&mut self, value: PrimExpr, dtype: DType) -> PrimExpr {
        let range = dtype.int_range().filter(|_| dtype.bits() <= MOST_BITS);
        let (Some(range), Some((number, zero))) = (range, nearest(&value)) else {
            return value.cast(dtype);
        };
        let lanes = value.ty().lanes;
        let constant = |value: f64| PrimExpr::float(value, DType::F32).broadcast_to(lanes);
        let (mut low, mut high) = (constant(range.0 as f64), constant(range.1 as f64));
        let zero = zero.map(|zero| self.bind("zero", zero));
        if let Some(zero) = &zero {
            let zero = self.bind("zero", zero.clone().cast(DType::F32));
            (low, high) = (low - zero.clone(), high - zero);
        }
        // A NaN becomes 0. Without signs that is the lower end, which an operand on the right is for it;
        // with them it passes, and has 0 in its lowest bits.
        let number = number.clone();
        let (cut, zero) = if dtype.is_unsigned_int() {
            (high.min(number.max(low)), zero)
        } else if zero.is_none() || is_finite_product(&number) {
            (high.min(low.max(number)), zero)
        } else {
            let number = self.bind("x", number);
            let is_number = number.clone().equal(number.clone());
            let none = PrimExpr::zero(DType::I32).broadcast_to(lanes);
            let zero = zero.map(|zero| PrimExpr::select(is_number, zero, none));
            (high.min(low.max(number)), zero)
        };
        let rounded = |rounder: f64| (cut + constant(rounder)).reinterpret(DType::I32);
        let rounder = f64::from(ROUNDER);
        let nearest = match zero.as_ref().map(|zero| (zero, zero.as_int())) {
            None => rounded(rounder),
            Some((_, Some(even))) if even % 2 == 0 => rounded(rounder + even as f64),
            Some((zero, _)) => rounded(rounder) + zero.clone(),
        };
        nearest.cast(dtype)
    }
}
