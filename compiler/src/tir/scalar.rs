//! Semantics of operators on single values, shared by constant folding and the interpreter.
//!
//! A value is held as 64 bits: integers sign- or zero-extended from their width, `Bool` as 0 or 1,
//! floats as the bits of their own format.

use super::{BinaryOp, CompareOp, Intrinsic, UnaryOp};
use crate::ir::DType;
pub use crate::ir::small_float::{float_bits, float_value};

/// Brings an integer or `Bool` into the range of its type: wraps, or `!= 0`. Other types are left
/// as they are.
pub fn wrap_int(value: i64, dtype: DType) -> i64 {
    if dtype == DType::Bool {
        return i64::from(value != 0);
    }
    let spare = 64 - dtype.bits().min(64);
    if dtype.is_signed_int() {
        value << spare >> spare
    } else if dtype.is_unsigned_int() {
        ((value as u64) << spare >> spare) as i64
    } else {
        value
    }
}

/// Evaluates an operator with one operand.
pub fn unary(op: UnaryOp, dtype: DType, value: u64) -> Option<u64> {
    if dtype.is_float() {
        let sign = 1u64 << (dtype.bits() - 1);
        return (op == UnaryOp::Neg && !dtype.is_storage_only()).then_some(value ^ sign);
    }
    let value = value as i64;
    let result = match op {
        UnaryOp::Neg => value.wrapping_neg(),
        UnaryOp::Not if dtype == DType::Bool => i64::from(value == 0),
        UnaryOp::Not => !value,
    };
    Some(wrap_int(result, dtype) as u64)
}

/// Evaluates an operator with two operands.
pub fn binary(op: BinaryOp, dtype: DType, lhs: u64, rhs: u64) -> Option<u64> {
    match dtype {
        DType::F32 => {
            let result = float_op(op, f32::from_bits(lhs as u32), f32::from_bits(rhs as u32))?;
            Some(u64::from(result.to_bits()))
        }
        DType::F64 => float_op(op, f64::from_bits(lhs), f64::from_bits(rhs)).map(f64::to_bits),
        // One operation on f16 or bf16 rounds the same through f32, which is more than twice as
        // wide.
        DType::F16 | DType::BF16 => {
            let result =
                float_op(op, float_value(lhs, dtype)? as f32, float_value(rhs, dtype)? as f32)?;
            float_bits(f64::from(result), dtype)
        }
        _ if dtype.is_float() => None,
        _ => Some(wrap_int(int_op(op, dtype, lhs as i64, rhs as i64), dtype) as u64),
    }
}

trait Float:
    Copy
    + PartialOrd
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::Rem<Output = Self>
{
}
impl Float for f32 {}
impl Float for f64 {}

fn float_op<F: Float>(op: BinaryOp, lhs: F, rhs: F) -> Option<F> {
    Some(match op {
        BinaryOp::Add => lhs + rhs,
        BinaryOp::Sub => lhs - rhs,
        BinaryOp::Mul => lhs * rhs,
        BinaryOp::Div => lhs / rhs,
        BinaryOp::Rem => lhs % rhs,
        BinaryOp::Min if lhs < rhs => lhs,
        BinaryOp::Max if lhs > rhs => lhs,
        BinaryOp::Min | BinaryOp::Max => rhs,
        BinaryOp::FloorDiv
        | BinaryOp::FloorMod
        | BinaryOp::And
        | BinaryOp::Or
        | BinaryOp::Xor
        | BinaryOp::Shl
        | BinaryOp::Shr => return None,
    })
}

