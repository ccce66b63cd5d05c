//! Operations on floats in both modes of a processor: with denormal numbers, and with zeros in their
//! place.

use crate::ir::DType;
use crate::tir::{BinaryOp, CompareOp, Intrinsic, scalar};

/// How operations treat denormal numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Arithmetic {
    /// As IEEE 754 has it.
    Gradual,
    /// As x86 does with the flags DAZ and FTZ: a denormal operand is a zero of its sign, and so is a
    /// result that is too small for a normal number, which is found out after rounding. Moving a
    /// value, its sign and its bits is no operation.
    Flushing,
}

/// A power of two by which operands are scaled to see how a result rounds whose exponent is not
/// bounded.
const SCALE: f64 = 18_446_744_073_709_551_616.0;

impl Arithmetic {
    /// [`scalar::binary`].
    pub(super) fn binary(self, op: BinaryOp, dtype: DType, lhs: u64, rhs: u64) -> Option<u64> {
        if !self.flushes(dtype) {
            return scalar::binary(op, dtype, lhs, rhs);
        }
        let [lhs, rhs] = [lhs, rhs].map(|bits| without_denormal(dtype, bits));
        let result = scalar::binary(op, dtype, lhs, rhs)?;
        flushed(dtype, result, || {
            // The other operations have no result that is rounded to the least normal number.
            let (lhs, rhs) = match op {
                BinaryOp::Mul if magnitude(dtype, lhs) > magnitude(dtype, rhs) => {
                    (lhs, scaled(dtype, rhs)?)
                }
                BinaryOp::Mul | BinaryOp::Div => (scaled(dtype, lhs)?, rhs),
                _ => return None,
            };
            scalar::binary(op, dtype, lhs, rhs)
        })
    }

    /// [`scalar::mul_add`].
    pub(super) fn mul_add(self, dtype: DType, a: u64, b: u64, c: u64) -> Option<u64> {
        if !self.flushes(dtype) {
            return scalar::mul_add(dtype, a, b, c);
        }
        let [a, b, c] = [a, b, c].map(|bits| without_denormal(dtype, bits));
        let (less, greater) =
            if magnitude(dtype, a) > magnitude(dtype, b) { (b, a) } else { (a, b) };
        flushed(dtype, scalar::mul_add(dtype, a, b, c)?, || {
            scalar::mul_add(dtype, scaled(dtype, less)?, greater, scaled(dtype, c)?)
        })
    }

    /// [`scalar::compare`].
    pub(super) fn compare(self, op: CompareOp, dtype: DType, lhs: u64, rhs: u64) -> Option<bool> {
        let [lhs, rhs] = [lhs, rhs].map(|bits| self.operand(dtype, bits));
        scalar::compare(op, dtype, lhs, rhs)
    }

    /// [`scalar::cast`].
    pub(super) fn cast(self, from: DType, to: DType, value: u64) -> Option<u64> {
        let value = if from == to { value } else { self.operand(from, value) };
        let result = scalar::cast(from, to, value)?;
        if from != DType::F64 || !self.flushes(to) {
            return Some(result);
        }
        flushed(to, result, || scalar::cast(from, to, scaled(from, value)?))
    }

    /// [`scalar::call`]. Functions of the system's library are computed as they are without
    /// flushing, whatever that library does.
    pub(super) fn call(self, intrinsic: Intrinsic, dtype: DType, args: &[u64]) -> Option<u64> {
        match intrinsic {
            Intrinsic::Sqrt
            | Intrinsic::Floor
            | Intrinsic::Ceil
            | Intrinsic::Trunc
            | Intrinsic::Round => {
                scalar::call(intrinsic, dtype, &[self.operand(dtype, *args.first()?)])
            }
            Intrinsic::Ldexp if self.flushes(dtype) => {
                let args = args.iter().map(|&bits| without_denormal(dtype, bits));
                let args: Vec<u64> = args.collect();
                let result = scalar::call(intrinsic, dtype, &args)?;
                flushed(dtype, result, || {
                    scalar::call(intrinsic, dtype, &[scaled(dtype, args[0])?, *args.get(1)?])
                })
            }
            _ => scalar::call(intrinsic, dtype, args),
        }
    }

    fn flushes(self, dtype: DType) -> bool {
        self == Arithmetic::Flushing && matches!(dtype, DType::F32 | DType::F64)
    }

