//! Numbers that are made of sizes: ranges, and fractions that are rounded down.

use super::*;

/// A model of `x`, `[n, 3]`, with the scalar `n`, also as a float, and a few numbers.
fn of_size(build: impl Fn(ModelBuilder) -> ModelBuilder, rank: usize) -> Model {
    let int = |value: i64| Constant::from_i64(&[], &[value]).unwrap();
    let float = |value: f32| Constant::from_f32(&[], &[value]).unwrap();
    let builder = ModelBuilder::new(17)
        .input("x", DType::F32, &[ModelDim::from("n"), ModelDim::from(3)])
        .initializer("minus_one", &int(-1))
        .initializer("zero", &int(0))
        .initializer("one", &int(1))
        .initializer("two", &int(2))
        .initializer("float_one", &float(1.0))
        .initializer("float_two", &float(2.0))
        .initializer("half", &float(0.5))
        .node("Shape", &["x"], &["shape"], &[])
        .node("Gather", &["shape", "zero"], &["n"], &[])
        .node("Cast", &["n"], &["float_n"], &[("to", 1.into())]);
    model(build(builder).output("y", DType::F32, &vec![ModelDim::Unknown; rank]))
}

#[test]
fn ranges_go_in_steps_and_backwards() {
    let runs: &[&[u64]] = &[&[1], &[2], &[6], &[9]];
    for [start, limit, step] in
        [["zero", "n", "two"], ["n", "minus_one", "minus_one"], ["last", "minus_one", "minus_two"]]
    {
        let model = of_size(
            |b| {
                b.node("Sub", &["n", "one"], &["last"], &[])
                    .node("Neg", &["two"], &["minus_two"], &[])
                    .node("Range", &[start, limit, step], &["places"], &[])
                    .node("Cast", &["places"], &["y"], &[("to", 1.into())])
            },
            1,
        );
        check_sizes(&model, &[("n", 1..=9)], runs, |sizes| vec![vec![sizes[0], 3]]);
    }
}

#[test]
fn quotients_of_negative_sizes_are_rounded_towards_zero() {
    let runs: &[&[u64]] = &[&[1], &[4], &[5], &[8], &[9]];
    // A quarter of what is negative, and of what has either sign.
    for from in ["zero", "five"] {
        let model = of_size(
            |b| {
                let constant = |value| Constant::from_i64(&[], &[value]).unwrap();
                let b = b.initializer("four", &constant(4)).initializer("five", &constant(5));
                b.node("Sub", &[from, "n"], &["negative"], &[])
                    .node("Div", &["negative", "four"], &["quotient"], &[])
                    .node("Neg", &["quotient"], &["count"], &[])
                    .node("Range", &["minus_one", "count", "one"], &["places"], &[])
                    .node("Cast", &["places"], &["y"], &[("to", 1.into())])
            },
            1,
        );
        check_sizes(&model, &[("n", 1..=9)], runs, |sizes| vec![vec![sizes[0], 3]]);
    }
}

#[test]
fn windows_of_any_width_are_counted() {
    let runs: &[&[u64]] = &[&[1], &[3], &[4], &[6], &[9]];
    for round in ["Ceil", "Floor"] {
        let model = of_size(
            |b| {
                b.initializer("three", &Constant::from_f32(&[], &[3.0]).unwrap())
                    .node("Div", &["float_n", "three"], &["fraction"], &[])
                    .node(round, &["fraction"], &["rounded"], &[])
                    .node("Cast", &["rounded"], &["count"], &[("to", 7.into())])
                    .node("Range", &["zero", "count", "one"], &["places"], &[])
                    .node("Cast", &["places"], &["y"], &[("to", 1.into())])
            },
            1,
        );
        check_sizes(&model, &[("n", 1..=9)], runs, |sizes| vec![vec![sizes[0], 3]]);
    }
}

