//! Knowledge in a scope: ranges of variables, and conditions.

use crate::arith::Modular;
use crate::ir::DType;
use crate::tir::{BinaryOp, CompareOp, PrimExpr, PrimType, UnaryOp, VarId};

use super::Analyzer;
use super::linear::{Atom, AtomId, Linear};
use super::range::{Range, reads_memory};

/// Knowledge about an atom beyond its form.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) range: Range,
    pub(super) modular: Modular,
    /// Whether this is a variable of a loop or a dimension.
    pub(super) index: bool,
    /// Whether this is a variable of `int32`.
    pub(super) narrow: bool,
}

impl Known {
    const NOTHING: Known =
        Known { range: Range::ALL, modular: Modular::ALL, index: false, narrow: false };
}

/// A condition and whether it holds.
pub(super) type Case = (PrimExpr, bool);

/// A change made in a scope, with the former state.
#[derive(Debug)]
pub(super) enum Undo {
    Known(AtomId, Option<Known>),
    Value(VarId, Option<PrimExpr>),
    Contradiction(bool),
}

/// Where a scope began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scope {
    facts: usize,
    truths: usize,
    choices: usize,
    trail: usize,
}

impl Analyzer {
    /// Begins a scope, which [`leave`](Self::leave) ends.
    pub(crate) fn enter(&self) -> Scope {
        Scope {
            facts: self.facts.len(),
            truths: self.truths.len(),
            choices: self.choices.len(),
            trail: self.trail.len(),
        }
    }

    /// Forgets everything learned since a scope began.
    pub(crate) fn leave(&mut self, scope: Scope) {
        self.facts.truncate(scope.facts);
        self.truths.truncate(scope.truths);
        self.choices.truncate(scope.choices);
        while self.trail.len() > scope.trail {
            match self.trail.pop() {
                Some(Undo::Known(atom, before)) => self.known[atom] = before,
                Some(Undo::Value(var, Some(before))) => {
                    self.values.insert(var, before);
                }
                Some(Undo::Value(var, None)) => {
                    self.values.remove(&var);
                }
                Some(Undo::Contradiction(before)) => self.contradiction = before,
                None => break,
            }
        }
    }

    fn set_known(&mut self, atom: AtomId, known: Known) {
        if known.range.is_empty() {
            self.contradict();
            return;
        }
        let before = self.known[atom].replace(known);
        self.trail.push(Undo::Known(atom, before));
    }

    fn contradict(&mut self) {
        self.trail.push(Undo::Contradiction(self.contradiction));
        self.contradiction = true;
    }

    /// Replaces uses of a variable by a value.
    pub(crate) fn set_value(&mut self, var: VarId, value: PrimExpr) {
        let before = self.values.insert(var, value);
        self.trail.push(Undo::Value(var, before));
    }

    /// Declares a variable and forgets what was known about it.
    fn declare(&mut self, var: VarId, known: Known) -> AtomId {
        if let Some(before) = self.values.remove(&var) {
            self.trail.push(Undo::Value(var, Some(before)));
        }
        let atom = self.var_atom(var);
        let before = self.known[atom].replace(known);
        self.trail.push(Undo::Known(atom, before));
        atom
    }

    /// A variable of a loop with these bounds.
    pub(super) fn bind_forms(&mut self, var: VarId, min: &Linear, extent: &Linear, dtype: DType) {
        let narrow = dtype == DType::I32;
        if narrow && !(self.is_exact(min, dtype) && self.is_exact(extent, dtype)) {
            let range = Range::of_dtype(dtype);
            self.declare(var, Known { range, narrow, ..Known::NOTHING });
            return;
        }
        let (first, count) = (self.range(min), self.range(extent));
        // Uses of the variable are in an iteration, so there is at least one.
        let last = Range { min: 0, max: count.max.max(1) - 1 };
        let range = first.add(last).intersect(Range::of_dtype(dtype));
        let atom = self.declare(var, Known { range, index: true, narrow, ..Known::NOTHING });
        let constant = min.as_const().is_some() && extent.as_const().is_some();
        if constant || !self.is_stable(min) || !self.is_stable(extent) {
            return;
        }
        let var = Linear::atom(atom);
        let gap = min.plus(extent, 1).and_then(|end| end.plus(&var, -1));
        let below = gap.and_then(|gap| gap.scaled(1, -1));
        for fact in [var.plus(min, -1), below, extent.scaled(1, -1)].into_iter().flatten() {
            self.add_fact(fact);
        }
    }

