//! Proofs: whether expressions are equal or ordered, wherever the facts hold.

use super::canonical::{Rules, add_scaled, mul_parts, single};
use super::expr::{Atom, IntExpr, Term};
use super::facts::Facts;
use super::interval::{Interval, Range, range_of};
use super::modular::Modular;
use super::symbol::Symbol;

/// Most relaxed expressions that are looked at for one bound.
///
/// Sizes that models ask about need one to four; the limit keeps a hopeless search short.
const MAX_RELAXATIONS: u32 = 32;

/// Largest expression that is relaxed at all. Sizes of real models have a dozen nodes.
const MAX_RELAXED_SIZE: u32 = 64;

/// Most relaxations applied one after the other.
const MAX_RELAXED: u32 = 4;

impl Facts {
    /// The bounds of an expression, as narrow as is found.
    pub fn bounds_of(&self, expr: &IntExpr) -> Interval {
        if let Some(value) = expr.as_const() {
            return Interval::point(value);
        }
        let own = self.range(expr);
        let (facts, expr) = self.normal(expr);
        let range = Range {
            lower: facts.lower_bound(&expr, None),
            upper: facts.lower_bound(&negated(&expr), None).and_then(i128::checked_neg),
        };
        own.intersect(range).into()
    }

    /// Whether the two are equal: always, never, or not known.
    pub fn prove_eq(&self, a: &IntExpr, b: &IntExpr) -> Option<bool> {
        match (a.as_const(), b.as_const()) {
            (Some(a), Some(b)) => return Some(a == b),
            _ if a.is_poison() || b.is_poison() => return None,
            _ if a == b => return Some(true),
            _ => {}
        }
        let (facts, difference) = self.normal(&(a - b));
        if let Some(equal) = facts.decide_zero(&difference) {
            return Some(equal);
        }
        facts.decide_zero(&facts.expanded(&difference)).or_else(|| {
            let apart = facts.lower_bound(&difference, Some(1)) >= Some(1)
                || facts.lower_bound(&negated(&difference), Some(1)) >= Some(1);
            apart.then_some(false)
        })
    }

    /// Whether `a <= b`: always, never, or not known.
    pub fn prove_le(&self, a: &IntExpr, b: &IntExpr) -> Option<bool> {
        if let (Some(a), Some(b)) = (a.as_const(), b.as_const()) {
            return Some(a <= b);
        }
        let difference = add_scaled(b, a, -1);
        if difference.is_poison() {
            return None;
        }
        let (facts, difference) = self.normal(&difference);
        if facts.lower_bound(&difference, Some(0)) >= Some(0) {
            return Some(true);
        }
        if facts.lower_bound(&negated(&difference), Some(1)) >= Some(1) {
            return Some(false);
        }
        facts.expanded(&difference).as_const().map(|distance| distance >= 0)
    }

    /// Whether `a < b`: always, never, or not known.
    pub fn prove_lt(&self, a: &IntExpr, b: &IntExpr) -> Option<bool> {
        self.prove_le(b, a).map(|le| !le)
    }

    /// Whether an expression without defined symbols is known not to be negative.
    pub(super) fn proves_non_negative(&self, expr: &IntExpr) -> bool {
        self.range(expr).is_non_negative()
            || !self.knows_nothing() && self.lower_bound(expr, Some(0)) >= Some(0)
    }

    /// Whether an expression without defined symbols is known not to be zero.
    pub(super) fn proves_nonzero(&self, expr: &IntExpr) -> bool {
        !self.range(expr).contains(0)
            || !self.modular(expr).contains(0)
            || !self.knows_nothing()
                && (self.lower_bound(expr, Some(1)) >= Some(1)
                    || self.lower_bound(&negated(expr), Some(1)) >= Some(1))
    }

    /// A difference in the form that is most often zero where it is equal to zero.
    fn expanded(&self, difference: &IntExpr) -> IntExpr {
        let rules = Rules { facts: self, expand: true };
        self.reduce_by_zeros(&rules.rebuild(difference, &|_| None))
    }

    /// The expression in the form that proofs work on, and the facts that go with it: defined
    /// symbols are replaced, and `n = 4 * k + 1` where it is known that `n` leaves 1.
    fn normal(&self, expr: &IntExpr) -> (std::borrow::Cow<'_, Facts>, IntExpr) {
        let expr = self.simplify(expr);
        let mut mentioned = expr.symbols();
        mentioned.retain(|symbol| self.congruences.contains_key(symbol));
        if mentioned.is_empty() {
            return (std::borrow::Cow::Borrowed(self), expr);
        }
        let mut facts = self.clone();
        let mut quotients = std::collections::BTreeMap::new();
        for symbol in mentioned {
            let Some(set) = facts.congruences.remove(&symbol) else { continue };
            // No name of a model starts with this character, and if one does, only a proof is
            // missed: facts about that symbol are then about the quotient.
            let quotient = Symbol::new(&format!("\u{1}{}", symbol.name()));
            let bounds = Range::from(self.symbol_bounds(&symbol));
            let range = bounds.add(Range::point(-i128::from(set.base())));
            facts.bounds.insert(quotient.clone(), range.divide_inwards(set.coeff()).into());
            quotients.insert(symbol, IntExpr::symbol(quotient) * set.coeff() + set.base());
        }
        let replacement = |symbol: &Symbol| quotients.get(symbol).cloned();
        let replaced = |expr: &IntExpr| expr.substitute(&replacement);
        facts.zeros = self.zeros.iter().map(replaced).collect();
        facts.non_negative = self.non_negative.iter().map(replaced).collect();
        let expr = replaced(&expr);
        let simplified = facts.simplify(&expr);
        (std::borrow::Cow::Owned(facts), simplified)
    }

