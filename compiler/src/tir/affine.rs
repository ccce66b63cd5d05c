//! Affine index expressions: sums of variables with constant factors, and their bounds.
//!
//! Nearly all index expressions of loops and layouts have this form, and there are many once loops
//! are unrolled, so it has a small representation of its own.

use std::collections::BTreeMap;

use super::{BinaryOp, PrimExpr, UnaryOp, VarId};
use crate::ir::DType;

/// Least and greatest value, inclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(crate) min: i64,
    pub(crate) max: i64,
}

impl Range {
    pub(crate) fn point(value: i64) -> Self {
        Range { min: value, max: value }
    }

    fn scale(self, factor: i64) -> Option<Range> {
        let (a, b) = (self.min.checked_mul(factor)?, self.max.checked_mul(factor)?);
        Some(Range { min: a.min(b), max: a.max(b) })
    }

    fn add(self, other: Range) -> Option<Range> {
        Some(Range { min: self.min.checked_add(other.min)?, max: self.max.checked_add(other.max)? })
    }
}

/// Known ranges of variables.
pub(crate) type Bounds = BTreeMap<VarId, Range>;

/// `Σ factor · atom + constant`; atoms are variables or other expressions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Affine {
    /// No factor is zero, and no atom occurs twice.
    pub(crate) terms: Vec<(PrimExpr, i64)>,
    pub(crate) constant: i64,
}

impl Affine {
    /// Reads a scalar `int64` expression. Parts that are not affine, or overflow, become atoms.
    pub(crate) fn of(expr: &PrimExpr) -> Affine {
        Self::read(expr).unwrap_or_else(|| Affine { terms: vec![(expr.clone(), 1)], constant: 0 })
    }

    fn read(expr: &PrimExpr) -> Option<Affine> {
        match expr {
            PrimExpr::Int { value, dtype: DType::I64 } => {
                Some(Affine { terms: Vec::new(), constant: *value })
            }
            PrimExpr::Unary { op: UnaryOp::Neg, value } => Self::of(value).scaled(-1),
            PrimExpr::Binary { op, lhs, rhs } => match op {
                BinaryOp::Add => Self::of(lhs).plus(&Self::of(rhs), 1),
                BinaryOp::Sub => Self::of(lhs).plus(&Self::of(rhs), -1),
                BinaryOp::Mul => {
                    let (left, right) = (Self::of(lhs), Self::of(rhs));
                    match (left.as_const(), right.as_const()) {
                        (Some(factor), _) => right.scaled(factor),
                        (_, Some(factor)) => left.scaled(factor),
                        (None, None) => None,
                    }
                }
                BinaryOp::Div
                | BinaryOp::Rem
                | BinaryOp::FloorDiv
                | BinaryOp::FloorMod
                | BinaryOp::Min
                | BinaryOp::Max
                | BinaryOp::And
                | BinaryOp::Or
                | BinaryOp::Xor
                | BinaryOp::Shl
                | BinaryOp::Shr => None,
            },
            _ => None,
        }
    }

