//! Users' view of `niello opt` and `niello passes`.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;

use niello::ir::{BufferSpec, DType, Definition, GlobalVar, IRModule};
use niello::onnx::ModelBuilder;
use niello::pass::PassErrorKind;
use niello::pass::instruments::{Replay, Reproducer, VerifyEach};
use niello::tir::{PrimExpr, PrimFunc, PrimFuncData};
use serde_json::Value;

/// A module with constants to fold, equal calls to share and kernels to fuse.
const SAMPLE: &str = "\
def @main(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {
  %0 = add(const([1, 2], f32), const([3, 4], f32));
  %1 = multiply(%x, %0);
  %2 = multiply(%x, %0);
  nn.relu(add(%1, %2))
}
";
/// The sample after `FoldConstant` and `EliminateCommonSubexpr`.
const SHARED: &str = "\
def @main(%x: Tensor[(2), float32]) -> Tensor[(2), float32] {
  %0 = multiply(%x, const([4, 6], float32));
  %1 = add(%0, %0);
  nn.relu(%1)
}
";
const PASSES: &str = "fold-constant,EliminateCommonSubexpr";

struct Run {
    status: Option<i32>,
    stdout: String,
    stderr: String,
}

fn niello(folder: &Path, arguments: &[&str]) -> Run {
    let output = Command::new(env!("CARGO_BIN_EXE_niello"))
        .args(arguments)
        .current_dir(folder)
        .env("TMPDIR", folder)
        .output()
        .unwrap();
    let Output { status, stdout, stderr } = output;
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { status: status.code(), stdout: text(stdout), stderr: text(stderr) }
}

/// A folder with `sample.relay`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("sample.relay"), SAMPLE).unwrap();
    folder
}

/// Runs `niello opt sample.relay` with these arguments.
fn opt(arguments: &[&str]) -> Run {
    niello(folder().path(), &[&["opt", "sample.relay"], arguments].concat())
}

#[track_caller]
fn ok(run: Run) -> Run {
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    run
}

#[test]
fn passes_are_run_in_order_and_the_module_printed() {
    let run = ok(opt(&["--passes", PASSES]));
    assert_eq!((run.stdout.as_str(), run.stderr.as_str()), (SHARED, ""));
    // The level enables passes, and lists of passes override it.
    assert!(ok(opt(&["--passes", PASSES, "-O1"])).stdout.contains("const([1, 2], float32)"));
    let required = ["--passes", PASSES, "-O0", "--require-pass", "fold_constant"];
    assert!(ok(opt(&required)).stdout.contains("const([4, 6], float32)"));
    let disabled = ["--passes", PASSES, "--disable-pass", "EliminateCommonSubexpr"];
    assert!(ok(opt(&disabled)).stdout.contains("add(%0, %1)"));
    // Options for one pass, and for all.
    let kernels = |arguments: &[&str]| ok(opt(arguments)).stdout.matches("Primitive=1").count();
    assert_eq!(kernels(&["--passes", "FuseOps"]), 1);
    assert_eq!(kernels(&["--passes", "FuseOps", "--config", "relay.FuseOps.max_depth=1"]), 5);
    assert_eq!(kernels(&["--passes", "FuseOps{max_depth=1}"]), 5);
}

#[test]
fn modules_are_printed_before_and_after_passes() {
    let run = ok(opt(&["--passes", PASSES, "--print-after=eliminate-common-subexpr"]));
    let dump = format!("; *** IR dump after EliminateCommonSubexpr ***\n{SHARED}\n");
    assert_eq!((run.stdout.as_str(), run.stderr), (SHARED, dump));
    let all = ok(opt(&["--passes", PASSES, "--print-before", "--print-after"])).stderr;
    let lines: Vec<&str> = all.lines().filter(|line| line.starts_with(';')).collect();
    assert_eq!(
        lines,
        [
            "; *** IR dump before FoldConstant ***",
            "; *** IR dump after FoldConstant ***",
            "; *** IR dump before EliminateCommonSubexpr ***",
            "; *** IR dump after EliminateCommonSubexpr ***"
        ]
    );
    let diff = ok(opt(&["--passes", "FoldConstant,FoldConstant", "--print-changed"])).stderr;
    assert!(
        diff.contains("-  %0 = add(const([1, 2], float32), const([3, 4], float32));\n"),
        "{diff}"
    );
    assert!(diff.ends_with("; *** FoldConstant changed nothing ***\n"), "{diff}");
    let whole = ok(opt(&["--passes", PASSES, "--print-changed=whole"])).stderr;
    assert!(whole.ends_with(&format!("{SHARED}\n")) && !whole.contains("@@"), "{whole}");
}

