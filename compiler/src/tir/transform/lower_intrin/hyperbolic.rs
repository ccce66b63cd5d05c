//! Hyperbolic functions and their inverses of `float32`.

use super::math::Math;
use crate::tir::{Intrinsic, PrimExpr};

/// sinh(x) = x + x³ · P(x²) for |x| ≤ 1, the terms of Taylor's series: the next one is below 2^-25.
const SINH: [f32; 4] = [1.0 / 6.0, 1.0 / 120.0, 1.0 / 5040.0, 1.0 / 362_880.0];

/// From here on, √(x² ± 1) is x for logarithms, and squares are still finite.
const LARGE: f32 = 16_777_216.0;

impl Math<'_> {
    /// `e^|x| / 2`, which is finite as far as the functions made of it are, and a quarter of its inverse,
    /// `e^−|x| / 2`.
    fn half_exponentials(&mut self, x: &PrimExpr) -> [PrimExpr; 2] {
        let magnitude = PrimExpr::call(Intrinsic::Abs, x.clone());
        let half = self.exp_times(magnitude, Some(0.5));
        let half = self.bind("half", half);
        let quarter = PrimExpr::f32(0.25).broadcast_to(x.ty().lanes);
        [half.clone(), quarter / half]
    }

    pub(super) fn cosh(&mut self, x: PrimExpr) -> PrimExpr {
        let [half, inverse] = self.half_exponentials(&x);
        half + inverse
    }

    pub(super) fn sinh(&mut self, x: PrimExpr) -> PrimExpr {
        let x = self.bind("x", x);
        let [half, inverse] = self.half_exponentials(&x);
        let large = self.with_sign_of(half - inverse, &x);
        let is_small = PrimExpr::call(Intrinsic::Abs, x.clone()).less(PrimExpr::f32(1.0));
        PrimExpr::select(is_small, self.odd(&x, &SINH), large)
    }

    /// The logarithm of `1 + x`, where `x` may be far below 1: what `1 + x` loses of it is added again.
    fn log_of_one_and(&mut self, x: PrimExpr) -> PrimExpr {
        let one = PrimExpr::f32(1.0);
        let x = self.bind("more", x);
        let sum = self.bind("sum", x.clone() + one.clone());
        let lost = self.bind("lost", (x - (sum.clone() - one)) / sum.clone());
        let log = self.log(sum.clone());
        let log = self.bind("log", log);
        // Nothing is lost of infinity.
        let is_finite = sum.less(PrimExpr::f32(f32::INFINITY));
        PrimExpr::select(is_finite, log.clone() + lost, log)
    }

    /// The logarithm of `1 + more`, or of twice a number that is [`LARGE`].
    fn log_unless_large(&mut self, x: &PrimExpr, more: PrimExpr) -> PrimExpr {
        let is_large = x.clone().greater(PrimExpr::f32(LARGE));
        let is_large = self.bind("is_large", is_large);
        let log = self.log_of_one_and(PrimExpr::select(is_large.clone(), x.clone(), more));
        let ln_2 = PrimExpr::f32(std::f32::consts::LN_2);
        let log = self.bind("log", log);
        PrimExpr::select(is_large, log.clone() + ln_2, log)
    }

    /// log(|x| + √(x² + 1)), where that is 1 + |x| + x² / (1 + √(x² + 1)).
    pub(super) fn asinh(&mut self, x: PrimExpr) -> PrimExpr {
        let one = PrimExpr::f32(1.0);
        let x = self.bind("x", x);
        let magnitude = self.bind("magnitude", PrimExpr::call(Intrinsic::Abs, x.clone()));
        let square = self.bind("square", magnitude.clone() * magnitude.clone());
        let root = PrimExpr::call(Intrinsic::Sqrt, square.clone() + one.clone());
        let more = magnitude.clone() + square / (root + one);
        let log = self.log_unless_large(&magnitude, more);
        self.with_sign_of(log, &x)
    }

    /// log(x + √(x² − 1)), where that is 1 + t + √(t · (t + 2)) with t = x − 1.
    pub(super) fn acosh(&mut self, x: PrimExpr) -> PrimExpr {
        let x = self.bind("x", x);
        let t = self.bind("t", x.clone() - PrimExpr::f32(1.0));
        let root = t.clone() * (t.clone() + PrimExpr::f32(2.0));
        let more = t + PrimExpr::call(Intrinsic::Sqrt, root);
        let log = self.log_unless_large(&x, more);
        PrimExpr::select(x.less(PrimExpr::f32(1.0)), PrimExpr::f32(f32::NAN), log)
    }

    /// Half of log((1 + |x|) / (1 − |x|)), where that is 1 + 2 · |x| / (1 − |x|).
    pub(super) fn atanh(&mut self, x: PrimExpr) -> PrimExpr {
        let x = self.bind("x", x);
        let magnitude = self.bind("magnitude", PrimExpr::call(Intrinsic::Abs, x.clone()));
        let more = magnitude.clone() * PrimExpr::f32(2.0) / (PrimExpr::f32(1.0) - magnitude);
        let log = self.log_of_one_and(more);
        self.with_sign_of(log * PrimExpr::f32(0.5), &x)
    }
}
