//! Sines, cosines and tangents of `float32`.

use super::math::Math;
use crate::ir::DType;
use crate::tir::{BinaryOp, Intrinsic, PrimExpr};

/// How many quarters of a turn numbers of a magnitude are: a reduction by Payne and Hanek's idea, which
/// leaves out whole turns before it multiplies, in `float64` of which each product is exact.
///
/// Numbers from 2^(shift + 24) on, as those of a range are, are whole multiples of 2^shift. So
/// x · 2/π and (x / 2^shift) · (2^shift · 2/π mod 4) differ by whole turns alone.
struct Range {
    /// The least magnitude.
    from: f64,
    /// 2^-shift.
    scale: f64,
    /// 2^shift · 2/π mod 4 in parts: two of at most 29 bits, whose products with the 24 bits of a
    /// `float32` are exact, and the rest.
    quarters: [f64; 3],
}

const RANGES: [Range; 4] = [
    Range {
        from: 0.0,
        scale: 1.0,
        quarters: [0.6366197690367699, 3.3308114738561656e-9, 2.276010073078396e-18],
    },
    Range {
        from: 1.125899906842624e15,
        scale: 1.4901161193847656e-8,
        quarters: [1.72352696955204, 4.8093533183690695e-9, 5.1651711996897015e-18],
    },
    Range {
        from: 7.555786372591432e22,
        scale: 2.220446049250313e-16,
        quarters: [1.3227502331137657, 5.003241640433309e-9, 4.220776518111768e-18],
    },
    Range {
        from: 5.070602400912918e30,
        scale: 3.308722450212111e-24,
        quarters: [1.8357618600130081, 3.0772192294303835e-9, 1.1744408199816128e-17],
    },
];

/// 2²⁰, below which [`QUARTER`] has parts enough.
const NEAR: f32 = 1_048_576.0;

/// π/2 in two parts, by Cody and Waite: the upper has 33 significant bits, so that its product with a
/// number of quarters below [`NEAR`] is exact, and so is what it leaves of a `float32`.
const QUARTER: [f64; 2] = [1.570_796_326_734_125_6, 6.077_100_506_506_192e-11];

/// 2⁵²: added to a number from 0 to there, it leaves the nearest integer.
const ROUNDER: f64 = 4_503_599_627_370_496.0;

/// 1.5 · 2²³: added to a small whole `float32`, it leaves its bits in the lowest ones.
const BITS: f32 = 12_582_912.0;

/// sin(r) = r + r³ · S(r²) for |r| ≤ π/4: minimax of the relative error by Lawson's algorithm.
const SIN: [f32; 3] = [-0.166_666_55, 0.008_332_16, -0.000_195_152_82];

/// cos(r) = 1 − r²/2 + r⁴ · C(r²), likewise.
const COS: [f32; 3] = [0.041_666_646, -0.001_388_731_6, 2.443_315_7e-5];

