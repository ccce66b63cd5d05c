//! Proofs of comparisons.

use crate::tir::{BinaryOp, CompareOp, PrimExpr, PrimType, UnaryOp};

use super::linear::{Atom, AtomId, Linear};
use super::range::Range;
use super::{Analyzer, MAX_CHOICES};

/// Number of forms that one proof may examine. A fact or a minimum in a form turns it into one or
/// two others, so the number could double with each step.
const MAX_STEPS: u32 = 64;

/// Number of facts, minima and divisions that one proof may use in succession.
const MAX_PROOF_DEPTH: u32 = 5;

impl Analyzer {
    /// Whether the comparison of two integers is the same for all values of the variables; `depth`
    /// is the number of steps to take if ranges do not suffice.
    pub(super) fn decide(
        &self,
        op: CompareOp,
        lhs: &Linear,
        rhs: &Linear,
        depth: u32,
    ) -> Option<bool> {
        let difference = lhs.plus(rhs, -1)?;
        match op {
            CompareOp::Lt => self.decide_negative(&difference, depth),
            CompareOp::Ge => self.decide_negative(&difference, depth).map(|holds| !holds),
            CompareOp::Gt => self.decide_negative(&difference.scaled(-1, 0)?, depth),
            CompareOp::Le => {
                self.decide_negative(&difference.scaled(-1, 0)?, depth).map(|holds| !holds)
            }
            CompareOp::Eq => self.decide_zero(&difference, depth),
            CompareOp::Ne => self.decide_zero(&difference, depth).map(|holds| !holds),
        }
    }

    fn decide_negative(&self, form: &Linear, depth: u32) -> Option<bool> {
        let range = self.range(form);
        if range.max < 0 {
            return Some(true);
        }
        if range.min >= 0 {
            return Some(false);
        }
        if !self.may_relate(form) {
            return None;
        }
        if self.is_not_negative(form, depth) {
            return Some(false);
        }
        self.is_not_negative(&form.scaled(-1, -1)?, depth).then_some(true)
    }

    fn decide_zero(&self, form: &Linear, depth: u32) -> Option<bool> {
        if let Some(value) = form.as_const() {
            return Some(value == 0);
        }
        let range = self.range(form);
        if range.min > 0 || range.max < 0 || !self.modular(form).contains(0) {
            return Some(false);
        }
        if range == Range::point(0) {
            return Some(true);
        }
        if !self.may_relate(form) {
            return None;
        }
        let negated = form.scaled(-1, 0)?;
        if self.is_not_negative(form, depth) && self.is_not_negative(&negated, depth) {
            return Some(true);
        }
        let apart = self.is_not_negative(&form.scaled(1, -1)?, depth)
            || self.is_not_negative(&negated.scaled(1, -1)?, depth);
        apart.then_some(false)
    }

    /// Whether anything beyond the ranges of the atoms is known about a form.
    fn may_relate(&self, form: &Linear) -> bool {
        !self.facts.is_empty()
            || form.terms.iter().any(|(atom, _)| !matches!(self.atom(*atom), Atom::Var(_)))
    }

    /// Whether the form is at least 0 for all values of the variables, as far as `depth` steps
    /// show.
    pub(super) fn is_not_negative(&self, form: &Linear, depth: u32) -> bool {
        let mut steps = MAX_STEPS;
        self.contradiction || self.prove(form, depth.min(MAX_PROOF_DEPTH), &mut steps)
    }

    fn prove(&self, form: &Linear, depth: u32, steps: &mut u32) -> bool {
        if self.range(form).min >= 0 {
            return true;
        }
        if depth == 0 || *steps == 0 {
            return false;
        }
        *steps -= 1;
        for (atom, factor) in &form.terms {
            if self.prove_by_atom(form, *atom, *factor, depth - 1, steps) {
                return true;
            }
        }
        for fact in &self.facts {
            // A multiple of the fact cancels one of the form's atoms.
            for (atom, by) in &fact.terms {
                let factor = form.factor_of(*atom);
                if factor == 0 || (factor < 0) != (*by < 0) {
                    continue;
                }
                let rest = form
                    .scaled(by.saturating_abs(), 0)
                    .zip(fact.scaled(factor.saturating_abs(), 0))
                    .and_then(|(form, fact)| form.plus(&fact, -1));
                if rest.is_some_and(|rest| {
                    rest.factor_of(*atom) == 0 && self.prove(&rest, depth - 1, steps)
                }) {
                    return true;
                }
            }
        }
        false
    }

