//! Tests of what concerns a model as a whole: interface, order of nodes, and reports.

mod control;

use super::*;
use crate::graph::Expr;
use crate::ir::{Constant, DType, Span};
use crate::onnx::proto::StringStringEntryProto;
use crate::onnx::{ModelBuilder, ModelDim};

fn import_default(model: &ModelProto) -> Result<Imported, String> {
    import(model, None, &ImportOptions::default()).map_err(|report| report.to_string())
}

fn text(model: &ModelProto) -> String {
    import_default(model).unwrap().module.to_string()
}

fn problems(model: &ModelProto, options: &ImportOptions) -> Vec<String> {
    let report = import(model, None, options).unwrap_err();
    report.problems.iter().map(ToString::to_string).collect()
}

/// `y = relu(x)` with these declared extents of `x`.
fn relu(dims: &[ModelDim]) -> ModelProto {
    ModelBuilder::new(13)
        .input("x", DType::F32, dims)
        .node("Relu", &["x"], &["y"], &[])
        .output("y", DType::F32, dims)
        .build()
}

fn options(dims: &[(&str, u64)], shapes: &[(&str, &[u64])]) -> ImportOptions {
    ImportOptions {
        dims: dims.iter().map(|&(name, size)| (name.to_owned(), size.into())).collect(),
        input_shapes: shapes.iter().map(|&(name, dims)| (name.to_owned(), dims.to_vec())).collect(),
        ..ImportOptions::default()
    }
}

#[test]
fn a_model_becomes_one_function_under_its_own_names() {
    let bias = Constant::from_f32(&[2], &[1.0, 2.0]).unwrap();
    let model = ModelBuilder::new(13)
        .input("x:0", DType::F32, &[3, 2])
        .initializer("b", &bias)
        .node("Add", &["x:0", "b"], &["sum"], &[])
        .node("Relu", &["sum"], &["y"], &[])
        .output("y", DType::F32, &[3, 2])
        .output("sum", DType::F32, &[3, 2])
        .build();
    let imported = import_default(&model).unwrap();
    assert_eq!(
        imported.module.to_string(),
        "def @main(%\"x:0\": Tensor[(3, 2), float32]) -> (Tensor[(3, 2), float32], Tensor[(3, 2), float32]) {\n  \
           %0 = add(%\"x:0\", const([1, 2], float32));\n  \
           %1 = nn.relu(%0);\n  \
           (%1, %0)\n\
         }\n"
    );
    let names = |ports: &[ModelPort]| {
        ports.iter().map(|port| format!("{}: {}", port.name, port.ty)).collect::<Vec<_>>()
    };
    assert_eq!(names(&imported.inputs), ["x:0: Tensor[(3, 2), float32]"]);
    assert_eq!(
        names(&imported.outputs),
        ["y: Tensor[(3, 2), float32]", "sum: Tensor[(3, 2), float32]"]
    );
}

#[test]
fn initializers_that_are_listed_as_inputs_stay_constants() {
    let model = ModelBuilder::new(7)
        .ir_version(3)
        .input("x", DType::F32, &[1])
        .input("w", DType::F32, &[1])
        .initializer("w", &Constant::from_f32(&[1], &[4.0]).unwrap())
        .node("Mul", &["x", "w"], &["y"], &[])
        .output("y", DType::F32, &[1])
        .build();
    let imported = import_default(&model).unwrap();
    assert_eq!(imported.inputs.len(), 1);
    assert!(imported.module.to_string().contains("multiply(%x, const([4], float32))"));
}

#[test]
fn outputs_may_be_inputs_or_initializers() {
    let model = ModelBuilder::new(13)
        .input("x", DType::I64, &[1])
        .ints("k", &[5])
        .output("x", DType::I64, &[1])
        .output("k", DType::I64, &[1])
        .build();
    assert!(text(&model).ends_with("{\n  (%x, const([5], int64))\n}\n"));
}

