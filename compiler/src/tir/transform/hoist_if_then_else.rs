//! Hoisting of conditions out of loops.

use std::collections::{BTreeMap, BTreeSet};

use crate::ir::{DType, IRModule};
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::{BinaryOp, BufferId, PrimExpr, PrimFunc, PrimFuncData, Stmt, VarId};

/// Moves conditions that are the same in every iteration out of their loops.
///
/// A conjunction is hoisted in part. The branch must be all that the loop does, apart from names,
/// scratch memory and branches around it. A condition that loads is moved only if the loop surely
/// evaluates it, nothing in the loop stores to the loaded buffer, and no other condition comes
/// before it, because that one may keep the load inside its buffer.
#[prim_func_pass(opt_level = 0, name = "tir.HoistIfThenElse", crate = crate)]
pub fn hoist_if_then_else(mut func: PrimFunc, _module: &IRModule, _cx: &PassContext) -> PrimFunc {
    let mut any = false;
    func.body.walk(&mut |stmt| {
        if let Stmt::For { body, .. } = stmt {
            any |= has_branch(body);
        }
    });
    if !any {
        return func;
    }
    let data = func.make_mut();
    let body = std::mem::replace(&mut data.body, Stmt::nop());
    data.body = body.rewrite(&mut |stmt| match stmt {
        Stmt::For { ref body, .. } if has_branch(body) => hoist(data, stmt),
        other => other,
    });
    func
}

/// Whether a statement is a branch, apart from names, scratch memory and regions around it.
fn has_branch(stmt: &Stmt) -> bool {
    match stmt {
        Stmt::If { .. } => true,
        Stmt::Block { body, .. } | Stmt::Let { body, .. } | Stmt::Allocate { body, .. } => {
            has_branch(body)
        }
        Stmt::Seq(_)
        | Stmt::For { .. }
        | Stmt::BlockRealize(_)
        | Stmt::Store { .. }
        | Stmt::Prefetch { .. }
        | Stmt::Assert { .. } => false,
    }
}

fn hoist(data: &mut PrimFuncData, stmt: Stmt) -> Stmt {
    let Stmt::For { var, min, extent, kind, annotations, body } = stmt else { return stmt };
    let mut stored = BTreeSet::new();
    body.walk(&mut |stmt| {
        if let Stmt::Store { buffer, .. } = stmt {
            stored.insert(*buffer);
            stored.extend(data.same_memory(*buffer));
        }
    });
    let mut path = Path {
        vars: BTreeSet::from([var]),
        stored,
        may_load: extent.as_int().is_some_and(|extent| extent > 0),
        in_branch: false,
        conditions: Vec::new(),
    };
    let (body, otherwise) = path.take(*body);
    let repeat = |body: Stmt| Stmt::For {
        var,
        min: min.clone(),
        extent: extent.clone(),
        kind,
        annotations: annotations.clone(),
        body: Box::new(body),
    };
    let otherwise = otherwise.map(|body| data.copy_of(&repeat(body), &BTreeMap::new()));
    let mut conditions = path.conditions.into_iter().rev();
    let Some(innermost) = conditions.next() else { return repeat(body) };
    let branch = Stmt::If {
        cond: innermost,
        then: Box::new(repeat(body)),
        otherwise: otherwise.map(Box::new),
    };
    conditions.fold(branch, |inner, cond| Stmt::if_then(cond, inner))
}

/// The path from a loop to the branches in it.
struct Path {
    /// Variables that are bound on the path, including the loop's own.
    vars: BTreeSet<VarId>,
    /// Buffers that the loop stores to, or allocates on the path.
    stored: BTreeSet<BufferId>,
    /// Whether the current statement is surely evaluated, given that the hoisted conditions hold.
    may_load: bool,
    /// Whether the path is within a branch: the other side of a second branch would have to move
    /// too.
    in_branch: bool,
    /// The hoisted conditions, outermost first.
    conditions: Vec<PrimExpr>,
}

impl Path {
    /// Removes conditions from the loop's body. The second result is the body for the case that the
    /// condition does not hold, if the branch has another side.
    fn take(&mut self, stmt: Stmt) -> (Stmt, Option<Stmt>) {
        match stmt {
            Stmt::Block { name, body } => {
                let (body, otherwise) = self.take(*body);
                let otherwise = otherwise.map(|body| Stmt::block(name.clone(), body));
                (Stmt::block(name, body), otherwise)
            }
            Stmt::Let { var, value, body } => {
                self.vars.insert(var);
                let (body, otherwise) = self.take(*body);
                let otherwise = otherwise.map(|body| Stmt::let_(var, value.clone(), body));
                (Stmt::let_(var, value, body), otherwise)
            }
            Stmt::Allocate { buffer, body } => {
                self.stored.insert(buffer);
                let (body, otherwise) = self.take(*body);
                (Stmt::allocate(buffer, body), otherwise.map(|body| Stmt::allocate(buffer, body)))
            }
            Stmt::If { cond, then, otherwise: None } => (self.take_conjuncts(cond, *then), None),
            Stmt::If { cond, then, otherwise: Some(otherwise) }
                if !self.in_branch && self.may_go(&cond) =>
            {
                self.conditions.push(cond);
                (*then, Some(*otherwise))
            }
            other @ (Stmt::If { .. }
            | Stmt::Seq(_)
            | Stmt::For { .. }
            | Stmt::BlockRealize(_)
            | Stmt::Store { .. }
            | Stmt::Prefetch { .. }
            | Stmt::Assert { .. }) => (other, None),
        }
    }

