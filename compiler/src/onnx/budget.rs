//! A bound on the memory that decoding a model takes, checked before any of it is decoded.
//!
//! Two bytes of a file can be an empty node, which takes some hundred bytes once decoded, so a
//! damaged or hostile file could ask for far more memory than it has bytes. One walk over the wire
//! format, without allocation, adds up what the decoded messages will take.
//!
//! The bound depends on the file alone, never on the machine, so that a model that one machine
//! compiles is not refused by another.

use std::mem::size_of;

use super::proto;
use crate::diagnostics::Problem;
use crate::options::bytes_of_variable;

/// What a model may take beside what its bytes allow.
const BASE_ALLOWANCE: u64 = 32 << 20;

/// Bytes of memory that each byte of a file may take.
///
/// Tensors stay in the file and cost nothing. Nodes whose names are of one letter take some seventy
/// times their bytes, and the shortest attributes some hundred times; a message without content
/// takes three hundred times its two bytes and more.
const ALLOWANCE_PER_BYTE: u64 = 128;

/// The variable of the environment that sets another bound.
pub(super) const LIMIT_VARIABLE: &str = "NIELLO_MEMORY_LIMIT";

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

/// The bound that the environment sets, if it sets one.
pub(super) fn limit() -> Result<Option<u64>, Problem> {
    match std::env::var_os(LIMIT_VARIABLE) {
        Some(text) if !text.is_empty() => {
            bytes_of_variable(LIMIT_VARIABLE, &text.to_string_lossy()).map(Some)
        }
        Some(_) | None => Ok(None),
    }
}

/// Checks that decoding takes at most `limit` bytes, or what a file of that size may take if there
/// is no limit, and that messages nest no deeper than the decoder goes. What is malformed otherwise
/// is left for the decoder to say.
pub(super) fn check(bytes: &[u8], limit: Option<u64>, name: &str) -> Result<(), Problem> {
    let length = bytes.len() as u64;
    let linear = length.saturating_mul(ALLOWANCE_PER_BYTE).saturating_add(BASE_ALLOWANCE);
    let most = limit.unwrap_or(linear);
    let needed = match decoded_size(bytes) {
        Ok(needed) => needed,
        Err(Unknown::Malformed) => return Ok(()),
        Err(Unknown::TooDeep) => {
            return Err(Problem::new(format!(
                "{name}: graphs are nested too deeply: the file has more than {MAX_DEPTH} messages \
                 within each other, and a graph in an attribute is three of them"
            ))
            .help("nest If, Loop and Scan less than 30 deep"));
        }
    };
    if needed <= most {
        return Ok(());
    }
    let megabytes = needed.div_ceil(1 << 20);
    Err(Problem::new(format!(
        "{name}: the file has {length} bytes, but would take {megabytes} MiB of memory once decoded, \
         and {} MiB are allowed",
        most >> 20
    ))
    .help(format!("if the model is as it should be, set {LIMIT_VARIABLE}={megabytes}M")))
}

/// Why it is not known what a model takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Unknown {
    /// The wire format is broken: the decoder stops there too.
    Malformed,
    /// Messages nest deeper than the decoder goes.
    TooDeep,
}

/// Bytes that the decoded model takes.
fn decoded_size(bytes: &[u8]) -> Result<u64, Unknown> {
    let mut too_deep = false;
    let size = walk(bytes, &mut too_deep);
    size.ok_or(if too_deep { Unknown::TooDeep } else { Unknown::Malformed })
}

/// Bytes that the decoded model takes, as far as the wire format goes.
fn walk(bytes: &[u8], too_deep: &mut bool) -> Option<u64> {
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
                            *too_deep = true;
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
        let error = check(&bytes, None, "m").unwrap_err().to_string();
        assert!(error.starts_with("m: the file has 4000005 bytes, but would take"), "{error}");
        assert!(error.contains("help: if the model is as it should be, set NIELLO_MEMORY_LIMIT="));
        assert_eq!(check(&bytes, Some(u64::MAX), "m"), Ok(()));
    }

    #[test]
    fn long_chains_of_short_nodes_are_within_the_allowance() {
        let mut model = ModelBuilder::new(13).input("a", DType::F32, &[1]);
        for _ in 0..100_000 {
            model = model.node("Abs", &["a"], &["b"], &[("x", 1.into())]);
        }
        let bytes = model.build().encode_to_vec();
        assert!(decoded_size(&bytes).unwrap() > BASE_ALLOWANCE);
        assert_eq!(check(&bytes, None, "m"), Ok(()));
        let error = check(&bytes, Some(1 << 20), "m").unwrap_err().to_string();
        assert!(error.contains(" MiB of memory once decoded, and 1 MiB are allowed"), "{error}");
    }

    #[test]
    fn limits_are_bytes_or_have_a_unit() {
        assert_eq!(bytes_of_variable(LIMIT_VARIABLE, "1000"), Ok(1000));
        assert_eq!(bytes_of_variable(LIMIT_VARIABLE, "3k"), Ok(3 << 10));
        assert_eq!(bytes_of_variable(LIMIT_VARIABLE, "500M"), Ok(500 << 20));
        assert_eq!(bytes_of_variable(LIMIT_VARIABLE, "2 G"), Ok(2 << 30));
        for bad in ["much", "-1", "G", "1T", "99999999999G"] {
            assert!(bytes_of_variable(LIMIT_VARIABLE, bad).is_err(), "{bad}");
        }
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
        assert_eq!(check(&bytes, None, "m"), Ok(()));
    }

    #[test]
    fn broken_bytes_are_left_to_the_decoder() {
        assert_eq!(decoded_size(&[0x3A, 200, 1, 0]), Err(Unknown::Malformed));
        assert_eq!(decoded_size(&[0x80]), Err(Unknown::Malformed));
        assert_eq!(decoded_size(&[]), Ok(0));
    }
}
