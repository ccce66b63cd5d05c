//! Branches of which one runs, and loops that run as often as their conditions say.

use super::*;
use crate::graph::interp::{Tolerance, Value, compare, evaluate};
use crate::graph::parse_module;

/// Compiles a module and runs it on each list of inputs, everywhere; compares with the interpreter.
fn check(text: &str, runs: &[Vec<Constant>]) -> Compilation {
    let module = parse_module(text).unwrap();
    let model = Model::from_module("flow", module.clone());
    let mut last = None;
    for (opt_level, &backend) in
        [0, 3].into_iter().flat_map(|l| Backend::ALL.iter().map(move |b| (l, b)))
    {
        let options = CompileOptions { opt_level, backend, ..options() };
        let compilation = run(&model, &options).unwrap();
        let loaded = load(&compilation.model, &options);
        for inputs in runs {
            let values: Vec<Value> =
                inputs.iter().map(|x| Tensor::from_constant(x).unwrap().into()).collect();
            let expected = evaluate(&module, "main", &values).unwrap();
            let fields = expected.as_tuple().unwrap_or(std::slice::from_ref(&expected));
            let expected: Vec<Constant> =
                fields.iter().map(|f| f.as_tensor().unwrap().to_constant().unwrap()).collect();
            let mut found =
                vec![crate::executor::interpret(&compilation.program, 0, inputs).unwrap()];
            found.extend(loaded.iter().map(|loaded| loaded.run(inputs).unwrap()));
            for found in found {
                assert_eq!(found.len(), expected.len());
                for (found, expected) in found.iter().zip(&expected) {
                    compare(found, expected, Tolerance::near(expected))
                        .unwrap_or_else(|why| panic!("{backend} -O{opt_level}: {why}"));
                }
            }
        }
        last = Some(compilation);
    }
    last.unwrap()
}

fn ints(values: &[i64]) -> Vec<Constant> {
    values.iter().map(|&value| Constant::from_i64(&[], &[value]).unwrap()).collect()
}

fn floats(shape: &[i64], seed: u64) -> Constant {
    let count = shape.iter().product::<i64>() as u64;
    let values = (0..count).map(|at| ((at * 7 + seed * 3) % 11) as f32 / 4.0 - 1.0);
    Constant::from_f32(shape, &values.collect::<Vec<f32>>()).unwrap()
}

#[test]
fn a_loop_runs_as_often_as_its_condition_says() {
    let fibonacci = "def @main(%n: Tensor[(), int64]) -> Tensor[(), int64] {
  %0 = loop (%n, const(0, int64), const(1, int64)) while (%i: Tensor[(), int64], %a: Tensor[(), int64], %b: Tensor[(), int64]) {
    greater(%i, const(0, int64))
  } do (%i: Tensor[(), int64], %a: Tensor[(), int64], %b: Tensor[(), int64]) {
    (subtract(%i, const(1, int64)), %b, add(%a, %b))
  };
  %0.1
}";
    check(fibonacci, &[ints(&[0]), ints(&[1]), ints(&[50])]);
}

