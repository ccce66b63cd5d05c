//! Simplification of indices, conditions and control flow.

use std::collections::BTreeMap;

use crate::ir::{DType, IRModule};
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::affine::{Affine, Bounds, Range};
use crate::tir::{
    BinaryOp, CompareOp, PrimExpr, PrimFunc, PrimType, Stmt, UnaryOp, VarDecl, VarId,
};
use cranelift_entity::PrimaryMap;

/// Folds constants and decides divisions, comparisons and branches by the ranges of loop variables.
///
/// Indices are brought into affine form.
#[prim_func_pass(opt_level = 0, name = "tir.Simplify", crate = crate)]
pub fn simplify(mut func: PrimFunc, _module: &IRModule, _cx: &PassContext) -> PrimFunc {
    let data = func.make_mut();
    let mut simplifier =
        Simplifier { vars: &data.vars, bounds: Bounds::new(), values: BTreeMap::new() };
    // Dimensions are sizes.
    for dim in &data.dims {
        simplifier.bounds.insert(*dim, Range { min: 0, max: i64::MAX });
    }
    let body = std::mem::replace(&mut data.body, Stmt::nop());
    data.body = simplifier.stmt(body);
    func
}

struct Simplifier<'a> {
    vars: &'a PrimaryMap<VarId, VarDecl>,
    bounds: Bounds,
    /// Names for leaves, and loop variables of one iteration: replaced where they are used.
    values: BTreeMap<VarId, PrimExpr>,
}

