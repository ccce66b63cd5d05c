//! Division of integers in vectors, for which processors have no instruction.

use super::math::{Math, ROUNDER};
use crate::ir::DType;
use crate::tir::{BinaryOp, PrimExpr};

/// Bits of the widest integers that are divided as floats.
const MOST_BITS: u32 = 32;

/// 1.5 · 2⁵²: what [`ROUNDER`] is for `float64`.
const WIDE_ROUNDER: f64 = 6_755_399_441_055_744.0;

/// Whether vectors of this type are divided as floats. The code generators have multiplications for a
/// divisor that is a constant.
pub(super) fn is_of_floats(op: BinaryOp, a: &PrimExpr, b: &PrimExpr) -> bool {
    let (dtype, lanes) = (a.dtype(), a.ty().lanes);
    let divides =
        matches!(op, BinaryOp::Div | BinaryOp::Rem | BinaryOp::FloorDiv | BinaryOp::FloorMod);
    divides && dtype.is_int() && dtype.bits() <= MOST_BITS && lanes > 1 && b.as_int().is_none()
}

impl Math<'_> {
    /// A quotient or remainder by the quotient of floats that hold all of the integers. A quotient a / b
    /// that is no integer is 1 / |b| or more from the next one, which is 1 / |a| of its size: so rounding
    /// makes no integer of it, and what is cut off is what integers would leave. `part` is how many lanes
    /// vectors of `float64` have.
    pub(super) fn divide(
        &mut self,
        op: BinaryOp,
        a: PrimExpr,
        b: PrimExpr,
        part: u32,
        trunc: &impl Fn(&mut Self, PrimExpr) -> PrimExpr,
    ) -> PrimExpr {
        let (dtype, lanes) = (a.dtype(), a.ty().lanes);
        let constant = |value: i64| PrimExpr::int(value, dtype).broadcast_to(lanes);
        let (a, b) = (self.bind("a", a), self.bind("b", b));
        // The integer is in the lowest bits of its sum with 1.5 · 2ⁿ, n of which a float holds.
        let quotient = |math: &mut Self, [a, b]: [PrimExpr; 2], float, int, rounder: f64| {
            let quotient = trunc(math, a.cast(float) / b.cast(float));
            let rounder = PrimExpr::float(rounder, float).broadcast_to(quotient.ty().lanes);
            (quotient + rounder).reinterpret(int).cast(dtype)
        };
        let is_narrow = dtype.bits() < MOST_BITS;
        let part = if is_narrow { 2 * part } else { part };
        let [quotient] = self.in_parts(part, [a.clone(), b.clone()], |math, operands| {
            [match is_narrow {
                true => quotient(math, operands, DType::F32, DType::I32, ROUNDER.into()),
                false => quotient(math, operands, DType::F64, DType::I64, WIDE_ROUNDER),
            }]
        });
        let quotient = self.bind("quotient", quotient);
        let rest = |math: &mut Self| {
            let rest = math.bind("rest", a.clone() - quotient.clone() * b.clone());
            let signs = PrimExpr::binary(BinaryOp::Xor, rest.clone(), b.clone());
            let is_off = rest.clone().not_equal(constant(0)).and(signs.less(constant(0)));
            (rest, is_off)
        };
        let is_signed = dtype.is_signed_int();
        let result = match op {
            BinaryOp::FloorDiv if is_signed => {
                let (_, is_off) = rest(self);
                PrimExpr::select(is_off, quotient.clone() - constant(1), quotient)
            }
            BinaryOp::FloorMod if is_signed => {
                let (rest, is_off) = rest(self);
                PrimExpr::select(is_off, rest.clone() + b.clone(), rest)
            }
            BinaryOp::Div | BinaryOp::FloorDiv => quotient,
            _ => rest(self).0,
        };
        PrimExpr::select(b.equal(constant(0)), constant(0), result)
    }
}
