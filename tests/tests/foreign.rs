//! What passes and operators of another crate than niello do wrong is said of them.

use niello::compile::{Model, Passes, compile};
use niello::graph::interp::Tensor;
use niello::graph::{TypeError, parse_module};
use niello::ir::{DType, GlobalVar, IRModule, Type};
use niello::ops::{Compute, DTypes, EvalCx, EvalError, InferCx, Input, OpDef, Stages};
use niello::options::CompileOptions;
use niello::pass::{Pass, PassContext, PassRef, module_pass, prim_func_pass};
use niello::target::Target;
use niello::tir::{ParamKind, PrimExpr, PrimFunc, Stmt};

/// What is wrong with a model that is compiled with a pass before all others, and one of lowering.
fn problem(body: &str, pass: Option<PassRef>, lowering: Option<&str>) -> String {
    let text =
        format!("def @main(%x: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] {{ {body} }}");
    let model = Model::from_module("model", parse_module(&text).unwrap());
    let mut options = CompileOptions::new(Target::host());
    if let Some(name) = lowering {
        options.config.insert("tir.add_lower_pass".to_owned(), serde_json::json!([[3, name]]));
    }
    let mut passes = Passes::new(&options).unwrap();
    if let Some(pass) = pass {
        passes.extensions.at_start(pass);
    }
    match compile(&model, &options, &passes) {
        Ok(_) => String::new(),
        Err(report) => report.to_string(),
    }
}

fn contains(problem: &str, parts: &[&str]) {
    for part in parts {
        assert!(problem.contains(part), "`{part}` is not in:\n{problem}");
    }
}

#[module_pass(opt_level = 0, name = "foreign.WiderMain")]
fn wider_main(_: IRModule, _: &PassContext) -> IRModule {
    let text = "def @main(%x: Tensor[(2, 7), float32]) -> Tensor[(2, 7), float32] { nn.relu(%x) }";
    parse_module(text).unwrap()
}

#[test]
fn a_pass_that_changes_the_type_of_main_is_refused() {
    let problem = problem("nn.relu(%x)", Some(WiderMain.into()), None);
    contains(
        &problem,
        &["changed the type of `main`", "(2, 3)", "(2, 7)", "a pass that was added"],
    );
}

#[module_pass(opt_level = 0, name = "foreign.Forgets")]
fn forgets(mut module: IRModule, _: &PassContext) -> IRModule {
    module.remove(&GlobalVar::new("other"));
    module
}

/// Contexts of build scripts do not verify; what another crate's pass makes is looked at all the same.
#[test]
fn a_pass_that_spoils_the_module_is_named() {
    let text = "def @main(%x: Tensor[(4), float32]) -> Tensor[(4), float32] { nn.relu(@other(%x)) }
                def @other(%x: Tensor[(4), float32]) -> Tensor[(4), float32] { nn.relu(%x) }";
    let cx = PassContext::default();
    assert!(!cx.verifies());
    let error = Forgets.run(parse_module(text).unwrap(), &cx).unwrap_err();
    assert_eq!(error.passes(), ["foreign.Forgets"]);
    contains(&error.to_string(), &["malformed module", "the module does not define @other"]);
}

#[prim_func_pass(opt_level = 0, name = "foreign.StoresBytes")]
fn stores_bytes(func: PrimFunc, _: &IRModule, _: &PassContext) -> PrimFunc {
    let mut data = func.into_data();
    data.body = data.body.rewrite(&mut |stmt| match stmt {
        Stmt::Store { buffer, indices, value: _ } => {
            Stmt::Store { buffer, indices, value: PrimExpr::int(1, DType::I8) }
        }
        other => other,
    });
    PrimFunc::new(data)
}

#[prim_func_pass(opt_level = 0, name = "foreign.DropsParams")]
fn drops_params(func: PrimFunc, _: &IRModule, _: &PassContext) -> PrimFunc {
    let mut data = func.into_data();
    (data.body, data.inplace) = (Stmt::nop(), Vec::new());
    data.params.retain(|param| param.kind == ParamKind::Output);
    PrimFunc::new(data)
}

