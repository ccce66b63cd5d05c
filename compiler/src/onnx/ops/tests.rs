//! Tests of the import of single operators: the calls that each version becomes.

use super::*;
use crate::ir::{Constant, DType};
use crate::onnx::{ImportOptions, ModelAttr, ModelBuilder, ModelDim, import};

pub(super) type Attr<'a> = (&'a str, ModelAttr);

/// Imports one node, named `y`, whose inputs are declared by `model`. Returns the function's body.
pub(super) fn body(model: ModelBuilder, op: &str, inputs: &[&str], attrs: &[Attr<'_>]) -> String {
    let model = model.node(op, inputs, &["y"], attrs).output::<i64>("y", DType::F32, &[]);
    let mut model = model.build();
    // The data type of the output is not what these tests are about.
    if let Some(graph) = model.graph.as_mut() {
        graph.output[0].r#type = None;
    }
    match import(&model, None, &ImportOptions::default()) {
        Ok(imported) => {
            let text = imported.module.to_string();
            let start = text.find("{\n").map_or(0, |at| at + 2);
            let lines = text[start..].lines().map(str::trim).filter(|line| *line != "}");
            lines.collect::<Vec<_>>().join("\n")
        }
        Err(report) => {
            // The message without the node before it and the inputs after it.
            let message = &report.problems[0].message;
            message.rsplit_once(" (input").map_or(message.as_str(), |(text, _)| text).to_owned()
        }
    }
}

/// One input `x` of these extents.
pub(super) fn x(opset: i64, dims: &[i64]) -> ModelBuilder {
    ModelBuilder::new(opset).input("x", DType::F32, dims)
}

pub(super) fn unary(opset: i64, dims: &[i64], op: &str, attrs: &[Attr<'_>]) -> String {
    body(x(opset, dims), op, &["x"], attrs)
}

#[test]
fn convolutions_take_their_kernel_from_the_weights() {
    let model = |dims: &[i64], weight: &[i64]| {
        x(11, dims).input("w", DType::F32, weight).input("b", DType::F32, &weight[..1])
    };
    assert_eq!(
        body(
            model(&[1, 4, 9, 9], &[6, 2, 3, 5]),
            "Conv",
            &["x", "w", "b"],
            &[
                ("group", 2.into()),
                ("pads", [1, 2, 3, 4].into()),
                ("strides", [2, 1].into()),
                ("kernel_shape", [3, 5].into()),
            ]
        ),
        "nn.conv2d(%x, %w, %b, dilation=[1, 1], groups=2, padding=[1, 2, 3, 4], strides=[2, 1])"
    );
    assert_eq!(
        body(model(&[1, 4, 9], &[6, 4, 3]), "Conv", &["x", "w"], &[("dilations", [2].into())]),
        "nn.conv1d(%x, %w, _, dilation=[2], groups=1, padding=[0, 0], strides=[1])"
    );
    assert_eq!(
        body(
            model(&[1, 4, 9, 9], &[6, 4, 3, 3]),
            "Conv",
            &["x", "w"],
            &[("kernel_shape", [3, 1].into())]
        ),
        "attribute `kernel_shape` is [3, 1], but the weights have [3, 3]"
    );
    assert_eq!(
        body(model(&[1, 4], &[6, 4]), "Conv", &["x", "w"], &[]),
        "1 to 3 spatial dimensions are supported, but input 0 has the shape (1, 4)"
    );
}

#[test]
fn automatic_padding_is_resolved() {
    let pads = |dims: &[ModelDim], mode: &str, stride: i64| {
        let model = ModelBuilder::new(11).input("x", DType::F32, dims).input(
            "w",
            DType::F32,
            &[1, 1, 3, 4],
        );
        let attrs = [("auto_pad", mode.into()), ("strides", [stride, stride].into())];
        let text = body(model, "Conv", &["x", "w"], &attrs);
        let from = text.find("padding=").map(|at| at + 8);
        from.map_or(text.clone(), |from| text[from..].split_inclusive(']').next().unwrap().into())
    };
    let known = [1.into(), 1.into(), 8.into(), 8.into()];
    // Height 8, kernel 3, stride 1: 2 in all. Width 8, kernel 4: 3 in all, the odd one last.
    assert_eq!(pads(&known, "SAME_UPPER", 1), "[1, 1, 1, 2]");
    assert_eq!(pads(&known, "SAME_LOWER", 1), "[1, 2, 1, 1]");
    // Stride 3: 3 windows, which cover 9 of 8 rows and 10 of 8 columns.
    assert_eq!(pads(&known, "SAME_UPPER", 3), "[0, 1, 1, 1]");
    assert_eq!(pads(&known, "VALID", 3), "[0, 0, 0, 0]");
    let symbolic: [ModelDim; 4] = [1.into(), 1.into(), "h".into(), 8.into()];
    assert_eq!(pads(&symbolic, "SAME_UPPER", 1), "[1, 1, 1, 2]");
    // A run pads a height by as much as it takes.
    assert_eq!(pads(&symbolic, "SAME_UPPER", 2), "[0, 1, 0, 1]");
    assert!(pads(&known, "SAME", 1).starts_with("attribute `auto_pad` must be NOTSET"));
}

#[test]
fn pools_have_attributes_of_their_version() {
    let kernel = ("kernel_shape", ModelAttr::from([2, 2]));
    let dilated = [kernel.clone(), ("dilations", [2, 2].into())];
    assert_eq!(
        unary(12, &[1, 1, 8, 8], "MaxPool", &dilated),
        "nn.max_pool2d(%x, ceil_mode=false, dilation=[2, 2], padding=[0, 0, 0, 0], pool_size=[2, 2], strides=[1, 1])"
    );
    assert_eq!(
        unary(8, &[1, 1, 8, 8], "MaxPool", &dilated),
        "attribute `dilations` is not one of MaxPool at opset 8"
    );
    assert_eq!(
        unary(
            10,
            &[1, 1, 8, 8],
            "AveragePool",
            &[kernel.clone(), ("count_include_pad", 1.into()), ("ceil_mode", 1.into())]
        ),
        "nn.avg_pool2d(%x, ceil_mode=true, count_include_pad=true, dilation=[1, 1], padding=[0, 0, 0, 0], pool_size=[2, 2], strides=[1, 1])"
    );
    assert_eq!(
        unary(8, &[1, 1, 8, 8], "AveragePool", &[kernel.clone(), ("ceil_mode", 1.into())]),
        "attribute `ceil_mode` is not one of AveragePool at opset 7"
    );
    assert_eq!(
        unary(12, &[1, 1, 8], "MaxPool", &[("kernel_shape", [3].into())]),
        "nn.max_pool1d(%x, ceil_mode=false, dilation=[1], padding=[0, 0], pool_size=[3], strides=[1])"
    );
    assert_eq!(unary(12, &[1, 1, 8, 8], "MaxPool", &[]), "attribute `kernel_shape` is missing");
    assert_eq!(unary(12, &[1, 2, 4, 4], "GlobalAveragePool", &[]), "nn.global_avg_pool2d(%x)");
    assert_eq!(unary(12, &[1, 2, 4], "GlobalMaxPool", &[]), "max(%x, axis=[2], keepdims=true)");
}

#[test]
fn matrix_products_keep_constant_weights_as_they_are() {
    let gemm = |attrs: &[Attr<'_>], inputs: &[&str], b: &[i64]| {
        let model = x(13, &[2, 3]).input("b", DType::F32, b).input("c", DType::F32, &[4]);
        body(model, "Gemm", inputs, attrs)
    };
    assert_eq!(gemm(&[("transB", 1.into())], &["x", "b"], &[4, 3]), "nn.dense(%x, %b)");
    assert_eq!(
        gemm(&[("alpha", 0.5f32.into()), ("beta", 2f32.into())], &["x", "b", "c"], &[3, 4]),
        "%0 = nn.matmul(%x, %b, transpose_a=false, transpose_b=false);\n\
         %1 = multiply(%0, const(0.5, float32));\n\
         %2 = multiply(%c, const(2, float32));\n\
         add(%1, %2)"
    );
    // What is not read may be NaN.
    assert_eq!(
        gemm(&[("transB", 1.into()), ("beta", 0f32.into())], &["x", "b", "c"], &[4, 3]),
        "nn.dense(%x, %b)"
    );
    // The bias may not make the product larger.
    let model = x(13, &[1, 3]).input("b", DType::F32, &[3, 4]).input("c", DType::F32, &[2, 4]);
    assert_eq!(
        body(model, "Gemm", &["x", "b", "c"], &[]),
        "`C` must broadcast to the product's shape (1, 4), but it is (2, 4)"
    );
    let model = x(9, &[2, 3]).input("b", DType::F32, &[3, 4]);
    assert!(body(model, "Gemm", &["x", "b"], &[]).starts_with("input 2 is missing"));
}

#[test]
fn batch_normalisation_is_by_given_statistics_or_those_of_the_batch() {
    let model = |opset| {
        ["s", "b", "m", "v"]
            .iter()
            .fold(x(opset, &[1, 2, 3]), |model, name| model.input(name, DType::F32, &[2]))
    };
    let inputs = ["x", "s", "b", "m", "v"];
    assert_eq!(
        body(model(9), "BatchNormalization", &inputs, &[("momentum", 0.5f32.into())]),
        "%0 = nn.batch_norm(%x, %s, %b, %m, %v, axis=1, epsilon=9.999999747378752e-6);\n%0.0"
    );
    let training = body(model(14), "BatchNormalization", &inputs, &[("training_mode", 1.into())]);
    assert!(training.starts_with("%0 = mean(%x, axis=[0, 2], keepdims=true);\n"), "{training}");
    assert_eq!(
        body(model(7), "BatchNormalization", &inputs, &[("spatial", 0.into())]),
        "statistics for each element, `spatial` 0, are not supported"
    );
    assert_eq!(
        body(model(9), "BatchNormalization", &inputs, &[("spatial", 1.into())]),
        "attribute `spatial` is not one of BatchNormalization at opset 9"
    );
}

#[test]
fn dropout_drops_nothing() {
    let ratio = ("ratio", ModelAttr::Float(0.25));
    assert_eq!(
        unary(7, &[2], "Dropout", std::slice::from_ref(&ratio)),
        "%0 = nn.dropout(%x, rate=0.25);\n%0.0"
    );
    assert_eq!(
        unary(12, &[2], "Dropout", &[ratio]),
        "attribute `ratio` is not one of Dropout at opset 12"
    );
    // Training is another matter, but a ratio of 1 would leave nothing to scale up.
    let training = Constant::scalar(1.0, DType::Bool).unwrap();
    let all = Constant::scalar(1.0, DType::F32).unwrap();
    let model = x(13, &[2]).initializer("t", &training).initializer("r", &all);
    assert_eq!(
        body(model, "Dropout", &["x", "r", "t"], &[]),
        "input `ratio` must be from 0 up to but not 1, but it is 1"
    );
    // The mask has the type of the input until version 10.
    let mask = |opset| {
        let model = x(opset, &[2])
            .node("Dropout", &["x"], &["d", "mask"], &[])
            .output("mask", if opset < 10 { DType::F32 } else { DType::Bool }, &[2])
            .build();
        import(&model, None, &ImportOptions::default()).unwrap().outputs[0].ty.dtype
    };
    assert_eq!((mask(7), mask(10)), (DType::F32, DType::Bool));
}

#[test]
fn softmax_flattens_until_version_13() {
    assert_eq!(unary(13, &[2, 3, 4], "Softmax", &[]), "nn.softmax(%x, axis=2)");
    assert_eq!(unary(13, &[2, 3, 4], "Softmax", &[("axis", 1.into())]), "nn.softmax(%x, axis=1)");
    assert_eq!(
        unary(11, &[2, 3, 4], "LogSoftmax", &[]),
        "%0 = reshape(%x, newshape=[2, 12]);\n\
         %1 = nn.log_softmax(%0, axis=1);\n\
         reshape(%1, newshape=[2, 3, 4])"
    );
    // Nothing to flatten: the axes that follow have one element.
    assert_eq!(unary(7, &[1, 10, 1, 1], "Softmax", &[]), "nn.softmax(%x, axis=1)");
    assert_eq!(
        unary(13, &[2, 3], "Softmax", &[("axis", 2.into())]),
        "axis 2 is out of range for 2 dimensions"
    );
}

#[test]
fn normalisations_become_one_operator() {
    let model = x(17, &[2, 4]).input("g", DType::F32, &[4]);
    assert_eq!(
        body(model, "LayerNormalization", &["x", "g"], &[("epsilon", 0.5f32.into())]),
        "nn.layer_norm(%x, %g, _, axis=-1, epsilon=0.5)"
    );
    let model = x(11, &[1, 2, 4]).input("g", DType::F32, &[2]).input("b", DType::F32, &[2]);
    assert_eq!(
        body(model, "InstanceNormalization", &["x", "g", "b"], &[("epsilon", 0.5f32.into())]),
        "nn.instance_norm(%x, %g, %b, axis=1, epsilon=0.5)"
    );
    let model = x(21, &[1, 2, 4]).input("g", DType::F32, &[2]).input("b", DType::F32, &[2]);
    let groups = [("epsilon", 0.5f32.into()), ("num_groups", 1.into())];
    assert_eq!(
        body(model, "GroupNormalization", &["x", "g", "b"], &groups),
        "nn.group_norm(%x, %g, %b, axis=1, epsilon=0.5, num_groups=1)"
    );
    let model = x(18, &[1, 2, 4]).input("g", DType::F32, &[1]).input("b", DType::F32, &[1]);
    assert_eq!(
        body(model, "GroupNormalization", &["x", "g", "b"], &groups),
        "%0 = reshape(%g, newshape=[1, 1]);\n\
         %1 = broadcast_to(%0, shape=[1, 2]);\n\
         %2 = reshape(%1, newshape=[2]);\n\
         %3 = reshape(%b, newshape=[1, 1]);\n\
         %4 = broadcast_to(%3, shape=[1, 2]);\n\
         %5 = reshape(%4, newshape=[2]);\n\
         nn.group_norm(%x, %2, %5, axis=1, epsilon=0.5, num_groups=1)"
    );
    let model = x(23, &[2, 4]).input("g", DType::F32, &[4]);
    assert_eq!(
        body(model, "RMSNormalization", &["x", "g"], &[("epsilon", 0.5f32.into())]),
        "nn.rms_norm(%x, %g, axis=-1, epsilon=0.5)"
    );
    assert_eq!(
        unary(13, &[2, 4], "LpNormalization", &[("axis", 0.into())]),
        "nn.l2_normalize(%x, axis=[0], eps=1.1754943508222875e-38)"
    );
}

#[test]
fn activations_have_the_defaults_of_onnx() {
    assert_eq!(unary(13, &[2], "Relu", &[]), "nn.relu(%x)");
    assert_eq!(unary(13, &[2], "LeakyRelu", &[]), "nn.leaky_relu(%x, alpha=0.009999999776482582)");
    assert_eq!(unary(13, &[2], "Elu", &[("alpha", 2f32.into())]), "nn.elu(%x, alpha=2.0)");
    assert_eq!(
        unary(13, &[2], "HardSigmoid", &[]),
        "nn.hardsigmoid(%x, alpha=0.20000000298023224, beta=0.5)"
    );
    assert_eq!(unary(20, &[2], "Gelu", &[]), "nn.gelu(%x, approximate=\"none\")");
    assert_eq!(
        unary(20, &[2], "Gelu", &[("approximate", "tanh".into())]),
        "nn.gelu(%x, approximate=\"tanh\")"
    );
    assert_eq!(unary(19, &[2], "Gelu", &[]), "there is no operator Gelu in opset 19");
    assert_eq!(unary(24, &[2], "Swish", &[]), "%0 = sigmoid(%x);\nmultiply(%x, %0)");
    let slopes = x(9, &[1, 3, 2, 2]).input("s", DType::F32, &[3]);
    assert_eq!(
        body(slopes, "PRelu", &["x", "s"], &[]),
        "%0 = reshape(%s, newshape=[3, 1, 1]);\nnn.prelu(%x, %0)"
    );
}

#[test]
fn clip_moved_its_bounds_to_inputs() {
    assert_eq!(
        unary(7, &[2], "Clip", &[("min", 0f32.into()), ("max", 6f32.into())]),
        "clip(%x, max=6.0, min=0.0)"
    );
    let bound = |value: f64, dtype| Constant::scalar(value, dtype).unwrap();
    let model = x(11, &[2]).initializer("hi", &bound(6.0, DType::F32));
    assert_eq!(body(model, "Clip", &["x", "", "hi"], &[]), "clip(%x, max=6.0)");
    assert_eq!(
        unary(11, &[2], "Clip", &[("max", 6f32.into())]),
        "attribute `max` is not one of Clip at opset 11"
    );
    // A bound that is computed, and integers that no float holds.
    let model = x(11, &[2]).input::<i64>("lo", DType::F32, &[]);
    assert_eq!(body(model, "Clip", &["x", "lo"], &[]), "maximum(%x, %lo)");
    let model = ModelBuilder::new(12)
        .input("x", DType::I64, &[2])
        .initializer("lo", &bound(7.0, DType::I64));
    assert_eq!(body(model, "Clip", &["x", "lo"], &[]), "maximum(%x, const(7, int64))");
    assert_eq!(unary(13, &[2], "Clip", &[]), "%x");
}

#[test]
fn arithmetic_covers_mixed_types_and_any_number_of_inputs() {
    let model = || x(13, &[2]).input("i", DType::I32, &[2]);
    assert_eq!(
        body(model(), "Pow", &["x", "i"], &[]),
        "%0 = cast(%i, dtype=\"float32\");\npower(%x, %0)"
    );
    assert_eq!(
        body(model(), "Pow", &["i", "x"], &[]),
        "%0 = cast(%i, dtype=\"float64\");\n%1 = cast(%x, dtype=\"float64\");\n\
         %2 = power(%0, %1);\ncast(%2, dtype=\"int32\")"
    );
    assert_eq!(body(x(13, &[2]), "Sum", &["x", "x", "x"], &[]), "%0 = add(%x, %x);\nadd(%0, %x)");
    assert_eq!(
        body(x(13, &[2]), "Mean", &["x", "x"], &[]),
        "%0 = add(%x, %x);\ndivide(%0, const(2, float32))"
    );
    assert_eq!(unary(13, &[2], "Max", &[]), "%x");
    assert_eq!(body(model(), "Mod", &["i", "i"], &[]), "floor_mod(%i, %i)");
    assert_eq!(body(model(), "Mod", &["x", "x"], &[("fmod", 1.into())]), "mod(%x, %x)");
    assert_eq!(body(model(), "Mod", &["x", "x"], &[]), "attribute `fmod` must be 1 for floats");
    assert_eq!(
        body(model(), "Add", &["x", "i"], &[]).split(',').next(),
        Some("inputs `lhs` and `rhs` must have one data type")
    );
    assert_eq!(unary(13, &[2], "Cast", &[("to", 7.into())]), "cast(%x, dtype=\"int64\")");
    assert_eq!(unary(13, &[2], "Cast", &[("to", 1.into())]), "%x");
    assert_eq!(
        unary(13, &[2], "Cast", &[("to", 8.into())]),
        "elements of type string are not supported"
    );
    assert_eq!(
        unary(13, &[2], "Cast", &[("to", 7.into()), ("saturate", 1.into())]),
        "attribute `saturate` is not one of Cast at opset 13"
    );
}

#[test]
fn the_table_is_sorted_for_the_search() {
    assert!(TABLE.windows(2).all(|pair| pair[0].name < pair[1].name));
    assert!(TABLE.iter().all(|op| op.since.windows(2).all(|pair| pair[0] < pair[1])));
    assert!(TABLE.iter().all(|op| op.known.iter().all(|&index| index < op.inputs.1)));
}

#[test]
fn the_version_in_effect_is_the_newest_that_is_not_newer() {
    let gelu = find("", "Gelu", 20).unwrap().unwrap();
    assert_eq!(gelu.version(19), None);
    assert_eq!(gelu.version(25), Some(20));
    assert_eq!(find("", "Softmax", 12).unwrap().unwrap().version(12), Some(11));
    assert!(find("", "NoSuchOperator", 20).unwrap().is_none());
}
