//! States that each run makes longer.

use super::*;

const HEADS: i64 = 2;
const WIDTH: i64 = 16;
const TOKENS: i64 = 11;

/// A layer of attention over `past` places and the `seq` new ones, whose keys and values it appends.
fn decoder() -> ModelBuilder {
    let weights = |shape: &[i64], seed: i64| {
        let values = (0..shape.iter().product::<i64>()).map(|at| {
            let mixed = (at + 1000 * seed).wrapping_mul(6_364_136_223_846_793_005) >> 40;
            (mixed % 256) as f32 / 256.0
        });
        Constant::from_f32(shape, &values.collect::<Vec<f32>>()).unwrap()
    };
    let ints = |values: &[i64]| Constant::from_i64(&[values.len() as i64], values).unwrap();
    let int = |value: i64| Constant::from_i64(&[], &[value]).unwrap();
    let cache =
        |length: &str| [1.into(), HEADS.into(), ModelDim::from(length), (WIDTH / HEADS).into()];
    let mut b = ModelBuilder::new(18)
        .input("ids", DType::I64, &[ModelDim::from(1), ModelDim::from("seq")])
        .input("past.key", DType::F32, &cache("past"))
        .input("past.value", DType::F32, &cache("past"))
        .initializer("table", &weights(&[TOKENS, WIDTH], 1))
        .initializer("places", &weights(&[32, WIDTH], 2))
        .initializer("wo", &weights(&[WIDTH, TOKENS], 6))
        .initializer("by_head", &ints(&[0, 0, HEADS, WIDTH / HEADS]))
        .initializer("flat", &ints(&[0, 0, WIDTH]))
        .initializer("one", &int(1))
        .initializer("two", &int(2))
        .initializer("zero", &int(0))
        .initializer("rows", &ints(&[1]))
        .initializer("least", &Constant::from_f32(&[], &[-1e9]).unwrap())
        .node("Shape", &["past.key"], &["past_shape"], &[])
        .node("Shape", &["ids"], &["ids_shape"], &[])
        .node("Gather", &["past_shape", "two"], &["begin"], &[])
        .node("Gather", &["ids_shape", "one"], &["count"], &[])
        .node("Add", &["begin", "count"], &["end"], &[])
        .node("Range", &["begin", "end", "one"], &["own"], &[])
        .node("Range", &["zero", "end", "one"], &["all"], &[])
        .node("Unsqueeze", &["own", "rows"], &["row"], &[])
        .node("LessOrEqual", &["all", "row"], &["seen"], &[])
        .node("Gather", &["table", "ids"], &["word"], &[])
        .node("Gather", &["places", "own"], &["place"], &[])
        .node("Add", &["word", "place"], &["x"], &[]);
    for (seed, name) in [(3, "q"), (4, "k"), (5, "v")] {
        let [weight, product, split] = ["w", "p", "s"].map(|of| format!("{of}{name}"));
        b = b
            .initializer(&weight, &weights(&[WIDTH, WIDTH], seed))
            .node("MatMul", &["x", &weight], &[&product], &[])
            .node("Reshape", &[&product, "by_head"], &[&split], &[])
            .node("Transpose", &[&split], &[name], &[("perm", vec![0, 2, 1, 3].into())]);
    }
    let along = || [("axis", 2.into())];
    b.node("Concat", &["past.key", "k"], &["present.key"], &along())
        .node("Concat", &["past.value", "v"], &["present.value"], &along())
        .node("Transpose", &["present.key"], &["kt"], &[("perm", vec![0, 1, 3, 2].into())])
        .node("MatMul", &["q", "kt"], &["scores"], &[])
        .node("Where", &["seen", "scores", "least"], &["masked"], &[])
        .node("Softmax", &["masked"], &["weights"], &[])
        .node("MatMul", &["weights", "present.value"], &["found"], &[])
        .node("Transpose", &["found"], &["together"], &[("perm", vec![0, 2, 1, 3].into())])
        .node("Reshape", &["together", "flat"], &["z"], &[])
        .node("MatMul", &["z", "wo"], &["logits"], &[])
        .output("logits", DType::F32, &[1.into(), ModelDim::from("seq"), TOKENS.into()])
        .output("present.key", DType::F32, &cache("past + seq"))
        .output("present.value", DType::F32, &cache("past + seq"))
}

