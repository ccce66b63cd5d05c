//! Models of which a run computes sizes.

use super::*;
use crate::ir::{SharedBytes, TensorType};
use crate::onnx::ModelAttr;
use crate::options::DimSize;

fn model(builder: ModelBuilder) -> Model {
    let file = ModelFile { proto: builder.build(), folder: None, store: None };
    Model::from_onnx("counted", file)
}

fn batch(sizes: impl Into<DimSize>) -> CompileOptions {
    CompileOptions { dims: [("batch".to_owned(), sizes.into())].into(), ..options() }
}

/// The elements of `x`, `[batch, 6]`, that are not zero: where they are, their squares, the sum of
/// these, and how many there are.
fn squares() -> Model {
    let unknown = || ModelDim::Unknown;
    let axes = Constant::from_i64(&[1], &[0]).unwrap();
    model(
        ModelBuilder::new(17)
            .input("x", DType::F32, &[ModelDim::from("batch"), ModelDim::from(6)])
            .initializer("axes", &axes)
            .node("NonZero", &["x"], &["at"], &[])
            .node("Transpose", &["at"], &["rows"], &[("perm", vec![1, 0].into())])
            .node("GatherND", &["x", "rows"], &["found"], &[])
            .node("Mul", &["found", "found"], &["y"], &[])
            .node("ReduceSum", &["y", "axes"], &["sum"], &[("keepdims", ModelAttr::from(0))])
            .node("Shape", &["y"], &["count"], &[])
            .output("at", DType::I64, &[ModelDim::from(2), unknown()])
            .output("y", DType::F32, &[unknown()])
            .output("sum", DType::F32, &[] as &[ModelDim])
            .output("count", DType::I64, &[ModelDim::from(1)]),
    )
}

/// Every so manyth element of `[rows, 6]` is not zero; none if that is 0.
fn sparse(rows: i64, every: usize) -> Constant {
    let value = |at: usize| match every {
        0 => 0.0,
        every if at.is_multiple_of(every) => at as f32 + 1.0,
        _ => 0.0,
    };
    Constant::from_f32(&[rows, 6], &(0..rows as usize * 6).map(value).collect::<Vec<_>>()).unwrap()
}

fn check_squares(loaded: &LoadedModel, rows: i64, every: usize) {
    let x = sparse(rows, every);
    let found = loaded.run(std::slice::from_ref(&x)).unwrap();
    let elements = x.to_f64_vec().unwrap();
    let places: Vec<usize> = (0..elements.len()).filter(|&at| elements[at] != 0.0).collect();
    let count = places.len() as i64;
    let by_axis = |of: &dyn Fn(usize) -> usize| places.iter().map(|&at| of(at) as i64).collect();
    let indices: [Vec<i64>; 2] = [by_axis(&|at| at / 6), by_axis(&|at| at % 6)];
    assert_eq!(*found[0].ty(), TensorType::from_consts(&[2, count], DType::I64));
    assert_eq!(found[0].to_i64_vec().unwrap(), indices.concat());
    let squares: Vec<f64> = places.iter().map(|&at| elements[at].powi(2)).collect();
    assert_eq!(*found[1].ty(), TensorType::from_consts(&[count], DType::F32));
    assert_eq!(found[1].to_f64_vec().unwrap(), squares);
    assert_eq!(found[2].to_f64_vec().unwrap(), [squares.iter().sum::<f64>()]);
    assert_eq!(found[3].to_i64_vec().unwrap(), [count]);
}

#[test]
fn results_are_as_large_as_a_run_counts() {
    for (&backend, threads) in Backend::ALL.iter().flat_map(|b| [(b, 1), (b, 3)]) {
        for (dims, batches) in [(DimSize::from(3), &[3][..]), ((1..=5).into(), &[1, 2, 5])] {
            let options = CompileOptions { backend, threads, ..batch(dims) };
            let compiled = run(&squares(), &options).unwrap().model;
            let sizes: Vec<_> = compiled.sizes.iter().filter(|size| size.counted).collect();
            let most = 6 * *batches.last().unwrap() as u64;
            assert_eq!((sizes[0].min, sizes[0].max, sizes.len()), (0, most, 1));
            for loaded in load(&compiled, &options) {
                // One run after the other: each has its own count.
                for (&rows, every) in batches.iter().flat_map(|b| [1, 0, 4, 7].map(|e| (b, e))) {
                    check_squares(&loaded, rows, every);
                }
            }
        }
    }
}

