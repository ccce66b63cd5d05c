//! Models whose runs have sizes of their own, beside those that were compiled for one size.

mod attention;
mod best;
mod equal;
mod images;
mod numbers;
mod several;
mod slices;
mod units;

use super::*;
use crate::ir::TensorType;
use crate::onnx::ModelAttr;
use crate::options::DimSize;

/// Rows of so many numbers, different everywhere.
fn rows(shape: &[i64]) -> Constant {
    let elements = shape.iter().product::<i64>();
    let value = |i: i64| (i * 37 % 101) as f32 / 50.0 - 1.0;
    Constant::from_f32(shape, &(0..elements).map(value).collect::<Vec<_>>()).unwrap()
}

fn model(builder: ModelBuilder) -> Model {
    let file = ModelFile { proto: builder.build(), folder: None, store: None };
    Model::from_onnx("run_time", file)
}

fn batch(sizes: impl Into<DimSize>) -> CompileOptions {
    CompileOptions { dims: [("batch".to_owned(), sizes.into())].into(), ..options() }
}

/// Convolutions with borders, a residual, pooling, shapes that are computed, a product.
fn network() -> Model {
    let sizes = [ModelDim::from("batch"), ModelDim::from(3), ModelDim::from(9), ModelDim::from(7)];
    let builder = ModelBuilder::new(13)
        .input("x", DType::F32, &sizes)
        .input("scale", DType::F32, &[ModelDim::from("batch"), ModelDim::from(1)])
        .initializer("w1", &rows(&[20, 3, 3, 3]))
        .initializer("w2", &rows(&[20, 20, 3, 3]))
        .initializer("w3", &rows(&[10, 20]))
        .initializer("zero", &Constant::from_i64(&[1], &[0]).unwrap())
        .initializer("rest", &Constant::from_i64(&[1], &[-1]).unwrap())
        .node("Conv", &["x", "w1"], &["a"], &[("pads", vec![1, 1, 1, 1].into())])
        .node("Relu", &["a"], &["b"], &[])
        .node("Conv", &["b", "w2"], &["c"], &[("pads", vec![1, 1, 1, 1].into())])
        .node("Add", &["c", "b"], &["d"], &[])
        .node("GlobalAveragePool", &["d"], &["e"], &[])
        .node("Shape", &["e"], &["shape"], &[])
        .node("Gather", &["shape", "zero"], &["n"], &[])
        .node("Concat", &["n", "rest"], &["flat"], &[("axis", 0.into())])
        .node("Reshape", &["e", "flat"], &["f"], &[])
        .node("Gemm", &["f", "w3"], &["g"], &[("transB", 1.into())])
        .node("Mul", &["g", "scale"], &["h"], &[])
        .node("Softmax", &["h"], &["y"], &[("axis", 1.into())])
        .output("y", DType::F32, &[ModelDim::from("batch"), ModelDim::from(10)])
        .output("d", DType::F32, &sizes.map(|_| ModelDim::Unknown));
    model(builder)
}

/// Products of rows with more weights than work, and a normalisation.
fn dense_layers() -> Model {
    let sizes = [ModelDim::from("batch"), ModelDim::from(24)];
    let builder = ModelBuilder::new(17)
        .input("x", DType::F32, &sizes)
        .initializer("w1", &rows(&[24, 40]))
        .initializer("w2", &rows(&[40, 5]))
        .initializer("scale", &rows(&[24]))
        .node("LayerNormalization", &["x", "scale"], &["a"], &[])
        .node("MatMul", &["a", "w1"], &["b"], &[])
        .node("Tanh", &["b"], &["c"], &[])
        .node("MatMul", &["c", "w2"], &["y"], &[])
        .output("y", DType::F32, &[ModelDim::from("batch"), ModelDim::from(5)]);
    model(builder)
}

/// What a model computes that is compiled with these options.
fn run_alone(model: &Model, options: &CompileOptions, inputs: &[Constant]) -> Vec<Constant> {
    let compiled = run(model, options).unwrap().model;
    load_one(&compiled, options).run(inputs).unwrap()
}

