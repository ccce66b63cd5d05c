//! Simplification of indices, conditions and control flow.

use crate::ir::IRModule;
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::{Analyzer, PrimExpr, PrimFunc, Stmt};

/// Folds constants and decides divisions, minima, comparisons and branches by known ranges.
///
/// The ranges of loop variables and enclosing conditions are known.
///
/// Indices are brought into canonical form. Loops of one iteration or none and branches that are
/// never taken are removed.
#[prim_func_pass(opt_level = 0, name = "tir.Simplify", crate = crate)]
pub fn simplify(func: PrimFunc, _module: &IRModule, _cx: &PassContext) -> PrimFunc {
    let mut analyzer = Analyzer::of(&func);
    func.map_body(|body| simplify_stmt(&mut analyzer, body))
}

/// Simplifies a statement with an analyser that knows the surroundings.
pub(super) fn simplify_stmt(analyzer: &mut Analyzer, stmt: Stmt) -> Stmt {
    match stmt {
        Stmt::Seq(stmts) => {
            let scope = analyzer.enter();
            let stmts = stmts.into_iter().map(|stmt| {
                let stmt = simplify_stmt(analyzer, stmt);
                // Statements after an assertion run only if it holds.
                if let Stmt::Assert { cond, .. } = &stmt {
                    analyzer.assume_stable(cond, true);
                }
                stmt
            });
            let stmt = Stmt::seq(stmts);
            analyzer.leave(scope);
            stmt
        }
        Stmt::BlockRealize(mut block) => {
            for iter in &mut block.iters {
                iter.value = analyzer.expr(take(&mut iter.value));
            }
            block.predicate = analyzer.expr(take(&mut block.predicate));
            let scope = analyzer.enter();
            analyzer.assume_stable(&block.predicate, true);
            for iter in &block.iters {
                analyzer.define(iter.var, &iter.value);
                let value = PrimExpr::var(iter.var, iter.value.dtype());
                analyzer.assume(&value.clone().greater_equal(0));
                analyzer.assume(&value.less(&iter.extent));
            }
            block.init = block.init.map(|init| simplify_stmt(analyzer, init));
            block.body = simplify_stmt(analyzer, block.body);
            analyzer.leave(scope);
            Stmt::BlockRealize(block)
        }
        Stmt::Block { name, body } => {
            around(simplify_stmt(analyzer, *body), |body| Stmt::Block { name, body })
        }
        Stmt::For { var, min, extent, kind, annotations, body } => {
            let (min, extent) = (analyzer.expr(min), analyzer.expr(extent));
            if analyzer.const_int_bound(&extent).1 <= 0 {
                return Stmt::nop();
            }
            let scope = analyzer.enter();
            let replaced = analyzer.bind_loop(var, &min, &extent);
            let body = simplify_stmt(analyzer, *body);
            analyzer.leave(scope);
            if replaced {
                return body;
            }
            around(body, |body| Stmt::For { var, min, extent, kind, annotations, body })
        }
        Stmt::Let { var, value, body } => {
            let value = analyzer.expr(value);
            let scope = analyzer.enter();
            let is_leaf = value.is_leaf();
            if is_leaf {
                analyzer.set_value(var, value.clone());
            } else {
                analyzer.define(var, &value);
            }
            let body = simplify_stmt(analyzer, *body);
            analyzer.leave(scope);
            if is_leaf { body } else { around(body, |body| Stmt::Let { var, value, body }) }
        }
        Stmt::If { cond, then, otherwise } => {
            let cond = analyzer.expr(cond);
            match analyzer.decide_by_cases(&cond).or(cond.as_int().map(|value| value != 0)) {
                Some(false) => {
                    otherwise.map_or_else(Stmt::nop, |stmt| simplify_stmt(analyzer, *stmt))
                }
                Some(true) => simplify_stmt(analyzer, *then),
                None => branches(analyzer, cond, *then, otherwise.map(|stmt| *stmt)),
            }
        }
        Stmt::Assert { cond, message } => {
            let cond = analyzer.expr(cond);
            if cond.is_const(1) { Stmt::nop() } else { Stmt::Assert { cond, message } }
        }
        Stmt::Allocate { buffer, body } => {
            around(simplify_stmt(analyzer, *body), |body| Stmt::Allocate { buffer, body })
        }
        Stmt::Store { .. } | Stmt::Prefetch { .. } => {
            let mut stmt = stmt;
            stmt.for_each_expr_mut(&mut |expr| *expr = analyzer.expr(take(expr)));
            if let Stmt::Store { indices, .. } | Stmt::Prefetch { indices, .. } = &mut stmt {
                indices.iter_mut().for_each(|index| *index = analyzer.lanes_as_ramp(take(index)));
            }
            stmt
        }
    }
}