#[test]
fn a_group_of_function_passes_is_a_list_in_the_plan_and_in_a_tree_of_dumps() {
    let group = "function(fold-constant),function(EliminateCommonSubexpr),fuse-ops";
    let plan = ok(opt(&["--passes", group, "--print-pipeline", "-O3"])).stdout;
    let lines: Vec<&str> = plan.lines().collect();
    assert!(lines[0].starts_with("function (sequential, level 0)"), "{plan}");
    assert!(lines[1].starts_with("  FoldConstant (function, level 2)"), "{plan}");
    assert!(lines[2].starts_with("  EliminateCommonSubexpr (function, level 3)"), "{plan}");
    assert!(lines[3].starts_with("FuseOps (function, level 0)"), "{plan}");
    let folder = folder();
    let dump = ["opt", "sample.relay", "--passes", group, "--dump-dir", "dump", "--dump-tree"];
    ok(niello(folder.path(), &dump));
    for file in ["start", "000_function/000_FoldConstant", "001_FuseOps"] {
        assert!(folder.path().join(format!("dump/{file}.relay")).is_file(), "{file}");
    }
}

#[test]
fn changes_are_dumped_to_a_folder() {
    let folder = folder();
    let arguments = ["opt", "sample.relay", "--passes", "FoldConstant,FoldConstant,FuseOps"];
    let names = || {
        let entries = fs::read_dir(folder.path().join("dump")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name.ends_with(".relay"));
        names.sort();
        names
    };
    // The second run replaces the files of the first.
    for _ in 0..2 {
        ok(niello(folder.path(), &[&arguments[..], &["--dump-dir", "dump"]].concat()));
        assert_eq!(names(), ["000_FoldConstant.relay", "002_FuseOps.relay", "start.relay"]);
    }
    fs::write(folder.path().join("dump/notes.txt"), "").unwrap();
    let run = niello(folder.path(), &[&arguments[..], &["--dump-dir", "dump"]].concat());
    assert_eq!(run.status, Some(1));
    assert!(run.stderr.contains("notes.txt` was not written by a dump"), "{}", run.stderr);
}

#[test]
fn passes_are_timed_and_counted() {
    let text = ok(opt(&["--passes", PASSES, "--time-passes"])).stderr;
    let names: Vec<&str> = text.lines().filter_map(|line| line.split(": ").next()).collect();
    assert_eq!(
        names,
        ["; *** times ***", "sequential", "\tFoldConstant", "\tEliminateCommonSubexpr", ""]
    );
    let json = ok(opt(&["--passes", PASSES, "--time-passes=json"])).stderr;
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["passes"][2]["name"], "EliminateCommonSubexpr");
    let folder = folder();
    let trace = ["--time-passes=trace", "--time-passes-file", "trace.json"];
    let run = niello(folder.path(), &[&["opt", "sample.relay"][..], &trace].concat());
    assert_eq!(ok(run).stderr, "");
    let trace = fs::read(folder.path().join("trace.json")).unwrap();
    let trace: Value = serde_json::from_slice(&trace).unwrap();
    assert_eq!(trace["traceEvents"][0]["name"], "GraphPipeline");

    let stats = ok(opt(&["--passes", PASSES, "--stats"])).stderr;
    assert!(stats.contains("FoldConstant: calls 5 -> 4, constants 2 -> 1"), "{stats}");
    assert!(stats.contains("    FoldConstant: 1 folded calls\n"), "{stats}");
    let memory = ok(opt(&["--passes", PASSES, "--memory"])).stderr;
    assert!(memory.contains("\tFoldConstant: ") && memory.contains(" allocations, "), "{memory}");
}

#[test]
fn a_bisect_limit_runs_the_first_passes() {
    let run = ok(opt(&["--opt-bisect-limit", "3"]));
    let all = ok(opt(&["--opt-bisect-limit=-1"]));
    let numbered = |text: &str| text.lines().filter(|line| line.contains(") ")).count();
    assert!(run.stderr.contains("BISECT: running pass (3) FoldConstant\n"), "{}", run.stderr);
    assert!(run.stderr.contains("BISECT: NOT running pass (4) Eliminate"), "{}", run.stderr);
    // `FoldScaleAxis` runs two passes, which are not met where it does not run itself.
    assert_eq!(numbered(&run.stderr) + 2, numbered(&all.stderr));
    assert!(!all.stderr.contains("NOT"));
    assert_eq!(opt(&["--opt-bisect-limit=-2"]).status, Some(1));
}