/// Runs a model that was compiled for any batch up to 17 at several sizes, beside one that was
/// compiled for that size.
fn check_against_fixed(model: &Model, shapes: &[&[i64]], one_by_one: bool) {
    for opt_level in [3, 0] {
        let runs = [1, 2, 5, 16, 17].map(|size| {
            let shape = |shape: &&[i64]| [&[size as i64], *shape].concat();
            let inputs: Vec<Constant> = shapes.iter().map(|s| rows(&shape(s))).collect();
            let fixed = CompileOptions { opt_level, ..batch(size) };
            (size, run_alone(model, &fixed, &inputs), inputs)
        });
        for (&backend, threads) in Backend::ALL.iter().flat_map(|b| [(b, 1), (b, 3)]) {
            let open = CompileOptions { backend, opt_level, threads, ..batch(1..=17) };
            let compilation = run(model, &open).unwrap();
            assert_eq!(compilation.program.units.is_some(), one_by_one);
            for (loaded, (size, expected, inputs)) in load(&compilation.model, &open)
                .iter()
                .flat_map(|l| runs.iter().map(move |r| (l, r)))
            {
                let found = loaded.run(inputs).unwrap();
                assert_eq!(found, *expected, "{backend}, -O{opt_level}, batch {size}");
            }
        }
    }
}

#[test]
fn images_run_one_by_one_with_the_bits_of_a_fixed_batch() {
    check_against_fixed(&network(), &[&[3, 9, 7], &[1]], true);
}

#[test]
fn rows_that_share_weights_run_together_with_the_bits_of_a_fixed_batch() {
    check_against_fixed(&dense_layers(), &[&[24]], false);
}

#[test]
fn a_batch_of_images_takes_the_memory_of_one() {
    let workspace =
        |options: &CompileOptions| run(&network(), options).unwrap().model.workspace_bytes;
    assert_eq!(workspace(&batch(1..=64)), workspace(&batch(1)));
}

#[test]
fn bounds_may_leave_one_size() {
    for (sizes, size) in [(1..=1, 1), (3..=3, 3)] {
        let options = batch(sizes);
        let loaded = load(&run(&dense_layers(), &options).unwrap().model, &options);
        let fixed = batch(size);
        let alone = load(&run(&dense_layers(), &fixed).unwrap().model, &fixed);
        let input = [rows(&[size as i64, 24])];
        assert_eq!(loaded[0].run(&input).unwrap(), alone[0].run(&input).unwrap());
    }
}

#[test]
fn the_shapes_of_a_run_are_checked() {
    let options = batch(2..=4);
    let compiled = run(&network(), &options).unwrap().model;
    let loaded = &load_one(&compiled, &options);
    let problem =
        |x: &[i64], scale: &[i64]| loaded.run(&[rows(x), rows(scale)]).unwrap_err().to_string();
    for (x, scale, message) in [
        ([1, 3, 9, 7], [1, 1], "axis 0 of input `x` is 1; `batch` is 2..=4"),
        ([5, 3, 9, 7], [5, 1], "axis 0 of input `x` is 5; `batch` is 2..=4"),
        ([3, 3, 9, 7], [2, 1], "axis 0 of input `scale` is 2, but `batch` is 3 in input `x`"),
        (
            [3, 3, 9, 8],
            [3, 1],
            "input `x` has the shape [3, 3, 9, 8]; it is float32 [batch, 3, 9, 7]",
        ),
    ] {
        assert_eq!(problem(&x, &scale), message);
    }
}

/// `y` of a model with the input `x`, `[batch, 4, 6]`.
fn of_x(opset: i64, build: impl FnOnce(ModelBuilder) -> ModelBuilder) -> Model {
    let sizes = [ModelDim::from("batch"), ModelDim::from(4), ModelDim::from(6)];
    model(build(ModelBuilder::new(opset).input("x", DType::F32, &sizes)).output(
        "y",
        DType::F32,
        &[const { ModelDim::Unknown }; 3],
    ))
}

/// Runs a model whose sizes have bounds, beside those that were compiled for some of them: elements of
/// floats may differ by a rounding, as sums are put together otherwise.
fn check_sizes(
    model: &Model,
    dims: &[(&str, std::ops::RangeInclusive<u64>)],
    runs: &[&[u64]],
    shapes: impl Fn(&[i64]) -> Vec<Vec<i64>>,
) {
    let with_dims = |size: &dyn Fn(usize) -> DimSize| CompileOptions {
        dims: dims.iter().enumerate().map(|(at, dim)| (dim.0.to_owned(), size(at))).collect(),
        ..options()
    };
    let open = with_dims(&|at| dims[at].1.clone().into());
    let loaded = Backend::ALL.iter().map(|&backend| {
        let threads = if backend == Backend::C { 1 } else { 3 };
        let open = CompileOptions { backend, threads, ..open.clone() };
        (backend, load(&run(model, &open).unwrap().model, &open))
    });
    let loaded: Vec<(Backend, Vec<LoadedModel>)> = loaded.collect();
    for sizes in runs {
        let fixed = with_dims(&|at| sizes[at].into());
        let sizes: Vec<i64> = sizes.iter().map(|&size| size as i64).collect();
        let inputs: Vec<Constant> = shapes(&sizes).iter().map(|shape| rows(shape)).collect();
        let expected = run_alone(model, &fixed, &inputs);
        for (backend, loaded) in &loaded {
            for loaded in loaded {
                let found = loaded.run(&inputs).unwrap();
                for (found, expected) in found.iter().zip(&expected) {
                    assert_eq!(found.ty(), expected.ty());
                    let [a, b] = [found, expected].map(numbers);
                    let near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-5 * b.abs().max(1.0);
                    assert!(a.iter().zip(&b).all(near), "{backend}, {sizes:?}: {a:?}, {b:?}");
                }
            }
        }
    }
}

