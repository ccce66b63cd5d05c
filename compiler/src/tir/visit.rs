//! Walking and rewriting expressions and statements.
//!
//! Recursion is as deep as the tree; the verifier and the parser limit that to
//! [`MAX_DEPTH`](super::MAX_DEPTH).

use std::collections::BTreeMap;

use super::{BufferId, PrimExpr, Stmt, VarId};

impl PrimExpr {
    /// Calls `visit` with each operand.
    pub fn for_each_child<'a>(&'a self, visit: &mut dyn FnMut(&'a PrimExpr)) {
        match self {
            PrimExpr::Int { .. } | PrimExpr::Float { .. } | PrimExpr::Var { .. } => {}
            PrimExpr::Unary { op: _, value }
            | PrimExpr::Cast { value, dtype: _ }
            | PrimExpr::Reinterpret { value, dtype: _ }
            | PrimExpr::Broadcast { value, lanes: _ }
            | PrimExpr::VectorReduce { op: _, value } => visit(value),
            PrimExpr::Binary { op: _, lhs, rhs } | PrimExpr::Compare { op: _, lhs, rhs } => {
                visit(lhs);
                visit(rhs);
            }
            PrimExpr::Ramp { base, stride, lanes: _ } => {
                visit(base);
                visit(stride);
            }
            PrimExpr::Let { var: _, value, body } => {
                visit(value);
                visit(body);
            }
            PrimExpr::Select { cond, then, otherwise } => {
                visit(cond);
                visit(then);
                visit(otherwise);
            }
            PrimExpr::MulAdd { a, b, c } | PrimExpr::DotAdd { a, b, c } => {
                visit(a);
                visit(b);
                visit(c);
            }
            PrimExpr::Load { buffer: _, dtype: _, indices } => indices.iter().for_each(visit),
            PrimExpr::Shuffle { vectors, lanes: _ } => vectors.iter().for_each(visit),
            PrimExpr::Call { intrinsic: _, args } => args.iter().for_each(visit),
        }
    }

    /// Replaces each operand by the result of `map`; types are not adjusted.
    pub fn map_children(mut self, map: &mut dyn FnMut(PrimExpr) -> PrimExpr) -> PrimExpr {
        self.for_each_child_mut(&mut |child| {
            let taken = std::mem::replace(child, PrimExpr::index(0));
            *child = map(taken);
        });
        self
    }

    /// Calls `visit` with each operand.
    pub fn for_each_child_mut(&mut self, visit: &mut dyn FnMut(&mut PrimExpr)) {
        match self {
            PrimExpr::Int { .. } | PrimExpr::Float { .. } | PrimExpr::Var { .. } => {}
            PrimExpr::Unary { op: _, value }
            | PrimExpr::Cast { value, dtype: _ }
            | PrimExpr::Reinterpret { value, dtype: _ }
            | PrimExpr::Broadcast { value, lanes: _ }
            | PrimExpr::VectorReduce { op: _, value } => visit(value),
            PrimExpr::Binary { op: _, lhs, rhs } | PrimExpr::Compare { op: _, lhs, rhs } => {
                visit(lhs);
                visit(rhs);
            }
            PrimExpr::Ramp { base, stride, lanes: _ } => {
                visit(base);
                visit(stride);
            }
            PrimExpr::Let { var: _, value, body } => {
                visit(value);
                visit(body);
            }
            PrimExpr::Select { cond, then, otherwise } => {
                visit(cond);
                visit(then);
                visit(otherwise);
            }
            PrimExpr::MulAdd { a, b, c } | PrimExpr::DotAdd { a, b, c } => {
                visit(a);
                visit(b);
                visit(c);
            }
            PrimExpr::Load { buffer: _, dtype: _, indices } => indices.iter_mut().for_each(visit),
            PrimExpr::Shuffle { vectors, lanes: _ } => vectors.iter_mut().for_each(visit),
            PrimExpr::Call { intrinsic: _, args } => args.iter_mut().for_each(visit),
        }
    }

