//! What the rewriter says when it is called wrongly.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::*;
use crate::graph::parse_function;
use crate::ir::DType;
use crate::ops::Op;

/// `%0` is `%x`, `%1` is `%c`, `%2` to `%4` are calls in the body and in a branch, `%5` is the `if`.
fn branches() -> Function {
    let ty = "Tensor[(4), float32]";
    let text = format!(
        "fn (%x: {ty}, %c: Tensor[(), bool]) -> {ty} {{
            %0 = exp(%x);
            if (%c) {{ let %1 = tanh(%0); sqrt(%1) }} else {{ %0 }}
        }}"
    );
    parse_function(&text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The text with which a call panics.
fn panic_of<R>(rewriter: &mut Rewriter, call: impl FnOnce(&mut Rewriter) -> R) -> String {
    let caught = catch_unwind(AssertUnwindSafe(|| {
        call(rewriter);
    }));
    *caught.expect_err("it does not panic").downcast::<String>().expect("the text is formatted")
}

/// A rewriter whose current expression is the first call of that operator.
fn at(function: Function, name: &str) -> (Rewriter, ExprId) {
    let mut rewriter = Rewriter::new(function);
    let op = Op::get(name).unwrap();
    while let Some(id) = rewriter.next_call().unwrap() {
        if rewriter.old().expr(id).is_call_of(op.definition()) {
            return (rewriter, id);
        }
    }
    panic!("there is no call of {name}");
}

#[test]
fn ids_without_a_new_one_are_told_apart() {
    let (mut rewriter, tanh) = at(branches(), "tanh");
    let later = rewriter.old().result();
    let far = ExprId::from_u32(1000);
    for (id, why) in [
        (far, "the old function has 6 expressions; this id is of another function"),
        (tanh, "this is the current expression, which has no new id before it is replaced"),
        (later, "the sweep has not come to this expression yet"),
    ] {
        let text = panic_of(&mut rewriter, |rewriter| rewriter.mapped(id));
        assert!(text.contains(why), "{text}");
        assert!(text.starts_with("`Rewriter::mapped` asks for the new id of %"), "{text}");
    }
    let call = rewriter.old().expr(tanh).as_call().unwrap().clone();
    let call = Call { args: vec![Some(later)], ..call };
    let text = panic_of(&mut rewriter, |rewriter| rewriter.args(&call));
    assert!(text.starts_with("`Rewriter::args` asks"), "{text}");
    let text = panic_of(&mut rewriter, |rewriter| rewriter.constant_args(&call));
    assert!(text.starts_with("`Rewriter::constant_args` asks"), "{text}");

    let mut b = FunctionBuilder::new();
    let x = b.param("x", crate::ir::Type::tensor(&[2], DType::F32));
    let dead = b.call(Op::get("exp").unwrap(), &[x], Attrs::new()).unwrap();
    let mut rewriter = Rewriter::new(b.finish(x));
    while rewriter.next_expr().unwrap().is_some() {}
    let text = panic_of(&mut rewriter, |rewriter| rewriter.mapped(dead));
    assert!(text.ends_with("nothing uses this expression, so the sweep leaves it out"), "{text}");
}

#[test]
fn a_current_expression_is_needed() {
    let mut rewriter = Rewriter::new(branches());
    let text = panic_of(&mut rewriter, |rewriter| rewriter.replace(ExprId::from_u32(0)));
    let expected = "`Rewriter::replace` needs a current expression, and there is none: call `next_expr` \
                    or `next_call` first";
    assert_eq!(text, expected);
    let (mut rewriter, exp) = at(branches(), "exp");
    let new = rewriter.copy().unwrap();
    for text in [
        panic_of(&mut rewriter, |rewriter| rewriter.replace(new)),
        panic_of(&mut rewriter, |rewriter| rewriter.copy()),
        panic_of(&mut rewriter, |rewriter| rewriter.replace_attrs(Attrs::new())),
    ] {
        let why = format!("{exp}, the last one, was replaced or copied already");
        assert!(text.ends_with(&why), "{text}");
    }
}

#[test]
fn what_cannot_stand_in_a_place_is_refused() {
    let (mut rewriter, _) = at(branches(), "tanh");
    let text = panic_of(&mut rewriter, |rewriter| rewriter.replace(ExprId::from_u32(1000)));
    assert!(text.contains("the new function has only 3 expressions"), "{text}");

    // The result, an `if`, cannot be what is computed in its branch; a value around both is fine.
    let function = branches();
    let result = function.result();
    let mut rewriter = Rewriter::new(function);
    while rewriter.next_expr().unwrap() != Some(result) {}
    let inner = rewriter.mapped(ExprId::from_u32(3));
    let text = panic_of(&mut rewriter, |rewriter| rewriter.replace(inner));
    assert!(text.contains("a value of scope1, in the place of %5 in scope0"), "{text}");
    let text = panic_of(&mut rewriter, |rewriter| rewriter.replace_attrs(Attrs::new()));
    assert!(text.ends_with("gives attributes to %5, which is no call"), "{text}");
    let around = rewriter.mapped(ExprId::from_u32(2));
    rewriter.replace(around);
    assert_eq!(rewriter.finish().unwrap().len(), 3);

    let (mut rewriter, _) = at(branches(), "sqrt");
    let around = rewriter.mapped(ExprId::from_u32(2));
    rewriter.replace(around);
    let function = rewriter.finish().unwrap();
    assert!(crate::graph::verify_function(&function, None).is_ok());
}

#[test]
fn scopes_are_of_the_old_function() {
    let mut rewriter = Rewriter::new(branches());
    let far = ScopeId::from_u32(7);
    let text = panic_of(&mut rewriter, |rewriter| rewriter.dissolve(far));
    assert!(
        text.contains("`Rewriter::dissolve` is about scope7, but the old function has 3 scopes")
    );
    let branch = ScopeId::from_u32(1);
    let text = panic_of(&mut rewriter, |rewriter| rewriter.bindings_of(branch, |_| true));
    assert!(text.starts_with("`Rewriter::bindings_of` asks for the new id of %3"), "{text}");
}
