//! Linear forms: sums of atoms with constant factors.

use cranelift_entity::entity_impl;

use crate::tir::{PrimExpr, VarId};

use super::range::Range;

/// An atom, by its position in the analyser's table.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct AtomId(u32);
entity_impl!(AtomId, "a");

/// A term of a linear form, apart from its factor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Atom {
    /// A variable.
    Var(VarId),
    /// `(of floormod upper) floordiv lower`, or `of floordiv lower` without `upper`: a digit of
    /// `of`. `lower` is positive and divides `upper`, which is greater; not both are missing.
    Digit {
        of: Linear,
        lower: i64,
        upper: Option<i64>,
    },
    Min(Linear, Linear),
    Max(Linear, Linear),
    /// The product of two atoms or more, none of them a product, in order.
    Product(Vec<AtomId>),
    /// One of two values; the condition is simplified.
    Select {
        cond: PrimExpr,
        then: Linear,
        otherwise: Linear,
    },
    /// An `int32` as an `int64`.
    Widen(Linear),
    /// Anything else, simplified.
    Opaque {
        expr: PrimExpr,
        /// The range of its value, for all values of the variables.
        range: Range,
        /// Whether it reads memory, so that its value may change.
        loads: bool,
    },
}

/// `Σ factor · atom + constant`.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Linear {
    /// Sorted by atom; no factor is zero, and no atom occurs twice.
    pub(super) terms: Vec<(AtomId, i64)>,
    pub(super) constant: i64,
}

impl Linear {
    pub(super) fn constant(constant: i64) -> Self {
        Linear { terms: Vec::new(), constant }
    }

    pub(super) fn atom(atom: AtomId) -> Self {
        Linear { terms: vec![(atom, 1)], constant: 0 }
    }

    pub(super) fn as_const(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The atom, if the form consists of one atom alone.
    pub(super) fn as_atom(&self) -> Option<AtomId> {
        match self.terms[..] {
            [(atom, 1)] if self.constant == 0 => Some(atom),
            _ => None,
        }
    }

    pub(super) fn factor_of(&self, atom: AtomId) -> i64 {
        let found = self.terms.binary_search_by_key(&atom, |term| term.0);
        found.map_or(0, |index| self.terms[index].1)
    }

    /// Adds `factor * atom`, or fails if a factor overflows.
    pub(super) fn add_term(&mut self, atom: AtomId, factor: i64) -> Option<()> {
        match self.terms.binary_search_by_key(&atom, |term| term.0) {
            Ok(index) => {
                let sum = self.terms[index].1.checked_add(factor)?;
                if sum == 0 {
                    self.terms.remove(index);
                } else {
                    self.terms[index].1 = sum;
                }
            }
            Err(_) if factor == 0 => {}
            Err(index) => self.terms.insert(index, (atom, factor)),
        }
        Some(())
    }

    /// Adds `factor * other`, or fails if a factor overflows.
    pub(super) fn add(&mut self, other: &Linear, factor: i64) -> Option<()> {
        for (atom, weight) in &other.terms {
            self.add_term(*atom, weight.checked_mul(factor)?)?;
        }
        self.add_constant(other.constant.checked_mul(factor)?)
    }

    pub(super) fn add_constant(&mut self, constant: i64) -> Option<()> {
        self.constant = self.constant.checked_add(constant)?;
        Some(())
    }

    /// `self + factor * other`.
    pub(super) fn plus(&self, other: &Linear, factor: i64) -> Option<Linear> {
        let mut sum = self.clone();
        sum.add(other, factor)?;
        Some(sum)
    }

    /// `factor * self + constant`.
    pub(super) fn scaled(&self, factor: i64, constant: i64) -> Option<Linear> {
        let mut scaled = Linear::constant(constant);
        if factor != 0 {
            scaled.add(self, factor)?;
        }
        Some(scaled)
    }

    /// The sum without one of its atoms.
    pub(super) fn without(&self, atom: AtomId) -> Linear {
        let mut rest = self.clone();
        rest.terms.retain(|term| term.0 != atom);
        rest
    }

    /// The greatest number that divides every factor; 0 if there is none.
    pub(super) fn common_factor(&self) -> i64 {
        self.terms.iter().fold(0, |divisor, term| gcd(divisor, term.1))
    }
}

/// The greatest common divisor, or 1 if it overflows.
pub(super) fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).unwrap_or(1)
}
