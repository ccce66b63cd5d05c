//! Output of instruments when no pass fails.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::{passes, run, sample, watch};
use crate::graph::parse_module;
use crate::ir::{BufferSpec, DType, Definition, GlobalVar, IRModule};
use crate::pass::instruments::{
    DumpIr, IrStatistics, OptBisect, PassMemory, PassSelection, PassStatistics, PassTiming,
    PrintChanged, PrintIr, TextOutput, TimingFormat, VerifyEach,
};
use crate::pass::{
    InstrumentOutput, InstrumentRef, ModulePass, PassContext, PassInstrument, PassRef, Sequential,
};
use crate::tir::{ForKind, PrimFunc, PrimFuncData};

const FOLD_AND_SHARE: &str = "FoldConstant,EliminateCommonSubexpr,InferType";

#[test]
fn a_timing_is_a_tree_whose_parts_add_up() {
    let timings = [TimingFormat::Text, TimingFormat::Json, TimingFormat::Trace]
        .map(|format| Arc::new(PassTiming::new(format)));
    let instruments = timings.clone().map(|timing| timing as InstrumentRef);
    let inner = Sequential::named("Inner", 0).unwrap().then(passes("FuseOps{max_depth=2}"));
    run(passes(FOLD_AND_SHARE).then(inner), &instruments).unwrap();
    let shown = |index: usize| -> InstrumentOutput { timings[index].outputs().remove(0) };

    let text = shown(0);
    assert_eq!(text.suffix, "timing.txt");
    let names: Vec<&str> = text.text.lines().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(
        names,
        [
            "sequential",
            "\tFoldConstant",
            "\tEliminateCommonSubexpr",
            "\tInner",
            "\t\tsequential",
            "\t\t\tFuseOps{max_depth=2}"
        ]
    );

    let json: Value = serde_json::from_str(&shown(1).text).unwrap();
    let listed = json["passes"].as_array().unwrap();
    assert_eq!((shown(1).suffix.as_str(), listed.len()), ("timing.json", 6));
    let number = |pass: &Value, key: &str| pass[key].as_f64().unwrap();
    assert_eq!(number(&json, "total_us"), number(&listed[0], "duration_us"));
    // The times of the passes without those within them add up to the whole.
    let own: f64 = listed.iter().map(|pass| number(pass, "self_us")).sum();
    assert!((own - number(&json, "total_us")).abs() < 1e-3, "{json}");
    for pass in &listed[1..] {
        let parent = &listed[pass["parent"].as_u64().unwrap() as usize];
        assert_eq!(parent["depth"].as_u64().unwrap() + 1, pass["depth"].as_u64().unwrap());
        assert!(number(pass, "start_us") >= number(parent, "start_us"));
        let share = number(pass, "duration_us") / number(parent, "duration_us") * 100.0;
        assert!((share - number(pass, "percent_of_parent")).abs() < 1e-6);
    }

    let trace: Value = serde_json::from_str(&shown(2).text).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    assert_eq!((shown(2).suffix.as_str(), events.len()), ("trace.json", 6));
    for event in events {
        assert!(event["ph"] == "X" && event["ts"].is_number() && event["dur"].is_number());
    }
    assert_eq!(
        (&events[1]["name"], &events[1]["cat"]),
        (&"FoldConstant".into(), &"function".into())
    );
}

#[test]
fn the_module_is_printed_before_and_after_selected_passes() {
    let print = PrintIr::new()
        .before(PassSelection::named(["eliminate-common-subexpr"]))
        .after(PassSelection::named(["EliminateCommonSubexpr"]));
    let (print, instrument) = watch(print);
    run(passes(FOLD_AND_SHARE), &[instrument]).unwrap();
    let folded = run(passes("FoldConstant"), &[]).unwrap();
    let shared = run(passes("FoldConstant,EliminateCommonSubexpr"), &[]).unwrap();
    let expected = format!(
        "; *** IR dump before EliminateCommonSubexpr ***\n{folded}\n; *** IR dump after EliminateCommonSubexpr ***\n{shared}\n"
    );
    assert_eq!(print.outputs(), [InstrumentOutput::new("ir.txt", expected.clone())]);
    // Lists are not among all passes.
    let (all, instrument) = watch(PrintIr::new().after(PassSelection::All));
    run(passes(FOLD_AND_SHARE), &[instrument]).unwrap();
    let text = all.outputs().remove(0).text;
    assert_eq!(text.matches("IR dump after").count(), 2, "{text}");
    // The printed text parses.
    assert_eq!(
        parse_module(&format!("; *** remark ***\n{shared}")).unwrap().to_string(),
        shared.to_string()
    );
}

