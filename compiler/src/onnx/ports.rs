//! What a model's file says about its inputs and outputs, before anything is imported.

use super::proto::{
    DataType, DimensionValue, GraphProto, ModelProto, TypeProto, TypeValue, ValueInfoProto,
};

/// Names of the inputs that are no initializers, in the model's order.
pub fn input_names(model: &ModelProto) -> Vec<String> {
    let Some(graph) = &model.graph else { return Vec::new() };
    inputs(graph).map(|input| input.name().to_owned()).collect()
}

pub(super) fn inputs(graph: &GraphProto) -> impl Iterator<Item = &ValueInfoProto> {
    graph
        .input
        .iter()
        .filter(|input| !graph.initializer.iter().any(|constant| constant.name() == input.name()))
}

/// The type of each input that is no initializer.
pub fn input_types(model: &ModelProto) -> Vec<Option<&TypeProto>> {
    let graph = model.graph.as_ref();
    graph
        .map(|graph| inputs(graph).map(|input| input.r#type.as_ref()).collect())
        .unwrap_or_default()
}

/// The type of each output.
pub fn output_types(model: &ModelProto) -> Vec<Option<&TypeProto>> {
    let outputs = model.graph.iter().flat_map(|graph| &graph.output);
    outputs.map(|output| output.r#type.as_ref()).collect()
}

/// The symbol of each declared dimension of an input or output, where it has one.
pub fn dim_names(model: &ModelProto, port: &str) -> Vec<Option<String>> {
    let Some(graph) = &model.graph else { return Vec::new() };
    let found = graph.input.iter().chain(&graph.output).find(|info| info.name() == port);
    let ty = found.and_then(|info| info.r#type.as_ref()).and_then(|ty| ty.value.as_ref());
    let Some(TypeValue::Tensor(tensor)) = ty else { return Vec::new() };
    let dims = tensor.shape.iter().flat_map(|shape| &shape.dim);
    dims.map(|dim| match &dim.value {
        Some(DimensionValue::Param(name)) if !name.is_empty() => Some(name.clone()),
        Some(DimensionValue::Param(_) | DimensionValue::Value(_)) | None => None,
    })
    .collect()
}

/// The first input or output that holds strings, if one does.
pub fn string_port(model: &ModelProto) -> Option<&str> {
    let graph = model.graph.as_ref()?;
    let holds_strings = |info: &&ValueInfoProto| info.r#type.as_ref().is_some_and(has_strings);
    inputs(graph).chain(&graph.output).find(holds_strings).map(ValueInfoProto::name)
}

fn has_strings(ty: &TypeProto) -> bool {
    let is_string = |data_type: Option<i32>| data_type == Some(DataType::String as i32);
    // A type nests no deeper than the message that holds it, whose depth was limited.
    let inner = |ty: &Option<Box<TypeProto>>| ty.as_deref().is_some_and(has_strings);
    match &ty.value {
        Some(TypeValue::Tensor(tensor) | TypeValue::SparseTensor(tensor)) => {
            is_string(tensor.elem_type)
        }
        Some(TypeValue::Sequence(sequence)) => inner(&sequence.elem_type),
        Some(TypeValue::Optional(optional)) => inner(&optional.elem_type),
        Some(TypeValue::Map(map)) => is_string(map.key_type) || inner(&map.value_type),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::proto::{SequenceType, TensorTypeProto};
    use super::super::{ModelBuilder, ModelDim};
    use super::*;
    use crate::ir::DType;

    #[test]
    fn names_of_inputs_and_dimensions_come_from_the_file() {
        let model = ModelBuilder::new(13)
            .input("x", DType::F32, &[ModelDim::from("batch"), ModelDim::from(2)])
            .node("Relu", &["x"], &["y"], &[])
            .output("y", DType::F32, &[ModelDim::from("batch"), ModelDim::from(2)])
            .build();
        assert_eq!(input_names(&model), ["x"]);
        assert_eq!(dim_names(&model, "x"), [Some("batch".to_owned()), None]);
        assert_eq!(dim_names(&model, "y"), [Some("batch".to_owned()), None]);
        assert_eq!(dim_names(&model, "z"), []);
        assert_eq!(string_port(&model), None);
        assert_eq!(input_types(&model).len(), 1);
    }

    #[test]
    fn strings_are_found_in_sequences() {
        let mut model = ModelBuilder::new(13)
            .input("x", DType::F32, &[2])
            .node("Relu", &["x"], &["y"], &[])
            .output("y", DType::F32, &[2])
            .build();
        let strings = TypeProto {
            value: Some(TypeValue::Tensor(TensorTypeProto {
                elem_type: Some(DataType::String as i32),
                shape: None,
            })),
            denotation: None,
        };
        let sequence = SequenceType { elem_type: Some(Box::new(strings)) };
        let ty =
            TypeProto { value: Some(TypeValue::Sequence(Box::new(sequence))), denotation: None };
        model.graph.as_mut().unwrap().output[0].r#type = Some(ty);
        assert_eq!(string_port(&model), Some("y"));
        let ty = output_types(&model)[0].and_then(|ty| ty.value.as_ref());
        assert!(matches!(ty, Some(TypeValue::Sequence(_))));
    }
}
