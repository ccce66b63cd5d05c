//! Narrowing of index arithmetic.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ir::{DType, IRModule};
use crate::pass::{PassContext, Result, prim_func_pass};
use crate::tir::transform::FlattenBuffer;
use crate::tir::{Analyzer, BinaryOp, BlockRealize, PrimExpr, PrimFunc, PrimFuncData, Stmt, VarId};

/// The width of narrowed indices; the argument of TVM's pass.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NarrowDataTypeConfig {
    /// Bits of a narrowed index: 32, or 64 to narrow nothing.
    pub target_bits: u32,
}

impl Default for NarrowDataTypeConfig {
    fn default() -> Self {
        NarrowDataTypeConfig { target_bits: 32 }
    }
}

crate::register_pass_config_option! {
    /// The width of narrowed indices.
    pub NARROW_DATA_TYPE: NarrowDataTypeConfig = "tir.NarrowDataType";
}

/// Makes loop variables and index arithmetic `int32` where they provably fit.
///
/// An operator is narrowed if the bounds of all its operands and of its result fit `int32`; a loop,
/// if its end fits too. Where a narrow operand meets a wide one, such as a product with a
/// dimension, it is widened. Positions count elements: an index of a buffer beyond 2 GiB is narrow
/// if the buffer has few enough elements.
///
/// # Errors
///
/// The target bits are neither 32 nor 64.
#[prim_func_pass(opt_level = 0, name = "tir.NarrowDataType", after = [FlattenBuffer], crate = crate)]
pub fn narrow_data_type(func: PrimFunc, _module: &IRModule, cx: &PassContext) -> Result<PrimFunc> {
    match cx.get(&NARROW_DATA_TYPE).target_bits {
        32 => {}
        64 => return Ok(func),
        bits => {
            return Err(format!("indices cannot have {bits} bits: 32 or 64 are possible").into());
        }
    }
    let mut data = PrimFuncData::clone(&func);
    let analyzer = Analyzer::of(&data);
    let mut narrower = Narrower { data: &mut data, analyzer, names: BTreeMap::new() };
    let body = narrower.stmt(&func.body);
    if body == func.body {
        return Ok(func);
    }
    data.body = body;
    Ok(PrimFunc::new(data))
}

struct Narrower<'a> {
    data: &'a mut PrimFuncData,
    /// Knows the original variables.
    analyzer: Analyzer,
    /// The replacements of variables that are narrow now.
    names: BTreeMap<VarId, VarId>,
}

