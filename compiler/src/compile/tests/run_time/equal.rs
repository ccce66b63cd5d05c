//! Sizes that have to go together.

use super::*;

/// Halves of an image twice as large again beside it: `side` is even.
fn halves() -> Model {
    let dims = [ModelDim::from(1), ModelDim::from(2), ModelDim::from("side"), ModelDim::from(6)];
    let half = [("kernel_shape", vec![2, 1].into()), ("strides", vec![2, 1].into())];
    let scales = Constant::from_f32(&[4], &[1.0, 1.0, 2.0, 1.0]).unwrap();
    let builder = ModelBuilder::new(13)
        .input("x", DType::F32, &dims)
        .initializer("scales", &scales)
        .node("MaxPool", &["x"], &["a"], &half)
        .node("Resize", &["a", "", "scales"], &["b"], &[("mode", "nearest".into())])
        .node("Concat", &["x", "b"], &["c"], &[("axis", 1.into())])
        .node("Softmax", &["c"], &["y"], &[("axis", 2.into())])
        .output("y", DType::F32, &[const { ModelDim::Unknown }; 4]);
    model(builder)
}

#[test]
fn what_has_to_be_equal_is_checked_for_each_run() {
    let shapes = |sizes: &[i64]| vec![vec![1, 2, sizes[0], 6]];
    check_sizes(&halves(), &[("side", 1..=20)], &[&[2], &[4], &[18], &[20]], shapes);
    let sides = |range: std::ops::RangeInclusive<u64>| CompileOptions {
        dims: [("side".to_owned(), range.into())].into(),
        ..options()
    };
    let loaded = load(&run(&halves(), &sides(1..=20)).unwrap().model, &options());
    let wrong = loaded[0].run(&[rows(&[1, 2, 7, 6])]).unwrap_err().to_string();
    assert_eq!(wrong, "`side` is 7, but `2*floordiv(side, 2)` is 6; they are equal in the model");
    let report = run(&halves(), &sides(1..=19)).unwrap_err().to_string();
    assert!(report.contains("are 19 and 18 for the greatest sizes"), "{report}");
    // What can never be is told where it is needed, with any sizes.
    let report = run(
        &halves(),
        &CompileOptions { dims: [("side".to_owned(), 7.into())].into(), ..options() },
    );
    let report = report.unwrap_err().to_string();
    assert!(report.contains("`c` (Concat"), "{report}");
}

#[test]
fn two_names_may_be_one_size() {
    let sizes = |name: &str| [ModelDim::from(name), ModelDim::from(24)];
    let builder = ModelBuilder::new(17)
        .input("x", DType::F32, &sizes("n"))
        .input("rest", DType::F32, &sizes("m"))
        .node("Add", &["x", "rest"], &["y"], &[])
        .output("y", DType::F32, &sizes("n"));
    let model = model(builder);
    let dim = |name: &str, size: std::ops::RangeInclusive<u64>| (name.to_owned(), size.into());
    for dims in
        [vec![dim("n", 1..=9)], vec![dim("m", 1..=9)], vec![dim("n", 1..=9), dim("m", 0..=12)]]
    {
        let open = CompileOptions { dims: dims.into_iter().collect(), ..options() };
        let compiled = run(&model, &open).unwrap().model;
        assert_eq!((compiled.inputs[0].shape[0], compiled.inputs[1].shape[0]), (9, 9));
        let loaded = &load_one(&compiled, &open);
        let found = loaded.run(&[rows(&[5, 24]), rows(&[5, 24])]).unwrap();
        let expected: Vec<f64> =
            rows(&[5, 24]).to_f64_vec().unwrap().iter().map(|value| value * 2.0).collect();
        assert_eq!(found[0].to_f64_vec().unwrap(), expected);
        let wrong = loaded.run(&[rows(&[5, 24]), rows(&[4, 24])]).unwrap_err().to_string();
        let name = if open.dims.contains_key("m") { "m" } else { "n" };
        assert_eq!(wrong, format!("axis 0 of input `rest` is 4, but `{name}` is 5 in input `x`"));
    }
}

