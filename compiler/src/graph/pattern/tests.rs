//! What fits a pattern, and what is none.

use super::*;
use crate::graph::parse_function;
use crate::ir::DType;

/// The names that a pattern finds in the result of a function of `%x` and `%y`, as the names of what they
/// stand for; `None` if it does not fit.
fn names(pattern: &str, body: &str) -> Option<Vec<(String, String)>> {
    let ty = "Tensor[(4), float32]";
    let text = format!("fn (%x: {ty}, %y: {ty}) -> {ty} {{ {body} }}");
    let function = parse_function(&text).unwrap_or_else(|errors| panic!("{errors}"));
    let pattern: Pattern = pattern.parse().unwrap_or_else(|errors| panic!("{errors}"));
    let found = pattern.find(&function, function.result())?;
    let shown = |id: ExprId| match function.expr(id) {
        Expr::Var(name) => name.to_string(),
        Expr::Constant(constant) => format!("{:?}", constant.uniform()),
        Expr::Call(call) => match call.callee {
            Callee::Op(op) => op.name.to_owned(),
            Callee::Expr(_) => "a call".to_owned(),
        },
        other => format!("{other:?}"),
    };
    Some(found.names.iter().map(|(name, &id)| (name.clone(), shown(id))).collect())
}

fn fits(pattern: &str, body: &str) -> bool {
    names(pattern, body).is_some()
}

