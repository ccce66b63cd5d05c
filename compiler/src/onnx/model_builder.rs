//! Small ONNX models made by hand, for tests and fixtures.

use super::proto::{
    AttributeProto, AttributeType, Dimension, DimensionValue, GraphProto, ModelProto, NodeProto,
    OperatorSetIdProto, TensorShapeProto, TensorTypeProto, TypeProto, TypeValue, ValueInfoProto,
};
use super::tensor::{constant_to_onnx, dtype_to_onnx};
use crate::ir::{Constant, DType};

/// An extent of an input or output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ModelDim {
    /// A number.
    Value(i64),
    /// A name.
    Param(String),
    /// Nothing is known.
    Unknown,
}

impl From<i64> for ModelDim {
    fn from(value: i64) -> ModelDim {
        ModelDim::Value(value)
    }
}

impl From<&str> for ModelDim {
    fn from(name: &str) -> ModelDim {
        ModelDim::Param(name.to_owned())
    }
}

/// The value of a node's attribute.
#[derive(Clone, PartialEq, Debug)]
pub enum ModelAttr {
    /// An integer.
    Int(i64),
    /// A float.
    Float(f32),
    /// A string.
    Str(String),
    /// Integers.
    Ints(Vec<i64>),
    /// Floats.
    Floats(Vec<f32>),
    /// Strings.
    Strs(Vec<String>),
    /// A tensor; must not be opaque.
    Tensor(Constant),
    /// A graph.
    Graph(GraphProto),
}

macro_rules! attr_from {
    ($($from:ty => $variant:ident),* $(,)?) => {
        $(impl From<$from> for ModelAttr {
            fn from(value: $from) -> ModelAttr {
                ModelAttr::$variant(value.into())
            }
        })*
    };
}

attr_from!(
    i64 => Int,
    f32 => Float,
    &str => Str,
    Vec<i64> => Ints,
    &[i64] => Ints,
    Vec<f32> => Floats,
    Constant => Tensor,
    GraphProto => Graph,
);

impl From<Vec<&str>> for ModelAttr {
    fn from(values: Vec<&str>) -> ModelAttr {
        ModelAttr::Strs(values.into_iter().map(str::to_owned).collect())
    }
}

impl<const N: usize> From<[i64; N]> for ModelAttr {
    fn from(values: [i64; N]) -> ModelAttr {
        ModelAttr::Ints(values.to_vec())
    }
}

impl ModelAttr {
    pub(super) fn to_proto(&self, name: &str) -> AttributeProto {
        let mut proto = AttributeProto { name: Some(name.to_owned()), ..Default::default() };
        let ty = match self {
            ModelAttr::Int(value) => {
                proto.i = Some(*value);
                AttributeType::Int
            }
            ModelAttr::Float(value) => {
                proto.f = Some(*value);
                AttributeType::Float
            }
            ModelAttr::Str(value) => {
                proto.s = Some(value.clone().into_bytes().into());
                AttributeType::String
            }
            ModelAttr::Ints(values) => {
                proto.ints.clone_from(values);
                AttributeType::Ints
            }
            ModelAttr::Floats(values) => {
                proto.floats.clone_from(values);
                AttributeType::Floats
            }
            ModelAttr::Strs(values) => {
                proto.strings =
                    values.iter().map(|value| value.clone().into_bytes().into()).collect();
                AttributeType::Strings
            }
            ModelAttr::Tensor(constant) => {
                proto.t = constant_to_onnx(constant, "").map(Box::new);
                AttributeType::Tensor
            }
            ModelAttr::Graph(graph) => {
                proto.g = Some(Box::new(graph.clone()));
                AttributeType::Graph
            }
        };
        proto.r#type = Some(ty as i32);
        proto
    }
}

/// Builds a model, value by value. Nothing is checked: a test may want what is wrong.
///
/// ```
/// use niello::ir::DType;
/// use niello::onnx::ModelBuilder;
///
/// let bytes = ModelBuilder::new(13)
///     .input("x", DType::F32, &[1, 4])
///     .node("Softmax", &["x"], &["y"], &[("axis", (-1i64).into())])
///     .output("y", DType::F32, &[1, 4])
///     .to_bytes();
/// assert!(niello::onnx::load_bytes(bytes).is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct ModelBuilder {
    model: ModelProto,
    graph: GraphProto,
}

