//! Intervals and congruences of linear forms.

use crate::arith::Modular;
use crate::ir::DType;

use super::Analyzer;
use super::linear::{Atom, AtomId, Linear};

/// Least and greatest value. As wide as it takes for sums and products of `int64`; beyond, it
/// saturates.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Range {
    pub(crate) min: i128,
    pub(crate) max: i128,
}

impl Range {
    /// Every `int64`.
    pub(crate) const ALL: Range = Range { min: i64::MIN as i128, max: i64::MAX as i128 };

    pub(crate) fn new(min: i64, max: i64) -> Self {
        Range { min: min.into(), max: max.into() }
    }

    pub(crate) fn point(value: i64) -> Self {
        Range::new(value, value)
    }

    /// The values of an integer type or `Bool`; every `int64` for another.
    pub(super) fn of_dtype(dtype: DType) -> Self {
        if dtype == DType::Bool {
            return Range::new(0, 1);
        }
        dtype.int_range().map_or(Range::ALL, |(min, max)| Range { min, max })
    }

    pub(crate) fn as_point(self) -> Option<i64> {
        (self.min == self.max).then(|| i64::try_from(self.min).ok()).flatten()
    }

    pub(crate) fn is_empty(self) -> bool {
        self.min > self.max
    }

    pub(super) fn within(self, outer: Range) -> bool {
        outer.min <= self.min && self.max <= outer.max
    }

    pub(super) fn intersect(self, other: Range) -> Self {
        Range { min: self.min.max(other.min), max: self.max.min(other.max) }
    }