/// The exact result, to be wrapped by the caller.
fn int_op(op: BinaryOp, dtype: DType, lhs: i64, rhs: i64) -> i64 {
    let unsigned = !dtype.is_signed_int();
    let (ul, ur) = (lhs as u64, rhs as u64);
    let width = u64::from(dtype.bits());
    // In the operand's own width, where a negative amount is a large one.
    let amount = if width < 64 { ur & ((1 << width) - 1) } else { ur };
    match op {
        BinaryOp::Add => lhs.wrapping_add(rhs),
        BinaryOp::Sub => lhs.wrapping_sub(rhs),
        BinaryOp::Mul => lhs.wrapping_mul(rhs),
        BinaryOp::Div | BinaryOp::Rem | BinaryOp::FloorDiv | BinaryOp::FloorMod if rhs == 0 => 0,
        BinaryOp::Div | BinaryOp::FloorDiv if unsigned => (ul / ur) as i64,
        BinaryOp::Rem | BinaryOp::FloorMod if unsigned => (ul % ur) as i64,
        BinaryOp::Div => lhs.wrapping_div(rhs),
        BinaryOp::Rem => lhs.wrapping_rem(rhs),
        BinaryOp::FloorDiv => {
            let quotient = lhs.wrapping_div(rhs);
            quotient - i64::from(lhs.wrapping_rem(rhs) != 0 && (lhs < 0) != (rhs < 0))
        }
        BinaryOp::FloorMod => {
            let rest = lhs.wrapping_rem(rhs);
            if rest != 0 && (rest < 0) != (rhs < 0) { rest + rhs } else { rest }
        }
        BinaryOp::Min if unsigned => ul.min(ur) as i64,
        BinaryOp::Max if unsigned => ul.max(ur) as i64,
        BinaryOp::Min => lhs.min(rhs),
        BinaryOp::Max => lhs.max(rhs),
        BinaryOp::And => lhs & rhs,
        BinaryOp::Or => lhs | rhs,
        BinaryOp::Xor => lhs ^ rhs,
        BinaryOp::Shl if amount < width => lhs << amount,
        BinaryOp::Shl => 0,
        BinaryOp::Shr if unsigned => ul.checked_shr(amount.min(64) as u32).unwrap_or(0) as i64,
        BinaryOp::Shr => lhs >> amount.min(63),
    }
}

/// Evaluates a comparison.
pub fn compare(op: CompareOp, dtype: DType, lhs: u64, rhs: u64) -> Option<bool> {
    use std::cmp::Ordering;
    let order = if dtype.is_float() {
        float_value(lhs, dtype)?.partial_cmp(&float_value(rhs, dtype)?)
    } else if dtype.is_signed_int() {
        Some((lhs as i64).cmp(&(rhs as i64)))
    } else {
        Some(lhs.cmp(&rhs))
    };
    Some(match op {
        CompareOp::Eq => order == Some(Ordering::Equal),
        CompareOp::Ne => order != Some(Ordering::Equal),
        CompareOp::Lt => order == Some(Ordering::Less),
        CompareOp::Le => order.is_some_and(Ordering::is_le),
        CompareOp::Gt => order == Some(Ordering::Greater),
        CompareOp::Ge => order.is_some_and(Ordering::is_ge),
    })
}

/// Converts a value.
pub fn cast(from: DType, to: DType, value: u64) -> Option<u64> {
    if from == to {
        return Some(value);
    }
    if from.is_float() {
        let float = float_value(value, from)?;
        if to == DType::Bool {
            return Some(u64::from(float != 0.0));
        }
        if to.is_float() {
            return float_bits(float, to);
        }
        let (low, high) = to.int_range()?;
        if to.bits() < 8 {
            return Some(wrap_int((float as i32).into(), to) as u64);
        }
        // Rust's `as` truncates, saturates and turns NaN into 0.
        return Some((float as i128).clamp(low, high) as u64);
    }
    if to.is_float() {
        return match (from == DType::U64, to) {
            (_, DType::F32) if from != DType::U64 => {
                Some(u64::from((value as i64 as f32).to_bits()))
            }
            (true, DType::F32) => Some(u64::from((value as f32).to_bits())),
            (true, DType::F64) => Some((value as f64).to_bits()),
            (false, DType::F64) => Some((value as i64 as f64).to_bits()),
            // Through f32, as generated code does.
            (true, _) => float_bits(f64::from(value as f32), to),
            (false, _) => float_bits(f64::from(value as i64 as f32), to),
        };
    }
    Some(wrap_int(value as i64, to) as u64)
}

