//! Inputs that are sequences or optional values, as tensors.

use super::TestValue;
use super::proto::{ModelProto, NodeProto, TensorTypeProto, TypeProto, TypeValue, ValueInfoProto};

/// Replaces a model's inputs that are sequences or optional values by tensors, as many as the values
/// have: the elements of a sequence `x` become inputs `x_0`, `x_1` and so on, of any shape, and a
/// value that an optional input has not is none. `values` are in the order of the inputs that are no
/// initializers.
pub fn open_inputs(model: &mut ModelProto, values: &[TestValue]) {
    let Some(graph) = &mut model.graph else { return };
    let mut values = values.iter();
    let mut opened = Vec::with_capacity(graph.input.len());
    let mut nodes = Vec::new();
    for input in std::mem::take(&mut graph.input) {
        let is_initializer =
            graph.initializer.iter().any(|constant| constant.name() == input.name());
        let value = if is_initializer { None } else { values.next() };
        let ty = input.r#type.as_ref().and_then(|ty| ty.value.as_ref());
        let (Some(ty), Some(value)) = (ty.and_then(element), value) else {
            opened.push(input);
            continue;
        };
        let name = input.name().to_owned();
        match value {
            TestValue::Tensor(_) => opened.push(tensor(name, ty.clone())),
            TestValue::Sequence(elements) => {
                let names: Vec<String> =
                    (0..elements.len()).map(|at| format!("{name}_{at}")).collect();
                // Each element has a shape of its own.
                let ty = TensorTypeProto { shape: None, ..ty.clone() };
                opened.extend(names.iter().map(|name| tensor(name.clone(), ty.clone())));
                let op = if names.is_empty() { "SequenceEmpty" } else { "SequenceConstruct" };
                nodes.push(node(op, names, name));
            }
            TestValue::Absent => nodes.push(node("Optional", Vec::new(), name)),
            TestValue::Unsupported(_) => opened.push(input),
        }
    }
    graph.input = opened;
    graph.node.splice(0..0, nodes);
}

/// The type of the tensors that a sequence or an optional value has.
fn element(mut ty: &TypeValue) -> Option<&TensorTypeProto> {
    if matches!(ty, TypeValue::Tensor(_)) {
        return None;
    }
    loop {
        let inner = match ty {
            TypeValue::Tensor(tensor) => return Some(tensor),
            TypeValue::Sequence(sequence) => &sequence.elem_type,
            TypeValue::Optional(optional) => &optional.elem_type,
            TypeValue::Map(_) | TypeValue::SparseTensor(_) => return None,
        };
        ty = inner.as_ref()?.value.as_ref()?;
    }
}

fn tensor(name: String, ty: TensorTypeProto) -> ValueInfoProto {
    let ty = TypeProto { value: Some(TypeValue::Tensor(ty)), denotation: None };
    ValueInfoProto { name: Some(name), r#type: Some(ty), ..ValueInfoProto::default() }
}

fn node(op: &str, input: Vec<String>, output: String) -> NodeProto {
    NodeProto { op_type: Some(op.to_owned()), input, output: vec![output], ..NodeProto::default() }
}