#[test]
fn a_root_of_a_fixed_extent_is_an_extent_beside_an_open_one() {
    let builder = ModelBuilder::new(17)
        .input("x", DType::F32, &[ModelDim::from("n"), ModelDim::from(9)])
        .initializer("half", &Constant::from_f32(&[1], &[0.5]).unwrap())
        .node("Shape", &["x"], &["batch"], &[("end", 1.into())])
        .node("Shape", &["x"], &["places"], &[("start", 1.into())])
        .node("Cast", &["places"], &["float"], &[("to", 1.into())])
        .node("Pow", &["float", "half"], &["root"], &[])
        .node("Cast", &["root"], &["side"], &[("to", 7.into())])
        .node("Concat", &["batch", "side", "side"], &["shape"], &[("axis", 0.into())])
        .node("Reshape", &["x", "shape"], &["square"], &[])
        .node("Transpose", &["square"], &["y"], &[("perm", vec![0, 2, 1].into())])
        .output("y", DType::F32, &vec![ModelDim::Unknown; 3]);
    check_sizes(&model(builder), &[("n", 1..=3)], &[&[1], &[3]], |s| vec![vec![s[0], 9]]);
}

#[test]
fn ranges_of_floats_end_where_a_size_says() {
    let runs: &[&[u64]] = &[&[1], &[2], &[9]];
    for [start, step] in [["float_one", "float_one"], ["float_one", "float_two"]] {
        let of_floats = of_size(|b| b.node("Range", &[start, "float_n", step], &["y"], &[]), 1);
        check_sizes(&of_floats, &[("n", 1..=9)], runs, |sizes| vec![vec![sizes[0], 3]]);
    }
    let by_half = of_size(|b| b.node("Range", &["half", "float_n", "half"], &["y"], &[]), 1);
    let open = CompileOptions { dims: [("n".to_owned(), (1..=9).into())].into(), ..options() };
    let report = run(&by_half, &open).unwrap_err().to_string();
    assert!(report.contains("input 1") && report.contains("the size of an input: (n)"), "{report}");
}

#[test]
fn images_are_resized_by_halves_and_quarters_of_their_sizes() {
    let dims = [ModelDim::from(1), ModelDim::from(2), ModelDim::from("h"), ModelDim::from("w")];
    let linear = [("mode", "linear".into())];
    // The first two are for rows and columns, the last for both.
    for (op, factors, floors) in [
        ("Mul", vec![0.5, 1.5], true),
        ("Mul", vec![2.5, 0.25], false),
        ("Div", vec![2.0, 0.5], true),
        ("Mul", vec![0.625], true),
    ] {
        let factors = Constant::from_f32(&[factors.len() as i64], &factors).unwrap();
        let mut builder = ModelBuilder::new(17)
            .input("x", DType::F32, &dims)
            .initializer("factors", &factors)
            .node("Shape", &["x"], &["outer"], &[("end", 2.into())])
            .node("Shape", &["x"], &["inner"], &[("start", 2.into())])
            .node("Cast", &["inner"], &["floats"], &[("to", 1.into())])
            .node(op, &["floats", "factors"], &["scaled"], &[]);
        let scaled = if floors { "floors" } else { "scaled" };
        if floors {
            builder = builder.node("Floor", &["scaled"], &["floors"], &[]);
        }
        let builder = builder
            .node("Cast", &[scaled], &["ints"], &[("to", 7.into())])
            .node("Concat", &["outer", "ints"], &["sizes"], &[("axis", 0.into())])
            .node("Resize", &["x", "", "", "sizes"], &["y"], &linear)
            .output("y", DType::F32, &[const { ModelDim::Unknown }; 4]);
        let runs: &[&[u64]] = &[&[4, 4], &[5, 9], &[9, 7]];
        check_sizes(&model(builder), &[("h", 4..=9), ("w", 4..=9)], runs, |sizes| {
            vec![vec![1, 2, sizes[0], sizes[1]]]
        });
    }
}

#[test]
fn a_size_that_a_run_computes_cannot_be_pinned() {
    let model = of_size(
        |b| {
            b.node("Greater", &["x", "half"], &["is_great"], &[])
                .node("NonZero", &["is_great"], &["places"], &[])
                .node("Shape", &["places"], &["counts"], &[])
                .node("Gather", &["counts", "one"], &["count"], &[])
                .node("Range", &["zero", "two", "count"], &["range"], &[])
                .node("Cast", &["range"], &["y"], &[("to", 1.into())])
        },
        1,
    );
    let report = run(&model, &options()).unwrap_err().to_string();
    assert!(report.contains("`places_size` is a size that each run computes"), "{report}");
    assert!(!report.contains(".dim(") && !report.contains("=N"), "{report}");
}

