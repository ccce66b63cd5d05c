//! Ranges with known scales, and graphs before and after.

use super::*;
use crate::onnx::proto::TensorProto;
use crate::onnx::{ModelAttr, ModelBuilder, load_bytes};

fn f32s(dims: &[i64], values: &[f32]) -> Constant {
    Constant::from_f32(dims, values).unwrap()
}

fn model() -> ModelBuilder {
    ModelBuilder::new(13)
        .input("x", DType::F32, &[1, 2])
        .initializer("w", &f32s(&[2, 2], &[1.27, 0.5, -0.635, 0.25]))
        .initializer("b", &f32s(&[2], &[1.0, -1.0]))
        .node("Gemm", &["x", "w", "b"], &["y"], &[])
        .output("y", DType::F32, &[1, 2])
}

fn quantizer(model: ModelBuilder, method: Method) -> Quantizer {
    Quantizer::new(load_bytes(model.to_bytes()).unwrap(), method, &[], &[]).unwrap()
}

fn error(model: ModelBuilder, skip: &[String]) -> String {
    let file = load_bytes(model.to_bytes()).unwrap();
    Quantizer::new(file, Method::Static, skip, &[]).unwrap_err().to_string()
}

fn constant(graph: &GraphProto, name: &str) -> Constant {
    let tensor = graph.initializer.iter().find(|tensor| tensor.name() == name).unwrap();
    constant_from_onnx(tensor, &mut ExternalData::none()).unwrap()
}

/// The operators of the graph that a method makes of a model, with the names of their operands and
/// results.
fn nodes(graph: &GraphProto) -> Vec<String> {
    let text = |node: &NodeProto| {
        format!("{} = {}({})", node.output.join(", "), node.op_type(), node.input.join(", "))
    };
    graph.node.iter().map(text).collect()
}

#[test]
fn ranges_cover_zero_and_map_it_to_a_whole_step() {
    let range = Range::ZERO.cover(&[-1.0, 1.55]).unwrap();
    let Affine { scale, zero_point } = range.asymmetric();
    assert!((f64::from(scale) - 0.01).abs() < 1e-8);
    assert_eq!(zero_point, 100);
    assert_eq!(range.symmetric(), Affine { scale: 1.55 / 127.0, zero_point: 128 });
    let positive = Range::ZERO.cover(&[1.0, 2.0]).unwrap();
    assert_eq!(positive.asymmetric(), Affine { scale: 2.0 / 255.0, zero_point: 0 });
    assert_eq!(Range::ZERO.asymmetric(), Affine { scale: 1.0, zero_point: 0 });
    assert_eq!(Range::ZERO.cover(&[f64::NAN]), None);
}

#[test]
fn weights_have_a_scale_for_each_output_channel() {
    let quantizer = quantizer(model(), Method::Static);
    let scales = [("x".to_owned(), Range { min: 0.0, max: 2.55 }.asymmetric())].into();
    let graph = quantizer.quantized(&scales).unwrap().file.proto.graph.unwrap();
    let constant = |name| constant(&graph, name);
    assert_eq!(constant("w_quantized").to_i64_vec().unwrap(), [127, 127, -64, 64]);
    assert_eq!(constant("w_scale"), f32s(&[2], &[1.27 / 127.0, 0.5 / 127.0]));
    assert_eq!(constant("b_quantized").to_i64_vec().unwrap(), [10_000, -25_400]);
    let ops: Vec<&str> = graph.node.iter().map(NodeProto::op_type).collect();
    let dequantize = "DequantizeLinear";
    assert_eq!(ops, ["QuantizeLinear", dequantize, dequantize, dequantize, "Gemm"]);
    assert!(graph.initializer.iter().all(|tensor| !["w", "b"].contains(&tensor.name())));
}