    /// Proves a form by bounds of one of its atoms.
    fn prove_by_atom(
        &self,
        form: &Linear,
        atom: AtomId,
        factor: i64,
        depth: u32,
        steps: &mut u32,
    ) -> bool {
        let rest = form.without(atom);
        let with = |value: &Linear, steps: &mut u32| {
            rest.plus(value, factor).is_some_and(|form| self.prove(&form, depth, steps))
        };
        match self.atom(atom) {
            Atom::Min(a, b) if factor < 0 => with(a, steps) || with(b, steps),
            Atom::Max(a, b) if factor > 0 => with(a, steps) || with(b, steps),
            Atom::Min(a, b) | Atom::Max(a, b) | Atom::Select { cond: _, then: a, otherwise: b } => {
                with(a, steps) && with(b, steps)
            }
            // lower · digit is at most `of` and more than `of - lower`.
            Atom::Digit { of, lower, upper: None } => {
                let bound = if factor < 0 { Some(of.clone()) } else { of.scaled(1, 1 - lower) };
                rest.scaled(*lower, 0)
                    .zip(bound)
                    .and_then(|(rest, bound)| rest.plus(&bound, factor))
                    .is_some_and(|form| self.prove(&form, depth, steps))
            }
            // A remainder is not greater than its dividend.
            Atom::Digit { of, lower: 1, upper: Some(_) } if factor < 0 => {
                self.range(of).min >= 0 && with(of, steps)
            }
            Atom::Widen(value) => {
                self.range(value).within(Range::of_dtype(crate::ir::DType::I32))
                    && with(value, steps)
            }
            Atom::Product(atoms) => atoms.iter().enumerate().any(|(index, bounded)| {
                self.bound_of_product(atoms, index, *bounded, factor < 0)
                    .is_some_and(|bound| with(&bound, steps))
            }),
            Atom::Var(_) | Atom::Digit { .. } | Atom::Opaque { .. } => false,
        }
    }

    /// A product with one of its atoms replaced by an end of its range, if the others are not
    /// negative: the greatest value of the product, or the least.
    fn bound_of_product(
        &self,
        atoms: &[AtomId],
        index: usize,
        bounded: AtomId,
        greatest: bool,
    ) -> Option<Linear> {
        let mut rest = atoms.to_vec();
        rest.remove(index);
        let rest = match rest[..] {
            [one] => one,
            _ => AtomId::from_u32(self.atoms.get_index_of(&Atom::Product(rest))? as u32),
        };
        let range = self.atom_range(bounded);
        let end = i64::try_from(if greatest { range.max } else { range.min }).ok()?;
        let is_bound = self.atom_range(rest).min >= 0 && range != Range::ALL;
        if is_bound { Linear::atom(rest).scaled(end, 0) } else { None }
    }

    /// Whether a simplified condition is the same in all cases of a known alternative; `None` if no
    /// alternative is known.
    pub(crate) fn decide_by_cases(&mut self, cond: &PrimExpr) -> Option<bool> {
        let choices = self.choices.len().min(MAX_CHOICES);
        if choices == 0 {
            return None;
        }
        if self.prove_condition(cond, choices) {
            return Some(true);
        }
        let denied = self.expr(PrimExpr::unary(UnaryOp::Not, cond.clone()));
        self.prove_condition(&denied, choices).then_some(false)
    }

    /// Whether a simplified condition holds, by its parts and by cases.
    pub(super) fn prove_condition(&mut self, cond: &PrimExpr, choices: usize) -> bool {
        if self.contradiction {
            return true;
        }
        let proven = match cond {
            PrimExpr::Int { value, .. } => *value != 0,
            PrimExpr::Broadcast { value, .. } => self.prove_condition(value, choices),
            PrimExpr::Binary { op: BinaryOp::And, lhs, rhs } if cond.ty() == PrimType::BOOL => {
                return self.prove_condition(lhs, choices) && self.prove_condition(rhs, choices);
            }
            PrimExpr::Unary { op: UnaryOp::Not, value } => match &**value {
                PrimExpr::Binary { op: BinaryOp::And, lhs, rhs } => {
                    let either = PrimExpr::binary(BinaryOp::Or, !(**lhs).clone(), !(**rhs).clone());
                    let either = self.expr(either);
                    return self.prove_condition(&either, choices);
                }
                PrimExpr::Binary { op: BinaryOp::Or, lhs, rhs } => {
                    return [lhs, rhs].into_iter().all(|side| {
                        let denied = self.expr(!(**side).clone());
                        self.prove_condition(&denied, choices)
                    });
                }
                _ => self.truth_of(cond) == Some(true),
            },
            PrimExpr::Binary { op: BinaryOp::Or, lhs, rhs } if cond.ty() == PrimType::BOOL => {
                self.scope(|this| {
                    this.assume_known(lhs, false);
                    this.prove_condition(rhs, choices)
                }) || self.scope(|this| {
                    this.assume_known(rhs, false);
                    this.prove_condition(lhs, choices)
                })
            }
            PrimExpr::Compare { op, lhs, rhs } if self.is_index_arithmetic(lhs) => {
                let dtype = lhs.dtype();
                let (left, right) = (self.linear(lhs), self.linear(rhs));
                self.is_exact(&left, dtype)
                    && self.is_exact(&right, dtype)
                    && self.decide(*op, &left, &right, MAX_PROOF_DEPTH) == Some(true)
            }
            other => self.truth_of(other) == Some(true),
        };
        if proven || choices == 0 {
            return proven;
        }
        // By the cases of a known alternative.
        let Some((lhs, rhs)) = self.choices.get(choices - 1).cloned() else { return false };
        [lhs, rhs].iter().all(|case| {
            self.scope(|this| {
                this.assume_known(&case.0, case.1);
                let cond = this.expr(cond.clone());
                this.prove_condition(&cond, choices - 1)
            })
        })
    }

    /// Whether a condition that is no comparison was assumed or denied.
    pub(super) fn truth_of(&self, cond: &PrimExpr) -> Option<bool> {
        let known = |cond: &PrimExpr| {
            self.truths.iter().find(|(known, _)| known == cond).map(|(_, holds)| *holds)
        };
        known(cond).or_else(|| match cond {
            PrimExpr::Unary { op: UnaryOp::Not, value } => known(value).map(|holds| !holds),
            _ => None,
        })
    }
}