#[cfg(unix)]
#[test]
fn bisecting_finds_the_pass_with_the_bad_result() {
    use std::os::unix::fs::PermissionsExt;

    let folder = folder();
    let script = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let bisect = |program: &str| {
        niello(folder.path(), &["opt", "sample.relay", "--passes", PASSES, "--bisect", program])
    };
    // The result is bad as soon as the two products have become one.
    let run = ok(bisect(&script("check", "test $(grep -c multiply \"$1\") = 2")));
    assert_eq!(run.stdout, "pass (2) EliminateCommonSubexpr is the first whose result is bad\n");
    assert!(
        run.stderr.ends_with("bisect: --opt-bisect-limit 1 is good, 2 is bad\n"),
        "{}",
        run.stderr
    );
    for (program, expected) in [
        (script("good", "exit 0"), "likes the result of all 2 passes"),
        (script("bad", "exit 1"), "does not like the module without any"),
        ("no/such/program".to_owned(), "cannot run `no/such/program`"),
    ] {
        let run = bisect(&program);
        assert!(run.status == Some(1) && run.stderr.contains(expected), "{}", run.stderr);
    }
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 4, "temporary files are left behind: {left:?}");
}

#[test]
fn a_plan_is_printed_and_nothing_run() {
    let run = ok(opt(&["--passes", PASSES, "--print-pipeline", "-O2"]));
    assert!(run.stdout.starts_with("FoldConstant (function, level 2), after InferType\n"));
    assert!(!run.stdout.contains("EliminateCommonSubexpr"), "{}", run.stdout);
}

/// A reproducer of a loop function that the verifier refuses.
fn malformed_kernel() -> Reproducer {
    let mut kernel = PrimFuncData::new("kernel");
    let y = kernel.output("y", DType::F32, BufferSpec::dense(&[4]));
    let zero = PrimExpr::int(0, DType::I64);
    // One index too many.
    kernel.body = kernel.store(y, [zero.clone(), zero], PrimExpr::f32(1.0));
    let mut module = IRModule::new();
    module.insert(GlobalVar::new("kernel"), Definition::Prim(PrimFunc::new(kernel)));
    Reproducer {
        pipeline: "FuseOps{max_depth=2}".to_owned(),
        whole_pipeline: false,
        opt_level: 3,
        required: Vec::new(),
        disabled: vec!["foldconstant".to_owned()],
        config: [("relay.FuseOps.link_params".to_owned(), true.into())].into(),
        verify: false,
        failure: "something else".to_owned(),
        module,
    }
}

#[test]
fn a_reproducer_repeats_its_failure() {
    let folder = folder();
    let path = folder.path().join("crash.relay");
    let replay = |arguments: &[&str]| {
        niello(folder.path(), &[&["opt", "--run-reproducer", "crash.relay"], arguments].concat())
    };
    let mut reproducer = malformed_kernel();
    reproducer.write(&path).unwrap();
    let other = replay(&["--verify-each"]);
    assert_eq!(other.status, Some(1));
    assert!(
        other.stderr.starts_with("error: `y` has 1 axes and is accessed by 2 indices\n"),
        "{}",
        other.stderr
    );
    let note =
        "note: this is not the failure that the file was written for, which was: something else\n";
    assert!(other.stderr.ends_with(note), "{}", other.stderr);

    let Ok(Replay::OtherFailure(error)) = reproducer.run([Arc::new(VerifyEach::new()) as _]) else {
        panic!("the verifier refuses the module");
    };
    let PassErrorKind::Instrument { source, .. } = error.kind() else {
        panic!("an instrument refuses the module: {error}");
    };
    reproducer.failure = format!("a malformed module: {source}");
    reproducer.write(&path).unwrap();
    let same = replay(&["--verify-each"]);
    assert_eq!(same.status, Some(1));
    assert!(
        same.stderr.ends_with("note: this is the failure that the file was written for\n"),
        "{}",
        same.stderr
    );
    // Instruments see the passes of the file.
    let watched = replay(&["--time-passes"]);
    assert!(ok(watched).stderr.contains("\nFuseOps{max_depth=2}: "));
    // Without verification nothing fails.
    let mended = ok(replay(&[]));
    assert!(mended.stderr.contains("does not occur any more"), "{}", mended.stderr);

    // A pass that this program does not have.
    reproducer.pipeline = "TheirPass".to_owned();
    reproducer.write(&path).unwrap();
    let unknown = replay(&[]);
    assert!(unknown.stderr.contains("there is no pass `TheirPass`"), "{}", unknown.stderr);
    let none = niello(folder.path(), &["opt", "--run-reproducer", "sample.relay"]);
    assert_eq!(none.status, Some(1));
    assert!(none.stderr.contains("its first line is not `; niello reproducer 1`"));
    let missing = niello(folder.path(), &["opt", "--run-reproducer", "none.relay"]);
    assert!(
        missing.stderr.contains("none.relay: cannot read the reproducer"),
        "{}",
        missing.stderr
    );
}