#[test]
fn initializers_that_are_listed_as_inputs_are_weights() {
    let listed = model().ir_version(3).input("w", DType::F32, &[2, 2]).input("b", DType::F32, &[2]);
    let Quantized { file, .. } = quantizer(listed, Method::Float16).quantized(&[].into()).unwrap();
    assert_eq!(file.proto.ir_version, Some(4));
    let graph = file.proto.graph.unwrap();
    assert_eq!(graph.input.iter().map(ValueInfoProto::name).collect::<Vec<_>>(), ["x"]);
    let half = |tensor: &TensorProto| tensor.data_type == Some(DataType::Float16 as i32);
    assert_eq!(graph.initializer.len(), 2);
    assert!(graph.initializer.iter().all(half));
}

#[test]
fn what_cannot_be_quantised_is_told() {
    let skip = ["Gemm".to_owned()];
    assert!(error(model(), &skip).starts_with("there is nothing to quantise"));
    let skip = ["none".to_owned()];
    assert!(
        error(model(), &skip).starts_with("none is to be skipped, but the model has no such node")
    );
    let old = ModelBuilder::new(12).node("Relu", &["x"], &["y"], &[]);
    assert!(error(old, &[]).starts_with("the model uses operator set 12, but"));
    let quantised = model().node("QLinearMatMul", &["x"], &["z"], &[]);
    assert!(error(quantised, &[]).starts_with("the model is quantised already: `z` is"));
}

#[test]
fn batch_norm_is_folded_into_a_convolution_that_nothing_else_reads() {
    let build = |second_use: bool| {
        let builder = ModelBuilder::new(13)
            .input("x", DType::F32, &[1, 1, 1, 1])
            .initializer("w", &f32s(&[1, 1, 1, 1], &[2.0]))
            .initializer("gamma", &f32s(&[1], &[3.0]))
            .initializer("beta", &f32s(&[1], &[5.0]))
            .initializer("mean", &f32s(&[1], &[1.0]))
            .initializer("var", &f32s(&[1], &[4.0]))
            .node("Conv", &["x", "w"], &["c"], &[])
            .node(
                "BatchNormalization",
                &["c", "gamma", "beta", "mean", "var"],
                &["y"],
                &[("epsilon", ModelAttr::Float(0.0))],
            )
            .output("y", DType::F32, &[1, 1, 1, 1]);
        match second_use {
            true => builder.output("c", DType::F32, &[1, 1, 1, 1]),
            false => builder,
        }
    };
    let folded = |second_use| quantizer(build(second_use), Method::Static);
    let quantizer = folded(false);
    let graph = quantizer.float_model().proto.graph.as_ref().unwrap();
    assert_eq!(graph.node.len(), 1);
    assert_eq!(graph.node[0].output, ["y"]);
    // 3 / sqrt(4) · (2x − 1) + 5
    assert_eq!(quantizer.constants["w"], f32s(&[1, 1, 1, 1], &[3.0]));
    assert_eq!(quantizer.constants["beta"], f32s(&[1], &[3.5]));
    let names: Vec<&str> = graph.initializer.iter().map(|tensor| tensor.name()).collect();
    assert_eq!(names, ["w", "beta"]);
    assert_eq!(folded(true).float_model().proto.graph.as_ref().unwrap().node.len(), 2);
}

#[test]
fn dynamic_products_are_of_bytes_and_scaled_by_run_and_channel() {
    let quantized = quantizer(model(), Method::Dynamic).quantized(&BTreeMap::new()).unwrap();
    let graph = quantized.file.proto.graph.unwrap();
    assert_eq!(
        nodes(&graph),
        [
            "x_quantized, x_scale, x_zero_point = DynamicQuantizeLinear(x)",
            "y_MatMulInteger = MatMulInteger(x_quantized, w_quantized, x_zero_point, w_zero_point)",
            "y_Cast = Cast(y_MatMulInteger)",
            "y_Mul = Mul(x_scale, w_scale)",
            "y_Mul_2 = Mul(y_Cast, y_Mul)",
            "y = Add(y_Mul_2, b)",
        ]
    );
    assert_eq!(constant(&graph, "w_quantized").to_i64_vec().unwrap(), [255, 255, 64, 192]);
    assert_eq!(constant(&graph, "w_zero_point").to_i64_vec().unwrap(), [128]);
    assert!(graph.initializer.iter().all(|tensor| tensor.name() != "w"));
}

