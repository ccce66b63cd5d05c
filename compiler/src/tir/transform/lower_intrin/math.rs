//! Polynomial and rational approximations in `float32`.

use std::f32::consts::{FRAC_PI_2, FRAC_PI_4, PI};

use crate::ir::DType;
use crate::target::Target;
use crate::tir::{BinaryOp, Intrinsic, PrimExpr, PrimFuncData, UnaryOp, VarId};

/// 1.5 · 2²³: added to a number below 2²², it leaves the nearest integer in the lowest bits.
pub(super) const ROUNDER: f32 = 12_582_912.0;

/// ln 2 in two parts: the upper has 15 significant bits, so that its product with an exponent is
/// exact even without fused multiply-add.
const LN2_HIGH: f32 = 0.693_145_75;
const LN2_LOW: f32 = 1.428_606_8e-6;

/// 127, the bias of an exponent, on top of [`ROUNDER`]: the lowest bits are then an exponent.
const EXPONENT_ROUNDER: f32 = ROUNDER + 127.0;

/// e^r = 1 + r + r² · q(r) for |r| ≤ ln 2, lowest power first: minimax by Lawson's algorithm.
const EXP: [f32; 6] =
    [0.500_000_36, 0.166_666_14, 0.041_661_27, 0.008_336_104, 0.001_410_447, 0.000_196_116_1];

/// The same for |r| ≤ ½ ln 2.
const EXP_OF_HALF: [f32; 4] = [0.499_992_25, 0.166_671_19, 0.041_890_986, 0.008_312_43];

/// Up to this argument, e^x is a number times a power of two that is one.
const MOST_OF_ONE_POWER: f32 = 88.0;

/// log(1 + f) = f − f²/2 + f³ · q(f) for √½ ≤ 1 + f < √2.
const LOG: [f32; 9] = [
    0.333_333_13,
    -0.250_000_1,
    0.200_021_19,
    -0.166_679_96,
    0.142_195_52,
    -0.124_055_89,
    0.118_881_63,
    -0.116_756_51,
    0.067_466_386,
];

/// tanh(x) = x · P(x²) / Q(x²) for |x| ≤ 9.03, where the result rounds to 1, fused or not.
const TANH_LIMIT: f32 = 9.03;
const TANH_P: [f32; 6] =
    [1.0, 0.136_799_17, 0.003_868_331, 2.800_752_2e-5, 3.058_516_6e-8, -1.220_356_5e-11];
const TANH_Q: [f32; 5] = [1.0, 0.470_132_5, 0.027_245_851, 0.000_393_863_68, 1.287_370_9e-6];

/// erf(x) = x · P(x²) / Q(x²) for |x| ≤ 3.95, where the result rounds to 1, fused or not.
const ERF_LIMIT: f32 = 3.95;
const ERF_P: [f32; 6] = [
    std::f32::consts::FRAC_2_SQRT_PI,
    0.190_782_87,
    0.052_790_16,
    0.003_779_568_5,
    0.000_284_807_7,
    2.041_978_2e-6,
];
const ERF_Q: [f32; 6] =
    [1.0, 0.502_409_64, 0.114_257_134, 0.014_997_357, 0.001_165_202_8, 3.800_410_6e-5];

/// atan(t) = t + t³ · P(t²) for |t| ≤ tan(π/8): minimax of the relative error by Lawson's algorithm.
const ATAN: [f32; 5] = [-0.333_333_16, 0.199_984_71, -0.142_435_33, 0.105_938_14, -0.060_782_216];

/// asin(t) = t + t³ · P(t²) for |t| ≤ ½, likewise.
const ASIN: [f32; 5] = [0.166_667_52, 0.074_952_975, 0.045_470_376, 0.024_179_514, 0.042_166_308];

/// π/2 − [`FRAC_PI_2`].
const FRAC_PI_2_LOW: f32 = -4.371_139e-8;

