//! The best elements along axes whose extents each run has of its own.

use super::*;

/// As many of the best as a run has, as half of them, as another input has, and as data say.
#[test]
fn a_run_says_how_many_are_the_best() {
    let two = Constant::from_i64(&[1], &[2]).unwrap();
    let of = |k: &dyn Fn(ModelBuilder) -> ModelBuilder| {
        let (n, m) = (ModelDim::from("n"), ModelDim::from("m"));
        let builder = ModelBuilder::new(18)
            .input("x", DType::F32, &[ModelDim::from(3), n])
            .input("like", DType::F32, std::slice::from_ref(&m))
            .initializer("two", &two)
            .node("Shape", &["x"], &["shape"], &[("start", 1.into())])
            .node("Shape", &["like"], &["other"], &[]);
        let attrs = [("axis", 1.into())];
        let builder = k(builder).node("TopK", &["x", "k"], &["y", "places"], &attrs).node(
            "Cast",
            &["places"],
            &["z"],
            &[("to", 1.into())],
        );
        let any = [const { ModelDim::Unknown }; 2];
        model(builder.output("y", DType::F32, &any).output("z", DType::F32, &any))
    };
    let runs: &[&[u64]] = &[&[40, 7], &[1, 1], &[2, 2], &[19, 4], &[8, 8]];
    let dims = [("n", 1..=40), ("m", 1..=8)];
    let shapes = |sizes: &[i64]| vec![vec![3, sizes[0]], vec![sizes[1]]];
    check_sizes(&of(&|b| b.node("Identity", &["shape"], &["k"], &[])), &dims, runs, shapes);
    check_sizes(&of(&|b| b.node("Div", &["shape", "two"], &["k"], &[])), &dims, runs, shapes);
    let as_other = of(&|b| b.node("Identity", &["other"], &["k"], &[]));
    check_sizes(&as_other, &dims, runs, shapes);
    let options = CompileOptions {
        dims: dims.map(|(name, sizes)| (name.to_owned(), sizes.into())).into(),
        ..options()
    };
    let loaded = &load_one(&run(&as_other, &options).unwrap().model, &options);
    let wrong = loaded.run(&[rows(&[3, 5]), rows(&[6])]).unwrap_err().to_string();
    assert!(wrong.contains("`n` is 5") && wrong.contains("6"), "{wrong}");
}

/// The best of an open axis, and of all elements from an axis on, as operators before version 13 have it.
#[test]
fn the_best_along_an_axis_of_any_extent_is_marked() {
    for (opset, axis) in [(13, 0), (13, 1), (11, 0), (11, 1)] {
        let shape = [ModelDim::from("n"), ModelDim::from(5)];
        let builder = ModelBuilder::new(opset).input("x", DType::F32, &shape).node(
            "Hardmax",
            &["x"],
            &["y"],
            &[("axis", axis.into())],
        );
        let model = model(builder.output("y", DType::F32, &[const { ModelDim::Unknown }; 2]));
        let runs: &[&[u64]] = &[&[40], &[1], &[2], &[19]];
        check_sizes(&model, &[("n", 1..=40)], runs, |sizes| vec![vec![sizes[0], 5]]);
    }
}

/// Marks among as many as another input has.
#[test]
fn a_run_says_among_how_many_one_is_marked() {
    let values = Constant::from_f32(&[2], &[-1.0, 2.0]).unwrap();
    for axis in [0, -1] {
        let builder = ModelBuilder::new(18)
            .input("like", DType::F32, &[ModelDim::from("n")])
            .input("x", DType::F32, &[ModelDim::from("m"), ModelDim::from(3)])
            .initializer("values", &values)
            .node("Shape", &["like"], &["depth"], &[])
            .node("Cast", &["x"], &["places"], &[("to", 7.into())])
            .node("OneHot", &["places", "depth", "values"], &["y"], &[("axis", axis.into())]);
        let model = model(builder.output("y", DType::F32, &[const { ModelDim::Unknown }; 3]));
        let runs: &[&[u64]] = &[&[40, 7], &[1, 1], &[3, 2], &[17, 8]];
        check_sizes(&model, &[("n", 1..=40), ("m", 1..=8)], runs, |sizes| {
            vec![vec![sizes[0]], vec![sizes[1], 3]]
        });
    }
}