    /// Declares a variable as a name for a value, with the value's range and congruence.
    pub(crate) fn define(&mut self, var: VarId, value: &PrimExpr) {
        if !value.ty().is_scalar() || !matches!(value.dtype(), DType::I64 | DType::I32) {
            self.declare(var, Known::NOTHING);
            return;
        }
        let dtype = value.dtype();
        let value = self.linear(value);
        let narrow = dtype == DType::I32;
        if narrow && !self.is_exact(&value, dtype) {
            let range = Range::of_dtype(dtype);
            self.declare(var, Known { range, narrow, ..Known::NOTHING });
            return;
        }
        let range = self.range(&value).intersect(Range::ALL);
        let modular = self.modular(&value);
        let index = value.terms.iter().all(|(atom, _)| self.is_index(*atom));
        let atom = self.declare(var, Known { range, modular, index, narrow });
        if self.is_stable(&value)
            && let Some(difference) = Linear::atom(atom).plus(&value, -1)
            && let Some(negated) = difference.scaled(-1, 0)
        {
            self.facts.extend([difference, negated]);
        }
    }

    /// Records that a simplified condition holds or does not.
    pub(super) fn assume_known(&mut self, cond: &PrimExpr, holds: bool) {
        match cond {
            PrimExpr::Int { value, .. } => {
                if (*value != 0) != holds {
                    self.contradict();
                }
            }
            PrimExpr::Broadcast { value, .. } => self.assume_known(value, holds),
            PrimExpr::Unary { op: UnaryOp::Not, value } => self.assume_known(value, !holds),
            PrimExpr::Binary { op: op @ (BinaryOp::And | BinaryOp::Or), lhs, rhs }
                if cond.ty() == PrimType::BOOL =>
            {
                if (*op == BinaryOp::And) == holds {
                    self.assume_known(lhs, holds);
                    self.assume_known(rhs, holds);
                } else {
                    self.truths.push((cond.clone(), holds));
                    let cases = (((**lhs).clone(), holds), ((**rhs).clone(), holds));
                    self.choices.push(cases);
                }
            }
            PrimExpr::Compare { op, lhs, rhs } if self.is_index_arithmetic(lhs) => {
                self.truths.push((cond.clone(), holds));
                let op = if holds { *op } else { op.negated() };
                self.assume_comparison(op, lhs, rhs);
            }
            other => self.truths.push((other.clone(), holds)),
        }
    }

    /// Assumes the parts of a condition that stay true while statements run, that is those that
    /// read no memory.
    pub(crate) fn assume_stable(&mut self, cond: &PrimExpr, holds: bool) {
        match cond {
            PrimExpr::Unary { op: UnaryOp::Not, value } => self.assume_stable(value, !holds),
            PrimExpr::Binary { op: op @ (BinaryOp::And | BinaryOp::Or), lhs, rhs }
                if (*op == BinaryOp::And) == holds && cond.ty() == PrimType::BOOL =>
            {
                self.assume_stable(lhs, holds);
                self.assume_stable(rhs, holds);
            }
            other if reads_memory(other) => {}
            other => self.assume_known(other, holds),
        }
    }

    fn assume_comparison(&mut self, op: CompareOp, lhs: &PrimExpr, rhs: &PrimExpr) {
        let dtype = lhs.dtype();
        let (left, right) = (self.linear(lhs), self.linear(rhs));
        if !self.is_exact(&left, dtype) || !self.is_exact(&right, dtype) {
            return;
        }
        let Some(difference) = left.plus(&right, -1) else { return };
        let Some(negated) = difference.scaled(-1, 0) else { return };
        let less_one = |form: &Linear| form.scaled(1, -1);
        let facts = match op {
            CompareOp::Lt => [less_one(&negated), None],
            CompareOp::Le => [Some(negated), None],
            CompareOp::Gt => [less_one(&difference), None],
            CompareOp::Ge => [Some(difference), None],
            CompareOp::Eq => {
                self.assume_remainder(&difference);
                [Some(difference), Some(negated)]
            }
            CompareOp::Ne => {
                self.exclude_zero(&difference);
                [None, None]
            }
        };
        for fact in facts.into_iter().flatten() {
            self.add_fact(fact);
        }
    }

