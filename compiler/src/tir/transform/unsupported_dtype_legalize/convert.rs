//! Conversions between small floats and `float32` by operations on their bits, lane by lane.

use crate::ir::DType;
use crate::ir::small_float::{SmallFloat, Specials};
use crate::tir::{BinaryOp, Intrinsic, PrimExpr, PrimFuncData, VarId};

/// Bits of the infinity of `float32`; beyond them are NaNs.
const F32_INFINITY: i64 = 0x7f80_0000;
const F32_NAN: i64 = 0x7fc0_0000;
const F32_MAGNITUDE: i64 = 0x7fff_ffff;

/// Builds an expression with names for repeated parts.
struct Names<'a> {
    data: &'a mut PrimFuncData,
    bound: Vec<(VarId, PrimExpr)>,
}

impl<'a> Names<'a> {
    fn new(data: &'a mut PrimFuncData) -> Names<'a> {
        Names { data, bound: Vec::new() }
    }

    fn bind(&mut self, name: &str, value: PrimExpr) -> PrimExpr {
        if value.is_leaf() {
            return value;
        }
        let ty = value.ty();
        let var = self.data.var(name, ty);
        self.bound.push((var, value));
        PrimExpr::var(var, ty)
    }

    /// The expression inside the names that were bound.
    fn finish(self, body: PrimExpr) -> PrimExpr {
        self.bound.into_iter().rev().fold(body, |body, (var, value)| PrimExpr::Let {
            var,
            value: Box::new(value),
            body: Box::new(body),
        })
    }
}

fn int(value: i64) -> PrimExpr {
    PrimExpr::int(value, DType::I32)
}

fn shl(value: PrimExpr, amount: u32) -> PrimExpr {
    PrimExpr::binary(BinaryOp::Shl, value, int(amount.into()))
}

fn shr(value: PrimExpr, amount: u32) -> PrimExpr {
    PrimExpr::binary(BinaryOp::Shr, value, int(amount.into()))
}

/// The value of a small float's bits. Some targets have an instruction for `float16`, so what is to
/// be done for those is decided when intrinsics are lowered.
pub(super) fn from_bits(data: &mut PrimFuncData, bits: PrimExpr, dtype: DType) -> PrimExpr {
    match dtype {
        DType::F16 => PrimExpr::call(Intrinsic::FromFp16, bits),
        _ => widen(data, bits, dtype),
    }
}

/// The bits of the nearest small float, as [`narrow`] or by the intrinsic for `float16`.
pub(super) fn to_bits(data: &mut PrimFuncData, value: PrimExpr, dtype: DType) -> PrimExpr {
    if dtype != DType::F16 {
        return narrow(data, value, dtype);
    }
    let mut names = Names::new(data);
    let value = single(&mut names, value);
    names.finish(PrimExpr::call(Intrinsic::ToFp16, value))
}

/// Converts the bits of a small float to `float32`.
pub(in crate::tir::transform) fn widen(
    data: &mut PrimFuncData,
    bits: PrimExpr,
    dtype: DType,
) -> PrimExpr {
    let mut names = Names::new(data);
    let code = names.bind("code", bits.cast(DType::I32));
    let value = match SmallFloat::of(dtype) {
        None => widen_e8m0(code),
        // The bits are the upper half of a `float32`.
        Some(_) if dtype == DType::BF16 => shl(code, 16),
        Some(format) => widen_code(&mut names, code, format),
    };
    names.finish(value.reinterpret(DType::F32))
}

/// The bits of the `float32` with the same value.
fn widen_code(names: &mut Names<'_>, code: PrimExpr, format: SmallFloat) -> PrimExpr {
    let sign = i64::from(format.sign());
    let magnitude = names.bind("magnitude", code.clone().and(int(sign - 1)));
    let at_place = names.bind("shifted", shl(magnitude.clone(), 23 - format.mantissa_bits));
    // The exponent is moved. A denormal number gets that of the least normal one and with it a digit
    // too many, which a subtraction takes away. No `float32` on the way is denormal, so that the
    // value is the same where such are flushed to zero.
    let exponent = |of_zero: i32| int(i64::from(of_zero - format.bias) << 23);
    let (normal, least) = (at_place.clone() + exponent(127), exponent(128));
    let with_digit = (at_place.clone() + least.clone()).reinterpret(DType::F32);
    let denormal = (with_digit - least.reinterpret(DType::F32)).reinterpret(DType::I32);
    let is_denormal = magnitude.clone().less(int(1 << format.mantissa_bits));
    let scaled = names.bind("scaled", PrimExpr::select(is_denormal, denormal, normal));
    let nan = i64::from(format.nan_code());
    let value = match format.specials {
        Specials::Ieee => {
            let is_special = magnitude.greater_equal(int(format.infinity_code().into()));
            PrimExpr::select(is_special, at_place.or(int(F32_INFINITY)), scaled)
        }
        Specials::AllOnesNan => PrimExpr::select(magnitude.equal(int(nan)), int(F32_NAN), scaled),
        Specials::NegativeZeroNan => {
            PrimExpr::select(code.clone().equal(int(nan)), int(F32_NAN), scaled)
        }
        Specials::None => scaled,
    };
    let sign_place = format.exponent_bits + format.mantissa_bits;
    value.or(shl(code.and(int(sign)), 31 - sign_place))
}

fn widen_e8m0(code: PrimExpr) -> PrimExpr {
    // The least power is denormal.
    let power = PrimExpr::select(code.clone().equal(int(0)), int(0x40_0000), shl(code.clone(), 23));
    PrimExpr::select(code.equal(int(0xff)), int(F32_NAN), power)
}

/// The bits of the nearest small float, ties to even, as an unsigned integer of its width. Beyond
/// the greatest number the result is infinity, NaN or that number, whichever the format has.
pub(in crate::tir::transform) fn narrow(
    data: &mut PrimFuncData,
    value: PrimExpr,
    dtype: DType,
) -> PrimExpr {
    let mut names = Names::new(data);
    let value = single(&mut names, value);
    let bits = names.bind("bits", value.reinterpret(DType::I32));
    let magnitude = names.bind("magnitude", bits.clone().and(int(F32_MAGNITUDE)));
    let code = match SmallFloat::of(dtype) {
        None => narrow_e8m0(magnitude),
        Some(format) if dtype == DType::BF16 => {
            let code = rounded_shift(magnitude.clone(), 16);
            let code = PrimExpr::select(
                magnitude.greater(int(F32_INFINITY)),
                int(format.nan_code().into()),
                code,
            );
            code.or(shr(bits, 16).and(int(format.sign().into())))
        }
        Some(format) => narrow_bits(&mut names, bits, magnitude, format),
    };
    let stored = if dtype.bits() == 16 { DType::U16 } else { DType::U8 };
    names.finish(code.cast(stored))
}

/// The upper bits, rounded to nearest according to the dropped ones, ties to even.
fn rounded_shift(magnitude: PrimExpr, amount: u32) -> PrimExpr {
    let odd = shr(magnitude.clone(), amount).and(int(1));
    shr(magnitude + int((1 << (amount - 1)) - 1) + odd, amount)
}

fn narrow_bits(
    names: &mut Names<'_>,
    bits: PrimExpr,
    magnitude: PrimExpr,
    format: SmallFloat,
) -> PrimExpr {
    let dropped = 23 - format.mantissa_bits;
    // Codes continue across exponents, so one integer rounding serves all exponents.
    let moved = magnitude.clone() + int(i64::from(format.bias - 127) << 23);
    let moved = names.bind("moved", moved);
    let normal = rounded_shift(moved, dropped);
    // Adding this number leaves the value, as a multiple of the least number, in the lowest bits.
    let rounder = 2f32.powi(1 - format.bias - format.mantissa_bits as i32 + 23);
    let sum = magnitude.clone().reinterpret(DType::F32) + PrimExpr::f32(rounder);
    let denormal = sum.reinterpret(DType::I32) - int(rounder.to_bits().into());
    let least_normal = i64::from(128 - format.bias) << 23;
    let is_denormal = magnitude.clone().less(int(least_normal));
    let code = names.bind("rounded", PrimExpr::select(is_denormal, denormal, normal));
    let overflow = int(format.overflow_code().into());
    let limited =
        PrimExpr::select(code.clone().greater(int(format.max_code().into())), overflow, code);
    let limited = PrimExpr::select(
        magnitude.greater(int(F32_INFINITY)),
        int(format.nan_code().into()),
        limited,
    );
    let sign_place = format.exponent_bits + format.mantissa_bits;
    let sign = shr(bits, 31 - sign_place).and(int(format.sign().into()));
    if format.specials != Specials::NegativeZeroNan {
        return limited.or(sign);
    }
    // Neither zero nor NaN has a sign.
    let limited = names.bind("limited", limited);
    let is_number =
        limited.clone().greater(int(0)).and(limited.clone().less(int(format.nan_code().into())));
    PrimExpr::select(is_number, limited.clone().or(sign), limited)
}

/// The nearest power of two, ties to the greater.
fn narrow_e8m0(magnitude: PrimExpr) -> PrimExpr {
    let least = magnitude.clone().less_equal(int(0x40_0000));
    let bounded = int(F32_INFINITY).min(magnitude);
    PrimExpr::select(least, int(0), shr(bounded + int(0x40_0000), 23))
}

/// A `float32` that rounds to any smaller format like the value.
fn single(names: &mut Names<'_>, value: PrimExpr) -> PrimExpr {
    match value.dtype() {
        DType::F64 => round_to_odd(names, value),
        _ => value.cast(DType::F32),
    }
}

/// A `float32` that rounds to any smaller format like the `float64`: if it is not exact, its last
/// bit is set, so that it is neither a number of that format nor half-way between two.
fn round_to_odd(names: &mut Names<'_>, value: PrimExpr) -> PrimExpr {
    let value = names.bind("wide", value);
    let nearest = names.bind("nearest", value.clone().cast(DType::F32));
    let bits = names.bind("nearest_bits", nearest.clone().reinterpret(DType::I32));
    let back = names.bind("back", nearest.cast(DType::F64));
    let magnitude = |x: PrimExpr| PrimExpr::call(Intrinsic::Abs, x);
    let is_above = magnitude(back.clone()).greater(magnitude(value.clone()));
    let one = |sign| int(sign).broadcast_to(bits.ty().lanes);
    let other = bits.clone() + PrimExpr::select(is_above, one(-1), one(1));
    let is_even = bits.clone().and(int(1)).equal(int(0));
    let is_odd_wanted = back.not_equal(value).and(is_even);
    PrimExpr::select(is_odd_wanted, other, bits).reinterpret(DType::F32)
}

/// A value wrapped into the range of an integer type narrower than a byte, in a byte; a float is
/// truncated first.
pub(super) fn narrow_int(value: PrimExpr, dtype: DType) -> PrimExpr {
    let byte = if dtype.is_signed_int() { DType::I8 } else { DType::U8 };
    let value = if value.dtype().is_float() { value.cast(DType::I32) } else { value };
    let spare = PrimExpr::int(i64::from(8 - dtype.bits()), byte);
    let shifted = PrimExpr::binary(BinaryOp::Shl, value.cast(byte), spare.clone());
    PrimExpr::binary(BinaryOp::Shr, shifted, spare)
}