    /// Calls `visit` with this expression and all its parts, operands last.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a PrimExpr)) {
        visit(self);
        self.for_each_child(&mut |child| child.walk(visit));
    }

    /// Rebuilds the expression bottom-up: `map` sees each node after its operands were rebuilt.
    pub fn rewrite(self, map: &mut dyn FnMut(PrimExpr) -> PrimExpr) -> PrimExpr {
        let rebuilt = self.map_children(&mut |child| child.rewrite(map));
        map(rebuilt)
    }

    /// Replaces variables. Lanes are not adjusted: replace a scalar by a scalar.
    pub fn substitute(self, values: &BTreeMap<VarId, PrimExpr>) -> PrimExpr {
        self.rewrite(&mut |expr| match expr {
            PrimExpr::Var { var, ty } => {
                values.get(&var).cloned().unwrap_or(PrimExpr::Var { var, ty })
            }
            other => other,
        })
    }

    /// Whether some node satisfies the predicate.
    pub fn any(&self, predicate: &mut dyn FnMut(&PrimExpr) -> bool) -> bool {
        let mut found = false;
        self.walk(&mut |expr| found = found || predicate(expr));
        found
    }

    /// Whether a variable is used.
    pub fn uses(&self, var: VarId) -> bool {
        self.any(&mut |expr| matches!(expr, PrimExpr::Var { var: used, .. } if *used == var))
    }

    /// Nodes on the longest path to a leaf.
    pub fn depth(&self) -> usize {
        let mut deepest = 0;
        self.for_each_child(&mut |child| deepest = deepest.max(child.depth()));
        deepest + 1
    }
}

impl Stmt {
    /// Calls `visit` with each statement directly inside.
    pub fn for_each_child<'a>(&'a self, visit: &mut dyn FnMut(&'a Stmt)) {
        match self {
            Stmt::Seq(stmts) => stmts.iter().for_each(visit),
            Stmt::BlockRealize(block) => {
                if let Some(init) = &block.init {
                    visit(init);
                }
                visit(&block.body);
            }
            Stmt::For { body, .. }
            | Stmt::Block { body, name: _ }
            | Stmt::Let { body, .. }
            | Stmt::Allocate { body, buffer: _ } => visit(body),
            Stmt::If { cond: _, then, otherwise } => {
                visit(then);
                if let Some(otherwise) = otherwise {
                    visit(otherwise);
                }
            }
            Stmt::Store { .. } | Stmt::Prefetch { .. } | Stmt::Assert { .. } => {}
        }
    }

    /// Calls `visit` with each statement directly inside.
    pub fn for_each_child_mut<'a>(&'a mut self, visit: &mut dyn FnMut(&'a mut Stmt)) {
        match self {
            Stmt::Seq(stmts) => stmts.iter_mut().for_each(visit),
            Stmt::BlockRealize(block) => {
                if let Some(init) = &mut block.init {
                    visit(init);
                }
                visit(&mut block.body);
            }
            Stmt::For { body, .. }
            | Stmt::Block { body, name: _ }
            | Stmt::Let { body, .. }
            | Stmt::Allocate { body, buffer: _ } => visit(body),
            Stmt::If { cond: _, then, otherwise } => {
                visit(then);
                if let Some(otherwise) = otherwise {
                    visit(otherwise);
                }
            }
            Stmt::Store { .. } | Stmt::Prefetch { .. } | Stmt::Assert { .. } => {}
        }
    }

