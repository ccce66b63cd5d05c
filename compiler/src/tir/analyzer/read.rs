//! From expressions to linear forms.

use crate::ir::DType;
use crate::tir::{BinaryOp, CompareOp, PrimExpr, UnaryOp, VarId};

use super::Analyzer;
use super::linear::{Atom, AtomId, Linear};
use super::range::{Range, reads_memory};

/// Maximum number of terms to which a product of two sums is expanded.
const MAX_PRODUCT_TERMS: usize = 4;

impl Analyzer {
    pub(super) fn atom(&self, atom: AtomId) -> &Atom {
        // Ids are positions in the table, which only grows.
        &self.atoms[atom.as_u32() as usize]
    }

    pub(super) fn intern(&mut self, atom: Atom) -> AtomId {
        AtomId::from_u32(self.atoms.insert_full(atom).0 as u32)
    }

    pub(super) fn var_atom(&mut self, var: VarId) -> AtomId {
        if let Some(atom) = self.vars[var].expand() {
            return atom;
        }
        let atom = self.intern(Atom::Var(var));
        self.vars[var] = atom.into();
        atom
    }

    /// Reads a scalar `int64` or `int32` expression.
    pub(super) fn linear(&mut self, expr: &PrimExpr) -> Linear {
        let mut sum = Linear::default();
        if self.accumulate(expr, 1, &mut sum).is_none() {
            // A factor overflows.
            return self.opaque(expr.clone());
        }
        self.merge_digits(sum)
    }

    /// Adds `factor * expr` to a sum, or fails if a factor overflows.
    fn accumulate(&mut self, expr: &PrimExpr, factor: i64, sum: &mut Linear) -> Option<()> {
        match expr {
            PrimExpr::Int { value, .. } => sum.add_constant(value.checked_mul(factor)?),
            PrimExpr::Var { var, .. } => self.accumulate_var(*var, factor, sum),
            PrimExpr::Unary { op: UnaryOp::Neg, value } => {
                self.accumulate(value, factor.checked_neg()?, sum)
            }
            PrimExpr::Binary { op: BinaryOp::Add, lhs, rhs } => {
                self.accumulate(lhs, factor, sum)?;
                self.accumulate(rhs, factor, sum)
            }
            PrimExpr::Binary { op: BinaryOp::Sub, lhs, rhs } => {
                self.accumulate(lhs, factor, sum)?;
                self.accumulate(rhs, factor.checked_neg()?, sum)
            }
            PrimExpr::Binary { op: BinaryOp::Mul, lhs, rhs } => {
                match (lhs.as_int(), rhs.as_int()) {
                    (_, Some(times)) => self.accumulate(lhs, factor.checked_mul(times)?, sum),
                    (Some(times), _) => self.accumulate(rhs, factor.checked_mul(times)?, sum),
                    (None, None) => {
                        let (lhs, rhs) = (self.linear(lhs), self.linear(rhs));
                        let product = self.product(&lhs, &rhs, expr.dtype());
                        sum.add(&product, factor)
                    }
                }
            }
            PrimExpr::Binary { op, lhs, rhs } => {
                let value = self.operator(*op, lhs, rhs);
                sum.add(&value, factor)
            }
            other => {
                let value = self.other(other);
                sum.add(&value, factor)
            }
        }
    }

    fn accumulate_var(&mut self, var: VarId, factor: i64, sum: &mut Linear) -> Option<()> {
        if let Some(value) = self.values.get(&var) {
            let value = self.linear(&value.clone());
            return sum.add(&value, factor);
        }
        let atom = self.var_atom(var);
        match self.known[atom].as_ref().and_then(|known| known.range.as_point()) {
            Some(point) => sum.add_constant(point.checked_mul(factor)?),
            None => sum.add_term(atom, factor),
        }
    }