#[test]
fn without_a_failure_there_is_no_reproducer() {
    let folder = folder();
    let arguments = ["opt", "sample.relay", "--passes", PASSES, "--reproducer", "crash.relay"];
    ok(niello(folder.path(), &arguments));
    assert!(!folder.path().join("crash.relay").exists());
}

#[test]
fn mistakes_in_a_text_are_shown_at_their_place() {
    let folder = folder();
    let wrong = SAMPLE.replace("%x, %0", "%x, %7").replace("nn.relu", "nn.rellu");
    fs::write(folder.path().join("wrong.relay"), wrong).unwrap();
    let run = niello(folder.path(), &["opt", "wrong.relay"]);
    assert_eq!((run.status, run.stdout.as_str()), (Some(1), ""));
    let expected = "\
error: there is no operator `nn.rellu`
 --> wrong.relay:5:3
  |
5 |   nn.rellu(add(%1, %2))
  |   ^^^^^^^^
  |
  = help: did you mean `nn.relu`?
";
    assert!(run.stderr.ends_with(expected), "{}", run.stderr);
    assert!(
        run.stderr.contains("3 |   %1 = multiply(%x, %7);\n  |                     ^^\n"),
        "{}",
        run.stderr
    );
    assert!(!run.stderr.contains('\u{1b}'));

    let json = niello(folder.path(), &["opt", "wrong.relay", "--error-format=json"]).stderr;
    let objects: Vec<Value> =
        json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = objects.last().unwrap();
    assert_eq!((&last["level"], &last["place"]["line"]), (&"error".into(), &5.into()));
}

#[test]
fn errors_in_a_model_are_shown_at_their_node() {
    let folder = folder();
    let model = ModelBuilder::new(13)
        .input("x", DType::F32, &[3])
        .node("Frobnicate", &["x"], &["y"], &[])
        .output("y", DType::F32, &[3]);
    fs::write(folder.path().join("odd.onnx"), model.to_bytes()).unwrap();
    let run = niello(folder.path(), &["opt", "odd.onnx"]);
    assert_eq!(run.status, Some(1));
    assert!(
        run.stderr.contains("odd.onnx: node `") && run.stderr.contains("(Frobnicate, opset 13)"),
        "{}",
        run.stderr
    );
}

