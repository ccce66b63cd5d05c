//! Sums, products, minima and maxima in canonical form.

use std::collections::BTreeMap;

use super::expr::{Atom, Factor, IntExpr, Poison, Product, Term};
use super::facts::Facts;
use super::symbol::Symbol;

/// Most products that one multiplication of sums may form.
///
/// A product of sums with `n` and `m` terms rarely has fewer than `n + m - 1`, so what is refused
/// here would seldom have been held.
const MAX_PRODUCTS: usize = 2048;

/// Most operands of one minimum or maximum: each is compared with each.
const MAX_OPERANDS: usize = 32;

/// The construction of canonical expressions, given what is known.
///
/// Every operation takes canonical operands and yields a canonical expression. With facts, more
/// rules apply; what they leave is a fixed point of the plain rules too.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    pub(super) facts: &'a Facts,
    /// Whether remainders are written as what a division leaves and maxima as minima. The results
    /// are not canonical, but more of them are zero that are equal to zero.
    pub(super) expand: bool,
}

static NOTHING: Facts = Facts::new();

impl Rules<'_> {
    /// The rules that need no facts: those of every [`IntExpr`].
    pub(super) const PLAIN: Rules<'static> = Rules { facts: &NOTHING, expand: false };

    pub(super) fn add(&self, a: &IntExpr, b: &IntExpr) -> IntExpr {
        if let (Some(a), Some(b)) = (a.as_const(), b.as_const()) {
            return a.checked_add(b).map_or(IntExpr::overflow(), IntExpr::constant);
        }
        self.recombine(add_scaled(a, b, 1))
    }

    pub(super) fn sub(&self, a: &IntExpr, b: &IntExpr) -> IntExpr {
        if let (Some(a), Some(b)) = (a.as_const(), b.as_const()) {
            return a.checked_sub(b).map_or(IntExpr::overflow(), IntExpr::constant);
        }
        self.recombine(add_scaled(a, b, -1))
    }

    pub(super) fn scale(&self, a: &IntExpr, factor: i64) -> IntExpr {
        match a.as_const() {
            Some(a) => a.checked_mul(factor).map_or(IntExpr::overflow(), IntExpr::constant),
            None if factor == 1 => a.clone(),
            None => add_scaled(&IntExpr::ZERO, a, factor),
        }
    }

    pub(super) fn mul(&self, a: &IntExpr, b: &IntExpr) -> IntExpr {
        if let Some(factor) = b.as_const() {
            return self.scale(a, factor);
        }
        if let Some(factor) = a.as_const() {
            return self.scale(b, factor);
        }
        self.recombine(mul_parts(a, b))
    }

    pub(super) fn min_of(&self, operands: &[IntExpr]) -> IntExpr {
        self.extremum(operands, Extremum::Min)
    }

    pub(super) fn max_of(&self, operands: &[IntExpr]) -> IntExpr {
        self.extremum(operands, Extremum::Max)
    }

    fn extremum(&self, operands: &[IntExpr], kind: Extremum) -> IntExpr {
        if let [a, b] = operands
            && let (Some(a), Some(b)) = (a.as_const(), b.as_const())
        {
            return IntExpr::constant(kind.pick(a, b));
        }
        if operands.iter().any(IntExpr::is_poison) {
            return poisoned(operands);
        }
        let mut constant = None;
        let mut flat = Vec::with_capacity(operands.len());
        for operand in operands {
            match (operand.as_const(), operand.as_atom(), kind) {
                (Some(value), _, _) => flat.push(IntExpr::constant(value)),
                (None, Some(Atom::Min(inner)), Extremum::Min)
                | (None, Some(Atom::Max(inner)), Extremum::Max) => flat.extend_from_slice(inner),
                _ => flat.push(operand.clone()),
            }
        }
        flat.retain(|operand| match operand.as_const() {
            Some(value) => {
                constant = Some(constant.map_or(value, |best| kind.pick(best, value)));
                false
            }
            None => true,
        });
        // Exporters write the greatest number for "to the end".
        let neutral = match kind {
            Extremum::Min => i64::MAX,
            Extremum::Max => i64::MIN,
        };
        let constant = constant.filter(|&value| value != neutral || flat.is_empty());
        flat.extend(constant.map(IntExpr::constant));
        flat.sort();
        flat.dedup();
        if flat.len() > MAX_OPERANDS {
            return IntExpr::poisoned(Poison::TooComplex);
        }
        // An operand goes if some other one that stays is always at least as good.
        let mut index = 0;
        while index < flat.len() {
            let dominated = (0..flat.len()).any(|other| {
                let difference = match kind {
                    Extremum::Min => add_scaled(&flat[index], &flat[other], -1),
                    Extremum::Max => add_scaled(&flat[other], &flat[index], -1),
                };
                other != index && self.facts.proves_non_negative(&difference)
            });
            if dominated {
                flat.remove(index);
            } else {
                index += 1;
            }
        }
        if self.expand && flat.len() > 1 {
            return self.expanded_extremum(&flat, kind);
        }
        match (flat.len(), kind) {
            (0, _) => IntExpr::undefined(),
            (1, _) => flat.remove(0),
            (_, Extremum::Min) => IntExpr::atom(Atom::Min(flat.into())),
            (_, Extremum::Max) => IntExpr::atom(Atom::Max(flat.into())),
        }
    }

    /// The extremum as what one operand is missing to it: `min(a, b) = a + min(0, b - a)`.
    fn expanded_extremum(&self, operands: &[IntExpr], kind: Extremum) -> IntExpr {
        let sign = match kind {
            Extremum::Min => 1,
            Extremum::Max => -1,
        };
        let first = &operands[0];
        let mut distances: Vec<IntExpr> =
            operands.iter().map(|it| self.scale(&add_scaled(it, first, -1), sign)).collect();
        if distances.iter().any(IntExpr::is_poison) {
            return poisoned(&distances);
        }
        // Of min(0, d) = d + min(0, -d), take the side that starts with a positive coefficient.
        let mut outer = first.clone();
        if let [_, distance] = &mut distances[..]
            && distance.parts().0.first().is_some_and(|term| term.coefficient < 0)
        {
            let negated = self.scale(distance, -1);
            if !negated.is_poison() {
                outer = self.add(&outer, &self.scale(distance, sign));
                *distance = negated;
            }
        }
        distances.sort();
        self.add(&outer, &self.scale(&IntExpr::atom(Atom::Min(distances.into())), sign))
    }

    /// Rebuilds the expression from its symbols upwards under these rules, with symbols replaced.
    pub(super) fn rebuild(
        &self,
        expr: &IntExpr,
        replacement: &dyn Fn(&Symbol) -> Option<IntExpr>,
    ) -> IntExpr {
        if expr.as_poly().is_none() {
            return expr.clone();
        }
        let (terms, constant) = expr.parts();
        let mut sum = IntExpr::constant(constant);
        for term in terms {
            let mut product = IntExpr::constant(term.coefficient);
            for factor in term.factors() {
                let atom = self.rebuild_atom(&factor.atom, replacement);
                for _ in 0..factor.power {
                    product = self.mul(&product, &atom);
                }
            }
            sum = self.add(&sum, &product);
        }
        sum
    }

    fn rebuild_atom(
        &self,
        atom: &Atom,
        replacement: &dyn Fn(&Symbol) -> Option<IntExpr>,
    ) -> IntExpr {
        let rebuild = |expr: &IntExpr| self.rebuild(expr, replacement);
        match atom {
            Atom::Symbol(symbol) => {
                replacement(symbol).unwrap_or_else(|| IntExpr::atom(atom.clone()))
            }
            Atom::FloorDiv(a, b) => self.floor_div(&rebuild(a), &rebuild(b)),
            Atom::Mod(a, b) => self.modulo(&rebuild(a), &rebuild(b)),
            Atom::Min(operands) => self.min_of(&operands.iter().map(rebuild).collect::<Vec<_>>()),
            Atom::Max(operands) => self.max_of(&operands.iter().map(rebuild).collect::<Vec<_>>()),
        }
    }

    /// Puts `k * floordiv(a, k) + mod(a, k)` together again, as long as the sum becomes smaller.
    ///
    /// A step that shrinks part of a sum shrinks all of it, so the result does not depend on how
    /// the sum was put together.
    fn recombine(&self, sum: IntExpr) -> IntExpr {
        let mut sum = sum;
        if self.expand {
            return sum;
        }
        loop {
            let (terms, _) = sum.parts();
            let divides = |factor: &Factor| matches!(factor.atom, Atom::FloorDiv(..));
            if !terms.iter().any(|term| term.factors().iter().any(divides)) {
                return sum;
            }
            let smaller = terms.iter().find_map(|term| {
                let (index, a, b) = term.factors().iter().enumerate().find_map(|(i, factor)| {
                    match &factor.atom {
                        Atom::Mod(a, b) if factor.power == 1 => Some((i, a, b)),
                        _ => None,
                    }
                })?;
                let others = term.without_factor(index);
                // mod(a, b) = a - b * floordiv(a, b), times what it is multiplied with.
                let expanded = add_scaled(a, &mul_parts(b, &self.floor_div(a, b)), -1);
                let expanded = mul_parts(&others, &expanded);
                let without = add_scaled(&sum, &single(term), -1);
                let candidate = add_scaled(&without, &expanded, term.coefficient);
                (!candidate.is_poison() && candidate.size() < sum.size()).then_some(candidate)
            });
            match smaller {
                Some(smaller) => sum = smaller,
                None => return sum,
            }
        }
    }
}

