//! Tests of the interpreter.

use super::{InterpError, Interpreter, Tensor, Value, evaluate};
use crate::graph::tests::{nested, nested_closures};
use crate::graph::{FunctionBuilder, parse_module};
use crate::ir::{Attrs, DType, IRModule, Type};
use crate::ops::Op;

fn module(text: &str) -> IRModule {
    parse_module(text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn floats(values: &[f64]) -> Value {
    Tensor::from_floats(DType::F32, &[values.len()], values.to_vec()).unwrap().into()
}

fn int(value: i64) -> Value {
    Tensor::from_ints(DType::I64, &[], vec![value.into()]).unwrap().into()
}

fn boolean(value: bool) -> Value {
    Tensor::from_ints(DType::Bool, &[], vec![value.into()]).unwrap().into()
}

#[track_caller]
fn run(text: &str, args: &[Value]) -> Value {
    evaluate(&module(text), "main", args).unwrap_or_else(|error| panic!("{error}"))
}

fn fail(text: &str, args: &[Value]) -> InterpError {
    evaluate(&module(text), "main", args).unwrap_err()
}

fn floats_of(value: &Value) -> Vec<f64> {
    value.as_tensor().unwrap().floats().unwrap().to_vec()
}

fn int_of(value: &Value) -> i128 {
    value.as_tensor().unwrap().ints().unwrap()[0]
}

const SCALAR: &str = "Tensor[(), int64]";

#[test]
fn operators_tuples_and_constants_are_evaluated() {
    let value = run(
        "def @main(%x: Tensor[(3), float32]) -> (Tensor[(3), float32], (Tensor[(3), float32],)) {
            let %y = nn.relu(%x);
            %t = (add(%y, const([1, 2, 3], float32)), %x);
            (%t.0, (multiply(%t.1, splat(2, Tensor[(3), float32])),))
        }",
        &[floats(&[-1.0, 0.5, 2.0])],
    );
    let fields = value.as_tuple().unwrap();
    assert_eq!(floats_of(&fields[0]), [1.0, 2.5, 5.0]);
    assert_eq!(floats_of(&fields[1].as_tuple().unwrap()[0]), [-2.0, 1.0, 4.0]);
}

#[test]
fn only_the_taken_branch_is_evaluated() {
    let text = format!(
        "def @main(%c: Tensor[(), bool], %x: {SCALAR}) -> {SCALAR} {{
            %far = multiply(%x, %x);
            if (%c) {{ add(%far, %x) }} else {{ @main(%c, %x) }}
        }}"
    );
    assert_eq!(int_of(&run(&text, &[boolean(true), int(3)])), 12);
    let error = fail(&text, &[boolean(false), int(3)]);
    assert!(error.to_string().contains("100000 calls are open: endless recursion?"), "{error}");
}

#[test]
fn loops_carry_their_state() {
    // The greatest common divisor of two numbers.
    let text = format!(
        "def @main(%a: {SCALAR}, %b: {SCALAR}) -> {SCALAR} {{
            %state = loop (%a, %b) while (%x: {SCALAR}, %y: {SCALAR}) {{
                not_equal(%y, const(0, int64))
            }} do (%x: {SCALAR}, %y: {SCALAR}) {{
                (%y, floor_mod(%x, %y))
            }};
            %state.0
        }}"
    );
    assert_eq!(int_of(&run(&text, &[int(1071), int(462)])), 21);
    assert_eq!(int_of(&run(&text, &[int(7), int(0)])), 7);
}

#[test]
fn an_endless_loop_is_stopped() {
    let text = "def @main(%c: Tensor[(), bool]) -> (Tensor[(), bool],) {
        loop (%c) while (%x: Tensor[(), bool]) { %x } do (%x: Tensor[(), bool]) { (logical_or(%x, %x),) }
    }";
    let module = module(text);
    let mut interpreter = Interpreter::new(&module).step_limit(10_000);
    let error = interpreter.run("main", &[boolean(true)]).unwrap_err();
    assert!(error.to_string().contains("more than 10000 steps"), "{error}");
    assert_eq!(interpreter.run("main", &[boolean(false)]).unwrap().steps, 1);
}

