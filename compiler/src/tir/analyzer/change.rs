//! The iterations of a loop at which a comparison changes.

use std::collections::BTreeSet;

use crate::tir::{CompareOp, PrimExpr, VarId};

use super::Analyzer;
use super::linear::{Atom, AtomId, Linear};

/// Ranges that reach further are no loop's, but an unknown dimension's.
const FAR: i128 = 1 << 40;

impl Analyzer {
    /// The values of `var` at which a comparison of indices begins or ceases to be the same for all
    /// values of the variables in `inner`; none if the comparison does not depend on `var`, or not
    /// linearly.
    pub(crate) fn change_points(
        &mut self,
        op: CompareOp,
        lhs: &PrimExpr,
        rhs: &PrimExpr,
        var: VarId,
        inner: &BTreeSet<VarId>,
    ) -> Vec<PrimExpr> {
        let dtype = lhs.dtype();
        if !self.is_index_arithmetic(lhs) || !self.is_index_arithmetic(rhs) {
            return Vec::new();
        }
        let (left, right) = (self.linear(lhs), self.linear(rhs));
        if !self.is_exact(&left, dtype) || !self.is_exact(&right, dtype) {
            return Vec::new();
        }
        let Some(difference) = left.plus(&right, -1) else { return Vec::new() };
        // `a <= b` is `a - b - 1 < 0`, and an equality changes where either does.
        let offsets: &[i64] = match op {
            CompareOp::Lt | CompareOp::Ge => &[0],
            CompareOp::Le | CompareOp::Gt => &[-1],
            CompareOp::Eq | CompareOp::Ne => &[0, -1],
        };
        let mut points = Vec::new();
        for offset in offsets {
            let form = difference.scaled(1, *offset);
            if let Some(found) = form.and_then(|form| self.sign_changes(&form, var, inner)) {
                points.extend(found.iter().map(|point| self.write(point, dtype)));
            }
        }
        points
    }

    /// Where `form < 0` begins or ceases to be true, or false, for all values of the inner variables.
    fn sign_changes(
        &mut self,
        form: &Linear,
        var: VarId,
        inner: &BTreeSet<VarId>,
    ) -> Option<[Linear; 2]> {
        let atom = self.var_atom(var);
        let factor = form.factor_of(atom);
        if factor == 0 {
            return None;
        }
        // factor · var + outer + relaxed, where `relaxed` is known by its range alone.
        let mut outer = Linear::constant(form.constant);
        let mut relaxed = Linear::default();
        for (other, by) in &form.without(atom).terms {
            if self.mentions(*other, &|found| found == var) {
                return None;
            }
            let range = self.atom_range(*other);
            let near = range.min > -FAR && range.max < FAR;
            if near {
                relaxed.add_term(*other, *by)?;
            } else if self.mentions(*other, &|found| inner.contains(&found))
                || !self.is_stable(&Linear::atom(*other))
            {
                return None;
            } else {
                outer.add_term(*other, *by)?;
            }
        }
        let (least, greatest) = self.range(&relaxed).clamped();
        let step = factor.checked_abs()?;
        if factor > 0 {
            // var < (-outer - rest) / factor, rounded up.
            let opposite = outer.scaled(-1, step - 1)?;
            let all = opposite.plus(&Linear::constant(greatest), -1)?;
            let some = opposite.plus(&Linear::constant(least), -1)?;
            Some([self.floor_div(&all, step)?, self.floor_div(&some, step)?])
        } else {
            // var > (outer + rest) / |factor|, rounded down.
            let none = outer.plus(&Linear::constant(least), 1)?;
            let some = outer.plus(&Linear::constant(greatest), 1)?;
            let one = Linear::constant(1);
            Some([
                self.floor_div(&none, step)?.plus(&one, 1)?,
                self.floor_div(&some, step)?.plus(&one, 1)?,
            ])
        }
    }

    /// Whether some variable in an atom satisfies the predicate.
    fn mentions(&self, atom: AtomId, predicate: &dyn Fn(VarId) -> bool) -> bool {
        let form =
            |form: &Linear| form.terms.iter().any(|(atom, _)| self.mentions(*atom, predicate));
        let expr = |expr: &PrimExpr| {
            expr.any(&mut |node| matches!(node, PrimExpr::Var { var, .. } if predicate(*var)))
        };
        match self.atom(atom) {
            Atom::Var(var) => predicate(*var),
            Atom::Digit { of: value, .. } | Atom::Widen(value) => form(value),
            Atom::Min(a, b) | Atom::Max(a, b) => form(a) || form(b),
            Atom::Product(atoms) => atoms.iter().any(|atom| self.mentions(*atom, predicate)),
            Atom::Select { cond, then, otherwise } => expr(cond) || form(then) || form(otherwise),
            Atom::Opaque { expr: whole, .. } => expr(whole),
        }
    }
}