    /// Records `x floormod n = r`, given the difference of both sides.
    fn assume_remainder(&mut self, difference: &Linear) {
        let [(atom, factor @ (1 | -1))] = difference.terms[..] else { return };
        let Atom::Digit { of, lower: 1, upper: Some(divisor) } = self.atom(atom) else { return };
        let [(whole, 1)] = of.terms[..] else { return };
        // factor · (whole + offset mod divisor) + constant = 0.
        let remainder = difference.constant.checked_mul(-factor);
        let Some(remainder) = remainder.and_then(|it| it.checked_sub(of.constant)) else { return };
        let set = Modular::new(*divisor, remainder);
        let mut known = self.known[whole].clone().unwrap_or(Known::NOTHING);
        match known.modular.intersect(set) {
            Some(modular) => {
                known.modular = modular;
                self.set_known(whole, known);
            }
            None => self.contradict(),
        }
    }

    /// Records that an atom is not at one end of its range.
    fn exclude_zero(&mut self, difference: &Linear) {
        let [(atom, factor @ (1 | -1))] = difference.terms[..] else { return };
        let excluded = i128::from(difference.constant) * i128::from(-factor);
        let range = self.atom_range(atom);
        let mut known = self.known[atom].clone().unwrap_or(Known::NOTHING);
        if range.min == excluded {
            known.range = range.intersect(Range { min: excluded + 1, ..range });
        } else if range.max == excluded {
            known.range = range.intersect(Range { max: excluded - 1, ..range });
        } else {
            return;
        }
        self.set_known(atom, known);
    }

    /// Records that a form is not negative.
    pub(super) fn add_fact(&mut self, mut fact: Linear) {
        let step = fact.common_factor();
        if step == 0 {
            if fact.constant < 0 {
                self.contradict();
            }
            return;
        }
        for term in &mut fact.terms {
            term.1 /= step;
        }
        fact.constant = fact.constant.div_euclid(step);
        let range = self.range(&fact);
        if range.min >= 0 {
            return;
        }
        if range.max < 0 {
            self.contradict();
            return;
        }
        // Each term is at least the negated maximum of the sum of all others.
        for (atom, factor) in fact.terms.clone() {
            let others = self.range(&fact.without(atom)).max;
            let mut range = self.atom_range(atom);
            let magnitude = i128::from(factor.saturating_abs());
            let bound = others.div_euclid(magnitude);
            if factor > 0 {
                range.min = range.min.max(bound.saturating_neg());
            } else {
                range.max = range.max.min(bound);
            }
            if range != self.atom_range(atom) {
                self.narrow(atom, range);
            }
        }
        if fact.terms.len() > 1 {
            self.facts.push(fact);
        }
    }

    /// Records that an atom is in a part of its former range.
    fn narrow(&mut self, atom: AtomId, range: Range) {
        let mut known = self.known[atom].clone().unwrap_or(Known::NOTHING);
        known.range = known.range.intersect(range);
        self.set_known(atom, known);
        let (min, max) = range.clamped();
        let at_least = |form: &Linear| form.plus(&Linear::constant(min), -1);
        let at_most = |form: &Linear| Linear::constant(max).plus(form, -1);
        let facts = match self.atom(atom) {
            Atom::Digit { of, lower, upper: None } => {
                let (first, beyond) =
                    (min.saturating_mul(*lower), max.saturating_add(1).saturating_mul(*lower));
                [
                    of.plus(&Linear::constant(first), -1),
                    Linear::constant(beyond).plus(of, -1).and_then(|gap| gap.scaled(1, -1)),
                    None,
                    None,
                ]
            }
            Atom::Min(a, b) => [at_least(a), at_least(b), None, None],
            Atom::Max(a, b) => [at_most(a), at_most(b), None, None],
            Atom::Widen(value) => [at_least(value), at_most(value), None, None],
            Atom::Var(_)
            | Atom::Digit { .. }
            | Atom::Product(_)
            | Atom::Select { .. }
            | Atom::Opaque { .. } => [None, None, None, None],
        };
        for fact in facts.into_iter().flatten() {
            self.add_fact(fact);
        }
    }
}
