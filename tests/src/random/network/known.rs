//! Knowledge about the elements of a tensor: their range, and their error.
//!
//! A network is compared with its interpretation, in which every operator rounds once. If a value
//! is rounded elsewhere, `floor` or `argmax` may yield something else altogether. So the generator
//! has to know which values are the same in every correct implementation: those whose elements are
//! small multiples of a power of two, so that sums and products of them need no rounding in any
//! order. For other values it knows how many roundings add up.

use niello::ir::DType;

/// The range and the error of a tensor's elements.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Known {
    /// No element is less.
    pub lo: f64,
    /// No element is greater.
    pub hi: f64,
    /// Every element is a multiple of two to this power; `None` if they have been rounded.
    pub step: Option<i32>,
    /// The number of roundings of a value of magnitude one that may add up in an element.
    pub error: f64,
    /// Terms of the longest sum on the way here. A pass may move a factor into it, so that every
    /// term is rounded.
    pub taps: f64,
}

/// Bits of the significand of a floating-point type, the hidden one included.
fn precision(dtype: DType) -> i32 {
    match dtype {
        DType::F16 => 11,
        DType::BF16 => 8,
        DType::F32 => 24,
        _ => 53,
    }
}

impl Known {
    /// Elements that need no rounding.
    pub fn exact(lo: f64, hi: f64, step: i32) -> Known {
        Known { lo, hi, step: Some(step), error: 0.0, taps: 1.0 }
    }

    /// Any value of an integer or boolean type.
    pub fn any(dtype: DType) -> Known {
        let (lo, hi) = dtype.int_range().unwrap_or((0, 1));
        Known::exact(lo as f64, hi as f64, 0)
    }

    /// Integers in a range if the type has room for it; those that wrap may be anything.
    pub fn wrapping(dtype: DType, lo: f64, hi: f64) -> Known {
        let any = Known::any(dtype);
        if lo >= any.lo && hi <= any.hi { Known::exact(lo, hi, 0) } else { any }
    }

    /// The greatest magnitude.
    pub fn bound(self) -> f64 {
        self.lo.abs().max(self.hi.abs())
    }

    /// Whether every correct implementation computes the same elements.
    pub fn is_exact(self) -> bool {
        self.step.is_some()
    }

    /// The same range of elements that have been rounded, with this error.
    pub fn rounded(self, error: f64) -> Known {
        Known { step: None, error, ..self }
    }

    /// Keeps the step if the type can represent all its multiples in the range; otherwise the
    /// elements are rounded, and have the error given for this case.
    pub fn settle(mut self, dtype: DType) -> Known {
        if !dtype.is_float() {
            return Known { error: 0.0, ..self };
        }
        let fits = |step: i32| self.bound() <= f64::from(precision(dtype) - 1 + step).exp2();
        self.step = self.step.filter(|&step| fits(step));
        if self.step.is_some() {
            self.error = 0.0;
        }
        self
    }

    /// The range and error of the elements of both tensors.
    pub fn union(self, other: Known) -> Known {
        Known {
            lo: self.lo.min(other.lo),
            hi: self.hi.max(other.hi),
            step: self.step.zip(other.step).map(|(a, b)| a.min(b)),
            error: self.error.max(other.error),
            taps: self.taps.max(other.taps),
        }
    }

    /// The sum of `count` elements, each multiplied by one of `factor`.
    pub fn sum_of_products(self, factor: Known, count: f64) -> Known {
        let corners =
            [self.lo * factor.lo, self.lo * factor.hi, self.hi * factor.lo, self.hi * factor.hi];
        let lo = corners.into_iter().fold(f64::INFINITY, f64::min) * count;
        let hi = corners.into_iter().fold(f64::NEG_INFINITY, f64::max) * count;
        let own = count * self.bound() * factor.bound() * count.min(64.0);
        let carried = count * (self.error * factor.bound() + factor.error * self.bound());
        Known {
            // Padding adds zeros.
            lo: if count > 1.0 { lo.min(0.0) } else { lo },
            hi: if count > 1.0 { hi.max(0.0) } else { hi },
            step: self.step.zip(factor.step).map(|(a, b)| a + b),
            error: own + carried,
            taps: self.taps.max(factor.taps).max(count),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_multiples_of_a_power_of_two_stay_exact_until_they_are_too_long() {
        let quarters = Known::exact(-2.0, 2.0, -2);
        let products = quarters.sum_of_products(quarters, 9.0).settle(DType::F32);
        assert_eq!((products.lo, products.hi, products.step), (-36.0, 36.0, Some(-4)));
        assert_eq!(products.error, 0.0);
        // 36 in sixteenths takes ten bits.
        let narrow = quarters.sum_of_products(quarters, 9.0).settle(DType::BF16);
        assert!(!narrow.is_exact() && narrow.error >= 36.0);
        let fine = Known::exact(-2.0, 2.0, -20);
        assert!(fine.settle(DType::F32).is_exact());
        assert!(!fine.sum_of_products(fine, 1.0).settle(DType::F32).is_exact());
        assert!(fine.sum_of_products(fine, 1.0).settle(DType::F64).is_exact());
    }

    #[test]
    fn integers_that_may_wrap_may_be_anything() {
        assert_eq!(Known::wrapping(DType::I8, -100.0, 127.0).hi, 127.0);
        assert_eq!(Known::wrapping(DType::I8, -100.0, 128.0).lo, -128.0);
        assert_eq!(Known::any(DType::Bool).hi, 1.0);
    }
}