impl ModelBuilder {
    /// A model that uses this version of ONNX's own operators.
    pub fn new(opset: i64) -> ModelBuilder {
        ModelBuilder {
            model: ModelProto {
                ir_version: Some(8),
                producer_name: Some("niello".to_owned()),
                ..ModelProto::default()
            },
            graph: GraphProto { name: Some("graph".to_owned()), ..GraphProto::default() },
        }
        .opset("", opset)
    }

    /// Uses an operator set of another domain as well.
    #[must_use]
    pub fn opset(mut self, domain: &str, version: i64) -> ModelBuilder {
        self.model.opset_import.push(OperatorSetIdProto {
            domain: (!domain.is_empty()).then(|| domain.to_owned()),
            version: Some(version),
        });
        self
    }

    /// Sets the version of the file format; it is 8 at first.
    #[must_use]
    pub fn ir_version(mut self, version: i64) -> ModelBuilder {
        self.model.ir_version = Some(version);
        self
    }

    /// An input.
    #[must_use]
    pub fn input<D: Clone + Into<ModelDim>>(
        mut self,
        name: &str,
        dtype: DType,
        dims: &[D],
    ) -> ModelBuilder {
        self.graph.input.push(value_info(name, dtype, dims));
        self
    }

    /// An initializer; must not be opaque.
    #[must_use]
    pub fn initializer(mut self, name: &str, constant: &Constant) -> ModelBuilder {
        self.graph.initializer.extend(constant_to_onnx(constant, name));
        self
    }

    /// An initializer of one dimension that holds integers, such as a shape or axes.
    #[must_use]
    pub fn ints(self, name: &str, values: &[i64]) -> ModelBuilder {
        let constant = Constant::from_i64(&[values.len() as i64], values)
            .expect("there are as many values as the extent says");
        self.initializer(name, &constant)
    }

    /// A node of ONNX's own operators, named as its first output.
    #[must_use]
    pub fn node(
        self,
        op: &str,
        inputs: &[&str],
        outputs: &[&str],
        attrs: &[(&str, ModelAttr)],
    ) -> ModelBuilder {
        self.node_in("", op, inputs, outputs, attrs)
    }

    /// A node of a domain, named as its first output.
    #[must_use]
    pub fn node_in(
        mut self,
        domain: &str,
        op: &str,
        inputs: &[&str],
        outputs: &[&str],
        attrs: &[(&str, ModelAttr)],
    ) -> ModelBuilder {
        let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        self.graph.node.push(NodeProto {
            input: owned(inputs),
            output: owned(outputs),
            name: outputs.first().map(|&name| name.to_owned()),
            op_type: Some(op.to_owned()),
            domain: (!domain.is_empty()).then(|| domain.to_owned()),
            attribute: attrs.iter().map(|(name, value)| value.to_proto(name)).collect(),
            ..NodeProto::default()
        });
        self
    }

    /// An output.
    #[must_use]
    pub fn output<D: Clone + Into<ModelDim>>(
        mut self,
        name: &str,
        dtype: DType,
        dims: &[D],
    ) -> ModelBuilder {
        self.graph.output.push(value_info(name, dtype, dims));
        self
    }

    /// The graph alone, for an attribute of another model's node.
    pub fn build_graph(self) -> GraphProto {
        self.graph
    }

    /// The model.
    pub fn build(self) -> ModelProto {
        ModelProto { graph: Some(self.graph), ..self.model }
    }

    /// The bytes of the model's file.
    pub fn to_bytes(self) -> Vec<u8> {
        self.build().to_bytes()
    }
}

fn value_info<D: Clone + Into<ModelDim>>(name: &str, dtype: DType, dims: &[D]) -> ValueInfoProto {
    let dim = |dim: &D| Dimension {
        value: match dim.clone().into() {
            ModelDim::Value(value) => Some(DimensionValue::Value(value)),
            ModelDim::Param(name) => Some(DimensionValue::Param(name)),
            ModelDim::Unknown => None,
        },
        denotation: None,
    };
    let ty = TensorTypeProto {
        elem_type: Some(dtype_to_onnx(dtype) as i32),
        shape: Some(TensorShapeProto { dim: dims.iter().map(dim).collect() }),
    };
    ValueInfoProto {
        name: Some(name.to_owned()),
        r#type: Some(TypeProto { value: Some(TypeValue::Tensor(ty)), denotation: None }),
        ..ValueInfoProto::default()
    }
}