#[test]
fn closures_keep_what_they_capture() {
    let function = format!("fn ({SCALAR},) -> {SCALAR}");
    let text = format!(
        "def @adder(%n: {SCALAR}) -> {function} {{
            %double = add(%n, %n);
            fn (%x: {SCALAR}) -> {SCALAR} {{
                if (less(%x, const(0, int64))) {{ %x }} else {{ add(%x, %double) }}
            }}
        }}
        def @main(%a: {SCALAR}, %b: {SCALAR}) -> {SCALAR} {{
            %f = @adder(%a);
            %g = @adder(%b);
            %h = fn (%x: {SCALAR}) -> {SCALAR} {{ %g(%f(%x)) }};
            %h(const(1, int64))
        }}"
    );
    assert_eq!(int_of(&run(&text, &[int(10), int(100)])), 221);
}

#[test]
fn closures_without_parameters_hold_values_of_inner_scopes() {
    let text = format!(
        "def @main(%c: Tensor[(), bool], %a: {SCALAR}) -> {SCALAR} {{
            %f = fn () -> {SCALAR} {{
                if (%c) {{ %s = add(%a, %a); multiply(%s, %s) }} else {{ %a }}
            }};
            %f()
        }}"
    );
    assert_eq!(int_of(&run(&text, &[boolean(true), int(3)])), 36);
    assert_eq!(int_of(&run(&text, &[boolean(false), int(3)])), 3);
}

#[test]
fn a_closure_may_bind_an_otherwise_unused_value() {
    let text = format!(
        "def @main(%a: {SCALAR}, %b: {SCALAR}) -> {SCALAR} {{
            %sum = add(%b, %b);
            %f = fn (%x: {SCALAR}) -> {SCALAR} {{ let %y = %sum; let %z = %b; %x }};
            %f(%a)
        }}"
    );
    assert_eq!(int_of(&run(&text, &[int(3), int(4)])), 3);
}

#[test]
fn recursion_goes_as_deep_as_memory_allows() {
    let text = format!(
        "def @main(%n: {SCALAR}) -> {SCALAR} {{
            %sum = fn %self (%i: {SCALAR}) -> {SCALAR} {{
                if (equal(%i, const(0, int64))) {{
                    %i
                }} else {{
                    %rest = %self(subtract(%i, const(1, int64)));
                    add(%i, %rest)
                }}
            }};
            %sum(%n)
        }}"
    );
    assert_eq!(int_of(&run(&text, &[int(50_000)])), 50_000 * 50_001 / 2);
}

#[test]
fn chains_of_closures_are_dropped_without_recursion() {
    let function = format!("fn ({SCALAR},) -> {SCALAR}");
    let text = format!(
        "def @main(%n: {SCALAR}) -> ({SCALAR}, ({function},)) {{
            %id = fn (%x: {SCALAR}) -> {SCALAR} {{ %x }};
            loop (%n, (%id,)) while (%i: {SCALAR}, %f: ({function},)) {{
                greater(%i, const(0, int64))
            }} do (%i: {SCALAR}, %f: ({function},)) {{
                %g = fn (%x: {SCALAR}) -> {SCALAR} {{ %f.0(%x) }};
                (subtract(%i, const(1, int64)), (%g,))
            }}
        }}"
    );
    assert_eq!(int_of(&run(&text, &[int(100_000)]).as_tuple().unwrap()[0]), 0);
}

