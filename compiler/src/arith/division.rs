//! Floor division and remainder in canonical form.

use super::canonical::{Rules, add_scaled, divide_product, monomial, poisoned, single};
use super::expr::{Atom, IntExpr, Product, Term};
use super::interval::Range;

/// Most steps of a division of polynomials, or of rules applied one after the other. More than the
/// size of any expression, so that only a mistake would reach it.
const MAX_STEPS: usize = 1024;

impl Rules<'_> {
    pub(super) fn ceil_div(&self, a: &IntExpr, b: &IntExpr) -> IntExpr {
        match (a.as_const(), b.as_const()) {
            (Some(_), Some(0)) => IntExpr::undefined(),
            (Some(a), Some(b)) => narrow(-floor_div(-i128::from(a), b.into())),
            // Without a negation, so that it prints as it was written.
            (None, Some(divisor)) if divisor > 0 => {
                self.floor_div(&self.add(a, &IntExpr::constant(divisor - 1)), b)
            }
            _ => self.scale(&self.floor_div(&self.scale(a, -1), b), -1),
        }
    }

    pub(super) fn floor_div(&self, a: &IntExpr, b: &IntExpr) -> IntExpr {
        match (a.as_const(), b.as_const()) {
            (Some(_), Some(0)) => IntExpr::undefined(),
            (Some(a), Some(b)) => narrow(floor_div(a.into(), b.into())),
            _ if a.is_poison() || b.is_poison() => poisoned([a, b]),
            (_, Some(0)) => IntExpr::undefined(),
            (Some(0), None) => IntExpr::ZERO,
            (None, Some(1)) => a.clone(),
            (None, Some(divisor)) if divisor > 0 => self.floor_div_const(a, divisor),
            (None, Some(divisor)) => match divisor.checked_neg() {
                Some(divisor) => self.floor_div_const(&self.scale(a, -1), divisor),
                None => IntExpr::atom(Atom::FloorDiv(a.clone(), b.clone())),
            },
            (_, None) => self.floor_div_expr(a, b),
        }
    }

    pub(super) fn modulo(&self, a: &IntExpr, b: &IntExpr) -> IntExpr {
        match (a.as_const(), b.as_const()) {
            (Some(_), Some(0)) => IntExpr::undefined(),
            (Some(a), Some(b)) => narrow(modulo(a.into(), b.into())),
            _ if a.is_poison() || b.is_poison() => poisoned([a, b]),
            (_, Some(0)) => IntExpr::undefined(),
            _ if self.expand => self.sub(a, &self.mul(b, &self.floor_div(a, b))),
            (Some(0), None) | (None, Some(1)) => IntExpr::ZERO,
            (None, Some(divisor)) if divisor > 0 => self.modulo_const(a, divisor),
            (None, Some(divisor)) => match divisor.checked_neg() {
                Some(divisor) => self.scale(&self.modulo_const(&self.scale(a, -1), divisor), -1),
                None => IntExpr::atom(Atom::Mod(a.clone(), b.clone())),
            },
            (_, None) => self.modulo_expr(a, b),
        }
    }

    /// `floordiv(x, divisor)` for a positive number as divisor.
    fn floor_div_const(&self, x: &IntExpr, divisor: i64) -> IntExpr {
        // The result is `outer + sign * floordiv(x, divisor)` all along.
        let (mut outer, mut sign) = (IntExpr::ZERO, 1);
        let (mut x, mut divisor) = (x.clone(), divisor);
        for _ in 0..MAX_STEPS {
            if x.is_poison() {
                return x;
            }
            let (quotient, rest) = split_multiples(&x, divisor, self.expand);
            outer = self.add(&outer, &self.scale(&quotient, sign));
            x = rest;
            if x.is_const() {
                return outer;
            }
            // The constant's remainder by the common factor never reaches the next multiple.
            let common = x.parts().0.iter().fold(divisor, |g, term| gcd(g, term.coefficient()));
            if common > 1 {
                x = divide_coefficients(&x, common);
                divisor /= common;
            }
            if let Some((quotient, reflected)) = self.reflect(&x, divisor) {
                outer = self.add(&outer, &self.scale(&quotient, sign));
                (x, sign) = (reflected, -sign);
            }
            if let Some(quotient) = quotient_in(self.facts.range(&x), divisor) {
                return self.add(&outer, &self.scale(&quotient, sign));
            }
            if let Some((inner, inner_divisor)) = merge_nested(&x, divisor) {
                (x, divisor) = (inner, inner_divisor);
                continue;
            }
            if let Some((quotient, rest)) = self.without_remainder(&x, divisor) {
                outer = self.add(&outer, &self.scale(&quotient, sign));
                x = rest;
                continue;
            }
            // floordiv(mod(a, k * c), c) = mod(floordiv(a, c), k)
            if let Some(Atom::Mod(a, modulus)) = x.as_atom()
                && let Some(modulus) = modulus.as_const()
                && modulus > 0
                && modulus % divisor == 0
            {
                let quotient = self.floor_div_const(a, divisor);
                let digit = self.modulo(&quotient, &IntExpr::constant(modulus / divisor));
                return self.add(&outer, &self.scale(&digit, sign));
            }
            break;
        }
        let atom = IntExpr::atom(Atom::FloorDiv(x, IntExpr::constant(divisor)));
        self.add(&outer, &self.scale(&atom, sign))
    }

    /// The better way to write `floordiv(x, divisor)`, if there is one, as `quotient -
    /// floordiv(reflected, divisor)`.
    ///
    /// Since `floor(x / c) = -floor((c - 1 - x) / c)`, each quotient has two forms. Plain rules
    /// keep the one that starts with a positive coefficient, so that both ways to write a ceiling
    /// come out the same. Expanding rules have made all coefficients positive, and keep the form
    /// that is less.
    fn reflect(&self, x: &IntExpr, divisor: i64) -> Option<(IntExpr, IntExpr)> {
        let is_negative = x.parts().0.first().is_some_and(|term| term.coefficient() < 0);
        if !self.expand && !is_negative {
            return None;
        }
        let reflected = add_scaled(&IntExpr::constant(divisor - 1), x, -1);
        if reflected.is_poison() {
            return None;
        }
        if !self.expand {
            return Some((IntExpr::ZERO, reflected));
        }
        let (quotient, rest) = split_multiples(&reflected, divisor, true);
        (rest < *x).then(|| (self.scale(&quotient, -1), rest))
    }

    /// `floordiv(x, divisor)` as `quotient + floordiv(rest, divisor)`, if a remainder in `x` completes what
    /// stands beside it, as `n + mod(-n, 4)` is a multiple of 4:
    /// `mod(a, k * c) = a - k * c * floordiv(a, k * c)`.
    fn without_remainder(&self, x: &IntExpr, divisor: i64) -> Option<(IntExpr, IntExpr)> {
        x.parts().0.iter().find_map(|term| {
            let Some(Atom::Mod(a, modulus)) = term.as_atom().filter(|_| term.coefficient() == 1)
            else {
                return None;
            };
            let whole = modulus.as_const().filter(|&m| m > 0 && m % divisor == 0)?;
            let rest = add_scaled(&add_scaled(x, &single(term), -1), a, 1);
            // The remainder goes, and something with it.
            let completes = rest.parts().0.len() + 1 < x.parts().0.len() && !rest.is_poison();
            let quotient = || self.scale(&self.floor_div_const(a, whole), -(whole / divisor));
            completes.then(|| (quotient(), rest))
        })
    }

    /// `mod(x, divisor)` for a positive number as divisor.
    fn modulo_const(&self, x: &IntExpr, divisor: i64) -> IntExpr {
        // The result is `offset + scale * mod(x, divisor)` all along.
        let (mut offset, mut scale) = (0, 1);
        let (mut x, mut divisor) = (x.clone(), divisor);
        let finish = |x: &IntExpr, offset: i64, scale: i64| {
            self.add(&IntExpr::constant(offset), &self.scale(x, scale))
        };
        for _ in 0..MAX_STEPS {
            if x.is_poison() {
                return x;
            }
            if let Some(x) = x.as_const() {
                let remainder = IntExpr::constant(x.rem_euclid(divisor));
                return finish(&remainder, offset, scale);
            }
            if let Some(remainder) = self.facts.modular(&x).remainder(divisor) {
                return finish(&IntExpr::constant(remainder), offset, scale);
            }
            if let Some(quotient) = quotient_in(self.facts.range(&x), divisor) {
                let remainder = add_scaled(&x, &quotient, -divisor);
                return finish(&remainder, offset, scale);
            }
            let unwrapped = unwrap_modulus(&x, divisor);
            let reduced = reduce_residues(&unwrapped, divisor);
            let (terms, constant) = reduced.parts();
            let common = terms.iter().fold(divisor, |g, term| gcd(g, term.coefficient()));
            if common == 1 {
                if reduced == x {
                    break;
                }
                x = reduced;
                continue;
            }
            // mod(g * y + r, g * c) = g * mod(y, c) + r for r below g
            offset += scale * constant.rem_euclid(common);
            scale *= common;
            divisor /= common;
            x = divide_coefficients(&reduced, common);
        }
        let atom = IntExpr::atom(Atom::Mod(x, IntExpr::constant(divisor)));
        finish(&atom, offset, scale)
    }

    /// `floordiv(a, b)` where `b` is not a number.
    fn floor_div_expr(&self, a: &IntExpr, b: &IntExpr) -> IntExpr {
        let (a, b) = match self.reduce_fraction(a, b) {
            Fraction { a, b, .. } if b.is_const() || a.is_const() && a.is(0) => {
                return self.floor_div(&a, &b);
            }
            fraction => (fraction.a, fraction.b),
        };
        let (quotient, rest) = self.divide(&a, &b);
        let floor = match self.known_quotient(&rest, &b) {
            Some(value) => IntExpr::constant(value),
            None => IntExpr::atom(Atom::FloorDiv(rest, b)),
        };
        self.add(&quotient, &floor)
    }

    /// `mod(a, b)` where `b` is not a number.
    fn modulo_expr(&self, a: &IntExpr, b: &IntExpr) -> IntExpr {
        let Fraction { a, b, scale } = self.reduce_fraction(a, b);
        let remainder = if b.is_const() || a.is(0) {
            self.modulo(&a, &b)
        } else {
            let (_, rest) = self.divide(&a, &b);
            match self.known_quotient(&rest, &b) {
                Some(quotient) => self.add(&rest, &self.scale(&b, -quotient)),
                None => IntExpr::atom(Atom::Mod(rest, b)),
            }
        };
        self.mul(&scale, &remainder)
    }

    /// `floordiv(a, b)`, if it is known to be one number.
    fn known_quotient(&self, a: &IntExpr, b: &IntExpr) -> Option<i64> {
        if a.is(0) || self.is_below(a, b) {
            return Some(0);
        }
        let divisor = self.facts.range(b);
        let range = self.facts.range(a).floor_div(divisor);
        let value = range.lower.filter(|_| range.lower == range.upper && !divisor.contains(0))?;
        i64::try_from(value).ok()
    }

    /// Whether `0 <= a < b` is known.
    fn is_below(&self, a: &IntExpr, b: &IntExpr) -> bool {
        let distance = add_scaled(&add_scaled(b, a, -1), &IntExpr::ONE, -1);
        self.facts.range(a).is_non_negative() && self.facts.proves_non_negative(&distance)
    }

    /// `a` and `b` without a sign or factor that they share, and that factor.
    fn reduce_fraction(&self, a: &IntExpr, b: &IntExpr) -> Fraction {
        let (mut a, mut b, mut scale) = (a.clone(), b.clone(), IntExpr::ONE);
        let content = gcd(content(&a), content(&b));
        if content > 1 {
            (a, b) = (divide_coefficients(&a, content), divide_coefficients(&b, content));
            scale = IntExpr::constant(content);
        }
        if b.parts().0.first().is_some_and(|term| term.coefficient() < 0) {
            let (minus_a, minus_b) = (self.scale(&a, -1), self.scale(&b, -1));
            if !minus_a.is_poison() && !minus_b.is_poison() {
                (a, b, scale) = (minus_a, minus_b, self.scale(&scale, -1));
            }
        }
        // A symbol may be cancelled only if it is known not to be zero.
        let candidates = b.parts().0.first().map_or(Vec::new(), |term| term.factors().to_vec());
        for mut factor in candidates {
            let power = factor.power;
            factor.power = 1;
            let product = Product::new(vec![factor]);
            let it =
                IntExpr::from_terms(vec![Term { product: product.clone(), coefficient: 1 }], 0);
            if !self.facts.proves_nonzero(&it) {
                continue;
            }
            for _ in 0..power {
                let (Some(next_a), Some(next_b)) = (cancel(&a, &product), cancel(&b, &product))
                else {
                    break;
                };
                (a, b, scale) = (next_a, next_b, self.mul(&scale, &it));
            }
        }
        Fraction { a, b, scale }
    }

    /// `a = quotient * b + rest`, where `b` divides `a` exactly or is a single term; otherwise the
    /// quotient is zero. So it is where `b` may be zero.
    fn divide(&self, a: &IntExpr, b: &IntExpr) -> (IntExpr, IntExpr) {
        let unchanged = (IntExpr::ZERO, a.clone());
        let (b_terms, b_constant) = b.parts();
        if a.is_const() || !self.facts.proves_nonzero(b) {
            return unchanged;
        }
        let is_monomial = b_terms.len() == 1 && b_constant == 0;
        let (mut quotient, mut rest) = (IntExpr::ZERO, a.clone());
        for _ in 0..MAX_STEPS {
            let candidates = if is_monomial { usize::MAX } else { 1 };
            let step =
                rest.parts().0.iter().take(candidates).find_map(|term| term.quotient_by_lead(b));
            let Some(step) = step else { break };
            quotient = self.add(&quotient, &step);
            rest = self.sub(&rest, &self.mul(&step, b));
            if quotient.is_poison() || rest.is_poison() {
                return unchanged;
            }
        }
        if rest.is(0) || is_monomial { (quotient, rest) } else { unchanged }
    }
}

