//! Removal of statements that do nothing.

use crate::ir::IRModule;
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::{BufferId, CompareOp, ForKind, PrimExpr, PrimFunc, Stmt, VarId};

/// Drops statements without effect: empty loops, unused names, stores of the present value.
///
/// Empty branches and blocks are dropped, and so are buffers that are never read, with the stores
/// to them. A loop that does something up to an iteration alone ends there.
#[prim_func_pass(opt_level = 0, name = "tir.RemoveNoOp", crate = crate)]
pub fn remove_no_op(func: PrimFunc, _module: &IRModule, _cx: &PassContext) -> PrimFunc {
    func.map_body(|mut body| {
        loop {
            let mut again = false;
            body = body.rewrite(&mut |stmt| remove(stmt, &mut again));
            if !again {
                return body;
            }
        }
    })
}

/// Sets `again` if stores were removed: buffers that only they read can be dropped then.
fn remove(stmt: Stmt, again: &mut bool) -> Stmt {
    match stmt {
        Stmt::Seq(stmts) => Stmt::seq(stmts),
        Stmt::For { ref body, .. } | Stmt::Block { ref body, .. } if body.is_nop() => Stmt::nop(),
        Stmt::For { ref extent, .. } if extent.as_int().is_some_and(|count| count <= 0) => {
            Stmt::nop()
        }
        Stmt::For { var, min, extent, kind: ForKind::Serial, annotations, body } => {
            let (extent, body) = ending(var, &min, extent, *body);
            let body = Box::new(body);
            Stmt::For { var, min, extent, kind: ForKind::Serial, annotations, body }
        }
        Stmt::If { cond, then, otherwise } => {
            let otherwise = otherwise.filter(|stmt| !stmt.is_nop());
            match otherwise {
                None if then.is_nop() => Stmt::nop(),
                Some(otherwise) if then.is_nop() => Stmt::if_then(!cond, *otherwise),
                Some(otherwise) if then == otherwise => *then,
                otherwise => Stmt::If { cond, then, otherwise },
            }
        }
        Stmt::Store {
            buffer,
            ref indices,
            value: PrimExpr::Load { buffer: from, indices: ref at, .. },
        } if buffer == from && indices == at => Stmt::nop(),
        Stmt::Allocate { buffer, body } if !body.touches(buffer) => *body,
        Stmt::Allocate { buffer, body } if !loads(&body, buffer) => {
            *again = true;
            without_stores(*body, buffer)
        }
        Stmt::Let { var, value, body } => {
            let mut used = false;
            body.walk_exprs(&mut |expr| {
                used |= matches!(expr, PrimExpr::Var { var: v, .. } if *v == var);
            });
            if used { Stmt::Let { var, value, body } } else { *body }
        }
        other => other,
    }
}

/// The iterations of a loop that do something, if those are the first ones, and what they do.
fn ending(var: VarId, min: &PrimExpr, extent: PrimExpr, body: Stmt) -> (PrimExpr, Stmt) {
    match body {
        Stmt::If {
            cond: PrimExpr::Compare { op: CompareOp::Lt, lhs, rhs },
            then,
            otherwise: None,
        } if matches!(*lhs, PrimExpr::Var { var: found, .. } if found == var)
            && is_steady(&rhs, var) =>
        {
            (extent.min(*rhs - min.clone()), *then)
        }
        body => (extent, body),
    }
}

/// Whether an expression has one value in all iterations of a loop.
fn is_steady(expr: &PrimExpr, var: VarId) -> bool {
    !expr.any(&mut |expr| match expr {
        PrimExpr::Var { var: found, .. } => *found == var,
        PrimExpr::Load { .. } | PrimExpr::Call { .. } => true,
        _ => false,
    })
}

fn loads(stmt: &Stmt, wanted: BufferId) -> bool {
    let mut found = false;
    stmt.walk_exprs(&mut |expr| {
        found |= matches!(expr, PrimExpr::Load { buffer, .. } if *buffer == wanted);
    });
    found
}

/// A statement without its stores to, and prefetches of, a buffer that is never read.
fn without_stores(stmt: Stmt, unread: BufferId) -> Stmt {
    stmt.rewrite(&mut |stmt| match stmt {
        Stmt::Store { buffer, .. } | Stmt::Prefetch { buffer, .. } if buffer == unread => {
            Stmt::nop()
        }
        Stmt::Seq(stmts) => Stmt::seq(stmts),
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{BufferSpec, DType};
    use crate::pass::Pass;
    use crate::tir::{PrimFuncData, parse};

    #[test]
    fn only_statements_with_an_effect_stay() {
        let mut func = PrimFuncData::new("f");
        let y = func.output("y", DType::F32, BufferSpec::dense(&[1]));
        let scratch = func.local("scratch", DType::F32, BufferSpec::dense(&[4]));
        let unused = func.var("unused", DType::F32);
        let n = func.dim("n");
        let store = func.store(y, [0], PrimExpr::f32(1.0));
        let empty = func.serial("i", n.clone(), |_, _| Stmt::Seq(vec![Stmt::nop()]));
        let cond = n.clone().less(3);
        func.body = Stmt::allocate(
            scratch,
            Stmt::Seq(vec![
                empty,
                Stmt::let_(
                    unused,
                    PrimExpr::f32(2.0),
                    Stmt::if_then_else(cond.clone(), Stmt::nop(), store.clone()),
                ),
            ]),
        );
        let func =
            RemoveNoOp.run_on_prim_func(PrimFunc::new(func), &PassContext::default()).unwrap();
        assert_eq!(func.body, Stmt::if_then(!cond, store));
    }

    #[test]
    fn loops_end_where_nothing_is_done_any_more() {
        let ends = |condition: &str| {
            let func = parse(&format!(
                "prim_func @f(x: input int64[8], y: output float32[8], n: dim) {{
                    for i in serial(8) {{ if {condition} {{ y[i] = 1.0 }} }}
                }}"
            ));
            let func = RemoveNoOp.run_on_prim_func(func.unwrap(), &PassContext::default()).unwrap();
            let Stmt::For { extent, body, .. } = &func.body else { panic!("a loop") };
            (extent.as_int() != Some(8), matches!(**body, Stmt::Store { .. }))
        };
        assert_eq!(ends("i < n"), (true, true));
        assert_eq!(ends("i < n + 2"), (true, true));
        // Others are done later, or where a number says that the loop may change.
        for condition in ["n < i", "i < n - i", "i < x[0]", "i + i < n"] {
            assert_eq!(ends(condition), (false, false), "{condition}");
        }
    }

    #[test]
    fn values_that_nothing_reads_are_not_computed() {
        let func = parse(
            "prim_func @f(x: input float32[4], y: output float32[4]) {
                y[0] = 1.0
                for i in serial(4) { y[i] = y[i] if x[i] < 0.0 { y[0] = 2.0 } else { y[0] = 2.0 } }
                allocate a: local float32[4]
                allocate b: local float32[4]
                for i in serial(4) { a[i] = x[i] }
                for i in serial(4) { b[i] = a[i] }
            }",
        )
        .unwrap();
        let func = RemoveNoOp.run_on_prim_func(func, &PassContext::default()).unwrap();
        assert_eq!(
            func.to_string(),
            "prim_func @f(x: input float32[4], y: output float32[4]) {
  y[0] = 1.0
  for i in serial(4) {
    y[0] = 2.0
  }
}
"
        );
    }
}
