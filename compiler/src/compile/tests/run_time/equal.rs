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
        let loaded = &load(&compiled, &open)[0];
        let found = loaded.run(&[rows(&[5, 24]), rows(&[5, 24])]).unwrap();
        let expected: Vec<f64> =
            rows(&[5, 24]).to_f64_vec().unwrap().iter().map(|value| value * 2.0).collect();
        assert_eq!(found[0].to_f64_vec().unwrap(), expected);
        let wrong = loaded.run(&[rows(&[5, 24]), rows(&[4, 24])]).unwrap_err().to_string();
        let name = if open.dims.contains_key("m") { "m" } else { "n" };
        assert_eq!(wrong, format!("axis 0 of input `rest` is 4, but `{name}` is 5 in input `x`"));
    }
}
