//! Parts of tensors that begin and end where a run says.

use super::*;

/// A model of `x`, `[2, n, 3]`, with a vector of its extent `n`, half of it, and the rest.
fn halves(build: impl Fn(ModelBuilder) -> ModelBuilder, outputs: &[&str]) -> Model {
    let int = |value: i64| Constant::from_i64(&[1], &[value]).unwrap();
    let builder = ModelBuilder::new(18)
        .input("x", DType::F32, &[ModelDim::from(2), ModelDim::from("n"), ModelDim::from(3)])
        .initializer("one", &int(1))
        .initializer("two", &int(2))
        .initializer("last", &int(-1))
        .initializer("all", &int(i64::MAX))
        .node("Shape", &["x"], &["n"], &[("start", 1.into()), ("end", 2.into())])
        .node("Div", &["n", "two"], &["half"], &[])
        .node("Sub", &["n", "half"], &["rest"], &[]);
    let unknown = [const { ModelDim::Unknown }; 3];
    model(outputs.iter().fold(build(builder), |b, name| b.output(name, DType::F32, &unknown)))
}

#[test]
fn parts_begin_and_end_where_sizes_say() {
    let runs: &[&[u64]] = &[&[9], &[1], &[2], &[3], &[8]];
    let check = |model: &Model| {
        check_sizes(model, &[("n", 1..=9)], runs, |sizes| vec![vec![2, sizes[0], 3]]);
    };
    for [begin, end, step] in [
        ["half", "all", "one"],
        ["one", "half", "one"],
        ["half", "last", "one"],
        ["half", "n", "two"],
    ] {
        check(&halves(|b| b.node("Slice", &["x", begin, end, "one", step], &["y"], &[]), &["y"]));
    }
    let axis = ("axis", 1.into());
    let equal = [axis.clone(), ("num_outputs", 2.into())];
    check(&halves(|b| b.node("Split", &["x"], &["y", "z"], &equal), &["y", "z"]));
    check(&halves(
        |b| {
            b.node("Concat", &["half", "rest"], &["sizes"], &[("axis", 0.into())]).node(
                "Split",
                &["x", "sizes"],
                &["y", "z"],
                std::slice::from_ref(&axis),
            )
        },
        &["y", "z"],
    ));
}

/// Bounds that are inputs: whatever they are, there are as many elements as between them.
#[test]
fn parts_begin_and_end_where_data_say() {
    let any = [const { ModelDim::Unknown }; 2];
    let builder = ModelBuilder::new(18)
        .input("x", DType::F32, &[ModelDim::from(3), ModelDim::from("n")])
        .input("begin", DType::I64, &[ModelDim::from(1)])
        .input("end", DType::I64, &[ModelDim::from(1)])
        .initializer("axis", &Constant::from_i64(&[1], &[1]).unwrap())
        .node("Slice", &["x", "begin", "end", "axis"], &["part"], &[])
        .node("Neg", &["part"], &["y"], &[])
        .output("y", DType::F32, &any);
    let model = model(builder);
    for &backend in Backend::ALL {
        let options = CompileOptions {
            dims: [("n".to_owned(), (1..=9).into())].into(),
            backend,
            ..options()
        };
        let loaded = &load_one(&run(&model, &options).unwrap().model, &options);
        for n in [9i64, 1, 5] {
            for (begin, end) in [(1, 4), (0, i64::MAX), (-3, -1), (2, 2), (4, 1), (-20, 3)] {
                let x = rows(&[3, n]);
                let bound = |value| Constant::from_i64(&[1], &[value]).unwrap();
                let found = loaded.run(&[x.clone(), bound(begin), bound(end)]).unwrap();
                let at = |value: i64| (if value < 0 { value + n } else { value }).clamp(0, n);
                let columns = at(begin)..at(end);
                let x = x.to_f64_vec().unwrap();
                let expected: Vec<f64> = (0..3)
                    .flat_map(|row| columns.clone().map(move |column| row * n + column))
                    .map(|place| -x[place as usize])
                    .collect();
                let extent = (columns.end - columns.start).max(0);
                assert_eq!(found[0].ty(), &TensorType::from_consts(&[3, extent], DType::F32));
                assert_eq!(found[0].to_f64_vec().unwrap(), expected, "{begin}..{end} of {n}");
            }
        }
    }
}

/// Extents that are the lesser of two, or never below zero, are others for small sizes alone.
#[test]
fn parts_of_few_elements_are_as_large_as_they_are() {
    let runs: Vec<[u64; 1]> = (1..=9).rev().map(|n| [n]).collect();
    let runs: Vec<&[u64]> = runs.iter().map(|n| &n[..]).collect();
    let int = |value: i64| Constant::from_i64(&[1], &[value]).unwrap();
    let unknown = [const { ModelDim::Unknown }; 3];
    for (begin, end, step) in [
        (3, i64::MAX, 1),
        (0, -3, 1),
        (0, 2, 1),
        (-3, i64::MAX, 1),
        (-5, i64::MIN, -1),
        (6, i64::MIN, -2),
    ] {
        let builder = ModelBuilder::new(18)
            .input("x", DType::F32, &[ModelDim::from(2), ModelDim::from("n"), ModelDim::from(3)])
            .initializer("begin", &int(begin))
            .initializer("end", &int(end))
            .initializer("one", &int(1))
            .initializer("step", &int(step))
            .initializer("more", &rows(&[2, 2, 3]))
            .node("Slice", &["x", "begin", "end", "one", "step"], &["part"], &[])
            .node("Concat", &["part", "more"], &["joined"], &[("axis", 1.into())])
            .node("Softmax", &["part"], &["shares"], &[("axis", 1.into())])
            .node("CumSum", &["part", "one"], &["sums"], &[("reverse", 1.into())])
            .node("Shape", &["part"], &["extents"], &[])
            .node("Cast", &["extents"], &["shape"], &[("to", 1.into())])
            .output("joined", DType::F32, &unknown)
            .output("shares", DType::F32, &unknown)
            .output("sums", DType::F32, &unknown)
            .output("shape", DType::F32, &[ModelDim::from(3)]);
        check_sizes(&model(builder), &[("n", 1..=9)], &runs, |sizes| vec![vec![2, sizes[0], 3]]);
    }
}

#[test]
fn the_last_elements_are_counted_from_where_an_axis_ends() {
    let model = |back: &str| {
        let build = |b: ModelBuilder| {
            b.ints("five", &[5]).node("Sub", &["n", back], &["begin"], &[]).node(
                "Slice",
                &["x", "begin", "n", "one"],
                &["y"],
                &[],
            )
        };
        halves(build, &["y"])
    };
    for (back, runs) in [
        ("two", [&[1u64][..], &[2], &[9]]),
        ("one", [&[1], &[3], &[9]]),
        ("five", [&[5], &[6], &[9]]),
    ] {
        check_sizes(&model(back), &[("n", 1..=9)], &runs, |s| vec![vec![2, s[0], 3]]);
    }
    // With fewer, they would be counted from the other end.
    let open = CompileOptions { dims: [("n".to_owned(), (1..=9).into())].into(), ..options() };
    let loaded = load_one(&run(&model("five"), &open).unwrap().model, &open);
    let wrong = loaded.run(&[rows(&[2, 4, 3])]).unwrap_err().to_string();
    assert_eq!(wrong, "axis 1 of input `x` is 4; `n` is 5..=9");
}
