//! Attention of sequences whose lengths a run says.

use super::*;

/// `(1, 2, length, 4)`: the queries, keys or values of two heads.
fn heads(length: &str) -> [ModelDim; 4] {
    [ModelDim::from(1), ModelDim::from(2), ModelDim::from(length), ModelDim::from(4)]
}

/// A model with queries, keys and values of a length, what is read beside them, and outputs.
fn of_heads(
    inputs: &[&str],
    outputs: &[&str],
    attrs: &[(&str, ModelAttr)],
    build: impl FnOnce(ModelBuilder) -> ModelBuilder,
) -> Model {
    let mut builder = ModelBuilder::new(23);
    for name in ["q", "k", "v"] {
        builder = builder.input(name, DType::F32, &heads("t"));
    }
    builder = build(builder).node("Attention", inputs, outputs, attrs);
    for output in outputs {
        builder = builder.output(output, DType::F32, &[const { ModelDim::Unknown }; 4]);
    }
    model(builder)
}

/// The shape of [`heads`].
fn of_length(length: i64) -> Vec<i64> {
    vec![1, 2, length, 4]
}

#[test]
fn causal_attention_and_masks_are_of_any_length() {
    let square = [ModelDim::from("t"), ModelDim::from("t")];
    let causal = [("is_causal", 1.into())];
    let of_floats =
        of_heads(&["q", "k", "v", "m"], &["y"], &[], |b| b.input("m", DType::F32, &square));
    let of_bools = of_heads(&["q", "k", "v", "kept"], &["y"], &causal, |b| {
        let zero = Constant::from_f32(&[], &[0.0]).unwrap();
        let b = b.input("m", DType::F32, &square).initializer("zero", &zero);
        b.node("Less", &["m", "zero"], &["kept"], &[])
    });
    let runs: &[&[u64]] = &[&[1], &[4], &[9]];
    let of_three = |t: i64| vec![of_length(t); 3];
    let alone = of_heads(&["q", "k", "v"], &["y"], &causal, |b| b);
    check_sizes(&alone, &[("t", 1..=9)], runs, |sizes| of_three(sizes[0]));
    for model in [of_floats, of_bools] {
        check_sizes(&model, &[("t", 1..=9)], runs, |sizes| {
            [of_three(sizes[0]), vec![vec![sizes[0], sizes[0]]]].concat()
        });
    }
}