/// Builds an expression with names for repeated parts.
pub(super) struct Math<'a> {
    data: &'a mut PrimFuncData,
    /// Whether `a * b + c` is one operation.
    fused: bool,
    /// Whether `x · 2^n` is one operation.
    scales: bool,
    /// Whether denormal numbers count as zeros.
    flush: bool,
    names: Vec<(VarId, PrimExpr)>,
}

impl<'a> Math<'a> {
    /// Of operations that every target has.
    pub(super) fn plain(data: &'a mut PrimFuncData) -> Self {
        Math { data, fused: false, scales: false, flush: false, names: Vec::new() }
    }

    /// Of operations that the target has, which may flush denormal numbers to zero.
    pub(super) fn of_target(data: &'a mut PrimFuncData, target: &Target, flush: bool) -> Self {
        let (fused, scales) = (target.has_fma(), target.has_ldexp());
        Math { data, fused, scales, flush, names: Vec::new() }
    }

    /// The expression that `build` makes, inside the names that it binds.
    pub(super) fn finish(&mut self, build: impl FnOnce(&mut Self) -> PrimExpr) -> PrimExpr {
        let outer = self.names.len();
        let result = build(self);
        self.names.drain(outer..).rev().fold(result, |body, (var, value)| PrimExpr::Let {
            var,
            value: Box::new(value),
            body: Box::new(body),
        })
    }

    /// Names a value; leaves need no name.
    pub(super) fn bind(&mut self, name: &str, value: PrimExpr) -> PrimExpr {
        if value.is_leaf() {
            return value;
        }
        let ty = value.ty();
        let var = self.data.var(name, ty);
        self.names.push((var, value));
        PrimExpr::var(var, ty)
    }

    /// What an operator makes of all lanes of a vector, of which there is a power of two.
    pub(super) fn reduce(&mut self, op: BinaryOp, mut value: PrimExpr) -> PrimExpr {
        let mut lanes = value.ty().lanes;
        while lanes > 1 {
            let half = lanes / 2;
            let whole = self.bind("lanes", value);
            let part = |from: u32| whole.clone().shuffle((from..from + half).collect());
            value = PrimExpr::binary(op, part(0), part(half));
            lanes = half;
        }
        value
    }

    /// A function of the system's mathematical library. With `flush`, denormal arguments and results
    /// are zeros of their sign.
    pub(super) fn library_call(
        &mut self,
        intrinsic: Intrinsic,
        args: Vec<PrimExpr>,
        flush: bool,
    ) -> PrimExpr {
        if !flush {
            return PrimExpr::Call { intrinsic, args };
        }
        self.finish(|math| {
            let args = args.into_iter().map(|arg| math.without_denormals(arg)).collect();
            math.without_denormals(PrimExpr::Call { intrinsic, args })
        })
    }

    /// The number, or a zero of its sign if it is denormal.
    pub(super) fn without_denormals(&mut self, x: PrimExpr) -> PrimExpr {
        let (dtype, lanes) = (x.dtype(), x.ty().lanes);
        let least = if dtype == DType::F32 { f32::MIN_POSITIVE.into() } else { f64::MIN_POSITIVE };
        let least = PrimExpr::float(least, dtype).broadcast_to(lanes);
        let x = self.bind("x", x);
        let is_denormal = PrimExpr::call(Intrinsic::Abs, x.clone()).less(least);
        let zero = x.clone() * PrimExpr::zero(x.ty());
        PrimExpr::select(is_denormal, zero, x)
    }

    pub(super) fn fma(&self, a: PrimExpr, b: PrimExpr, c: PrimExpr) -> PrimExpr {
        if self.fused { PrimExpr::mul_add(a, b, c) } else { a * b + c }
    }