#[test]
fn a_scalar_is_a_vector_of_one_element() {
    let model = model(
        ModelBuilder::new(17)
            .input("x", DType::F32, &[] as &[ModelDim])
            .node("NonZero", &["x"], &["at"], &[])
            .output("at", DType::I64, &[const { ModelDim::Unknown }; 2]),
    );
    for loaded in load(&run(&model, &options()).unwrap().model, &options()) {
        for (x, count) in [(3.0, 1), (0.0, 0)] {
            let found = loaded.run(&[Constant::from_f32(&[], &[x]).unwrap()]).unwrap();
            assert_eq!(*found[0].ty(), TensorType::from_consts(&[1, count], DType::I64));
            assert!(found[0].to_i64_vec().unwrap().iter().all(|&place| place == 0));
        }
    }
}

/// One side finds nothing, or the first two rows; the other what is not zero, twice that, or all rows.
#[test]
fn sides_of_a_condition_have_sizes_of_their_own() {
    let unknown = const { [ModelDim::Unknown, ModelDim::Unknown] };
    let none = Constant::from_f32(&[0], &[]).unwrap();
    let two = Constant::from_i64(&[1], &[2]).unwrap();
    let zero = Constant::from_i64(&[1], &[0]).unwrap();
    let nothing = ModelBuilder::new(17)
        .initializer("none", &none)
        .initializer("zero", &zero)
        .initializer("two", &two)
        .node("Identity", &["none"], &["a"], &[])
        .node("Identity", &["none"], &["b"], &[])
        .node("Slice", &["x", "zero", "two"], &["c"], &[])
        .output("a", DType::F32, &unknown[..1])
        .output("b", DType::F32, &unknown[..1])
        .output("c", DType::F32, &unknown);
    let found = ModelBuilder::new(17)
        .node("NonZero", &["x"], &["at"], &[])
        .node("Transpose", &["at"], &["places"], &[("perm", vec![1, 0].into())])
        .node("GatherND", &["x", "places"], &["d"], &[])
        .node("Add", &["d", "d"], &["e"], &[])
        .node("Neg", &["x"], &["f"], &[])
        .output("d", DType::F32, &unknown[..1])
        .output("e", DType::F32, &unknown[..1])
        .output("f", DType::F32, &unknown);
    let model = model(
        ModelBuilder::new(17)
            .input("c", DType::Bool, &[] as &[ModelDim])
            .input("x", DType::F32, &[ModelDim::from("batch"), ModelDim::from(6)])
            .node(
                "If",
                &["c"],
                &["v", "w", "rows"],
                &[
                    ("then_branch", nothing.build_graph().into()),
                    ("else_branch", found.build_graph().into()),
                ],
            )
            .node("Add", &["v", "w"], &["sum"], &[])
            .output("sum", DType::F32, &unknown[..1])
            .output("rows", DType::F32, &unknown),
    );
    for &backend in Backend::ALL {
        let options = CompileOptions { backend, ..batch(2..=5) };
        let compiled = run(&model, &options).unwrap().model;
        // `v` and `w` have one size.
        assert_eq!(compiled.sizes.iter().filter(|size| size.counted).count(), 3);
        for loaded in load(&compiled, &options) {
            for (rows, every) in [(5, 1), (2, 7), (4, 0)] {
                let x = sparse(rows, every);
                let elements = x.to_f64_vec().unwrap();
                let of =
                    |flag| loaded.run(&[Constant::scalar(flag, DType::Bool).unwrap(), x.clone()]);
                let [nothing, found] = [1.0, 0.0].map(|flag| of(flag).unwrap());
                assert_eq!(*nothing[0].ty(), TensorType::from_consts(&[0], DType::F32));
                assert_eq!(nothing[1].to_f64_vec().unwrap(), elements[..12]);
                let kept = elements.iter().filter(|&&value| value != 0.0).map(|value| 3.0 * value);
                assert_eq!(found[0].to_f64_vec().unwrap(), kept.collect::<Vec<_>>());
                assert_eq!(*found[1].ty(), TensorType::from_consts(&[rows, 6], DType::F32));
                let negative: Vec<f64> = elements.iter().map(|value| -value).collect();
                assert_eq!(found[1].to_f64_vec().unwrap(), negative);
            }
        }
    }
}

