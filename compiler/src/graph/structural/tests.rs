//! Tests of structural hash and equality.

use super::{Mismatch, module_hash, modules_equal, structural_equal, structural_hash};
use crate::graph::tests::{nested, nested_closures};
use crate::graph::{Function, FunctionBuilder, parse_function, parse_module};
use crate::ir::{Attrs, Constant, DType, Type};
use crate::ops::Op;
use crate::pass::{Pass, PassContext};
use crate::tir::transform::{UNROLL_LOOP, UnrollLoop, UnrollLoopConfig};

fn function(body: &str) -> Function {
    let text = format!(
        "fn (%x: Tensor[(4), float32], %c: Tensor[(), bool]) -> Tensor[(4), float32] {{ {body} }}"
    );
    parse_function(&text).unwrap_or_else(|errors| panic!("{body}: {errors}"))
}

/// Whether two bodies are equal; asserts that their hashes agree with that.
#[track_caller]
fn compare(left: &str, right: &str) -> Result<(), Mismatch> {
    let (left, right) = (function(left), function(right));
    let result = structural_equal(&left, &right);
    assert_eq!(structural_equal(&right, &left).is_ok(), result.is_ok());
    assert_eq!(structural_hash(&left) == structural_hash(&right), result.is_ok());
    result
}

#[test]
fn names_order_and_dead_code_do_not_matter() {
    let reference = "%a = nn.relu(%x); %b = negative(%x); add(%a, %b)";
    for same in [
        "%n = negative(%x); %r = nn.relu(%x); add(%r, %n)",
        "%dead = exp(%x); %a = nn.relu(%x); %b = negative(%x); add(%a, %b)",
        "%a = if (%c) { %x } else { %x }; add(nn.relu(%x), negative(%x))",
    ] {
        compare(reference, same).unwrap_or_else(|mismatch| panic!("{same}: {mismatch}"));
    }
    let state = |cond: &str, body: &str| {
        format!(
            "%s = loop (%x) while ({cond}: Tensor[(4), float32]) {{ %c }} \
             do ({body}: Tensor[(4), float32]) {{ (nn.relu({body}),) }}; %s.0"
        )
    };
    compare(&state("%a", "%b"), &state("%i", "%a")).unwrap();
}

#[test]
fn fields_and_constants_are_compared_by_content_wherever_they_stand() {
    compare(
        "%t = (%x, %x); if (%c) { add(%t.0, const(1, float32)) } else { add(%t.0, const(1, float32)) }",
        "%t = (%x, %x); %f = %t.0; if (%c) { add(%f, const(1, float32)) } else { add(%f, const(1, float32)) }",
    )
    .unwrap();
    compare("add(%x, const([1, 1, 1, 1], float32))", "add(%x, splat(1, Tensor[(4), float32]))")
        .unwrap();
}

#[test]
fn every_difference_that_matters_is_reported() {
    for (left, right, message) in [
        (
            "nn.relu(%x)",
            "negative(%x)",
            "left has nn.relu of 1 arguments with {}, right has negative of 1",
        ),
        ("nn.leaky_relu(%x, alpha=0.5)", "nn.leaky_relu(%x, alpha=0.25)", "{alpha=0.5}, right"),
        ("add(%x, const(1, float32))", "add(%x, const(2, float32))", "left has a constant of type"),
        ("%a = nn.relu(%x); add(%a, %a)", "add(nn.relu(%x), nn.relu(%x))", "left has add"),
        (
            "subtract(%x, exp(%x))",
            "subtract(exp(%x), %x)",
            "left has a use of value 0, right has a use of value 2",
        ),
        ("let %a = nn.relu(%x); %a", "nn.relu(%x)", "left has a binding, right has the result"),
        (
            "%a = nn.relu(%x); if (%c) { %a } else { %x }",
            "if (%c) { nn.relu(%x) } else { %x }",
            "left has nn.relu",
        ),
        (
            "if (%c) { %x } else { nn.relu(%x) }",
            "if (%c) { nn.relu(%x) } else { %x }",
            "left has the result",
        ),
        (
            "%t = (%x, %x); %t.0",
            "%t = (%x, %x); %t.1",
            "left has field 0 of a tuple, right has field 1",
        ),
    ] {
        let mismatch = compare(left, right).expect_err(left);
        assert!(mismatch.to_string().contains(message), "{left}: {mismatch}");
    }
}

#[test]
fn a_call_in_a_closure_differs_from_one_outside() {
    // Outside, the value is computed once; inside, at each call.
    let outside = "%a = nn.relu(%x); %f = fn () -> Tensor[(4), float32] { %a }; %f()";
    let inside = "%f = fn () -> Tensor[(4), float32] { nn.relu(%x) }; %f()";
    compare(outside, inside).unwrap_err();
    compare(outside, outside).unwrap();
}