/// Attention packs keys and values from the rows that heads are parts of. Behind the rows of a run,
/// there may be none to be read.
#[test]
fn heads_are_read_from_rows_of_any_number() {
    let rows = [ModelDim::from("b"), ModelDim::from("t"), ModelDim::from(48)];
    let parts = Constant::from_i64(&[4], &[0, 0, 3, 16]).unwrap();
    let mut builder = ModelBuilder::new(17).initializer("parts", &parts);
    for (name, order) in [("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])] {
        let [split, moved] = ["split", "moved"].map(|what| format!("{name}_{what}"));
        builder = builder
            .input(name, DType::F32, &rows)
            .node("Reshape", &[name, "parts"], &[&split], &[])
            .node("Transpose", &[&split], &[&moved], &[("perm", order.to_vec().into())]);
    }
    let builder = builder
        .node("MatMul", &["q_moved", "k_moved"], &["s"], &[])
        .node("Softmax", &["s"], &["w"], &[("axis", (-1).into())])
        .node("MatMul", &["w", "v_moved"], &["y"], &[])
        .output("y", DType::F32, &[const { ModelDim::Unknown }; 4]);
    let runs: &[&[u64]] = &[&[1, 1], &[3, 2], &[2, 17], &[3, 37], &[3, 40]];
    check_sizes(&model(builder), &[("b", 1..=3), ("t", 1..=40)], runs, |sizes| {
        vec![vec![sizes[0], sizes[1], 48]; 3]
    });
}

#[test]
fn keys_of_before_are_as_many_as_a_run_says() {
    let outputs = ["y", "present_k", "present_v"];
    let with_past = |inputs: &[&str], keys: Option<&str>| {
        of_heads(inputs, &outputs, &[("is_causal", 1.into())], |mut b| {
            if let Some(keys) = keys {
                b = b.input("m", DType::F32, &[ModelDim::from("t"), ModelDim::from(keys)]);
            }
            b.input("past_k", DType::F32, &heads("p")).input("past_v", DType::F32, &heads("p"))
        })
    };
    let runs: &[&[u64]] = &[&[0, 2], &[0, 3], &[5, 2], &[7, 3]];
    let dims = [("p", 0..=7), ("t", 2..=3)];
    // The mask knows all keys, or only as many as are new.
    let masked = ["q", "k", "v", "m", "past_k", "past_v"];
    for (keys, width) in [(None, 0), (Some("all"), 1), (Some("t"), 0)] {
        let inputs = if keys.is_some() { masked } else { ["q", "k", "v", "", "past_k", "past_v"] };
        let model = with_past(&inputs, keys);
        check_sizes(&model, &dims, runs, |sizes| {
            let (p, t) = (sizes[0], sizes[1]);
            let mut shapes = vec![of_length(t); 3];
            shapes.extend(keys.map(|_| vec![t, t + width * p]));
            [shapes, vec![of_length(p); 2]].concat()
        });
    }
    let open = dims.map(|(name, _)| (name.to_owned(), (0..=3).into()));
    let open = CompileOptions { dims: open.into(), ..options() };
    let report = run(&with_past(&masked, Some("t")), &open).unwrap_err().to_string();
    assert!(report.contains("the mask knows t of p + t keys"), "{report}");
}

/// An operator of ONNX Runtime's with the input `x`, `(b, t, 8)`, and a mask of integers that is made
/// of `m`, `(b, t)`.
fn of_rows(op: &str, inputs: &[&str], attrs: &[(&str, ModelAttr)]) -> Model {
    let (b, t) = (ModelDim::from("b"), ModelDim::from("t"));
    let builder = ModelBuilder::new(17)
        .opset("com.microsoft", 1)
        .input("x", DType::F32, &[b.clone(), t.clone(), ModelDim::from(8)])
        .input("m", DType::F32, &[b, t])
        .initializer("w", &rows(&[8, 24]))
        .initializer("zero", &Constant::from_f32(&[], &[0.0]).unwrap())
        .node("Less", &["m", "zero"], &["kept"], &[])
        .node("Cast", &["kept"], &["mask"], &[("to", 6.into())])
        .node("ReduceSum", &["mask", "last"], &["ends"], &[("keepdims", 0.into())])
        .ints("last", &[1])
        .node_in("com.microsoft", op, inputs, &["y"], attrs)
        .output("y", DType::F32, &[const { ModelDim::Unknown }; 3]);
    model(builder)
}

#[test]
fn attention_of_onnx_runtime_is_of_any_size() {
    let count = ("num_heads", 2.into());
    let causal = [count.clone(), ("unidirectional", 1.into())];
    let runs: &[&[u64]] = &[&[1, 1], &[2, 4], &[3, 9]];
    for model in [
        of_rows("MultiHeadAttention", &["x", "x", "x"], std::slice::from_ref(&count)),
        of_rows("MultiHeadAttention", &["x", "x", "x", "", "mask"], &causal),
        of_rows("Attention", &["x", "w", "", "mask"], &causal),
        of_rows("Attention", &["x", "w", "", "ends"], &[count]),
    ] {
        check_sizes(&model, &[("b", 1..=3), ("t", 1..=9)], runs, |sizes| {
            vec![vec![sizes[0], sizes[1], 8], sizes.to_vec()]
        });
    }
}

/// As decoders are exported: the mask says how long sequences are, the keys of before are inputs.
#[test]
fn a_buffer_of_keys_grows_with_what_a_run_says() {
    let rows_of = |width: i64| {
        ["b", "t", "w"].map(ModelDim::from).map(|dim| match dim {
            dim if dim == ModelDim::from("w") => ModelDim::from(width),
            dim => dim,
        })
    };
    let past = ["b", "", "p", ""].map(|name| match name {
        "" => ModelDim::from(4),
        name => ModelDim::from(name),
    });
    let past = [past[0].clone(), ModelDim::from(1), past[2].clone(), past[3].clone()];
    let mask = [ModelDim::from("b"), ModelDim::from("all")];
    let inputs = ["q", "k", "v", "past_k", "past_v", "ends", "total"];
    let heads = [("num_heads", 2.into()), ("kv_num_heads", 1.into())];
    let builder = ModelBuilder::new(17)
        .opset("com.microsoft", 1)
        .input("q", DType::F32, &rows_of(8))
        .input("k", DType::F32, &rows_of(4))
        .input("v", DType::F32, &rows_of(4))
        .input("past_k", DType::F32, &past)
        .input("past_v", DType::F32, &past)
        .input("mask", DType::F32, &mask)
        .initializer("least", &Constant::from_f32(&[], &[-0.5]).unwrap())
        .initializer("one", &Constant::scalar(1.0, DType::I32).unwrap())
        .ints("last", &[1])
        .node("GreaterOrEqual", &["mask", "least"], &["kept"], &[])
        .node("Cast", &["kept"], &["bits"], &[("to", 6.into())])
        .node("ReduceSum", &["bits", "last"], &["lengths"], &[("keepdims", 0.into())])
        .node("Sub", &["lengths", "one"], &["ends"], &[])
        .node("Shape", &["mask"], &["shape"], &[])
        .node("Gather", &["shape", "last"], &["whole"], &[])
        .node("Squeeze", &["whole"], &["long"], &[])
        .node("Cast", &["long"], &["total"], &[("to", 6.into())])
        .node_in("com.microsoft", "GroupQueryAttention", &inputs, &["y", "nk", "nv"], &heads)
        .output("y", DType::F32, &[const { ModelDim::Unknown }; 3])
        .output("nk", DType::F32, &[const { ModelDim::Unknown }; 4])
        .output("nv", DType::F32, &[const { ModelDim::Unknown }; 4]);
    let model = model(builder);
    // The first are prompts, of which the mask leaves something out.
    let runs: &[&[u64]] = &[&[5, 1, 0, 5], &[4, 2, 0, 4], &[8, 2, 7, 1], &[4, 2, 2, 2]];
    let dims = [("all", 1..=9), ("b", 1..=2), ("p", 0..=9), ("t", 1..=5)];
    check_sizes(&model, &dims, runs, |sizes| {
        let &[all, b, p, t] = sizes else { panic!("four sizes") };
        let new = [8, 4, 4].map(|width| vec![b, t, width]);
        [new.to_vec(), vec![vec![b, 1, p, 4]; 2], vec![vec![b, all]]].concat()
    });
}

#[test]
fn embeddings_of_places_are_as_many_as_a_run_says() {
    let ids = [ModelDim::from("b"), ModelDim::from("t")];
    let inputs = ["ids", "", "words", "places", "", "scale", "shift", "ones"];
    let builder = ModelBuilder::new(17)
        .opset("com.microsoft", 1)
        .input("x", DType::F32, &ids)
        .initializer("words", &rows(&[4, 8]))
        .initializer("places", &rows(&[16, 8]))
        .initializer("scale", &rows(&[8]))
        .initializer("shift", &rows(&[8]))
        .node("Abs", &["x"], &["positive"], &[])
        .node("Cast", &["positive"], &["ids"], &[("to", 6.into())])
        .node("Ceil", &["positive"], &["up"], &[])
        .node("Cast", &["up"], &["ones"], &[("to", 6.into())])
        .node_in("com.microsoft", "EmbedLayerNormalization", &inputs, &["y", "counts"], &[])
        .node("Cast", &["counts"], &["z"], &[("to", 1.into())])
        .output("y", DType::F32, &[const { ModelDim::Unknown }; 3])
        .output("z", DType::F32, &[ModelDim::Unknown]);
    let runs: &[&[u64]] = &[&[1, 1], &[2, 5], &[3, 16]];
    check_sizes(&model(builder), &[("b", 1..=3), ("t", 1..=16)], runs, |s| vec![s.to_vec()]);
}
