//! Equalities between expressions: solved for a symbol, refuted, or recorded as they are.

use std::fmt;

use super::canonical::{Rules, add_scaled, single};
use super::division::{content, divide_coefficients};
use super::expr::{Atom, IntExpr, Term};
use super::facts::Facts;
use super::interval::{Interval, Range};
use super::modular::Modular;
use super::symbol::Symbol;

/// Most equations that one new fact may lead to. What is left beyond it is recorded unsolved.
const MAX_EQUATIONS: usize = 256;

/// Most unsolved equations that are kept, and most inequalities. What is beyond it is forgotten,
/// which only means that less can be proved.
const MAX_KEPT: usize = 64;

/// Most rounds in which facts simplify each other. One is enough but for facts made up to need
/// more.
const MAX_ROUNDS: usize = 8;

/// Why two expressions cannot be related as asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Mismatch {
    /// They are never equal, as far as they are known.
    Different {
        /// One of them, simplified.
        left: IntExpr,
        /// The other one, simplified.
        right: IntExpr,
    },
    /// The first is always greater than the second.
    Greater {
        /// What should not be greater.
        left: IntExpr,
        /// What should not be less.
        right: IntExpr,
    },
    /// An expression cannot be within the bounds that it must have.
    OutOfBounds {
        /// The expression.
        expr: IntExpr,
        /// Where it is.
        known: Interval,
        /// Where it must be.
        required: Interval,
    },
    /// An expression does not leave the remainder that it must leave.
    Incongruent {
        /// The expression.
        expr: IntExpr,
        /// The numbers among which it must be.
        required: Modular,
    },
    /// Their difference has no value: an overflow, a division by zero, or too complex.
    Poisoned {
        /// One of them.
        left: IntExpr,
        /// The other one.
        right: IntExpr,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Mismatch::Different { left, right } => {
                write!(f, "`{left}` is never equal to `{right}`")
            }
            Mismatch::Greater { left, right } => {
                write!(f, "`{left}` is always greater than `{right}`")
            }
            Mismatch::OutOfBounds { expr, known, required } => {
                write!(f, "`{expr}` is in {known} and would have to be in {required}")
            }
            Mismatch::Incongruent { expr, required } => {
                write!(f, "`{expr}` is never of the form {required}")
            }
            Mismatch::Poisoned { left, right } => {
                write!(f, "`{left}` and `{right}` cannot be compared within 64-bit integers")
            }
        }
    }
}

impl std::error::Error for Mismatch {}

impl Facts {
    /// Records that `a` and `b` are equal.
    ///
    /// An equation that is linear in a symbol with coefficient one defines the symbol; any other one
    /// is kept and used as far as possible.
    ///
    /// # Errors
    ///
    /// If they are provably different, or one has no value. The facts are then unchanged.
    pub fn assume_eq(&mut self, a: &IntExpr, b: &IntExpr) -> Result<(), Mismatch> {
        if a == b && !a.is_poison() {
            return Ok(());
        }
        let different = || Mismatch::Different { left: self.simplify(a), right: self.simplify(b) };
        if a.is_const() && b.is_const() {
            return Err(different());
        }
        if (a - b).is_poison() {
            return Err(Mismatch::Poisoned { left: a.clone(), right: b.clone() });
        }
        match self.prove_eq(a, b) {
            Some(true) => return Ok(()),
            Some(false) => return Err(different()),
            None => {}
        }
        let mut known = self.clone();
        known.zeros.insert(self.simplify(&(a - b)));
        known.settle(self).map_err(|inner| match inner {
            // What a later equation says would only confuse the reader of this one.
            Mismatch::Different { .. } => different(),
            other => other,
        })?;
        *self = known;
        Ok(())
    }