#[test]
fn types_attributes_and_facts_matter() {
    let text = |params: &str, rest: &str| {
        parse_function(&format!("fn ({params}) -> Tensor[(n), float32]{rest} {{ %x }}")).unwrap()
    };
    let reference = text("%x: Tensor[(n), float32]", "");
    structural_equal(&reference, &text("%x: Tensor[(n), float32]", "")).unwrap();
    for other in [
        text("%x: Tensor[(n), float32]", " {Primitive=true}"),
        text("%x: Tensor[(n), float32]", " where n <= 3"),
        text("%x: Tensor[(n), float32], %y: ()", ""),
    ] {
        structural_equal(&reference, &other).unwrap_err();
        assert_ne!(structural_hash(&reference), structural_hash(&other));
    }
}

#[test]
fn hashes_are_the_same_in_every_run() {
    // If this changes, cached kernels of earlier versions are no longer found, which is right only
    // after a deliberate change of the hashed contents.
    let digest = structural_hash(&function("add(nn.relu(%x), const(1, float32))"));
    let hex: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "2245a3a20021ede4");
}

#[test]
fn modules_are_compared_by_name() {
    let f = "def @f(%x: Tensor[(4), float32]) -> Tensor[(4), float32] { nn.relu(%x) }\n";
    let g = "def @g(%y: Tensor[(4), float32]) -> Tensor[(4), float32] { @f(%y) }\n";
    let module = |text: String| parse_module(&text).unwrap();
    let (left, right) = (module(format!("{f}{g}")), module(format!("{g}{f}")));
    modules_equal(&left, &right).unwrap();
    assert_eq!(module_hash(&left), module_hash(&right));
    for (other, message) in [
        (format!("#[a=1]\n{f}{g}"), "left has the attributes {}, right has {a=1}"),
        (f.to_owned(), "@g: right does not define it"),
        (format!("{f}{g}extern def @h() -> ();"), "@h: left does not define it"),
        (format!("{f}{}", g.replace("@f(%y)", "%y")), "@g: left has a call"),
        (
            "extern def @f(Tensor[(4), float32]) -> Tensor[(4), float32];".to_owned() + g,
            "@f: the definitions are of different kinds",
        ),
    ] {
        let other = module(other);
        let mismatch = modules_equal(&left, &other).unwrap_err().to_string();
        assert!(mismatch.starts_with(message), "{mismatch}");
        assert_ne!(module_hash(&left), module_hash(&other));
    }
}

#[test]
fn loop_functions_are_compared_by_what_they_do() {
    let module = |text: &str| parse_module(text).unwrap();
    let text = "prim_func @f(x: input float32[4], y: output float32[4]) {
      for i in serial(4) {
        for j in serial(1) {
          y[i + j] = x[i]
        }
      }
    }";
    let config = UnrollLoopConfig { auto_max_extent: 1, ..UnrollLoopConfig::default() };
    let cx = PassContext::builder().config(&UNROLL_LOOP, config).build().unwrap();
    // What the loop leaves behind in the tables of the function has no text.
    let unrolled = UnrollLoop.run(module(text), &cx).unwrap();
    let again = module(&unrolled.to_string());
    modules_equal(&unrolled, &again).unwrap();
    assert_eq!(module_hash(&unrolled), module_hash(&again));

    let renamed = "prim_func @f(from: input float32[4], to: output float32[4]) {
      for row in serial(4) {
        for none in serial(1) {
          to[row + none] = from[row]
        }
      }
    }";
    modules_equal(&module(text), &module(renamed)).unwrap();
    let other = module(&text.replace("x[i]", "x[i + j]"));
    let mismatch = modules_equal(&module(text), &other).unwrap_err().to_string();
    assert!(mismatch.contains("the loop functions differ"), "{mismatch}");
    assert_ne!(module_hash(&module(text)), module_hash(&other));
}

#[test]
fn long_chains_are_compared_in_linear_time() {
    let chain = |last: f32| {
        let mut b = FunctionBuilder::new();
        let mut x = b.param("x", Type::tensor(&[4], DType::F32));
        for _ in 0..100_000 {
            x = b.call(Op::get("add").unwrap(), &[x, x], Attrs::new()).unwrap();
        }
        let last = b.constant(Constant::from_f32(&[4], &[last; 4]).unwrap());
        let sum = b.call(Op::get("add").unwrap(), &[x, last], Attrs::new()).unwrap();
        b.finish(sum)
    };
    structural_equal(&chain(1.0), &chain(1.0)).unwrap();
    let mismatch = structural_equal(&chain(1.0), &chain(2.0)).unwrap_err();
    assert!(mismatch.to_string().contains("a constant"), "{mismatch}");
    assert_eq!(structural_hash(&chain(1.0)), structural_hash(&chain(1.0)));
    assert_ne!(structural_hash(&chain(1.0)), structural_hash(&chain(2.0)));
}

#[test]
fn deep_scopes_are_compared_without_recursion() {
    for make in [nested, nested_closures] {
        structural_equal(&make(20_000), &make(20_000)).unwrap();
        structural_equal(&make(20_000), &make(20_001)).unwrap_err();
        assert_ne!(structural_hash(&make(20_000)), structural_hash(&make(20_001)));
    }
}
