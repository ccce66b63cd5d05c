//! Types of values.

use super::{StringStringEntryProto, TensorProto};

/// A value's name and type.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ValueInfoProto {
    /// The name.
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    /// The type.
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
    /// Description for people.
    #[prost(string, optional, tag = "3")]
    pub doc_string: Option<String>,
    /// Free-form properties.
    #[prost(message, repeated, tag = "4")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

/// A type.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct TypeProto {
    /// What kind of type, with its parts.
    #[prost(oneof = "TypeValue", tags = "1, 4, 5, 8, 9")]
    pub value: Option<TypeValue>,
    /// What the value means, for people: `IMAGE`.
    #[prost(string, optional, tag = "6")]
    pub denotation: Option<String>,
}

/// The kinds of types.
#[derive(Clone, PartialEq, Eq, Hash, prost::Oneof)]
pub enum TypeValue {
    /// A dense tensor.
    #[prost(message, tag = "1")]
    Tensor(TensorTypeProto),
    /// Any number of values of one type.
    #[prost(message, tag = "4")]
    Sequence(Box<SequenceType>),
    /// A map.
    #[prost(message, tag = "5")]
    Map(Box<MapType>),
    /// A sparse tensor.
    #[prost(message, tag = "8")]
    SparseTensor(TensorTypeProto),
    /// A value or none.
    #[prost(message, tag = "9")]
    Optional(Box<OptionalType>),
}

/// Element type and shape of a dense or sparse tensor.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct TensorTypeProto {
    /// The type of the elements, a [`DataType`](super::DataType).
    #[prost(int32, optional, tag = "1")]
    pub elem_type: Option<i32>,
    /// The extents; absent if not even their number is known.
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

/// The type of a sequence.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct SequenceType {
    /// The type of its elements.
    #[prost(message, optional, boxed, tag = "1")]
    pub elem_type: Option<Box<TypeProto>>,
}

/// The type of a map.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct MapType {
    /// The type of its keys, a [`DataType`](super::DataType).
    #[prost(int32, optional, tag = "1")]
    pub key_type: Option<i32>,
    /// The type of its values.
    #[prost(message, optional, boxed, tag = "2")]
    pub value_type: Option<Box<TypeProto>>,
}

/// The type of an optional value.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct OptionalType {
    /// The type of the value, if there is one.
    #[prost(message, optional, boxed, tag = "1")]
    pub elem_type: Option<Box<TypeProto>>,
}

/// A sequence in a file of test data.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SequenceProto {
    /// The elements, if they are tensors.
    #[prost(message, repeated, tag = "3")]
    pub tensor_values: Vec<TensorProto>,
}

/// An optional value in a file of test data.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OptionalProto {
    /// The element, if it is a tensor.
    #[prost(message, optional, tag = "3")]
    pub tensor_value: Option<TensorProto>,
    /// The element, if it is a sequence.
    #[prost(message, optional, tag = "5")]
    pub sequence_value: Option<SequenceProto>,
}

/// Extents.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct TensorShapeProto {
    /// The extents, outermost first.
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<Dimension>,
}

/// One extent.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct Dimension {
    /// The extent, if anything is known of it.
    #[prost(oneof = "DimensionValue", tags = "1, 2")]
    pub value: Option<DimensionValue>,
    /// What the dimension means, for people: `DATA_CHANNEL`.
    #[prost(string, optional, tag = "3")]
    pub denotation: Option<String>,
}

/// What is known of an extent.
#[derive(Clone, PartialEq, Eq, Hash, prost::Oneof)]
pub enum DimensionValue {
    /// A number.
    #[prost(int64, tag = "1")]
    Value(i64),
    /// The name of a number that is known at run time.
    #[prost(string, tag = "2")]
    Param(String),
}
