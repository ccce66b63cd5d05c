//! What an integer is congruent to.

use std::fmt;

use super::division::gcd;
use super::expr::{Atom, IntExpr, View};
use super::symbol::Symbol;

/// All integers `coeff * k + base` for any `k`.
///
/// Zero as `coeff` leaves one value; one leaves all. `base` is less than a positive `coeff`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Modular {
    coeff: i64,
    base: i64,
}

impl Modular {
    /// All integers.
    pub const ALL: Modular = Modular { coeff: 1, base: 0 };

    /// The integers congruent to `base` modulo `coeff`; the sign of `coeff` does not matter.
    pub fn new(coeff: i64, base: i64) -> Modular {
        Modular::narrow(coeff.into(), base.into())
    }

    /// One integer.
    pub const fn point(value: i64) -> Modular {
        Modular { coeff: 0, base: value }
    }

    /// The distance between neighbours; zero if there is only one value.
    pub fn coeff(self) -> i64 {
        self.coeff
    }

    /// The least value that is not negative, or the only one.
    pub fn base(self) -> i64 {
        self.base
    }

    /// Whether the value is one of these.
    pub fn contains(self, value: i64) -> bool {
        let distance = i128::from(value) - i128::from(self.base);
        if self.coeff == 0 { distance == 0 } else { distance % i128::from(self.coeff) == 0 }
    }

    /// The remainder that all values leave, if it is the same for all; none by zero.
    pub fn remainder(self, divisor: i64) -> Option<i64> {
        let divisor = divisor.checked_abs().filter(|it| *it > 0)?;
        (self.coeff % divisor == 0).then(|| self.base.rem_euclid(divisor))
    }

    /// What both contain, or `None` if that is nothing. Where the exact answer does not fit, the
    /// first of the two.
    pub fn intersect(self, other: Modular) -> Option<Modular> {
        if self.coeff == 0 {
            return other.contains(self.base).then_some(self);
        }
        if other.coeff == 0 {
            return self.contains(other.base).then_some(other);
        }
        let (a, b) = (i128::from(self.coeff), i128::from(other.coeff));
        let distance = i128::from(other.base) - i128::from(self.base);
        let (divisor, inverse) = extended_gcd(a, b);
        if distance % divisor != 0 {
            return None;
        }
        let step = b / divisor;
        let steps = (distance / divisor % step * (inverse % step)).rem_euclid(step);
        let both = a.checked_mul(step).zip(a.checked_mul(steps));
        match both.map(|(coeff, offset)| (coeff, offset + i128::from(self.base))) {
            Some((coeff, base)) if coeff <= i64::MAX.into() => Some(Modular::narrow(coeff, base)),
            _ => Some(self),
        }
    }

    /// The set for a distance and a member of any size; all integers where that does not fit.
    fn narrow(coeff: i128, base: i128) -> Modular {
        let coeff = coeff.unsigned_abs();
        let Ok(coeff) = i64::try_from(coeff) else { return Modular::ALL };
        let base = if coeff == 0 { base } else { base.rem_euclid(coeff.into()) };
        i64::try_from(base).map_or(Modular::ALL, |base| Modular { coeff, base })
    }

    /// The sums.
    pub(crate) fn add(self, other: Modular) -> Modular {
        let base = i128::from(self.base) + i128::from(other.base);
        Modular::narrow(gcd(self.coeff, other.coeff).into(), base)
    }

    /// The products.
    pub(crate) fn mul(self, other: Modular) -> Modular {
        let wide = |a: i64, b: i64| i128::from(a) * i128::from(b);
        let coeff = gcd_wide(
            gcd_wide(wide(self.coeff, other.coeff), wide(self.coeff, other.base)),
            wide(self.base, other.coeff),
        );
        Modular::narrow(coeff, wide(self.base, other.base))
    }

    /// The quotients, rounded down.
    pub(crate) fn floor_div(self, divisor: i64) -> Modular {
        if divisor > 0 && self.coeff % divisor == 0 {
            Modular::new(self.coeff / divisor, self.base.div_euclid(divisor))
        } else {
            Modular::ALL
        }
    }

    /// The remainders of [`floor_div`](Self::floor_div).
    pub(crate) fn modulo(self, divisor: i64) -> Modular {
        if divisor <= 0 {
            return Modular::ALL;
        }
        match self.remainder(divisor) {
            Some(remainder) => Modular::point(remainder),
            None => Modular::new(gcd(self.coeff, divisor), self.base),
        }
    }

    /// The smallest set that contains both.
    pub(crate) fn union(self, other: Modular) -> Modular {
        let distance = i128::from(self.base) - i128::from(other.base);
        let coeff = gcd_wide(gcd(self.coeff, other.coeff).into(), distance);
        Modular::narrow(coeff, self.base.into())
    }
}

impl fmt::Display for Modular {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.coeff, self.base) {
            (0, value) => write!(f, "{value}"),
            (coeff, 0) => write!(f, "{coeff}*k"),
            (coeff, base) => write!(f, "{coeff}*k + {base}"),
        }
    }
}

fn gcd_wide(a: i128, b: i128) -> i128 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    // Operands are products of two `i64`: the divisor of two of them is at most 2^126.
    i128::try_from(a).unwrap_or(1)
}

/// The greatest common divisor of two positive numbers, and `x` with `a * x = gcd` modulo `b`.
fn extended_gcd(a: i128, b: i128) -> (i128, i128) {
    let (mut r, mut next_r) = (a, b);
    let (mut x, mut next_x) = (1, 0);
    while next_r != 0 {
        let quotient = r / next_r;
        (r, next_r) = (next_r, r - quotient * next_r);
        (x, next_x) = (next_x, x - quotient * next_x);
    }
    (r, x)
}

/// What `expr` is congruent to, where each symbol is in its set.
pub(super) fn modular_of(expr: &IntExpr, of_symbol: &dyn Fn(&Symbol) -> Modular) -> Modular {
    let poly = match expr.view() {
        View::Const(value) => return Modular::point(value),
        View::Poison(_) => return Modular::ALL,
        View::Poly(poly) => poly,
    };
    let mut sum = Modular::point(poly.constant());
    for term in poly.terms() {
        let mut product = Modular::point(term.coefficient());
        for factor in term.factors() {
            let atom = modular_of_atom(&factor.atom, of_symbol);
            for _ in 0..factor.power {
                product = product.mul(atom);
            }
        }
        sum = sum.add(product);
    }
    sum
}

fn modular_of_atom(atom: &Atom, of_symbol: &dyn Fn(&Symbol) -> Modular) -> Modular {
    match atom {
        Atom::Symbol(symbol) => of_symbol(symbol),
        Atom::FloorDiv(a, b) => match b.as_const() {
            Some(divisor) => modular_of(a, of_symbol).floor_div(divisor),
            None => Modular::ALL,
        },
        Atom::Mod(a, b) => match b.as_const() {
            Some(divisor) => modular_of(a, of_symbol).modulo(divisor),
            None => Modular::ALL,
        },
        Atom::Min(operands) | Atom::Max(operands) => operands
            .iter()
            .map(|operand| modular_of(operand, of_symbol))
            .reduce(Modular::union)
            .unwrap_or(Modular::ALL),
    }
}