fn numbers(value: &Constant) -> Vec<f64> {
    let integers = || value.to_i64_vec().map(|values| values.iter().map(|&v| v as f64).collect());
    value.to_f64_vec().or_else(integers).unwrap()
}

/// The same for a model with the input `x`, `[batch, 4, 6]`.
fn check_batches(model: &Model) {
    let batches: &[&[u64]] = &[&[1], &[2], &[3], &[5], &[8]];
    check_sizes(model, &[("batch", 1..=8)], batches, |sizes| vec![vec![sizes[0], 4, 6]]);
}

#[test]
fn ranges_may_begin_and_end_at_sizes() {
    let int = |value: i64| Constant::from_i64(&[], &[value]).unwrap();
    let extent = |b: ModelBuilder, of: &str, size: &str| {
        let shape = format!("{of}_shape");
        b.node("Shape", &[of], &[&shape], &[]).node("Gather", &[&shape, "zero"], &[size], &[])
    };
    let builder = ModelBuilder::new(13)
        .input("x", DType::F32, &[ModelDim::from("new")])
        .input("past", DType::F32, &[ModelDim::from("past")])
        .initializer("zero", &int(0))
        .initializer("one", &int(1));
    let builder = extent(extent(builder, "x", "count"), "past", "begin");
    let proto = builder
        .node("Add", &["begin", "count"], &["end"], &[])
        .node("Range", &["begin", "end", "one"], &["own"], &[])
        .node("Range", &["one", "end", "one"], &["but_one"], &[])
        .node("Cast", &["own"], &["places"], &[("to", 1.into())])
        .node("Cast", &["but_one"], &["others"], &[("to", 1.into())])
        .output("places", DType::F32, &[ModelDim::from("new")])
        .output("others", DType::F32, &[ModelDim::from("m")])
        .build();
    let model = Model::from_onnx("ranges", ModelFile { proto, folder: None, store: None });
    let sizes: &[&[u64]] = &[&[1, 1], &[3, 2], &[2, 3], &[4, 1]];
    check_sizes(&model, &[("new", 1..=4), ("past", 0..=3)], sizes, |sizes| {
        sizes.iter().map(|&size| vec![size]).collect()
    });
}

#[test]
fn sizes_may_be_anywhere() {
    let axes = |values: &[i64]| Constant::from_i64(&[values.len() as i64], values).unwrap();
    let one =
        |op: &str, attrs: &[(&str, ModelAttr)]| of_x(13, |b| b.node(op, &["x"], &["y"], attrs));
    let with_axes = |op: &str, values: &[i64]| {
        of_x(13, |b| b.initializer("a", &axes(values)).node(op, &["x", "a"], &["y"], &[]))
    };
    let over_rows = [("axes", vec![0].into()), ("keepdims", 1.into())];
    for model in [
        with_axes("ReduceSum", &[0]),
        with_axes("ReduceSum", &[0, 2]),
        one("ReduceMax", &over_rows),
        one("ReduceMean", &over_rows),
        one("Transpose", &[("perm", vec![1, 0, 2].into())]),
        one("Transpose", &[("perm", vec![1, 2, 0].into())]),
        one("Softmax", &[("axis", 0.into())]),
        with_axes("Gather", &[0]),
        with_axes("Gather", &[-1, 0]),
        of_x(13, |b| {
            b.node("ArgMax", &["x"], &["i"], &[("axis", 0.into())]).node(
                "Cast",
                &["i"],
                &["y"],
                &[("to", 1.into())],
            )
        }),
        // Lanes along the axis.
        of_x(13, |b| {
            b.node("Transpose", &["x"], &["t"], &[("perm", vec![1, 2, 0].into())])
                .node("Softmax", &["t"], &["s"], &[("axis", 2.into())])
                .node("MatMul", &["s", "u"], &["y"], &[])
                .node("Transpose", &["x"], &["u"], &[("perm", vec![1, 0, 2].into())])
        }),
        // Elements change their places.
        of_x(13, |b| {
            b.initializer("a", &axes(&[4, -1, 1]))
                .node("Transpose", &["x"], &["t"], &[("perm", vec![1, 0, 2].into())])
                .node("Reshape", &["t", "a"], &["y"], &[])
        }),
    ] {
        check_batches(&model);
    }
}