impl Narrower<'_> {
    fn stmt(&mut self, stmt: &Stmt) -> Stmt {
        match stmt {
            Stmt::Seq(stmts) => {
                let scope = self.analyzer.enter();
                let stmts = stmts
                    .iter()
                    .map(|stmt| {
                        let narrowed = self.stmt(stmt);
                        // Statements after an assertion run only if it holds.
                        if let Stmt::Assert { cond, .. } = stmt {
                            self.analyzer.assume(cond);
                        }
                        narrowed
                    })
                    .collect();
                self.analyzer.leave(scope);
                Stmt::Seq(stmts)
            }
            Stmt::For { .. } => self.for_loop(stmt),
            Stmt::BlockRealize(block) => self.realize(block),
            Stmt::Let { var, value, body } => {
                let narrowed = self.expr(value);
                let scope = self.analyzer.enter();
                self.analyzer.define(*var, value);
                let (name, body) =
                    self.named(*var, value, &narrowed, |this| Box::new(this.stmt(body)));
                self.analyzer.leave(scope);
                Stmt::Let { var: name, value: narrowed, body }
            }
            Stmt::If { cond, then, otherwise } => {
                let narrowed = self.expr(cond);
                let scope = self.analyzer.enter();
                self.analyzer.assume(cond);
                let then = Box::new(self.stmt(then));
                self.analyzer.leave(scope);
                let otherwise = otherwise.as_ref().map(|stmt| {
                    let scope = self.analyzer.enter();
                    self.analyzer.assume_not(cond);
                    let stmt = Box::new(self.stmt(stmt));
                    self.analyzer.leave(scope);
                    stmt
                });
                Stmt::If { cond: narrowed, then, otherwise }
            }
            Stmt::Store { buffer, indices, value } => {
                let indices = self.all(indices);
                Stmt::Store { buffer: *buffer, indices, value: self.kept(value) }
            }
            Stmt::Prefetch { buffer, indices, offset, locality, write } => {
                let (indices, offset) = (self.all(indices), self.kept(offset));
                let (locality, write) = (*locality, *write);
                Stmt::Prefetch { buffer: *buffer, indices, offset, locality, write }
            }
            Stmt::Block { name, body } => {
                Stmt::Block { name: name.clone(), body: Box::new(self.stmt(body)) }
            }
            Stmt::Allocate { buffer, body } => {
                Stmt::Allocate { buffer: *buffer, body: Box::new(self.stmt(body)) }
            }
            Stmt::Assert { cond, message } => {
                Stmt::Assert { cond: self.expr(cond), message: message.clone() }
            }
        }
    }

    fn for_loop(&mut self, stmt: &Stmt) -> Stmt {
        let Stmt::For { var, min, extent, kind, annotations, body } = stmt else {
            return stmt.clone();
        };
        // Generated code compares the variable with the end.
        let end = min.clone() + extent;
        let fits = [min, extent, &end].into_iter().all(|bound| self.fits(bound));
        let ty = if fits { DType::I32 } else { min.dtype() };
        let [first, count] = [min, extent].map(|bound| self.expr(bound).cast(ty));
        let scope = self.analyzer.enter();
        self.analyzer.bind_loop(*var, min, extent);
        let (var, body) = self.named(*var, min, &first, |this| Box::new(this.stmt(body)));
        self.analyzer.leave(scope);
        let annotations = annotations.clone();
        Stmt::For { var, min: first, extent: count, kind: *kind, annotations, body }
    }

    /// A block's own variables keep their type.
    fn realize(&mut self, block: &BlockRealize) -> Stmt {
        let mut block = block.clone();
        let scope = self.analyzer.enter();
        self.analyzer.assume(&block.predicate);
        for iter in &mut block.iters {
            self.analyzer.define(iter.var, &iter.value);
            (iter.value, iter.extent) = (self.kept(&iter.value), self.kept(&iter.extent));
        }
        block.predicate = self.expr(&block.predicate);
        block.init = block.init.map(|init| self.stmt(&init));
        block.body = self.stmt(&block.body);
        self.analyzer.leave(scope);
        Stmt::BlockRealize(Box::new(block))
    }

    /// Runs `inside` with a value for a variable, and returns the variable's name there: a new one
    /// if the value was narrowed.
    fn named<T>(
        &mut self,
        var: VarId,
        before: &PrimExpr,
        narrowed: &PrimExpr,
        inside: impl FnOnce(&mut Self) -> T,
    ) -> (VarId, T) {
        if narrowed.dtype() == before.dtype() {
            // The variable may have a narrow value elsewhere.
            let outer = self.names.remove(&var);
            let result = inside(self);
            self.names.extend(outer.map(|name| (var, name)));
            return (var, result);
        }
        let mut decl = self.data.vars[var].clone();
        decl.ty = narrowed.ty();
        let name = self.data.vars.push(decl);
        let outer = self.names.insert(var, name);
        let result = inside(self);
        match outer {
            Some(outer) => self.names.insert(var, outer),
            None => self.names.remove(&var),
        };
        (name, result)
    }

    /// Whether the values of an original expression fit `int32`.
    fn fits(&mut self, expr: &PrimExpr) -> bool {
        let (min, max) = self.analyzer.const_int_bound(expr);
        i32::try_from(min).is_ok() && i32::try_from(max).is_ok()
    }

    fn all(&mut self, exprs: &[PrimExpr]) -> Vec<PrimExpr> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    /// An expression whose type must not change.
    fn kept(&mut self, expr: &PrimExpr) -> PrimExpr {
        self.expr(expr).cast(expr.dtype())
    }

    /// Operands of one type: all narrow if each one is narrow and `may` holds.
    fn alike<const N: usize>(&mut self, operands: [&PrimExpr; N], may: bool) -> [PrimExpr; N] {
        let narrowed = operands.map(|operand| self.expr(operand));
        let was_wide = operands.iter().all(|operand| operand.dtype() == DType::I64);
        let is_narrow = narrowed.iter().all(|operand| operand.dtype() == DType::I32);
        if !was_wide || (may && is_narrow) {
            return narrowed;
        }
        narrowed.map(|operand| operand.cast(DType::I64))
    }

    /// The same value: in `int32` if it was `int64` and could be narrowed, else in its own type.
    fn expr(&mut self, expr: &PrimExpr) -> PrimExpr {
        match expr {
            PrimExpr::Int { value, dtype: DType::I64 } if i32::try_from(*value).is_ok() => {
                PrimExpr::int(*value, DType::I32)
            }
            PrimExpr::Int { .. } | PrimExpr::Float { .. } => expr.clone(),
            PrimExpr::Var { var, ty: _ } => {
                self.names.get(var).map_or_else(|| expr.clone(), |name| self.data.var_expr(*name))
            }
            PrimExpr::Unary { op, value } => {
                let may = self.may_be_narrow(expr);
                let [value] = self.alike([value], may);
                PrimExpr::unary(*op, value)
            }
            PrimExpr::Binary { op, lhs, rhs } => {
                let may = self.may_be_narrow(expr);
                let [lhs, rhs] = self.alike([lhs, rhs], may);
                PrimExpr::binary(*op, lhs, rhs)
            }
            PrimExpr::Compare { op, lhs, rhs } => {
                let [lhs, rhs] = self.alike([lhs, rhs], true);
                PrimExpr::compare(*op, lhs, rhs)
            }
            PrimExpr::Select { cond, then, otherwise } => {
                let cond = self.expr(cond);
                let [then, otherwise] = self.alike([then, otherwise], true);
                PrimExpr::select(cond, then, otherwise)
            }
            PrimExpr::Cast { value, dtype } => self.cast(value, *dtype),
            PrimExpr::Load { buffer, dtype, indices } => {
                PrimExpr::Load { buffer: *buffer, dtype: *dtype, indices: self.all(indices) }
            }
            PrimExpr::Ramp { base, stride, lanes } => {
                let may = self.may_be_narrow(expr);
                let [base, stride] = self.alike([base, stride], may);
                PrimExpr::ramp(base, stride, *lanes)
            }
            PrimExpr::Broadcast { value, lanes } => self.expr(value).broadcast_to(*lanes),
            PrimExpr::Let { var, value, body } => self.let_in(*var, value, body),
            PrimExpr::Reinterpret { .. }
            | PrimExpr::Shuffle { .. }
            | PrimExpr::VectorReduce { .. }
            | PrimExpr::MulAdd { .. }
            | PrimExpr::DotAdd { .. }
            | PrimExpr::Call { .. } => {
                let mut expr = expr.clone();
                expr.for_each_child_mut(&mut |child| *child = self.kept(child));
                expr
            }
        }
    }

    /// Whether a narrow operator gives the same result, if its operands are narrow.
    fn may_be_narrow(&mut self, expr: &PrimExpr) -> bool {
        let is_defined = match expr {
            // A narrow shift beyond its width has another result.
            PrimExpr::Binary { op: BinaryOp::Shl | BinaryOp::Shr, rhs, .. } => {
                rhs.as_int().is_some_and(|amount| (0..32).contains(&amount))
            }
            _ => true,
        };
        is_defined && expr.dtype() == DType::I64 && self.fits(expr)
    }

    fn cast(&mut self, value: &PrimExpr, to: DType) -> PrimExpr {
        let from = value.dtype();
        let value = self.expr(value);
        // All values of these types fit `int32`.
        let is_small = from == DType::Bool || (from.int_range().is_some() && from.bits() < 32);
        match to {
            DType::I64 if is_small || value.dtype() == DType::I32 => value.cast(DType::I32),
            to => value.cast(to),
        }
    }

    fn let_in(&mut self, var: VarId, value: &PrimExpr, body: &PrimExpr) -> PrimExpr {
        let narrowed = self.expr(value);
        let scope = self.analyzer.enter();
        self.analyzer.define(var, value);
        let (var, body) = self.named(var, value, &narrowed, |this| Box::new(this.expr(body)));
        self.analyzer.leave(scope);
        PrimExpr::Let { var, value: Box::new(narrowed), body }
    }
}

#[cfg(test)]
mod tests;
