//! Copies of statements with names of their own.

use std::collections::BTreeMap;

use super::{BufferId, PrimExpr, PrimFuncData, Stmt, VarId};

impl PrimFuncData {
    /// A copy of a statement in which some variables have values. What the statement declares is
    /// declared anew for the copy, so that it can stand beside the statement or another copy: no
    /// name is declared twice. Operators on constants are folded.
    pub fn copy_of(&mut self, stmt: &Stmt, values: &BTreeMap<VarId, PrimExpr>) -> Stmt {
        let mut copy =
            Copy { vars: values.clone(), names: BTreeMap::new(), buffers: BTreeMap::new() };
        copy.declare(stmt, self);
        copy.stmt(stmt.clone())
    }
}

struct Copy {
    /// What stands for a variable: its value, or that of the copy.
    vars: BTreeMap<VarId, PrimExpr>,
    /// The variables that the copy declares, and its buffers.
    names: BTreeMap<VarId, VarId>,
    buffers: BTreeMap<BufferId, BufferId>,
}

impl Copy {
    fn declare(&mut self, stmt: &Stmt, func: &mut PrimFuncData) {
        stmt.walk(&mut |stmt| match stmt {
            Stmt::For { var, .. } | Stmt::Let { var, .. } => self.declare_var(*var, func),
            Stmt::BlockRealize(block) => {
                block.iters.iter().for_each(|iter| self.declare_var(iter.var, func));
            }
            Stmt::Allocate { buffer, body: _ } => {
                if let Some(decl) = func.buffers.get(*buffer).cloned() {
                    self.buffers.insert(*buffer, func.buffers.push(decl));
                }
            }
            Stmt::Seq(_)
            | Stmt::Block { .. }
            | Stmt::Store { .. }
            | Stmt::If { .. }
            | Stmt::Prefetch { .. }
            | Stmt::Assert { .. } => {}
        });
        stmt.walk_exprs(&mut |expr| {
            if let PrimExpr::Let { var, .. } = expr {
                self.declare_var(*var, func);
            }
        });
    }

    fn declare_var(&mut self, var: VarId, func: &mut PrimFuncData) {
        if let Some(decl) = func.vars.get(var).cloned() {
            let ty = decl.ty;
            let copy = func.vars.push(decl);
            self.names.insert(var, copy);
            self.vars.insert(var, PrimExpr::Var { var: copy, ty });
        }
    }

    fn stmt(&self, stmt: Stmt) -> Stmt {
        let stmt = stmt.map_exprs(&mut |expr| expr.rewrite(&mut |expr| self.expr(expr)));
        if self.names.is_empty() && self.buffers.is_empty() {
            return stmt;
        }
        stmt.rewrite(&mut |mut stmt| {
            match &mut stmt {
                Stmt::For { var, .. } | Stmt::Let { var, .. } => self.rename(var),
                Stmt::BlockRealize(block) => {
                    block.iters.iter_mut().for_each(|iter| self.rename(&mut iter.var));
                }
                Stmt::Store { buffer, .. }
                | Stmt::Prefetch { buffer, .. }
                | Stmt::Allocate { buffer, .. } => {
                    *buffer = self.buffers.get(buffer).copied().unwrap_or(*buffer);
                }
                Stmt::Seq(_) | Stmt::Block { .. } | Stmt::If { .. } | Stmt::Assert { .. } => {}
            }
            stmt
        })
    }

    fn rename(&self, var: &mut VarId) {
        *var = self.names.get(var).copied().unwrap_or(*var);
    }

    fn expr(&self, expr: PrimExpr) -> PrimExpr {
        match expr {
            PrimExpr::Var { var, ty } => {
                self.vars.get(&var).cloned().unwrap_or(PrimExpr::Var { var, ty })
            }
            PrimExpr::Let { mut var, value, body } => {
                self.rename(&mut var);
                PrimExpr::Let { var, value, body }
            }
            PrimExpr::Load { buffer, dtype, indices } => {
                let buffer = self.buffers.get(&buffer).copied().unwrap_or(buffer);
                PrimExpr::Load { buffer, dtype, indices }
            }
            PrimExpr::Binary { op, lhs, rhs } => PrimExpr::binary(op, *lhs, *rhs),
            other => other,
        }
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
