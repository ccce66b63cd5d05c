//! A bound on the memory that decoding a model takes, checked before any of it is decoded.
//!
//! Two bytes of a file can be an empty node, which takes some hundred bytes once decoded, so a
//! damaged or hostile file could ask for far more memory than it has bytes. One walk over the wire
//! format, without allocation, adds up what the decoded messages will take.

use std::mem::size_of;

use super::proto;

/// What a model may take in addition to the share of its file.
///
/// Tensors stay in the file and cost nothing, and the largest real models have some ten thousand
/// nodes of well under a kilobyte each, so this is several times what any of them needs.
const BASE_ALLOWANCE: u64 = 32 << 20;

/// Deepest nesting of messages, as in prost, whose decoder recurses.
const MAX_DEPTH: usize = 100;

/// The messages of a model that hold others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Message {
    Model,
    Graph,
    Node,
    Attribute,
    Function,
    Tensor,
    SparseTensor,
    ValueInfo,
    Type,
    ElementType,
    TensorType,
    Shape,
    Dimension,
    Opset,
    Entry,
}

/// What a length-delimited field holds, as far as memory goes.
enum Field {
    Message(Message),
    /// A string of its own.
    Text,
    /// A list of numbers, each of at least this many bytes in the file.
    Numbers(u64),
    /// Bytes that are shared with the file, or skipped.
    Shared,
    /// A list of such.
    SharedList,
}

impl Message {
    /// Bytes of the decoded message, without what it points at.
    fn size(self) -> usize {
        match self {
            Message::Model => size_of::<proto::ModelProto>(),
            Message::Graph => size_of::<proto::GraphProto>(),
            Message::Node => size_of::<proto::NodeProto>(),
            Message::Attribute => size_of::<proto::AttributeProto>(),
            Message::Function => size_of::<proto::FunctionProto>(),
            Message::Tensor => size_of::<proto::TensorProto>(),
            Message::SparseTensor => size_of::<proto::SparseTensorProto>(),
            Message::ValueInfo => size_of::<proto::ValueInfoProto>(),
            Message::Type | Message::ElementType => size_of::<proto::TypeProto>(),
            Message::TensorType => size_of::<proto::TensorTypeProto>(),
            Message::Shape => size_of::<proto::TensorShapeProto>(),
            Message::Dimension => size_of::<proto::Dimension>(),
            Message::Opset => size_of::<proto::OperatorSetIdProto>(),
            Message::Entry => size_of::<proto::StringStringEntryProto>(),
        }
    }

    fn field(self, tag: u32) -> Field {
        use Field::{Message as Of, Numbers, Shared, SharedList, Text};
        match (self, tag) {
            (Message::Model, 2 | 3 | 4 | 6) => Text,
            (Message::Model, 7) => Of(Message::Graph),
            (Message::Model, 8) => Of(Message::Opset),
            (Message::Model, 14) => Of(Message::Entry),
            (Message::Model, 25) => Of(Message::Function),
            (Message::Graph, 1) => Of(Message::Node),
            (Message::Graph, 2 | 10) => Text,
            (Message::Graph, 5) => Of(Message::Tensor),
            (Message::Graph, 11..=13) => Of(Message::ValueInfo),
            (Message::Graph, 15) => Of(Message::SparseTensor),
            (Message::Graph, 16) => Of(Message::Entry),
            (Message::Node, 1..=4 | 6..=8) => Text,
            (Message::Node, 5) => Of(Message::Attribute),
            (Message::Node, 9) => Of(Message::Entry),
            (Message::Attribute, 1 | 13 | 21) => Text,
            (Message::Attribute, 5 | 10) => Of(Message::Tensor),
            (Message::Attribute, 6 | 11) => Of(Message::Graph),
            (Message::Attribute, 7) => Numbers(4),
            (Message::Attribute, 8) => Numbers(1),
            (Message::Attribute, 9) => SharedList,
            (Message::Attribute, 14 | 15) => Of(Message::Type),
            (Message::Attribute, 22 | 23) => Of(Message::SparseTensor),
            (Message::Function, 1 | 4..=6 | 8 | 10 | 13) => Text,
            (Message::Function, 7) => Of(Message::Node),
            (Message::Function, 9) => Of(Message::Opset),
            (Message::Function, 11) => Of(Message::Attribute),
            (Message::Function, 12) => Of(Message::ValueInfo),
            (Message::Function, 14) => Of(Message::Entry),
            (Message::Tensor, 1) => Numbers(1),
            (Message::Tensor, 4..=7 | 10 | 11) => SharedList,
            (Message::Tensor, 8 | 12) => Text,
            (Message::Tensor, 13 | 16) => Of(Message::Entry),
            (Message::SparseTensor, 1 | 2) => Of(Message::Tensor),
            (Message::SparseTensor, 3) => Numbers(1),
            (Message::ValueInfo, 1 | 3) => Text,
            (Message::ValueInfo, 2) => Of(Message::Type),
            (Message::ValueInfo, 4) => Of(Message::Entry),
            (Message::Type, 1 | 8) => Of(Message::TensorType),
            (Message::Type, 4 | 5 | 9) => Of(Message::ElementType),
            (Message::Type, 6) => Text,
            (Message::ElementType, 1 | 2) => Of(Message::Type),
            (Message::TensorType, 2) => Of(Message::Shape),
            (Message::Shape, 1) => Of(Message::Dimension),
            (Message::Dimension, 2 | 3) => Text,
            (Message::Opset, 1) => Text,
            (Message::Entry, 1 | 2) => Text,
            _ => Shared,
        }
    }
}

