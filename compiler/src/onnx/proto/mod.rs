//! The messages of ONNX's protobuf format, written by hand so that no `protoc` is needed.
//!
//! Field numbers are those of `onnx.proto`. Left out are the fields that an importer of inference
//! models has no use for (training information, device placement, doc strings of no node); the
//! decoder skips fields that it does not know. Unset scalar fields read as their default through the
//! getters that the derive makes: `node.op_type()`.

mod graph;
mod tensor;
mod types;

pub use graph::{
    AttributeProto, AttributeType, FunctionProto, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, StringStringEntryProto,
};
pub use tensor::{DataLocation, DataType, PackedValues, SparseTensorProto, TensorProto};
pub use types::{
    Dimension, DimensionValue, MapType, OptionalProto, OptionalType, SequenceProto, SequenceType,
    TensorShapeProto, TensorTypeProto, TypeProto, TypeValue, ValueInfoProto,
};
