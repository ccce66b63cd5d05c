//! Operators that work element by element.

use niello::ir::DType;
use niello::ops::elementwise::{
    CastAttrs, CeluAttrs, ClipAttrs, EluAttrs, GeluApproximation, GeluAttrs, HardsigmoidAttrs,
    LeakyReluAttrs, SeluAttrs, ThresholdedReluAttrs,
};

use super::{Generator, Known, Value};

/// The domain in which a function is smooth enough that an error of its argument stays small.
#[derive(Clone, Copy)]
enum Domain {
    Any,
    /// Magnitudes up to this one.
    Within(f64),
    /// Numbers from this one to 64.
    From(f64),
}

use Domain::{Any, From, Within};

/// A smooth function: its domain, its steepest slope there, and the range of its values.
type Smooth = (&'static str, Domain, f64, fn(f64, f64) -> (f64, f64));

/// Roundings of the largest value that an approximated function may be off by.
const APPROXIMATION: f64 = 8.0;

const SMOOTH: &[Smooth] = &[
    ("sigmoid", Any, 0.25, |_, _| (0.0, 1.0)),
    ("tanh", Any, 1.0, |_, _| (-1.0, 1.0)),
    ("exp", Within(3.0), 20.1, |lo, hi| (lo.exp(), hi.exp())),
    ("erf", Any, 1.13, |_, _| (-1.0, 1.0)),
    ("sqrt", From(0.25), 1.0, |lo, hi| (lo.sqrt(), hi.sqrt())),
    ("rsqrt", From(0.25), 4.0, |lo, hi| (hi.powf(-0.5), lo.powf(-0.5))),
    ("reciprocal", From(0.25), 16.0, |lo, hi| (1.0 / hi, 1.0 / lo)),
    ("log", From(0.25), 4.0, |lo, hi| (lo.ln(), hi.ln())),
    ("sin", Within(32.0), 1.0, |_, _| (-1.0, 1.0)),
    ("cos", Within(32.0), 1.0, |_, _| (-1.0, 1.0)),
    ("tan", Within(1.0), 3.43, |lo, hi| (lo.tan(), hi.tan())),
    ("asin", Within(0.75), 1.52, |lo, hi| (lo.asin(), hi.asin())),
    ("acos", Within(0.75), 1.52, |lo, hi| (hi.acos(), lo.acos())),
    ("atan", Any, 1.0, |lo, hi| (lo.atan(), hi.atan())),
    ("sinh", Within(3.0), 10.1, |lo, hi| (lo.sinh(), hi.sinh())),
    ("cosh", Within(3.0), 10.1, |lo, hi| (1.0, lo.abs().max(hi).cosh())),
    ("asinh", Any, 1.0, |lo, hi| (lo.asinh(), hi.asinh())),
    ("acosh", From(1.25), 1.34, |lo, hi| (lo.acosh(), hi.acosh())),
    ("atanh", Within(0.75), 2.29, |lo, hi| (lo.atanh(), hi.atanh())),
    ("nn.softplus", Any, 1.0, |_, hi| (0.0, hi.max(0.0) + 0.7)),
    ("nn.softsign", Any, 1.0, |_, _| (-1.0, 1.0)),
    ("nn.mish", Any, 1.1, |_, hi| (-0.31, hi.max(0.0))),
    ("nn.hardswish", Any, 1.5, |_, hi| (-0.375, hi.max(0.0))),
];

impl Generator<'_> {
    fn float(&mut self) -> Option<Value> {
        if let Some(value) = self.pick(|value| value.is_float()) {
            return Some(value);
        }
        let value = self.pick(|value| value.dtype != DType::Bool)?;
        let value = self.same_type(value.dtype, &value.shape);
        // Small integers are converted to floats exactly.
        let small = value.known.bound() <= 256.0;
        small.then(|| self.cast(&value, DType::F32)).flatten()
    }

    /// A smooth function, with or without attributes.
    pub(super) fn activation(&mut self) -> Option<Value> {
        let x = self.float()?;
        match self.choices.below(3) {
            0 => self.rectifier(&x),
            1 => self.parametric(&x),
            _ => {
                let smooth = self.choices.of(SMOOTH);
                self.smooth(&x, smooth)
            }
        }
    }

    fn smooth(&mut self, x: &Value, (op, domain, slope, range): Smooth) -> Option<Value> {
        let x = match domain {
            Any => x.clone(),
            Within(bound) => self.within(x, bound)?,
            From(least) => {
                let x = self.within(x, 60.0)?;
                self.at_least(&x, least)?
            }
        };
        let (lo, hi) = range(x.known.lo, x.known.hi);
        self.approximated(op, &x, (), slope, (lo, hi))
    }

    fn approximated(
        &mut self,
        op: &'static str,
        x: &Value,
        attrs: impl serde::Serialize,
        slope: f64,
        (lo, hi): (f64, f64),
    ) -> Option<Value> {
        let known = Known { lo, hi, ..x.known };
        let error = x.known.error * slope + APPROXIMATION * known.bound().max(1.0);
        self.emit(op, &[x], attrs, known.rounded(error))
    }

    /// What is common in networks and needs no approximation.
    fn rectifier(&mut self, x: &Value) -> Option<Value> {
        let Known { lo, hi, .. } = x.known;
        match self.choices.below(4) {
            0 | 1 => {
                let known = Known { lo: lo.max(0.0), hi: hi.max(0.0), ..x.known };
                self.emit("nn.relu", &[x], (), known)
            }
            2 => {
                let (min, max) = self.choices.of(&[
                    (Some(0.0), Some(6.0)),
                    (Some(-1.0), Some(1.0)),
                    (Some(-0.5), None),
                    (None, Some(1.5)),
                ]);
                let clamped = |v: f64| v.max(min.unwrap_or(v)).min(max.unwrap_or(f64::INFINITY));
                let known = Known {
                    lo: clamped(lo),
                    hi: clamped(hi),
                    step: x.known.step.map(|step| step.min(-1)),
                    ..x.known
                };
                self.emit("clip", &[x], ClipAttrs { min, max }, known)
            }
            _ => {
                let slope = self.broadcasting(&x.shape.clone());
                let slope = self.constant(x.dtype, &slope, Known::exact(-0.5, 0.5, -2));
                let product = x.known.sum_of_products(slope.known, 1.0);
                self.emit("nn.prelu", &[x, &slope], (), x.known.union(product))
            }
        }
    }

    fn parametric(&mut self, x: &Value) -> Option<Value> {
        let Known { lo, hi, .. } = x.known;
        let alpha = self.choices.of(&[0.1, 0.5, 1.0]);
        match self.choices.below(7) {
            0 => {
                let range = (lo.min(alpha * lo), hi.max(0.0));
                self.approximated("nn.leaky_relu", x, LeakyReluAttrs { alpha }, 1.0, range)
            }
            1 => {
                let range = (-alpha, hi.max(0.0));
                self.approximated("nn.elu", x, EluAttrs { alpha }, 1.0, range)
            }
            2 => {
                let range = (-alpha, hi.max(0.0));
                self.approximated("nn.celu", x, CeluAttrs { alpha }, 1.0, range)
            }
            3 => {
                let attrs = SeluAttrs { alpha: 1.67326, gamma: 1.0507 };
                self.approximated("nn.selu", x, attrs, 1.76, (-1.76, 1.06 * hi.max(0.0)))
            }
            4 => {
                let attrs = HardsigmoidAttrs { alpha: 0.2, beta: alpha };
                self.approximated("nn.hardsigmoid", x, attrs, 0.2, (0.0, 1.0))
            }
            5 => {
                let approximate =
                    self.choices.of(&[GeluApproximation::None, GeluApproximation::Tanh]);
                let range = (-0.2, hi.max(0.0));
                self.approximated("nn.gelu", x, GeluAttrs { approximate }, 1.2, range)
            }
            _ if x.is_exact() => {
                let known = Known { lo: lo.min(0.0), hi: hi.max(0.0), ..x.known };
                self.emit("nn.thresholded_relu", &[x], ThresholdedReluAttrs { alpha: 0.5 }, known)
            }
            _ => None,
        }
    }

    /// Functions that need no rounding, some of which jump.
    pub(super) fn exact_unary(&mut self) -> Option<Value> {
        let x = self.pick(|value| value.is_exact() && value.dtype != DType::Bool)?;
        let known = x.known;
        let wrapped = |known: Known| match x.is_float() {
            true => known,
            false => Known::wrapping(x.dtype, known.lo, known.hi),
        };
        let (whole_lo, whole_hi) = (known.lo.floor(), known.hi.ceil());
        match self.choices.below(if x.is_float() { 8 } else { 3 }) {
            0 => {
                let negative = Known { lo: -known.hi, hi: -known.lo, ..known };
                self.emit("negative", &[&x], (), wrapped(negative))
            }
            1 => {
                let positive = Known { lo: 0.0, hi: known.bound(), ..known };
                self.emit("abs", &[&x], (), wrapped(positive))
            }
            2 => self.emit("sign", &[&x], (), Known::exact(-1.0, 1.0, 0)),
            3 => self.emit("floor", &[&x], (), Known::exact(whole_lo, whole_hi, 0)),
            4 => self.emit("ceil", &[&x], (), Known::exact(whole_lo, whole_hi, 0)),
            5 => self.emit("round", &[&x], (), Known::exact(whole_lo, whole_hi, 0)),
            6 => self.emit("isnan", &[&x], (), Known::any(DType::Bool)),
            _ => self.emit("isinf", &[&x], (), Known::any(DType::Bool)),
        }
    }

    /// Sums, products and the like of two tensors.
    pub(super) fn arithmetic(&mut self) -> Option<Value> {
        let a = self.float()?;
        let b = match self.choices.below(3) {
            // Residual connections.
            0 => self.pick(|value| value.dtype == a.dtype && value.shape == a.shape)?,
            _ => {
                let shape = self.broadcasting(&a.shape.clone());
                self.same_type(a.dtype, &shape)
            }
        };
        let (x, y) = (a.known, b.known);
        let step = x.step.zip(y.step).map(|(a, b)| a.min(b));
        let taps = x.taps.max(y.taps);
        match self.choices.below(8) {
            0 | 1 => {
                let mut sum = Known { lo: x.lo + y.lo, hi: x.hi + y.hi, step, error: 0.0, taps };
                sum.error = x.error + y.error + sum.bound();
                self.emit("add", &[&a, &b], (), sum)
            }
            2 => {
                let mut sum = Known { lo: x.lo - y.hi, hi: x.hi - y.lo, step, error: 0.0, taps };
                sum.error = x.error + y.error + sum.bound();
                self.emit("subtract", &[&a, &b], (), sum)
            }
            3 | 4 => {
                let mut product = x.sum_of_products(y, 1.0);
                product.error += taps * product.bound();
                self.emit("multiply", &[&a, &b], (), product)
            }
            5 => {
                let known = Known { lo: x.lo.max(y.lo), hi: x.hi.max(y.hi), ..x.union(y) };
                self.emit("maximum", &[&a, &b], (), known)
            }
            6 => {
                let known = Known { lo: x.lo.min(y.lo), hi: x.hi.min(y.hi), ..x.union(y) };
                self.emit("minimum", &[&a, &b], (), known)
            }
            _ => self.quotient(&a, &b),
        }
    }

    fn quotient(&mut self, a: &Value, b: &Value) -> Option<Value> {
        match self.choices.below(3) {
            0 => {
                let b = self.at_least(b, 0.5)?;
                let (x, y) = (a.known, b.known);
                let bound = x.bound() / y.lo;
                let error = x.error / y.lo + x.bound() * y.error / (y.lo * y.lo);
                let known = Known { lo: -bound, hi: bound, ..x };
                let known = known.rounded(error + (1.0 + x.taps) * bound);
                self.emit("divide", &[a, &b], (), known)
            }
            1 => {
                let a = self.within(a, 3.0)?;
                let a = self.at_least(&a, 0.5)?;
                let power = self.choices.of(&[2.0, 0.5, -1.0, 3.0, -0.5, 1.0]);
                let exponent = self.scalar(a.dtype, power);
                let ends = [a.known.lo.powf(power), a.known.hi.powf(power)];
                let bound = ends[0].max(ends[1]);
                // The slope is the power times the value over the argument.
                let slope = power.abs() * bound / a.known.lo;
                let known = Known { lo: ends[0].min(ends[1]), hi: bound, ..a.known };
                let error = slope * a.known.error + 2.0 * APPROXIMATION * bound;
                self.emit("power", &[&a, &exponent], (), known.rounded(error))
            }
            _ if a.is_exact() => {
                let divisor = self.choices.of(&[1.0, 0.75, 2.5]);
                let op = self.choices.of(&["mod", "floor_mod"]);
                let divisor = self.scalar(a.dtype, divisor);
                let step = a.known.step.map(|step| step.min(-2));
                let known = Known { lo: -2.5, hi: 2.5, step, ..a.known };
                self.emit(op, &[a, &divisor], (), known)
            }
            _ => None,
        }
    }

    /// Comparisons, what is done with their results, and choices by them.
    pub(super) fn comparison(&mut self) -> Option<Value> {
        match self.choices.below(4) {
            0 | 1 => {
                let a = self.pick(|value| value.is_exact() && value.dtype != DType::Bool)?;
                let b = self.broadcasting(&a.shape.clone());
                let b = self.same_type(a.dtype, &b);
                let ops = ["less", "equal", "greater", "not_equal", "less_equal", "greater_equal"];
                let op = self.choices.of(&ops);
                if !b.is_exact() {
                    return None;
                }
                self.emit(op, &[&a, &b], (), Known::any(DType::Bool))
            }
            2 => {
                let a = self.pick_or_input(DType::Bool, |value| value.dtype == DType::Bool);
                let shape = self.broadcasting(&a.shape.clone());
                let b = self.same_type(DType::Bool, &shape);
                let known = Known::any(DType::Bool);
                match self.choices.of(&["logical_and", "logical_or", "logical_xor", "not"]) {
                    "not" => self.emit("logical_not", &[&a], (), known),
                    op => self.emit(op, &[&a, &b], (), known),
                }
            }
            _ => {
                let x = self.pick(|value| value.dtype != DType::Bool)?;
                let other = self.broadcasting(&x.shape.clone());
                let other = self.same_type(x.dtype, &other);
                let condition = self.broadcasting(&x.shape.clone());
                let condition = self.same_type(DType::Bool, &condition);
                let known = x.known.union(other.known);
                self.emit("where", &[&condition, &x, &other], (), known)
            }
        }
    }

    fn cast(&mut self, x: &Value, dtype: DType) -> Option<Value> {
        let known = match dtype {
            DType::Bool => Known::any(dtype),
            dtype if dtype.is_float() => {
                Known { error: x.known.error + x.known.bound(), ..x.known }
            }
            dtype if x.is_float() => {
                let any = Known::any(dtype);
                let (lo, hi) = (x.known.lo.floor(), x.known.hi.ceil());
                Known::exact(lo.clamp(any.lo, any.hi), hi.clamp(any.lo, any.hi), 0)
            }
            dtype => Known::wrapping(dtype, x.known.lo, x.known.hi),
        };
        self.emit("cast", &[x], CastAttrs::to(dtype), known)
    }

    /// A cast from any type to any type.
    pub(super) fn conversion(&mut self) -> Option<Value> {
        let dtype = self.choices.of(self.dtypes);
        let x = self.pick(|value| value.is_exact() || dtype.is_float())?;
        // A value rounded to the narrower type is off by many roundings of the wider one.
        let wider = x.is_float() && dtype.is_float() && dtype.bits() > x.dtype.bits();
        if wider && !x.is_exact() {
            return None;
        }
        if !x.is_float() && dtype.is_float() && x.known.bound() > 256.0 {
            return None;
        }
        self.cast(&x, dtype)
    }
}