    /// Operators other than sums and products.
    fn operator(&mut self, op: BinaryOp, lhs: &PrimExpr, rhs: &PrimExpr) -> Linear {
        let dtype = lhs.dtype();
        let (left, right) = (self.linear(lhs), self.linear(rhs));
        self.apply(op, &left, &right, dtype).unwrap_or_else(|| {
            let (lhs, rhs) = (self.write(&left, dtype), self.write(&right, dtype));
            self.opaque(PrimExpr::binary(op, lhs, rhs))
        })
    }

    /// An operator on forms, if there is a form for its result.
    fn apply(
        &mut self,
        op: BinaryOp,
        left: &Linear,
        right: &Linear,
        dtype: DType,
    ) -> Option<Linear> {
        let exact = self.is_exact(left, dtype) && self.is_exact(right, dtype);
        let positive = right.as_const().filter(|value| *value > 0);
        match op {
            BinaryOp::FloorDiv if exact => match positive {
                Some(divisor) => self.floor_div(left, divisor),
                None => self.floor_div_by_form(left, right),
            },
            BinaryOp::FloorMod if exact => match positive {
                Some(divisor) => self.floor_mod(left, divisor),
                None => self.floor_mod_by_form(left, right),
            },
            // Rounding towards zero is rounding down if nothing is negative. Undecided divisions
            // keep the cheaper operator.
            BinaryOp::Div if exact && self.range(left).min >= 0 => {
                let quotient = self.floor_div(left, positive?)?;
                self.has_no_digits(&quotient).then_some(quotient)
            }
            BinaryOp::Rem if exact && self.range(left).min >= 0 => {
                let rest = self.floor_mod(left, positive?)?;
                self.has_no_digits(&rest).then_some(rest)
            }
            BinaryOp::Shr if exact => {
                let amount = right.as_const().filter(|amount| (0..62).contains(amount))?;
                let quotient = self.floor_div(left, 1 << amount)?;
                self.has_no_digits(&quotient).then_some(quotient)
            }
            BinaryOp::Shl => {
                let amount = right.as_const().filter(|amount| (0..31).contains(amount))?;
                left.scaled(1 << amount, 0)
            }
            BinaryOp::Min if exact => Some(self.minimum(left, right)),
            BinaryOp::Max if exact => Some(self.maximum(left, right)),
            BinaryOp::Add
            | BinaryOp::Sub
            | BinaryOp::Mul
            | BinaryOp::Div
            | BinaryOp::Rem
            | BinaryOp::FloorDiv
            | BinaryOp::FloorMod
            | BinaryOp::Min
            | BinaryOp::Max
            | BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor
            | BinaryOp::Shr => None,
        }
    }

    fn has_no_digits(&self, linear: &Linear) -> bool {
        linear.terms.iter().all(|(atom, _)| !matches!(self.atom(*atom), Atom::Digit { .. }))
    }

    pub(super) fn minimum(&mut self, a: &Linear, b: &Linear) -> Linear {
        // min(min(x, 7), 5) is min(x, 5).
        if let Some(Atom::Min(x, y)) = a.as_atom().map(|atom| self.atom(atom)).cloned()
            && self.is_at_most(b, &y)
        {
            return self.minimum(&x, b);
        }
        if self.is_at_most(a, b) {
            a.clone()
        } else if self.is_at_most(b, a) {
            b.clone()
        } else {
            Linear::atom(self.intern(Atom::Min(a.clone(), b.clone())))
        }
    }

    pub(super) fn maximum(&mut self, a: &Linear, b: &Linear) -> Linear {
        if let Some(Atom::Max(x, y)) = a.as_atom().map(|atom| self.atom(atom)).cloned()
            && self.is_at_most(&y, b)
        {
            return self.maximum(&x, b);
        }
        if self.is_at_most(a, b) {
            b.clone()
        } else if self.is_at_most(b, a) {
            a.clone()
        } else {
            Linear::atom(self.intern(Atom::Max(a.clone(), b.clone())))
        }
    }

    fn is_at_most(&self, a: &Linear, b: &Linear) -> bool {
        self.decide(CompareOp::Le, a, b, 2) == Some(true)
    }

