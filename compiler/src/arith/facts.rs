//! What is known about the symbols of a function.

use std::collections::{BTreeMap, BTreeSet};

use super::canonical::{Rules, add_scaled};
use super::expr::IntExpr;
use super::interval::{Interval, Range, range_of};
use super::modular::{Modular, modular_of};
use super::symbol::Symbol;
use super::unify::Mismatch;

/// Facts about symbols that hold wherever they are used: bounds, congruences, equalities and
/// inequalities.
///
/// Equalities that can be solved for a symbol define it: the symbol is replaced by its definition
/// in everything that is simplified or proved. Of the symbols an equality could be solved for, the
/// last by name is defined, so the same equalities give the same facts in any order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Facts {
    pub(super) default: Interval,
    /// Of symbols without a definition, where they say more than the default.
    pub(super) bounds: BTreeMap<Symbol, Interval>,
    /// Of symbols without a definition.
    pub(super) congruences: BTreeMap<Symbol, Modular>,
    /// No definition mentions a defined symbol.
    pub(super) definitions: BTreeMap<Symbol, IntExpr>,
    /// What is equal to zero and could not be solved. Without defined symbols.
    pub(super) zeros: BTreeSet<IntExpr>,
    /// What is not negative, where the bounds alone do not say so. Without defined symbols.
    pub(super) non_negative: BTreeSet<IntExpr>,
}

impl Facts {
    /// Nothing is known of any symbol.
    pub const fn new() -> Facts {
        Facts::with_default(Interval::ALL)
    }

    /// Symbols are sizes of dimensions, which may be empty: none is negative.
    pub const fn dims() -> Facts {
        Facts::with_default(Interval::NON_NEGATIVE)
    }

    /// Symbols are sizes of dimensions, none of them empty.
    pub const fn positive_dims() -> Facts {
        Facts::with_default(Interval::at_least(1))
    }

    /// Each symbol is in this interval, as long as nothing else is known of it.
    pub const fn with_default(default: Interval) -> Facts {
        Facts {
            default,
            bounds: BTreeMap::new(),
            congruences: BTreeMap::new(),
            definitions: BTreeMap::new(),
            zeros: BTreeSet::new(),
            non_negative: BTreeSet::new(),
        }
    }

    /// Where a symbol is of which nothing else is known.
    pub fn default_bounds(&self) -> Interval {
        self.default
    }

    /// Whether nothing is known but the default.
    pub fn is_empty(&self) -> bool {
        self.bounds.is_empty()
            && self.congruences.is_empty()
            && self.definitions.is_empty()
            && self.zeros.is_empty()
            && self.non_negative.is_empty()
    }

    /// Whether nothing at all is known.
    pub(super) fn knows_nothing(&self) -> bool {
        self.default == Interval::ALL && self.is_empty()
    }

    /// The bounds recorded for one symbol; [`Facts::bounds_of`] may know more.
    pub fn symbol_bounds(&self, symbol: &Symbol) -> Interval {
        self.bounds.get(symbol).copied().unwrap_or(self.default)
    }

    /// What the symbol is equal to, if an equality defines it.
    pub fn definition(&self, symbol: &Symbol) -> Option<&IntExpr> {
        self.definitions.get(symbol)
    }

    /// The symbols that equalities define, in order, and what they are equal to.
    pub fn definitions(&self) -> impl Iterator<Item = (&Symbol, &IntExpr)> {
        self.definitions.iter()
    }

    /// Pairs of expressions that are equal, where no symbol's definition says so.
    pub fn equations(&self) -> impl Iterator<Item = (IntExpr, IntExpr)> {
        self.zeros.iter().map(IntExpr::sides)
    }

    /// Records that the symbol is in the interval.
    ///
    /// # Errors
    ///
    /// If it is known not to be. The facts are then unchanged.
    pub fn assume_bounds(&mut self, symbol: &Symbol, interval: Interval) -> Result<(), Mismatch> {
        let mut known = self.clone();
        known.bound(&IntExpr::symbol(symbol), interval.into())?;
        known.settle(self)?;
        *self = known;
        Ok(())
    }

