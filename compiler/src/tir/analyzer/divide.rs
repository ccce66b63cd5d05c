//! Floor division of linear forms.
//!
//! Quotients and remainders are digits: `x floordiv 4` and `x floormod 4` are the upper and the
//! lower digit of `x` to the base 4. A form that is made of blocks, such as `16·i + 4·j + k` with
//! `k` in `0..4`, is split along them; and adjacent digits of one form are one digit again.

use crate::ir::DType;

use super::Analyzer;
use super::linear::{Atom, AtomId, Linear, gcd};

/// `divisor · quotient + unit · digits + rest`, where `unit` divides the divisor and `rest` is in
/// `0..unit`.
struct Blocks {
    quotient: Linear,
    unit: i64,
    digits: Linear,
    rest: Linear,
}

impl Analyzer {
    /// Whether a sum with an offset does not wrap; `None` where its constant overflows.
    fn is_sum_exact(&self, whole: &Linear, offset: i64) -> Option<bool> {
        let sum = whole.scaled(1, offset)?;
        let dtype = if self.is_narrow(&sum) { DType::I32 } else { DType::I64 };
        Some(self.is_exact(&sum, dtype))
    }

    /// `linear floordiv divisor`, for a positive divisor; `None` where a factor overflows.
    pub(super) fn floor_div(&mut self, linear: &Linear, divisor: i64) -> Option<Linear> {
        let blocks = self.blocks(linear, divisor)?;
        let digits = self.digit(blocks.digits, divisor / blocks.unit, None)?;
        blocks.quotient.plus(&digits, 1)
    }

    /// `linear floormod divisor`, for a positive divisor; `None` where a factor overflows.
    pub(super) fn floor_mod(&mut self, linear: &Linear, divisor: i64) -> Option<Linear> {
        let blocks = self.blocks(linear, divisor)?;
        let digits = self.digit(blocks.digits, 1, Some(divisor / blocks.unit))?;
        let sum = blocks.rest.plus(&digits, blocks.unit)?;
        Some(self.merge_digits(sum))
    }

    fn blocks(&mut self, linear: &Linear, divisor: i64) -> Option<Blocks> {
        let mut quotient = Linear::constant(linear.constant.div_euclid(divisor));
        let mut rest = Linear::constant(linear.constant.rem_euclid(divisor));
        for (atom, factor) in &linear.terms {
            let (whole, part) = (factor / divisor, factor % divisor);
            quotient.add_term(*atom, whole)?;
            match self.known_remainder(*atom, part, divisor) {
                Some(remainder) => {
                    let mut multiple = Linear::constant(-remainder);
                    multiple.add_term(*atom, part)?;
                    // `part · atom - remainder` is a multiple of the divisor.
                    let exact = Atom::Digit { of: multiple, lower: divisor, upper: None };
                    quotient.add_term(self.intern(exact), 1)?;
                    rest.add_constant(remainder)?;
                }
                None => rest.add_term(*atom, part)?,
            }
        }
        if let Some(whole) = self.range(&rest).block(divisor) {
            quotient.add_constant(whole)?;
            rest.add_constant(whole.checked_mul(-divisor)?)?;
            return Some(Blocks { quotient, unit: divisor, digits: Linear::default(), rest });
        }
        let mut units: Vec<i64> = rest.terms.iter().map(|term| gcd(divisor, term.1)).collect();
        units.sort_unstable_by(|a, b| b.cmp(a));
        units.dedup();
        for unit in units.into_iter().filter(|unit| *unit > 1) {
            if let Some((digits, rest)) = self.split_at(&rest, unit) {
                return Some(Blocks { quotient, unit, digits, rest });
            }
        }
        Some(Blocks { quotient, unit: 1, digits: rest, rest: Linear::default() })
    }

    /// `linear = unit · digits + rest` with `rest` in `0..unit`, if the terms that `unit` does not
    /// divide stay in one block.
    pub(super) fn split_at(&self, linear: &Linear, unit: i64) -> Option<(Linear, Linear)> {
        let mut digits = Linear::constant(linear.constant.div_euclid(unit));
        let mut rest = Linear::constant(linear.constant.rem_euclid(unit));
        for (atom, factor) in &linear.terms {
            if factor % unit == 0 {
                digits.add_term(*atom, factor / unit)?;
            } else {
                rest.add_term(*atom, *factor)?;
            }
        }
        let whole = self.range(&rest).block(unit)?;
        digits.add_constant(whole)?;
        rest.add_constant(whole.checked_mul(-unit)?)?;
        Some((digits, rest))
    }

    /// The remainder of `factor · atom`, if the congruence of the atom gives it; `None` for a
    /// factor of 0.
    fn known_remainder(&self, atom: AtomId, factor: i64, divisor: i64) -> Option<i64> {
        let modular = self.known[atom].as_ref()?.modular;
        if factor == 0 || modular.coeff() == 1 {
            return None;
        }
        modular.mul(crate::arith::Modular::point(factor)).remainder(divisor)
    }

