//! Intervals of integers, and interval arithmetic over expressions.

use std::fmt;

use super::expr::{Atom, IntExpr, Term, View};
use super::symbol::Symbol;

/// The integers from `lower` to `upper`, both included; an absent bound is unknown.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Interval {
    /// No value is less than this.
    pub lower: Option<i64>,
    /// No value is greater than this.
    pub upper: Option<i64>,
}

impl Interval {
    /// All integers.
    pub const ALL: Interval = Interval { lower: None, upper: None };
    /// What the size of a dimension can be.
    pub const NON_NEGATIVE: Interval = Interval::at_least(0);

    /// The integers from `lower` to `upper`, both included.
    pub const fn new(lower: i64, upper: i64) -> Interval {
        Interval { lower: Some(lower), upper: Some(upper) }
    }

    /// One integer.
    pub const fn point(value: i64) -> Interval {
        Interval::new(value, value)
    }

    /// The integers from `lower` on.
    pub const fn at_least(lower: i64) -> Interval {
        Interval { lower: Some(lower), upper: None }
    }

    /// The integers up to `upper`.
    pub const fn at_most(upper: i64) -> Interval {
        Interval { lower: None, upper: Some(upper) }
    }

    /// Whether the value is in the interval.
    pub fn contains(&self, value: i64) -> bool {
        self.lower.is_none_or(|lower| lower <= value)
            && self.upper.is_none_or(|upper| value <= upper)
    }

    /// The only value, if there is one and no other.
    pub fn as_point(&self) -> Option<i64> {
        self.lower.filter(|_| self.lower == self.upper)
    }

    /// What both intervals contain, or `None` if that is nothing.
    pub fn intersect(&self, other: &Interval) -> Option<Interval> {
        let range = Range::from(*self).intersect(Range::from(*other));
        (!range.is_empty()).then(|| range.into())
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lower {
            Some(lower) => write!(f, "[{lower}, ")?,
            None => f.write_str("(-inf, ")?,
        }
        match self.upper {
            Some(upper) => write!(f, "{upper}]"),
            None => f.write_str("inf)"),
        }
    }
}

/// An interval while it is computed with: wide enough for any product of two `i64`.
///
/// A bound that leaves `i128` becomes unknown, which is always sound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Range {
    pub(super) lower: Option<i128>,
    pub(super) upper: Option<i128>,
}

impl From<Interval> for Range {
    fn from(interval: Interval) -> Range {
        Range { lower: interval.lower.map(i128::from), upper: interval.upper.map(i128::from) }
    }
}

impl From<Range> for Interval {
    fn from(range: Range) -> Interval {
        let narrow = |bound: Option<i128>| bound.and_then(|it| i64::try_from(it).ok());
        Interval { lower: narrow(range.lower), upper: narrow(range.upper) }
    }
}

/// One end of a range while corners are multiplied or divided.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    NegInf,
    Finite(i128),
    PosInf,
}

impl End {
    fn signum(self) -> i128 {
        match self {
            End::NegInf => -1,
            End::Finite(value) => value.signum(),
            End::PosInf => 1,
        }
    }

    fn infinite(sign: i128) -> End {
        if sign < 0 { End::NegInf } else { End::PosInf }
    }

    fn mul(self, other: End) -> End {
        let sign = self.signum() * other.signum();
        if sign == 0 {
            return End::Finite(0);
        }
        match (self, other) {
            (End::Finite(a), End::Finite(b)) => {
                a.checked_mul(b).map_or(End::infinite(sign), End::Finite)
            }
            _ => End::infinite(sign),
        }
    }

    /// Floor of the quotient by a positive divisor.
    fn floor_div(self, divisor: End) -> End {
        match (self, divisor) {
            (End::Finite(a), End::Finite(b)) => End::Finite(a.div_euclid(b.max(1))),
            (End::Finite(a), _) => End::Finite(if a < 0 { -1 } else { 0 }),
            (infinite, _) => infinite,
        }
    }

    fn finite(self) -> Option<i128> {
        match self {
            End::Finite(value) => Some(value),
            End::NegInf | End::PosInf => None,
        }
    }
}

impl Range {
    pub(super) const ALL: Range = Range { lower: None, upper: None };

    pub(super) fn point(value: impl Into<i128>) -> Range {
        let value = value.into();
        Range { lower: Some(value), upper: Some(value) }
    }

    fn ends(self) -> (End, End) {
        (self.lower.map_or(End::NegInf, End::Finite), self.upper.map_or(End::PosInf, End::Finite))
    }

    /// The smallest range that contains these ends.
    fn hull(corners: &[End]) -> Range {
        Range {
            lower: corners.iter().min().and_then(|end| end.finite()),
            upper: corners.iter().max().and_then(|end| end.finite()),
        }
    }

    pub(super) fn is_empty(self) -> bool {
        matches!((self.lower, self.upper), (Some(lower), Some(upper)) if lower > upper)
    }

    pub(super) fn contains(self, value: i128) -> bool {
        self.lower.is_none_or(|lower| lower <= value)
            && self.upper.is_none_or(|upper| value <= upper)
    }

    pub(super) fn is_positive(self) -> bool {
        self.lower.is_some_and(|lower| lower >= 1)
    }

    pub(super) fn is_non_negative(self) -> bool {
        self.lower.is_some_and(|lower| lower >= 0)
    }