    /// What `compute` makes of vectors that are names, in parts of `part` lanes: those for which a wider
    /// type has vectors. 0, as for a target without vectors, is no such number.
    pub(super) fn in_parts<const N: usize, const M: usize>(
        &mut self,
        part: u32,
        args: [PrimExpr; N],
        compute: impl Fn(&mut Self, [PrimExpr; N]) -> [PrimExpr; M],
    ) -> [PrimExpr; M] {
        let lanes = args[0].ty().lanes;
        if part == 0 || lanes <= part || !lanes.is_multiple_of(part) {
            return compute(self, args);
        }
        let mut joined = [const { Vec::new() }; M];
        for first in (0..lanes).step_by(part as usize) {
            let picked = |x: &PrimExpr| match x {
                PrimExpr::Broadcast { value, .. } => (**value).clone().broadcast_to(part),
                vector => vector.clone().shuffle((first..first + part).collect()),
            };
            let parts = compute(self, args.each_ref().map(picked));
            joined.iter_mut().zip(parts).for_each(|(vectors, part)| vectors.push(part));
        }
        joined.map(|vectors| PrimExpr::Shuffle { vectors, lanes: (0..lanes).collect() })
    }

    /// Horner's scheme, lowest power first: the fewest operations, which decide the time of a long
    /// loop, as its iterations overlap.
    pub(super) fn polynomial<C>(&self, x: &PrimExpr, coefficients: &[C]) -> PrimExpr
    where
        C: Copy + Into<f64>,
    {
        let constant = |c: &C| PrimExpr::float((*c).into(), x.dtype());
        let mut powers = coefficients.iter().rev().map(constant);
        let highest = powers.next().unwrap_or(PrimExpr::float(0.0, x.dtype()));
        powers.fold(highest, |sum, c| self.fma(sum, x.clone(), c))
    }

    pub(super) fn exp(&mut self, x: PrimExpr) -> PrimExpr {
        self.exp_times(x, None)
    }

    /// The exponential function times a factor, which is no greater than 1 and no less than a half. It is
    /// finite where the product is.
    pub(super) fn exp_times(&mut self, x: PrimExpr, factor: Option<f32>) -> PrimExpr {
        let times = |p: PrimExpr| match factor {
            Some(factor) => p * PrimExpr::f32(factor),
            None => p,
        };
        let is_bounded = at_most(&x).is_some_and(|bound| bound <= MOST_OF_ONE_POWER);
        let has_one_power = is_bounded && self.flush && !self.scales;
        // Beyond these bounds the result is 0 or infinite. The constant comes first, so that a NaN
        // is kept.
        let x = PrimExpr::f32(if has_one_power { -88.0 } else { -104.0 }).max(x);
        let x = if is_bounded { x } else { PrimExpr::f32(89.5).min(x) };
        let x = self.bind("x", x);
        if self.scales {
            let log2e = PrimExpr::f32(std::f32::consts::LOG2_E);
            let n = self.fma(x.clone(), log2e, PrimExpr::f32(ROUNDER)) - PrimExpr::f32(ROUNDER);
            let n = self.bind("n", n);
            let p = times(self.exp_beyond(x, n.clone(), 1.0, &EXP_OF_HALF));
            return PrimExpr::Call { intrinsic: Intrinsic::Ldexp, args: vec![p, n] };
        }
        if has_one_power {
            // What is flushed to zero anyway has the exponent of zero.
            let (n, power) = self.power_of_two(&x, 1.0);
            return times(self.exp_beyond(x, n, 1.0, &EXP_OF_HALF)) * power;
        }
        // An even exponent 2n, so that 2^n is a normal number and twice a factor: underflow is
        // gradual, and n needs no arithmetic but a shift into its place.
        let x = self.bind("x", x);
        let (n, power) = self.power_of_two(&x, 2.0);
        let power = self.bind("power", power);
        times(self.exp_beyond(x, n, 2.0, &EXP)) * power.clone() * power
    }