#[test]
fn names_that_onnx_runtime_takes_twice_are_taken_twice() {
    let constant = |value| Constant::from_f32(&[], &[value]).unwrap();
    let mut model = ModelBuilder::new(13)
        .input::<i64>("x", DType::F32, &[])
        .initializer("c", &constant(1.0))
        .initializer("c", &constant(2.0))
        .node("Add", &["x", "c"], &["y"], &[])
        .output::<i64>("y", DType::F32, &[])
        .output::<i64>("y", DType::F32, &[])
        .output::<i64>("y_2", DType::F32, &[])
        .build();
    model.graph.as_mut().unwrap().node[0].output[0] = "y".to_owned();
    let again = model.graph.as_ref().unwrap().node[0].clone();
    let copy = crate::onnx::proto::NodeProto { output: vec!["y_2".to_owned()], ..again };
    model.graph.as_mut().unwrap().node.push(copy);
    let imported = import_default(&model).unwrap();
    let names: Vec<&str> = imported.outputs.iter().map(|port| port.name.as_str()).collect();
    assert_eq!(names, ["y", "y_3", "y_2"]);
    assert!(imported.module.to_string().contains("add(%x, const(2, float32))"));
}

#[test]
fn a_scalar_can_be_given_a_shape() {
    let vector = options(&[], &[("x", &[3])]);
    let imported = import(&relu(&[]), None, &vector).unwrap();
    assert_eq!(imported.inputs[0].ty.to_string(), "Tensor[(3), float32]");
    assert_eq!(imported.outputs[0].ty.to_string(), "Tensor[(3), float32]");
}

#[test]
fn symbolic_dimensions_stay_symbols_and_are_pinned_by_name() {
    let model = relu(&["batch".into(), 3.into(), ModelDim::Unknown, (-1).into()]);
    let ty = |options: &ImportOptions| {
        import(&model, None, options).unwrap().outputs[0].ty.shape.to_string()
    };
    assert_eq!(ty(&options(&[], &[])), "(batch, 3, x_2, x_3)");
    assert_eq!(ty(&options(&[("batch", 8), ("x_3", 7)], &[])), "(8, 3, x_2, 7)");
    assert_eq!(ty(&options(&[], &[("x", &[1, 3, 4, 5])])), "(1, 3, 4, 5)");
}

#[test]
fn a_shape_given_for_one_input_fixes_the_names_in_others() {
    let model = ModelBuilder::new(13)
        .input::<ModelDim>("a", DType::F32, &["n".into(), 2.into()])
        .input("b", DType::F32, &["n"])
        .node("Relu", &["b"], &["y"], &[])
        .output("y", DType::F32, &["n"])
        .build();
    let imported = import(&model, None, &options(&[], &[("a", &[6, 2])])).unwrap();
    assert_eq!(imported.inputs[1].ty.shape.to_string(), "(6)");
}

#[test]
fn pins_that_fit_nothing_are_told() {
    let model = relu(&["batch".into(), 3.into()]);
    assert_eq!(
        problems(&model, &options(&[("bacth", 1)], &[("z", &[1])])),
        [
            "dimension `bacth` is pinned, but the model has no such symbolic dimension; it has `batch`",
            "a shape was given for input `z`, but the model has no such input; it has `x`",
        ]
    );
    assert_eq!(
        problems(&model, &options(&[("batch", 1)], &[("x", &[2, 4])])),
        [
            "the shape [2, 4] was given for input `x`, but dimension `batch` is pinned to 1",
            "the shape [2, 4] was given for input `x`, but dimension 1 is 3 in the model",
        ]
    );
    assert_eq!(
        problems(&model, &options(&[], &[("x", &[2])])),
        ["the shape [2] was given for input `x`, but it has 2 dimensions"]
    );
}

#[test]
fn an_input_without_a_shape_needs_one() {
    let mut model = relu(&[1.into()]);
    let input = &mut model.graph.as_mut().unwrap().input[0];
    let Some(crate::onnx::proto::TypeValue::Tensor(tensor)) =
        input.r#type.as_mut().and_then(|ty| ty.value.as_mut())
    else {
        panic!("the input is a tensor");
    };
    tensor.shape = None;
    model.graph.as_mut().unwrap().output[0].r#type = None;
    assert_eq!(
        problems(&model, &ImportOptions::default()),
        ["input `x` has no declared shape; help: give it one: .input_shape(\"x\", [N, ..])"]
    );
    let imported = import(&model, None, &options(&[], &[("x", &[4, 5])])).unwrap();
    assert_eq!(imported.outputs[0].ty.shape.to_string(), "(4, 5)");
}