/// Wraps a body in a statement, unless the body is empty.
fn around(body: Stmt, with: impl FnOnce(Box<Stmt>) -> Stmt) -> Stmt {
    if body.is_nop() { body } else { with(Box::new(body)) }
}

/// A conditional whose condition is not constant.
fn branches(analyzer: &mut Analyzer, cond: PrimExpr, then: Stmt, otherwise: Option<Stmt>) -> Stmt {
    let scope = analyzer.enter();
    analyzer.assume_stable(&cond, true);
    let then = simplify_stmt(analyzer, then);
    analyzer.leave(scope);
    let otherwise = otherwise.map(|stmt| {
        let scope = analyzer.enter();
        analyzer.assume_stable(&cond, false);
        let stmt = simplify_stmt(analyzer, stmt);
        analyzer.leave(scope);
        stmt
    });
    let otherwise = otherwise.filter(|stmt| !stmt.is_nop()).map(Box::new);
    match otherwise {
        None if then.is_nop() => Stmt::nop(),
        otherwise => Stmt::If { cond, then: Box::new(then), otherwise },
    }
}

fn take(expr: &mut PrimExpr) -> PrimExpr {
    std::mem::replace(expr, PrimExpr::index(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::Pass;
    use crate::tir::{parse, verify};

    #[track_caller]
    fn becomes(before: &str, after: &str) {
        let head = "prim_func @f(x: input int64[64], y: output int64[64], n: dim) {\n";
        let text = |body: &str| format!("{head}{body}}}\n");
        let func = parse(&text(before)).unwrap_or_else(|error| panic!("{error}\n{before}"));
        verify(&func).unwrap();
        let func = Simplify.run_on_prim_func(func, &PassContext::default()).unwrap();
        verify(&func).unwrap();
        assert_eq!(func.to_string(), text(after));
        let again = Simplify.run_on_prim_func(func.clone(), &PassContext::default()).unwrap();
        assert!(again.same(&func));
    }

    #[test]
    fn a_guard_bounds_indices_in_its_branch() {
        becomes(
            "for i in serial(8) {
                if i >= 2 & 5 > i {
                    y[i] = min(max(i, 2), 4)
                    if i < 6 { y[i + 8] = i } else { y[i + 9] = i }
                } else {
                    if i < 2 | i > 4 { y[0] = 0 }
                }
            }",
            "  for i in serial(8) {
    if i >= 2 & i < 5 {
      y[i] = i
      y[i + 8] = i
    } else {
      y[0] = 0
    }
  }
",
        );
    }

    #[test]
    fn loops_of_one_iteration_or_none_are_removed() {
        becomes(
            "for i in serial(1) { for j in vectorized(3, 1) { y[i + j] = i } }
            for i in serial(0) { y[i] = i }
            for i in serial(4) { for j in serial(i - 3) { y[j] = 1 } }
            for i in serial(n) { if n > 0 { y[floormod(i, 4)] = 2 } }",
            "  y[3] = 0
  for i in serial(n) {
    y[floormod(i, 4)] = 2
  }
",
        );
    }

    #[test]
    fn loaded_values_may_change_and_named_values_may_not() {
        becomes(
            "if x[0] < 3 { y[0] = min(x[0], 7) if x[0] < 3 { y[1] = 1 } }
            let v = x[0] { if v < 3 { if v < 4 { y[2] = min(v, 7) } } }",
            "  if x[0] < 3 {
    y[0] = min(x[0], 7)
    if x[0] < 3 {
      y[1] = 1
    }
  }
  let v = x[0]
  if v < 3 {
    y[2] = v
  }
",
        );
    }

    #[test]
    fn an_assertion_holds_for_later_statements() {
        becomes(
            "assert n < 8, \"n\"
            for i in serial(n) { assert i < 8, \"i\" y[i] = i }",
            "  assert n < 8, \"n\"
  for i in serial(n) {
    y[i] = i
  }
",
        );
    }

    #[test]
    fn a_block_knows_its_extents() {
        becomes(
            "for i in serial(16) {
                block \"b\"(v: spatial(10) = i) where i < 10 { y[v] = min(v, 9) }
            }",
            "  for i in serial(16) {
    block \"b\"(v: spatial(10) = i) where i < 10 {
      y[v] = v
    }
  }
",
        );
    }
}