/// Attention that sees what came before, and sequences of lengths of their own.
#[test]
fn triangles_and_reversed_sequences_are_of_any_size() {
    let x = [ModelDim::from("batch"), ModelDim::from("seq"), ModelDim::from(8)];
    let lengths = Constant::from_i64(&[1], &[1]).unwrap();
    let last = [("perm", vec![0, 2, 1].into())];
    let along = [("batch_axis", 0.into()), ("time_axis", 1.into())];
    let builder = ModelBuilder::new(14)
        .input("x", DType::F32, &x)
        .initializer("length", &lengths)
        .initializer("zero", &Constant::from_i64(&[1], &[0]).unwrap())
        .node("Transpose", &["x"], &["k"], &last)
        .node("MatMul", &["x", "k"], &["scores"], &[])
        .node("Trilu", &["scores"], &["lower"], &[("upper", 0.into())])
        .node("MatMul", &["lower", "x"], &["y"], &[])
        .node("Shape", &["x"], &["shape"], &[])
        .node("Gather", &["shape", "zero"], &["batch"], &[])
        .node("Expand", &["length", "batch"], &["lengths"], &[])
        .node("ReverseSequence", &["x", "lengths"], &["z"], &along)
        .output("y", DType::F32, &[const { ModelDim::Unknown }; 3])
        .output("z", DType::F32, &[const { ModelDim::Unknown }; 3]);
    let runs: &[&[u64]] = &[&[1, 1], &[2, 7], &[3, 20]];
    check_sizes(&model(builder), &[("batch", 1..=3), ("seq", 1..=20)], runs, |sizes| {
        vec![vec![sizes[0], sizes[1], 8]]
    });
}

/// What the exporters of transformers write: positions that are a part of a table, shapes that are
/// put together, heads, a cache that the keys are added to.
#[test]
fn sequences_may_have_any_length() {
    let ints = |values: &[i64]| Constant::from_i64(&[values.len() as i64], values).unwrap();
    let past = [1, 2, 0, 4].map(ModelDim::from);
    let past = past.map(|dim| if dim == ModelDim::from(0) { ModelDim::from("past") } else { dim });
    let x = [ModelDim::from("batch"), ModelDim::from("seq"), ModelDim::from(8)];
    let builder = ModelBuilder::new(13)
        .input("x", DType::F32, &x)
        .input("past", DType::F32, &past)
        .initializer("table", &rows(&[1, 20, 8]))
        .initializer("one", &ints(&[1]))
        .initializer("zero", &ints(&[0]))
        .initializer("rest", &ints(&[2, 4]))
        .initializer("hidden", &ints(&[8]))
        .initializer("wq", &rows(&[8, 8]))
        .initializer("wk", &rows(&[8, 8]))
        .initializer("scale", &rows(&[8]))
        .node("Shape", &["x"], &["shape"], &[])
        .node("Gather", &["shape", "one"], &["seq"], &[])
        .node("Gather", &["shape", "zero"], &["batch"], &[])
        .node("Slice", &["table", "zero", "seq", "one"], &["places"], &[])
        .node("Add", &["x", "places"], &["p"], &[])
        .node("LayerNormalization", &["p", "scale"], &["n"], &[])
        .node("MatMul", &["n", "wq"], &["q1"], &[])
        .node("MatMul", &["n", "wk"], &["k1"], &[])
        .node("Concat", &["batch", "seq", "rest"], &["heads"], &[("axis", 0.into())])
        .node("Reshape", &["q1", "heads"], &["q2"], &[])
        .node("Reshape", &["k1", "heads"], &["k2"], &[])
        .node("Transpose", &["q2"], &["q"], &[("perm", vec![0, 2, 1, 3].into())])
        .node("Transpose", &["k2"], &["k3"], &[("perm", vec![0, 2, 1, 3].into())])
        .node("Concat", &["past", "k3"], &["k"], &[("axis", 2.into())])
        .node("Transpose", &["k"], &["kt"], &[("perm", vec![0, 1, 3, 2].into())])
        .node("MatMul", &["q", "kt"], &["scores"], &[])
        .node("Softmax", &["scores"], &["weights"], &[("axis", (-1).into())])
        .node("MatMul", &["weights", "k"], &["mixed"], &[])
        .node("Transpose", &["mixed"], &["back"], &[("perm", vec![0, 2, 1, 3].into())])
        .node("Concat", &["batch", "seq", "hidden"], &["flat"], &[("axis", 0.into())])
        .node("Reshape", &["back", "flat"], &["y"], &[])
        .node("ReduceMean", &["y"], &["mean"], &[("axes", vec![1].into())])
        .output("y", DType::F32, &[const { ModelDim::Unknown }; 3])
        .output("mean", DType::F32, &[const { ModelDim::Unknown }; 3])
        .output("k", DType::F32, &[const { ModelDim::Unknown }; 4]);
    let dims = [("batch", 1..=1), ("seq", 1..=18), ("past", 1..=15)];
    let runs: &[&[u64]] = &[&[1, 18, 15], &[1, 1, 1], &[1, 2, 3], &[1, 17, 4], &[1, 16, 15]];
    check_sizes(&model(builder), &dims, runs, |sizes| {
        vec![vec![1, sizes[1], 8], vec![1, 2, sizes[2], 4]]
    });
}

