//! Operators beside and along several axes whose extents each run has of its own.

use super::*;

const UNKNOWN: [ModelDim; 4] = [const { ModelDim::Unknown }; 4];

#[test]
fn running_sums_have_open_axes_beside_them() {
    let axis = Constant::from_i64(&[], &[1]).unwrap();
    let sizes = [ModelDim::from("b"), ModelDim::from("t")];
    for (exclusive, reverse) in [(0, 0), (1, 1)] {
        let attrs = [("exclusive", exclusive.into()), ("reverse", reverse.into())];
        let builder = ModelBuilder::new(14)
            .input("x", DType::F32, &sizes)
            .initializer("axis", &axis)
            .node("CumSum", &["x", "axis"], &["y"], &attrs)
            .output("y", DType::F32, &UNKNOWN[..2]);
        let runs: &[&[u64]] = &[&[9, 20], &[1, 1], &[4, 7], &[5, 19]];
        check_sizes(&model(builder), &[("b", 1..=9), ("t", 1..=20)], runs, |sizes| {
            vec![sizes.to_vec()]
        });
    }
}

#[test]
fn parts_of_different_sizes_are_joined() {
    let part = |size: &str| [ModelDim::from(2), ModelDim::from(size), ModelDim::from(3)];
    for [a, b, c] in [["a", "b", "c"], ["a", "b", "b"], ["a", "b", "a"]] {
        let builder = ModelBuilder::new(13)
            .input("x", DType::F32, &part(a))
            .input("y", DType::F32, &part(b))
            .input("z", DType::F32, &part(c))
            .node("Concat", &["x", "y", "z"], &["all"], &[("axis", 1.into())])
            .output("all", DType::F32, &UNKNOWN[..3]);
        let dims = [("a", 1..=9), ("b", 1..=5), ("c", 2..=7)];
        let dims = &dims[..if c == "c" { 3 } else { 2 }];
        let runs = [[9, 5, 7], [1, 1, 2], [3, 4, 5], [8, 1, 7]];
        let runs: Vec<&[u64]> = runs.iter().map(|run| &run[..dims.len()]).collect();
        check_sizes(&model(builder), dims, &runs, |sizes| {
            let size = |name: &str| sizes[dims.iter().position(|dim| dim.0 == name).unwrap()];
            [a, b, c].iter().map(|name| vec![2, size(name), 3]).collect()
        });
    }
}

#[test]
fn elements_of_three_and_four_open_axes_are_counted() {
    let sizes = ["a", "b", "h", "w"].map(ModelDim::from);
    let axes = [("axes", vec![0, 2, 3].into()), ("keepdims", 0.into())];
    let flat = Constant::from_i64(&[1], &[-1]).unwrap();
    let builder = ModelBuilder::new(13)
        .input("x", DType::F32, &sizes)
        .initializer("flat", &flat)
        .node("ReduceMean", &["x"], &["mean"], &axes)
        .node("NonZero", &["x"], &["at"], &[])
        .node("Reshape", &["x", "flat"], &["line"], &[])
        .output("mean", DType::F32, &UNKNOWN[..1])
        .output("at", DType::I64, &UNKNOWN[..2])
        .output("line", DType::F32, &UNKNOWN[..1]);
    let dims = [("a", 1..=2), ("b", 1..=3), ("h", 1..=5), ("w", 1..=9)];
    let runs: &[&[u64]] = &[&[2, 3, 5, 9], &[1, 1, 1, 1], &[1, 2, 3, 4], &[2, 1, 5, 2]];
    check_sizes(&model(builder), &dims, runs, |sizes| vec![sizes.to_vec()]);
}

/// Two layers with a norm before and a residual behind each, of batches of one size and of sequences.
#[test]
fn rows_of_all_batches_share_a_matrix() {
    let weights: Vec<f32> = (0..64 * 64).map(|i| ((i * 37 % 101) as f32 - 50.0) / 200.0).collect();
    let weights = Constant::from_f32(&[64, 64], &weights).unwrap();
    let scale = Constant::from_f32(&[64], &[0.75; 64]).unwrap();
    let sections = Constant::from_i64(&[2], &[40, 24]).unwrap();
    for length in [ModelDim::from("s"), ModelDim::from(3)] {
        let is_open = length == ModelDim::from("s");
        let shape = [ModelDim::from("b"), length.clone(), ModelDim::from(64)];
        let builder = ModelBuilder::new(17)
            .input("x", DType::F32, &shape)
            .input("mask", DType::F32, &[ModelDim::from("b"), length, ModelDim::from(1)])
            .initializer("w", &weights)
            .initializer("scale", &scale)
            .initializer("sections", &sections)
            .node("LayerNormalization", &["x", "scale"], &["n"], &[("axis", (-1).into())])
            .node("MatMul", &["n", "w"], &["m"], &[])
            .node("Mul", &["m", "mask"], &["masked"], &[])
            .node("Add", &["masked", "x"], &["y"], &[])
            .node("Split", &["y", "sections"], &["left", "right"], &[("axis", (-1).into())])
            .node("Softmax", &["left"], &["soft"], &[("axis", (-1).into())])
            .node("Concat", &["right", "soft"], &["turned"], &[("axis", (-1).into())])
            .node("MatMul", &["turned", "w"], &["z"], &[])
            .node("ReduceMean", &["z"], &["mean"], &[("axes", vec![1].into())])
            .output("z", DType::F32, &UNKNOWN[..3])
            .output("mean", DType::F32, &UNKNOWN[..3]);
        let dims = [("b", 1..=5), ("s", 1..=17)];
        let runs: [&[u64]; 6] = [&[5, 17], &[1, 1], &[5, 1], &[1, 16], &[4, 3], &[3, 15]];
        let count = if is_open { 2 } else { 1 };
        let runs: Vec<&[u64]> = runs.iter().map(|run| &run[..count]).collect();
        check_sizes(&model(builder), &dims[..count], &runs, |sizes| {
            let length = sizes.get(1).copied().unwrap_or(3);
            vec![vec![sizes[0], length, 64], vec![sizes[0], length, 1]]
        });
    }
}

