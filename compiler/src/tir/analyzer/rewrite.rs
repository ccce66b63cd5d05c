//! Simplification of whole expressions.

use crate::ir::DType;
use crate::tir::{BinaryOp, CompareOp, PrimExpr, PrimType, UnaryOp};

use super::Analyzer;
use super::linear::Linear;
use super::range::reads_memory;

/// Number of facts that a simplification may use to decide a comparison. Explicit proofs may use
/// more.
const SIMPLIFY_DEPTH: u32 = 2;

impl Analyzer {
    /// Whether an operand is index arithmetic, which gets a canonical form. An `int32` that reads
    /// memory is data, and keeps its order.
    pub(super) fn is_index_arithmetic(&self, expr: &PrimExpr) -> bool {
        match expr.ty() {
            PrimType::INDEX => true,
            PrimType { dtype: DType::I32, lanes: 1 } => !reads_memory(expr),
            _ => false,
        }
    }

    pub(crate) fn expr(&mut self, expr: PrimExpr) -> PrimExpr {
        match expr {
            PrimExpr::Int { .. } | PrimExpr::Float { .. } => expr,
            PrimExpr::Var { var, ty } => match self.values.get(&var) {
                Some(PrimExpr::Int { value, .. }) => PrimExpr::int(*value, ty.dtype),
                Some(value) => value.clone(),
                None if ty.is_scalar() && matches!(ty.dtype, DType::I64 | DType::I32) => {
                    let linear = self.linear(&expr);
                    self.write(&linear, ty.dtype)
                }
                None => expr,
            },
            // Index arithmetic is read as a whole, so that a long sum is sorted once.
            PrimExpr::Binary { .. } | PrimExpr::Unary { op: UnaryOp::Neg, .. }
                if self.is_index_arithmetic(&expr) =>
            {
                let linear = self.linear(&expr);
                self.write(&linear, expr.dtype())
            }
            PrimExpr::Binary { op: op @ (BinaryOp::And | BinaryOp::Or), lhs, rhs }
                if lhs.ty() == PrimType::BOOL =>
            {
                self.both(op, *lhs, *rhs)
            }
            PrimExpr::Select { cond, then, otherwise } if cond.ty().is_scalar() => {
                self.select(*cond, *then, *otherwise)
            }
            PrimExpr::Let { var, value, body } => {
                let value = self.expr(*value);
                if value.is_leaf() {
                    self.set_value(var, value);
                    return self.expr(*body);
                }
                self.define(var, &value);
                let body = self.expr(*body);
                PrimExpr::Let { var, value: Box::new(value), body: Box::new(body) }
            }
            other => {
                let rebuilt = other.map_children(&mut |child| self.expr(child));
                self.node(rebuilt)
            }
        }
    }

    /// A node whose operands are simplified.
    fn node(&mut self, expr: PrimExpr) -> PrimExpr {
        match expr {
            PrimExpr::Unary { op: UnaryOp::Not, value } => self.not(*value),
            PrimExpr::Unary { op, value } => PrimExpr::unary(op, *value),
            PrimExpr::Binary { op, lhs, rhs } => self.vector_binary(op, *lhs, *rhs),
            PrimExpr::Compare { op, lhs, rhs } => self.compare(op, *lhs, *rhs),
            PrimExpr::Select { cond, then, otherwise } => {
                PrimExpr::select(*cond, *then, *otherwise)
            }
            PrimExpr::Cast { value, dtype } => value.cast(dtype),
            PrimExpr::Reinterpret { value, dtype } => value.reinterpret(dtype),
            PrimExpr::Ramp { base, stride, lanes } => PrimExpr::ramp(*base, *stride, lanes),
            PrimExpr::Broadcast { value, lanes } => value.broadcast_to(lanes),
            PrimExpr::Load { buffer, dtype, indices } => {
                let indices = indices.into_iter().map(|index| self.lanes_as_ramp(index)).collect();
                PrimExpr::Load { buffer, dtype, indices }
            }
            other @ (PrimExpr::Int { .. }
            | PrimExpr::Float { .. }
            | PrimExpr::Var { .. }
            | PrimExpr::Shuffle { .. }
            | PrimExpr::VectorReduce { .. }
            | PrimExpr::MulAdd { .. }
            | PrimExpr::DotAdd { .. }
            | PrimExpr::Call { .. }
            | PrimExpr::Let { .. }) => other,
        }
    }