    /// The integer `n` next to x / (k · ln 2), and 2^n, which is 0 for an `n` of -127.
    fn power_of_two(&mut self, x: &PrimExpr, k: f32) -> (PrimExpr, PrimExpr) {
        let log2e = PrimExpr::f32(std::f32::consts::LOG2_E / k);
        let shifted = self.fma(x.clone(), log2e, PrimExpr::f32(EXPONENT_ROUNDER));
        let shifted = self.bind("shifted", shifted);
        let n = self.bind("n", shifted.clone() - PrimExpr::f32(EXPONENT_ROUNDER));
        let bits = shifted.reinterpret(DType::I32);
        let power = PrimExpr::binary(BinaryOp::Shl, bits, PrimExpr::int(23, DType::I32));
        (n, power.reinterpret(DType::F32))
    }

    /// e^r of r = x - n · k · ln 2, by 1 + r + r² · q(r).
    fn exp_beyond(&mut self, x: PrimExpr, n: PrimExpr, k: f32, q: &[f32]) -> PrimExpr {
        let r = self.fma(n.clone(), PrimExpr::f32(-k * LN2_HIGH), x);
        let r = self.fma(n, PrimExpr::f32(-k * LN2_LOW), r);
        let r = self.bind("r", r);
        let q = self.polynomial(&r, q);
        let q = self.fma(q, r.clone(), PrimExpr::f32(1.0));
        self.fma(q, r, PrimExpr::f32(1.0))
    }

    /// `x · 2^n` by three powers of two, each of which is a normal number: a denormal on the way may be
    /// rounded more than once.
    pub(super) fn ldexp(
        &mut self,
        x: PrimExpr,
        n: PrimExpr,
        floor: &dyn Fn(&mut Self, PrimExpr) -> PrimExpr,
    ) -> PrimExpr {
        // Beyond this exponent every result is 0 or infinite.
        const MOST: f32 = 378.0;
        let n = PrimExpr::f32(MOST).min(PrimExpr::f32(-MOST).max(n));
        let n = floor(self, n);
        let n = self.bind("n", n);
        let third = floor(self, n.clone() * PrimExpr::f32(1.0 / 3.0));
        let third = self.bind("third", third);
        let power = |n: PrimExpr| {
            let bits = n.clone().cast(DType::I32) + PrimExpr::int(127, DType::I32);
            let power = PrimExpr::binary(BinaryOp::Shl, bits, PrimExpr::int(23, DType::I32));
            // The cast gives 0 for a NaN, which the product brings back.
            power.reinterpret(DType::F32) + (n.clone() - n)
        };
        let part = self.bind("power", power(third.clone()));
        let rest = self.bind("rest", n - third.clone() - third);
        x * part.clone() * part * power(rest)
    }

    /// `e` and `f` of a number that is not negative, 2^e · (1 + f) with √½ ≤ 1 + f < √2: 0 has no such `e`,
    /// and neither have an infinity and NaN.
    pub(super) fn exponent_and_fraction(&mut self, x: &PrimExpr) -> (PrimExpr, PrimExpr) {
        let int = |value: i64| PrimExpr::int(value, DType::I32);
        let is_small = x.clone().less(PrimExpr::f32(f32::MIN_POSITIVE));
        let is_small = self.bind("is_small", is_small);
        let scaled = x.clone() * PrimExpr::f32(8_388_608.0);
        let normal = PrimExpr::select(is_small.clone(), scaled, x.clone());
        let bits = self.bind("bits", normal.reinterpret(DType::I32));
        // Counted from √½, so that the mantissa is in [√½, √2).
        let from = bits.clone() - int(i64::from(std::f32::consts::FRAC_1_SQRT_2.to_bits()));
        let exponent = PrimExpr::binary(BinaryOp::Shr, from, int(23));
        let exponent = self.bind("exponent", exponent);
        let mantissa = bits - PrimExpr::binary(BinaryOp::Shl, exponent.clone(), int(23));
        let f = self.bind("f", mantissa.reinterpret(DType::F32) - PrimExpr::f32(1.0));
        let correction = PrimExpr::select(is_small, int(23), int(0));
        let e = self.bind("e", (exponent - correction).cast(DType::F32));
        (e, f)
    }

