//! Tests of the import of sequences and optional values.

use super::tests::{Attr, body};
use crate::ir::{Constant, DType};
use crate::onnx::proto::{ModelProto, OptionalType, SequenceType, TypeProto, TypeValue};
use crate::onnx::{ImportOptions, ModelBuilder, TestValue, import, open_inputs};

/// Inputs `a` and `b` of three elements, and their sequence `s`.
fn pair() -> ModelBuilder {
    ModelBuilder::new(18).input("a", DType::F32, &[3]).input("b", DType::F32, &[3]).node(
        "SequenceConstruct",
        &["a", "b"],
        &["s"],
        &[],
    )
}

fn scalar(value: i64) -> Constant {
    Constant::from_i64(&[], &[value]).unwrap()
}

/// A type whose elements are of type `ty`.
fn sequence_of(ty: TypeProto) -> TypeProto {
    let sequence = SequenceType { elem_type: Some(Box::new(ty)) };
    TypeProto { value: Some(TypeValue::Sequence(Box::new(sequence))), denotation: None }
}

fn optional_of(ty: TypeProto) -> TypeProto {
    let optional = OptionalType { elem_type: Some(Box::new(ty)) };
    TypeProto { value: Some(TypeValue::Optional(Box::new(optional))), denotation: None }
}

/// The text of a model's function, from its parameters on.
fn text(model: &ModelProto) -> String {
    let imported = import(model, None, &ImportOptions::default());
    imported.map_or_else(|report| report.to_string(), |imported| imported.module.to_string())
}

