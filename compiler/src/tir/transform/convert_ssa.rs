//! Single assignment of names.

use std::collections::{BTreeMap, BTreeSet};

use crate::ir::IRModule;
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::{BufferId, PrimExpr, PrimFunc, PrimFuncData, Stmt, VarId};

/// Binds every variable and every local buffer in one place only.
///
/// Copies of a statement, as unrolling makes them, bind the same ones again, which is well formed as
/// long as their scopes are apart. Passes that move statements into each other need more.
#[prim_func_pass(opt_level = 0, name = "tir.ConvertSSA", crate = crate)]
pub fn convert_ssa(mut func: PrimFunc, _module: &IRModule, _cx: &PassContext) -> PrimFunc {
    if is_ssa(&func) {
        return func;
    }
    let data = func.make_mut();
    let mut body = std::mem::replace(&mut data.body, Stmt::nop());
    let bound = Bound::outside(data);
    Renamer { data, bound: Some(bound), vars: BTreeMap::new(), buffers: BTreeMap::new() }
        .stmt(&mut body);
    data.body = body;
    func
}

/// A copy of a statement of `data` in which everything that the statement binds is new.
pub(crate) fn fresh_copy(data: &mut PrimFuncData, stmt: &Stmt) -> Stmt {
    let mut copy = stmt.clone();
    Renamer { data, bound: None, vars: BTreeMap::new(), buffers: BTreeMap::new() }.stmt(&mut copy);
    copy
}

/// Whether every variable and every local buffer is bound in one place at most.
pub(crate) fn is_ssa(func: &PrimFuncData) -> bool {
    let mut bound = Bound::outside(func);
    let mut once = true;
    func.body.walk(&mut |stmt| match stmt {
        Stmt::For { var, .. } | Stmt::Let { var, .. } => once &= bound.vars.insert(*var),
        Stmt::Allocate { buffer, .. } => once &= bound.buffers.insert(*buffer),
        Stmt::BlockRealize(block) => {
            block.iters.iter().for_each(|iter| once &= bound.vars.insert(iter.var));
        }
        Stmt::Seq(_)
        | Stmt::Block { .. }
        | Stmt::Store { .. }
        | Stmt::If { .. }
        | Stmt::Prefetch { .. }
        | Stmt::Assert { .. } => {}
    });
    func.body.walk_exprs(&mut |expr| {
        if let PrimExpr::Let { var, .. } = expr {
            once &= bound.vars.insert(*var);
        }
    });
    once
}

/// What has been bound so far.
struct Bound {
    vars: BTreeSet<VarId>,
    buffers: BTreeSet<BufferId>,
}

impl Bound {
    /// What is bound before the body begins.
    fn outside(func: &PrimFuncData) -> Self {
        Bound {
            vars: func.dims.iter().copied().collect(),
            buffers: func.params.iter().map(|param| param.buffer).collect(),
        }
    }
}

struct Renamer<'a> {
    data: &'a mut PrimFuncData,
    /// The first place that binds something keeps it; without this, none does.
    bound: Option<Bound>,
    /// What stands for the variables and buffers in scope that have been replaced.
    vars: BTreeMap<VarId, VarId>,
    buffers: BTreeMap<BufferId, BufferId>,
}