    /// Whether a difference is zero, as far as one look tells.
    fn decide_zero(&self, difference: &IntExpr) -> Option<bool> {
        if let Some(value) = difference.as_const() {
            return Some(value == 0);
        }
        if difference.is_poison() {
            return None;
        }
        let possible: Modular = self.modular(difference);
        let range = self.range(difference);
        if range == Range::point(0) {
            return Some(true);
        }
        (!possible.contains(0) || !range.contains(0)).then_some(false)
    }

    /// A number that `expr` is never less than: the best that is found, or the first that is at
    /// least `goal`.
    fn lower_bound(&self, expr: &IntExpr, goal: Option<i128>) -> Option<i128> {
        Search { facts: self, goal, budget: MAX_RELAXATIONS }.lower(expr, MAX_RELAXED)
    }
}

fn negated(expr: &IntExpr) -> IntExpr {
    add_scaled(&IntExpr::ZERO, expr, -1)
}

/// A search for a lower bound.
///
/// Interval arithmetic takes each atom for itself and so cannot see that `n - floordiv(n, 2)` is
/// never negative. The search replaces an atom by an expression that it is never less than (or
/// greater, by the sign of its coefficient), after which terms cancel.
struct Search<'a> {
    facts: &'a Facts,
    goal: Option<i128>,
    budget: u32,
}

/// `scale * expr >= relaxed + offset`
struct Relaxed {
    relaxed: IntExpr,
    offset: i128,
    scale: i64,
}