/// Some exporters compute with extents as floats.
#[test]
fn sizes_may_be_computed_in_floats() {
    let ints = |values: &[i64]| Constant::from_i64(&[values.len() as i64], values).unwrap();
    let floats = |values: &[f32]| Constant::from_f32(&[values.len() as i64], values).unwrap();
    let sizes = [ModelDim::from("rows"), ModelDim::from(4)];
    let builder = ModelBuilder::new(13)
        .input("x", DType::F32, &sizes)
        .initializer("table", &rows(&[20, 4]))
        .initializer("most", &floats(&[9999.0, 4.0]))
        .initializer("twice", &floats(&[2.0, 1.0]))
        .initializer("zeros", &ints(&[0, 0]))
        .node("Shape", &["x"], &["shape"], &[])
        .node("Cast", &["shape"], &["extents"], &[("to", 1.into())])
        .node("Min", &["extents", "most"], &["least"], &[])
        .node("Mul", &["least", "twice"], &["doubled"], &[])
        .node("Floor", &["doubled"], &["floor"], &[])
        .node("Div", &["floor", "twice"], &["halves"], &[])
        .node("Cast", &["halves"], &["end"], &[("to", 7.into())])
        .node("Slice", &["table", "zeros", "end"], &["places"], &[])
        .node("Add", &["x", "places"], &["y"], &[])
        .output("y", DType::F32, &sizes);
    let runs: &[&[u64]] = &[&[1], &[2], &[19], &[20]];
    let model = model(builder);
    check_sizes(&model, &[("rows", 1..=20)], runs, |sizes| vec![vec![sizes[0], 4]]);
    // More rows than the table has.
    let options =
        CompileOptions { dims: [("rows".to_owned(), (1..=21).into())].into(), ..options() };
    let loaded = &load_one(&run(&model, &options).unwrap().model, &options);
    let wrong = loaded.run(&[rows(&[21, 4])]).unwrap_err().to_string();
    assert!(wrong.contains("1..=20"), "{wrong}");
}

/// Half as many rows as the input has columns: one row of the least two sizes.
#[test]
fn spectrograms_may_have_any_length() {
    let x = [ModelDim::from(1), ModelDim::from(3), ModelDim::from("frames")];
    let heads = Constant::from_i64(&[4], &[0, 0, 2, 4]).unwrap();
    let strided = [("pads", vec![1, 1].into()), ("strides", vec![2].into())];
    let builder = ModelBuilder::new(20)
        .input("x", DType::F32, &x)
        .initializer("w1", &rows(&[8, 3, 3]))
        .initializer("w2", &rows(&[8, 8, 3]))
        .initializer("wq", &rows(&[8, 8]))
        .initializer("heads", &heads)
        .node("Conv", &["x", "w1"], &["a"], &[("pads", vec![1, 1].into())])
        .node("Gelu", &["a"], &["b"], &[])
        .node("Conv", &["b", "w2"], &["c"], &strided)
        .node("Gelu", &["c"], &["d"], &[])
        .node("Transpose", &["d"], &["e"], &[("perm", vec![0, 2, 1].into())])
        .node("MatMul", &["e", "wq"], &["f"], &[])
        .node("Reshape", &["f", "heads"], &["g"], &[])
        .node("Transpose", &["g"], &["q"], &[("perm", vec![0, 2, 1, 3].into())])
        .node("Transpose", &["g"], &["k"], &[("perm", vec![0, 2, 3, 1].into())])
        .node("MatMul", &["q", "k"], &["scores"], &[])
        .node("Softmax", &["scores"], &["y"], &[("axis", (-1).into())])
        .output("y", DType::F32, &[const { ModelDim::Unknown }; 4])
        .output("f", DType::F32, &[const { ModelDim::Unknown }; 3]);
    let runs: &[&[u64]] = &[&[1], &[2], &[3], &[30], &[69], &[70]];
    check_sizes(&model(builder), &[("frames", 1..=70)], runs, |sizes| vec![vec![1, 3, sizes[0]]]);
}

