//! Powers of `float32`.

use super::math::Math;
use crate::ir::DType;
use crate::tir::{BinaryOp, Intrinsic, PrimExpr};

/// log₂(m) = s · P(s²) with s = (m − 1) / (m + 1) for √½ ≤ m < √2: minimax of the relative error, 2^-37.8,
/// by Lawson's algorithm. It has to be relative, as an exponent may be large where the base is near 1.
const LOG2: [f64; 5] = [
    2.885_390_081_790_08,
    0.961_796_673_350_110_2,
    0.577_083_583_260_868,
    0.411_672_827_390_899_66,
    0.340_727_999_094_377_4,
];

/// 2^r for |r| ≤ ½, likewise: 2^-34.5.
const EXP2: [f64; 8] = [
    0.999_999_999_961_682,
    0.693_147_180_728_447_7,
    0.240_226_511_981_574_24,
    0.055_504_103_534_443_64,
    0.009_618_027_253_682_72,
    0.001_333_392_256_653_602_3,
    0.000_154_692_911_380_372_8,
    1.520_192_090_294_063e-5,
];

/// 1.5 · 2⁵², which leaves the nearest integer in the lowest bits, and 1023, the bias of an exponent.
const EXPONENT_ROUNDER: f64 = 6_755_399_441_055_744.0 + 1023.0;

impl Math<'_> {
    /// `x` to the power `y` as C's `pow` has it: 2^(y · log₂|x|) in `float64`, which is computed in parts of
    /// `part` lanes and rounded once. `trunc` rounds towards zero.
    pub(super) fn pow(
        &mut self,
        x: PrimExpr,
        y: PrimExpr,
        part: u32,
        trunc: &dyn Fn(&mut Self, PrimExpr) -> PrimExpr,
    ) -> PrimExpr {
        let float = |value: f32| PrimExpr::f32(value).broadcast_to(x.ty().lanes);
        let x = self.bind("x", x.clone());
        let y = self.bind("y", y);
        let size = self.bind("size", PrimExpr::call(Intrinsic::Abs, x.clone()));
        let (e, f) = self.exponent_and_fraction(&size);
        // The logarithm of zero, of infinity and of NaN.
        let e = PrimExpr::select(size.clone().less(float(f32::INFINITY)), e, size.clone());
        let is_zero = size.clone().equal(float(0.0));
        let e = self.bind("e", PrimExpr::select(is_zero, float(f32::NEG_INFINITY), e));
        let [power] = self.in_parts(part, [e, f, y.clone()], |math, [e, f, y]| {
            let log = math.log2(e, f);
            [math.exp2(y.cast(DType::F64) * log).cast(DType::F32)]
        });
        // Where 0 · ∞ was the exponent, and of every number, NaN included.
        let is_one = y.clone().equal(float(0.0)).or(size.equal(float(1.0)));
        let power = PrimExpr::select(is_one, float(1.0), power);
        // Of a negative number, a power that is no whole number is none, and an odd one is negative.
        let is_integer = trunc(self, y.clone()).equal(y.clone());
        let is_integer = self.bind("is_integer", is_integer);
        let half = self.bind("half", y * float(0.5));
        let is_odd = is_integer.clone().and(trunc(self, half.clone()).not_equal(half));
        let is_finite = x.clone().greater(float(f32::NEG_INFINITY));
        let is_negative = x.clone().less(float(0.0)).and(is_finite);
        let is_none = is_negative.and(is_integer.equal(PrimExpr::bool(false)));
        let power = PrimExpr::select(is_none, float(f32::NAN), power);
        let int = |value: i32| PrimExpr::int(value.into(), DType::I32);
        let sign = PrimExpr::binary(BinaryOp::And, x.reinterpret(DType::I32), int(i32::MIN));
        let zero = PrimExpr::zero(sign.ty());
        let sign = PrimExpr::select(is_odd, sign, zero);
        let bits = PrimExpr::binary(BinaryOp::Xor, power.reinterpret(DType::I32), sign);
        bits.reinterpret(DType::F32)
    }

    /// `e + log₂(1 + f)` in `float64` for √½ ≤ 1 + f < √2.
    fn log2(&mut self, e: PrimExpr, f: PrimExpr) -> PrimExpr {
        let f = self.bind("f", f.cast(DType::F64));
        let two = PrimExpr::float(2.0, DType::F64);
        let s = self.bind("s", f.clone() / (f + two));
        let square = self.bind("square", s.clone() * s.clone());
        let p = self.polynomial(&square, &LOG2);
        self.fma(s, p, e.cast(DType::F64))
    }

    /// `2^t` of a `float64`, as far as it is a `float32`.
    fn exp2(&mut self, t: PrimExpr) -> PrimExpr {
        let float = |value: f64| PrimExpr::float(value, DType::F64);
        // Beyond these bounds the result is 0 or infinite. The constant comes first, so that a NaN
        // is kept.
        let t = self.bind("t", float(200.0).min(float(-200.0).max(t)));
        let shifted = self.bind("shifted", t.clone() + float(EXPONENT_ROUNDER));
        let r = self.bind("r", t - (shifted.clone() - float(EXPONENT_ROUNDER)));
        let p = self.polynomial(&r, &EXP2);
        let bits = shifted.reinterpret(DType::I64);
        let scale = PrimExpr::binary(BinaryOp::Shl, bits, PrimExpr::int(52, DType::I64));
        p * scale.reinterpret(DType::F64)
    }
}