    /// The product of two sums, expanded if it stays small.
    fn product(&mut self, lhs: &Linear, rhs: &Linear, dtype: DType) -> Linear {
        self.expand(lhs, rhs).unwrap_or_else(|| {
            let (lhs, rhs) = (self.write(lhs, dtype), self.write(rhs, dtype));
            self.opaque(PrimExpr::binary(BinaryOp::Mul, lhs, rhs))
        })
    }

    fn expand(&mut self, lhs: &Linear, rhs: &Linear) -> Option<Linear> {
        let parts = |linear: &Linear| linear.terms.len() + usize::from(linear.constant != 0);
        let small = parts(lhs) <= 1 || parts(rhs) <= 1;
        if !small && parts(lhs) * parts(rhs) > MAX_PRODUCT_TERMS {
            return None;
        }
        let mut sum = lhs.scaled(rhs.constant, 0)?;
        for (right, by) in &rhs.terms {
            for (left, factor) in &lhs.terms {
                let mut atoms = self.factors(*left);
                atoms.extend(self.factors(*right));
                atoms.sort_unstable();
                let atom = self.intern(Atom::Product(atoms));
                sum.add_term(atom, factor.checked_mul(*by)?)?;
            }
            sum.add_term(*right, by.checked_mul(lhs.constant)?)?;
        }
        Some(sum)
    }

    /// The factors of an atom.
    pub(super) fn factors(&self, atom: AtomId) -> Vec<AtomId> {
        match self.atom(atom) {
            Atom::Product(atoms) => atoms.clone(),
            Atom::Var(_)
            | Atom::Digit { .. }
            | Atom::Min(..)
            | Atom::Max(..)
            | Atom::Select { .. }
            | Atom::Widen(_)
            | Atom::Opaque { .. } => vec![atom],
        }
    }

    /// An expression that is no arithmetic, simplified.
    fn other(&mut self, expr: &PrimExpr) -> Linear {
        match self.expr(expr.clone()) {
            PrimExpr::Select { cond, then, otherwise } => {
                let (then, otherwise) = (self.linear(&then), self.linear(&otherwise));
                Linear::atom(self.intern(Atom::Select { cond: *cond, then, otherwise }))
            }
            PrimExpr::Cast { value, dtype: DType::I64 } if value.dtype() == DType::I32 => {
                let value = self.linear(&value);
                match value.as_const() {
                    Some(_) => value,
                    None => Linear::atom(self.intern(Atom::Widen(value))),
                }
            }
            simple @ (PrimExpr::Int { .. }
            | PrimExpr::Var { .. }
            | PrimExpr::Unary { op: UnaryOp::Neg, .. }
            | PrimExpr::Binary { .. }) => self.linear(&simple),
            other => self.opaque(other),
        }
    }

    /// An atom of its own for a simplified expression.
    fn opaque(&mut self, expr: PrimExpr) -> Linear {
        if let PrimExpr::Int { value, .. } = expr {
            return Linear::constant(value);
        }
        let dtype = expr.dtype();
        let whole = Range::of_dtype(dtype);
        let range = match &expr {
            PrimExpr::Cast { value, .. } => {
                let range = Range::of_dtype(value.dtype());
                let integer = value.dtype() == DType::Bool || value.dtype().int_range().is_some();
                if integer && range.within(whole) { range } else { whole }
            }
            PrimExpr::Binary { op: BinaryOp::Rem | BinaryOp::FloorMod, rhs, .. } => {
                match rhs.as_int().and_then(i64::checked_abs) {
                    Some(divisor @ 1..) => Range::new(1 - divisor, divisor - 1),
                    _ => whole,
                }
            }
            PrimExpr::Binary { op: BinaryOp::And, rhs, .. } => match rhs.as_int() {
                Some(mask @ 0..) => Range::new(0, mask),
                _ => whole,
            },
            _ => whole,
        };
        let loads = reads_memory(&expr);
        Linear::atom(self.intern(Atom::Opaque { expr, range, loads }))
    }
}
