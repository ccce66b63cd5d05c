//! Behaviour of instruments when passes fail.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use super::output::doubling;
use super::{failing, passes, run, sample};
use crate::graph::{Expr, FunctionBuilder, modules_equal, parse_module};
use crate::ir::{Attrs, BufferSpec, DType, Definition, GlobalVar, IRModule, Span, Type};
use crate::ops::Op;
use crate::pass::instruments::{
    CrashReproducer, DumpIr, IrStatistics, PassMemory, PassSelection, PassStatistics, PassTiming,
    PrintChanged, PrintIr, Replay, Reproducer, TextOutput, VerifyEach,
};
use crate::pass::{
    InstrumentRef, ModulePass, Pass, PassContext, PassErrorKind, PassRef, Sequential, module_pass,
};
use crate::tir::{PrimExpr, PrimFunc, PrimFuncData};

/// Panics whenever the level of the context is above 3 and `FuseOps` would fuse more than 5.
#[module_pass(opt_level = 1)]
fn instrument_tests_panic(module: IRModule, cx: &PassContext) -> IRModule {
    let depth = cx.get(&crate::transform::MAX_DEPTH);
    assert!(cx.opt_level() < 4 || depth <= 5, "depth {depth} is too much");
    module
}

/// Emits an error.
#[module_pass(opt_level = 1)]
fn instrument_tests_complain(module: IRModule, cx: &PassContext) -> IRModule {
    if let Some(main) = module.function("main") {
        cx.error(main.span(main.result()).clone(), "this is wrong");
    }
    module
}

/// Passes keep working, and every instrument is at rest, after passes that fail in any way.
#[test]
fn instruments_survive_failures() {
    let folder = tempfile::tempdir().unwrap();
    let instruments: Vec<InstrumentRef> = vec![
        Arc::new(PassTiming::default()),
        Arc::new(PrintIr::new().before(PassSelection::All).changed(PrintChanged::Diff)),
        Arc::new(DumpIr::new(folder.path())),
        Arc::new(VerifyEach::new()),
        Arc::new(IrStatistics::new()),
        Arc::new(PassMemory::new()),
        Arc::new(PassStatistics::new()),
    ];
    let bodies: [fn(&PassContext) -> crate::pass::Result<()>; 3] = [
        |_| Err("no".into()),
        |_| panic!("oh no"),
        |cx| {
            cx.error(Span::Unknown, "wrong");
            Ok(())
        },
    ];
    let builder = PassContext::builder().opt_level(4);
    let builder = instruments.iter().fold(builder, |b, i| b.shared_instrument(i.clone()));
    let cx = builder.build().unwrap();
    cx.scope(|cx| {
        for body in bodies {
            let inner = Sequential::new([failing("Fails", body)]);
            let list =
                passes("FoldConstant").then(PassRef::new(inner)).then(failing("After", |_| Ok(())));
            assert!(list.run(sample(), cx).is_err());
        }
        passes("FoldConstant,EliminateCommonSubexpr").run(sample(), cx).map(drop)
    })
    .unwrap();
    let shown = |index: usize| instruments[index].outputs().remove(0).text;
    let timing = shown(0);
    assert_eq!(timing.matches("Fails: ").count(), 3, "{timing}");
    assert!(timing.lines().filter(|line| line.ends_with(" failed")).count() == 9, "{timing}");
    // The last list is at the outermost level again.
    let last: Vec<&str> = timing.lines().rev().take(3).collect();
    assert!(last[2].starts_with("sequential: ") && last[0].starts_with("\tEliminate"), "{timing}");
    assert_eq!(shown(1).matches("; *** Fails failed ***").count(), 3);
    assert!(folder.path().join("001_Fails.failed.relay").is_file());
    assert!(shown(4).ends_with(
        "at the end: 1 functions, 0 closures, 3 calls, 1 constants, 8 constant bytes\n"
    ));
}

/// A module in which `main` calls `other`.
fn calling() -> IRModule {
    parse_module(
        "def @main(%x: Tensor[(4), float32]) -> Tensor[(4), float32] { nn.relu(@other(%x)) }
         def @other(%x: Tensor[(4), float32]) -> Tensor[(4), float32] { nn.relu(%x) }",
    )
    .unwrap()
}

/// A pass that removes a function that is still called.
fn spoiling() -> PassRef {
    let info = super::info("Spoils").of_niello();
    PassRef::new(ModulePass::new(info, |mut module: IRModule, _: &PassContext| {
        module.remove(&GlobalVar::new("other"));
        module
    }))
}

#[test]
fn verification_names_the_first_pass_that_spoils_the_module() {
    let cx = PassContext::builder().instrument(VerifyEach::new()).build().unwrap();
    let list = passes("EliminateCommonSubexpr").then(spoiling()).then(passes("InferType"));
    let error = cx.scope(|cx| list.run(calling(), cx)).unwrap_err();
    assert_eq!(error.passes(), ["sequential", "Spoils"]);
    let text = error.to_string();
    assert!(text.contains("instrument `VerifyEach` failed in run_after_pass"), "{text}");
    assert!(text.contains("; error: ") && text.contains("@other"), "{text}");
}