impl Term {
    /// The sum of the exponents.
    pub(super) fn degree(&self) -> u32 {
        self.factors().iter().fold(0, |sum, factor| sum.saturating_add(factor.power))
    }

    /// The product without its coefficient and the factor at this place.
    pub(super) fn without_factor(&self, index: usize) -> IntExpr {
        let mut others = self.factors().to_vec();
        others.remove(index);
        monomial(others, 1)
    }

    /// What times the leading term of `divisor` is this term.
    pub(super) fn quotient_by_lead(&self, divisor: &IntExpr) -> Option<IntExpr> {
        let lead = divisor.parts().0.first()?;
        let coefficient = self.coefficient.checked_div(lead.coefficient)?;
        if coefficient.checked_mul(lead.coefficient)? != self.coefficient {
            return None;
        }
        Some(monomial(divide_product(&self.product, &lead.product)?, coefficient))
    }
}

#[derive(Clone, Copy)]
enum Extremum {
    Min,
    Max,
}

impl Extremum {
    fn pick(self, a: i64, b: i64) -> i64 {
        match self {
            Extremum::Min => a.min(b),
            Extremum::Max => a.max(b),
        }
    }
}

/// The result of an operation on these, at least one of which is poisoned.
pub(super) fn poisoned<'a>(operands: impl IntoIterator<Item = &'a IntExpr>) -> IntExpr {
    let poison = operands.into_iter().filter_map(IntExpr::poison).max();
    IntExpr::poisoned(poison.unwrap_or(Poison::Undefined))
}