/// What the imported function returns; the tuples before it are dead, and the first pass drops them.
fn result(model: ModelBuilder, op: &str, inputs: &[&str], attrs: &[Attr<'_>]) -> String {
    body(model, op, inputs, attrs).lines().last().unwrap_or_default().to_owned()
}

#[test]
fn nothing_is_left_of_a_sequence_but_its_elements() {
    let model = || pair().initializer("first", &scalar(0)).initializer("last", &scalar(-1));
    assert_eq!(result(model(), "SequenceAt", &["s", "last"], &[]), "%b");
    let longer = model().node("SequenceInsert", &["s", "b", "first"], &["t"], &[]);
    assert_eq!(result(longer, "SequenceAt", &["t", "first"], &[]), "%b");
    let shorter = model().node("SequenceErase", &["s"], &["t"], &[]);
    assert_eq!(result(shorter, "SequenceAt", &["t", "last"], &[]), "%a");
    assert!(result(model(), "SequenceLength", &["s"], &[]).contains("const(2,"));
    let axis = [("axis", 0.into())];
    assert_eq!(result(model(), "ConcatFromSequence", &["s"], &axis), "concatenate(%a, %b, axis=0)");
    let new = [("axis", (-1).into()), ("new_axis", 1.into())];
    assert!(body(model(), "ConcatFromSequence", &["s"], &new).contains("newshape=[3, 1]"));
}

#[test]
fn positions_and_elements_that_do_not_fit_are_errors() {
    let model = || pair().initializer("two", &scalar(2)).input("i", DType::I64, &[2]);
    assert_eq!(
        body(model(), "SequenceAt", &["s", "two"], &[]),
        "position 2 is out of range for a sequence of 2 elements"
    );
    assert_eq!(
        body(model(), "SequenceInsert", &["s", "i"], &[]),
        "the elements of a sequence must be of one type, but there are float32 and int64"
    );
    assert_eq!(body(model(), "SequenceLength", &["a"], &[]), "input 0 must be a sequence");
    let empty = model().node("SequenceEmpty", &[], &["t"], &[("dtype", 1.into())]);
    assert_eq!(body(empty, "SequenceErase", &["t"], &[]), "the sequence has no element to erase");
    assert!(body(model(), "Relu", &["s"], &[]).contains("a tensor"));
}

#[test]
fn a_tensor_splits_into_a_sequence() {
    let model = |sizes: Option<Constant>| {
        let model = ModelBuilder::new(18).input("x", DType::F32, &[5, 2]);
        let inputs: &[&str] = if sizes.is_some() { &["x", "sizes"] } else { &["x"] };
        let model = match &sizes {
            Some(sizes) => model.initializer("sizes", sizes),
            None => model,
        };
        model.node("SplitToSequence", inputs, &["s"], &[]).initializer("at", &scalar(-1))
    };
    let last = |sizes| body(model(sizes), "SequenceAt", &["s", "at"], &[]);
    assert!(last(Some(scalar(2))).contains("sections=[2, 2, 1]"));
    let list = Constant::from_i64(&[2], &[4, 1]).unwrap();
    assert!(last(Some(list)).contains("sections=[4, 1]"));
    assert!(last(None).contains("sections=[1, 1, 1, 1, 1]"));
    assert_eq!(last(Some(scalar(0))), "the sizes of elements must be at least 1, not 0");
}

#[test]
fn a_graph_is_mapped_over_a_sequence() {
    let each = ModelBuilder::new(18)
        .input("x", DType::F32, &[3])
        .input("c", DType::F32, &[3])
        .node("Mul", &["x", "c"], &["z"], &[])
        .output("z", DType::F32, &[3])
        .build_graph();
    let model = pair().input("c", DType::F32, &[3]).node(
        "SequenceMap",
        &["s", "c"],
        &["t"],
        &[("body", each.into())],
    );
    let text = body(model, "ConcatFromSequence", &["t"], &[("axis", 0.into())]);
    assert!(text.contains("%1 = multiply(%a, %c);\n%2 = multiply(%b, %c);"), "{text}");
    assert!(text.ends_with("concatenate(%1, %2, axis=0)"), "{text}");
}

#[test]
fn elements_of_sequences_are_inputs_and_outputs_of_their_own() {
    let mut model = ModelBuilder::new(18)
        .input("s", DType::F32, &[3])
        .input("a", DType::F32, &[2])
        .node("SequenceInsert", &["s", "a"], &["t"], &[])
        .output("t", DType::F32, &[3])
        .build();
    let graph = model.graph.as_mut().unwrap();
    for port in graph.input.iter_mut().take(1).chain(&mut graph.output) {
        port.r#type = port.r#type.take().map(sequence_of);
    }
    assert!(text(&model).contains("input `s` is a sequence"), "{}", text(&model));
    let tensor = |elements: i64| {
        let zeros = vec![0.0; elements as usize];
        Constant::from_f32(&[elements], &zeros).unwrap()
    };
    let values = [TestValue::Sequence(vec![tensor(3), tensor(4)]), TestValue::Tensor(tensor(2))];
    open_inputs(&mut model, &values);
    let options = ImportOptions {
        input_shapes: [("s_0".to_owned(), vec![3]), ("s_1".to_owned(), vec![4])].into(),
        ..ImportOptions::default()
    };
    let imported = import(&model, None, &options).unwrap();
    let names = |ports: &[crate::onnx::ModelPort]| -> Vec<String> {
        ports.iter().map(|port| format!("{} {}", port.name, port.ty.shape)).collect()
    };
    assert_eq!(names(&imported.inputs), ["s_0 (3)", "s_1 (4)", "a (2)"]);
    assert_eq!(names(&imported.outputs), ["t_0 (3)", "t_1 (4)", "t_2 (2)"]);
}

#[test]
fn whether_an_optional_value_has_an_element_is_known() {
    let model = |value: TestValue| {
        let mut model = ModelBuilder::new(18)
            .input("x", DType::F32, &[3])
            .node("OptionalHasElement", &["x"], &["y"], &[])
            .output::<i64>("y", DType::Bool, &[])
            .build();
        let graph = model.graph.as_mut().unwrap();
        graph.input[0].r#type = graph.input[0].r#type.take().map(optional_of);
        open_inputs(&mut model, &[value]);
        text(&model)
    };
    assert!(model(TestValue::Absent).contains("const(false, bool)"));
    let tensor = Constant::from_f32(&[3], &[0.0; 3]).unwrap();
    assert!(model(TestValue::Tensor(tensor)).contains("const(true, bool)"));
    let nothing = ModelBuilder::new(18).node("Optional", &[], &["o"], &[]);
    assert_eq!(
        body(nothing, "OptionalGetElement", &["o"], &[]),
        "the optional value has no element"
    );
}