    /// Draws the conclusions of what is new since `before`: solves what can be solved of the
    /// equations in `zeros` and simplifies all facts under each other.
    pub(super) fn settle(&mut self, before: &Facts) -> Result<(), Mismatch> {
        let mut before = before.clone();
        for _ in 0..MAX_ROUNDS {
            self.solve_zeros()?;
            while self.zeros.len() > MAX_KEPT {
                self.zeros.pop_last();
            }
            if *self == before {
                break;
            }
            before = self.clone();
            for (symbol, value) in std::mem::take(&mut self.definitions) {
                let value = before.simplify(&value);
                // What became simpler may be an equation that defines a later symbol.
                let zero = &IntExpr::symbol(&symbol) - &value;
                if solve(&zero).is_none_or(|(defined, _)| defined == symbol) {
                    self.definitions.insert(symbol, value);
                } else {
                    self.zeros.insert(zero);
                }
            }
            for expr in std::mem::take(&mut self.non_negative) {
                self.bound(&expr, Range { lower: Some(0), upper: None })?;
            }
        }
        Ok(())
    }

    fn solve_zeros(&mut self) -> Result<(), Mismatch> {
        for _ in 0..MAX_EQUATIONS {
            let Some((zero, step)) = self.next_step()? else { break };
            self.zeros.remove(&zero);
            match step {
                Step::Drop => {}
                Step::Replace(smaller) => {
                    self.zeros.insert(smaller);
                }
                Step::Define(symbol, value) => self.define(&symbol, value)?,
                Step::Congruent(expr, set) => self.congruent(&expr, set)?,
                Step::Bound(expr, range) => self.bound(&expr, range)?,
            }
        }
        Ok(())
    }

    /// The first equation that can be replaced by something better.
    fn next_step(&self) -> Result<Option<(IntExpr, Step)>, Mismatch> {
        for zero in &self.zeros {
            if let Some(step) = self.step(zero)? {
                return Ok(Some((zero.clone(), step)));
            }
        }
        Ok(None)
    }

    fn step(&self, zero: &IntExpr) -> Result<Option<Step>, Mismatch> {
        // An equation must not be used to simplify itself.
        let mut others = self.clone();
        others.zeros.remove(zero);
        let simplified = others.simplify(zero);
        if simplified.is_poison() {
            return Ok(None);
        }
        match others.prove_eq(&simplified, &IntExpr::ZERO) {
            Some(false) => {
                return Err(Mismatch::Different { left: simplified, right: IntExpr::ZERO });
            }
            Some(true) => return Ok(Some(Step::Drop)),
            None => {}
        }
        let reduced = others.without_factors(&simplified);
        if reduced != *zero {
            return Ok(Some(Step::Replace(reduced)));
        }
        if let Some((symbol, value)) = solve(zero) {
            return Ok(Some(Step::Define(symbol, value)));
        }
        // mod(expr, divisor) == remainder
        if let ([term], constant) = zero.parts()
            && let (1, Some(Atom::Mod(expr, divisor))) = (term.coefficient(), term.as_atom())
            && let (Some(divisor), Some(remainder)) = (divisor.as_const(), constant.checked_neg())
            && expr.as_symbol().is_some()
        {
            return Ok(Some(Step::Congruent(expr.clone(), Modular::new(divisor, remainder))));
        }
        if let Some((expr, range)) = bounded(zero) {
            return Ok(Some(Step::Bound(expr, range)));
        }
        Ok(None)
    }

    /// What is zero if and only if `zero` is: without common factors that cannot be zero, and
    /// starting with a positive coefficient.
    fn without_factors(&self, zero: &IntExpr) -> IntExpr {
        let mut reduced = divide_coefficients(zero, content(zero).max(1));
        let (terms, constant) = reduced.parts();
        if let (Some(lead), 0) = (terms.first(), constant) {
            for factor in lead.factors().to_vec() {
                let it = IntExpr::atom(factor.atom);
                let Some(product) = it.parts().0.first().map(|term| term.product.clone()) else {
                    continue;
                };
                if !self.proves_nonzero(&it) {
                    continue;
                }
                while let Some(smaller) = super::division::cancel(&reduced, &product) {
                    reduced = smaller;
                }
            }
        }
        if reduced.parts().0.first().is_some_and(|term| term.coefficient() < 0) {
            let negated = Rules::PLAIN.scale(&reduced, -1);
            return if negated.is_poison() { reduced } else { negated };
        }
        reduced
    }