/// Trees of two levels, of which a leaf has two numbers.
#[test]
fn forests_have_any_number_of_rows() {
    let forest = |rows: &str, form: &str| {
        let text = format!(
            "def @main(%x: Tensor[({rows}, 3), float32], %feature: Tensor[(40, 3), float32],
                %threshold: Tensor[(40, 3), float32], %leaves: Tensor[(40, 4, 2), float32])
                -> Tensor[({rows}, 2), float32] {{
                let %columns = cast(%feature, dtype=\"int32\");
                tree_sum(%x, %columns, %threshold, %leaves, {form})
            }}"
        );
        Model::from_module("forest", crate::graph::parse_module(&text).unwrap())
    };
    let parameters = [rows(&[40, 3]), rows(&[40, 3]), rows(&[40, 4, 2])];
    for form in
        ["form=\"branches\", levels=0", "form=\"chains\", levels=0", "form=\"chains\", levels=2"]
    {
        let open = CompileOptions { dims: [("n".to_owned(), (1..=70).into())].into(), ..options() };
        let loaded = load(&run(&forest("n", form), &open).unwrap().model, &open);
        for count in [70, 1, 2, 33] {
            let inputs = [&[rows(&[count, 3])][..], &parameters].concat();
            let expected = run_alone(&forest(&count.to_string(), form), &options(), &inputs);
            for loaded in &loaded {
                let [found, expected] =
                    [&loaded.run(&inputs).unwrap(), &expected].map(|of| numbers(&of[0]));
                let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-5 * b.abs().max(1.0);
                assert!(found.iter().zip(&expected).all(near), "{form}, {count}: {found:?}");
                assert_eq!(found.len(), expected.len());
            }
        }
    }
}

/// PyTorch lists the widths of padding by axis, from the last one on: first those before it.
#[test]
fn widths_of_padding_are_put_in_order() {
    let int = |values: &[i64]| Constant::from_i64(&[values.len() as i64], values).unwrap();
    let builder = ModelBuilder::new(15)
        .input("x", DType::F32, &[ModelDim::from(2), ModelDim::from("h"), ModelDim::from("w")])
        .initializer("zero", &int(&[0]))
        .initializer("four", &int(&[4]))
        .initializer("pairs", &int(&[-1, 2]))
        .initializer("last", &int(&[-1]))
        .initializer("begin", &int(&[i64::MIN + 1]))
        .initializer("flat", &int(&[-1]))
        .node("Shape", &["x"], &["h"], &[("start", 1.into()), ("end", 2.into())])
        .node("Shape", &["x"], &["w"], &[("start", 2.into())])
        .node("Neg", &["h"], &["less_h"], &[])
        .node("Neg", &["w"], &["less_w"], &[])
        .node("Mod", &["less_h", "four"], &["rest_h"], &[])
        .node("Mod", &["less_w", "four"], &["rest_w"], &[])
        .node(
            "Concat",
            &["zero", "rest_w", "rest_h", "zero", "zero", "zero"],
            &["widths"],
            &[("axis", 0.into())],
        )
        .node("Reshape", &["widths", "pairs"], &["by_axis"], &[])
        .node("Slice", &["by_axis", "last", "begin", "zero", "last"], &["in_order"], &[])
        .node("Transpose", &["in_order"], &["turned"], &[("perm", vec![1, 0].into())])
        .node("Reshape", &["turned", "flat"], &["pads"], &[])
        .node("Pad", &["x", "pads"], &["y"], &[])
        .output("y", DType::F32, &UNKNOWN[..3]);
    let runs: &[&[u64]] = &[&[9, 13], &[1, 1], &[4, 8], &[5, 6]];
    check_sizes(&model(builder), &[("h", 1..=9), ("w", 1..=13)], runs, |sizes| {
        vec![vec![2, sizes[0], sizes[1]]]
    });
}

/// As many boxes are kept as there are, if no limit is less.
#[test]
fn boxes_are_kept_without_a_limit() {
    let builder = ModelBuilder::new(13)
        .input("boxes", DType::F32, &[ModelDim::from(1), ModelDim::from("n"), ModelDim::from(4)])
        .input("scores", DType::F32, &[ModelDim::from(1), ModelDim::from(2), ModelDim::from("n")])
        .initializer("most", &Constant::from_i64(&[1], &[i64::MAX]).unwrap())
        .node("NonMaxSuppression", &["boxes", "scores", "most"], &["kept"], &[])
        .output("kept", DType::I64, &[ModelDim::Unknown, ModelDim::from(3)]);
    let runs: &[&[u64]] = &[&[9], &[1], &[4]];
    check_sizes(&model(builder), &[("n", 1..=9)], runs, |sizes| {
        vec![vec![1, sizes[0], 4], vec![1, 2, sizes[0]]]
    });
}
