//! Tests of the verifier, on malformed functions.

use std::sync::Arc;

use super::{VerifyErrors, verify_function, verify_module};
use crate::graph::function::FunctionData;
use crate::graph::tests::{chain, nested, nested_closures};
use crate::graph::{Expr, ExprId, Function, FunctionBuilder, If, ScopeId, ScopeKind, parse_module};
use crate::ir::{DType, Definition, Dim, GlobalVar, IRModule, Shape, TensorType, Type};

/// A function with a relu as `%0`, an if with two branches, a loop, and a closure that is called.
fn sample() -> IRModule {
    parse_module(
        "def @main(%x: Tensor[(4), float32], %c: Tensor[(), bool]) -> Tensor[(4), float32] {
  %0 = nn.relu(%x);
  %1 = if (%c) {
    let %y = nn.relu(%0);
    %y
  } else {
    %x
  };
  %2 = loop (%1, %c) while (%s: Tensor[(4), float32], %go: Tensor[(), bool]) {
    %go
  } do (%s: Tensor[(4), float32], %go: Tensor[(), bool]) {
    (%s, %go)
  };
  %3 = fn %self (%p: Tensor[(4), float32]) -> Tensor[(4), float32] {
    %self(%p)
  };
  @other(%3(%2.0))
}
def @other(%x: Tensor[(4), float32]) -> Tensor[(4), float32] { %x }",
    )
    .unwrap()
}

/// The id of the `n`th expression of a kind.
fn nth(data: &FunctionData, n: usize, kind: impl Fn(&Expr) -> bool) -> ExprId {
    data.exprs.iter().filter(|(_, data)| kind(&data.expr)).nth(n).unwrap().0
}

fn call(data: &FunctionData, n: usize) -> ExprId {
    nth(data, n, |expr| matches!(expr, Expr::Call(_)))
}

/// Breaks the sample's main function and returns the violations.
fn broken(edit: impl FnOnce(&mut FunctionData)) -> VerifyErrors {
    let mut module = sample();
    verify_module(&module).unwrap_or_else(|errors| panic!("{errors}"));
    let mut data = module.function("main").unwrap().data().clone();
    edit(&mut data);
    let broken = Function::from_data(data);
    module.insert(GlobalVar::new("main"), Definition::Graph(broken));
    verify_module(&module).unwrap_err()
}

#[track_caller]
fn expect(messages: &[&str], edit: impl FnOnce(&mut FunctionData)) {
    let errors = broken(edit);
    let found: Vec<&str> = errors.iter().map(|error| error.message.as_str()).collect();
    assert_eq!(found.len(), messages.len(), "{errors}");
    for (found, expected) in found.iter().zip(messages) {
        assert!(found.contains(expected), "{errors}");
    }
    // The errors can be printed for any malformed function.
    let text = errors.to_string();
    messages.iter().for_each(|message| assert!(text.contains(message), "{text}"));
}

#[test]
fn ids_must_exist() {
    let far = ExprId::from_u32(99);
    expect(&["it uses %99, which does not exist"], |data| {
        let id = call(data, 0);
        data.exprs[id].expr = data.exprs[id].expr.map(|_| far, |scope| scope);
    });
    expect(&["it uses %99"], |data| {
        data.scopes[ScopeId::from_u32(2)].result = far;
    });
    expect(&["stands in scope50, which does not exist"], |data| {
        let id = call(data, 0);
        data.exprs[id].scope = ScopeId::from_u32(50);
    });
    expect(&["it has scope50"], |data| {
        let id = nth(data, 0, |expr| matches!(expr, Expr::If(_)));
        data.exprs[id].expr = data.exprs[id].expr.map(|id| id, |_| ScopeId::from_u32(50));
        // Both branches are the same missing scope; one message is enough here.
        if let Expr::If(choice) = &mut data.exprs[id].expr {
            choice.else_scope = ScopeId::from_u32(2);
        }
    });
    expect(&["not in the tree of scopes"], |data| {
        data.scopes[ScopeId::from_u32(1)].parent = Some(ScopeId::from_u32(3));
    });
}

#[test]
fn operands_come_first_and_are_visible() {
    expect(&["comes after it, or itself"], |data| {
        let id = call(data, 0);
        data.exprs[id].expr = data.exprs[id].expr.map(|_| id, |scope| scope);
    });
    expect(&["it uses an expression of a scope that is not around it"], |data| {
        // The last call uses a value of the branch as its argument.
        let (inner, last) = (call(data, 1), call(data, 4));
        let global = nth(data, 0, |expr| matches!(expr, Expr::GlobalVar(_)));
        data.exprs[last].expr =
            data.exprs[last].expr.map(|id| if id == global { id } else { inner }, |scope| scope);
    });
    expect(&["its result is not visible in it"], |data| {
        let inner = call(data, 1);
        data.scopes[ScopeId::from_u32(2)].result = inner;
    });
    expect(&["a bound value comes after the expression it belongs to"], |data| {
        let last = call(data, 4);
        data.scopes[ScopeId::from_u32(1)].bindings[0].value = last;
    });
}