#[test]
fn sizes_that_leave_less_than_nothing_are_refused() {
    let x = [ModelDim::from(1), ModelDim::from(1), ModelDim::from("n")];
    let strides = [("strides", vec![4].into())];
    let windows = ModelBuilder::new(17)
        .input("x", DType::F32, &x)
        .initializer("w", &rows(&[3, 1, 16]))
        .node("Conv", &["x", "w"], &["y"], &strides)
        .output("y", DType::F32, &[const { ModelDim::Unknown }; 3]);
    let of_two = ModelBuilder::new(17)
        .input("x", DType::F32, &x)
        .input("z", DType::F32, &[ModelDim::from(1), ModelDim::from(1), ModelDim::from("m")])
        .initializer("w", &rows(&[3, 1, 16]))
        .node("Concat", &["x", "z"], &["both"], &[("axis", 2.into())])
        .node("Conv", &["both", "w"], &["y"], &[])
        .output("y", DType::F32, &[const { ModelDim::Unknown }; 3]);
    let counted = ModelBuilder::new(17)
        .input("x", DType::F32, &[20])
        .input("is_kept", DType::Bool, &[20])
        .initializer("row", &Constant::from_i64(&[3], &[1, 1, -1]).unwrap())
        .initializer("w", &rows(&[1, 1, 5]))
        .node("Compress", &["x", "is_kept"], &["kept"], &[])
        .node("Reshape", &["kept", "row"], &["line"], &[])
        .node("Conv", &["line", "w"], &["y"], &[])
        .output("y", DType::F32, &[const { ModelDim::Unknown }; 3]);
    let refused = run(&model(counted), &options()).unwrap_err().to_string();
    assert!(refused.contains("`y` (Conv") && refused.contains("may be below 0"), "{refused}");
    for backend in Backend::ALL {
        let open = |dims: &[&str]| CompileOptions {
            dims: dims.iter().map(|&dim| (dim.to_owned(), (5..=100).into())).collect(),
            backend: *backend,
            ..options()
        };
        let short =
            CompileOptions { dims: [("n".to_owned(), (5..=8).into())].into(), ..open(&["n"]) };
        let refused = run(&model(windows.clone()), &short).unwrap_err().to_string();
        assert!(refused.contains("is below 1 for the greatest size"), "{refused}");

        let options = open(&["n"]);
        let loaded = load(&run(&model(windows.clone()), &options).unwrap().model, &options);
        let problem = loaded[0].run(&[rows(&[1, 1, 15])]).unwrap_err().to_string();
        assert!(problem.contains("is 15; `n` is 16..=100"), "{problem}");
        let found = loaded[0].run(&[rows(&[1, 1, 16])]).unwrap();
        assert_eq!(found[0].ty().shape.as_consts().unwrap(), [1, 3, 1]);

        let options = open(&["m", "n"]);
        let loaded = load(&run(&model(of_two.clone()), &options).unwrap().model, &options);
        let inputs = |sizes: [i64; 2]| sizes.map(|size| rows(&[1, 1, size]));
        let problem = loaded[0].run(&inputs([6, 8])).unwrap_err().to_string();
        assert!(problem.contains("`m + n` is 14, but `max(16, m + n)` is 16"), "{problem}");
        let found = loaded[0].run(&inputs([8, 9])).unwrap();
        assert_eq!(found[0].ty().shape.as_consts().unwrap(), [1, 3, 2]);
    }
}

#[test]
fn a_tensor_is_expanded_to_names_that_are_its_own() {
    let mask = [ModelDim::from("b"), ModelDim::from(1), ModelDim::from("s")];
    let x = [ModelDim::from("batch"), ModelDim::from("t"), ModelDim::from("keys")];
    let builder = ModelBuilder::new(17)
        .input("x", DType::F32, &x)
        .input("m", DType::F32, &mask)
        .node("Shape", &["x"], &["shape"], &[])
        .node("Expand", &["m", "shape"], &["all"], &[])
        .node("Add", &["all", "x"], &["y"], &[])
        .output("y", DType::F32, &[const { ModelDim::Unknown }; 3]);
    let model = model(builder);
    let dims = [("b", 1..=3), ("batch", 1..=3), ("keys", 1..=9), ("s", 0..=9), ("t", 1..=4)];
    check_sizes(&model, &dims, &[&[1, 1, 1, 1, 1], &[2, 2, 9, 9, 3]], |sizes| {
        let &[b, batch, keys, s, t] = sizes else { panic!("five sizes") };
        vec![vec![batch, t, keys], vec![b, 1, s]]
    });
}

#[test]
fn weights_may_leave_one_size_of_an_extent() {
    let builder = ModelBuilder::new(17)
        .input("x", DType::F32, &[ModelDim::from("m"), ModelDim::from("k")])
        .initializer("w", &rows(&[64, 8]))
        .node("MatMul", &["x", "w"], &["y"], &[])
        .output("y", DType::F32, &[ModelDim::from("m"), ModelDim::from(8)]);
    let model = model(builder);
    check_sizes(&model, &[("k", 1..=64), ("m", 1..=9)], &[&[64, 1], &[64, 9]], |sizes| {
        vec![vec![sizes[1], sizes[0]]]
    });
}