    pub(super) fn log(&mut self, x: PrimExpr) -> PrimExpr {
        let x = self.bind("x", x);
        let (e, f) = self.exponent_and_fraction(&x);
        let square = self.bind("square", f.clone() * f.clone());
        let q = self.bind("q", self.polynomial(&f, &LOG));
        // The small parts first.
        let low = self.fma(e.clone(), PrimExpr::f32(LN2_LOW), q * (square.clone() * f.clone()));
        let low = self.fma(square, PrimExpr::f32(-0.5), low);
        let sum = self.fma(e, PrimExpr::f32(LN2_HIGH), f + low);
        let infinity = PrimExpr::f32(f32::INFINITY);
        let sum = PrimExpr::select(x.clone().less(infinity), sum, x.clone());
        let at_zero = PrimExpr::select(
            x.clone().equal(PrimExpr::f32(0.0)),
            PrimExpr::f32(f32::NEG_INFINITY),
            PrimExpr::f32(f32::NAN),
        );
        PrimExpr::select(x.greater(PrimExpr::f32(0.0)), sum, at_zero)
    }

    pub(super) fn tanh(&mut self, x: PrimExpr) -> PrimExpr {
        self.odd_rational(x, TANH_LIMIT, &TANH_P, &TANH_Q)
    }

    pub(super) fn erf(&mut self, x: PrimExpr) -> PrimExpr {
        self.odd_rational(x, ERF_LIMIT, &ERF_P, &ERF_Q)
    }

    /// `x · P(x²) / Q(x²)` up to `limit`, and ±1 at most.
    fn odd_rational(&mut self, x: PrimExpr, limit: f32, p: &[f32], q: &[f32]) -> PrimExpr {
        let clamped =
            |low: f32, high: f32, x: PrimExpr| PrimExpr::f32(high).min(PrimExpr::f32(low).max(x));
        let x = self.bind("x", clamped(-limit, limit, x));
        let u = self.bind("u", x.clone() * x.clone());
        let p = self.bind("p", x * self.polynomial(&u, p));
        let q = self.bind("q", self.polynomial(&u, q));
        clamped(-1.0, 1.0, p / q)
    }

    pub(super) fn sigmoid(&mut self, x: PrimExpr) -> PrimExpr {
        let x = match self.flush {
            true => PrimExpr::f32(MOST_OF_ONE_POWER).min(-x),
            false => -x,
        };
        let exp = self.exp(x);
        let lanes = exp.ty().lanes;
        PrimExpr::f32(1.0).broadcast_to(lanes) / (exp + PrimExpr::f32(1.0))
    }

    /// Arguments beyond tan(3π/8) are reduced by atan(t) = π/2 − atan(1/t), those beyond tan(π/8) by
    /// atan(t) = π/4 + atan((t − 1) / (t + 1)).
    pub(super) fn atan(&mut self, x: PrimExpr) -> PrimExpr {
        let one = || PrimExpr::f32(1.0);
        let x = self.bind("x", x);
        let magnitude = self.bind("magnitude", PrimExpr::call(Intrinsic::Abs, x.clone()));
        let is_large = self.bind("is_large", magnitude.clone().greater(PrimExpr::f32(2.414_213_6)));
        let is_middle =
            self.bind("is_middle", magnitude.clone().greater(PrimExpr::f32(0.414_213_57)));
        let choose = |large: PrimExpr, middle: PrimExpr, small: PrimExpr| {
            let rest = PrimExpr::select(is_middle.clone(), middle, small);
            PrimExpr::select(is_large.clone(), large, rest)
        };
        let numerator = choose(-one(), magnitude.clone() - one(), magnitude.clone());
        let denominator = choose(magnitude.clone(), magnitude + one(), one());
        let t = self.bind("t", numerator / denominator);
        let base = choose(PrimExpr::f32(FRAC_PI_2), PrimExpr::f32(FRAC_PI_4), PrimExpr::f32(0.0));
        let low = choose(
            PrimExpr::f32(FRAC_PI_2_LOW),
            PrimExpr::f32(FRAC_PI_2_LOW / 2.0),
            PrimExpr::f32(0.0),
        );
        let angle = self.odd(&t, &ATAN);
        self.with_sign_of(base + (angle + low), &x)
    }

