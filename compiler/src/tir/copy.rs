//! Copies of statements with fresh names for their declarations.

use std::collections::{BTreeMap, BTreeSet};

use super::{BufferId, PrimExpr, PrimFuncData, Stmt, VarId};

impl PrimFuncData {
    /// A copy of a statement with values for some variables. Declarations in the statement are
    /// renewed, so that the copy can stand beside the statement or another copy: no name is
    /// declared twice. Sums, products and conversions of constants are folded.
    pub fn copy_of(&mut self, stmt: &Stmt, values: &BTreeMap<VarId, PrimExpr>) -> Stmt {
        let mut copy = stmt.clone();
        Renamer::new(self, None).stmt(&mut copy);
        copy.map_exprs(&mut |expr| {
            expr.rewrite(&mut |expr| match expr {
                PrimExpr::Var { var, ty } => {
                    values.get(&var).cloned().unwrap_or(PrimExpr::Var { var, ty })
                }
                PrimExpr::Binary { op, lhs, rhs } => PrimExpr::binary(op, *lhs, *rhs),
                PrimExpr::Cast { value, dtype } if value.const_bits().is_some() => {
                    value.cast(dtype)
                }
                other => other,
            })
        })
    }
}

/// The variables and buffers that have been bound so far.
pub(crate) struct Bound {
    pub(crate) vars: BTreeSet<VarId>,
    pub(crate) buffers: BTreeSet<BufferId>,
}

impl Bound {
    /// The variables and buffers that are bound before the body begins.
    pub(crate) fn outside(func: &PrimFuncData) -> Self {
        Bound {
            vars: func.dims.iter().copied().collect(),
            buffers: func.params.iter().map(|param| param.buffer).collect(),
        }
    }
}

/// Renames the variables and buffers that a statement binds.
pub(crate) struct Renamer<'a> {
    data: &'a mut PrimFuncData,
    /// The first place that binds a name keeps it; if `None`, no place does.
    bound: Option<Bound>,
    /// The replacements of variables and buffers in scope.
    vars: BTreeMap<VarId, VarId>,
    buffers: BTreeMap<BufferId, BufferId>,
}

impl<'a> Renamer<'a> {
    pub(crate) fn new(data: &'a mut PrimFuncData, bound: Option<Bound>) -> Self {
        Renamer { data, bound, vars: BTreeMap::new(), buffers: BTreeMap::new() }
    }

    pub(crate) fn stmt(&mut self, stmt: &mut Stmt) {
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
            | PrimExpr::DotAdd { .. }
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

    /// Brings a variable into scope, renamed if necessary; returns its old name and that name's
    /// former replacement.
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
    use crate::tir::{PrimFunc, parse, verify};

    #[test]
    fn a_copy_declares_its_own_names() {
        let func = parse(
            "prim_func @f(x: input float32[8], y: output float32[8], n: dim) {
               for i in serial(4) {
                 allocate t: local float32[1]
                 let u = x[i + n] * 2.0
                 t[0] = (let v = u in v + v)
                 y[i + n] = t[0]
               }
             }",
        )
        .unwrap();
        let mut data = func.into_data();
        let body = std::mem::replace(&mut data.body, Stmt::nop());
        let values = BTreeMap::from([(data.dims[0], PrimExpr::index(4))]);
        let copy = data.copy_of(&body, &values);
        data.body = Stmt::seq([body, copy]);
        let func = PrimFunc::new(data);
        verify(&func).unwrap();
        assert_eq!(func.vars.len(), 1 + 2 * 3);
        assert_eq!(func.buffers.len(), 2 + 2);
        let text = func.to_string();
        assert!(text.contains("x[i_1 + 4]") && text.contains("t_1[0] = (let v_1"), "{text}");
    }
}