#[test]
fn dynamic_convolutions_have_scales_and_biases_of_channels() {
    let model = ModelBuilder::new(13)
        .input("x", DType::F32, &[1, 1, 4, 4])
        .initializer("w", &f32s(&[2, 1, 1, 1], &[1.27, -2.54]))
        .initializer("b", &f32s(&[2], &[1.0, -1.0]))
        .node("Conv", &["x", "w", "b"], &["y"], &[("strides", [2, 2].into())])
        .output("y", DType::F32, &[1, 2, 2, 2]);
    let quantized = quantizer(model, Method::Dynamic).quantized(&BTreeMap::new()).unwrap();
    let graph = quantized.file.proto.graph.unwrap();
    let ops: Vec<&str> = graph.node.iter().map(NodeProto::op_type).collect();
    let expected = ["DynamicQuantizeLinear", "ConvInteger", "Cast", "Mul", "Mul", "Reshape", "Add"];
    assert_eq!(ops, expected);
    assert_eq!(attribute(&graph.node[1], "strides").unwrap().ints, [2, 2]);
    assert_eq!(constant(&graph, "w_scale"), f32s(&[2, 1, 1], &[0.01, 2.54 / 127.0]));
    assert_eq!(constant(&graph, "b_shape").to_i64_vec().unwrap(), [2, 1, 1]);
}

#[test]
fn weights_alone_are_dequantised_for_every_reader_once() {
    let model = model()
        .node("Gemm", &["x", "w"], &["z"], &[("alpha", ModelAttr::Float(0.5))])
        .output("z", DType::F32, &[1, 2]);
    let quantized = quantizer(model, Method::Weights8).quantized(&BTreeMap::new()).unwrap();
    let graph = quantized.file.proto.graph.unwrap();
    let dequantized = "w_DequantizeLinear";
    assert_eq!(
        nodes(&graph),
        [
            format!("{dequantized} = DequantizeLinear(w_quantized, w_scale, w_zero_point)"),
            format!("y = Gemm(x, {dequantized}, b)"),
            format!("z = Gemm(x, {dequantized})"),
        ]
    );
}

#[test]
fn four_bits_have_a_scale_and_a_zero_point_for_each_block_of_a_column() {
    // Two columns of 33 rows: the second block of each has one element.
    let mut values: Vec<f32> = (0..66).map(|at| (at / 2 % 16) as f32).collect();
    (values[64], values[65]) = (-3.0, 6.0);
    let model = ModelBuilder::new(13)
        .input("x", DType::F32, &[1, 33])
        .initializer("w", &f32s(&[33, 2], &values))
        .node("MatMul", &["x", "w"], &["y"], &[])
        .output("y", DType::F32, &[1, 2]);
    let quantized = quantizer(model, Method::Weights4).quantized(&BTreeMap::new()).unwrap();
    let proto = quantized.file.proto;
    assert!(proto.opset_import.iter().any(|set| set.domain() == "com.microsoft"));
    let graph = proto.graph.unwrap();
    assert_eq!(nodes(&graph), ["y = MatMulNBits(x, w_packed, w_scale, w_zero_point)"]);
    assert_eq!(constant(&graph, "w_scale"), f32s(&[2, 2], &[1.0, 0.2, 1.0, 0.4]));
    assert_eq!(constant(&graph, "w_zero_point").to_i64_vec().unwrap(), [0xf0, 0x00]);
    let packed = constant(&graph, "w_packed");
    assert_eq!(packed.ty().shape.as_consts().unwrap(), [2, 2, 16]);
    let bytes = packed.to_i64_vec().unwrap();
    assert_eq!(bytes[..4], [0x10, 0x32, 0x54, 0x76]);
    // -3 is 0 steps, what lies beyond the matrix 15, which stand for 0; of 6 it is 15 and 0.
    assert_eq!([bytes[16], bytes[17], bytes[48], bytes[49]], [0xf0, 0xff, 0x0f, 0]);
}