    /// Calls `visit` with each expression of this statement, not of those inside.
    pub fn for_each_expr<'a>(&'a self, visit: &mut dyn FnMut(&'a PrimExpr)) {
        match self {
            Stmt::BlockRealize(block) => {
                for iter in &block.iters {
                    visit(&iter.extent);
                    visit(&iter.value);
                }
                visit(&block.predicate);
            }
            Stmt::Seq(_) | Stmt::Block { .. } | Stmt::Allocate { .. } => {}
            Stmt::For { var: _, min, extent, kind: _, annotations: _, body: _ } => {
                visit(min);
                visit(extent);
            }
            Stmt::Store { buffer: _, indices, value } => {
                indices.iter().for_each(&mut *visit);
                visit(value);
            }
            Stmt::Let { var: _, value, body: _ } => visit(value),
            Stmt::If { cond, then: _, otherwise: _ } | Stmt::Assert { cond, message: _ } => {
                visit(cond)
            }
            Stmt::Prefetch { buffer: _, indices, offset, locality: _, write: _ } => {
                indices.iter().for_each(&mut *visit);
                visit(offset);
            }
        }
    }

    /// Calls `visit` with each expression of this statement, not of those inside.
    pub fn for_each_expr_mut(&mut self, visit: &mut dyn FnMut(&mut PrimExpr)) {
        match self {
            Stmt::BlockRealize(block) => {
                for iter in &mut block.iters {
                    visit(&mut iter.extent);
                    visit(&mut iter.value);
                }
                visit(&mut block.predicate);
            }
            Stmt::Seq(_) | Stmt::Block { .. } | Stmt::Allocate { .. } => {}
            Stmt::For { var: _, min, extent, kind: _, annotations: _, body: _ } => {
                visit(min);
                visit(extent);
            }
            Stmt::Store { buffer: _, indices, value } => {
                indices.iter_mut().for_each(&mut *visit);
                visit(value);
            }
            Stmt::Let { var: _, value, body: _ } => visit(value),
            Stmt::If { cond, then: _, otherwise: _ } | Stmt::Assert { cond, message: _ } => {
                visit(cond)
            }
            Stmt::Prefetch { buffer: _, indices, offset, locality: _, write: _ } => {
                indices.iter_mut().for_each(&mut *visit);
                visit(offset);
            }
        }
    }

    /// Calls `visit` with this statement and all statements in it, outer ones first.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Stmt)) {
        visit(self);
        self.for_each_child(&mut |child| child.walk(visit));
    }

    /// Calls `visit` with every expression node of this statement and of the statements in it.
    pub fn walk_exprs<'a>(&'a self, visit: &mut dyn FnMut(&'a PrimExpr)) {
        self.walk(&mut |stmt| stmt.for_each_expr(&mut |expr| expr.walk(visit)));
    }

    /// Rebuilds bottom-up: `map` sees each statement after those inside were rebuilt.
    pub fn rewrite(mut self, map: &mut dyn FnMut(Stmt) -> Stmt) -> Stmt {
        self.for_each_child_mut(&mut |child| {
            let taken = std::mem::replace(child, Stmt::nop());
            *child = taken.rewrite(map);
        });
        map(self)
    }

    /// Replaces every whole expression (not its parts) by the result of `map`.
    pub fn map_exprs(mut self, map: &mut dyn FnMut(PrimExpr) -> PrimExpr) -> Stmt {
        self.for_each_expr_mut(&mut |expr| {
            let taken = std::mem::replace(expr, PrimExpr::index(0));
            *expr = map(taken);
        });
        self.for_each_child_mut(&mut |child| {
            let taken = std::mem::replace(child, Stmt::nop());
            *child = taken.map_exprs(map);
        });
        self
    }

    /// Replaces variables in every expression, but not where they are bound.
    pub fn substitute(self, values: &BTreeMap<VarId, PrimExpr>) -> Stmt {
        self.map_exprs(&mut |expr| expr.substitute(values))
    }

    /// Whether a buffer is loaded, stored or prefetched.
    pub fn touches(&self, wanted: BufferId) -> bool {
        let mut found = false;
        self.walk(&mut |stmt| {
            if let Stmt::Store { buffer, .. } | Stmt::Prefetch { buffer, .. } = stmt {
                found |= *buffer == wanted;
            }
        });
        self.walk_exprs(&mut |expr| {
            if let PrimExpr::Load { buffer, .. } = expr {
                found |= *buffer == wanted;
            }
        });
        found
    }
}