    pub(super) fn union(self, other: Range) -> Self {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    pub(super) fn add(self, other: Range) -> Self {
        Range { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    pub(super) fn scale(self, factor: i64) -> Self {
        let factor = i128::from(factor);
        let (a, b) = (self.min.saturating_mul(factor), self.max.saturating_mul(factor));
        Range { min: a.min(b), max: a.max(b) }
    }

    fn mul(self, other: Range) -> Self {
        let corners = [
            self.min.saturating_mul(other.min),
            self.min.saturating_mul(other.max),
            self.max.saturating_mul(other.min),
            self.max.saturating_mul(other.max),
        ];
        let bound = |best: fn(i128, i128) -> i128| corners.into_iter().reduce(best).unwrap_or(0);
        Range { min: bound(i128::min), max: bound(i128::max) }
    }

    /// The quotients, rounded down, by a positive divisor.
    pub(super) fn floor_div(self, divisor: i64) -> Self {
        let divisor = i128::from(divisor.max(1));
        Range { min: self.min.div_euclid(divisor), max: self.max.div_euclid(divisor) }
    }

    /// The quotient, if it is the same for all values.
    pub(super) fn block(self, divisor: i64) -> Option<i64> {
        self.floor_div(divisor).as_point()
    }

    fn floor_mod(self, divisor: i64) -> Self {
        let divisor = i128::from(divisor.max(1));
        let whole = self.min.div_euclid(divisor);
        if whole == self.max.div_euclid(divisor) {
            let start = whole.saturating_mul(divisor);
            return Range { min: self.min - start, max: self.max - start };
        }
        Range { min: 0, max: divisor - 1 }
    }

    fn min(self, other: Range) -> Self {
        Range { min: self.min.min(other.min), max: self.max.min(other.max) }
    }

    fn max(self, other: Range) -> Self {
        Range { min: self.min.max(other.min), max: self.max.max(other.max) }
    }

    /// The bounds, saturated to `int64`.
    pub(super) fn clamped(self) -> (i64, i64) {
        let clamp = |bound: i128| bound.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        (clamp(self.min), clamp(self.max))
    }
}

impl Analyzer {
    /// The range of the value, given the ranges of the atoms.
    pub(super) fn range(&self, linear: &Linear) -> Range {
        linear.terms.iter().fold(Range::point(linear.constant), |range, (atom, factor)| {
            range.add(self.atom_range(*atom).scale(*factor))
        })
    }

    pub(super) fn atom_range(&self, atom: AtomId) -> Range {
        let by_form = match self.atom(atom) {
            Atom::Var(_) => Range::ALL,
            Atom::Digit { of, lower, upper } => {
                let range = self.range(of);
                upper.map_or(range, |upper| range.floor_mod(upper)).floor_div(*lower)
            }
            Atom::Min(a, b) => self.range(a).min(self.range(b)),
            Atom::Max(a, b) => self.range(a).max(self.range(b)),
            Atom::Product(atoms) => {
                atoms.iter().map(|atom| self.atom_range(*atom)).fold(Range::point(1), Range::mul)
            }
            Atom::Select { cond: _, then, otherwise } => {
                self.range(then).union(self.range(otherwise))
            }
            Atom::Widen(value) => {
                let (range, all) = (self.range(value), Range::of_dtype(DType::I32));
                if range.within(all) { range } else { all }
            }
            Atom::Opaque { range, .. } => *range,
        };
        match &self.known[atom] {
            Some(known) => by_form.intersect(known.range),
            None => by_form,
        }
    }

    /// The congruence of the value.
    pub(super) fn modular(&self, linear: &Linear) -> Modular {
        linear.terms.iter().fold(Modular::point(linear.constant), |sum, (atom, factor)| {
            sum.add(self.atom_modular(*atom).mul(Modular::point(*factor)))
        })
    }

    pub(super) fn atom_modular(&self, atom: AtomId) -> Modular {
        let by_form = match self.atom(atom) {
            Atom::Var(_) | Atom::Opaque { .. } => Modular::ALL,
            Atom::Digit { of, lower, upper } => {
                let of = self.modular(of);
                upper.map_or(of, |upper| of.modulo(upper)).floor_div(*lower)
            }
            Atom::Min(a, b) | Atom::Max(a, b) | Atom::Select { cond: _, then: a, otherwise: b } => {
                self.modular(a).union(self.modular(b))
            }
            Atom::Product(atoms) => atoms
                .iter()
                .map(|atom| self.atom_modular(*atom))
                .fold(Modular::point(1), Modular::mul),
            Atom::Widen(value) => self.modular(value),
        };
        match &self.known[atom] {
            Some(known) => by_form.intersect(known.modular).unwrap_or(by_form),
            None => by_form,
        }
    }

    /// Whether arithmetic gives the number of the form, without wrapping.
    ///
    /// Indices of `int64` are assumed not to overflow, because no tensor with such indices fits
    /// memory; for data, and for `int32`, it must be proved.
    pub(super) fn is_exact(&self, linear: &Linear, dtype: DType) -> bool {
        let is_index = || linear.terms.iter().all(|(atom, _)| self.is_index(*atom));
        (dtype == DType::I64 && is_index()) || self.range(linear).within(Range::of_dtype(dtype))
    }

    /// Whether a form contains an atom of `int32`.
    pub(super) fn is_narrow(&self, linear: &Linear) -> bool {
        linear.terms.iter().any(|(atom, _)| self.is_narrow_atom(*atom))
    }

    fn is_narrow_atom(&self, atom: AtomId) -> bool {
        match self.atom(atom) {
            Atom::Var(_) => self.known[atom].as_ref().is_some_and(|known| known.narrow),
            Atom::Digit { of: value, .. } => self.is_narrow(value),
            Atom::Min(a, b) | Atom::Max(a, b) | Atom::Select { cond: _, then: a, otherwise: b } => {
                self.is_narrow(a) || self.is_narrow(b)
            }
            Atom::Product(atoms) => atoms.iter().any(|atom| self.is_narrow_atom(*atom)),
            Atom::Widen(_) => false,
            Atom::Opaque { expr, .. } => expr.dtype() == DType::I32,
        }
    }

    /// Whether an atom is made of indices alone.
    pub(super) fn is_index(&self, atom: AtomId) -> bool {
        let all = |linear: &Linear| linear.terms.iter().all(|(atom, _)| self.is_index(*atom));
        match self.atom(atom) {
            Atom::Var(_) => self.known[atom].as_ref().is_some_and(|known| known.index),
            Atom::Digit { of: value, .. } | Atom::Widen(value) => all(value),
            Atom::Min(a, b) | Atom::Max(a, b) | Atom::Select { cond: _, then: a, otherwise: b } => {
                all(a) && all(b)
            }
            Atom::Product(atoms) => atoms.iter().all(|atom| self.is_index(*atom)),
            Atom::Opaque { .. } => false,
        }
    }

    /// Whether the value stays the same while statements run.
    pub(super) fn is_stable(&self, linear: &Linear) -> bool {
        linear.terms.iter().all(|(atom, _)| match self.atom(*atom) {
            Atom::Var(_) => true,
            Atom::Digit { of: value, .. } | Atom::Widen(value) => self.is_stable(value),
            Atom::Min(a, b) | Atom::Max(a, b) => self.is_stable(a) && self.is_stable(b),
            Atom::Select { cond, then, otherwise } => {
                !reads_memory(cond) && self.is_stable(then) && self.is_stable(otherwise)
            }
            Atom::Product(atoms) => atoms.iter().all(|atom| self.is_stable(&Linear::atom(*atom))),
            Atom::Opaque { loads, .. } => !loads,
        })
    }
}

/// Whether an expression loads from a buffer.
pub(super) fn reads_memory(expr: &crate::tir::PrimExpr) -> bool {
    expr.any(&mut |node| matches!(node, crate::tir::PrimExpr::Load { .. }))
}