#[test]
fn signals_may_have_any_length() {
    let x = [ModelDim::from(2), ModelDim::from("samples"), ModelDim::from(1)];
    let builder = ModelBuilder::new(17)
        .input("x", DType::F32, &x)
        .initializer("step", &Constant::from_i64(&[], &[5]).unwrap())
        .initializer("window", &rows(&[16]))
        .node("STFT", &["x", "step", "window"], &["y"], &[])
        .output("y", DType::F32, &[const { ModelDim::Unknown }; 4]);
    let runs: &[&[u64]] = &[&[16], &[20], &[21], &[57], &[90]];
    check_sizes(&model(builder), &[("samples", 16..=90)], runs, |sizes| vec![vec![2, sizes[0], 1]]);
}

#[test]
fn recurrent_layers_may_have_any_length() {
    let x = [ModelDim::from("seq"), ModelDim::from(1), ModelDim::from(3)];
    let builder = ModelBuilder::new(14)
        .input("x", DType::F32, &x)
        .initializer("w", &rows(&[2, 16, 3]))
        .initializer("r", &rows(&[2, 16, 4]))
        .initializer("w2", &rows(&[1, 15, 3]))
        .initializer("r2", &rows(&[1, 15, 5]))
        .node(
            "LSTM",
            &["x", "w", "r"],
            &["y", "h", "c"],
            &[("hidden_size", 4.into()), ("direction", "bidirectional".into())],
        )
        .node("GRU", &["x", "w2", "r2"], &["z", ""], &[("hidden_size", 5.into())])
        .output("y", DType::F32, &[const { ModelDim::Unknown }; 4])
        .output("h", DType::F32, &[const { ModelDim::Unknown }; 3])
        .output("c", DType::F32, &[const { ModelDim::Unknown }; 3])
        .output("z", DType::F32, &[const { ModelDim::Unknown }; 4]);
    let runs: &[&[u64]] = &[&[6], &[1], &[2], &[5]];
    check_sizes(&model(builder), &[("seq", 1..=6)], runs, |sizes| vec![vec![sizes[0], 1, 3]]);
}

/// The best `k` elements along an axis.
fn best(k: i64, axis: i64) -> Model {
    let k = Constant::from_i64(&[1], &[k]).unwrap();
    let axis = [("axis", axis.into())];
    of_x(13, |b| b.initializer("k", &k).node("TopK", &["x", "k"], &["y", "places"], &axis))
}

#[test]
fn statements_end_where_a_run_ends() {
    let sums = |axis: i64, reverse: i64| {
        let axis = Constant::from_i64(&[], &[axis]).unwrap();
        let attrs = [("reverse", reverse.into())];
        of_x(13, |b| b.initializer("axis", &axis).node("CumSum", &["x", "axis"], &["y"], &attrs))
    };
    let places = Constant::from_i64(&[1, 4, 6], &[0; 24]).unwrap();
    let attrs = [("axis", 0.into()), ("reduction", "add".into())];
    let scatter = of_x(18, |b| {
        b.initializer("places", &places).initializer("more", &rows(&[1, 4, 6])).node(
            "ScatterElements",
            &["x", "places", "more"],
            &["y"],
            &attrs,
        )
    });
    let lines = [best(1, 0), best(2, 1), best(3, -1)];
    for model in [sums(0, 0), sums(0, 1), sums(2, 0), scatter].iter().chain(&lines) {
        check_batches(model);
    }
    let batches: &[&[u64]] = &[&[3], &[4], &[8]];
    // A run has three or more, as the model needs.
    check_sizes(&best(3, 0), &[("batch", 1..=8)], batches, |sizes| vec![vec![sizes[0], 4, 6]]);
    let options = batch(1..=8);
    let loaded = &load_one(&run(&best(3, 0), &options).unwrap().model, &options);
    let wrong = loaded.run(&[rows(&[2, 4, 6])]).unwrap_err().to_string();
    assert!(wrong.contains("3..=8"), "{wrong}");
}