#[test]
fn a_module_malformed_from_the_start_is_reported_before_the_first_pass() {
    let mut module = calling();
    module.remove(&GlobalVar::new("other"));
    let cx = PassContext::builder().instrument(VerifyEach::new()).build().unwrap();
    let error = cx.scope(|cx| passes("InferType").run(module, cx)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("instrument `VerifyEach` failed in run_before_pass"), "{text}");
}

#[test]
fn loop_functions_are_verified_too() {
    let mut broken = PrimFuncData::new("kernel");
    let y = broken.output("y", DType::F32, BufferSpec::dense(&[4]));
    // One index too many.
    broken.body = broken.store(
        y,
        [PrimExpr::int(0, DType::I64), PrimExpr::int(0, DType::I64)],
        PrimExpr::f32(1.0),
    );
    let mut module = IRModule::new();
    module.insert(GlobalVar::new("k"), Definition::Prim(PrimFunc::new(broken)));
    let cx = PassContext::builder().instrument(VerifyEach::new()).build().unwrap();
    let error = cx.scope(|cx| passes("FuseOps").run(module, cx)).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("prim_func @k(") && text.contains("; error: `y` has 1 axes"), "{text}");
}

/// Runs a list under a context that makes `InstrumentTestsPanic` panic, with a reproducer.
fn crash(list: Sequential, reproducer: CrashReproducer, module: IRModule) -> (String, String) {
    let output = TextOutput::default();
    let cx = PassContext::builder()
        .opt_level(4)
        .disable_pass("FoldScaleAxis")
        .config(&crate::transform::MAX_DEPTH, 9)
        .instrument(reproducer.output(output.clone()))
        .build()
        .unwrap();
    let error = cx.scope(|cx| list.run(module, cx)).unwrap_err();
    (error.to_string(), output.kept())
}

fn replay(path: &Path) -> Replay {
    Reproducer::read(path).unwrap().run([]).unwrap()
}

#[test]
fn a_reproducer_has_the_failing_pass_and_its_input() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/crash.relay");
    let list = passes("FoldConstant").then(passes("InstrumentTestsPanic,InferType"));
    let (error, note) = crash(list, CrashReproducer::new(&path), sample());
    assert!(error.ends_with("panicked: depth 9 is too much"), "{error}");
    let expected = format!("niello opt --run-reproducer {}\n", path.display());
    assert!(
        note.contains("pass InstrumentTestsPanic failed") && note.ends_with(&expected),
        "{note}"
    );

    let read = Reproducer::read(&path).unwrap();
    assert_eq!((read.pipeline.as_str(), read.opt_level), ("InstrumentTestsPanic", 4));
    assert_eq!(
        (read.disabled.as_slice(), read.whole_pipeline),
        (&["foldscaleaxis".to_owned()][..], false)
    );
    assert_eq!(read.config["relay.FuseOps.max_depth"], 9);
    assert_eq!(read.failure, "panicked: depth 9 is too much");
    // The constants were folded before the pass failed.
    let folded = run(passes("FoldConstant"), &[]).unwrap();
    modules_equal(&read.module, &folded).unwrap();
    assert!(
        matches!(replay(&path), Replay::SameFailure(error) if error.to_string().contains("depth 9"))
    );
    // The file is the text of a module as well.
    parse_module(&fs::read_to_string(&path).unwrap()).unwrap();
}

#[test]
fn a_reproducer_of_the_whole_pipeline_has_the_module_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("crash.relay");
    let text = "FoldConstant,InstrumentTestsPanic";
    let reproducer = CrashReproducer::new(&path).whole_pipeline(text);
    crash(passes(text), reproducer, sample());
    let read = Reproducer::read(&path).unwrap();
    assert_eq!((read.pipeline.as_str(), read.whole_pipeline), (text, true));
    modules_equal(&read.module, &sample()).unwrap();
    assert!(matches!(replay(&path), Replay::SameFailure(_)));
}

#[test]
fn a_reproducer_has_the_options_of_a_textual_pipeline() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("crash.relay");
    let (error, _) = crash(
        passes("FuseOps{max_depth=2}").then(failing("NotRegistered", |_| Err("no".into()))),
        CrashReproducer::new(&path),
        sample(),
    );
    assert!(error.contains("NotRegistered"), "{error}");
    // The pass is in the file, but not registered in this program.
    let read = Reproducer::read(&path).unwrap();
    let error = read.run([]).unwrap_err().to_string();
    assert!(error.contains("there is no pass `NotRegistered`"), "{error}");
    let fixed = Reproducer { pipeline: "FuseOps{max_depth=2}".to_owned(), ..read };
    fixed.write(&path).unwrap();
    assert_eq!(Reproducer::read(&path).unwrap().pipeline, "FuseOps{max_depth=2}");
    assert!(matches!(replay(&path), Replay::NoFailure(_)));
}