    /// `(of floormod upper) floordiv lower` for forms that blocks do not decide.
    fn digit(&mut self, of: Linear, lower: i64, upper: Option<i64>) -> Option<Linear> {
        if let Some(value) = of.as_const() {
            let value = upper.map_or(value, |upper| value.rem_euclid(upper));
            return Some(Linear::constant(value.div_euclid(lower)));
        }
        if lower == 1 && upper.is_none() {
            return Some(of);
        }
        // A digit of a digit is a digit of the whole.
        if let [(atom, 1)] = of.terms[..]
            && let Atom::Digit { of: whole, lower: inner, upper: outer } = self.atom(atom)
        {
            let (mut whole, inner, outer) = (whole.clone(), *inner, *outer);
            let low = inner.checked_mul(lower)?;
            let high = match upper {
                Some(upper) => Some(inner.checked_mul(upper)?),
                None => None,
            };
            let offset = of.constant.checked_mul(inner)?;
            match (outer, high) {
                // The addition before the division must not wrap.
                (None, _) if offset != 0 && !self.is_sum_exact(&whole, offset)? => {}
                (None, None) => {
                    whole.add_constant(offset)?;
                    return self.floor_div(&whole, low);
                }
                (None, Some(high)) => {
                    whole.add_constant(offset)?;
                    return self.whole_digit(whole, low, high);
                }
                (Some(outer), None) if offset == 0 && outer % low == 0 => {
                    return self.whole_digit(whole, low, outer);
                }
                (Some(outer), Some(high)) if offset == 0 && outer % high == 0 => {
                    return self.whole_digit(whole, low, high);
                }
                (Some(_), _) => {}
            }
        }
        Some(Linear::atom(self.intern(Atom::Digit { of, lower, upper })))
    }

    /// `(of floormod upper) floordiv lower`, in blocks of `lower` where there are some.
    fn whole_digit(&mut self, of: Linear, lower: i64, upper: i64) -> Option<Linear> {
        if lower == upper {
            return Some(Linear::default());
        }
        if lower == 1 {
            return self.floor_mod(&of, upper);
        }
        if let Some((digits, _)) = self.split_at(&of, lower) {
            return self.floor_mod(&digits, upper / lower);
        }
        let range = self.range(&of);
        if range.min >= 0 && range.max < upper.into() {
            return self.floor_div(&of, lower);
        }
        // Terms that are multiples of the upper end do not change the digit.
        let mut rest = Linear::constant(of.constant.rem_euclid(upper));
        for (atom, factor) in &of.terms {
            rest.add_term(*atom, factor % upper)?;
        }
        Some(Linear::atom(self.intern(Atom::Digit { of: rest, lower, upper: Some(upper) })))
    }

    /// Joins adjacent digits of one form: `4·(x floordiv 4) + x floormod 4` is `x`.
    pub(super) fn merge_digits(&mut self, mut sum: Linear) -> Linear {
        while let Some(merged) = self.merge_two_digits(&sum) {
            sum = merged;
        }
        sum
    }

    fn merge_two_digits(&mut self, sum: &Linear) -> Option<Linear> {
        if sum.terms.len() < 2 {
            return None;
        }
        for (atom, factor) in &sum.terms {
            let Atom::Digit { of, lower, upper: Some(upper) } = self.atom(*atom) else { continue };
            let Some(next_factor) = factor.checked_mul(upper / lower) else { continue };
            let next = sum.terms.iter().find_map(|(next, other)| match self.atom(*next) {
                Atom::Digit { of: whole, lower: start, upper: end }
                    if *other == next_factor && start == upper && whole == of =>
                {
                    Some((*next, *end))
                }
                _ => None,
            });
            let Some((next, end)) = next else { continue };
            let (factor, lower, of) = (*factor, *lower, of.clone());
            let digit = match (lower, end) {
                (1, None) => of,
                _ => Linear::atom(self.intern(Atom::Digit { of, lower, upper: end })),
            };
            return sum.without(*atom).without(next).plus(&digit, factor);
        }
        None
    }

    /// `linear floordiv divisor` for a divisor that is a product of atoms and divides all terms
    /// except some whose sum is in `0..divisor`.
    pub(super) fn floor_div_by_form(
        &mut self,
        linear: &Linear,
        divisor: &Linear,
    ) -> Option<Linear> {
        Some(self.divide_by_form(linear, divisor)?.0)
    }

    /// The remainder of [`floor_div_by_form`](Self::floor_div_by_form).
    pub(super) fn floor_mod_by_form(
        &mut self,
        linear: &Linear,
        divisor: &Linear,
    ) -> Option<Linear> {
        Some(self.divide_by_form(linear, divisor)?.1)
    }

    fn divide_by_form(&mut self, linear: &Linear, divisor: &Linear) -> Option<(Linear, Linear)> {
        let [(by, scale @ 1..)] = divisor.terms[..] else { return None };
        if divisor.constant != 0 {
            return None;
        }
        let by = self.factors(by);
        let mut quotient = Linear::default();
        let mut rest = Linear::constant(linear.constant);
        for (atom, factor) in &linear.terms {
            let mut left = self.factors(*atom);
            let divides = factor % scale == 0
                && by.iter().all(|wanted| {
                    let found = left.iter().position(|atom| atom == wanted);
                    found.map(|index| left.remove(index)).is_some()
                });
            match &left[..] {
                _ if !divides => rest.add_term(*atom, *factor)?,
                [] => quotient.add_constant(factor / scale)?,
                [one] => quotient.add_term(*one, factor / scale)?,
                [_, ..] => {
                    let product = self.intern(Atom::Product(left));
                    quotient.add_term(product, factor / scale)?;
                }
            }
        }
        let below = divisor.plus(&rest, -1)?.plus(&Linear::constant(1), -1)?;
        let decided = self.is_not_negative(&rest, 2) && self.is_not_negative(&below, 2);
        decided.then_some((quotient, rest))
    }
}