struct Fraction {
    a: IntExpr,
    b: IntExpr,
    /// What both were divided by.
    scale: IntExpr,
}

/// The one quotient, rounded down, that all values of a range have.
fn quotient_in(range: Range, divisor: i64) -> Option<IntExpr> {
    let (lower, upper) = (range.lower?, range.upper?);
    let quotient = lower.div_euclid(divisor.into());
    let same = quotient == upper.div_euclid(divisor.into());
    i64::try_from(quotient).ok().filter(|_| same).map(IntExpr::constant)
}

/// `x = quotient * divisor + rest`, where the rest's constant is a remainder. The quotient takes
/// only terms that are multiples, unless all are to be split.
fn split_multiples(x: &IntExpr, divisor: i64, all: bool) -> (IntExpr, IntExpr) {
    let (terms, constant) = x.parts();
    let (mut multiples, mut rest) = (Vec::new(), Vec::new());
    for term in terms {
        let coefficient = term.coefficient();
        let (quotient, remainder) =
            (coefficient.div_euclid(divisor), coefficient.rem_euclid(divisor));
        let (quotient, remainder) =
            if all || remainder == 0 { (quotient, remainder) } else { (0, coefficient) };
        for (part, coefficient) in [(&mut multiples, quotient), (&mut rest, remainder)] {
            if coefficient != 0 {
                part.push(Term { product: term.product.clone(), coefficient });
            }
        }
    }
    (
        IntExpr::from_terms(multiples, constant.div_euclid(divisor)),
        IntExpr::from_terms(rest, constant.rem_euclid(divisor)),
    )
}