#[test]
fn an_input_can_be_fixed_to_a_value() {
    let model = ModelBuilder::new(13)
        .input("x", DType::F32, &[6])
        .input("shape", DType::I64, &[2])
        .node("Reshape", &["x", "shape"], &["y"], &[])
        .output("y", DType::F32, &[2, 3])
        .build();
    assert_eq!(static_inputs(&model), ["shape"]);
    assert_eq!(
        problems(&model, &ImportOptions::default()),
        [
            "node `y` (Reshape, opset 13): input 1 must be known while compiling, but it is computed \
             from the model's inputs (inputs `x`: Tensor[(6), float32], `shape`: Tensor[(2), int64]); \
             help: make it a constant when exporting the model, or fix what it is computed from: \
             .input_value(\"shape\", VALUE)"
        ]
    );
    let mut options = ImportOptions::default();
    let value = Constant::from_i64(&[3], &[2, 3, 1]).unwrap();
    options.input_values.insert("shape".to_owned(), [2, -1].into());
    let imported = import(&model, None, &options).unwrap();
    assert_eq!(imported.inputs.len(), 1);
    assert_eq!(imported.outputs[0].ty.shape.to_string(), "(2, 3)");
    options.input_values.insert("shape".to_owned(), value.into());
    assert_eq!(
        problems(&model, &options),
        [
            "the value given for input `shape` is Tensor[(3), int64], but the input is Tensor[(2), int64]"
        ]
    );
}

#[test]
fn static_inputs_are_found_through_what_is_computed_from_them() {
    let model = ModelBuilder::new(13)
        .input("x", DType::F32, &[6])
        .input("n", DType::I64, &[1])
        .input("other", DType::F32, &[2])
        .node("Shape", &["other"], &["s"], &[])
        .node("Concat", &["n", "s"], &["shape"], &[("axis", 0.into())])
        .node("Reshape", &["x", "shape"], &["y"], &[])
        .output("y", DType::F32, &[3, 2])
        .build();
    assert_eq!(static_inputs(&model), ["n"]);
}

/// A size that a branch computes from the input is known no sooner than the input.
#[test]
fn static_inputs_are_found_through_branches() {
    let branch = |name: &str| {
        let graph = ModelBuilder::new(13).node("Identity", &["n"], &[name], &[]);
        graph.output(name, DType::I64, &[1]).build_graph()
    };
    let model = ModelBuilder::new(13)
        .input("x", DType::F32, &[6])
        .input("n", DType::I64, &[1])
        .input::<i64>("c", DType::Bool, &[])
        .node(
            "If",
            &["c"],
            &["s"],
            &[("then_branch", branch("a").into()), ("else_branch", branch("b").into())],
        )
        .node("Reshape", &["x", "s"], &["y"], &[])
        .output("y", DType::F32, &[6])
        .build();
    assert_eq!(static_inputs(&model), ["n", "c"]);
}

#[test]
fn nodes_may_stand_in_any_order_and_dead_ones_are_left_out() {
    let model = ModelBuilder::new(13)
        .input("x", DType::F32, &[1])
        .node("Exp", &["b"], &["y"], &[])
        .node("NoSuchOperator", &["x"], &["dead"], &[])
        .node("Abs", &["a"], &["b"], &[])
        .node("Relu", &["x"], &["a"], &[])
        .output("y", DType::F32, &[1])
        .build();
    assert!(text(&model).ends_with("{\n  %0 = nn.relu(%x);\n  %1 = abs(%0);\n  exp(%1)\n}\n"));
}

