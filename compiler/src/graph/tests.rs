//! Tests of functions, the builder and the rewriter.

use super::{Expr, Function, FunctionBuilder, Rewriter, ScopeKind};
use crate::ir::{Attrs, Constant, DType, Type};
use crate::ops::Op;

pub(super) fn relu() -> Op {
    Op::get("nn.relu").unwrap()
}

fn row() -> Type {
    Type::tensor(&[4], DType::F32)
}

/// `relu` applied `calls` times.
pub(super) fn chain(calls: usize) -> Function {
    let mut b = FunctionBuilder::new();
    let mut x = b.param("x", row());
    for _ in 0..calls {
        x = b.call(relu(), &[x], Attrs::new()).unwrap();
    }
    b.finish(x)
}

/// Nested choices: the parameter `c` decides between the next choice and the parameter `x`, and the
/// innermost choice applies `relu`.
pub(super) fn nested(depth: usize) -> Function {
    let mut b = FunctionBuilder::new();
    let c = b.param("c", Type::tensor(&[], DType::Bool));
    let x = b.param("x", row());
    let mut otherwise = Vec::new();
    for _ in 0..depth {
        b.open_scope(ScopeKind::Branch);
        otherwise.push(b.close_scope(x));
        b.open_scope(ScopeKind::Branch);
    }
    let mut value = b.call(relu(), &[x], Attrs::new()).unwrap();
    while let Some(else_scope) = otherwise.pop() {
        let then_scope = b.close_scope(value);
        value = b.if_else(c, then_scope, else_scope).unwrap();
    }
    b.finish(value)
}

/// Nested closures, each of which calls the next; all capture the parameter `x`.
pub(super) fn nested_closures(depth: usize) -> Function {
    let mut b = FunctionBuilder::new();
    let x = b.param("x", row());
    for _ in 0..depth {
        b.open_scope(ScopeKind::Closure);
    }
    let mut value = b.call(relu(), &[x], Attrs::new()).unwrap();
    for _ in 0..depth {
        let scope = b.close_scope(value);
        let closure = b.closure(scope, None, Attrs::new()).unwrap();
        value = b.call_function(closure, &[]).unwrap();
    }
    b.finish(value)
}

#[test]
fn deep_scopes_are_rewritten_without_recursion() {
    let mut rewriter = Rewriter::new(nested(20_000));
    while rewriter.next_call().unwrap().is_some() {
        let x = rewriter.mapped(rewriter.old().params()[1]);
        rewriter.replace(x);
    }
    assert_eq!(rewriter.finish().unwrap().scopes().count(), 40_001);
}

#[test]
fn a_call_that_does_not_type_is_refused() {
    let mut b = FunctionBuilder::new();
    let x = b.param("x", row());
    let pair = b.tuple(&[x, x]);
    let error = b.call(relu(), &[pair], Attrs::new()).unwrap_err();
    assert!(error.to_string().contains("input `x` must be a tensor"), "{error}");
    let error = b.call(relu(), &[], Attrs::new()).unwrap_err();
    assert_eq!(error.to_string(), "input `x` of `nn.relu` is missing");
    let error = b.call(relu(), &[x, x], Attrs::new()).unwrap_err();
    assert!(error.to_string().contains("at most 1 inputs, but 2"), "{error}");
    assert!(b.tuple_get(pair, 2).is_err());
}

#[test]
fn rewriting_nothing_returns_the_handle() {
    let function = chain(3);
    let mut rewriter = Rewriter::new(function.clone());
    while rewriter.next_call().unwrap().is_some() {}
    assert!(rewriter.finish().unwrap().same(&function));
}

#[test]
fn expressions_that_a_replacement_leaves_dead_are_dropped() {
    let mut rewriter = Rewriter::new(chain(3));
    let mut calls = 0;
    while let Some(id) = rewriter.next_call().unwrap() {
        calls += 1;
        if calls == 2 {
            // The second call becomes the parameter: the first one is dead.
            let x = rewriter.mapped(rewriter.old().params()[0]);
            assert_ne!(rewriter.old().expr(id).operands().next(), None);
            rewriter.replace(x);
        }
    }
    let function = rewriter.finish().unwrap();
    assert_eq!(function.len(), 2);
    assert_eq!(function.ty(function.result()), &row());
}

#[test]
fn scopes_are_rewritten_and_dropped_with_their_owner() {
    let mut b = FunctionBuilder::new();
    let cond = b.param("c", Type::tensor(&[], DType::Bool));
    let x = b.param("x", row());
    b.open_scope(ScopeKind::Branch);
    let y = b.call(relu(), &[x], Attrs::new()).unwrap();
    b.bind("y", y);
    let then_scope = b.close_scope(y);
    b.open_scope(ScopeKind::Branch);
    let zero = b.constant(Constant::from_f32(&[4], &[0.0; 4]).unwrap());
    let else_scope = b.close_scope(zero);
    let choice = b.if_else(cond, then_scope, else_scope).unwrap();
    let function = b.finish(choice);

    // The call in the branch becomes its argument.
    let mut rewriter = Rewriter::new(function.clone());
    while rewriter.next_call().unwrap().is_some() {
        let x = rewriter.mapped(rewriter.old().params()[1]);
        rewriter.replace(x);
    }
    let inner = rewriter.finish().unwrap();
    let Expr::If(choice) = inner.expr(inner.result()) else { panic!("an If is left") };
    assert_eq!(inner.scope(choice.then_scope).result, inner.params()[1]);
    assert_eq!(inner.scope(choice.then_scope).bindings[0].value, inner.params()[1]);

    // The whole choice becomes the parameter.
    let mut rewriter = Rewriter::new(function);
    while let Some(id) = rewriter.next_expr().unwrap() {
        if matches!(rewriter.old().expr(id), Expr::If(_)) {
            let x = rewriter.mapped(rewriter.old().params()[1]);
            rewriter.replace(x);
        }
    }
    let outer = rewriter.finish().unwrap();
    assert_eq!((outer.len(), outer.scopes().count()), (2, 1));
}

#[test]
fn long_chains_are_rewritten_in_linear_time_and_without_recursion() {
    let mut rewriter = Rewriter::new(chain(100_000));
    let mut calls = 0;
    while let Some(id) = rewriter.next_call().unwrap() {
        calls += 1;
        if calls % 2 == 0 {
            let arg = rewriter.old().expr(id).operands().next().unwrap();
            let arg = rewriter.mapped(arg);
            rewriter.replace(arg);
        }
    }
    assert_eq!(rewriter.finish().unwrap().len(), 50_001);
}