impl Renamer<'_> {
    fn stmt(&mut self, stmt: &mut Stmt) {
        stmt.for_each_expr_mut(&mut |expr| self.expr(expr));
        match stmt {
            Stmt::For { var, body, .. } | Stmt::Let { var, body, .. } => {
                let outer = self.bind(var);
                self.stmt(body);
                self.restore(outer);
            }
            Stmt::Allocate { buffer, body } => self.allocate(buffer, body),
            Stmt::BlockRealize(block) => {
                let outer: Vec<_> =
                    block.iters.iter_mut().map(|iter| self.bind(&mut iter.var)).collect();
                block.init.iter_mut().for_each(|init| self.stmt(init));
                self.stmt(&mut block.body);
                outer.into_iter().for_each(|outer| self.restore(outer));
            }
            Stmt::Store { buffer, .. } | Stmt::Prefetch { buffer, .. } => self.access(buffer),
            Stmt::Seq(_) | Stmt::Block { .. } | Stmt::If { .. } | Stmt::Assert { .. } => {
                stmt.for_each_child_mut(&mut |child| self.stmt(child));
            }
        }
    }

    fn expr(&mut self, expr: &mut PrimExpr) {
        match expr {
            PrimExpr::Var { var, ty: _ } => *var = self.vars.get(var).copied().unwrap_or(*var),
            PrimExpr::Let { var, value, body } => {
                self.expr(value);
                let outer = self.bind(var);
                self.expr(body);
                self.restore(outer);
            }
            PrimExpr::Load { buffer, dtype: _, indices } => {
                self.access(buffer);
                indices.iter_mut().for_each(|index| self.expr(index));
            }
            PrimExpr::Int { .. }
            | PrimExpr::Float { .. }
            | PrimExpr::Unary { .. }
            | PrimExpr::Binary { .. }
            | PrimExpr::Compare { .. }
            | PrimExpr::Select { .. }
            | PrimExpr::Cast { .. }
            | PrimExpr::Reinterpret { .. }
            | PrimExpr::Ramp { .. }
            | PrimExpr::Broadcast { .. }
            | PrimExpr::Shuffle { .. }
            | PrimExpr::VectorReduce { .. }
            | PrimExpr::MulAdd { .. }
            | PrimExpr::Call { .. } => expr.for_each_child_mut(&mut |child| self.expr(child)),
        }
    }

    fn access(&self, buffer: &mut BufferId) {
        *buffer = self.buffers.get(buffer).copied().unwrap_or(*buffer);
    }

    fn allocate(&mut self, buffer: &mut BufferId, body: &mut Stmt) {
        let old = *buffer;
        if !self.bound.as_mut().is_some_and(|bound| bound.buffers.insert(old)) {
            *buffer = self.data.buffers.push(self.data.buffers[old].clone());
        }
        let outer = self.buffers.insert(old, *buffer);
        self.stmt(body);
        match outer {
            Some(outer) => self.buffers.insert(old, outer),
            None => self.buffers.remove(&old),
        };
    }

    /// Brings a variable into scope, as a new one if need be; returns what it stood for before.
    fn bind(&mut self, var: &mut VarId) -> (VarId, Option<VarId>) {
        let old = *var;
        if !self.bound.as_mut().is_some_and(|bound| bound.vars.insert(old)) {
            *var = self.data.vars.push(self.data.vars[old].clone());
        }
        (old, self.vars.insert(old, *var))
    }

    fn restore(&mut self, (var, outer): (VarId, Option<VarId>)) {
        match outer {
            Some(outer) => self.vars.insert(var, outer),
            None => self.vars.remove(&var),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{BufferSpec, DType};
    use crate::pass::Pass;
    use crate::tir::verify;

    #[test]
    fn what_is_bound_twice_is_told_apart() {
        let mut func = PrimFuncData::new("f");
        let y = func.output("y", DType::I64, BufferSpec::dense(&[8]));
        let scratch = func.local("scratch", DType::I64, BufferSpec::dense(&[1]));
        let step = func.serial("i", 4, |f, i| {
            let value = f.let_expr("t", i.clone() * 3, |_, t| t.clone() * t);
            let fill = f.store(scratch, [0], value);
            let read = f.store(y, [i], f.load(scratch, [0]));
            Stmt::allocate(scratch, Stmt::seq([fill, read]))
        });
        func.body = Stmt::Seq(vec![step.clone(), step]);
        let func = PrimFunc::new(func);
        assert!(!is_ssa(&func));
        verify(&func).unwrap();
        let cx = PassContext::default();
        let ssa = ConvertSsa.run_on_prim_func(func.clone(), &cx).unwrap();
        assert!(is_ssa(&ssa));
        verify(&ssa).unwrap();
        assert_eq!(ssa.vars.len(), func.vars.len() + 2);
        assert_eq!(ssa.buffers.len(), func.buffers.len() + 1);
        assert!(ssa.structural_eq(&func));
        assert!(ConvertSsa.run_on_prim_func(ssa.clone(), &cx).unwrap().same(&ssa));
    }

    #[test]
    fn a_fresh_copy_shares_nothing_that_is_bound_in_it() {
        let mut func = PrimFuncData::new("f");
        let y = func.output("y", DType::I64, BufferSpec::dense(&[4]));
        let step = func.serial("i", 4, |f, i| f.store(y, [i.clone()], i));
        let copy = fresh_copy(&mut func, &step);
        assert_ne!(copy, step);
        func.body = Stmt::Seq(vec![step, copy]);
        assert!(is_ssa(&func));
    }
}