    fn not(&self, value: PrimExpr) -> PrimExpr {
        match value {
            // Unordered floats compare false either way.
            PrimExpr::Compare { op, lhs, rhs } if !lhs.dtype().is_float() => {
                PrimExpr::Compare { op: op.negated(), lhs, rhs }
            }
            PrimExpr::Unary { op: UnaryOp::Not, value } if value.ty() == PrimType::BOOL => *value,
            other => PrimExpr::unary(UnaryOp::Not, other),
        }
    }

    /// `lhs and rhs`, `lhs or rhs`: each side is simplified for the case that the other one does
    /// not decide.
    fn both(&mut self, op: BinaryOp, lhs: PrimExpr, rhs: PrimExpr) -> PrimExpr {
        let open = op == BinaryOp::And;
        let lhs = self.expr(lhs);
        let rhs = if worth_assuming(&lhs) {
            let scope = self.enter();
            self.assume_known(&lhs, open);
            let rhs = self.expr(rhs);
            self.leave(scope);
            rhs
        } else {
            self.expr(rhs)
        };
        if rhs.as_int().is_some() || !worth_assuming(&rhs) || !worth_assuming(&lhs) {
            return PrimExpr::binary(op, lhs, rhs);
        }
        // A left side that the right side decides is redundant.
        let scope = self.enter();
        self.assume_known(&rhs, open);
        let implied = self.expr(lhs.clone()).as_int();
        self.leave(scope);
        match implied {
            Some(value) if (value != 0) == open => rhs,
            Some(_) => PrimExpr::bool(!open),
            None => PrimExpr::binary(op, lhs, rhs),
        }
    }

    fn select(&mut self, cond: PrimExpr, then: PrimExpr, otherwise: PrimExpr) -> PrimExpr {
        let cond = self.expr(cond);
        match cond.as_int() {
            Some(0) => return self.expr(otherwise),
            Some(_) => return self.expr(then),
            None => {}
        }
        let (then, otherwise) = if worth_assuming(&cond) {
            let scope = self.enter();
            self.assume_known(&cond, true);
            let then = self.expr(then);
            self.leave(scope);
            let scope = self.enter();
            self.assume_known(&cond, false);
            let otherwise = self.expr(otherwise);
            self.leave(scope);
            (then, otherwise)
        } else {
            (self.expr(then), self.expr(otherwise))
        };
        if then == otherwise {
            return then;
        }
        PrimExpr::select(cond, then, otherwise)
    }

    fn compare(&mut self, op: CompareOp, lhs: PrimExpr, rhs: PrimExpr) -> PrimExpr {
        if lhs.dtype() != rhs.dtype() || !matches!(lhs.dtype(), DType::I64 | DType::I32) {
            return self.known_or(PrimExpr::compare(op, lhs, rhs));
        }
        if !lhs.ty().is_scalar() {
            return self.compare_lanes(op, lhs, rhs);
        }
        if !self.is_index_arithmetic(&lhs) || !self.is_index_arithmetic(&rhs) {
            return self.known_or(PrimExpr::compare(op, lhs, rhs));
        }
        let dtype = lhs.dtype();
        let (left, right) = (self.linear(&lhs), self.linear(&rhs));
        if !self.is_exact(&left, dtype) || !self.is_exact(&right, dtype) {
            return self.known_or(PrimExpr::compare(op, lhs, rhs));
        }
        if let Some(holds) = self.decide(op, &left, &right, SIMPLIFY_DEPTH) {
            return PrimExpr::bool(holds);
        }
        match self.normal_comparison(op, &left, &right, dtype) {
            Some(normal) => self.known_or(normal),
            None => self.known_or(PrimExpr::compare(op, lhs, rhs)),
        }
    }