#[test]
fn names_must_be_defined_once_and_without_circles() {
    let model = ModelBuilder::new(13)
        .input("x", DType::F32, &[1])
        .node("Relu", &["x"], &["a"], &[])
        .node("Abs", &["x"], &["a"], &[])
        .node("Add", &["a", "nowhere"], &["b"], &[])
        .node("Add", &["b", "d"], &["c"], &[])
        .node("Neg", &["c"], &["d"], &[])
        .output("d", DType::F32, &[1])
        .output("gone", DType::F32, &[1])
        .build();
    assert_eq!(
        problems(&model, &ImportOptions::default()),
        [
            "node `a` (Abs, opset 13): it defines `a`, which is already an output of node `a` (Relu, opset 13)",
            "node `b` (Add, opset 13): it uses `nowhere`, which nothing defines",
            "node `d` (Neg, opset 13): the nodes `d`, `c` depend on each other in a circle",
            "nothing defines the output `gone`",
        ]
    );
}

#[test]
fn integer_products_take_bytes_alone() {
    let of = |dtype: DType| {
        let model = ModelBuilder::new(17)
            .input("a", dtype, &[4, 5])
            .input("b", DType::I8, &[5, 7])
            .node("MatMulInteger", &["a", "b"], &["y"], &[])
            .output("y", DType::I32, &[4, 7])
            .build();
        import_default(&model).map(|_| ())
    };
    assert_eq!(of(DType::U8), Ok(()));
    let error = of(DType::F32).unwrap_err();
    assert!(error.contains("int8 or uint8 is expected, but input 0 is float32"), "{error}");
}

#[test]
fn every_problem_of_a_model_is_in_one_report() {
    let weight = Constant::from_f32(&[4, 2, 3, 3], &[0.0; 72]).unwrap();
    let model = ModelBuilder::new(13)
        .opset("com.microsoft", 1)
        .input("x", DType::F32, &[1, 3, 8, 8])
        .initializer("w", &weight)
        // An operator of another domain; what uses it is left out silently.
        .node_in("com.microsoft", "FusedGelu", &["x"], &["a"], &[])
        .node("Relu", &["a"], &["a2"], &[])
        // A type error: the channels do not fit.
        .node("Conv", &["x", "w"], &["b"], &[])
        // An attribute that the operator does not have, and one of another type.
        .node("Relu", &["x"], &["c"], &[("alpha", 0.5f32.into())])
        .node("Transpose", &["x"], &["d"], &[("perm", 1.0f32.into())])
        // An operator that is not supported, on a value that is not known.
        .node("ImageDecoder", &["a2"], &["e"], &[])
        .node("Concat", &["a2", "b", "c", "d", "e"], &["y"], &[("axis", 0.into())])
        .output("y", DType::F32, &[1])
        .build();
    assert_eq!(
        problems(&model, &ImportOptions::default()),
        [
            "node `a` (com.microsoft.FusedGelu, opset 1): the operator com.microsoft.FusedGelu is not \
             supported (input `x`: Tensor[(1, 3, 8, 8), float32]); help: export the model without it, \
             cut the graph before it with onnx.utils.extract_model, or import it with \
             niello::register_onnx_op!",
            "node `b` (Conv, opset 13): input `weight`, which is Tensor[(4, 2, 3, 3), float32], takes 2 \
             channels in each of 1 groups, but input `x`, which is Tensor[(1, 3, 8, 8), float32], has 3 \
             channels (inputs `x`: Tensor[(1, 3, 8, 8), float32], `w`: Tensor[(4, 2, 3, 3), float32])",
            "node `c` (Relu, opset 13): attribute `alpha` is not one of Relu at opset 13 (input `x`: \
             Tensor[(1, 3, 8, 8), float32])",
            "node `d` (Transpose, opset 13): attribute `perm` must be of type ints, but it is of type \
             float (input `x`: Tensor[(1, 3, 8, 8), float32])",
            "node `e` (ImageDecoder, opset 13): the operator ImageDecoder is not supported (input `a2` of unknown type); \
             help: export the model without it, cut the graph before it with \
             onnx.utils.extract_model, or import it with niello::register_onnx_op!",
        ]
    );
}