impl Simplifier<'_> {
    fn stmt(&mut self, stmt: Stmt) -> Stmt {
        match stmt {
            Stmt::Seq(stmts) => Stmt::seq(stmts.into_iter().map(|stmt| self.stmt(stmt))),
            // Blocks are lowered before.
            Stmt::BlockRealize(_) => stmt,
            Stmt::Block { name, body } => Stmt::Block { name, body: Box::new(self.stmt(*body)) },
            Stmt::For { var, min, extent, kind, annotations, body } => {
                let (min, extent) = (self.expr(min), self.expr(extent));
                let extents = self.range_of(&extent);
                if extents.is_some_and(|range| range.max <= 0) {
                    return Stmt::nop();
                }
                if extents == Some(Range::point(1)) {
                    self.values.insert(var, min);
                    return self.stmt(*body);
                }
                let range = self.range_of(&min).zip(extents).and_then(|(first, count)| {
                    let max = first.max.checked_add(count.max - 1)?;
                    Some(Range { min: first.min, max })
                });
                let body = self.bounded(var, range, |this| this.stmt(*body));
                Stmt::For { var, min, extent, kind, annotations, body: Box::new(body) }
            }
            Stmt::Store { buffer, indices, value } => Stmt::Store {
                buffer,
                indices: indices.into_iter().map(|index| self.expr(index)).collect(),
                value: self.expr(value),
            },
            Stmt::Let { var, value, body } => {
                let value = self.expr(value);
                if value.is_leaf() {
                    self.values.insert(var, value);
                    return self.stmt(*body);
                }
                let range =
                    if self.vars[var].ty == PrimType::INDEX { self.range_of(&value) } else { None };
                let body = self.bounded(var, range, |this| this.stmt(*body));
                Stmt::Let { var, value, body: Box::new(body) }
            }
            Stmt::If { cond, then, otherwise } => {
                let cond = self.expr(cond);
                match cond.as_int() {
                    Some(0) => otherwise.map_or_else(Stmt::nop, |stmt| self.stmt(*stmt)),
                    Some(_) => self.stmt(*then),
                    None => {
                        let outer = self.bounds.clone();
                        self.assume(&cond);
                        let then = self.stmt(*then);
                        self.bounds = outer;
                        let otherwise = otherwise.map(|stmt| Box::new(self.stmt(*stmt)));
                        Stmt::If { cond, then: Box::new(then), otherwise }
                    }
                }
            }
            Stmt::Allocate { buffer, body } => {
                Stmt::Allocate { buffer, body: Box::new(self.stmt(*body)) }
            }
            Stmt::Prefetch { buffer, indices, locality, write } => Stmt::Prefetch {
                buffer,
                indices: indices.into_iter().map(|index| self.expr(index)).collect(),
                locality,
                write,
            },
            Stmt::Assert { cond, message } => {
                let cond = self.expr(cond);
                if cond.is_const(1) { Stmt::nop() } else { Stmt::Assert { cond, message } }
            }
        }
    }

    /// Runs `inside` with a variable's range known, or unknown if there is none.
    fn bounded<T>(
        &mut self,
        var: VarId,
        range: Option<Range>,
        inside: impl FnOnce(&mut Self) -> T,
    ) -> T {
        if let Some(range) = range {
            self.bounds.insert(var, range);
        }
        let result = inside(self);
        self.bounds.remove(&var);
        result
    }

    /// Narrows the ranges of variables by a condition that holds.
    fn assume(&mut self, cond: &PrimExpr) {
        match cond {
            PrimExpr::Binary { op: BinaryOp::And, lhs, rhs } if cond.ty() == PrimType::BOOL => {
                self.assume(lhs);
                self.assume(rhs);
            }
            PrimExpr::Compare { op, lhs, rhs } if lhs.ty() == PrimType::INDEX => {
                // difference `op` 0, with one variable of factor 1 or -1.
                let Some(difference) = Affine::of(lhs).plus(&Affine::of(rhs), -1) else { return };
                let [(PrimExpr::Var { var, .. }, factor @ (1 | -1))] = difference.terms[..] else {
                    return;
                };
                let Some(limit) = difference.constant.checked_mul(-factor) else { return };
                let mut range = self
                    .bounds
                    .get(&var)
                    .copied()
                    .unwrap_or(Range { min: i64::MIN, max: i64::MAX });
                // Seen from the variable: with factor -1 the comparison turns round.
                let op = match (op, factor) {
                    (CompareOp::Lt, -1) => CompareOp::Gt,
                    (CompareOp::Le, -1) => CompareOp::Ge,
                    (CompareOp::Gt, -1) => CompareOp::Lt,
                    (CompareOp::Ge, -1) => CompareOp::Le,
                    (op, _) => *op,
                };
                match op {
                    CompareOp::Lt => range.max = range.max.min(limit.saturating_sub(1)),
                    CompareOp::Le => range.max = range.max.min(limit),
                    CompareOp::Gt => range.min = range.min.max(limit.saturating_add(1)),
                    CompareOp::Ge => range.min = range.min.max(limit),
                    CompareOp::Eq => range = Range::point(limit),
                    CompareOp::Ne => {}
                }
                if range.min <= range.max {
                    self.bounds.insert(var, range);
                }
            }
            _ => {}
        }
    }

    fn range_of(&self, expr: &PrimExpr) -> Option<Range> {
        if expr.ty() != PrimType::INDEX {
            return None;
        }
        Affine::of(expr).range(&self.bounds)
    }

    fn expr(&mut self, expr: PrimExpr) -> PrimExpr {
        let expr = match expr {
            PrimExpr::Var { var, ty } => {
                return self.values.get(&var).cloned().unwrap_or(PrimExpr::Var { var, ty });
            }
            // Index arithmetic is read as a whole, so that a long sum is sorted once.
            PrimExpr::Binary { op: BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul, .. }
            | PrimExpr::Unary { op: UnaryOp::Neg, .. }
                if expr.ty() == PrimType::INDEX =>
            {
                let sum = self.affine_operands(expr);
                return Affine::of(&sum).into_expr();
            }
            PrimExpr::Let { var, value, body } => {
                let value = self.expr(*value);
                if value.is_leaf() {
                    self.values.insert(var, value);
                    return self.expr(*body);
                }
                let body = self.expr(*body);
                return PrimExpr::Let { var, value: Box::new(value), body: Box::new(body) };
            }
            other => other.map_children(&mut |child| self.expr(child)),
        };
        match expr {
            PrimExpr::Unary { op, value } => PrimExpr::unary(op, *value),
            PrimExpr::Binary { op, lhs, rhs } => self.binary(op, *lhs, *rhs),
            PrimExpr::Compare { op, lhs, rhs } => self.compare(op, *lhs, *rhs),
            PrimExpr::Select { cond, then, otherwise } => {
                if then == otherwise && cond.ty().is_scalar() {
                    return *then;
                }
                PrimExpr::select(*cond, *then, *otherwise)
            }
            PrimExpr::Cast { value, dtype } => value.cast(dtype),
            PrimExpr::Reinterpret { value, dtype } => value.reinterpret(dtype),
            PrimExpr::Ramp { base, stride, lanes } => PrimExpr::ramp(*base, *stride, lanes),
            PrimExpr::Broadcast { value, lanes } => value.broadcast_to(lanes),
            other @ (PrimExpr::Int { .. }
            | PrimExpr::Float { .. }
            | PrimExpr::Var { .. }
            | PrimExpr::Load { .. }
            | PrimExpr::Shuffle { .. }
            | PrimExpr::VectorReduce { .. }
            | PrimExpr::MulAdd { .. }
            | PrimExpr::Call { .. }
            | PrimExpr::Let { .. }) => other,
        }
    }

    /// Simplifies what a sum of products consists of, down to what is not one.
    fn affine_operands(&mut self, expr: PrimExpr) -> PrimExpr {
        match expr {
            PrimExpr::Binary {
                op: op @ (BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul),
                lhs,
                rhs,
            } => {
                let (lhs, rhs) = (self.affine_operands(*lhs), self.affine_operands(*rhs));
                PrimExpr::Binary { op, lhs: Box::new(lhs), rhs: Box::new(rhs) }
            }
            PrimExpr::Unary { op: UnaryOp::Neg, value } => {
                PrimExpr::Unary { op: UnaryOp::Neg, value: Box::new(self.affine_operands(*value)) }
            }
            other => self.expr(other),
        }
    }

    fn binary(&self, op: BinaryOp, lhs: PrimExpr, rhs: PrimExpr) -> PrimExpr {
        if lhs.dtype() == DType::I64 {
            match op {
                BinaryOp::FloorDiv | BinaryOp::FloorMod => {
                    if let Some(decided) = self.division(op, &lhs, &rhs) {
                        return decided;
                    }
                }
                BinaryOp::Min | BinaryOp::Max if lhs.ty().is_scalar() => {
                    let ranges = Affine::of(&lhs)
                        .plus(&Affine::of(&rhs), -1)
                        .and_then(|difference| difference.range(&self.bounds));
                    if let Some(range) = ranges {
                        let (small, large) =
                            if op == BinaryOp::Min { (&lhs, &rhs) } else { (&rhs, &lhs) };
                        if range.max <= 0 {
                            return small.clone();
                        }
                        if range.min >= 0 {
                            return large.clone();
                        }
                    }
                }
                _ => {}
            }
        }
        PrimExpr::binary(op, lhs, rhs)
    }

    /// Floor division and modulo by a positive constant, of scalars and of ramps.
    fn division(&self, op: BinaryOp, lhs: &PrimExpr, rhs: &PrimExpr) -> Option<PrimExpr> {
        let divisor = rhs.as_int().filter(|divisor| *divisor > 0)?;
        let choose = |quotient: PrimExpr, rest: PrimExpr| {
            if op == BinaryOp::FloorDiv { quotient } else { rest }
        };
        if let PrimExpr::Ramp { base, stride, lanes } = lhs {
            let stride = stride.as_int()?;
            let base = Affine::of(base);
            if stride % divisor == 0 {
                let (quotient, rest) = base.floor_div_mod(divisor, &self.bounds)?;
                let quotient = PrimExpr::ramp(quotient.into_expr(), stride / divisor, *lanes);
                return Some(choose(quotient, rest.into_expr().broadcast_to(*lanes)));
            }
            // All lanes must be in one block. So they are if blocks consist of steps, the base is at
            // the start of one, and the lanes do not reach the next.
            let span = stride.checked_mul(i64::from(*lanes) - 1)?;
            if (0..base.step(divisor)).contains(&span) {
                let base = base.into_expr();
                let quotient =
                    self.binary(BinaryOp::FloorDiv, base.clone(), PrimExpr::index(divisor));
                let rest = self.binary(BinaryOp::FloorMod, base, PrimExpr::index(divisor));
                return Some(choose(
                    quotient.broadcast_to(*lanes),
                    PrimExpr::ramp(rest, stride, *lanes),
                ));
            }
            // Otherwise as far as the first and the last one are.
            let (quotient, rest) = base.floor_div_mod(divisor, &self.bounds)?;
            let first = rest.range(&self.bounds)?;
            let (low, high) =
                (first.min.checked_add(span.min(0))?, first.max.checked_add(span.max(0))?);
            if low < 0 || high >= divisor {
                return None;
            }
            return Some(choose(
                quotient.into_expr().broadcast_to(*lanes),
                PrimExpr::ramp(rest.into_expr(), stride, *lanes),
            ));
        }
        if !lhs.ty().is_scalar() {
            return None;
        }
        if let Some((quotient, rest)) = Affine::of(lhs).floor_div_mod(divisor, &self.bounds) {
            return Some(choose(quotient.into_expr(), rest.into_expr()));
        }
        // What divides evenly can leave the division: (8 x + y) / 4 = 2 x + y / 4.
        let (quotient, rest) = Affine::of(lhs).split_by(divisor);
        if quotient == Affine::default() {
            // ((x mod 12) mod 4) = x mod 4.
            if op == BinaryOp::FloorMod
                && let PrimExpr::Binary { op: BinaryOp::FloorMod, lhs: inner, rhs: outer } = lhs
                && outer.as_int().is_some_and(|outer| outer > 0 && outer % divisor == 0)
            {
                return Some(self.binary(BinaryOp::FloorMod, (**inner).clone(), rhs.clone()));
            }
            return None;
        }
        let rest = rest.into_expr();
        let part = PrimExpr::Binary { op, lhs: Box::new(rest), rhs: Box::new(rhs.clone()) };
        match op {
            BinaryOp::FloorDiv => Some(quotient.plus(&Affine::of(&part), 1)?.into_expr()),
            _ => Some(part),
        }
    }

    fn compare(&self, op: CompareOp, lhs: PrimExpr, rhs: PrimExpr) -> PrimExpr {
        if lhs.ty() == PrimType::INDEX
            && let Some(difference) = Affine::of(&lhs).plus(&Affine::of(&rhs), -1)
            && let Some(range) = difference.range(&self.bounds)
        {
            let decided = match op {
                CompareOp::Lt if range.max < 0 => Some(true),
                CompareOp::Lt if range.min >= 0 => Some(false),
                CompareOp::Le if range.max <= 0 => Some(true),
                CompareOp::Le if range.min > 0 => Some(false),
                CompareOp::Gt if range.min > 0 => Some(true),
                CompareOp::Gt if range.max <= 0 => Some(false),
                CompareOp::Ge if range.min >= 0 => Some(true),
                CompareOp::Ge if range.max < 0 => Some(false),
                CompareOp::Eq if range == Range::point(0) => Some(true),
                CompareOp::Eq if range.min > 0 || range.max < 0 => Some(false),
                CompareOp::Ne if range == Range::point(0) => Some(false),
                CompareOp::Ne if range.min > 0 || range.max < 0 => Some(true),
                _ => None,
            };
            if let Some(value) = decided {
                return PrimExpr::bool(value);
            }
        }
        PrimExpr::compare(op, lhs, rhs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::BufferSpec;
    use crate::pass::Pass;
    use crate::tir::PrimFuncData;

    /// The value stored by `i` in 0..8, `j` in 0..4 after simplification.
    fn simplified(
        make: impl FnOnce(PrimExpr, PrimExpr) -> PrimExpr,
    ) -> (PrimExpr, PrimExpr, PrimExpr) {
        let mut func = PrimFuncData::new("f");
        let y = func.output("y", DType::I64, BufferSpec::dense(&[8, 4]));
        let mut vars = None;
        func.body = func.serial("i", 8, |f, i| {
            f.serial("j", 4, |f, j| {
                vars = Some((i.clone(), j.clone()));
                let value = make(i.clone(), j.clone()).cast(DType::I64);
                f.store(y, [i, j], value)
            })
        });
        let func = Simplify.run_on_prim_func(PrimFunc::new(func), &PassContext::default()).unwrap();
        let mut stored = None;
        func.body.walk(&mut |stmt| {
            if let Stmt::Store { value, .. } = stmt {
                stored = Some(value.clone());
            }
        });
        let (i, j) = vars.unwrap();
        (stored.unwrap(), i, j)
    }

    #[test]
    fn divisions_are_decided_by_ranges() {
        let (value, i, _) = simplified(|i, j| (i * 4 + j).floordiv(4));
        assert_eq!(value, i);
        let (value, _, j) = simplified(|i, j| (i * 8 + j + 4).floormod(4));
        assert_eq!(value, j);
        let (value, i, _) = simplified(|i, j| (i * 8 + j + 9).floordiv(4) - 2);
        // j + 1 may reach 4, so that part stays a division.
        assert_ne!(value, i.clone() * 2);
        let (value, i, _) = simplified(|i, j| (i * 8 + j - 8).floordiv(4));
        assert_eq!(value, Affine::of(&(i * 2 - 2)).into_expr());
        let (value, i, _) = simplified(|i, _| i.floormod(12).floormod(4));
        assert_eq!(value, i.floormod(4));
    }

    #[test]
    fn conditions_and_bounds_are_decided() {
        let (value, ..) = simplified(|i, j| (i + j).less(11));
        assert_eq!(value, PrimExpr::index(1));
        let (value, i, _) = simplified(|i, _| i.max(0).min(7));
        assert_eq!(value, i);
        let (value, i, j) = simplified(|i, j| PrimExpr::select(i.clone().greater_equal(0), i, j));
        assert_eq!(value, i);
        let _ = j;
        let (value, ..) = simplified(|i, j| i.less(j));
        assert!(value.as_int().is_none());
    }

    #[test]
    fn a_guard_bounds_what_it_guards() {
        let mut func = PrimFuncData::new("f");
        let y = func.output("y", DType::I64, BufferSpec::dense(&[8]));
        func.body = func.serial("i", 8, |f, i| {
            let guard = i.clone().greater_equal(2).and(PrimExpr::index(5).greater(i.clone()));
            Stmt::if_then(guard, f.store(y, [i.clone()], i.max(2).min(4)))
        });
        let func = Simplify.run_on_prim_func(PrimFunc::new(func), &PassContext::default()).unwrap();
        let mut stored = None;
        func.body.walk(&mut |stmt| {
            if let Stmt::Store { value, .. } = stmt {
                stored = Some(value.clone());
            }
        });
        assert!(matches!(stored, Some(PrimExpr::Var { .. })), "{stored:?}");
    }

    #[test]
    fn vector_indices_split_into_block_and_lane() {
        let (value, i, _) = simplified(|i, _| {
            PrimExpr::ramp(i * 16, 1, 16).floordiv(16).vector_reduce(BinaryOp::Max)
        });
        assert_eq!(value, i.broadcast_to(16).vector_reduce(BinaryOp::Max));
        let (value, ..) = simplified(|i, _| {
            PrimExpr::ramp(i * 16, 1, 16).floormod(16).vector_reduce(BinaryOp::Max)
        });
        let lanes = PrimExpr::ramp(PrimExpr::index(0), 1, 16);
        assert_eq!(value, lanes.vector_reduce(BinaryOp::Max));
        // Half a block: which one is not known, but the lanes are in one.
        let half = |i: PrimExpr| PrimExpr::ramp(i * 8 + 24, 1, 8);
        let (value, i, _) = simplified(|i, _| half(i).floordiv(16).vector_reduce(BinaryOp::Max));
        let start = Affine::of(&(i * 8 + 8)).into_expr();
        let block = Affine::of(&(start.clone().floordiv(16) + 1)).into_expr();
        assert_eq!(value, block.broadcast_to(8).vector_reduce(BinaryOp::Max));
        let (value, ..) = simplified(|i, _| half(i).floormod(16).vector_reduce(BinaryOp::Max));
        assert_eq!(value, PrimExpr::ramp(start.floormod(16), 1, 8).vector_reduce(BinaryOp::Max));
        // A base that may be anywhere.
        let across = |i: PrimExpr| PrimExpr::ramp(i * 4, 1, 8).floordiv(16);
        let (value, i, _) = simplified(|i, _| across(i).vector_reduce(BinaryOp::Max));
        assert_eq!(value, across(i).vector_reduce(BinaryOp::Max));
    }
}
