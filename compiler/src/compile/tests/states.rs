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
            "state `h=g`: the input is float32 [n, 2]: its size has to be fixed, or the output to have more behind it",
            "state `z=y`: it takes an input and an output; the inputs are `x`, `h`, the outputs `y`, `g`",
        ]
    );
}

/// Places of a small decoder's cache.
const PLACES: i64 = 24;
/// Elements of a token.
const WIDTH: i64 = 16;
const HEADS: i64 = 2;
const TOKENS: i64 = 11;

/// A layer of attention over what a cache has of the tokens so far, of which each run adds one.
fn decoder() -> Model {
    let weights = |name: &str, shape: &[i64], seed: i64| {
        let count: i64 = shape.iter().product();
        let values = (0..count).map(|at| {
            let mixed = (at + 1000 * seed).wrapping_mul(6_364_136_223_846_793_005) >> 40;
            (mixed % 256) as f32 / 256.0
        });
        (name.to_owned(), Constant::from_f32(shape, &values.collect::<Vec<f32>>()).unwrap())
    };
    let ints = |values: &[i64]| Constant::from_i64(&[values.len() as i64], values).unwrap();
    let by_head = [PLACES, HEADS, WIDTH / HEADS];
    let cache = [PLACES, WIDTH];
    let mut b = ModelBuilder::new(18)
        .input("token", DType::I64, &[1])
        .input("place", DType::I64, &[1, 1])
        .input("keys", DType::F32, &cache)
        .input("values", DType::F32, &cache);
    for (name, weight) in [
        weights("table", &[TOKENS, WIDTH], 1),
        weights("wq", &[WIDTH, WIDTH], 2),
        weights("wk", &[WIDTH, WIDTH], 3),
        weights("wv", &[WIDTH, WIDTH], 4),
        weights("wo", &[WIDTH, TOKENS], 5),
    ] {
        b = b.initializer(&name, &weight);
    }
    let proto = b
        .initializer("by_head", &ints(&by_head))
        .initializer("one_head", &ints(&[1, HEADS, WIDTH / HEADS]))
        .initializer("flat", &ints(&[1, WIDTH]))
        .initializer("places", &ints(&(0..PLACES).collect::<Vec<i64>>()))
        .initializer("least", &Constant::from_f32(&[], &[-1e9]).unwrap())
        .node("Gather", &["table", "token"], &["x"], &[])
        .node("MatMul", &["x", "wq"], &["q"], &[])
        .node("MatMul", &["x", "wk"], &["k"], &[])
        .node("MatMul", &["x", "wv"], &["v"], &[])
        .node("ScatterND", &["keys", "place", "k"], &["keys_out"], &[])
        .node("ScatterND", &["values", "place", "v"], &["values_out"], &[])
        .node("Reshape", &["q", "one_head"], &["qs"], &[])
        .node("Reshape", &["keys_out", "by_head"], &["ks"], &[])
        .node("Reshape", &["values_out", "by_head"], &["vs"], &[])
        .node("Transpose", &["qs"], &["qt"], &[("perm", vec![1, 0, 2].into())])
        .node("Transpose", &["ks"], &["kt"], &[("perm", vec![1, 2, 0].into())])
        .node("Transpose", &["vs"], &["vt"], &[("perm", vec![1, 0, 2].into())])
        .node("MatMul", &["qt", "kt"], &["scores"], &[])
        .node("LessOrEqual", &["places", "place"], &["seen"], &[])
        .node("Where", &["seen", "scores", "least"], &["masked"], &[])
        .node("Softmax", &["masked"], &["weights"], &[])
        .node("MatMul", &["weights", "vt"], &["found"], &[])
        .node("Transpose", &["found"], &["together"], &[("perm", vec![1, 0, 2].into())])
        .node("Reshape", &["together", "flat"], &["z"], &[])
        .node("MatMul", &["z", "wo"], &["logits"], &[])
        .output("logits", DType::F32, &[1, TOKENS])
        .output("keys_out", DType::F32, &cache)
        .output("values_out", DType::F32, &cache)
        .build();
    Model::from_onnx("decoder", ModelFile { proto, folder: None, store: None })
}

#[test]
fn a_decoder_adds_to_its_cache_where_it_is() {
    let next = |logits: &Constant| -> i64 {
        let logits = logits.to_f64_vec().unwrap();
        (0..TOKENS).max_by(|&a, &b| logits[a as usize].total_cmp(&logits[b as usize])).unwrap()
    };
    let step = |token: i64, place: i64| {
        [
            Constant::from_i64(&[1], &[token]).unwrap(),
            Constant::from_i64(&[1, 1], &[place]).unwrap(),
        ]
    };
    // The model as it is, which is handed the caches by the caller.
    let reference = run(&decoder(), &options()).unwrap();
    let program = &reference.program;
    let empty =
        Constant::from_f32(&[PLACES, WIDTH], &vec![0.0; (PLACES * WIDTH) as usize]).unwrap();
    let (mut token, mut caches) = (3, vec![empty.clone(), empty]);
    let mut expected = Vec::new();
    for place in 0..PLACES {
        let inputs = [step(token, place).to_vec(), caches].concat();
        let mut outputs = crate::executor::interpret(program, 0, &inputs).unwrap();
        caches = outputs.split_off(1);
        token = next(&outputs[0]);
        expected.push(token);
    }
    assert!(expected.iter().any(|token| *token != expected[0]), "{expected:?}");
    for &backend in Backend::ALL {
        let states = keeping(&[("keys", "keys_out"), ("values", "values_out")]);
        let options = CompileOptions { backend, ..states };
        let compilation = run(&decoder(), &options).unwrap();
        let program = &compilation.program;
        // What a run writes to a cache does not depend on how long it is.
        let writes = program.steps.iter().filter(|step| {
            let written = step.args.last().unwrap();
            program.values[*written].kind == crate::executor::ValueKind::State
        });
        let names: Vec<&str> =
            writes.map(|step| &*program.kernels[step.kernel].signature().name).collect();
        assert_eq!(names.len(), 2, "{names:?}");
        assert!(names.iter().all(|name| name.ends_with("_in_place")), "{names:?}");
        for loaded in load(&compilation.model, &options) {
            let mut token = 3;
            for (place, &expected) in (0..PLACES).zip(&expected) {
                token = next(&loaded.run(&step(token, place)).unwrap()[0]);
                assert_eq!(token, expected, "{backend}, place {place}");
            }
        }
    }
}