    fn operand(self, dtype: DType, bits: u64) -> u64 {
        if self.flushes(dtype) { without_denormal(dtype, bits) } else { bits }
    }
}

/// The bit of the sign, and the bits of the least normal number, of `float32` or `float64`.
fn format(dtype: DType) -> (u64, u64) {
    match dtype {
        DType::F32 => (1 << 31, f32::MIN_POSITIVE.to_bits().into()),
        _ => (1 << 63, f64::MIN_POSITIVE.to_bits()),
    }
}

fn magnitude(dtype: DType, bits: u64) -> u64 {
    bits & (format(dtype).0 - 1)
}

/// A value, or a zero of its sign if it is denormal.
fn without_denormal(dtype: DType, bits: u64) -> u64 {
    let (sign, least) = format(dtype);
    if magnitude(dtype, bits) < least { bits & sign } else { bits }
}

/// A value times [`SCALE`], which is exact unless it is infinite.
fn scaled(dtype: DType, bits: u64) -> Option<u64> {
    scalar::float_bits(scalar::float_value(bits, dtype)? * SCALE, dtype)
}

/// A result, or a zero of its sign if it is too small for a normal number. `scaled_result` is the
/// result times [`SCALE`], if the operation rounds: a result that denormal numbers round up to the
/// least normal one may be less than that with the digits that a normal one has.
fn flushed(dtype: DType, result: u64, scaled_result: impl FnOnce() -> Option<u64>) -> Option<u64> {
    let (sign, least) = format(dtype);
    let is_tiny = match magnitude(dtype, result).cmp(&least) {
        std::cmp::Ordering::Less => true,
        std::cmp::Ordering::Equal => {
            let limit = scaled(dtype, least)?;
            scaled_result().is_some_and(|scaled| magnitude(dtype, scaled) < limit)
        }
        std::cmp::Ordering::Greater => false,
    };
    Some(if is_tiny { result & sign } else { result })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: f32 = f32::MIN_POSITIVE;

    fn f32_op(op: BinaryOp, lhs: f32, rhs: f32) -> f32 {
        let [lhs, rhs] = [lhs, rhs].map(|value| u64::from(value.to_bits()));
        let result = Arithmetic::Flushing.binary(op, DType::F32, lhs, rhs).unwrap();
        f32::from_bits(result as u32)
    }

    #[test]
    fn denormal_operands_and_results_are_zeros_of_their_sign() {
        let denormal = LEAST / 2.0;
        assert_eq!(f32_op(BinaryOp::Add, denormal, denormal), 0.0);
        assert_eq!(f32_op(BinaryOp::Mul, LEAST, 0.5), 0.0);
        assert!(f32_op(BinaryOp::Mul, -LEAST, 0.5).is_sign_negative());
        assert_eq!(f32_op(BinaryOp::Sub, 1.5 * LEAST, LEAST), 0.0);
        assert_eq!(f32_op(BinaryOp::Max, denormal, -1.0), 0.0);
        assert_eq!(f32_op(BinaryOp::Div, 1.0, denormal), f32::INFINITY);
        assert_eq!(f32_op(BinaryOp::Add, LEAST, LEAST), 2.0 * LEAST);
        let kept = Arithmetic::Gradual.binary(BinaryOp::Add, DType::F64, 1, 1).unwrap();
        assert_eq!(kept, 2);
        let equal = Arithmetic::Flushing.compare(CompareOp::Eq, DType::F64, 1, 0);
        assert_eq!(equal, Some(true));
    }

    #[test]
    fn a_result_is_tiny_if_it_is_after_rounding_to_a_normal_numbers_digits() {
        // One unit less than 1 times the least number is denormal and rounds to the least number; the
        // product of two units less has its digits, rounded, below it.
        let below_one = 1.0 - f32::EPSILON / 2.0;
        assert_eq!(below_one * LEAST, LEAST);
        assert_eq!(f32_op(BinaryOp::Mul, below_one, LEAST), 0.0);
        assert_eq!(f32_op(BinaryOp::Mul, 1.0, LEAST), LEAST);
        let a = 1.0 + f32::EPSILON;
        let b = LEAST * 2.0 * (0.5 - f32::EPSILON / 4.0) * 2.0;
        assert_eq!(f32_op(BinaryOp::Mul, a, b), a * b);
    }
}
