//! Lists and the pipeline of niello's own passes.

use super::support::{Log, chain, info, module, noting};
use crate::diagnostics::Level;
use crate::graph::FunctionBuilder;
use crate::ir::{DType, Definition, FuncType, GlobalVar, IRModule, Type};
use crate::ops::nn::ConvAttrs;
use crate::pass::{
    HookResult, Pass, PassContext, PassInfo, PassInstrument, PassRef, Sequential, print_ir,
};
use crate::transform::pipeline::{PipelineExtensions, pipeline};
use crate::transform::tests::support::{Net, count, show};
use crate::transform::{
    DeadCodeElimination, EliminateCommonSubexpr, FoldConstant, FoldScaleAxis, FuseOps, InferType,
    SimplifyInference,
};

fn at(level: u8) -> PassContext {
    PassContext::builder().opt_level(level).verify_each(true).build().unwrap()
}

#[test]
fn a_list_folds_constants_and_shares_equal_calls() {
    let mut net = Net::default();
    let (x, c) = (net.input("x", &[2]), net.tensor(&[2], 1.0));
    let two = net.scalar(2.0);
    let sum = net.op("add", &[c, c]);
    let double = net.op("multiply", &[sum, two]);
    let y = net.op("add", &[double, x]);
    let (left, right) = (net.op("add", &[y, c]), net.op("add", &[y, c]));
    let z = net.op("add", &[left, right]);
    let list =
        Sequential::default().then(InferType).then(FoldConstant).then(EliminateCommonSubexpr);
    let after = list.run(IRModule::from_function(net.finish(z)), &at(3)).unwrap();
    let main = after.function("main").unwrap();
    // `y = K + x; z = y + c; z + z`: three additions, the last of one value to itself.
    assert_eq!((count(main, "add"), count(main, "multiply")), (3, 0));
    assert_eq!(show(main), "add(add(add(c(2), x), c(2)), add(add(c(2), x), c(2)))");
    let args = &main.expr(main.result()).as_call().unwrap().args;
    assert_eq!(args[0], args[1]);
}

#[test]
fn at_level_2_scales_stay_and_constants_are_folded() {
    let build = || {
        let mut net = Net::default();
        let conv = ConvAttrs::of_rank(2);
        let x = net.input("x", &[1, 2, 4, 4]);
        let w = net.tensor(&[2, 2, 1, 1], 1.0);
        let y = net.op_with("nn.conv2d", &[x, w], &conv);
        let s = net.tensor(&[2, 1, 1], 2.0);
        let s = net.op("add", &[s, s]);
        let y = net.op("multiply", &[y, s]);
        IRModule::from_function(net.finish(y))
    };
    let list = Sequential::default().then(FoldScaleAxis).then(FoldConstant);
    let shown = |level| show(list.run(build(), &at(level)).unwrap().function("main").unwrap());
    assert_eq!(shown(2), "multiply(nn.conv2d(x, c(2, 2, 1, 1)), c(2, 1, 1))");
    let list = Sequential::default().then(FoldConstant).then(FoldScaleAxis).then(FoldConstant);
    let after = list.run(build(), &at(3)).unwrap();
    assert_eq!(show(after.function("main").unwrap()), "nn.conv2d(x, c(2, 2, 1, 1))");
}

#[test]
fn print_ir_shows_the_module_and_leaves_it_alone() {
    let cx = at(0);
    let before = module([("main", chain(1))]);
    let list = Sequential::default().then(InferType).then(print_ir("after types"));
    assert!(list.run(before.clone(), &cx).unwrap().same(&before));
    let [note] = cx.diagnostics().try_into().unwrap();
    assert_eq!(note.level, Level::Note);
    assert_eq!(note.message, format!("PrintIR(after types):\n{before}"));
}

/// Notes which passes run.
struct Names(Log);

impl PassInstrument for Names {
    fn run_before_pass(&self, _: &IRModule, info: &PassInfo) -> HookResult {
        self.0.note(info.name());
        Ok(())
    }
}

