//! Branches and loops: what is decided at import, and what runs.

use super::*;
use crate::graph::interp::evaluate;

/// `y = if c { x + x } else { -x }`, with a branch that does not fit if `odd`.
fn branches(odd: bool) -> ModelProto {
    let other = if odd { "Shape" } else { "Neg" };
    let dtype = if odd { DType::I64 } else { DType::F32 };
    let yes = ModelBuilder::new(18)
        .node("Add", &["x", "x"], &["t"], &[])
        .output::<i64>("t", DType::F32, &[])
        .build_graph();
    let no = ModelBuilder::new(18)
        .node(other, &["x"], &["u"], &[])
        .output::<i64>("u", dtype, &[])
        .build_graph();
    ModelBuilder::new(18)
        .input::<i64>("c", DType::Bool, &[])
        .input("x", DType::F32, &[2])
        .node("If", &["c"], &["y"], &[("then_branch", yes.into()), ("else_branch", no.into())])
        .output("y", DType::F32, &[2])
        .build()
}

#[test]
fn a_known_condition_leaves_one_branch() {
    let condition = |value: bool| ImportOptions {
        input_values: BTreeMap::from([("c".to_owned(), value.into())]),
        ..ImportOptions::default()
    };
    let body = |options: &ImportOptions| {
        let text = import(&branches(false), None, options).unwrap().module.to_string();
        text[text.find("{\n").unwrap() + 2..].to_owned()
    };
    assert_eq!(body(&condition(true)), "  add(%x, %x)\n}\n");
    assert_eq!(body(&condition(false)), "  negative(%x)\n}\n");
    assert_eq!(
        body(&ImportOptions::default()),
        "  %0 = if (%c) {\n    %1 = add(%x, %x);\n    (%1,)\n  } else {\n    %2 = negative(%x);\n    \
           (%2,)\n  };\n  %0.0\n}\n"
    );
    assert_eq!(static_inputs(&branches(false)), ["c"]);
}

#[test]
fn branches_of_unequal_types_need_a_known_condition() {
    let problems = problems(&branches(true), &ImportOptions::default());
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    assert!(
        problem.contains(
            "the condition depends on the model's inputs, and so would the type of a value: \
             Tensor[(2), float32] or Tensor[(1), int64]"
        ),
        "{problem}"
    );
}

/// A loop of at most `steps` steps that adds `k`, of outside, to `v`, and goes on while `next` says
/// so, which may use the loop's values `i` and `v`. It scans `v`.
fn adding_loop(steps: i64, next: (&str, &[&str]), outputs: &[&str]) -> ModelProto {
    let body = ModelBuilder::new(18)
        .input::<i64>("i", DType::I64, &[])
        .input::<i64>("c", DType::Bool, &[])
        .input("v", DType::F32, &[1])
        .node("Add", &["v", "k"], &["w"], &[])
        .node(next.0, next.1, &["d"], &[])
        .output::<i64>("d", DType::Bool, &[])
        .output("w", DType::F32, &[1]);
    let body = if outputs.len() > 1 { body.output("w", DType::F32, &[1]) } else { body };
    let mut model = ModelBuilder::new(18)
        .input("x", DType::F32, &[1])
        .input("k", DType::F32, &[1])
        .initializer("steps", &Constant::scalar(steps as f64, DType::I64).unwrap())
        .initializer("bound", &Constant::scalar(1.0, DType::I64).unwrap())
        .node("Loop", &["steps", "", "x"], outputs, &[("body", body.build_graph().into())]);
    for output in outputs {
        let dims: &[&str] = if *output == "all" { &["n", "m"] } else { &["n"] };
        model = model.output(output, DType::F32, dims);
    }
    model.build()
}

#[test]
fn loops_are_unrolled() {
    let body = |model: &ModelProto| {
        let text = text(model);
        text[text.find("{\n").unwrap() + 2..].to_owned()
    };
    let scanned = adding_loop(2, ("Identity", &["c"]), &["y", "all"]);
    assert_eq!(
        body(&scanned),
        "  %0 = add(%x, %k);\n  %1 = add(%0, %k);\n  %2 = reshape(%0, newshape=[1, 1]);\n  \
           %3 = reshape(%1, newshape=[1, 1]);\n  %4 = concatenate(%2, %3, axis=0);\n  (%1, %4)\n}\n"
    );
    // The condition is known: of ten steps, those with numbers 0 and 1 take place.
    let bounded = adding_loop(10, ("Less", &["i", "bound"]), &["y"]);
    assert_eq!(
        body(&bounded),
        "  %0 = add(%x, %k);\n  %1 = less(const(0, int64), const(1, int64));\n  \
           %2 = add(%0, %k);\n  %3 = less(const(1, int64), const(1, int64));\n  %2\n}\n"
    );
}