/// `%n` steps of a recurrence over the rows of `%x`, whose states are stored to rows of a tensor.
const RECURRENCE: &str = "def @main(%n: Tensor[(), int64], %x: Tensor[(6, 1, 20), float32], %w: Tensor[(20, 20), float32]) -> (Tensor[(6, 1, 20), float32], Tensor[(1, 20), float32]) {
  %all = full(const(0, float32), shape=[6, 1, 20]);
  %zero = full(const(0.5, float32), shape=[1, 20]);
  %r = loop (const(0, int64), %zero, %all) while (%i: Tensor[(), int64], %h: Tensor[(1, 20), float32], %y: Tensor[(6, 1, 20), float32]) {
    less(%i, %n)
  } do (%i: Tensor[(), int64], %h: Tensor[(1, 20), float32], %y: Tensor[(6, 1, 20), float32]) {
    %row = take(%x, %i, axis=0, mode=\"clip\");
    %next = tanh(add(nn.dense(%h, %w), %row));
    %at = reshape(%i, newshape=[1, 1]);
    %slice = reshape(%next, newshape=[1, 1, 20]);
    (add(%i, const(1, int64)), %next, scatter_nd(%y, %at, %slice, reduction=\"update\"))
  };
  (%r.2, %r.1)
}";

#[test]
fn states_and_rows_of_a_loop_are_stored_where_they_are() {
    let runs: Vec<Vec<Constant>> = [0, 1, 4, 6]
        .map(|n| [ints(&[n]), vec![floats(&[6, 1, 20], 1), floats(&[20, 20], 2)]].concat())
        .into();
    let compilation = check(RECURRENCE, &runs);
    let program = &compilation.program;
    let [region] = &program.regions[..] else { panic!("{:?}", program.regions) };
    let names: Vec<&str> = (program.steps[region.steps.clone()].iter())
        .map(|step| &*program.kernels[step.kernel].signature().name)
        .collect();
    // The row and the condition are stored where they are. A product reads all of the state, and the
    // row is stored after the counter is known: these two are copied.
    let expected = ["take", "nn_dense_add_tanh", "add", "scatter_nd_in_place", "less"]
        .map(|name| format!("fused_{name}"));
    let kept = names.iter().filter(|name| !name.starts_with("keep_"));
    assert_eq!(kept.collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>());
    assert_eq!(names.len(), expected.len() + 2, "{names:?}");
}

#[test]
fn one_branch_runs() {
    let text = "def @main(%c: Tensor[(), bool], %x: Tensor[(2, 3), float32]) -> (Tensor[(2, 3), float32], Tensor[(), int64]) {
  %y = tanh(%x);
  %r = if (%c) {
    (add(exp(%y), %x), const(1, int64))
  } else {
    (%y, const(2, int64))
  };
  (multiply(%r.0, %y), %r.1)
}";
    let run = |flag| vec![Constant::scalar(flag, DType::Bool).unwrap(), floats(&[2, 3], 5)];
    check(text, &[run(0.0), run(1.0)]);
}

#[test]
fn branches_in_loops_in_branches_change_what_changes_places() {
    let text = "def @main(%c: Tensor[(), bool], %n: Tensor[(), int64], %x: Tensor[(4), float32], %y: Tensor[(4), float32]) -> (Tensor[(4), float32], Tensor[(4), float32]) {
  if (%c) {
    %r = loop (const(0, int64), %x, %y) while (%i: Tensor[(), int64], %a: Tensor[(4), float32], %b: Tensor[(4), float32]) {
      less(%i, %n)
    } do (%i: Tensor[(), int64], %a: Tensor[(4), float32], %b: Tensor[(4), float32]) {
      %third = equal(mod(%i, const(3, int64)), const(0, int64));
      %d = if (%third) { add(%a, %b) } else { %b };
      (add(%i, const(1, int64)), %d, %a)
    };
    (%r.1, %r.2)
  } else {
    (%y, %x)
  }
}";
    let run = |flag, n| {
        let [x, y] = [1, 2].map(|seed| floats(&[4], seed));
        vec![Constant::scalar(flag, DType::Bool).unwrap(), ints(&[n])[0].clone(), x, y]
    };
    check(text, &[run(0.0, 3), run(1.0, 0), run(1.0, 1), run(1.0, 7)]);
}

#[test]
fn a_condition_is_read_where_it_is_kept() {
    let text =
        "def @main(%x: Tensor[(3), float32], %limit: Tensor[(), float32]) -> Tensor[(3), float32] {
  %r = loop (%x, const(true, bool)) while (%a: Tensor[(3), float32], %go: Tensor[(), bool]) {
    %go
  } do (%a: Tensor[(3), float32], %go: Tensor[(), bool]) {
    %sum = sum(abs(%a), axis=[0], keepdims=false);
    %more = less(%sum, %limit);
    %b = if (%more) { multiply(exp(%a), const(2, float32)) } else { negative(%a) };
    (%b, %more)
  };
  %r.0
}";
    let run = |limit: f32| vec![floats(&[3], 4), Constant::from_f32(&[], &[limit]).unwrap()];
    let program = check(text, &[run(0.0), run(3.0), run(500.0)]).program;
    let [_, yes, no] = &program.regions[..] else { panic!("{:?}", program.regions) };
    assert_eq!(yes.condition, no.condition);
    assert_eq!(program.values[yes.condition].kind, crate::executor::ValueKind::Variable);
}

#[test]
fn a_loop_is_one_call_of_those_that_are_made_one_by_one() {
    let model = Model::from_module("flow", parse_module(RECURRENCE).unwrap());
    let inputs = [ints(&[4]), vec![floats(&[6, 1, 20], 1), floats(&[20, 20], 2)]].concat();
    for &backend in Backend::ALL {
        let options = CompileOptions { backend, single_calls: true, ..options() };
        let compilation = run(&model, &options).unwrap();
        for loaded in load(&compilation.model, &options) {
            let expected = loaded.run(&inputs).unwrap();
            let mut call = loaded.call(&inputs).unwrap();
            (0..compilation.model.calls).for_each(|number| call.run_call(number).unwrap());
            assert_eq!(call.outputs().unwrap(), expected, "{backend}");
        }
    }
    let options = CompileOptions { executor: crate::options::Executor::Graph, ..options() };
    let error = run(&model, &options).err().unwrap();
    assert!(error.to_string().contains("one by one"), "{error}");
}

#[test]
fn branches_may_be_within_many_others_but_not_any_number() {
    let nested = |depth: usize| {
        let (open, close) = ("if (%c) { ".repeat(depth), " } else { %x }".repeat(depth));
        let ty = "Tensor[(6), float32]";
        format!("def @main(%x: {ty}, %c: Tensor[(), bool]) -> {ty} {{ {open}nn.relu(%x){close} }}")
    };
    let run_of = |flag| vec![floats(&[6], 1), Constant::scalar(flag, DType::Bool).unwrap()];
    check(&nested(200), &[run_of(0.0), run_of(1.0)]);
    let model = Model::from_module("flow", parse_module(&nested(100_000)).unwrap());
    let error = run(&model, &options()).err().unwrap();
    assert!(error.to_string().starts_with("a branch or loop is within 200 others"), "{error}");
}
