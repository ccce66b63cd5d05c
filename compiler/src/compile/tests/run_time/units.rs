//! Rows that are runs of their own, and such that are not.

use super::*;

/// Sums along an axis, which statements compute.
fn running_sums(axis: i64) -> Model {
    let shape = [ModelDim::from("batch"), ModelDim::from(4)];
    let axis = Constant::from_i64(&[], &[axis]).unwrap();
    let sums = ModelBuilder::new(13).initializer("axis", &axis).node(
        "CumSum",
        &["x", "axis"],
        &["y"],
        &[],
    );
    model(sums.input("x", DType::F32, &shape).output("y", DType::F32, &shape))
}

#[test]
fn statements_that_keep_to_rows_need_no_bound_and_others_do() {
    let floats = |values: &[f32]| ModelAttr::from(values.to_vec());
    let ints = |values: &[i64]| ModelAttr::from(values.to_vec());
    let shape = [ModelDim::from("batch"), ModelDim::from(4)];
    let tree = ModelBuilder::new(13).opset("ai.onnx.ml", 3).input("x", DType::F32, &shape);
    let tree = tree.node_in(
        "ai.onnx.ml",
        "TreeEnsembleRegressor",
        &["x"],
        &["y"],
        &[
            ("nodes_treeids", ints(&[0, 0, 0])),
            ("nodes_nodeids", ints(&[0, 1, 2])),
            ("nodes_featureids", ints(&[2, 0, 0])),
            ("nodes_modes", vec!["BRANCH_LEQ", "LEAF", "LEAF"].into()),
            ("nodes_values", floats(&[0.1, 0.0, 0.0])),
            ("nodes_truenodeids", ints(&[1, 0, 0])),
            ("nodes_falsenodeids", ints(&[2, 0, 0])),
            ("target_treeids", ints(&[0, 0])),
            ("target_nodeids", ints(&[1, 2])),
            ("target_ids", ints(&[0, 0])),
            ("target_weights", floats(&[1.5, -2.0])),
        ],
    );
    let tree = model(tree.output("y", DType::F32, &[ModelDim::from("batch"), ModelDim::from(1)]));
    for model in [tree, running_sums(1)] {
        let compiled = run(&model, &batch(..)).unwrap();
        assert!(compiled.program.units.is_some());
        let inputs = [rows(&[70, 4])];
        let expected = run_alone(&model, &batch(70), &inputs);
        for loaded in load(&compiled.model, &batch(..)) {
            assert_eq!(loaded.run(&inputs).unwrap(), expected);
        }
    }
    let report = run(&running_sums(0), &batch(1..)).unwrap_err().to_string();
    assert!(report.contains("depends on other units"), "{report}");
}

/// Rows are runs of their own only if none of them depends on which one it is.
#[test]
fn rows_that_depend_on_their_number_are_no_units() {
    let number = |value: i64| Constant::from_i64(&[], &[value]).unwrap();
    let shape = [ModelDim::from("batch"), ModelDim::from(4)];
    let of_rows = |build: &dyn Fn(ModelBuilder) -> ModelBuilder| {
        let builder = ModelBuilder::new(14)
            .input("x", DType::F32, &shape)
            .initializer("zero", &number(0))
            .initializer("one", &number(1))
            .initializer("table", &rows(&[64, 4]))
            .node("Shape", &["x"], &["shape"], &[])
            .node("Gather", &["shape", "zero"], &["n"], &[])
            .node("Range", &["zero", "n", "one"], &["places"], &[]);
        model(build(builder).output("y", DType::F32, &shape))
    };
    let axes = Constant::from_i64(&[1], &[1]).unwrap();
    let numbered = of_rows(&|b| {
        b.initializer("axes", &axes)
            .node("Cast", &["places"], &["numbers"], &[("to", 1.into())])
            .node("Unsqueeze", &["numbers", "axes"], &["column"], &[])
            .node("Add", &["x", "column"], &["y"], &[])
    });
    let looked_up = of_rows(&|b| {
        let b = b.node("Gather", &["table", "places"], &["found"], &[("axis", 0.into())]);
        b.node("Add", &["x", "found"], &["y"], &[])
    });
    let triangle = of_rows(&|b| b.node("Trilu", &["x"], &["y"], &[]));
    for model in [numbered, looked_up, triangle] {
        let report = run(&model, &batch(1..)).unwrap_err().to_string();
        assert!(report.contains("depends on other units"), "{report}");
        check_sizes(&model, &[("batch", 1..=9)], &[&[1], &[5]], |sizes| vec![vec![sizes[0], 4]]);
    }
}