impl Search<'_> {
    fn lower(&mut self, expr: &IntExpr, depth: u32) -> Option<i128> {
        if expr.is_poison() {
            return None;
        }
        let mut best = self.facts.range(expr).lower;
        let Some(poly) = expr.as_poly() else { return best };
        if depth == 0 || self.reached(best) || expr.size() > MAX_RELAXED_SIZE {
            return best;
        }
        if poly.terms().iter().any(|term| term.degree() > 1) {
            best = best.max(self.shifted(expr));
        }
        for relaxed in self.relaxations(expr) {
            if self.reached(best) || self.budget == 0 {
                break;
            }
            self.budget -= 1;
            best = best.max(self.lower_of(&relaxed, depth - 1));
        }
        for term in poly.terms() {
            if self.reached(best) || self.budget == 0 {
                break;
            }
            best = best.max(self.every_operand(expr, term, depth - 1));
        }
        best
    }

    fn reached(&self, bound: Option<i128>) -> bool {
        self.goal.is_some() && bound >= self.goal
    }

    fn lower_of(&mut self, it: &Relaxed, depth: u32) -> Option<i128> {
        // While the expression is scaled, its goal is another one.
        let goal = self.goal;
        self.goal = goal.and_then(|goal| {
            goal.checked_mul(it.scale.into()).and_then(|goal| goal.checked_sub(it.offset))
        });
        let lower = self.lower(&it.relaxed, depth);
        self.goal = goal;
        let lower = lower?.checked_add(it.offset)?;
        // Of a multiple of the scale, the least is rounded up.
        let scale = i128::from(it.scale);
        Some(lower.div_euclid(scale) + i128::from(lower.rem_euclid(scale) != 0))
    }

    /// All expressions that `expr` is never less than, by one step.
    fn relaxations(&self, expr: &IntExpr) -> Vec<Relaxed> {
        let mut found = Vec::new();
        for term in expr.parts().0 {
            let Some(atom) = term.as_atom() else { continue };
            let coefficient = term.coefficient();
            let others = add_scaled(expr, &single(term), -1);
            let mut push = |operand: &IntExpr| {
                let relaxed = add_scaled(&others, operand, coefficient);
                found.push(Relaxed { relaxed, offset: 0, scale: 1 });
            };
            match atom {
                Atom::Symbol(_) => {}
                Atom::Min(operands) if coefficient < 0 => operands.iter().for_each(push),
                Atom::Max(operands) if coefficient > 0 => operands.iter().for_each(push),
                Atom::Min(_) | Atom::Max(_) => {}
                Atom::FloorDiv(a, b) => match b.as_const() {
                    Some(divisor) if divisor > 0 => {
                        // a - divisor + 1 <= divisor * floordiv(a, divisor) <= a
                        let slack = if coefficient > 0 { divisor - 1 } else { 0 };
                        let dividend = add_scaled(a, &IntExpr::constant(slack), -1);
                        let dividend = add_scaled(&IntExpr::ZERO, &dividend, coefficient);
                        let relaxed = add_scaled(&dividend, &others, divisor);
                        found.push(Relaxed { relaxed, offset: 0, scale: divisor });
                    }
                    // floordiv(a, b) <= a
                    None if coefficient < 0
                        && self.facts.range(b).is_positive()
                        && self.facts.range(a).is_non_negative() =>
                    {
                        push(a);
                    }
                    _ => {}
                },
                Atom::Mod(a, b) => {
                    let (dividend, divisor) = (self.facts.range(a), self.facts.range(b));
                    if coefficient < 0 && divisor.is_positive() {
                        // mod(a, b) <= b - 1, and <= a
                        push(&add_scaled(b, &IntExpr::ONE, -1));
                        if dividend.is_non_negative() {
                            push(a);
                        }
                    }
                    // mod(a, b) = a - b * floordiv(a, b)
                    let rest = dividend.floor_div(divisor).mul(divisor);
                    let rest = rest.mul(Range::point(coefficient)).neg();
                    if let (Some(offset), false) = (rest.lower, divisor.contains(0)) {
                        let relaxed = add_scaled(&others, a, coefficient);
                        found.push(Relaxed { relaxed, offset, scale: 1 });
                    }
                }
            }
        }
        for known in &self.facts.non_negative {
            for factor in known.parts().0 {
                let Some(own) = expr.parts().0.iter().find(|it| it.product == factor.product)
                else {
                    continue;
                };
                // As often as cancels the product, if the signs agree.
                if let Some(times) = own.coefficient().checked_div(factor.coefficient())
                    && times > 0
                {
                    let relaxed = add_scaled(expr, known, -times);
                    found.push(Relaxed { relaxed, offset: 0, scale: 1 });
                }
            }
        }
        found
    }

    /// The bound where a minimum counts positively: that of its worst operand.
    fn every_operand(&mut self, expr: &IntExpr, term: &Term, depth: u32) -> Option<i128> {
        let operands = match term.as_atom()? {
            Atom::Min(operands) if term.coefficient() > 0 => operands,
            Atom::Max(operands) if term.coefficient() < 0 => operands,
            _ => return None,
        };
        let others = add_scaled(expr, &single(term), -1);
        let mut worst = None;
        for operand in operands.iter() {
            self.budget = self.budget.checked_sub(1)?;
            let with = add_scaled(&others, operand, term.coefficient());
            let lower = self.lower(&with, depth)?;
            worst = Some(worst.map_or(lower, |worst: i128| worst.min(lower)));
        }
        worst
    }

    /// The bound after each symbol is counted from its least value, so that products with a
    /// positive and a negative sign can cancel: `n * m - n` is `n * (m - 1)`.
    fn shifted(&self, expr: &IntExpr) -> Option<i128> {
        let bounds = |symbol: &Symbol| self.facts.symbol_bounds(symbol);
        let shifted = expr.substitute(&|symbol| {
            let lower = bounds(symbol).lower.filter(|lower| *lower != 0)?;
            let least = IntExpr::constant(lower);
            Some(add_scaled(&IntExpr::symbol(symbol), &least, 1))
        });
        let range = range_of(&shifted, &|symbol| {
            let range = Range::from(bounds(symbol));
            range.add(Range::point(-range.lower.unwrap_or(0)))
        });
        range.lower.filter(|_| !shifted.is_poison())
    }
}

impl Rules<'_> {
    /// Replaces `k * floordiv(a, k)` by `a - r` where it is known that `a` leaves `r`.
    pub(super) fn restore_exact(&self, expr: &IntExpr) -> IntExpr {
        if self.facts.congruences.is_empty() {
            return expr.clone();
        }
        let mut restored = expr.clone();
        for term in expr.parts().0 {
            for (index, factor) in term.factors().iter().enumerate() {
                let Atom::FloorDiv(a, b) = &factor.atom else { continue };
                let Some(divisor) = b.as_const() else { continue };
                let Some(remainder) = self.facts.modular(a).remainder(divisor) else { continue };
                if factor.power != 1 || term.coefficient() % divisor != 0 {
                    continue;
                }
                let exact = add_scaled(a, &IntExpr::constant(remainder), -1);
                let product = mul_parts(&term.without_factor(index), &exact);
                let without = add_scaled(&restored, &single(term), -1);
                let with = add_scaled(&without, &product, term.coefficient() / divisor);
                if !with.is_poison() {
                    restored = with;
                }
                break;
            }
        }
        restored
    }
}