#[test]
fn float16_has_casts_at_the_border_and_around_what_stays() {
    let model = ModelBuilder::new(13)
        .input("x", DType::F32, &[1, 2])
        .initializer("w", &f32s(&[2, 2], &[1.0, 1e-9, -1e6, 0.1]))
        .node("MatMul", &["x", "w"], &["h"], &[])
        .node("Relu", &["h"], &["r"], &[])
        .node_in("custom", "Scale", &["r"], &["s"], &[])
        .node("Shape", &["r"], &["n"], &[])
        .node("Reshape", &["r", "n"], &["y"], &[])
        .output("y", DType::F32, &[1, 2])
        .output("s", DType::F32, &[1, 2]);
    let quantized = quantizer(model, Method::Float16).quantized(&BTreeMap::new()).unwrap();
    let remark = "initializer `w`: 1 of its numbers are beyond ±65504";
    assert!(quantized.remarks.len() == 1 && quantized.remarks[0].starts_with(remark));
    assert_eq!((quantized.name_of("h"), quantized.name_of("r")), ("h_float16", "r"));
    let graph = quantized.file.proto.graph.unwrap();
    assert_eq!(
        nodes(&graph),
        [
            "x_float16 = Cast(x)",
            "h_float16 = MatMul(x_float16, w_float16)",
            "r_float16 = Relu(h_float16)",
            "r = Cast(r_float16)",
            "s = Scale(r)",
            "n = Shape(r)",
            "y_float16 = Reshape(r_float16, n)",
            "y = Cast(y_float16)",
        ]
    );
    let values = constant(&graph, "w_float16").to_f64_vec().unwrap();
    assert_eq!((values[0], values[1], values[2]), (1.0, 2f64.powi(-24), -65504.0));
    assert!((values[3] - 0.1).abs() < 1e-4);
    assert!(graph.initializer.iter().all(|tensor| tensor.name() != "w"));
}

#[test]
fn float16_leaves_integers_and_what_is_skipped_alone() {
    let model = ModelBuilder::new(13)
        .input("x", DType::F32, &[1, 2])
        .input("i", DType::I64, &[1, 2])
        .node("Add", &["i", "i"], &["j"], &[])
        .node("Gather", &["x", "j"], &["g"], &[("axis", 1i64.into())])
        .node("Exp", &["g"], &["e"], &[])
        .output("e", DType::F32, &[1, 1, 2]);
    let file = load_bytes(model.to_bytes()).unwrap();
    let quantizer = Quantizer::new(file, Method::Float16, &["Exp".to_owned()], &[]).unwrap();
    let graph = quantizer.quantized(&BTreeMap::new()).unwrap().file.proto.graph.unwrap();
    let expected = [
        "j = Add(i, i)",
        "x_float16 = Cast(x)",
        "g_float16 = Gather(x_float16, j)",
        "g = Cast(g_float16)",
        "e = Exp(g)",
    ];
    assert_eq!(nodes(&graph), expected);
}

