//! Rows that are looked up in a table, as those of words are.
//!
//! `Gather` takes rows of bytes, and their scales from a table of those; two operators make floats of
//! both. A `DequantizeLinear` before `Gather` would compute the whole table in each run of programs that
//! do not see through it.

use super::weights::Channels;
use super::{Quantizer, Site, Writer};
use crate::ir::Constant;
use crate::onnx::proto::{DataType, NodeProto};

/// Fewest elements of a table that is worth it.
pub(super) const MIN_ELEMENTS: u64 = 1 << 14;

/// Has a node look up bytes.
pub(super) fn rows(quantizer: &Quantizer, writer: &mut Writer<'_>, site: &Site, node: NodeProto) {
    let table = &node.input[0];
    let constant = quantizer.constants.get(table);
    let Some(rows) = constant.and_then(|table| Channels::new(table, 0)) else {
        return writer.push(node);
    };
    let made = writer.once(table, "rows of bytes", |writer| {
        let scales = Constant::from_f32(&[rows.scales.len() as i64, 1], &rows.scales);
        vec![
            writer.replacement(table, "quantized", &rows.signed()),
            writer.initializer(table, "scale", &scales.expect("one for each row")),
        ]
    });
    let base = &site.output;
    let [bytes, scales] = [0, 1].map(|part: usize| {
        writer.node("Gather", base, vec![made[part].clone(), site.input.clone()], &[("axis", 0)])
    });
    let steps = writer.node("Cast", base, vec![bytes], &[("to", DataType::Float as i64)]);
    writer.node_of("", "Mul", vec![steps, scales], vec![base.clone()], Vec::new());
}
