//! Ranges with known scales, and graphs before and after.

use super::*;
use crate::onnx::{ModelBuilder, load_bytes};

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

fn error(model: ModelBuilder, skip: &[String]) -> String {
    let file = load_bytes(model.to_bytes()).unwrap();
    Quantizer::new(file, skip).unwrap_err().to_string()
}

#[test]
fn ranges_cover_zero_and_map_it_to_a_whole_step() {
    let range = Range::ZERO.cover(&[-1.0, 1.55]).unwrap();
    let (scale, zero) = range.asymmetric();
    assert!((f64::from(scale) - 0.01).abs() < 1e-8);
    assert_eq!(zero, 100);
    assert_eq!(Range::ZERO.cover(&[1.0, 2.0]).unwrap().asymmetric(), (2.0 / 255.0, 0));
    assert_eq!(Range::ZERO.asymmetric(), (1.0, 0));
    assert_eq!(Range::ZERO.cover(&[f64::NAN]), None);
}

#[test]
fn weights_have_a_scale_for_each_output_channel() {
    let quantizer = Quantizer::new(load_bytes(model().to_bytes()).unwrap(), &[]).unwrap();
    let ranges = [("x".to_owned(), Range { min: 0.0, max: 2.55 })].into();
    let graph = quantizer.quantized(&ranges).unwrap().proto.graph.unwrap();
    let constant = |name: &str| {
        let tensor = graph.initializer.iter().find(|tensor| tensor.name() == name).unwrap();
        constant_from_onnx(tensor, &mut ExternalData::none()).unwrap()
    };
    assert_eq!(constant("w_quantized").to_i64_vec().unwrap(), [127, 127, -64, 64]);
    assert_eq!(constant("w_scale"), f32s(&[2], &[1.27 / 127.0, 0.5 / 127.0]));
    assert_eq!(constant("b_quantized").to_i64_vec().unwrap(), [10_000, -25_400]);
    let ops: Vec<&str> = graph.node.iter().map(NodeProto::op_type).collect();
    let dequantize = "DequantizeLinear";
    assert_eq!(ops, ["QuantizeLinear", dequantize, dequantize, dequantize, "Gemm"]);
    assert!(graph.initializer.iter().all(|tensor| !["w", "b"].contains(&tensor.name())));
}

#[test]
fn what_cannot_be_quantised_is_told() {
    let skip = ["Gemm".to_owned()];
    assert!(error(model(), &skip).starts_with("there is nothing to quantise"));
    let skip = ["none".to_owned()];
    assert!(error(model(), &skip).starts_with("--skip none: the model has no such node"));
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
    let folded = |second_use| {
        let file = load_bytes(build(second_use).to_bytes()).unwrap();
        Quantizer::new(file, &[]).unwrap()
    };
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