#[test]
fn only_changed_modules_are_printed() {
    // The second run changes nothing.
    let twice = "EliminateCommonSubexpr,EliminateCommonSubexpr";
    let (print, instrument) = watch(PrintIr::new().changed(PrintChanged::Whole));
    run(passes(twice), &[instrument]).unwrap();
    let after = run(passes("EliminateCommonSubexpr"), &[]).unwrap();
    assert_eq!(
        print.outputs().remove(0).text,
        format!(
            "; *** IR dump at the start ***\n{}\n; *** IR dump after EliminateCommonSubexpr ***\n{after}\n; *** EliminateCommonSubexpr changed nothing ***\n",
            sample()
        )
    );

    let (print, instrument) = watch(
        PrintIr::new()
            .after(PassSelection::named(["EliminateCommonSubexpr"]))
            .changed(PrintChanged::Diff),
    );
    run(passes(&format!("FoldConstant,{twice}")), &[instrument]).unwrap();
    let text = print.outputs().remove(0).text;
    let changed: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with(['+', '-']) || line.starts_with("; "))
        .collect();
    assert_eq!(
        changed,
        [
            "; *** IR dump at the start ***",
            "; *** IR dump after EliminateCommonSubexpr ***",
            "-  %1 = multiply(%x, const([4, 6], float32));",
            "-  %2 = add(%0, %1);",
            "-  nn.relu(%2)",
            "+  %1 = add(%0, %0);",
            "+  nn.relu(%1)",
            "; *** EliminateCommonSubexpr changed nothing ***"
        ],
        "{text}"
    );
}

#[test]
fn a_new_handle_with_the_same_text_is_no_change() {
    let copies = ModulePass::new(super::info("Copies"), |module: IRModule, _: &PassContext| {
        parse_module(&module.to_string()).unwrap()
    });
    let (print, instrument) = watch(PrintIr::new().changed(PrintChanged::Diff));
    run(Sequential::new([PassRef::new(copies)]), &[instrument]).unwrap();
    assert!(print.outputs()[0].text.ends_with("; *** Copies changed nothing ***\n"));
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_dump_numbers_its_files_and_deletes_no_foreign_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump");
    let pass = |name: &str| {
        PassRef::new(ModulePass::new(super::info(name), |module: IRModule, _: &PassContext| module))
    };
    let list = || Sequential::new([pass("P"), pass("a/b"), pass("P")]);
    run(list(), &[Arc::new(DumpIr::new(&path))]).unwrap();
    assert_eq!(files(&path), ["000_P.relay", "001_a_b.relay", "002_P.relay", "start.relay"]);
    assert_eq!(fs::read_to_string(path.join("002_P.relay")).unwrap(), sample().to_string());

    DumpIr::new(&path).refresh().unwrap();
    assert!(files(&path).is_empty());
    fs::write(path.join("notes.txt"), "mine").unwrap();
    fs::write(path.join("000_P.relay"), "").unwrap();
    let error = DumpIr::new(&path).refresh().unwrap_err();
    assert!(error.to_string().contains("notes.txt"), "{error}");
    assert_eq!(files(&path).len(), 2);
    assert!(DumpIr::new(folder.path().join("nowhere")).refresh().is_ok());
}