    /// Makes `symbol` stand for `value` everywhere, and lets the value have what is known of it.
    fn define(&mut self, symbol: &Symbol, value: IntExpr) -> Result<(), Mismatch> {
        let bounds = self.symbol_bounds(symbol);
        let set = self.congruences.remove(symbol).unwrap_or(Modular::ALL);
        self.bounds.remove(symbol);
        let replacement = |it: &Symbol| (it == symbol).then(|| value.clone());
        let replaced = |expr: &IntExpr| expr.substitute(&replacement);
        for definition in self.definitions.values_mut() {
            *definition = replaced(definition);
        }
        self.zeros = self.zeros.iter().map(replaced).collect();
        let non_negative = std::mem::take(&mut self.non_negative);
        self.definitions.insert(symbol.clone(), value.clone());
        for expr in non_negative {
            self.bound(&replaced(&expr), Range { lower: Some(0), upper: None })?;
        }
        self.bound(&value, bounds.into())?;
        self.congruent(&value, set)
    }

    /// Records that the expression is within bounds: as a symbol's bounds if it is linear in one
    /// symbol, else as an inequality.
    pub(super) fn bound(&mut self, expr: &IntExpr, required: Range) -> Result<(), Mismatch> {
        let expr = self.simplify(expr);
        let known = self.range(&expr);
        let both = known.intersect(required);
        let refused = || Mismatch::OutOfBounds {
            expr: expr.clone(),
            known: known.into(),
            required: required.into(),
        };
        if both.is_empty() {
            return Err(refused());
        }
        if both == known || expr.is_poison() {
            return Ok(());
        }
        if let ([term], constant) = expr.parts()
            && let Some(Atom::Symbol(symbol)) = term.as_atom()
        {
            // lower <= c * s + d <= upper
            let shifted = both.add(Range::point(-i128::from(constant)));
            let solved = shifted.divide_inwards(term.coefficient());
            let solved = solved.intersect(self.symbol_bounds(symbol).into());
            if solved.is_empty() {
                return Err(refused());
            }
            let interval = Interval::from(solved);
            match interval.as_point() {
                Some(value) => {
                    let symbol = IntExpr::symbol(symbol);
                    self.zeros.insert(symbol - value);
                }
                None if interval != self.default => {
                    self.bounds.insert(symbol.clone(), interval);
                }
                None => {}
            }
            return Ok(());
        }
        let narrow = Interval::from(required);
        for (bound, sign) in [(narrow.lower, 1), (narrow.upper, -1)] {
            // lower <= expr becomes expr - lower >= 0, expr <= upper becomes upper - expr >= 0.
            let Some(bound) = bound else { continue };
            let constant = Rules::PLAIN.scale(&IntExpr::constant(bound), -sign);
            let expr = self.tighten(&add_scaled(&constant, &expr, sign));
            let known = expr.is_poison() || self.range(&expr).is_non_negative();
            if !known && self.non_negative.len() < MAX_KEPT {
                self.non_negative.insert(expr);
            }
        }
        Ok(())
    }

    /// What is not negative if and only if `expr` is not, in smallest terms.
    fn tighten(&self, expr: &IntExpr) -> IntExpr {
        let common = expr
            .parts()
            .0
            .iter()
            .fold(0, |g, term: &Term| super::division::gcd(g, term.coefficient()));
        if common > 1 { divide_coefficients(expr, common) } else { expr.clone() }
    }