#[test]
fn diagnostics_and_verifier_errors_are_reproduced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("crash.relay");
    crash(passes("InstrumentTestsComplain"), CrashReproducer::new(&path), sample());
    assert_eq!(Reproducer::read(&path).unwrap().failure, "error: this is wrong");
    assert!(
        matches!(replay(&path), Replay::SameFailure(error) if matches!(error.kind(), PassErrorKind::Diagnostics(_)))
    );

    // A reproducer that fails in another way reports another failure.
    let mut other = Reproducer::read(&path).unwrap();
    other.failure = "error: something else".to_owned();
    assert!(matches!(other.run([]).unwrap(), Replay::OtherFailure(_)));

    // The verifier comes before the reproducer, which hears of it.
    let cx = PassContext::builder()
        .instrument(VerifyEach::new())
        .instrument(CrashReproducer::new(&path))
        .build()
        .unwrap();
    assert!(cx.scope(|cx| Sequential::new([spoiling()]).run(calling(), cx)).is_err());
    let read = Reproducer::read(&path).unwrap();
    assert!(read.verify && read.failure.starts_with("a malformed module: "), "{}", read.failure);
    assert_eq!((read.pipeline.as_str(), read.module.len()), ("Spoils", 2));
}

#[test]
fn large_constants_and_loop_functions_survive_writing_and_reading() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("crash.relay");
    let values: Vec<f32> = (0..64).map(|i| i as f32 / 3.0).collect();
    let constant = crate::ir::Constant::from_f32(&[64], &values).unwrap();
    let mut b = FunctionBuilder::new();
    let x = b.param("x", Type::tensor(&[64], DType::F32));
    let c = b.constant(constant.clone());
    let sum = b.call(Op::get("add").unwrap(), &[x, c], Attrs::new()).unwrap();
    let mut module = IRModule::new();
    let names = ["first.kernel", "main", "second"];
    module.insert(GlobalVar::new(names[0]), Definition::Prim(doubling("first")));
    module.insert(GlobalVar::new(names[1]), Definition::Graph(b.finish(sum)));
    module.insert(GlobalVar::new(names[2]), Definition::Prim(doubling("kernel")));
    crash(passes("InstrumentTestsPanic"), CrashReproducer::new(&path), module.clone());
    let read = Reproducer::read(&path).unwrap();
    let globals: Vec<&str> = read.module.iter().map(|(global, _)| global.name()).collect();
    assert_eq!(globals, names);
    let main = read.module.function("main").unwrap();
    let found = main.iter().find_map(|(_, data)| match &data.expr {
        Expr::Constant(constant) => Some(constant.clone()),
        _ => None,
    });
    assert_eq!(found.unwrap().to_f64_vec(), constant.to_f64_vec());
    for (global, function) in module.prim_funcs() {
        let read = read.module.get(global).and_then(Definition::as_prim).unwrap();
        assert!(read.structural_eq(function));
        assert_eq!(read.name, global.name());
    }

    // A later failure without large constants leaves no sidecar of this one behind.
    let sidecar = folder.path().join("crash.relay.sidecar");
    assert!(sidecar.is_file());
    crash(passes("InstrumentTestsPanic"), CrashReproducer::new(&path), sample());
    assert!(!sidecar.exists());
}

#[test]
fn files_that_are_no_reproducers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("crash.relay");
    crash(passes("InstrumentTestsPanic"), CrashReproducer::new(&path), sample());
    let good = fs::read_to_string(&path).unwrap();
    for (from, to, expected) in [
        ("; niello reproducer 1", "; niello reproducer 9", "its first line is not"),
        ("; context:", "; contextt:", "there is no line `; context:`"),
        ("\"opt_level\":4", "\"opt_level\":\"x\"", "in the line `; context:`"),
        ("[\"main\"]", "[\"nain\"]", "there is no definition of @nain"),
        ("nn.relu", "nn.rellu", "its module is malformed"),
    ] {
        assert!(good.contains(from), "{good}");
        fs::write(&path, good.replace(from, to)).unwrap();
        let error = Reproducer::read(&path).unwrap_err().to_string();
        assert!(
            error.contains("cannot read the reproducer") && error.contains(expected),
            "{error}"
        );
    }
    assert!(Reproducer::read(&folder.path().join("none")).is_err());
}

#[test]
fn a_reproducer_that_cannot_be_written_is_a_secondary_error() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let path = folder.path().join("file/crash.relay");
    let (error, note) = crash(passes("InstrumentTestsPanic"), CrashReproducer::new(path), sample());
    assert!(error.contains("depth 9 is too much; then: "), "{error}");
    assert!(error.contains("cannot write"), "{error}");
    assert_eq!(note, "");
}