#[test]
fn symbols_are_bound_by_the_arguments_and_checked() {
    let text = "def @main(%x: Tensor[(n, 2*m), float32], %y: Tensor[(n), float32]) -> Tensor[(m*n*2), float32] where * >= 0, n <= 8 {
        reshape(add(%x, %x), newshape=[dim(2*m*n)])
    }";
    let tensor = |shape: &[usize]| -> Value {
        let len = shape.iter().product();
        Tensor::from_floats(DType::F32, shape, vec![1.0; len]).unwrap().into()
    };
    let value = run(text, &[tensor(&[3, 4]), tensor(&[3])]);
    assert_eq!(value.as_tensor().unwrap().shape(), [12]);
    for (args, expected) in [
        (
            vec![tensor(&[3, 4]), tensor(&[2])],
            "dimension 0 of argument `y` must be `n` = 3, but it is 2",
        ),
        (
            vec![tensor(&[3, 5]), tensor(&[3])],
            "dimension 1 of argument `x` is 5, but must be `2*m`",
        ),
        (vec![tensor(&[9, 4]), tensor(&[9])], "dimension 0 of argument `x` is 9, but must be `n`"),
        (vec![tensor(&[3])], "takes 2 arguments, but 1 are given"),
        (
            vec![tensor(&[3]), tensor(&[3])],
            "argument `x` must be Tensor[(n, 2*m), float32], but it is Tensor[(3), float32]",
        ),
        (
            vec![int(1), tensor(&[3])],
            "argument `x` must be Tensor[(n, 2*m), float32], but it is Tensor[(), int64]",
        ),
        (vec![Value::tuple([]), tensor(&[3])], "but it is a tuple of 0 fields"),
    ] {
        let error = fail(text, &args);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn errors_name_function_operator_and_place() {
    let text = "def @main(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {
  @f(%x)
}
def @f(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {
  add(%x, const(Tensor[(2), float32], blake3:0000000000000000000000000000000000000000000000000000000000000000))
}
extern def @g() -> ();";
    let error = fail(text, &[floats(&[1.0, 2.0])]);
    assert_eq!(
        error.to_string(),
        "@f, add at 5:3: the elements of a constant of type Tensor[(2), float32] are not known, only its digest"
    );
    let module = module(text);
    let error = evaluate(&module, "g", &[]).unwrap_err();
    assert_eq!(error.to_string(), "@g: @g is defined elsewhere, and cannot be interpreted");
    let error = evaluate(&module, "h", &[]).unwrap_err();
    assert_eq!(error.to_string(), "@h: the module does not define @h");
}

#[test]
fn long_chains_hold_few_values() {
    let mut b = FunctionBuilder::new();
    let mut x = b.param("x", Type::tensor(&[4], DType::F32));
    let first = x;
    for index in 0..100_000 {
        x = b.call(Op::get("negative").unwrap(), &[x], Attrs::new()).unwrap();
        if index % 1000 == 0 {
            b.bind("unused", x);
        }
    }
    let both = b.tuple(&[x, first]);
    let module = IRModule::from_function(b.finish(both));
    let evaluation =
        Interpreter::new(&module).run("main", &[floats(&[1.0, -2.0, 3.0, 4.0])]).unwrap();
    assert_eq!(floats_of(&evaluation.value.as_tuple().unwrap()[0]), [1.0, -2.0, 3.0, 4.0]);
    assert_eq!(evaluation.steps, 100_001);
    assert!(evaluation.peak_values <= 4, "{}", evaluation.peak_values);
}

#[test]
fn deep_scopes_are_evaluated_without_recursion() {
    let x = floats(&[1.0, -2.0, 3.0, -4.0]);
    let module = IRModule::from_function(nested(20_000));
    let value = evaluate(&module, "main", &[boolean(true), x.clone()]).unwrap();
    assert_eq!(floats_of(&value), [1.0, 0.0, 3.0, 0.0]);
    let module = IRModule::from_function(nested_closures(20_000));
    let value = evaluate(&module, "main", &[x]).unwrap();
    assert_eq!(floats_of(&value), [1.0, 0.0, 3.0, 0.0]);
}