/// `floordiv(floordiv(a, c) + y, d)` is `floordiv(a + c * y, c * d)`: the new dividend and divisor.
fn merge_nested(x: &IntExpr, divisor: i64) -> Option<(IntExpr, i64)> {
    let mut found = None;
    for term in x.parts().0 {
        if let Some(Atom::FloorDiv(a, b)) = term.as_atom()
            && let Some(b) = b.as_const()
            && b > 0
            && term.coefficient() == 1
            && found.replace((term, a, b)).is_some()
        {
            return None;
        }
    }
    let (term, a, inner_divisor) = found?;
    let others = add_scaled(x, &single(term), -1);
    let merged = add_scaled(a, &others, inner_divisor);
    let divisor = divisor.checked_mul(inner_divisor)?;
    (!merged.is_poison()).then_some((merged, divisor))
}

/// Replaces `k * mod(a, m)` by `k * a` where `k * m` is a multiple of the divisor.
fn unwrap_modulus(x: &IntExpr, divisor: i64) -> IntExpr {
    let mut unwrapped = x.clone();
    for term in x.parts().0 {
        if let Some(Atom::Mod(a, modulus)) = term.as_atom()
            && let Some(modulus) = modulus.as_const()
            && i128::from(term.coefficient()) * i128::from(modulus) % i128::from(divisor) == 0
        {
            let without = add_scaled(&unwrapped, &single(term), -1);
            let with_operand = add_scaled(&without, a, term.coefficient());
            if !with_operand.is_poison() {
                unwrapped = with_operand;
            }
        }
    }
    unwrapped
}