/// A number times a product of factors, of which there may be none.
pub(super) fn monomial(factors: Vec<Factor>, coefficient: i64) -> IntExpr {
    if factors.is_empty() {
        return IntExpr::constant(coefficient);
    }
    IntExpr::from_terms(vec![Term { product: Product::new(factors), coefficient }], 0)
}

/// The expression of one term.
pub(super) fn single(term: &Term) -> IntExpr {
    IntExpr::from_terms(vec![term.clone()], 0)
}

/// `a + factor * b`, term by term.
pub(super) fn add_scaled(a: &IntExpr, b: &IntExpr, factor: i64) -> IntExpr {
    if a.is_poison() || b.is_poison() {
        return poisoned([a, b]);
    }
    if factor == 0 || b.is(0) {
        return a.clone();
    }
    match merge(a.parts(), b.parts(), factor) {
        Some((terms, constant)) => IntExpr::from_terms(terms, constant),
        None => IntExpr::overflow(),
    }
}

fn merge(a: (&[Term], i64), b: (&[Term], i64), factor: i64) -> Option<(Vec<Term>, i64)> {
    let fused = |a: i64, b: i64| {
        let sum = i128::from(b).checked_mul(factor.into())?.checked_add(a.into())?;
        i64::try_from(sum).ok()
    };
    let constant = fused(a.1, b.1)?;
    let mut terms = Vec::with_capacity(a.0.len() + b.0.len());
    let (mut left, mut right) = (a.0.iter().peekable(), b.0.iter().peekable());
    loop {
        let order = match (left.peek(), right.peek()) {
            (Some(x), Some(y)) => x.product.cmp(&y.product),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return Some((terms, constant)),
        };
        let x = if order.is_le() { left.next() } else { None };
        let y = if order.is_ge() { right.next() } else { None };
        let coefficient =
            fused(x.map_or(0, |term| term.coefficient), y.map_or(0, |term| term.coefficient))?;
        if let Some(term) = x.or(y)
            && coefficient != 0
        {
            terms.push(Term { product: term.product.clone(), coefficient });
        }
    }
}