    pub(super) fn is_negative(self) -> bool {
        self.upper.is_some_and(|upper| upper <= -1)
    }

    pub(super) fn intersect(self, other: Range) -> Range {
        Range {
            lower: self.lower.max(other.lower),
            upper: match (self.upper, other.upper) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            },
        }
    }

    pub(super) fn add(self, other: Range) -> Range {
        let add = |a: Option<i128>, b: Option<i128>| a?.checked_add(b?);
        Range { lower: add(self.lower, other.lower), upper: add(self.upper, other.upper) }
    }

    pub(super) fn neg(self) -> Range {
        let neg = |a: Option<i128>| a?.checked_neg();
        Range { lower: neg(self.upper), upper: neg(self.lower) }
    }

    pub(super) fn mul(self, other: Range) -> Range {
        let ((a, b), (c, d)) = (self.ends(), other.ends());
        Range::hull(&[a.mul(c), a.mul(d), b.mul(c), b.mul(d)])
    }

    fn power(self, exponent: u32) -> Range {
        let mut range = self;
        for _ in 1..exponent {
            range = range.mul(self);
        }
        // An even power is never negative, which corners alone do not see.
        if exponent.is_multiple_of(2) && !range.is_non_negative() {
            range.lower = Some(0);
        }
        range
    }

    /// The quotients, rounded down, for all divisors in `divisor` but zero.
    pub(super) fn floor_div(self, divisor: Range) -> Range {
        if divisor.is_negative() {
            return self.neg().floor_div(divisor.neg());
        }
        if !divisor.is_positive() {
            // No divisor makes a quotient greater in magnitude than the dividend.
            let magnitude = |bound: Option<i128>| bound?.checked_abs();
            let bound = magnitude(self.lower).zip(magnitude(self.upper)).map(|(a, b)| a.max(b));
            return Range { lower: bound.map(|it| -it), upper: bound };
        }
        let ((a, b), (c, d)) = (self.ends(), divisor.ends());
        Range::hull(&[a.floor_div(c), a.floor_div(d), b.floor_div(c), b.floor_div(d)])
    }

    /// The remainders of [`Range::floor_div`].
    pub(super) fn modulo(self, divisor: Range) -> Range {
        if divisor.is_negative() {
            return self.neg().modulo(divisor.neg()).neg();
        }
        let largest = divisor.upper.map(|upper| (upper - 1).max(0));
        if divisor.is_positive() {
            if self.is_non_negative() && self.upper < divisor.lower && self.upper.is_some() {
                return self;
            }
            let range = Range { lower: Some(0), upper: largest };
            let dividend = Range { lower: None, upper: self.upper };
            return if self.is_non_negative() { range.intersect(dividend) } else { range };
        }
        let smallest = divisor.lower.and_then(|lower| lower.checked_add(1)).map(|it| it.min(0));
        Range { lower: smallest, upper: largest }
    }

    /// The integers `x` for which `factor * x` is in the range; the factor is not zero.
    pub(super) fn divide_inwards(self, factor: i64) -> Range {
        let factor = i128::from(factor);
        if factor < 0 {
            return self.neg().divide(-factor);
        }
        self.divide(factor)
    }

    fn divide(self, factor: i128) -> Range {
        let factor = factor.max(1);
        let up = |bound: i128| bound.div_euclid(factor) + i128::from(bound.rem_euclid(factor) != 0);
        Range { lower: self.lower.map(up), upper: self.upper.map(|upper| upper.div_euclid(factor)) }
    }

    fn extremum(self, other: Range, pick: fn(End, End) -> End) -> Range {
        let ((a, b), (c, d)) = (self.ends(), other.ends());
        Range { lower: pick(a, c).finite(), upper: pick(b, d).finite() }
    }
}

/// What `expr` can be, operation by operation, where each symbol is within `bounds`.
pub(super) fn range_of(expr: &IntExpr, bounds: &dyn Fn(&Symbol) -> Range) -> Range {
    match expr.view() {
        View::Const(value) => Range::point(value),
        View::Poison(_) => Range::ALL,
        View::Poly(poly) => poly
            .terms()
            .iter()
            .map(|term| range_of_term(term, bounds))
            .fold(Range::point(poly.constant()), Range::add),
    }
}

/// What one term can be, its coefficient included.
fn range_of_term(term: &Term, bounds: &dyn Fn(&Symbol) -> Range) -> Range {
    term.factors()
        .iter()
        .map(|factor| range_of_atom(&factor.atom, bounds).power(factor.power))
        .fold(Range::point(term.coefficient()), Range::mul)
}

fn range_of_atom(atom: &Atom, bounds: &dyn Fn(&Symbol) -> Range) -> Range {
    let extremum = |operands: &[IntExpr], pick: fn(End, End) -> End| {
        operands
            .iter()
            .map(|operand| range_of(operand, bounds))
            .reduce(|a, b| a.extremum(b, pick))
            .unwrap_or(Range::ALL)
    };
    match atom {
        Atom::Symbol(symbol) => bounds(symbol),
        Atom::FloorDiv(a, b) => range_of(a, bounds).floor_div(range_of(b, bounds)),
        Atom::Mod(a, b) => range_of(a, bounds).modulo(range_of(b, bounds)),
        Atom::Min(operands) => extremum(operands, Ord::min),
        Atom::Max(operands) => extremum(operands, Ord::max),
    }
}