/// Replaces each coefficient by its residue of least magnitude (the positive one of two), and the
/// constant by its remainder.
fn reduce_residues(x: &IntExpr, divisor: i64) -> IntExpr {
    let (terms, constant) = x.parts();
    let mut reduced = Vec::with_capacity(terms.len());
    for term in terms {
        let residue = term.coefficient().rem_euclid(divisor);
        let coefficient = if residue > divisor / 2 { residue - divisor } else { residue };
        if coefficient != 0 {
            reduced.push(Term { product: term.product.clone(), coefficient });
        }
    }
    IntExpr::from_terms(reduced, constant.rem_euclid(divisor))
}

/// Divides all coefficients by a positive number that divides them, and the constant rounding
/// down.
pub(super) fn divide_coefficients(x: &IntExpr, divisor: i64) -> IntExpr {
    let (terms, constant) = x.parts();
    let terms = terms
        .iter()
        .map(|term| Term {
            product: term.product.clone(),
            coefficient: term.coefficient() / divisor,
        })
        .collect();
    IntExpr::from_terms(terms, constant.div_euclid(divisor))
}

/// `x / product`, if it divides every term.
pub(super) fn cancel(x: &IntExpr, product: &Product) -> Option<IntExpr> {
    let (terms, constant) = x.parts();
    if constant != 0 {
        return None;
    }
    let mut sum = IntExpr::ZERO;
    for term in terms {
        let factors = divide_product(&term.product, product)?;
        sum = add_scaled(&sum, &monomial(factors, term.coefficient()), 1);
    }
    Some(sum)
}

/// The greatest common divisor of all coefficients and the constant.
pub(super) fn content(x: &IntExpr) -> i64 {
    let (terms, constant) = x.parts();
    terms.iter().fold(gcd(0, constant), |g, term| gcd(g, term.coefficient()))
}

/// The greatest common divisor; of a number and zero, the number. `i64::MIN` counts as one where
/// it would not fit.
pub(super) fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    i64::try_from(a).unwrap_or(1)
}

fn floor_div(a: i128, b: i128) -> i128 {
    let quotient = a / b;
    if quotient * b != a && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

fn modulo(a: i128, b: i128) -> i128 {
    a - b * floor_div(a, b)
}

fn narrow(value: i128) -> IntExpr {
    i64::try_from(value).map_or(IntExpr::overflow(), IntExpr::constant)
}
