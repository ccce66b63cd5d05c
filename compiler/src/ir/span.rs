//! Where an expression came from.

use std::fmt;
use std::sync::Arc;

/// The origin of an expression, for messages. Cheap to clone; never part of structural equality.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Span {
    /// Made by the compiler, or unknown.
    #[default]
    Unknown,
    /// A node, input or initializer of an ONNX model.
    Onnx(Arc<OnnxSpan>),
    /// A place in niello's own text format, both counted from 1.
    Text {
        /// Line.
        line: u32,
        /// Column, in characters.
        column: u32,
    },
}

/// A node of an ONNX model.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OnnxSpan {
    /// The node's name, or a description such as `#12` for an unnamed one.
    pub node: String,
    /// Operator, with its domain if that is not ONNX's own: `Conv`, `com.microsoft.Gelu`.
    pub op: String,
    /// Version of the operator set that the model imports for the operator's domain.
    pub opset: i64,
    /// The source line that the exporter recorded, if any.
    pub source: Option<String>,
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Span::Unknown => f.write_str("unknown place"),
            Span::Onnx(node) => write!(f, "{} `{}` (opset {})", node.op, node.node, node.opset),
            Span::Text { line, column } => write!(f, "{line}:{column}"),
        }
    }
}
