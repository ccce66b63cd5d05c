//! Models that keep tensors from run to run.

use super::*;

fn vector(values: &[f32]) -> Constant {
    Constant::from_f32(&[1, values.len() as i64], values).unwrap()
}

/// `y = x + h`, `h_out = y / 2`, and two tensors that change places, `a_out = b` and `b_out = a + x`;
/// `a` is an output as well.
fn model() -> Model {
    let inputs = ["x", "h", "a", "b"].into_iter();
    let outputs = ["y", "h_out", "a_out", "b_out", "seen"].into_iter();
    let two = [ModelDim::from(1), ModelDim::from(2)];
    let builder = inputs.fold(ModelBuilder::new(13), |b, name| b.input(name, DType::F32, &two));
    let builder = builder
        .initializer("half", &Constant::from_f32(&[], &[0.5]).unwrap())
        .node("Add", &["x", "h"], &["y"], &[])
        .node("Mul", &["y", "half"], &["h_out"], &[])
        .node("Identity", &["b"], &["a_out"], &[])
        .node("Add", &["a", "x"], &["b_out"], &[])
        .node("Identity", &["a"], &["seen"], &[]);
    let builder = outputs.fold(builder, |b, name| b.output(name, DType::F32, &two));
    let file = ModelFile { proto: builder.build(), folder: None, store: None };
    Model::from_onnx("states", file)
}

fn keeping(states: &[(&str, &str)]) -> CompileOptions {
    let states = states.iter().map(|&(a, b)| (a.to_owned(), b.to_owned())).collect();
    CompileOptions { states, ..options() }
}

#[test]
fn what_a_run_leaves_is_what_the_next_one_finds() {
    for &backend in Backend::ALL {
        for opt_level in [0, 3] {
            let states = keeping(&[("h", "h_out"), ("a", "a_out"), ("b", "b_out")]);
            let options = CompileOptions { backend, opt_level, ..states };
            let compiled = run(&model(), &options).unwrap().model;
            let names = |infos: &[crate::executor::TensorInfo]| -> Vec<String> {
                infos.iter().map(|info| info.name.clone()).collect()
            };
            assert_eq!(names(&compiled.inputs), ["x"]);
            assert_eq!(names(&compiled.outputs), ["y", "seen"]);
            assert_eq!(names(&compiled.states), ["h", "a", "b"]);
            for loaded in load(&compiled, &options) {
                let (mut h, mut a, mut b) = ([0.0f32; 2], [0.0f32; 2], [0.0f32; 2]);
                for step in 1..6 {
                    let x = [step as f32, -2.0 * step as f32];
                    let found = loaded.run(&[vector(&x)]).unwrap();
                    let y = [x[0] + h[0], x[1] + h[1]];
                    let expected = [vector(&y), vector(&a)];
                    assert_eq!(found, expected, "{backend}, -O{opt_level}, run {step}");
                    h = y.map(|value| value / 2.0);
                    (a, b) = (b, [a[0] + x[0], a[1] + x[1]]);
                }
            }
        }
    }
}

#[test]
fn wrong_states_are_reported_together() {
    let three = [ModelDim::from(1), ModelDim::from(3)];
    let two = [ModelDim::from("n"), ModelDim::from(2)];
    let builder = ModelBuilder::new(13)
        .input("x", DType::F32, &three)
        .input("h", DType::F32, &two)
        .node("Abs", &["x"], &["y"], &[])
        .node("Abs", &["h"], &["g"], &[])
        .output("y", DType::F32, &three)
        .output("g", DType::F32, &two);
    let file = ModelFile { proto: builder.build(), folder: None, store: None };
    let states = [("x", "y"), ("x", "y"), ("x", "g"), ("h", "g"), ("z", "y")];
    let dims = [("n".to_owned(), (1..=2).into())].into();
    let options = CompileOptions { dims, ..keeping(&states) };
    let report = run(&Model::from_onnx("wrong", file), &options).unwrap_err();
    let messages: Vec<&str> = report.problems.iter().map(|p| p.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "state `x=y`: the input or the output is in another state already",
            "state `x=g`: the input or the output is in another state already",
            "state `h=g`: the input is float32 [n, 2]: its size has to be fixed",
            "state `z=y`: it takes an input and an output; the inputs are `x`, `h`, the outputs `y`, `g`",
        ]
    );
}
