//! What a model's file says it consists of, before anything is imported or judged.

use std::collections::{BTreeMap, BTreeSet};

use super::import::{ModelInfo, model_info, normal_domain};
use super::ops;
use super::ports::inputs;
use super::proto::{
    AttributeProto, DimensionValue, GraphProto, ModelProto, NodeProto, TensorProto,
    TensorTypeProto, TypeValue, ValueInfoProto,
};
use super::tensor::dtype_from_onnx;
use crate::ir::DType;

/// An extent as it is declared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DeclaredDim {
    /// A number.
    Value(i64),
    /// A symbol.
    Symbol(String),
    /// Nothing is said of it.
    Unknown,
}

/// An input or output as it is declared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeclaredPort {
    /// The name.
    pub name: String,
    /// Type of the elements; `None` if niello has no such type, or the value is no tensor.
    pub dtype: Option<DType>,
    /// The extents, if at least their number is declared.
    pub shape: Option<Vec<DeclaredDim>>,
    /// What the value is if it is no tensor of a known type.
    pub other: Option<String>,
}

/// How often an operator occurs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperatorUse {
    /// The domain; empty for ONNX's own operators.
    pub domain: String,
    /// The name.
    pub name: String,
    /// Number of nodes.
    pub count: u64,
    /// Whether there is an import for it: a table's entry, or a function of the model.
    pub is_known: bool,
}

/// Number and size of a model's constants: initializers and the tensors of `Constant` nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ParameterCount {
    /// Number of tensors.
    pub tensors: u64,
    /// Number of elements.
    pub elements: u64,
    /// Bytes of the elements, as the file stores them.
    pub bytes: u64,
}

/// What a file consists of.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct FileSummary {
    /// What the model says about itself.
    pub info: ModelInfo,
    /// Inputs that are no initializers.
    pub inputs: Vec<DeclaredPort>,
    /// Outputs.
    pub outputs: Vec<DeclaredPort>,
    /// Operators by domain and name, those of nested graphs and of functions included.
    pub operators: Vec<OperatorUse>,
    /// Constants.
    pub parameters: ParameterCount,
    /// The files that hold elements of constants, as the model names them.
    pub external_data: BTreeSet<String>,
}

/// Counts what is in a model. Never fails: what is not there counts nothing.
pub fn summary(model: &ModelProto) -> FileSummary {
    let mut summary = FileSummary { info: model_info(model), ..FileSummary::default() };
    let mut counts: BTreeMap<(String, String), u64> = BTreeMap::new();
    let mut nodes: Vec<&NodeProto> = Vec::new();
    if let Some(graph) = &model.graph {
        summary.inputs = inputs(graph).map(port).collect();
        summary.outputs = graph.output.iter().map(port).collect();
        summary.add_graph(graph, &mut nodes);
    }
    nodes.extend(model.functions.iter().flat_map(|function| &function.node));
    // Graphs nest as deep as the message does; a list of what is left needs no stack.
    while let Some(node) = nodes.pop() {
        let domain = normal_domain(node.domain()).to_owned();
        *counts.entry((domain, node.op_type().to_owned())).or_default() += 1;
        for attribute in &node.attribute {
            summary.add_attribute(attribute, &mut nodes);
        }
    }
    let functions: BTreeSet<(&str, &str)> = model
        .functions
        .iter()
        .map(|function| (normal_domain(function.domain()), function.name()))
        .collect();
    summary.operators = counts
        .into_iter()
        .map(|((domain, name), count)| {
            let is_known = functions.contains(&(domain.as_str(), name.as_str()))
                || ops::find(&domain, &name, i64::MAX).is_ok_and(|op| op.is_some());
            OperatorUse { domain, name, count, is_known }
        })
        .collect();
    summary
}

impl FileSummary {
    fn add_graph<'a>(&mut self, graph: &'a GraphProto, nodes: &mut Vec<&'a NodeProto>) {
        nodes.extend(&graph.node);
        graph.initializer.iter().for_each(|tensor| self.add_tensor(tensor));
    }

    fn add_attribute<'a>(&mut self, attribute: &'a AttributeProto, nodes: &mut Vec<&'a NodeProto>) {
        attribute.t.iter().for_each(|tensor| self.add_tensor(tensor));
        attribute.tensors.iter().for_each(|tensor| self.add_tensor(tensor));
        for graph in attribute.g.iter().map(|graph| &**graph).chain(&attribute.graphs) {
            self.add_graph(graph, nodes);
        }
    }

    fn add_tensor(&mut self, tensor: &TensorProto) {
        let extents = tensor.dims.iter().map(|&dim| u64::try_from(dim).unwrap_or(0));
        let elements = extents.fold(1u64, u64::saturating_mul);
        let dtype = dtype_from_onnx(tensor.data_type.unwrap_or_default()).ok();
        let bytes = dtype.and_then(|dtype| dtype.bytes_for(elements)).unwrap_or(0);
        let count = &mut self.parameters;
        count.tensors += 1;
        count.elements = count.elements.saturating_add(elements);
        count.bytes = count.bytes.saturating_add(bytes);
        if tensor.is_external() {
            let location = tensor.external_data.iter().find(|entry| entry.key() == "location");
            self.external_data.extend(location.map(|entry| entry.value().to_owned()));
        }
    }
}