    pub(crate) fn as_const(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    fn scaled(mut self, factor: i64) -> Option<Affine> {
        if factor == 0 {
            return Some(Affine::default());
        }
        for term in &mut self.terms {
            term.1 = term.1.checked_mul(factor)?;
        }
        self.constant = self.constant.checked_mul(factor)?;
        Some(self)
    }

    /// `self + factor * other`.
    pub(crate) fn plus(mut self, other: &Affine, factor: i64) -> Option<Affine> {
        for (atom, weight) in &other.terms {
            let weight = weight.checked_mul(factor)?;
            match self.terms.iter().position(|term| term.0 == *atom) {
                Some(index) => {
                    let sum = self.terms[index].1.checked_add(weight)?;
                    if sum == 0 {
                        self.terms.remove(index);
                    } else {
                        self.terms[index].1 = sum;
                    }
                }
                None => self.terms.push((atom.clone(), weight)),
            }
        }
        self.constant = self.constant.checked_add(other.constant.checked_mul(factor)?)?;
        Some(self)
    }

    /// The expression, largest factors first and the constant last.
    pub(crate) fn into_expr(mut self) -> PrimExpr {
        self.terms.sort_by_key(|(atom, factor)| {
            let var = match atom {
                PrimExpr::Var { var, .. } => Some(*var),
                _ => None,
            };
            (*factor < 0, std::cmp::Reverse(factor.unsigned_abs()), var.is_none(), var)
        });
        let scaled = |atom: PrimExpr, factor: i64| match factor {
            1 => atom,
            _ => raw(BinaryOp::Mul, atom, PrimExpr::index(factor)),
        };
        let mut terms = self.terms.into_iter();
        let mut rest = self.constant;
        let mut sum = match terms.next() {
            None => return PrimExpr::index(self.constant),
            Some((atom, -1)) => {
                rest = 0;
                raw(BinaryOp::Sub, PrimExpr::index(self.constant), atom)
            }
            Some((atom, factor)) => scaled(atom, factor),
        };
        for (atom, factor) in terms {
            sum = match factor.checked_neg() {
                Some(positive) if factor < 0 => raw(BinaryOp::Sub, sum, scaled(atom, positive)),
                _ => raw(BinaryOp::Add, sum, scaled(atom, factor)),
            };
        }
        match rest {
            0 => sum,
            i64::MIN..0 if rest != i64::MIN => raw(BinaryOp::Sub, sum, PrimExpr::index(-rest)),
            _ => raw(BinaryOp::Add, sum, PrimExpr::index(rest)),
        }
    }

    /// The range of the value, if every atom's range is known.
    pub(crate) fn range(&self, bounds: &Bounds) -> Option<Range> {
        let mut range = Range::point(self.constant);
        for (atom, factor) in &self.terms {
            range = range.add(atom_range(atom, bounds)?.scale(*factor)?)?;
        }
        Some(range)
    }
}

/// A node with canonical operands, without folding.
fn raw(op: BinaryOp, lhs: PrimExpr, rhs: PrimExpr) -> PrimExpr {
    PrimExpr::Binary { op, lhs: Box::new(lhs), rhs: Box::new(rhs) }
}

fn atom_range(atom: &PrimExpr, bounds: &Bounds) -> Option<Range> {
    match atom {
        PrimExpr::Var { var, .. } => bounds.get(var).copied(),
        PrimExpr::Binary { op, lhs, rhs } => {
            let constant = rhs.as_int();
            let left = || Affine::of(lhs).range(bounds);
            let right = || Affine::of(rhs).range(bounds);
            match op {
                BinaryOp::FloorMod => {
                    let divisor = constant.filter(|divisor| *divisor > 0)?;
                    Some(Range { min: 0, max: divisor - 1 })
                }
                BinaryOp::FloorDiv => {
                    let divisor = constant.filter(|divisor| *divisor > 0)?;
                    let range = left()?;
                    Some(Range {
                        min: range.min.div_euclid(divisor),
                        max: range.max.div_euclid(divisor),
                    })
                }
                BinaryOp::Min => {
                    let (a, b) = (left()?, right()?);
                    Some(Range { min: a.min.min(b.min), max: a.max.min(b.max) })
                }
                BinaryOp::Max => {
                    let (a, b) = (left()?, right()?);
                    Some(Range { min: a.min.max(b.min), max: a.max.max(b.max) })
                }
                BinaryOp::Add
                | BinaryOp::Sub
                | BinaryOp::Mul
                | BinaryOp::Div
                | BinaryOp::Rem
                | BinaryOp::And
                | BinaryOp::Or
                | BinaryOp::Xor
                | BinaryOp::Shl
                | BinaryOp::Shr => None,
            }
        }
        PrimExpr::Select { then, otherwise, .. } => {
            let (a, b) = (Affine::of(then).range(bounds)?, Affine::of(otherwise).range(bounds)?);
            Some(Range { min: a.min.min(b.min), max: a.max.max(b.max) })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tir::PrimFuncData;

    #[test]
    fn sums_are_ordered_by_factor_and_cancel() {
        let mut func = PrimFuncData::new("f");
        let (x, y) = (func.index_var("x"), func.index_var("y"));
        let (x, y) = (func.var_expr(x), func.var_expr(y));
        let sum = (x.clone() + y.clone() * 8 + 3) * 2 - x.clone() - 10;
        let expected = raw(
            BinaryOp::Sub,
            raw(BinaryOp::Add, raw(BinaryOp::Mul, y, PrimExpr::index(16)), x.clone()),
            PrimExpr::index(4),
        );
        assert_eq!(Affine::of(&sum).into_expr(), expected);
        assert_eq!(Affine::of(&(x.clone() - x.clone())).as_const(), Some(0));
        let huge = x * i64::MAX * 2;
        assert_eq!(Affine::of(&huge).terms.len(), 1);
    }
}