    /// A condition, or the constant if the condition is known to hold or not.
    fn known_or(&self, cond: PrimExpr) -> PrimExpr {
        match self.truth_of(&cond) {
            Some(holds) if cond.ty().is_scalar() => PrimExpr::bool(holds),
            _ => cond,
        }
    }

    /// Moves positive terms to the left and negative ones to the right, and removes a common
    /// factor.
    fn normal_comparison(
        &self,
        op: CompareOp,
        lhs: &Linear,
        rhs: &Linear,
        dtype: DType,
    ) -> Option<PrimExpr> {
        let mut difference = lhs.plus(rhs, -1)?;
        let step = difference.common_factor();
        let is_equality = matches!(op, CompareOp::Eq | CompareOp::Ne);
        let divides = step > 1 && (!is_equality || difference.constant % step == 0);
        let mut unit = divides.then_some(step);
        // `difference < 0` holds exactly if it holds for the form's blocks; `<= 0` is `< 1`.
        let strict = match op {
            CompareOp::Lt | CompareOp::Ge => 0,
            CompareOp::Le | CompareOp::Gt => -1,
            CompareOp::Eq | CompareOp::Ne => 0,
        };
        difference.add_constant(strict)?;
        if unit.is_none() && !is_equality {
            unit = self.block_unit(&difference);
        }
        if let Some(unit) = unit {
            difference = self.split_at(&difference, unit)?.0;
        }
        difference.add_constant(-strict)?;
        let mut left = Linear::default();
        let mut right = Linear::default();
        for (atom, factor) in &difference.terms {
            match factor.checked_neg()? {
                positive @ 1.. => right.add_term(*atom, positive)?,
                _ => left.add_term(*atom, *factor)?,
            }
        }
        right.add_constant(difference.constant.checked_neg()?)?;
        if left.terms.is_empty() {
            // -x < c is x > -c.
            left = right.scaled(1, -right.constant)?;
            right = Linear::constant(difference.constant);
            let op = op.swapped();
            return Some(PrimExpr::compare(
                op,
                self.write(&left, dtype),
                self.write(&right, dtype),
            ));
        }
        Some(PrimExpr::compare(op, self.write(&left, dtype), self.write(&right, dtype)))
    }

    /// The greatest factor of a term such that the terms that it does not divide stay in one block.
    fn block_unit(&self, form: &Linear) -> Option<i64> {
        let mut units: Vec<i64> = form
            .terms
            .iter()
            .map(|term| term.1.saturating_abs())
            .filter(|unit| *unit > 1)
            .collect();
        units.sort_unstable_by(|a, b| b.cmp(a));
        units.dedup();
        units.into_iter().find(|unit| self.split_at(form, *unit).is_some())
    }

    /// A comparison of vectors of indices, decided if it is the same in all lanes.
    fn compare_lanes(&mut self, op: CompareOp, lhs: PrimExpr, rhs: PrimExpr) -> PrimExpr {
        let decided = match (self.ramp(&lhs), self.ramp(&rhs)) {
            (Some(left), Some(right)) => self.decide_lanes(op, &left, &right),
            _ => None,
        };
        match decided {
            Some(holds) => PrimExpr::bool(holds).broadcast_to(lhs.ty().lanes),
            None => PrimExpr::compare(op, lhs, rhs),
        }
    }
}

/// Whether a condition says something about indices.
fn worth_assuming(cond: &PrimExpr) -> bool {
    match cond {
        PrimExpr::Compare { lhs, .. } => matches!(lhs.dtype(), DType::I64 | DType::I32),
        PrimExpr::Unary { op: UnaryOp::Not, value } => worth_assuming(value),
        PrimExpr::Binary { op: BinaryOp::And | BinaryOp::Or, lhs, rhs } => {
            worth_assuming(lhs) || worth_assuming(rhs)
        }
        _ => false,
    }
}