#[test]
fn scopes_belong_to_one_expression_of_their_kind() {
    expect(&["its scope1 is a Loop, not a Branch"], |data| {
        data.scopes[ScopeId::from_u32(1)].kind = ScopeKind::Loop;
    });
    expect(&["it belongs to 2 expressions"], |data| {
        let id = nth(data, 0, |expr| matches!(expr, Expr::If(_)));
        let then_scope = ScopeId::from_u32(1);
        if let Expr::If(If { else_scope, .. }) = &mut data.exprs[id].expr {
            *else_scope = then_scope;
        }
    });
    expect(&["its scope2 is not directly within its own scope"], |data| {
        data.scopes[ScopeId::from_u32(2)].parent = Some(ScopeId::from_u32(1));
    });
    expect(
        &["it comes after the expression whose scope", "a scope that is not around it"],
        |data| {
            let last = call(data, 3);
            data.exprs[last].scope = ScopeId::from_u32(2);
        },
    );
}

#[test]
fn variables_are_declared_once_where_they_stand() {
    let first = ScopeId::from_u32(0);
    expect(&["the variable is declared 2 times"], |data| {
        let x = data.scopes[first].params[0];
        data.scopes[first].params.push(x);
    });
    // The closure's parameter is none of its scope any more, and its type differs.
    expect(&["the variable is no parameter", "a recursive closure is declared"], |data| {
        data.scopes[ScopeId::from_u32(5)].params.clear();
    });
    expect(&["a parameter must be a variable"], |data| {
        let id = call(data, 0);
        data.scopes[first].params.push(id);
    });
    expect(&["the variable is no parameter", "must be a variable of its scope"], |data| {
        let func = nth(data, 0, |expr| matches!(expr, Expr::Func(_)));
        if let Expr::Func(closure) = &mut data.exprs[func].expr {
            closure.recursive = Some(func);
        }
    });
}

#[test]
fn recorded_types_must_equal_inferred_ones() {
    expect(
        &[
            "its type is recorded as Tensor[(5), float32], but it is Tensor[(4), float32]",
            "the branches have different types",
        ],
        |data| {
            let id = call(data, 1);
            data.exprs[id].ty = Type::tensor(&[5], DType::F32);
        },
    );
    expect(&["its value is recorded as [7], but it is unknown"], |data| {
        let id = call(data, 0);
        data.exprs[id].shape_value = Some(Arc::new([Dim::from(7i64)]));
    });
    expect(&["input `x` of `nn.relu` is missing"], |data| {
        let id = call(data, 0);
        if let Expr::Call(call) = &mut data.exprs[id].expr {
            call.args.clear();
        }
    });
}

#[test]
fn globals_must_be_defined_with_the_type_they_are_used_with() {
    let mut module = sample();
    let other = GlobalVar::new("other");
    module.remove(&other);
    let errors = verify_module(&module).unwrap_err();
    assert!(errors.to_string().contains("  @other(%4)\n; error: expression 15: "), "{errors}");
    assert!(errors.to_string().contains("the module does not define @other"), "{errors}");
    assert!(verify_function(module.function("main").unwrap(), None).is_ok());

    let mut b = FunctionBuilder::new();
    let y = b.param("y", Type::tensor(&[3], DType::F32));
    module.insert(other, Definition::Graph(b.finish(y)));
    let errors = verify_module(&module).unwrap_err();
    assert!(
        errors.to_string().contains("@other is used as fn (Tensor[(4), float32],)"),
        "{errors}"
    );
}

#[test]
fn extents_have_values_that_are_not_negative() {
    let mut b = FunctionBuilder::new();
    let overflow = Shape::new([Dim::overflow(), Dim::from(-1i64)]);
    let x = b.param("x", Type::tuple([TensorType::new(overflow, DType::F32).into()]));
    let function = b.finish(x);
    let errors = verify_function(&function, None).unwrap_err();
    let messages: Vec<&str> = errors.iter().map(|error| error.message.as_str()).collect();
    assert_eq!(messages.len(), 2);
    assert!(messages[0].ends_with("has no value: overflow"), "{errors}");
    assert!(messages[1].ends_with("is negative"), "{errors}");
}

#[test]
fn messages_stand_under_the_guilty_lines() {
    let errors = broken(|data| {
        let id = call(data, 0);
        data.exprs[id].shape_value = Some(Arc::new([]));
    });
    let text = errors.to_string();
    let line = text.lines().position(|line| line == "  %0 = nn.relu(%x);").unwrap();
    assert!(text.lines().nth(line + 1).unwrap().starts_with("; error: expression 2: its value"));
}

#[test]
fn long_functions_are_verified_in_linear_time_and_shown_in_parts() {
    let function = chain(100_000);
    verify_function(&function, None).unwrap();
    let mut data = function.data().clone();
    let id = ExprId::from_u32(50_000);
    data.exprs[id].ty = Type::tensor(&[5], DType::F32);
    let errors = verify_function(&Function::from_data(data), None).unwrap_err();
    assert_eq!(errors.iter().count(), 2, "the call and the one that uses it");
    assert!(errors.to_string().lines().count() < 20, "{errors}");
}

#[test]
fn deep_scopes_are_verified_without_recursion() {
    verify_function(&nested(20_000), None).unwrap();
    let function = nested_closures(20_000);
    verify_function(&function, None).unwrap();
    let mut data = function.data().clone();
    let id = call(&data, 0);
    data.exprs[id].ty = Type::tensor(&[5], DType::F32);
    let errors = verify_function(&Function::from_data(data), None).unwrap_err();
    assert!(errors.to_string().contains("its type is recorded as"), "{errors}");
}