#[test]
fn what_is_found_twice_has_one_size() {
    let model = model(
        ModelBuilder::new(17)
            .input("x", DType::F32, &[8])
            .input("is_kept", DType::Bool, &[8])
            .node("NonZero", &["is_kept"], &["at"], &[])
            .node("Cast", &["at"], &["places"], &[("to", 1.into())])
            .node("Compress", &["x", "is_kept"], &["kept"], &[])
            .node("Add", &["places", "kept"], &["sum"], &[])
            .output("sum", DType::F32, &[const { ModelDim::Unknown }; 2]),
    );
    let compiled = run(&model, &options()).unwrap().model;
    assert_eq!(compiled.sizes.iter().count(), 1);
    assert!(compiled.sizes.equal_counts.is_empty());
}

#[test]
fn counts_that_have_to_go_together_and_do_not_follow_are_refused() {
    let along = [("axis", 0.into())];
    let model = model(
        ModelBuilder::new(17)
            .input("x", DType::F32, &[6])
            .input("is_kept", DType::Bool, &[6])
            .input("is_taken", DType::Bool, &[6])
            .node("Compress", &["x", "is_kept"], &["kept"], &[])
            .node("Compress", &["x", "is_taken"], &["taken"], &[])
            .node("Concat", &["kept", "kept"], &["two"], &along)
            .node("Concat", &["taken", "taken", "taken"], &["three"], &along)
            .node("Add", &["two", "three"], &["sum"], &[])
            .output("sum", DType::F32, &[ModelDim::Unknown]),
    );
    let report = run(&model, &options()).unwrap_err().to_string();
    assert!(report.contains("has to be") && report.contains("3*taken_size"), "{report}");
}

#[test]
fn unknown_sizes_of_inputs_are_told_and_no_others() {
    let report = run(&squares(), &options()).unwrap_err().to_string();
    assert!(report.contains("the size of `batch` is not known"), "{report}");
    assert!(!report.contains("at_size"), "{report}");
}

/// What is kept of `x` by one mask and of `z` by another, and `y`, which has as many elements.
fn sums(y: ModelDim) -> Model {
    model(
        ModelBuilder::new(17)
            .input("x", DType::F32, &[8])
            .input("is_kept", DType::Bool, &[8])
            .input("z", DType::F32, &[2, 8])
            .input("is_taken", DType::Bool, &[8])
            .input("y", DType::F32, &[y])
            .node("Compress", &["x", "is_kept"], &["kept"], &[])
            .node("Compress", &["z", "is_taken"], &["taken"], &[("axis", 1.into())])
            .node("Add", &["kept", "taken"], &["both"], &[])
            .node("Add", &["both", "y"], &["sum"], &[])
            .output("sum", DType::F32, &[const { ModelDim::Unknown }; 2]),
    )
}