#[prim_func_pass(opt_level = 0, name = "foreign.Keeps")]
fn keeps(func: PrimFunc, _: &IRModule, _: &PassContext) -> PrimFunc {
    PrimFunc::new(func.into_data())
}

#[test]
fn what_a_pass_of_lowering_makes_is_verified() {
    let of = |name: &str| problem("nn.relu(%x)", None, Some(name));
    contains(
        &of("foreign.StoresBytes"),
        &["foreign.StoresBytes", "kernel `fused_nn_relu`", "int8"],
    );
    contains(&of("foreign.DropsParams"), &["changed the parameters", "kernel `fused_nn_relu`"]);
    assert_eq!(of("foreign.Keeps"), "");
}

fn same_type(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    Ok(cx.tensor_of(0, DTypes::Float)?.clone().into())
}

fn no_type(_: &InferCx<'_>) -> Result<Type, TypeError> {
    panic!("there is no type")
}

fn eval(_: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    Err(EvalError::new("it has no values"))
}

type Relation = fn(&InferCx<'_>) -> Result<Type, TypeError>;

const INPUTS: &[Input] = &[Input::required("x")];

const fn op(name: &'static str, infer: Relation, compute: fn(&mut Compute<'_>) -> Stages) -> OpDef {
    OpDef::new(name, "of a test", INPUTS, infer, eval, compute)
}

static FEW_INDICES: OpDef = op("foreign.few_indices", same_type, |cx| {
    let x = cx.arg(0)?;
    cx.element(|dag, index| dag.at(x, &index[1..]))
});
static SMALL: OpDef = op("foreign.small", same_type, |cx| {
    let x = cx.arg(0)?;
    let zero = PrimExpr::index(0);
    Ok(vec![cx.dag.compute("small", &[2], DType::F32, |dag, i| dag.at(x, &[i[0].clone(), zero]))])
});
static WIDE: OpDef = op("foreign.wide", same_type, |cx| {
    let x = cx.arg(0)?;
    cx.element(|dag, index| dag.at(x, index).cast(DType::F64))
});
static TWO: OpDef = op("foreign.two", same_type, |cx| {
    let x = cx.arg(0)?;
    Ok(vec![x, x])
});
static PANICS: OpDef = op("foreign.panics", same_type, |_| panic!("no stages"));
static UNTYPED: OpDef = op("foreign.untyped", no_type, |cx| cx.unsupported("in a test"));
static FINE: OpDef = op("foreign.fine", same_type, |cx| {
    let x = cx.arg(0)?;
    cx.element(|dag, index| dag.at(x, index) + PrimExpr::float(1.0, DType::F32))
});

niello::register_op!(FEW_INDICES);
niello::register_op!(SMALL);
niello::register_op!(WIDE);
niello::register_op!(TWO);
niello::register_op!(PANICS);
niello::register_op!(UNTYPED);
niello::register_op!(FINE);

#[test]
fn a_tensor_expression_that_does_not_fit_its_type_is_refused() {
    let of = |op: &str| problem(&format!("foreign.{op}(%x)"), None, None);
    contains(&of("few_indices"), &["`foreign.few_indices` is wrong", "1 ind", "2"]);
    contains(
        &of("small"),
        &["`foreign.small` is float32 of [2], where the type is float32 of [2, 3]"],
    );
    contains(&of("wide"), &["`foreign.wide` is wrong", "float64"]);
    contains(&of("two"), &["`foreign.two` has 2 stages for 1 results"]);
    contains(&of("panics"), &["`foreign.panics` panicked: no stages"]);
    assert_eq!(of("fine"), "");
}

#[test]
fn a_type_relation_that_panics_is_an_error_at_its_call() {
    let text =
        "def @main(%x: Tensor[(2, 3), float32]) -> Tensor[(2, 3), float32] { foreign.untyped(%x) }";
    let error = parse_module(text).unwrap_err().to_string();
    contains(&error, &["the type relation of `foreign.untyped` panicked: there is no type"]);
}