/// The same bits as another type of equal width.
pub fn reinterpret(from: DType, to: DType, value: u64) -> Option<u64> {
    if from.bits() != to.bits() || from == DType::Bool || to == DType::Bool {
        return None;
    }
    let bits = from.bits();
    let raw = if bits < 64 { value & ((1 << bits) - 1) } else { value };
    Some(wrap_int(raw as i64, to) as u64)
}

/// `a * b + c`, rounded once.
pub fn mul_add(dtype: DType, a: u64, b: u64, c: u64) -> Option<u64> {
    Some(match dtype {
        DType::F64 => f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c)).to_bits(),
        DType::F32 => {
            let [a, b, c] = [a, b, c].map(|bits| f32::from_bits(bits as u32));
            u64::from(a.mul_add(b, c).to_bits())
        }
        // Of 11 digits each, so that the sum of 53 is as far from the middle of two of them.
        DType::F16 => {
            let [a, b, c] = [a, b, c].map(|bits| float_value(bits, dtype));
            float_bits(a? * b? + c?, dtype)?
        }
        _ => return None,
    })
}

/// Evaluates a mathematical function, in `f64`, rounded to the type; or a conversion.
pub fn call(intrinsic: Intrinsic, dtype: DType, args: &[u64]) -> Option<u64> {
    let first = *args.first()?;
    match intrinsic {
        Intrinsic::FromFp16 => return cast(DType::F16, DType::F32, first),
        Intrinsic::ToFp16 => return cast(dtype, DType::F16, first),
        _ => {}
    }
    let x = float_value(first, dtype)?;
    let y = match args.get(1) {
        Some(bits) => float_value(*bits, dtype)?,
        None => 0.0,
    };
    let result = match intrinsic {
        Intrinsic::Exp => x.exp(),
        Intrinsic::Log => x.ln(),
        Intrinsic::Tanh => x.tanh(),
        Intrinsic::Erf => erf(x),
        Intrinsic::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Intrinsic::Sqrt => x.sqrt(),
        Intrinsic::Floor => x.floor(),
        Intrinsic::Ceil => x.ceil(),
        Intrinsic::Trunc => x.trunc(),
        Intrinsic::Round => x.round_ties_even(),
        Intrinsic::Abs => x.abs(),
        Intrinsic::Pow => x.powf(y),
        Intrinsic::Ldexp => ldexp(x, y),
        Intrinsic::Sin => x.sin(),
        Intrinsic::Cos => x.cos(),
        Intrinsic::Tan => x.tan(),
        Intrinsic::Asin => x.asin(),
        Intrinsic::Acos => x.acos(),
        Intrinsic::Atan => x.atan(),
        Intrinsic::Sinh => x.sinh(),
        Intrinsic::Cosh => x.cosh(),
        Intrinsic::Asinh => x.asinh(),
        Intrinsic::Acosh => x.acosh(),
        Intrinsic::Atanh => x.atanh(),
        Intrinsic::FromFp16 | Intrinsic::ToFp16 => return None,
    };
    float_bits(result, dtype)
}

/// `x · 2^⌊n⌋`. Zero and infinity stay the same for any finite power.
fn ldexp(x: f64, n: f64) -> f64 {
    // In two steps, because the power may exceed an `f64` while the product does not.
    const MOST: f64 = 2000.0;
    let n = if n.is_finite() { n.floor().clamp(-MOST, MOST) } else { n };
    let half = (n / 2.0).floor();
    let rest = if n.is_finite() { n - half } else { n };
    x * half.exp2() * rest.exp2()
}