#[test]
fn versions_that_are_not_known_are_refused() {
    let model = |opset: i64| {
        ModelBuilder::new(opset)
            .input("x", DType::F32, &[1])
            .node("Add", &["x", "x"], &["a"], &[])
            .node("Add", &["a", "x"], &["b"], &[])
            .node("Floor", &["b"], &["y"], &[])
            .output("y", DType::F32, &[1])
    };
    let report = |model: ModelBuilder| problems(&model.build(), &ImportOptions::default());
    let help = "help: convert the model: onnx.version_converter.convert_version(model, 17)";
    // Told once, although two nodes need a newer one.
    assert_eq!(
        report(model(6)),
        [format!("the model uses opset 6, but the oldest that is supported is 7; {help}")]
    );
    assert_eq!(
        report(model(MAX_OPSET + 1)),
        [format!("the model uses opset 29, but the newest that is known is 28; {help}")]
    );
    assert!(import_default(&model(MAX_OPSET).build()).is_ok());
    assert!(report(model(13).ir_version(99))[0].contains("version 99 of the ONNX format"));
    // Floor has not changed between 6 and 7.
    let floor = ModelBuilder::new(6)
        .input("x", DType::F32, &[1])
        .node("Floor", &["x"], &["y"], &[])
        .output("y", DType::F32, &[1]);
    assert!(import_default(&floor.build()).is_ok());
}

#[test]
fn domains_must_be_imported_and_functions_are_told() {
    let model = ModelBuilder::new(13)
        .input("x", DType::F32, &[1])
        .node_in("ai.onnx", "Relu", &["x"], &["a"], &[])
        .node_in("my.domain", "Op", &["a"], &["y"], &[])
        .output("y", DType::F32, &[1])
        .build();
    assert_eq!(
        problems(&model, &ImportOptions::default()),
        ["node `y` (my.domain.Op): the model does not import the domain `my.domain` (input `a`: \
             Tensor[(1), float32])"]
    );
}

#[test]
fn repeated_attributes_and_wrong_counts_of_inputs_are_told() {
    let model = ModelBuilder::new(13)
        .input("x", DType::F32, &[1])
        .node("Relu", &["x", "x"], &["a"], &[])
        .node("Softmax", &["x"], &["b"], &[("axis", 0.into()), ("axis", 0.into())])
        .node("Add", &["x", ""], &["c"], &[])
        .node("Dropout", &["x"], &["d", "mask", "more"], &[])
        .output("a", DType::F32, &[1])
        .output("b", DType::F32, &[1])
        .output("c", DType::F32, &[1])
        .output("d", DType::F32, &[1])
        .build();
    let one = "Tensor[(1), float32]";
    assert_eq!(
        problems(&model, &ImportOptions::default()),
        [
            format!(
                "node `a` (Relu, opset 13): Relu takes 1 input, but the node has 2 (inputs `x`: {one}, `x`: {one})"
            ),
            format!(
                "node `b` (Softmax, opset 13): attribute `axis` is given twice (input `x`: {one})"
            ),
            format!("node `c` (Add, opset 13): input 1 is missing (inputs `x`: {one}, none)"),
            format!(
                "node `d` (Dropout, opset 13): output 2, `more`, is not supported (input `x`: {one})"
            ),
        ]
    );
}

#[test]
fn outputs_must_have_their_declared_data_type() {
    let model = |dtype| {
        ModelBuilder::new(13)
            .input("x", DType::F32, &[1, 2])
            .node("Relu", &["x"], &["y"], &[])
            .output("y", dtype, &[1, 2])
            .build()
    };
    assert!(import_default(&model(DType::F32)).is_ok());
    assert_eq!(
        import_default(&model(DType::F16)).unwrap_err(),
        "output `y` is declared as float16, but it is Tensor[(1, 2), float32]"
    );
}

#[test]
fn a_bad_initializer_is_told_once() {
    let mut model = ModelBuilder::new(13)
        .input("x", DType::F32, &[2])
        .initializer("w", &Constant::from_f32(&[2], &[1.0, 2.0]).unwrap())
        .node("Mul", &["x", "w"], &["a"], &[])
        .node("Add", &["a", "w"], &["y"], &[])
        .output("y", DType::F32, &[2])
        .build();
    model.graph.as_mut().unwrap().initializer[0].dims = vec![3];
    assert_eq!(
        problems(&model, &ImportOptions::default()),
        ["initializer `w`: Tensor[(3), float32] takes 12 bytes, but the file has 8"]
    );
}