#[test]
fn rows_that_are_looked_up_are_bytes_with_a_scale_each() {
    // Each row has steps of its own: hundredths of its number.
    let (rows, columns) = (130, 128);
    let value = |at: usize| (at % columns) as f32 * 0.01 * (1 + at / columns) as f32;
    let table: Vec<f32> = (0..rows * columns).map(value).collect();
    let model = |rows: i64| {
        ModelBuilder::new(13)
            .input("words", DType::I64, &[5])
            .initializer("table", &f32s(&[rows, 128], &table[..rows as usize * columns]))
            .initializer("w", &f32s(&[128, 1], &[1.0; 128]))
            .node("Gather", &["table", "words"], &["x"], &[])
            .node("MatMul", &["x", "w"], &["y"], &[])
            .output("y", DType::F32, &[5, 1])
    };
    for method in [Method::Weights8, Method::Weights4, Method::Dynamic, Method::Static] {
        let quantizer = quantizer(model(130), method);
        let activations = if method == Method::Static { &["x"][..] } else { &[] };
        assert_eq!(quantizer.activations(), activations.iter().copied().collect());
        let scales = [("x".to_owned(), Range { min: 0.0, max: 1.0 }.asymmetric())].into();
        let graph = quantizer.quantized(&scales).unwrap().file.proto.graph.unwrap();
        let looked_up = [
            "x_Gather = Gather(table_quantized, words)",
            "x_Gather_2 = Gather(table_scale, words)",
            "x_Cast = Cast(x_Gather)",
            "x = Mul(x_Cast, x_Gather_2)",
        ];
        assert_eq!(nodes(&graph)[..4], looked_up, "{}", method.name());
        let bytes = constant(&graph, "table_quantized");
        assert_eq!(bytes.ty().dtype, DType::I8);
        assert_eq!(bytes.to_i64_vec().unwrap()[128..256], (0..128).collect::<Vec<_>>()[..]);
        assert_eq!(constant(&graph, "table_scale").ty().shape.as_consts().unwrap(), [130, 1]);
        assert!(graph.initializer.iter().all(|t| t.name() != "table"));
    }
    // A small table stays.
    let small = quantizer(model(127), Method::Weights8);
    assert_eq!(small.sites().iter().map(|site| site.op.as_str()).collect::<Vec<_>>(), ["MatMul"]);
}

#[test]
fn pools_of_what_is_quantised_read_bytes_if_samples_give_ranges() {
    let model = |pool: &str| {
        ModelBuilder::new(13)
            .input("x", DType::F32, &[1, 1, 2, 2])
            .initializer("w", &f32s(&[1, 1, 1, 1], &[1.0]))
            .node("Conv", &["x", "w"], &["c"], &[])
            .node("Relu", &["c"], &["r"], &[])
            .node(pool, &["r"], &["y"], &[])
            .output("y", DType::F32, &[1, 1, 1, 1])
    };
    let ops = |quantizer: &Quantizer| -> Vec<String> {
        quantizer.sites().iter().map(|site| site.op.clone()).collect()
    };
    let pooled = quantizer(model("GlobalAveragePool"), Method::Static);
    assert_eq!(ops(&pooled), ["Conv", "GlobalAveragePool"]);
    assert_eq!(pooled.activations(), ["r", "x"].into());
    let scale = Affine { scale: 0.5, zero_point: 0 };
    let scales = ["r", "x"].map(|name| (name.to_owned(), scale)).into();
    let graph = pooled.quantized(&scales).unwrap().file.proto.graph.unwrap();
    let expected = [
        "r_QuantizeLinear = QuantizeLinear(r, r_scale, r_zero_point)",
        "r_DequantizeLinear = DequantizeLinear(r_QuantizeLinear, r_scale, r_zero_point)",
        "y = GlobalAveragePool(r_DequantizeLinear)",
    ];
    assert_eq!(nodes(&graph)[5..], expected);
    // Greatest elements are bytes if their operands are; nothing tells of a result of no quantised operator.
    assert_eq!(ops(&quantizer(model("GlobalMaxPool"), Method::Static)), ["Conv"]);
    assert_eq!(ops(&quantizer(model("GlobalAveragePool"), Method::Weights8)), ["Conv"]);
    let other = model("Sigmoid").node("GlobalAveragePool", &["y"], &["z"], &[]);
    assert_eq!(ops(&quantizer(other, Method::Static)), ["Conv"]);
}