/// Checks that decoding takes at most the size of the file and [`BASE_ALLOWANCE`]. What is malformed
/// otherwise is left for the decoder to say.
pub(super) fn check(bytes: &[u8]) -> Result<(), String> {
    let allowance = (bytes.len() as u64).saturating_add(BASE_ALLOWANCE);
    let Some(needed) = decoded_size(bytes) else { return Ok(()) };
    if needed > allowance {
        return Err(format!(
            "its {} bytes would take {needed} bytes of memory once decoded",
            bytes.len()
        ));
    }
    Ok(())
}

/// Bytes that the decoded model takes, or `None` where the wire format is broken: the decoder stops
/// there too.
fn decoded_size(bytes: &[u8]) -> Option<u64> {
    // While it grows, a vector is held twice, and once more with room to spare.
    const GROWTH: u64 = 3;
    let element = |size: usize| size as u64 * GROWTH;
    let mut total = 0u64;
    // The messages that are open: kind and end.
    let mut open = vec![(Message::Model, bytes.len())];
    let mut at = 0usize;
    while let Some(&(message, end)) = open.last() {
        if at >= end {
            open.pop();
            continue;
        }
        let key = varint(bytes, &mut at)?;
        let tag = u32::try_from(key >> 3).ok()?;
        match key & 7 {
            0 => {
                varint(bytes, &mut at)?;
                // A list of numbers need not be packed.
                if matches!(message.field(tag), Field::Numbers(_)) {
                    total = total.checked_add(element(size_of::<i64>()))?;
                }
            }
            1 => at = at.checked_add(8)?,
            5 => {
                at = at.checked_add(4)?;
                if matches!(message.field(tag), Field::Numbers(_)) {
                    total = total.checked_add(element(size_of::<f32>()))?;
                }
            }
            2 => {
                let length = varint(bytes, &mut at)?;
                let stop = at.checked_add(usize::try_from(length).ok()?)?;
                if stop > end {
                    return None;
                }
                let cost = match message.field(tag) {
                    Field::Message(inner) => {
                        if open.len() >= MAX_DEPTH {
                            return None;
                        }
                        open.push((inner, stop));
                        element(inner.size())
                    }
                    Field::Text => length.checked_add(element(size_of::<String>()))?,
                    Field::Numbers(width) => (length / width).checked_mul(element(8))?,
                    Field::SharedList => element(size_of::<prost::bytes::Bytes>()),
                    Field::Shared => 0,
                };
                total = total.checked_add(cost)?;
                if !matches!(message.field(tag), Field::Message(_)) {
                    at = stop;
                }
            }
            // Groups, which no ONNX message has; their content is skipped, not decoded.
            _ => return Some(total),
        }
    }
    Some(total)
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::super::ModelBuilder;
    use super::*;
    use crate::ir::DType;

    #[test]
    fn empty_messages_in_bulk_are_refused_before_they_are_decoded() {
        // A graph of two million empty nodes, in four million bytes.
        let nodes = [0x0A, 0].repeat(2_000_000);
        let mut bytes = vec![0x3A];
        prost::encoding::encode_varint(nodes.len() as u64, &mut bytes);
        bytes.extend(nodes);
        let error = check(&bytes).unwrap_err();
        assert!(error.starts_with("its 4000005 bytes would take"), "{error}");
    }

    #[test]
    fn the_estimate_covers_what_a_model_holds() {
        let mut model = ModelBuilder::new(13).input("x", DType::F32, &[1]);
        let mut from = "x".to_owned();
        for index in 0..1000 {
            let to = format!("y{index}");
            model = model.node("Relu", &[&from], &[&to], &[("k", vec![1i64; 20].into())]);
            from = to;
        }
        let bytes = model.build().encode_to_vec();
        let held = 1000 * (size_of::<proto::NodeProto>() + size_of::<proto::AttributeProto>());
        let needed = decoded_size(&bytes).unwrap();
        assert!(needed > held as u64 && needed < 20 * bytes.len() as u64 * 8, "{needed}");
        assert_eq!(check(&bytes), Ok(()));
    }

    #[test]
    fn broken_bytes_are_left_to_the_decoder() {
        assert_eq!(decoded_size(&[0x3A, 200, 1, 0]), None);
        assert_eq!(decoded_size(&[0x80]), None);
        assert_eq!(decoded_size(&[]), Some(0));
    }
}