#[test]
fn a_tree_of_dumps_has_a_folder_for_each_list() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump");
    let pass = |name: &str| {
        PassRef::new(ModulePass::new(super::info(name), |module: IRModule, _: &PassContext| module))
    };
    let inner = Sequential::named("Inner", 0).unwrap().then(pass("Q")).then(pass("R"));
    let list = Sequential::new([pass("P"), inner.clone().into(), inner.into(), pass("S")]);
    let dump = || DumpIr::new(&path).tree(true);
    run(list, &[Arc::new(dump())]).unwrap();
    assert_eq!(
        files(&path),
        ["000_P.relay", "001_Inner", "002_Inner", "003_S.relay", "start.relay"]
    );
    for inner in ["001_Inner", "002_Inner"] {
        assert_eq!(files(&path.join(inner)), ["000_Q.relay", "001_R.relay"]);
    }
    // A foreign file anywhere keeps all files.
    fs::write(path.join("002_Inner/notes.txt"), "mine").unwrap();
    assert!(dump().refresh().unwrap_err().to_string().contains("notes.txt"));
    assert_eq!(files(&path).len(), 5);
    fs::remove_file(path.join("002_Inner/notes.txt")).unwrap();
    dump().refresh().unwrap();
    assert!(files(&path).is_empty());
}

#[test]
fn a_dump_of_changed_modules_keeps_the_numbers_of_a_full_dump() {
    let folder = tempfile::tempdir().unwrap();
    let dump = DumpIr::new(folder.path()).only_changed(true).before(true).constants(true);
    let list = "InferType,EliminateCommonSubexpr,EliminateCommonSubexpr,FoldConstant";
    run(passes(list), &[Arc::new(dump)]).unwrap();
    // Types are valid, so InferType does not run.
    let relay: Vec<String> =
        files(folder.path()).into_iter().filter(|name| name.ends_with(".relay")).collect();
    assert_eq!(
        relay,
        [
            "000_EliminateCommonSubexpr.before.relay",
            "000_EliminateCommonSubexpr.relay",
            "002_FoldConstant.before.relay",
            "002_FoldConstant.relay",
            "start.relay"
        ]
    );
    assert!(folder.path().join("start.relay.sidecar").is_file());
}

#[test]
fn a_dump_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    fs::write(&path, "").unwrap();
    let error = run(passes("FoldConstant"), &[Arc::new(DumpIr::new(&path))]).unwrap_err();
    assert!(error.to_string().contains("instrument `DumpIr` failed in run_before_pass"), "{error}");
    assert!(error.to_string().contains("cannot write"), "{error}");
}

#[test]
fn module_statistics_list_the_changes_of_each_pass() {
    let (statistics, instrument) = watch(IrStatistics::new());
    run(passes(FOLD_AND_SHARE), &[instrument]).unwrap();
    let expected = "\
at the start: 1 functions, 0 closures, 5 calls, 2 constants, 16 constant bytes
FoldConstant: calls 5 -> 4, constants 2 -> 1, constant bytes 16 -> 8
    add 2 -> 1
EliminateCommonSubexpr: calls 4 -> 3
    multiply 2 -> 1
at the end: 1 functions, 0 closures, 3 calls, 1 constants, 8 constant bytes
";
    assert_eq!(statistics.render(), expected);
    let json: Value = serde_json::from_str(&statistics.render_json()).unwrap();
    assert_eq!(json[0]["before"]["calls_by_operator"]["multiply"], 2);
    assert_eq!(json[1]["after"]["constant_bytes"], 8);
    assert_eq!(statistics.outputs()[0].suffix, "ir-statistics.txt");
    assert!(IrStatistics::new().outputs().is_empty());
}

/// The allocator of these tests is not the counting one; `tests/pass_memory.rs` has it.
#[test]
fn memory_needs_the_counting_allocator_and_says_so() {
    let (memory, instrument) = watch(PassMemory::new());
    run(passes(FOLD_AND_SHARE), &[instrument]).unwrap();
    assert!(
        memory.render().contains("does not use `niello::pass::instruments::CountingAllocator`")
    );
}

#[test]
fn counts_and_missed_rewrites_are_listed_per_run_and_summed() {
    let counting = |name: &'static str, times: u64| -> PassRef {
        PassRef::new(ModulePass::new(
            super::info(name),
            move |module: IRModule, cx: &PassContext| {
                cx.count("visits", times);
                let main = module.function("main").unwrap();
                cx.missed_in(main, main.result(), "there is nothing to do");
                module
            },
        ))
    };
    let (statistics, instrument) = watch(PassStatistics::new());
    let inner = Sequential::new([counting("A", 2), counting("B", 5)]);
    run(Sequential::new([counting("A", 1), PassRef::new(inner)]), &[instrument]).unwrap();
    let expected = "\
in the order of the pipeline
    A: 1 visits
    A: 2 visits
    B: 5 visits