#[test]
fn counts_are_what_the_model_takes_them_to_be() {
    let mask = |places: &[usize]| {
        let is_kept: Vec<u8> = (0..8).map(|place| u8::from(places.contains(&place))).collect();
        let ty = TensorType::from_consts(&[8], DType::Bool);
        Constant::new(ty, SharedBytes::new(is_kept)).unwrap()
    };
    let numbers = |shape: &[i64], start: i64| {
        let values: Vec<f32> = (0..shape.iter().product()).map(|at| (start + at) as f32).collect();
        Constant::from_f32(shape, &values).unwrap()
    };
    let run_with = |model: &LoadedModel, kept: &[usize], taken: &[usize]| {
        let (x, z, y) = (numbers(&[8], 0), numbers(&[2, 8], 100), numbers(&[4], 1000));
        model.run(&[x, mask(kept), z, mask(taken), y])
    };
    let lengths = [ModelDim::from(4), ModelDim::from("n")];
    for (&backend, y) in Backend::ALL.iter().flat_map(|b| lengths.iter().map(move |y| (b, y))) {
        let is_open = *y == lengths[1];
        let dims = [("n".to_owned(), (1..=20).into())].into_iter().filter(|_| is_open);
        let options = CompileOptions { backend, dims: dims.collect(), ..options() };
        for loaded in load(&run(&sums(y.clone()), &options).unwrap().model, &options) {
            let sums = run_with(&loaded, &[1, 2, 5, 7], &[0, 3, 4, 6]).unwrap();
            assert_eq!(*sums[0].ty(), TensorType::from_consts(&[2, 4], DType::F32));
            let first = [1101.0, 1106.0, 1111.0, 1116.0];
            assert_eq!(sums[0].to_f64_vec().unwrap(), [first, first.map(|sum| sum + 8.0)].concat());
            for [kept, taken] in [[&[1, 2, 5][..], &[0, 3, 4]], [&[1, 2, 5, 7], &[0, 3, 4, 6, 7]]] {
                let refused = run_with(&loaded, kept, taken).unwrap_err().to_string();
                assert!(refused.contains("_size` is"), "{refused}");
            }
        }
    }
}

