//! Dynamic quantisation: activations become integers while the model runs.
//!
//! As ONNX Runtime's `quantize_dynamic` writes it, `DynamicQuantizeLinear` of the activations,
//! `MatMulInteger` or `ConvInteger` with constant weights, and the product of its sums with both
//! scales. Weights have a scale for each output channel, and the zero point 128.

use super::weights::Channels;
use super::{Quantizer, Site, Writer};
use crate::ir::{Constant, DType};
use crate::onnx::proto::{DataType, NodeProto};

/// The zero point of weights.
const WEIGHT_ZERO: f64 = 128.0;

/// Writes the integer operator of a node, and what makes floats of its sums.
pub(super) fn integers(
    quantizer: &Quantizer,
    writer: &mut Writer<'_>,
    site: &Site,
    node: NodeProto,
) {
    let weight = &node.input[1];
    let constant = quantizer.constants.get(weight);
    let Some(channels) = constant.and_then(|weight| Channels::new(weight, site.axis)) else {
        return writer.push(node);
    };
    let is_conv = site.op == "Conv";
    let channels = if !is_conv && site.axis == 0 { channels.transposed() } else { channels };
    // Along the channels of a result: of an image, behind the batch.
    let along_channels = |count: usize| match is_conv {
        true => [vec![count as i64], vec![1; channels.dims.len() - 2]].concat(),
        false => vec![count as i64],
    };
    let purpose = if site.axis == 0 { "integer rows" } else { "integer columns" };
    let made = writer.once(weight, purpose, |writer| {
        let scales = Constant::from_f32(&along_channels(channels.scales.len()), &channels.scales);
        let zero = Constant::scalar(WEIGHT_ZERO, DType::U8).expect("a byte has constants");
        vec![
            writer.replacement(weight, "quantized", &channels.unsigned()),
            writer.initializer(weight, "scale", &scales.expect("as many as channels")),
            writer.initializer(weight, "zero_point", &zero),
        ]
    });
    let activation = activation(writer, &site.input);
    let [bytes, scale, zero] = &activation[..] else { return writer.push(node) };
    let (op, attributes) = match is_conv {
        true => ("ConvInteger", node.attribute.clone()),
        false => ("MatMulInteger", Vec::new()),
    };
    let base = &site.output;
    let input = [bytes, &made[0], zero, &made[2]].map(String::clone).to_vec();
    let output = vec![writer.fresh(base, op)];
    let sums = writer.node_of("", op, input, output, attributes).remove(0);
    let sums = writer.node("Cast", base, vec![sums], &[("to", DataType::Float as i64)]);
    let scale = writer.node("Mul", base, vec![scale.clone(), made[1].clone()], &[]);
    let bias = node.input.get(2).filter(|name| !name.is_empty());
    let Some(bias) = bias else {
        writer.node_of("", "Mul", vec![sums, scale], vec![base.clone()], Vec::new());
        return;
    };
    let product = writer.node("Mul", base, vec![sums, scale], &[]);
    let bias = match is_conv {
        true => {
            let shape = along_channels(channels.scales.len());
            let shape = Constant::from_i64(&[shape.len() as i64], &shape);
            let shape = shape.expect("as many as axes");
            let shape = writer.initializer(bias, "shape", &shape);
            writer.node("Reshape", bias, vec![bias.clone(), shape], &[])
        }
        false => bias.clone(),
    };
    writer.node_of("", "Add", vec![product, bias], vec![base.clone()], Vec::new());
}

/// Activations as bytes, their scale and zero point.
fn activation(writer: &mut Writer<'_>, value: &str) -> Vec<String> {
    writer.once(value, "dynamic", |writer| {
        let outputs =
            ["quantized", "scale", "zero_point"].map(|what| writer.fresh(value, what)).to_vec();
        let input = vec![value.to_owned()];
        writer.node_of("", "DynamicQuantizeLinear", input, outputs, Vec::new())
    })
}