    /// Records that the symbol is a multiple of a number.
    ///
    /// # Errors
    ///
    /// If it is known not to be. The facts are then unchanged.
    pub fn assume_divisible(&mut self, symbol: &Symbol, divisor: i64) -> Result<(), Mismatch> {
        self.assume_congruent(symbol, Modular::new(divisor, 0))
    }

    /// Records that the symbol is in a set of congruent numbers.
    ///
    /// # Errors
    ///
    /// If it is known not to be. The facts are then unchanged.
    pub fn assume_congruent(&mut self, symbol: &Symbol, set: Modular) -> Result<(), Mismatch> {
        let mut known = self.clone();
        known.congruent(&IntExpr::symbol(symbol), set)?;
        known.settle(self)?;
        *self = known;
        Ok(())
    }

    /// Records that `a <= b`.
    ///
    /// # Errors
    ///
    /// If `a > b` is known, or one of them has no value. The facts are then unchanged.
    pub fn assume_le(&mut self, a: &IntExpr, b: &IntExpr) -> Result<(), Mismatch> {
        if self.prove_le(a, b) == Some(false) {
            return Err(Mismatch::Greater { left: a.clone(), right: b.clone() });
        }
        let difference = self.simplify(&(b - a));
        if difference.is_poison() {
            return Err(Mismatch::Poisoned { left: a.clone(), right: b.clone() });
        }
        let mut known = self.clone();
        known.bound(&difference, Range { lower: Some(0), upper: None })?;
        known.settle(self)?;
        *self = known;
        Ok(())
    }

    /// The expression with definitions put in, and everything left out that the facts decide.
    pub fn simplify(&self, expr: &IntExpr) -> IntExpr {
        if expr.as_poly().is_none() || self.knows_nothing() {
            return expr.clone();
        }
        let rules = Rules { facts: self, ..Rules::PLAIN };
        let rebuilt = rules.rebuild(expr, &|symbol| self.definitions.get(symbol).cloned());
        self.reduce_by_zeros(&rules.restore_exact(&rebuilt))
    }

    /// What `expr` is congruent to.
    pub fn modular_of(&self, expr: &IntExpr) -> Modular {
        let definition = |symbol: &Symbol| self.definitions.get(symbol).cloned();
        self.modular(&if self.definitions.is_empty() {
            expr.clone()
        } else {
            expr.substitute(&definition)
        })
    }

    /// What an expression without defined symbols is congruent to.
    pub(super) fn modular(&self, expr: &IntExpr) -> Modular {
        modular_of(expr, &|symbol| self.congruences.get(symbol).copied().unwrap_or(Modular::ALL))
    }

    /// What an expression without defined symbols can be, operation by operation.
    pub(super) fn range(&self, expr: &IntExpr) -> Range {
        range_of(expr, &|symbol| self.symbol_bounds(symbol).into())
    }

    /// Subtracts multiples of what is known to be zero, as long as leading products match.
    ///
    /// Each step replaces a product by smaller ones in an order without infinite descent.
    pub(super) fn reduce_by_zeros(&self, expr: &IntExpr) -> IntExpr {
        /// Reductions beyond this would be of no use to a reader either.
        const MAX_REDUCTIONS: usize = 64;

        let mut reduced = expr.clone();
        for _ in 0..MAX_REDUCTIONS {
            let step = reduced.parts().0.iter().find_map(|term| {
                self.zeros.iter().find_map(|zero| Some((term.quotient_by_lead(zero)?, zero)))
            });
            let Some((factor, zero)) = step else { break };
            let next = add_scaled(&reduced, &Rules::PLAIN.mul(&factor, zero), -1);
            if next.is_poison() {
                break;
            }
            reduced = next;
        }
        reduced
    }
}