    fn take_conjuncts(&mut self, cond: PrimExpr, then: Stmt) -> Stmt {
        let mut parts = Vec::new();
        conjuncts(cond, &mut parts);
        let (going, staying): (Vec<_>, Vec<_>) =
            parts.into_iter().partition(|part| self.may_go(part));
        self.conditions.extend(going.into_iter().reduce(PrimExpr::and));
        let staying = staying.into_iter().reduce(PrimExpr::and);
        self.may_load &= staying.is_none();
        self.in_branch = true;
        let (inner, _) = self.take(then);
        staying.into_iter().fold(inner, |inner, cond| Stmt::if_then(cond, inner))
    }

    /// Whether a condition may be evaluated before the loop instead.
    fn may_go(&self, cond: &PrimExpr) -> bool {
        !cond.any(&mut |node| match node {
            PrimExpr::Var { var, .. } => self.vars.contains(var),
            PrimExpr::Load { buffer, .. } => !self.may_load || self.stored.contains(buffer),
            _ => false,
        })
    }
}

/// The terms of a conjunction, in order.
fn conjuncts(cond: PrimExpr, parts: &mut Vec<PrimExpr>) {
    match cond {
        PrimExpr::Binary { op: BinaryOp::And, lhs, rhs } if lhs.dtype() == DType::Bool => {
            conjuncts(*lhs, parts);
            conjuncts(*rhs, parts);
        }
        other => parts.push(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::Pass;
    use crate::tir::{parse, verify};

    fn hoisted(body: &str, expected: &str) {
        let text = |body: &str| {
            format!(
                "prim_func @f(x: input float32[4], y: output float32[4, 4], n: dim) inplace(1, 0) {{\
                 \n{body}\n}}\n"
            )
        };
        let func = parse(&text(body)).unwrap();
        let cx = PassContext::default();
        let found = HoistIfThenElse.run_on_prim_func(func, &cx).unwrap();
        verify(&found).unwrap();
        assert_eq!(found.to_string(), parse(&text(expected)).unwrap().to_string());
    }

    #[test]
    fn conditions_leave_all_loops_that_they_do_not_depend_on() {
        hoisted(
            "for i in serial(4) { for j in serial(4) { if i < 2 & j < n & n > 1 { y[i, j] = 1.0 } } }",
            "if n > 1 { for i in serial(4) { if i < 2 { for j in serial(4) { if j < n {
               y[i, j] = 1.0 } } } } }",
        );
        hoisted(
            "for i in serial(4) { let t = x[i] if n > 1 { y[i, 0] = t } else { y[i, 1] = t } }",
            "if n > 1 { for i in serial(4) { let t = x[i] y[i, 0] = t } } else {
             for i in serial(4) { let t = x[i] y[i, 1] = t } }",
        );
    }

    #[test]
    fn branches_among_other_statements_stay() {
        let body = "for i in serial(4) { y[i, 0] = 0.0 if n > 1 { y[i, 1] = 1.0 } }";
        hoisted(body, body);
    }

    #[test]
    fn loads_do_not_leave_their_guards() {
        let guarded =
            "for i in serial(4) { if n < 4 { if x[n] > 0.0 { prefetch y[i, 0] write 3 } } }";
        hoisted(
            guarded,
            "if n < 4 { if x[n] > 0.0 { for i in serial(4) { prefetch y[i, 0] write 3 } } }",
        );
        // The guard differs between iterations.
        let varying =
            "for i in serial(4) { if i < n { if x[n] > 0.0 { prefetch y[i, 0] write 3 } } }";
        hoisted(varying, varying);
        // The loop may have no iteration.
        let empty = "for i in serial(n) { if x[n - 1] > 0.0 { prefetch y[i, 0] write 3 } }";
        hoisted(empty, empty);
        // Inputs and outputs may be the same memory.
        let stored = "for i in serial(4) { if x[0] > 0.0 { y[i, 0] = 0.0 } }";
        hoisted(stored, stored);
    }
}