#[test]
fn a_loop_whose_condition_is_false_has_no_step() {
    // Few enough steps to be unrolled, more, and too many for rows of each; fewer than none, whatever the
    // condition; and no number of them.
    let counted = [(3, 0.0), (4000, 0.0), (100_000, 0.0), (0, 1.0), (-3, 1.0)];
    let counted = counted.map(|(steps, condition)| (steps, condition, "steps"));
    for (steps, condition, count) in counted.into_iter().chain([(0, 0.0, "")]) {
        let body = ModelBuilder::new(18)
            .input::<i64>("i", DType::I64, &[])
            .input::<i64>("c", DType::Bool, &[])
            .input("v", DType::F32, &[1])
            .node("Identity", &["c"], &["d"], &[])
            .node("Add", &["v", "v"], &["w"], &[])
            .output::<i64>("d", DType::Bool, &[])
            .output("w", DType::F32, &[1])
            .output("w", DType::F32, &[1]);
        let body = [("body", body.build_graph().into())];
        let model = ModelBuilder::new(18)
            .initializer("steps", &Constant::scalar(steps as f64, DType::I64).unwrap())
            .initializer("go", &Constant::scalar(condition, DType::Bool).unwrap())
            .initializer("x", &Constant::from_f32(&[1], &[3.0]).unwrap())
            .node("Loop", &[count, "go", "x"], &["y", "all"], &body)
            .output("y", DType::F32, &[1])
            .output("all", DType::F32, &["n", "m"])
            .build();
        let module = import(&model, None, &ImportOptions::default()).unwrap().module;
        let results = evaluate(&module, "main", &[]).unwrap();
        let results: Vec<_> = results.as_tuple().unwrap().iter().map(|r| r.as_tensor()).collect();
        let [Some(y), Some(all)] = results[..] else { panic!("{results:?}") };
        assert_eq!(y.floats().unwrap(), [3.0], "{steps} steps");
        assert_eq!(all.shape(), [0, 1], "{steps} steps");
    }
}

#[test]
fn a_loop_that_stops_by_its_data_runs() {
    let model = adding_loop(3, ("Less", &["v", "k"]), &["y"]);
    let module = import_default(&model).unwrap().module;
    assert!(text(&model).contains(" while "), "{}", text(&model));
    let run = |x: f32, k: f32| {
        let arg = |value: f32| {
            let constant = Constant::from_f32(&[1], &[value]).unwrap();
            crate::graph::interp::Tensor::from_constant(&constant).unwrap().into()
        };
        let value = crate::graph::interp::evaluate(&module, "main", &[arg(x), arg(k)]).unwrap();
        value.as_tensor().unwrap().floats().unwrap()[0]
    };
    // One step always; one more while the value before the last was less than 4.
    assert_eq!([run(5.0, 4.0), run(1.0, 4.0), run(-9.0, 4.0)], [9.0, 9.0, 3.0]);
    // There is room for the rows of all steps, if these are not too many.
    let scanned = |steps| adding_loop(steps, ("Less", &["v", "k"]), &["y", "all"]);
    assert!(text(&scanned(3)).contains("truncate("), "{}", text(&scanned(3)));
    let scanned = problems(&scanned(1 << 20), &ImportOptions::default());
    assert!(
        scanned[0].contains("the number of steps depends on the model's inputs"),
        "{scanned:?}"
    );
}

#[test]
fn long_loops_run_unless_a_step_must_know_its_number() {
    let long = text(&adding_loop(5000, ("Identity", &["c"]), &["y", "all"]));
    assert!(long.contains("less(%step, const(5000, int64))"), "{long}");
    // The state grows from step to step.
    let growing = |steps: i64| {
        let body = ModelBuilder::new(16)
            .input::<i64>("i", DType::I64, &[])
            .input::<i64>("c", DType::Bool, &[])
            .input("v", DType::F32, &["n"])
            .node("Concat", &["v", "x"], &["w"], &[("axis", 0.into())])
            .output::<i64>("c", DType::Bool, &[])
            .output("w", DType::F32, &["m"]);
        let steps = Constant::from_i64(&[], &[steps]).unwrap();
        ModelBuilder::new(16)
            .input("x", DType::F32, &[1])
            .initializer("steps", &steps)
            .node("Loop", &["steps", "", "x"], &["y"], &[("body", body.build_graph().into())])
            .output("y", DType::F32, &["n"])
            .build()
    };
    assert!(text(&growing(200)).contains("-> Tensor[(201), float32]"));
    let problems = problems(&growing(5000), &ImportOptions::default());
    assert!(problems[0].contains("a step of the loop makes a value of type"), "{problems:?}");
}

#[test]
fn problems_of_a_loop_are_told_once() {
    let model = adding_loop(3, ("ImageDecoder", &["w"]), &["y"]);
    let problems = problems(&model, &ImportOptions::default());
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    assert!(problem.contains("the operator ImageDecoder is not supported"), "{problem}");
}