impl Math<'_> {
    /// `sin`, `cos` or `tan` of a vector, which is reduced in parts of `part` lanes. Vectors all of whose
    /// lanes are near zero are reduced in less time, to the same numbers.
    pub(super) fn angle(&mut self, intrinsic: Intrinsic, x: PrimExpr, part: u32) -> PrimExpr {
        let x = self.bind("x", x);
        let magnitude = self.bind("magnitude", PrimExpr::call(Intrinsic::Abs, x.clone()));
        // Bits of numbers that are not negative are ordered as these are, and NaN is beyond all.
        let greatest = self.reduce(BinaryOp::Max, magnitude.clone().reinterpret(DType::I32));
        let are_near = greatest.less(PrimExpr::int(NEAR.to_bits().into(), DType::I32));
        let by = |math: &mut Self, reduce: fn(&mut Self, PrimExpr) -> [PrimExpr; 2]| {
            math.finish(|math| {
                let magnitude = magnitude.clone();
                let reduced = math.in_parts(part, [magnitude], |math, [x]| reduce(math, x));
                math.turned(intrinsic, x.clone(), reduced)
            })
        };
        let (near, far) = (by(self, Self::near_quarters), by(self, Self::quarters));
        PrimExpr::select(are_near, near, far)
    }

    /// `sin`, `cos` or `tan` of a vector, by the number of quarters of a turn that are nearest to its
    /// magnitude, and what is left.
    fn turned(
        &mut self,
        intrinsic: Intrinsic,
        x: PrimExpr,
        [quarters, rest]: [PrimExpr; 2],
    ) -> PrimExpr {
        let int = |value: i64| PrimExpr::int(value, DType::I32);
        let and = |a: PrimExpr, b: i64| PrimExpr::binary(BinaryOp::And, a, int(b));
        let bits = (quarters + PrimExpr::f32(BITS)).reinterpret(DType::I32);
        let quarters = self.bind("quarters", bits);
        let is_odd = self.bind("is_odd", and(quarters.clone(), 1).equal(int(1)));
        let r = self.bind("r", rest);
        let square = self.bind("square", r.clone() * r.clone());
        let s = self.polynomial(&square, &SIN);
        let sin = self.fma(square.clone() * r.clone(), s, r);
        let c = self.polynomial(&square, &COS);
        let half = self.fma(square.clone(), PrimExpr::f32(-0.5), PrimExpr::f32(1.0));
        let cos = self.fma(square.clone() * square, c, half);
        let (value, turns) = match intrinsic {
            Intrinsic::Cos => {
                let turned = quarters + int(1);
                (PrimExpr::select(is_odd, sin, cos), and(turned, 2))
            }
            Intrinsic::Tan => {
                let (sin, cos) = (self.bind("sin", sin), self.bind("cos", cos));
                let above = PrimExpr::select(is_odd.clone(), cos.clone(), sin.clone());
                let below = PrimExpr::select(is_odd, sin, cos);
                let turns = PrimExpr::binary(BinaryOp::Shl, and(quarters, 1), int(1));
                (above / below, turns)
            }
            _ => (PrimExpr::select(is_odd, cos, sin), and(quarters, 2)),
        };
        // The second bit becomes a sign, and that of an odd function's argument is one more.
        let sign = PrimExpr::binary(BinaryOp::Shl, turns, int(30));
        let flipped = |value: PrimExpr, sign: PrimExpr| {
            let bits = PrimExpr::binary(BinaryOp::Xor, value.reinterpret(DType::I32), sign);
            bits.reinterpret(DType::F32)
        };
        let value = flipped(value, sign);
        match intrinsic {
            Intrinsic::Cos => value,
            _ => flipped(value, and(x.reinterpret(DType::I32), i32::MIN.into())),
        }
    }

    /// The quarters of a turn nearest to numbers from 0 to [`NEAR`], and what is left: at most π/4 to
    /// either side.
    fn near_quarters(&mut self, magnitude: PrimExpr) -> [PrimExpr; 2] {
        let f64 = |value: f64| PrimExpr::float(value, DType::F64);
        let x = self.bind("wide", magnitude.cast(DType::F64));
        let count = x.clone() * f64(std::f64::consts::FRAC_2_PI);
        let count = self.bind("count", count + f64(ROUNDER) - f64(ROUNDER));
        let rest = QUARTER.iter().fold(x, |rest, &part| self.fma(count.clone(), f64(-part), rest));
        [count.cast(DType::F32), rest.cast(DType::F32)]
    }

    /// The quarters of a turn, modulo 4 unless they are few, nearest to numbers that are not negative, and
    /// what is left: at most π/4 to either side.
    fn quarters(&mut self, magnitude: PrimExpr) -> [PrimExpr; 2] {
        let [near_quarters, near_rest] = self.near_quarters(magnitude.clone());
        let is_near = magnitude.clone().less(PrimExpr::f32(NEAR));
        let is_near = self.bind("is_near", is_near);
        let lanes = magnitude.ty().lanes;
        let f64 = |value: f64| PrimExpr::float(value, DType::F64).broadcast_to(lanes);
        let x = self.bind("wide", magnitude.cast(DType::F64));
        let [first, others @ ..] = RANGES;
        let beyond: Vec<(PrimExpr, Range)> = (others.into_iter())
            .map(|range| {
                let is_beyond = x.clone().greater_equal(f64(range.from));
                (self.bind("is_beyond", is_beyond), range)
            })
            .collect();
        let mut choose = |name: &str, of: &dyn Fn(&Range) -> f64| {
            let chosen = beyond.iter().fold(f64(of(&first)), |chosen, (is_beyond, range)| {
                PrimExpr::select(is_beyond.clone(), f64(of(range)), chosen)
            });
            self.bind(name, chosen)
        };
        let scale = choose("scale", &|range| range.scale);
        let [high, middle, low] =
            [0, 1, 2].map(|part| choose("part", &|range| range.quarters[part]));
        let nearest = |value: PrimExpr| value + f64(ROUNDER) - f64(ROUNDER);
        let t = self.bind("t", x * scale);
        let high = self.bind("high", t.clone() * high);
        let middle = self.bind("middle", t.clone() * middle);
        let whole_high = self.bind("whole", nearest(high.clone()));
        let whole_middle = self.bind("whole", nearest(middle.clone()));
        let rest = (high - whole_high.clone()) + (middle - whole_middle.clone()) + t * low;
        let rest = self.bind("rest", rest);
        // Either side of zero.
        let whole_rest = rest.clone() + f64(1.5 * ROUNDER) - f64(1.5 * ROUNDER);
        let whole_rest = self.bind("whole", whole_rest);
        let whole = self.bind("whole", whole_high + whole_middle);
        let turns = nearest(whole.clone() * f64(0.25));
        let quarters = whole - turns * f64(4.0) + whole_rest.clone();
        let rest = (rest - whole_rest) * f64(std::f64::consts::FRAC_PI_2);
        [
            PrimExpr::select(is_near.clone(), near_quarters, quarters.cast(DType::F32)),
            PrimExpr::select(is_near, near_rest, rest.cast(DType::F32)),
        ]
    }
}