fn model(builder: ModelBuilder) -> Model {
    Model::from_onnx("decoder", ModelFile { proto: builder.build(), folder: None, store: None })
}

fn sized(states: &[(&str, &str)]) -> CompileOptions {
    let states = states.iter().map(|&(a, b)| (a.to_owned(), b.to_owned())).collect();
    let dims = [("past".to_owned(), (0..=20).into()), ("seq".to_owned(), (1..=4).into())];
    CompileOptions { states, dims: dims.into(), ..options() }
}

#[test]
fn a_cache_grows_where_it_is() {
    let ids = |ids: &[i64]| Constant::from_i64(&[1, ids.len() as i64], ids).unwrap();
    let steps: [&[i64]; 9] =
        [&[3, 1, 4], &[1], &[5], &[9, 2, 6, 5], &[3], &[5, 8], &[9], &[7], &[9]];
    for &backend in Backend::ALL {
        let whole = CompileOptions { backend, ..sized(&[]) };
        let reference = run(&model(decoder()), &whole).unwrap().model;
        let options = CompileOptions { backend, ..sized(&[("past.*", "present.*")]) };
        let compilation = run(&model(decoder()), &options).unwrap();
        let compiled = &compilation.model;
        let names = |infos: &[crate::executor::TensorInfo]| -> Vec<String> {
            infos.iter().map(|info| info.name.clone()).collect()
        };
        assert_eq!(names(&compiled.inputs), ["ids"]);
        assert_eq!(names(&compiled.outputs), ["logits"]);
        assert_eq!(names(&compiled.states), ["past.key", "past.value"]);
        // What a run writes to a cache does not depend on how long it is.
        let program = &compilation.program;
        let writes = program.steps.iter().filter(|step| {
            let written = step.args.last().unwrap();
            program.values[*written].kind == crate::executor::ValueKind::State
        });
        let writes: Vec<&str> =
            writes.map(|step| &*program.kernels[step.kernel].signature().name).collect();
        assert_eq!(writes, ["fused_append_in_place", "fused_append_1_in_place"]);
        // Keys are kept as they are read: transposed.
        let shapes: Vec<&[u64]> = compiled.states.iter().map(|state| &state.shape[..]).collect();
        assert_eq!(shapes, [[1, 2, 8, 24], [1, 2, 24, 8]]);

        let references = load(&reference, &whole);
        for (loaded, reference) in load(compiled, &options).iter().zip(&references) {
            let empty = Constant::from_f32(&[1, HEADS, 0, WIDTH / HEADS], &[]).unwrap();
            let mut caches = vec![empty.clone(), empty];
            let mut past = 0;
            let mut answers = Vec::new();
            for step in steps {
                let inputs = [vec![ids(step)], caches].concat();
                let mut expected = reference.run(&inputs).unwrap();
                caches = expected.split_off(1);
                let found = loaded.run_of(&[ids(step)], &[("past", past)]).unwrap();
                assert_eq!(found, expected, "{backend}, place {past}");
                past += step.len() as u64;
                answers.push(expected);
            }
            // What comes after a place is forgotten by going on from there.
            assert_eq!(loaded.run_of(&[ids(steps[1])], &[("past", 3)]).unwrap(), answers[1]);
            assert_eq!(loaded.run_of(&[ids(steps[2])], &[("past", 4)]).unwrap(), answers[2]);

            let message =
                |sizes: &[(&str, u64)]| loaded.run_of(&[ids(&[1])], sizes).unwrap_err().to_string();
            assert_eq!(message(&[]), "no input says the size `past` of the run");
            assert_eq!(message(&[("past", 21)]), "`past` cannot be 21 in a run");
        }
    }
}