fn port(info: &ValueInfoProto) -> DeclaredPort {
    let named =
        DeclaredPort { name: info.name().to_owned(), dtype: None, shape: None, other: None };
    let other = |what: &str| Some(what.to_owned());
    match info.r#type.as_ref().and_then(|ty| ty.value.as_ref()) {
        Some(TypeValue::Tensor(tensor)) => {
            let dtype = dtype_from_onnx(tensor.elem_type.unwrap_or_default());
            let unknown = dtype.as_ref().err().map(|error| format!("a tensor: {error}"));
            DeclaredPort { dtype: dtype.ok(), shape: shape(tensor), other: unknown, ..named }
        }
        Some(TypeValue::SparseTensor(_)) => {
            DeclaredPort { other: other("a sparse tensor"), ..named }
        }
        Some(TypeValue::Sequence(_)) => DeclaredPort { other: other("a sequence"), ..named },
        Some(TypeValue::Optional(_)) => DeclaredPort { other: other("an optional value"), ..named },
        Some(TypeValue::Map(_)) => DeclaredPort { other: other("a map"), ..named },
        None => DeclaredPort { other: other("of no declared type"), ..named },
    }
}

fn shape(tensor: &TensorTypeProto) -> Option<Vec<DeclaredDim>> {
    let dims = tensor.shape.as_ref()?.dim.iter().map(|dim| match &dim.value {
        Some(DimensionValue::Value(value)) if *value >= 0 => DeclaredDim::Value(*value),
        Some(DimensionValue::Param(name)) if !name.is_empty() => DeclaredDim::Symbol(name.clone()),
        Some(DimensionValue::Value(_) | DimensionValue::Param(_)) | None => DeclaredDim::Unknown,
    });
    Some(dims.collect())
}

#[cfg(test)]
mod tests {
    use super::super::{ModelBuilder, ModelDim};
    use super::*;
    use crate::ir::Constant;

    #[test]
    fn ports_operators_and_parameters_are_counted() {
        let weight = Constant::from_f32(&[2, 3], &[0.0; 6]).unwrap();
        let branch = ModelBuilder::new(13)
            .initializer("k", &Constant::from_i64(&[4], &[0; 4]).unwrap())
            .node("Frobnicate", &["k"], &["z"], &[])
            .output("z", DType::F32, &[4])
            .build();
        let branch = branch.graph.unwrap();
        let model = ModelBuilder::new(13)
            .input("x", DType::F16, &[ModelDim::from("batch"), ModelDim::Unknown])
            .initializer("w", &weight)
            .node("MatMul", &["x", "w"], &["a"], &[])
            .node("Relu", &["a"], &["b"], &[])
            .node("Relu", &["b"], &["c"], &[])
            .node("If", &["c"], &["y"], &[("then_branch", branch.into())])
            .output("y", DType::F32, &[ModelDim::from("batch"), ModelDim::from(3)])
            .build();
        let summary = summary(&model);
        let batch = DeclaredDim::Symbol("batch".to_owned());
        assert_eq!(summary.inputs.len(), 1);
        assert_eq!(summary.inputs[0].dtype, Some(DType::F16));
        assert_eq!(summary.inputs[0].shape, Some(vec![batch.clone(), DeclaredDim::Unknown]));
        assert_eq!(summary.outputs[0].shape, Some(vec![batch, DeclaredDim::Value(3)]));
        let uses: Vec<(&str, u64, bool)> =
            summary.operators.iter().map(|o| (o.name.as_str(), o.count, o.is_known)).collect();
        let if_known = ops::supported_operators().any(|name| name == "If");
        assert_eq!(
            uses,
            [("Frobnicate", 1, false), ("If", 1, if_known), ("MatMul", 1, true), ("Relu", 2, true)]
        );
        let expected = ParameterCount { tensors: 2, elements: 10, bytes: 6 * 4 + 4 * 8 };
        assert_eq!(summary.parameters, expected);
    }
}
