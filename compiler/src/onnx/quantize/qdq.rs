//! Static quantisation, and weights by themselves, in the QDQ form.
//!
//! `QuantizeLinear` and `DequantizeLinear` go around what each quantised operator reads, as ONNX
//! Runtime's `quantize_static` writes them: activations as `uint8` with one scale and zero point for
//! a tensor, weights as `int8` with a scale for each output channel, biases as `int32` in the scale
//! of the sums. The scheme is that of Jacob et al., "Quantization and Training of Neural Networks for
//! Efficient Integer-Arithmetic-Only Inference" (2018). Of weights by themselves there is the
//! `DequantizeLinear` alone; those of 4 bits are in ONNX Runtime's `MatMulNBits`, as the operator
//! sets of most models have no such `DequantizeLinear`.

use super::weights::{BLOCK, Channels, Nibbles, ints};
use super::{Affine, MICROSOFT, Quantizer, Site, Writer};
use crate::ir::{Constant, DType};
use crate::onnx::model_builder::ModelAttr;
use crate::onnx::proto::NodeProto;

/// Puts quantisation around what a node reads.
pub(super) fn activations_and_weights(
    quantizer: &Quantizer,
    writer: &mut Writer<'_>,
    site: &Site,
    node: &mut NodeProto,
    &Affine { scale, zero_point }: &Affine,
) {
    node.input[0] = writer.activation(&site.input, scale, zero_point);
    let Some(scales) = weights(quantizer, writer, site, node) else { return };
    if let Some(bias) = node.input.get(2).filter(|name| !name.is_empty()).cloned()
        && let Some(constant) = quantizer.constants.get(&bias)
        && let Some(values) = constant.to_f64_vec()
        && values.len() == scales.len()
    {
        // One channel alone has a scale for the whole tensor, like any other.
        let scales: Vec<f32> = scales.iter().map(|&weight| weight * scale).collect();
        let steps: Vec<f64> = values
            .iter()
            .zip(&scales)
            .map(|(value, &scale)| (value / f64::from(scale)).round_ties_even())
            .collect();
        // A bias beyond 32 bits stays a float: the sums would not hold it.
        if steps.iter().all(|steps| steps.abs() <= f64::from(i32::MAX)) {
            let dims = constant.ty().shape.as_consts().unwrap_or_default();
            let steps = steps.iter().map(|&steps| steps as i128).collect();
            let axis = dims.len().saturating_sub(1);
            let steps = ints(&dims, DType::I32, steps);
            node.input[2] = writer.dequantised(&bias, &steps, &scales, axis);
        }
    }
}

/// Has a node read dequantised weights, if it has some; their scales.
pub(super) fn weights(
    quantizer: &Quantizer,
    writer: &mut Writer<'_>,
    site: &Site,
    node: &mut NodeProto,
) -> Option<Vec<f32>> {
    let weight = node.input.get(1)?.clone();
    let channels = Channels::new(quantizer.constants.get(&weight)?, site.axis)?;
    let purpose = if site.axis == 0 { "rows" } else { "columns" };
    let made = writer.once(&weight, purpose, |writer| {
        vec![writer.dequantised(&weight, &channels.signed(), &channels.scales, site.axis)]
    });
    node.input[1].clone_from(&made[0]);
    Some(channels.scales)
}

/// Makes a product with weights of 4 bits of a node.
pub(super) fn nibbles(
    quantizer: &Quantizer,
    writer: &mut Writer<'_>,
    site: &Site,
    node: NodeProto,
) {
    let weight = &node.input[1];
    let is_transposed = site.axis == 0;
    let constant = quantizer.constants.get(weight);
    let Some(nibbles) = constant.and_then(|weight| Nibbles::new(weight, is_transposed)) else {
        return writer.push(node);
    };
    let Nibbles { k, n, bytes, scales, zeros } = nibbles;
    let purpose = if is_transposed { "transposed nibbles" } else { "nibbles" };
    let packed = writer.once(weight, purpose, |writer| {
        let mut initializer = |what: &str, constant: &Constant| match what {
            "packed" => writer.replacement(weight, what, constant),
            what => writer.initializer(weight, what, constant),
        };
        vec![
            initializer("packed", &bytes),
            initializer("scale", &scales),
            initializer("zero_point", &zeros),
        ]
    });
    let bias = node.input.get(2).filter(|name| !name.is_empty());
    let product = match bias {
        Some(_) => writer.fresh(&site.output, "MatMulNBits"),
        None => site.output.clone(),
    };
    let attributes = [("K", k), ("N", n), ("bits", 4), ("block_size", BLOCK)];
    let attributes =
        attributes.map(|(name, value)| ModelAttr::Int(value as i64).to_proto(name)).to_vec();
    let input = [vec![site.input.clone()], packed].concat();
    writer.node_of(MICROSOFT, "MatMulNBits", input, vec![product.clone()], attributes);
    if let Some(bias) = bias {
        let input = vec![product, bias.clone()];
        writer.node_of("", "Add", input, vec![site.output.clone()], Vec::new());
    }
}