#[test]
fn expressions_carry_the_node_they_came_from() {
    let mut model = relu(&[1.into()]);
    let node = &mut model.graph.as_mut().unwrap().node[0];
    node.name = None;
    node.metadata_props.push(StringStringEntryProto {
        key: Some("pkg.torch.onnx.stack_trace".to_owned()),
        value: Some(
            "File \"run.py\", line 3, in <module>\n  main()\nFile \"net.py\", line 41, in forward\n  y = x.relu()"
                .to_owned(),
        ),
    });
    let imported = import_default(&model).unwrap();
    let main = imported.module.function("main").unwrap();
    let call = main.ids().find(|&id| matches!(main.expr(id), Expr::Call(_))).unwrap();
    let Span::Onnx(span) = main.span(call) else { panic!("the span is of a node") };
    assert_eq!((span.node.as_str(), span.op.as_str(), span.opset), ("y", "Relu", 13));
    assert_eq!(span.source.as_deref(), Some("net.py:41"));
}

#[test]
fn what_a_model_says_about_itself_is_kept() {
    let mut model = relu(&[1.into()]);
    model.producer_version = Some("1.2".to_owned());
    model.model_version = Some(3);
    model.metadata_props.push(StringStringEntryProto {
        key: Some("author".to_owned()),
        value: Some("me".to_owned()),
    });
    let info = import_default(&model).unwrap().info;
    assert_eq!((info.producer.as_str(), info.graph_name.as_str()), ("niello 1.2", "graph"));
    assert_eq!((info.model_version, info.ir_version), (3, 8));
    assert_eq!(info.opsets.get(""), Some(&13));
    assert_eq!(info.metadata, [("author".to_owned(), "me".to_owned())]);
}

#[test]
fn a_hundred_thousand_nodes_are_imported_without_recursion() {
    const NODES: usize = 100_000;
    let mut model = ModelBuilder::new(13).input("v0", DType::F32, &[1]);
    for index in 0..NODES {
        let (from, to) = (format!("v{index}"), format!("v{}", index + 1));
        model = model.node("Relu", &[&from], &[&to], &[]);
    }
    let model = model.output(&format!("v{NODES}"), DType::F32, &[1]).build();
    let imported = import_default(&model).unwrap();
    assert_eq!(imported.module.function("main").unwrap().len(), NODES + 1);
}

#[test]
fn declared_outputs_that_contradict_what_is_computed_are_told() {
    let model = |input: &[ModelDim], output: &[ModelDim]| {
        ModelBuilder::new(13)
            .input("x", DType::F32, input)
            .node("Relu", &["x"], &["y"], &[])
            .output("y", DType::F32, output)
            .build()
    };
    let dims = |dims: &[i64]| dims.iter().copied().map(ModelDim::from).collect::<Vec<_>>();
    assert_eq!(
        problems(&model(&dims(&[2, 3]), &dims(&[2, 4])), &ImportOptions::default()),
        ["output `y` is declared as (2, 4), but it is Tensor[(2, 3), float32]; help: if the \
             declaration is stale, remove the output's shape from the model"]
    );
    let error = problems(&model(&dims(&[2, 3]), &dims(&[6])), &ImportOptions::default());
    assert!(
        error[0].starts_with("output `y` is declared as (6), but it is Tensor[(2, 3), float32]")
    );
    // An extent that the exporter traced, and that was freed at the input alone.
    let freed = [ModelDim::from("batch"), ModelDim::from(3)];
    let freed = model(&freed, &dims(&[1, 3]));
    let imported = import(&freed, None, &options(&[("batch", 4)], &[])).unwrap();
    assert_eq!(imported.outputs[0].ty.to_string(), "Tensor[(4, 3), float32]");
    // What is not declared contradicts nothing.
    let open = [ModelDim::from("n"), ModelDim::from(-1)];
    assert!(import_default(&model(&dims(&[2, 3]), &open)).is_ok());
    assert!(import_default(&model(&dims(&[2, 3]), &[ModelDim::from(-1)])).is_ok());
}