#[test]
fn names_are_the_same_value_everywhere() {
    let swish = "multiply(%x, sigmoid(%x))";
    assert!(fits(swish, "multiply(%x, sigmoid(%x))"));
    assert!(fits(swish, "multiply(sigmoid(%x), %x)"));
    assert!(!fits(swish, "multiply(sigmoid(%x), %y)"));
    assert!(!fits(swish, "divide(sigmoid(%x), %x)"));
    // All that is said of a name holds.
    assert!(!fits("subtract(%a, %a = exp(*))", "subtract(%x, %x)"));
    assert!(fits("subtract(%a, %a = exp(*))", "%0 = exp(%x); subtract(%0, %0)"));
    let found = names("%all = add(%a = exp(*), %b)", "add(%y, exp(%x))").unwrap();
    let expected = [("a", "exp"), ("all", "add"), ("b", "y")];
    assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

#[test]
fn a_choice_is_made_anew_where_the_rest_does_not_fit() {
    // The sum's operands are `%a` and `%b` in one order only.
    let pattern = "subtract(add(%a, %b), %b)";
    for body in ["subtract(add(%x, %y), %y)", "subtract(add(%x, %y), %x)"] {
        assert!(fits(pattern, body), "{body}");
    }
    assert!(!fits(pattern, "subtract(subtract(%x, %y), %y)"));
    let pattern = "maximum(%a = exp(*) | %a, minimum(%a, const))";
    assert!(fits(pattern, "maximum(%x, minimum(const(2.0, float32), %x))"));
    assert!(fits(pattern, "%0 = exp(%x); maximum(minimum(%0, const(2.0, float32)), %0)"));
    assert!(!fits(pattern, "maximum(%x, minimum(const(2.0, float32), %y))"));
}

#[test]
fn numbers_attributes_and_alternatives() {
    let root = "add(%x, 0.1)";
    assert!(fits(root, "add(const(0.1, float32), %x)"));
    assert!(fits(root, "add(%x, splat(0.1, Tensor[(4), float32]))"));
    assert!(!fits(root, "add(%x, const(0.2, float32))"));
    assert!(!fits(root, "add(%x, const([0.1, 0.1, 0.1, 0.2], float32))"));
    // What a type of floats holds of a number; integers are that number or none.
    let of = |value: f64, dtype| {
        let mut b = crate::graph::FunctionBuilder::new();
        let value = b.constant(Constant::scalar(value, dtype).unwrap());
        let function = b.finish(value);
        "0.1".parse::<Pattern>().unwrap().find(&function, value).is_some()
    };
    assert!(of(0.1, DType::F64) && of(0.1, DType::F32) && of(0.1, DType::F16));
    assert!(!of(f64::from(0.1f32), DType::F64) && !of(0.0, DType::I32) && !of(0.1003, DType::F32));
    let pattern = "nn.softmax(*, axis=0) | (exp(*) | tanh(*))";
    assert!(fits(pattern, "nn.softmax(%x, axis=0)"));
    assert!(!fits(pattern, "nn.softmax(%x, axis=-1)"));
    assert!(fits(pattern, "tanh(%x)"));
    assert!(!fits(pattern, "sqrt(%x)"));
}

#[test]
fn absent_arguments_fit_their_mark_alone() {
    let ty = "Tensor[(1, 1, 2, 2), float32]";
    let conv = |args: &str| {
        let params = "%w: Tensor[(1, 1, 1, 1), float32], %b: Tensor[(1), float32]";
        let text = format!("fn (%x: {ty}, {params}) -> {ty} {{ nn.conv2d({args}) }}");
        parse_function(&text).unwrap_or_else(|errors| panic!("{errors}"))
    };
    let (bare, marked, biased) = (conv("%x, %w"), conv("%x, %w, _"), conv("%x, %w, %b"));
    for (pattern, expected) in [
        ("nn.conv2d(*, *)", [true, true, false]),
        ("nn.conv2d(*, *, _)", [true, true, false]),
        ("nn.conv2d(*, *, *)", [false, false, true]),
    ] {
        let pattern: Pattern = pattern.parse().unwrap_or_else(|errors| panic!("{errors}"));
        let fits = [&bare, &marked, &biased].map(|f| pattern.find(f, f.result()).is_some());
        assert_eq!(fits, expected, "{pattern:?}");
    }
}

#[test]
fn calls_that_no_operator_has_are_errors() {
    for (text, expected) in [
        ("exp(tanh(*, *))", "1:5: no call can fit: `tanh` takes at most 1 inputs, but 2 are given"),
        ("add(*)", "1:1: no call can fit: input `rhs` of `add` is missing"),
        ("add(_, *)", "no call can fit: input `lhs` of `add` is missing"),
        ("concatenate(*, _, axis=0)", "no call can fit: an input of `concatenate` is missing"),
        (
            "nn.softmax(*, axsi=0)",
            "1:15: no call can fit: `nn.softmax` has no attribute `axsi`; did you mean `axis`?",
        ),
        ("mean(*, foo=0)", "`mean` has no attribute `foo`; it has axis, keepdims"),
        ("exp(*, foo=0)", "`exp` has no attribute `foo`; it has none"),
        ("_", "1:1: `_` stands for an absent argument of a call"),
        ("%x = _", "`_` stands for an absent argument of a call"),
    ] {
        let errors = text.parse::<Pattern>().unwrap_err().to_string();
        assert!(errors.contains(expected), "{text}: {errors}");
    }
    for text in ["concatenate(*, *, *)", "nn.conv2d(*, *, data_layout=\"NHWC\")"] {
        assert!(text.parse::<Pattern>().is_ok(), "{text}");
    }
}

#[test]
fn calls_may_be_refused() {
    let ty = "Tensor[(4), float32]";
    let text = format!("fn (%x: {ty}) -> {ty} {{ %0 = exp(%x); add(%0, tanh(%0)) }}");
    let function = parse_function(&text).unwrap();
    let pattern: Pattern = "add(%e = exp(*), tanh(%e))".parse().unwrap();
    let found = pattern.find(&function, function.result()).unwrap();
    let [sum, exp, tanh] = found.calls() else { panic!("{found:?}") };
    assert_eq!((*sum, found.get("e"), found.get("f")), (function.result(), Some(*exp), None));
    let uses = function.use_counts_among(&function.live());
    let used_once = |id| id == *sum || uses[id] == 1;
    assert!(used_once(*tanh) && pattern.find_if(&function, *sum, &used_once).is_none());
}

#[test]
fn what_fits_may_be_a_call_for_certain() {
    for (text, expected) in [
        ("exp(*)", true),
        ("%x = exp(*) | (tanh(*) | add(*, const))", true),
        ("exp(*) | %y", false),
        ("%x = const", false),
        ("2", false),
    ] {
        assert_eq!(text.parse::<Pattern>().unwrap().is_of_calls(), expected, "{text}");
    }
}

#[test]
fn patterns_that_are_none_tell_why_and_where() {
    for (text, expected) in [
        (
            "",
            "expected a value: `*`, `%x`, `const`, a number or a call of an operator, found the end",
        ),
        ("nn.relu", "expected `(`"),
        ("nn.rellu(*)", "there is no operator `nn.rellu`"),
        ("nn.relu(*", "expected `,` or `)`"),
        ("nn.relu(* *)", "expected `,` or `)`, found `*`"),
        ("nn.relu(*))", "expected the end, found `)`"),
        ("nn.relu(,)", "found `,`"),
        ("* |", "found the end"),
    ] {
        let errors = text.parse::<Pattern>().unwrap_err().to_string();
        assert!(errors.contains(expected), "{text}: {errors}");
    }
    let deep = format!("{}*{}", "nn.relu(".repeat(100_000), ")".repeat(100_000));
    let errors = deep.parse::<Pattern>().unwrap_err().to_string();
    assert!(errors.contains("nests more than 64 deep"), "{}", &errors[..200]);
}