/// The error function, to about 1e-15 relative.
///
/// The series `2/√π · e^(−x²) · Σ 2ⁿ x^(2n+1) / (2n+1)!!` has positive terms only, so nothing
/// cancels; beyond 6 the result is 1 in `f64`.
pub fn erf(x: f64) -> f64 {
    if x.is_nan() {
        return x;
    }
    let magnitude = x.abs();
    if magnitude > 6.0 {
        return x.signum();
    }
    let square = magnitude * magnitude;
    let mut term = magnitude;
    let mut sum = term;
    let mut n = 0u32;
    while term > sum * 1e-17 {
        n += 1;
        term *= 2.0 * square / f64::from(2 * n + 1);
        sum += term;
    }
    let value = std::f64::consts::FRAC_2_SQRT_PI * (-square).exp() * sum;
    value.min(1.0).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn int(op: BinaryOp, dtype: DType, lhs: i64, rhs: i64) -> i64 {
        let [lhs, rhs] = [lhs, rhs].map(|v| wrap_int(v, dtype) as u64);
        binary(op, dtype, lhs, rhs).unwrap() as i64
    }

    #[test]
    fn integers_wrap_and_division_is_total() {
        assert_eq!(int(BinaryOp::Add, DType::I8, 127, 1), -128);
        assert_eq!(int(BinaryOp::Div, DType::I32, -7, 2), -3);
        assert_eq!(int(BinaryOp::FloorDiv, DType::I32, -7, 2), -4);
        assert_eq!(int(BinaryOp::FloorMod, DType::I32, -7, 2), 1);
        assert_eq!(int(BinaryOp::Rem, DType::I32, -7, 2), -1);
        assert_eq!(int(BinaryOp::Div, DType::I32, i64::from(i32::MIN), -1), i64::from(i32::MIN));
        assert_eq!(int(BinaryOp::Div, DType::I64, i64::MIN, -1), i64::MIN);
        assert_eq!(int(BinaryOp::FloorMod, DType::I64, 5, 0), 0);
        assert_eq!(int(BinaryOp::Div, DType::U8, 255, 2), 127);
        assert_eq!(int(BinaryOp::Max, DType::U64, -1, 1), -1);
    }

    #[test]
    fn shifts_by_the_width_or_more_are_defined() {
        assert_eq!(int(BinaryOp::Shl, DType::I32, 1, 31), i64::from(i32::MIN));
        assert_eq!(int(BinaryOp::Shl, DType::I32, 1, 32), 0);
        assert_eq!(int(BinaryOp::Shr, DType::I8, -5, 100), -1);
        assert_eq!(int(BinaryOp::Shr, DType::U8, 200, 3), 25);
        assert_eq!(int(BinaryOp::Shr, DType::U64, -1, 64), 0);
        assert_eq!(int(BinaryOp::Shl, DType::I8, 1, -1), 0);
    }

    #[test]
    fn conversions_saturate_from_floats_and_wrap_from_integers() {
        let f = |v: f32| u64::from(v.to_bits());
        assert_eq!(cast(DType::F32, DType::I8, f(-200.7)), Some(-128i64 as u64));
        assert_eq!(cast(DType::F32, DType::U8, f(-1.0)), Some(0));
        assert_eq!(cast(DType::F32, DType::I64, f(f32::NAN)), Some(0));
        assert_eq!(cast(DType::F32, DType::U64, f(f32::INFINITY)), Some(u64::MAX));
        assert_eq!(cast(DType::I32, DType::U8, 0x1ff), Some(0xff));
        assert_eq!(cast(DType::I64, DType::Bool, 256), Some(1));
        assert_eq!(cast(DType::U64, DType::F64, u64::MAX), Some((u64::MAX as f64).to_bits()));
        assert_eq!(reinterpret(DType::F32, DType::I32, f(-0.0)), Some(i64::from(i32::MIN) as u64));
    }

    #[test]
    fn min_and_max_take_the_right_operand_when_unordered() {
        let bits = |v: f32| u64::from(v.to_bits());
        let nan = bits(f32::NAN);
        assert_eq!(binary(BinaryOp::Max, DType::F32, bits(0.0), nan), Some(nan));
        assert_eq!(binary(BinaryOp::Max, DType::F32, nan, bits(0.0)), Some(bits(0.0)));
        assert_eq!(binary(BinaryOp::Min, DType::F32, bits(0.0), bits(-0.0)), Some(bits(-0.0)));
    }

    #[test]
    fn erf_matches_known_values() {
        // Abramowitz and Stegun, table 7.1.
        for (x, value) in [(0.1, 0.1124629160), (0.5, 0.5204998778), (2.0, 0.9953222650)] {
            assert!((erf(x) - value).abs() < 1e-10);
            assert_eq!(erf(-x), -erf(x));
        }
        assert_eq!(erf(f64::INFINITY), 1.0);
        assert!(erf(f64::NAN).is_nan());
    }
}