#[test]
fn each_pass_that_runs_is_announced_once_and_infer_type_only_for_stale_types() {
    let log = Log::default();
    let cx = PassContext::builder().opt_level(3).instrument(Names(log.clone())).build().unwrap();
    let list =
        || Sequential::default().then(InferType).then(FoldConstant).then(DeadCodeElimination);
    list().run(module([("main", chain(1))]), &cx).unwrap();
    assert_eq!(log.take(), "sequential FoldConstant DeadCodeElimination");
    // The call assumes a result type other than that of the called function.
    let mut stale = module([("f", chain(1))]);
    let mut b = FunctionBuilder::new();
    let x = b.param("x", Type::tensor(&[4], DType::F32));
    let ty = Type::tensor(&[4], DType::F32);
    let wrong = FuncType { params: vec![ty.clone()], ret: Type::tuple([ty]) };
    let f = b.global(GlobalVar::new("f"), wrong);
    let y = b.call_function(f, &[x]).unwrap();
    stale.insert(GlobalVar::new("main"), Definition::Graph(b.finish(y)));
    list().run(stale, &cx).unwrap();
    assert_eq!(log.take(), "sequential InferType FoldConstant DeadCodeElimination");
}

#[test]
fn at_level_0_every_operator_is_a_kernel_of_its_own() {
    let list = Sequential::default().then(SimplifyInference).then(FuseOps).then(FoldConstant);
    let plan = list.plan(&at(0)).unwrap().to_string();
    assert!(plan.contains("SimplifyInference") && plan.contains("FuseOps"), "{plan}");
    assert!(!plan.contains("FoldConstant"), "{plan}");
    let kernels = |level| {
        let after = list.run(module([("main", chain(3))]), &at(level)).unwrap();
        after.function("main").unwrap().scopes().count() - 1
    };
    assert_eq!((kernels(0), kernels(1)), (3, 1));
}

#[test]
fn user_passes_are_added_at_named_places_of_the_pipeline() {
    let log = Log::default();
    let pass = |name: &str| noting(&log, info(name, 0));
    let mut extensions = PipelineExtensions::new();
    extensions.at_end(pass("R"));
    extensions.after("FoldConstant", pass("P"));
    extensions.at_end(pass("Q"));
    let names: Vec<String> = pipeline(&extensions)
        .unwrap()
        .passes()
        .iter()
        .map(|pass| pass.info().name().to_owned())
        .collect();
    let place = |name: &str| names.iter().position(|other| other == name).unwrap();
    let last_fold = names.iter().rposition(|name| name == "FoldConstant").unwrap();
    assert_eq!(place("P"), last_fold + 1);
    assert_eq!((place("R"), place("Q")), (names.len() - 2, names.len() - 1));
    // A place that does not exist is an error.
    let mut extensions = PipelineExtensions::new();
    extensions.before("NoSuchPhase", pass("P"));
    let error = pipeline(&extensions).unwrap_err().to_string();
    assert!(error.contains("no pass of the pipeline is named `NoSuchPhase`"), "{error}");
    assert_eq!(error.matches("FoldConstant").count(), 1, "each name once: {error}");
}

#[test]
fn the_pipeline_verifies_and_is_idempotent_at_every_level() {
    let mut net = Net::default();
    let conv = ConvAttrs::of_rank(2);
    let x = net.input("x", &[1, 2, 4, 4]);
    let w = net.tensor(&[2, 2, 1, 1], 1.0);
    let y = net.op_with("nn.conv2d", &[x, w], &conv);
    let s = net.tensor(&[2, 1, 1], 2.0);
    let y = net.op("multiply", &[y, s]);
    let y = net.op("nn.relu", &[y]);
    let mut module = IRModule::from_function(net.finish(y));
    module.insert(GlobalVar::new("unused"), Definition::Graph(chain(2)));
    let list = pipeline(&PipelineExtensions::new()).unwrap();
    for level in 0..=4 {
        let once = list.run(module.clone(), &at(level)).unwrap();
        // A second run changes nothing.
        let twice = list.run(once.clone(), &at(level)).unwrap();
        crate::graph::modules_equal(&once, &twice).unwrap();
    }
    let refs: Vec<PassRef> = list.passes().to_vec();
    assert!(refs.iter().all(|pass| !pass.info().summary().is_empty()));
}
