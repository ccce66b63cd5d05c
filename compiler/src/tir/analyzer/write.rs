//! From linear forms back to expressions.

use std::cmp::Ordering;

use crate::ir::DType;
use crate::tir::{BinaryOp, PrimExpr, PrimType};

use super::Analyzer;
use super::linear::{Atom, AtomId, Linear};

impl Analyzer {
    /// The expression of a form: largest factors first, negative terms after positive ones, and the
    /// constant last.
    pub(super) fn write(&self, linear: &Linear, dtype: DType) -> PrimExpr {
        let constant = |value: i64| PrimExpr::int(value, dtype);
        let mut terms = linear.terms.clone();
        terms.sort_by(|(a, x), (b, y)| {
            (*x < 0, y.unsigned_abs())
                .cmp(&(*y < 0, x.unsigned_abs()))
                .then_with(|| self.compare_atoms(*a, *b))
        });
        let scaled = |atom: AtomId, factor: i64| match factor {
            1 => self.write_atom(atom, dtype),
            _ => raw(BinaryOp::Mul, self.write_atom(atom, dtype), constant(factor)),
        };
        let mut terms = terms.into_iter();
        let mut rest = linear.constant;
        let mut sum = match terms.next() {
            None => return constant(rest),
            Some((atom, -1)) => {
                let first = std::mem::take(&mut rest);
                raw(BinaryOp::Sub, constant(first), self.write_atom(atom, dtype))
            }
            Some((atom, factor)) => scaled(atom, factor),
        };
        for (atom, factor) in terms {
            sum = match factor.checked_neg() {
                Some(positive @ 1..) => raw(BinaryOp::Sub, sum, scaled(atom, positive)),
                _ => raw(BinaryOp::Add, sum, scaled(atom, factor)),
            };
        }
        match rest.checked_neg() {
            _ if rest == 0 => sum,
            Some(positive @ 1..) => raw(BinaryOp::Sub, sum, constant(positive)),
            _ => raw(BinaryOp::Add, sum, constant(rest)),
        }
    }

    fn write_atom(&self, atom: AtomId, dtype: DType) -> PrimExpr {
        match self.atom(atom) {
            Atom::Var(var) => PrimExpr::Var { var: *var, ty: PrimType::scalar(dtype) },
            Atom::Digit { of, lower, upper } => {
                let mut digit = self.write(of, dtype);
                if let Some(upper) = upper {
                    digit = raw(BinaryOp::FloorMod, digit, PrimExpr::int(*upper, dtype));
                }
                if *lower != 1 {
                    digit = raw(BinaryOp::FloorDiv, digit, PrimExpr::int(*lower, dtype));
                }
                digit
            }
            Atom::Min(a, b) => raw(BinaryOp::Min, self.write(a, dtype), self.write(b, dtype)),
            Atom::Max(a, b) => raw(BinaryOp::Max, self.write(a, dtype), self.write(b, dtype)),
            Atom::Product(atoms) => {
                let factors = atoms.iter().map(|atom| self.write_atom(*atom, dtype));
                let product = factors.reduce(|a, b| raw(BinaryOp::Mul, a, b));
                product.unwrap_or_else(|| PrimExpr::int(1, dtype))
            }
            Atom::Select { cond, then, otherwise } => PrimExpr::select(
                cond.clone(),
                self.write(then, dtype),
                self.write(otherwise, dtype),
            ),
            Atom::Widen(value) => self.write(value, DType::I32).cast(dtype),
            Atom::Opaque { expr, .. } => expr.clone(),
        }
    }

    /// The order of atoms with equal factors, which must not depend on the order in which atoms
    /// were met.
    fn compare_atoms(&self, a: AtomId, b: AtomId) -> Ordering {
        let rank = |atom: &Atom| match atom {
            Atom::Var(_) => 0,
            Atom::Product(_) => 1,
            Atom::Digit { .. } => 2,
            Atom::Min(..) => 3,
            Atom::Max(..) => 4,
            Atom::Select { .. } => 5,
            Atom::Widen(_) => 6,
            Atom::Opaque { .. } => 7,
        };
        let by_form = match (self.atom(a), self.atom(b)) {
            (Atom::Var(a), Atom::Var(b)) => a.cmp(b),
            (Atom::Product(a), Atom::Product(b)) => {
                let pairs = a.iter().zip(b);
                pairs.fold(a.len().cmp(&b.len()), |order, (a, b)| {
                    order.then_with(|| self.compare_atoms(*a, *b))
                })
            }
            (
                Atom::Digit { of: a, lower: la, upper: ua },
                Atom::Digit { of: b, lower: lb, upper: ub },
            ) => self.compare_forms(a, b).then((la, ua).cmp(&(lb, ub))),
            (Atom::Min(a, x), Atom::Min(b, y)) | (Atom::Max(a, x), Atom::Max(b, y)) => {
                self.compare_forms(a, b).then_with(|| self.compare_forms(x, y))
            }
            (Atom::Widen(a), Atom::Widen(b)) => self.compare_forms(a, b),
            (a, b) => rank(a).cmp(&rank(b)),
        };
        by_form.then(a.cmp(&b))
    }

    fn compare_forms(&self, a: &Linear, b: &Linear) -> Ordering {
        let terms = a.terms.iter().zip(&b.terms);
        terms
            .fold(a.terms.len().cmp(&b.terms.len()), |order, ((a, x), (b, y))| {
                order.then_with(|| self.compare_atoms(*a, *b)).then(x.cmp(y))
            })
            .then(a.constant.cmp(&b.constant))
    }
}

/// A node with canonical operands, without folding.
fn raw(op: BinaryOp, lhs: PrimExpr, rhs: PrimExpr) -> PrimExpr {
    PrimExpr::Binary { op, lhs: Box::new(lhs), rhs: Box::new(rhs) }
}