altogether
       3 A: visits
       5 B: visits
missed
    A: `nn.relu` at 5:12: there is nothing to do
    A: `nn.relu` at 5:12: there is nothing to do
    B: `nn.relu` at 5:12: there is nothing to do
";
    assert_eq!(statistics.render(), expected);
    assert_eq!(statistics.totals()[&("A".to_owned(), "visits")], 3);
}

/// A count made by a pass within another pass is listed once.
#[test]
fn counts_within_a_pass_are_not_counted_twice() {
    let outer = ModulePass::new(super::info("Outer"), |module: IRModule, cx: &PassContext| {
        cx.count("visits", 10);
        let inner = ModulePass::new(super::info("Inner"), |module: IRModule, cx: &PassContext| {
            cx.count("visits", 1);
            module
        });
        PassRef::new(inner).run(module, cx)
    });
    let (statistics, instrument) = watch(PassStatistics::new());
    run(Sequential::new([PassRef::new(outer)]), &[instrument]).unwrap();
    let text = statistics.render();
    assert!(
        text.starts_with(
            "in the order of the pipeline\n    Inner: 1 visits\n    Outer: 10 visits\n"
        ),
        "{text}"
    );
    assert_eq!(statistics.totals().values().sum::<u64>(), 11);
}

#[test]
fn a_bisect_limit_runs_the_first_passes() {
    let list = "FoldConstant,EliminateCommonSubexpr,InferType,FoldConstant,DeadCodeElimination,FuseOps,EliminateCommonSubexpr";
    let bisect = |limit| {
        let (bisect, instrument) = watch(OptBisect::new(limit));
        let module = run(passes(list), &[instrument]).unwrap();
        (bisect.outputs().remove(0).text, module.to_string(), bisect.count())
    };
    let (text, module, count) = bisect(Some(2));
    assert_eq!(
        text,
        "\
BISECT: running pass (1) FoldConstant
BISECT: running pass (2) EliminateCommonSubexpr
BISECT: NOT running pass (3) FoldConstant
BISECT: NOT running pass (4) DeadCodeElimination
BISECT: NOT running pass (5) EliminateCommonSubexpr
"
    );
    // Passes of level 0 always run.
    let prefix = run(passes("FoldConstant,EliminateCommonSubexpr,FuseOps"), &[]).unwrap();
    assert_eq!((module, count), (prefix.to_string(), 5));
    let (all, _, _) = bisect(None);
    assert!(!all.contains("NOT") && all.lines().count() == 5, "{all}");
    // Numbers are the same up to the limit.
    assert_eq!(all.lines().take(2).collect::<Vec<_>>(), text.lines().take(2).collect::<Vec<_>>());
}

#[test]
fn a_well_formed_module_passes_verification() {
    let module = run(passes(FOLD_AND_SHARE), &[Arc::new(VerifyEach::new())]).unwrap();
    assert!(!module.is_empty());
}

#[test]
fn text_goes_where_it_is_sent() {
    let lines = Arc::new(std::sync::Mutex::new(String::new()));
    let to = lines.clone();
    let output = TextOutput::new(move |text| to.lock().unwrap().push_str(text));
    let (bisect, instrument) = watch(OptBisect::new(None).output(output));
    run(passes("FoldConstant"), &[instrument]).unwrap();
    assert_eq!(*lines.lock().unwrap(), "BISECT: running pass (1) FoldConstant\n");
    assert!(bisect.outputs().is_empty());
}

/// A loop function that doubles its input.
pub(super) fn doubling(name: &str) -> PrimFunc {
    let mut func = PrimFuncData::new(name);
    let x = func.input("x", DType::F32, BufferSpec::dense(&[4]));
    let y = func.output("y", DType::F32, BufferSpec::dense(&[4]));
    func.body = func.for_("i", 4, ForKind::Serial, |f, i| {
        let value = f.load(x, [i.clone()]);
        f.store(y, [i], value.clone() + value)
    });
    PrimFunc::new(func)
}

#[test]
fn loop_functions_are_part_of_the_text() {
    let mut module = sample();
    module.insert(GlobalVar::new("k"), Definition::Prim(doubling("kernel")));
    let text = module.to_string();
    assert!(text.contains("\nprim_func @k("), "{text}");
}