    pub(super) fn asin(&mut self, x: PrimExpr) -> PrimExpr {
        let x = self.bind("x", x);
        let (is_large, angle) = self.asin_in_parts(&x);
        let doubled = PrimExpr::f32(2.0) * angle.clone() - PrimExpr::f32(FRAC_PI_2_LOW);
        let magnitude = PrimExpr::select(is_large, PrimExpr::f32(FRAC_PI_2) - doubled, angle);
        self.with_sign_of(magnitude, &x)
    }

    pub(super) fn acos(&mut self, x: PrimExpr) -> PrimExpr {
        let x = self.bind("x", x);
        let (is_large, angle) = self.asin_in_parts(&x);
        let signed = self.with_sign_of(angle.clone(), &x);
        let small = PrimExpr::f32(FRAC_PI_2) - (signed - PrimExpr::f32(FRAC_PI_2_LOW));
        let doubled = self.bind("doubled", PrimExpr::f32(2.0) * angle);
        let beyond = doubled.clone() - PrimExpr::f32(2.0 * FRAC_PI_2_LOW);
        let is_negative = x.less(PrimExpr::f32(0.0));
        let large = PrimExpr::select(is_negative, PrimExpr::f32(PI) - beyond, doubled);
        PrimExpr::select(is_large, large, small)
    }

    /// asin(|x|) up to ½, and asin(√((1 − |x|) / 2)) beyond, which is told by the first of the two:
    /// asin(|x|) is π/2 less twice that.
    fn asin_in_parts(&mut self, x: &PrimExpr) -> (PrimExpr, PrimExpr) {
        let magnitude = self.bind("magnitude", PrimExpr::call(Intrinsic::Abs, x.clone()));
        let is_large = self.bind("is_large", magnitude.clone().greater(PrimExpr::f32(0.5)));
        let half = (PrimExpr::f32(1.0) - magnitude.clone()) * PrimExpr::f32(0.5);
        let root = PrimExpr::call(Intrinsic::Sqrt, half);
        let t = self.bind("t", PrimExpr::select(is_large.clone(), root, magnitude));
        let angle = self.odd(&t, &ASIN);
        (is_large, self.bind("angle", angle))
    }

    /// `t + t³ · P(t²)`.
    pub(super) fn odd(&mut self, t: &PrimExpr, p: &[f32]) -> PrimExpr {
        let square = self.bind("square", t.clone() * t.clone());
        let p = self.polynomial(&square, p);
        self.fma(square * t.clone(), p, t.clone())
    }

    /// A number that is not negative, with the sign of `x`.
    pub(super) fn with_sign_of(&self, magnitude: PrimExpr, x: &PrimExpr) -> PrimExpr {
        let sign = PrimExpr::int(i32::MIN.into(), DType::I32);
        let sign = PrimExpr::binary(BinaryOp::And, x.clone().reinterpret(DType::I32), sign);
        let bits = magnitude.reinterpret(DType::I32);
        PrimExpr::binary(BinaryOp::Or, bits, sign).reinterpret(DType::F32)
    }
}

/// A bound of a number, which a NaN keeps: of the least of it and a constant, and of what is not positive.
fn at_most(x: &PrimExpr) -> Option<f32> {
    let constant = |x: &PrimExpr| match x {
        PrimExpr::Broadcast { value, .. } => value.as_float(),
        scalar => scalar.as_float(),
    };
    match x {
        PrimExpr::Binary { op: BinaryOp::Min, lhs, .. } => constant(lhs).map(|bound| bound as f32),
        PrimExpr::Unary { op: UnaryOp::Neg, value } => {
            matches!(**value, PrimExpr::Call { intrinsic: Intrinsic::Abs, .. }).then_some(0.0)
        }
        _ => None,
    }
}