    /// Records that the expression is in a set of congruent numbers.
    pub(super) fn congruent(&mut self, expr: &IntExpr, set: Modular) -> Result<(), Mismatch> {
        let expr = self.simplify(expr);
        let refused = || Mismatch::Incongruent { expr: expr.clone(), required: set };
        let both = self.modular(&expr).intersect(set).ok_or_else(refused)?;
        if both == Modular::ALL || expr.is_const() || expr.is_poison() {
            return Ok(());
        }
        if both.coeff() == 0 {
            self.zeros.insert(&expr - both.base());
        } else if let Some(symbol) = expr.as_symbol() {
            self.congruences.insert(symbol.clone(), both);
        } else if let ([term], constant) = expr.parts()
            && let (sign @ (1 | -1), Some(Atom::Symbol(symbol))) =
                (term.coefficient(), term.as_atom())
        {
            // sign * s + d = base modulo coeff
            let base = (i128::from(both.base()) - i128::from(constant)) * i128::from(sign);
            let base = base.rem_euclid(both.coeff().into());
            let base = i64::try_from(base).unwrap_or(0);
            let own = self.congruences.get(symbol).copied().unwrap_or(Modular::ALL);
            let both = own.intersect(Modular::new(both.coeff(), base)).ok_or_else(refused)?;
            self.congruences.insert(symbol.clone(), both);
        } else {
            let remainder = expr.modulo(&IntExpr::constant(set.coeff()));
            self.zeros.insert(remainder - set.base());
        }
        Ok(())
    }
}

/// How an equation can be got rid of.
enum Step {
    /// It says nothing.
    Drop,
    /// This says the same.
    Replace(IntExpr),
    /// It defines a symbol.
    Define(Symbol, IntExpr),
    /// It says what the expression is congruent to.
    Congruent(IntExpr, Modular),
    /// It says between what the expression is.
    Bound(IntExpr, Range),
}

/// A symbol plus a number, and its bounds, where `max(least, expr) - expr = 0` says so, or the same of
/// `min`.
fn bounded(zero: &IntExpr) -> Option<(IntExpr, Range)> {
    let (terms, _) = zero.parts();
    let (chosen, operands) = terms.iter().find_map(|term| match term.as_atom() {
        Some(Atom::Max(operands) | Atom::Min(operands)) => Some((term, operands)),
        _ => None,
    })?;
    let sign @ (1 | -1) = chosen.coefficient() else { return None };
    let expr = Rules::PLAIN.scale(&add_scaled(zero, &single(chosen), -1), -sign);
    let [term] = expr.parts().0 else { return None };
    term.as_atom().filter(|atom| matches!(atom, Atom::Symbol(_)))?;
    let bound = match &operands[..] {
        [a, b] if *b == expr => a.as_const(),
        [a, b] if *a == expr => b.as_const(),
        _ => None,
    };
    let bound = Some(bound?.into());
    let range = match chosen.as_atom() {
        Some(Atom::Max(_)) => Range { lower: bound, upper: None },
        _ => Range { lower: None, upper: bound },
    };
    Some((expr, range))
}

/// The last symbol by name for which `zero = 0` can be solved, and its value.
fn solve(zero: &IntExpr) -> Option<(Symbol, IntExpr)> {
    let mut best: Option<(&Symbol, &Term)> = None;
    for term in zero.parts().0 {
        let Some(Atom::Symbol(symbol)) = term.as_atom() else { continue };
        let solvable = matches!(term.coefficient(), 1 | -1)
            && best.is_none_or(|(best, _)| best < symbol)
            && !add_scaled(zero, &single(term), -1).mentions(symbol);
        if solvable {
            best = Some((symbol, term));
        }
    }
    let (symbol, term) = best?;
    let others = add_scaled(zero, &single(term), -1);
    let value = Rules::PLAIN.scale(&others, -term.coefficient());
    (!value.is_poison()).then(|| (symbol.clone(), value))
}