#[test]
fn a_state_that_callers_see_keeps_its_axes() {
    let cache = [1.into(), HEADS.into(), ModelDim::from("past + seq"), (WIDTH / HEADS).into()];
    let seen = || {
        let seen = decoder().node("Identity", &["present.key"], &["seen.key"], &[]);
        model(seen.output("seen.key", DType::F32, &cache))
    };
    let reference = run(&seen(), &sized(&[])).unwrap().model;
    let options = sized(&[("past.*", "present.*")]);
    let compiled = run(&seen(), &options).unwrap().model;
    let (reference, loaded) = (load(&reference, &options), load(&compiled, &options));
    let empty = Constant::from_f32(&[1, HEADS, 0, WIDTH / HEADS], &[]).unwrap();
    let ids = |ids: &[i64]| Constant::from_i64(&[1, ids.len() as i64], ids).unwrap();
    let first = reference[0].run(&[ids(&[3, 1]), empty.clone(), empty]).unwrap();
    let [logits, key, value, _] = &first[..] else { panic!("{} outputs", first.len()) };
    let found = loaded[0].run_of(&[ids(&[3, 1])], &[("past", 0)]).unwrap();
    assert_eq!(found, [logits.clone(), key.clone()]);
    let next = reference[0].run(&[ids(&[4]), key.clone(), value.clone()]).unwrap();
    let found = loaded[0].run_of(&[ids(&[4])], &[("past", 2)]).unwrap();
    assert_eq!(found, [next[0].clone(), next[1].clone()]);
}

#[test]
fn what_cannot_grow_is_an_error() {
    let messages = |builder: ModelBuilder, states: &[(&str, &str)]| -> Vec<String> {
        let report = run(&model(builder), &sized(states)).unwrap_err();
        report.problems.into_iter().map(|problem| problem.message).collect()
    };
    assert_eq!(
        messages(decoder(), &[("past.*", "present.key"), ("past_*", "present_*")]),
        [
            "state `past.*=present.key`: a `*` has to be in both names",
            "state `past_*=present_*`: no input has such a name; they are `ids`, `past.key`, \
             `past.value`",
        ]
    );
    assert_eq!(
        messages(decoder(), &[("past.key", "present.value")]),
        ["state `past.key=present.value`: the output is not the input with something behind it, \
             by `Concat`",]
    );
    let fixed = |dims: &[(&str, u64)]| -> String {
        let dims = dims.iter().map(|&(name, size)| (name.to_owned(), size.into()));
        let options =
            CompileOptions { dims: dims.collect(), ..sized(&[("past.key", "present.key")]) };
        let mut report = run(&model(decoder()), &options).unwrap_err();
        report.problems.swap_remove(0).message
    };
    assert_eq!(
        fixed(&[("past", 4), ("seq", 1)]),
        "state `past.key=present.key`: the input is float32 [1, 2, 4, 8], the output float32 \
         [1, 2, 5, 8]; of one that grows, the length has bounds, not a size"
    );
    assert_eq!(
        fixed(&[("seq", 1)]),
        "state `past.key=present.key`: the greatest size of past + 1 is not known; give bounds, as \
         in past=0..=127"
    );
    let read = decoder().node("Abs", &["past.key"], &["other"], &[]);
    let shape = [1.into(), HEADS.into(), ModelDim::from("past"), (WIDTH / HEADS).into()];
    let read = read.output("other", DType::F32, &shape);
    let found = messages(read, &[("past.key", "present.key")]);
    let [found] = &found[..] else { panic!("{found:?}") };
    assert!(found.contains("it grows, so it can be read with what is behind it alone"), "{found}");
    assert!(found.contains("Abs"), "{found}");
}