/// The product of two sums, before anything is put together again.
pub(super) fn mul_parts(a: &IntExpr, b: &IntExpr) -> IntExpr {
    if a.is_poison() || b.is_poison() {
        return poisoned([a, b]);
    }
    let ((a_terms, a_constant), (b_terms, b_constant)) = (a.parts(), b.parts());
    if a_terms.len().saturating_mul(b_terms.len()) > MAX_PRODUCTS {
        return IntExpr::poisoned(Poison::TooComplex);
    }
    let mut products: BTreeMap<Product, i128> = BTreeMap::new();
    let mut collect = |product: Product, a: i64, b: i64| {
        // At most `MAX_PRODUCTS` summands of 126 bits: the sum fits.
        let coefficient = i128::from(a) * i128::from(b);
        let sum = products.entry(product).or_insert(0);
        *sum = sum.saturating_add(coefficient);
    };
    for x in a_terms {
        for y in b_terms {
            let product = multiply(&x.product, &y.product);
            collect(product, x.coefficient, y.coefficient);
        }
        if b_constant != 0 {
            collect(x.product.clone(), x.coefficient, b_constant);
        }
    }
    for y in b_terms.iter().filter(|_| a_constant != 0) {
        collect(y.product.clone(), a_constant, y.coefficient);
    }
    let mut terms = Vec::with_capacity(products.len());
    for (product, coefficient) in products {
        match i64::try_from(coefficient) {
            Ok(0) => {}
            Ok(coefficient) => terms.push(Term { product, coefficient }),
            Err(_) => return IntExpr::overflow(),
        }
    }
    match a_constant.checked_mul(b_constant) {
        Some(constant) => IntExpr::from_terms(terms, constant),
        None => IntExpr::overflow(),
    }
}

fn multiply(a: &Product, b: &Product) -> Product {
    let mut factors: Vec<Factor> = Vec::with_capacity(a.factors().len() + b.factors().len());
    let (mut left, mut right) = (a.factors().iter().peekable(), b.factors().iter().peekable());
    loop {
        let order = match (left.peek(), right.peek()) {
            (Some(x), Some(y)) => x.atom.cmp(&y.atom),
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (None, None) => return Product::new(factors),
        };
        let x = if order.is_le() { left.next() } else { None };
        let y = if order.is_ge() { right.next() } else { None };
        let power = x.map_or(0, |it| it.power).saturating_add(y.map_or(0, |it| it.power));
        if let Some(factor) = x.or(y) {
            factors.push(Factor { atom: factor.atom.clone(), power });
        }
    }
}

/// `a / b`, if `b` divides `a`.
pub(super) fn divide_product(a: &Product, b: &Product) -> Option<Vec<Factor>> {
    let mut quotient = a.factors().to_vec();
    for factor in b.factors() {
        let own = quotient.iter_mut().find(|own| own.atom == factor.atom)?;
        own.power = own.power.checked_sub(factor.power)?;
    }
    quotient.retain(|factor| factor.power > 0);
    Some(quotient)
}