/// A product of `x` with each of some matrices.
fn products(dims: &[ModelDim], matrices: &[[i64; 2]]) -> ModelProto {
    let mut builder = ModelBuilder::new(17).input("x", DType::F32, dims);
    for (index, shape) in matrices.iter().enumerate() {
        let (w, y) = (format!("w{index}"), format!("y{index}"));
        let count = (shape[0] * shape[1]) as usize;
        builder = builder
            .initializer(&w, &Constant::from_f32(shape, &vec![0.5; count]).unwrap())
            .node("MatMul", &["x", &w], &[&y], &[])
            .output(&y, DType::F32, &[ModelDim::from("rows"), shape[1].into()]);
    }
    builder.build()
}

#[test]
fn extents_are_what_nodes_need_them_to_be() {
    let open = ["batch".into(), "features".into()];
    let model = products(&open, &[[20, 10], [20, 4]]);
    let imported = import_default(&model).unwrap();
    assert_eq!(imported.inputs[0].ty.to_string(), "Tensor[(batch, 20), float32]");
    assert_eq!(imported.outputs[1].ty.to_string(), "Tensor[(batch, 4), float32]");
    // What the caller says counts.
    let problem = problems(&model, &options(&[("features", 30)], &[])).remove(0);
    assert!(problem.contains("Tensor[(batch, 30), float32]"), "{problem}");
}

#[test]
fn extents_that_two_nodes_need_to_differ_are_told_with_both() {
    let model = products(&["batch".into(), "features".into()], &[[20, 10], [30, 4]]);
    let problems = problems(&model, &ImportOptions::default());
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("node `y1` (MatMul, opset 17)"), "{problems:?}");
    assert!(problems[0].contains("`features` is 20 because of `nn.matmul`"), "{problems:?}");
    assert!(problems[0].contains("y0"), "{problems:?}");
}

#[test]
fn the_name_of_a_dimension_may_be_a_sum_of_others() {
    let model = |mask: &str| {
        ModelBuilder::new(13)
            .input("x", DType::F32, &[ModelDim::from("seq")])
            .input("past", DType::F32, &[ModelDim::from("past_len")])
            .input("mask", DType::F32, &[ModelDim::from(mask)])
            .node("Concat", &["past", "x"], &["all"], &[("axis", 0.into())])
            .node("Mul", &["all", "mask"], &["y"], &[])
            .output("y", DType::F32, &[ModelDim::from("all_len")])
            .build()
    };
    let text = text(&model("past_len + seq"));
    assert!(text.contains("%mask: Tensor[(past_len + seq), float32]"), "{text}");
    let imported =
        import(&model("past_len+1"), None, &options(&[("past_len", 4), ("seq", 1)], &[]));
    assert_eq!(imported.unwrap().inputs[2].ty.shape.as_consts(), Some(vec![5]));
    // A name that is a sum of nothing known is a name; what has the same size follows from it.
    let imported = import_default(&model("past_len + other")).unwrap();
    let shape = |input: usize| imported.inputs[input].ty.shape.to_string();
    assert_eq!(
        [shape(0), shape(2)],
        ["(\"past_len + other\" - past_len)", "(\"past_len + other\")"]
    );
    let open = |min, max| DimSize::RunTime { min, max };
    let dims = [("past_len".to_owned(), open(0, 4)), ("seq".to_owned(), open(1, 3))].into();
    let known = ImportOptions { dims, ..ImportOptions::default() };
    let imported = import(&model("past_len + other"), None, &known).unwrap();
    assert_eq!(imported.inputs[2].ty.shape.to_string(), "(past_len + seq)");
    let pinned = options(&[("past_len", 4), ("seq", 1), ("past_len + other", 5)], &[]);
    assert_eq!(
        import(&model("past_len + other"), None, &pinned).unwrap().inputs[2].ty.shape.as_consts(),
        Some(vec![5])
    );
}