#[test]
fn a_size_has_one_count() {
    let text = "def @main(%x: Tensor[(4), float32], %n: Tensor[(), int64], %m: Tensor[(), int64])
        -> (Tensor[(kept), float32], Tensor[(kept), float32]) {
        let %a = truncate(%x, %n, axis=0, size=\"kept\");
        let %b = truncate(%x, %m, axis=0, size=\"kept\");
        (%a, %b)
    }";
    let model = Model::from_module("twice", crate::graph::parse_module(text).unwrap());
    let report = run(&model, &options()).unwrap_err().to_string();
    assert!(report.contains("`kept`"), "{report}");
}

/// The scalars 0 and 1, and the last of two axes.
fn with_numbers() -> ModelBuilder {
    let int = |dims: &[i64], value: i64| Constant::from_i64(dims, &[value]).unwrap();
    ModelBuilder::new(17)
        .initializer("zero", &int(&[], 0))
        .initializer("one", &int(&[], 1))
        .initializer("axis", &int(&[1], 1))
}

/// Each row of `x`, `[length, 2]`, as often as `times` says, as spoken sounds are drawn out, and noise of
/// that shape.
fn drawn_out() -> Model {
    model(
        with_numbers()
            .input("x", DType::F32, &[ModelDim::from("length"), ModelDim::from(2)])
            .input("times", DType::I64, &[ModelDim::from("length")])
            .node("ReduceSum", &["times"], &["total"], &[("keepdims", ModelAttr::from(0))])
            .node("Range", &["zero", "total", "one"], &["frames"], &[])
            .node("CumSum", &["times", "zero"], &["ends"], &[])
            .node("Unsqueeze", &["frames", "axis"], &["places"], &[])
            .node("LessOrEqual", &["ends", "places"], &["is_over"], &[])
            .node("Cast", &["is_over"], &["over"], &[("to", 7.into())])
            .node("ReduceSum", &["over", "axis"], &["row"], &[("keepdims", ModelAttr::from(0))])
            .node("Gather", &["x", "row"], &["y"], &[])
            .node("RandomNormalLike", &["y"], &["noise"], &[])
            .output("y", DType::F32, &[ModelDim::Unknown, ModelDim::from(2)])
            .output("noise", DType::F32, &[ModelDim::Unknown, ModelDim::from(2)]),
    )
}

#[test]
fn ranges_end_where_a_run_says_within_bounds_of_an_option() {
    let dims = |length: DimSize, frames: Option<DimSize>| {
        let frames = frames.map(|frames| ("frames_size".to_owned(), frames));
        [Some(("length".to_owned(), length)), frames].into_iter().flatten().collect()
    };
    let report =
        run(&drawn_out(), &CompileOptions { dims: dims((1..=4).into(), None), ..options() });
    let report = report.unwrap_err().to_string();
    assert!(report.contains("(Range, opset 17)") && report.contains("frames_size=0..=512"));
    let [length, frames] = [("length", 1..=4), ("frame_size", 0..=9)]
        .map(|(name, sizes)| (name.to_owned(), DimSize::from(sizes)));
    let misspelt = CompileOptions { dims: [length, frames].into(), ..options() };
    let report = run(&drawn_out(), &misspelt).unwrap_err().to_string();
    assert!(report.contains("dimension `frame_size` is pinned, but the model has no"), "{report}");
    for &backend in Backend::ALL {
        let of = |dims| CompileOptions { backend, dims, ..options() };
        let fixed = of(dims(3.into(), Some(7.into())));
        let open = of(dims((1..=4).into(), Some((1..=9).into())));
        let inputs = |times: &[i64]| {
            let length = times.len() as i64;
            let x: Vec<f32> = (0..2 * length).map(|value| value as f32).collect();
            let x = Constant::from_f32(&[length, 2], &x).unwrap();
            [x, Constant::from_i64(&[length], times).unwrap()]
        };
        let [fixed, open] = [fixed, open]
            .map(|options| load(&run(&drawn_out(), &options).unwrap().model, &options).remove(0));
        for times in [&[2, 0, 5][..], &[1], &[0, 3, 3, 3]] {
            let found = open.run(&inputs(times)).unwrap();
            let rows = times.iter().enumerate();
            let rows: Vec<f64> = rows
                .flat_map(|(row, &times)| {
                    (0..times).flat_map(move |_| [2.0 * row as f64, 2.0 * row as f64 + 1.0])
                })
                .collect();
            assert_eq!(found[0].to_f64_vec().unwrap(), rows);
            if times.len() == 3 {
                // The interpreter computes what is a constant there, with its own logarithm.
                let of_fixed = fixed.run(&inputs(times)).unwrap();
                let [noise, folded] = [&found[1], &of_fixed[1]].map(|of| of.to_f64_vec().unwrap());
                assert_eq!(noise.len(), folded.len());
                assert!(noise.iter().zip(&folded).all(|(a, b)| (a - b).abs() < 1e-6));
            }
        }
        for (loaded, times) in [(&open, &[5, 5][..]), (&open, &[0, 0]), (&fixed, &[2, 0, 4])] {
            let error = loaded.run(&inputs(times)).unwrap_err().to_string();
            assert!(error.contains("`frames_size"), "{error}");
        }
    }
}

#[test]
fn a_range_is_as_long_as_what_it_meets() {
    let model = model(
        with_numbers()
            .input("x", DType::F32, &[ModelDim::from("batch"), ModelDim::from("n")])
            .input("lengths", DType::I64, &[ModelDim::from("batch")])
            .node("ReduceMax", &["lengths"], &["longest"], &[("keepdims", ModelAttr::from(0))])
            .node("Range", &["zero", "longest", "one"], &["places"], &[])
            .node("Unsqueeze", &["lengths", "axis"], &["rows"], &[])
            .node("Less", &["places", "rows"], &["mask"], &[])
            .node("Cast", &["mask"], &["kept"], &[("to", 1.into())])
            .node("Mul", &["x", "kept"], &["y"], &[])
            .output("y", DType::F32, &[ModelDim::from("batch"), ModelDim::from("n")]),
    );
    let dims = [("batch", 1..=3), ("n", 2..=5)];
    let dims = dims.map(|(name, sizes)| (name.to_owned(), sizes.into())).into();
    let options = CompileOptions { dims, ..options() };
    let loaded = load(&run(&model, &options).unwrap().model, &options).remove(0);
    let of = |lengths: &[i64]| {
        let x = Constant::from_f32(&[2, 4], &[1.0; 8]).unwrap();
        loaded.run(&[x, Constant::from_i64(&[2], lengths).unwrap()])
    };
    let found = of(&[4, 1]).unwrap();
    assert_eq!(found[0].to_f64_vec().unwrap(), [1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0]);
    let error = of(&[3, 1]).unwrap_err().to_string();
    assert!(error.contains("is 3, but"), "{error}");
}