#[test]
fn a_number_may_be_made_of_sizes_that_no_tensor_beside_it_has() {
    let one = Constant::from_i64(&[], &[1]).unwrap();
    let builder = ModelBuilder::new(17)
        .input("x", DType::F32, &[ModelDim::from("n")])
        .input("z", DType::F32, &[ModelDim::from("m")])
        .initializer("one", &one)
        .node("Shape", &["x"], &["shape"], &[])
        .node("Squeeze", &["shape"], &["begin"], &[])
        .node("Add", &["begin", "one"], &["end"], &[])
        .node("Range", &["begin", "end", "one"], &["n"], &[])
        .node("Shape", &["z"], &["m"], &[])
        .node("Equal", &["n", "m"], &["is_same"], &[])
        .node("Cast", &["is_same"], &["y"], &[("to", 1.into())])
        .output("y", DType::F32, &[1]);
    let runs: &[&[u64]] = &[&[3, 3], &[4, 3], &[1, 1], &[8, 4]];
    check_sizes(&model(builder), &[("m", 1..=8), ("n", 1..=4)], runs, |sizes| {
        vec![vec![sizes[1]], vec![sizes[0]]]
    });
}

/// The rows of `x`, `[n, 3]`, each twice as large as the one before it made it, by a loop without a number of
/// steps: it goes on while a counter, that begins at `start` and grows by `step`, is less than `n`.
///
/// With `always`, there is a first step whatever `n` is.
fn counting_loop(start: i64, step: i64, always: bool) -> Model {
    let number = |value: i64| Constant::from_i64(&[], &[value]).unwrap();
    let cast = [("to", 1.into())];
    let body = ModelBuilder::new(15)
        .input::<i64>("i", DType::I64, &[])
        .input::<i64>("go", DType::Bool, &[])
        .input::<i64>("t", DType::I64, &[])
        .input("sum", DType::F32, &[3])
        .input::<i64>("end", DType::I64, &[])
        .initializer("step", &number(step))
        .node("Add", &["t", "step"], &["next"], &[])
        .node("Cast", &["next"], &["next_number"], &cast)
        .node("Cast", &["end"], &["end_number"], &cast)
        .node("Less", &["next_number", "end_number"], &["goes_on"], &[])
        .node("Gather", &["x", "t"], &["row"], &[("axis", 0.into())])
        .node("Add", &["sum", "row"], &["half"], &[])
        .node("Add", &["half", "half"], &["double"], &[])
        .output::<i64>("goes_on", DType::Bool, &[])
        .output::<i64>("next", DType::I64, &[])
        .output("double", DType::F32, &[3])
        .output::<i64>("end", DType::I64, &[])
        .output("double", DType::F32, &[3])
        .build_graph();
    let builder = ModelBuilder::new(15)
        .input("x", DType::F32, &[ModelDim::from("n"), ModelDim::from(3)])
        .initializer("start", &number(start))
        .initializer("zero", &number(0))
        .initializer("zeros", &Constant::from_f32(&[3], &[0.0; 3]).unwrap())
        .node("Shape", &["x"], &["shape"], &[])
        .node("Gather", &["shape", "zero"], &["n"], &[])
        .node("Less", &["start", "n"], &["goes"], &[])
        .node(
            "Loop",
            &["", if always { "" } else { "goes" }, "start", "zeros", "n"],
            &["last", "sum", "end", "all"],
            &[("body", body.into())],
        )
        .output("sum", DType::F32, &[3])
        .output("all", DType::F32, &[ModelDim::Unknown, ModelDim::from(3)]);
    model(builder)
}

#[test]
fn a_loop_that_counts_to_an_extent_has_as_many_rows() {
    let runs: &[&[u64]] = &[&[1], &[2], &[7]];
    for always in [false, true] {
        let counting = counting_loop(0, 1, always);
        check_sizes(&counting, &[("n", 1..=7)], runs, |sizes| vec![vec![sizes[0], 3]]);
    }
    let from = |min: u64| CompileOptions {
        dims: [("n".to_owned(), DimSize::RunTime { min, max: 7 })].into(),
        ..options()
    };
    let others = [
        (counting_loop(1, 1, false), from(1)),
        (counting_loop(0, 2, false), from(1)),
        // Of no rows, it would make one.
        (counting_loop(0, 1, true), from(0)),
    ];
    for (other, options) in others {
        let report = run(&other, &options).unwrap_err().to_string();
        assert!(report.contains("the number of steps depends on the model's inputs"), "{report}");
    }
}