#[test]
fn statements_along_an_open_axis_have_no_vectors() {
    // Elements are copied in vectors where the last axis is not open.
    let at = Constant::from_i64(&[1, 4, 1], &[0, 3, -1, 2]).unwrap();
    let values = Constant::from_f32(&[1, 4, 1], &[1.0, 2.0, 3.0, 4.0]).unwrap();
    check_batches(&of_x(13, |b| {
        b.initializer("at", &at)
            .initializer("values", &values)
            .node("Transpose", &["x"], &["t"], &[("perm", vec![1, 2, 0].into())])
            .node("Transpose", &["t"], &["u"], &[("perm", vec![1, 0, 2].into())])
            .node("ScatterElements", &["u", "at", "values"], &["y"], &[])
    }));
}

#[test]
fn there_may_be_as_many_boxes_as_there_are() {
    let constant = |dims: &[i64], value: f32| Constant::from_f32(dims, &[value]).unwrap();
    let (one, boxes) = (ModelDim::from(1), ModelDim::from("boxes"));
    let builder = ModelBuilder::new(13)
        .input("boxes", DType::F32, &[one.clone(), boxes.clone(), ModelDim::from(4)])
        .input("scores", DType::F32, &[one, ModelDim::from(2), boxes])
        .initializer("count", &Constant::from_i64(&[1], &[5]).unwrap())
        .initializer("share", &constant(&[1], 0.3))
        .node("NonMaxSuppression", &["boxes", "scores", "count", "share"], &["rows"], &[])
        .node("Cast", &["rows"], &["y"], &[("to", 1.into())])
        .output("y", DType::F32, &[ModelDim::Unknown, ModelDim::from(3)]);
    let runs: &[&[u64]] = &[&[1], &[2], &[7], &[64], &[200]];
    let shapes = |sizes: &[i64]| vec![vec![1, sizes[0], 4], vec![1, 2, sizes[0]]];
    check_sizes(&model(builder), &[("boxes", 1..=200)], runs, shapes);
}

#[test]
fn what_has_no_code_for_sizes_of_runs_is_an_error_that_names_the_node() {
    // How many rows of the image an element is made of depends on how many there are.
    let sizes = Constant::from_i64(&[3], &[10, 4, 6]).unwrap();
    let attrs = [("mode", "linear".into()), ("antialias", 1.into())];
    let resized = of_x(18, |b| {
        b.initializer("s", &sizes).node("Resize", &["x", "", "", "s"], &["y"], &attrs)
    });
    let report = run(&resized, &batch(200..=300)).unwrap_err().to_string();
    assert!(report.contains("node `y` (Resize") && report.contains("at run time"), "{report}");
    assert!(!report.contains("defect"), "{report}");
    // The same model is compiled where the size is known.
    run(&resized, &batch(300)).unwrap();
}

#[test]
fn rows_may_be_divided_and_looked_up() {
    let shape = Constant::from_i64(&[2], &[-1, 3]).unwrap();
    let sizes = [ModelDim::from("batch"), ModelDim::from(2)];
    let builder = ModelBuilder::new(13)
        .input("ids", DType::I64, &sizes)
        .initializer("table", &rows(&[5, 6]))
        .initializer("shape", &shape)
        .node("Gather", &["table", "ids"], &["rows"], &[])
        .node("Reshape", &["rows", "shape"], &["y"], &[])
        .output("y", DType::F32, &[ModelDim::Unknown, ModelDim::from(3)]);
    let model = model(builder);
    let options = batch(1..=6);
    let compiled = run(&model, &options).unwrap().model;
    assert_eq!(compiled.outputs[0].shape, [24, 3]);
    let ids = Constant::from_i64(&[3, 2], &[0, 4, 1, 3, 2, 2]).unwrap();
    let table = rows(&[5, 6]).to_f64_vec().unwrap();
    let expected: Vec<f64> =
        [0, 4, 1, 3, 2, 2].iter().flat_map(|&id| table[id * 6..][..6].to_vec()).collect();
    for loaded in load(&compiled, &options) {
        let found = loaded.run(std::slice::from_ref(&ids)).unwrap();
        assert_eq!(*found[0].ty(), TensorType::from_consts(&[12, 3], DType::F32));
        assert_eq!(found[0].to_f64_vec().unwrap(), expected);
    }
}

#[test]
fn a_batch_may_be_empty() {
    let options = batch(DimSize::RunTime { min: 0, max: 4 });
    for loaded in load(&run(&network(), &options).unwrap().model, &options) {
        let none = loaded.run(&[rows(&[0, 3, 9, 7]), rows(&[0, 1])]).unwrap();
        assert!(none.iter().all(|output| output.to_f64_vec() == Some(Vec::new())), "{none:?}");
        let two = loaded.run(&[rows(&[2, 3, 9, 7]), rows(&[2, 1])]).unwrap();
        assert!(two[0].to_f64_vec().unwrap().iter().any(|&value| value != 0.0));
    }
}