#[test]
fn mistakes_in_arguments_are_reported() {
    for (arguments, status, expected) in [
        (&["--passes", "FoldConstnat"][..], 1, "did you mean `FoldConstant`?"),
        (&["--passes", "FuseOps{max_dpeth=1}"], 1, "did you mean `max_depth`?"),
        (&["--passes", "module(FuseOps"], 1, "unbalanced parentheses"),
        (&["--print-after=FoldConstnat"], 1, "did you mean `FoldConstant`?"),
        (&["--disable-pass", "FoldConstnat"], 1, "disabled_pass: there is no pass `FoldConstnat`"),
        (&["--require-pass", "FoldConstnat"], 1, "required_pass: there is no pass `FoldConstnat`"),
        (&["--config", "relay.FuseOps.max_dpeth=1"], 1, "did you mean `relay.FuseOps.max_depth`?"),
        (&["--config", "relay.FuseOps.max_depth=ten"], 1, "takes usize: invalid type: string"),
        (&["--config", "max_depth"], 2, "an option is given as key=json"),
        (&["--time-passes=xml"], 2, "invalid value 'xml'"),
        (&["--time-passes-file", "t"], 2, "--time-passes"),
        (&["--run-reproducer", "f"], 2, "cannot be used with"),
        (&["-O5"], 2, "5 is not in 0..=4"),
    ] {
        let run = opt(arguments);
        assert_eq!(run.status, Some(status), "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains(expected), "{arguments:?}: {}", run.stderr);
        assert_eq!(run.stdout, "");
    }
}

#[test]
fn passes_are_listed_and_explained() {
    let folder = folder();
    let passes =
        |arguments: &[&str]| ok(niello(folder.path(), &[&["passes"], arguments].concat())).stdout;
    let list = passes(&[]);
    let fold = list.lines().find(|line| line.starts_with("FoldConstant ")).unwrap();
    let words: Vec<&str> = fold.split_whitespace().take(4).collect();
    assert_eq!(words, ["FoldConstant", "function", "2", "Replaces"]);
    let mut sorted: Vec<&str> = list.lines().collect();
    sorted.sort_by_key(|line| line.to_lowercase());
    assert_eq!(sorted, list.lines().collect::<Vec<_>>());

    let one = passes(&["fuse-ops"]);
    for line in [
        "FuseOps",
        "function pass, level 0",
        "also known as fuse-ops, relay._transform.FuseOps",
        "requires InferType",
    ] {
        assert!(one.lines().any(|found| found == line), "{line}: {one}");
    }
    assert!(one.contains("\ndefined in compiler/src/transform/fuse_ops/mod.rs:"), "{one}");
    assert!(one.contains("\n  max_depth=256      usize  Most operators in one kernel.\n"), "{one}");
    // The fields of an option that is a struct are options of the pass.
    let unroll = passes(&["tir.UnrollLoop"]);
    assert!(unroll.lines().any(|line| line.starts_with("  auto_max_step=")), "{unroll}");
    // Every printed name works.
    for name in list.lines().filter_map(|line| line.split(' ').next()) {
        let text = passes(&[name]);
        let also = text.lines().find_map(|line| line.strip_prefix("also known as ")).unwrap();
        for alias in also.split(", ") {
            assert_eq!(passes(&[alias]), text, "{alias}");
        }
    }

    let configs = passes(&["--configs"]);
    assert!(
        configs.contains("relay.FuseOps.max_depth=256 ") && configs.contains("Vec<String>"),
        "{configs}"
    );
    let unknown = niello(folder.path(), &["passes", "FuseOp"]);
    assert_eq!(unknown.status, Some(1));
    assert!(unknown.stderr.contains("did you mean `FuseOps`?"), "{}", unknown.stderr);
    assert_eq!(niello(folder.path(), &["passes", "FuseOps", "--configs"]).status, Some(2));
}

#[test]
fn passes_on_loops_use_the_requested_machine() {
    let folder = tempfile::tempdir().unwrap();
    let text = "prim_func @fill(y: output float32[16]) {
  for i in vectorized(16) {
    y[i] = 1.0
  }
}
";
    fs::write(folder.path().join("fill.tir"), text).unwrap();
    let opt = |arguments: &[&str]| {
        let arguments = [&["opt", "fill.tir", "--passes", "tir.VectorizeLoop"], arguments].concat();
        niello(folder.path(), &arguments)
    };
    for (machine, lanes) in [
        ("x86_64 x86-64-v4", "ramp(0, 1, 16)"),
        ("x86_64 x86-64-v3", "ramp(i * 8, 1, 8)"),
        ("x86_64", "ramp(i * 4, 1, 4)"),
        ("aarch64 neoverse-n1", "ramp(i * 4, 1, 4)"),
    ] {
        let run = opt(&["--target", machine]);
        assert_eq!((run.status, run.stderr.as_str()), (Some(0), ""));
        assert!(run.stdout.contains(lanes), "{machine}: {}", run.stdout);
    }
    let unknown = opt(&["--target", "x86_64 x86-64-v9"]);
    assert_eq!(unknown.status, Some(2));
    assert!(unknown.stderr.contains("x86-64-v9"), "{}", unknown.stderr);
    let both = opt(&["--target", "x86_64", "--target-cpu", "native"]);
    assert_eq!(both.status, Some(2));
    assert!(both.stderr.contains("cannot be used with"), "{}", both.stderr);
}