#[test]
fn a_batch_of_independent_images_needs_no_bound() {
    let options = batch(..);
    let compiled = run(&network(), &options).unwrap().model;
    let fixed = batch(40);
    let alone = run(&network(), &fixed).unwrap().model;
    assert_eq!(compiled.workspace_bytes, run(&network(), &batch(1)).unwrap().model.workspace_bytes);
    assert_eq!(compiled.macs * 40, alone.macs);
    let inputs = [rows(&[40, 3, 9, 7]), rows(&[40, 1])];
    let expected = load_one(&alone, &fixed).run(&inputs).unwrap();
    for loaded in load(&compiled, &options) {
        assert_eq!(loaded.run(&inputs).unwrap(), expected);
    }
    // Of layers with little work too.
    assert!(run(&dense_layers(), &options).unwrap().program.units.is_some());
}

#[test]
fn a_size_without_bound_whose_units_meet_is_refused() {
    let mean = ModelBuilder::new(13)
        .node("ReduceMean", &["x"], &["m"], &[("axes", vec![0].into())])
        .node("Sub", &["x", "m"], &["y"], &[]);
    let shape = [ModelDim::from("batch"), ModelDim::from(4)];
    let mean = model(mean.input("x", DType::F32, &shape).output("y", DType::F32, &shape));
    let report = run(&mean, &batch(2..)).unwrap_err().to_string();
    assert!(report.contains("dimension `batch` needs a greatest size"), "{report}");
    assert!(report.contains("depends on other units"), "{report}");
    assert!(report.contains("batch=2..=512"), "{report}");
}

#[test]
fn sizes_with_versions_of_their_own_have_the_results_of_any_size() {
    // Rows of attention's kind: a product, a softmax over the size, a product with it.
    let shape = [ModelDim::from("seq"), ModelDim::from(24)];
    let builder = ModelBuilder::new(17)
        .input("x", DType::F32, &shape)
        .initializer("w", &rows(&[24, 24]))
        .node("MatMul", &["x", "w"], &["q"], &[])
        .node("Transpose", &["q"], &["k"], &[("perm", vec![1, 0].into())])
        .node("MatMul", &["x", "k"], &["scores"], &[])
        .node("Softmax", &["scores"], &["weights"], &[])
        .node("MatMul", &["weights", "x"], &["y"], &[])
        .output("y", DType::F32, &shape);
    let model = model(builder);
    let with = |size: DimSize, backend| CompileOptions {
        dims: [("seq".to_owned(), size)].into(),
        backend,
        ..options()
    };
    for &backend in Backend::ALL {
        let [open, buckets] = [(1..=40).into(), [7, 16, 40].into()].map(|size| {
            let options = with(size, backend);
            let compiled = run(&model, &options).unwrap().model;
            (load(&compiled, &options), compiled)
        });
        let bytes =
            |model: &CompiledModel| model.objects.iter().map(|o| o.bytes.len()).sum::<usize>();
        assert!(bytes(&buckets.1) > bytes(&open.1));
        for size in [1, 6, 7, 8, 15, 16, 17, 39, 40] {
            let input = [rows(&[size, 24])];
            let expected = open.0[0].run(&input).unwrap();
            for loaded in &buckets.0 {
                assert_eq!(loaded.run(&input).unwrap(), expected, "{backend}, {size}");
            }
        }
    }
    let too_many: Vec<u64> = (1..=17).collect();
    for (size, message) in [
        (DimSize::from(too_many), "at most 16"),
        ([0, 4].into(), "dimension `seq` cannot be each of [0,4]"),
        (Vec::new().into(), "dimension `seq` cannot be each of []"),
    ] {
        let report = run(&model, &with(size, Backend::C)).unwrap_err().to_string();
        assert!(report.contains(message), "{report}");
    }
}

#[test]
fn a_size_that_no_input_has_is_an_error() {
    let dims = [("batch".to_owned(), (1..=2).into()), ("bach".to_owned(), (1..=2).into())];
    let report = run(&network(), &CompileOptions { dims: dims.into(), ..options() }).unwrap_err();
    assert!(report.to_string().contains("`bach`"), "{report}");
    for (min, max) in [(0, 0), (5, 4)] {
        let sizes = DimSize::RunTime { min, max };
        let report = run(&network(), &batch(sizes)).unwrap_err().to_string();
        assert!(report.contains("dimension `batch` cannot be"), "{report}");
    }
}
