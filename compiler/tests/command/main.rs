//! The `niello` command as its users and other tools meet it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use niello::ir::{Constant, DType};
use niello::onnx::{ModelBuilder, test_value_to_bytes};
use serde_json::Value;

fn niello(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_niello")).args(args).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// A case whose model doubles its input with `op`, `x op x`, and whose expected output is given.
fn case(folder: &Path, name: &str, op: &str, expected: &Constant) -> PathBuf {
    let case = folder.join(name);
    let model = ModelBuilder::new(13)
        .input("x", DType::F32, &[3])
        .node(op, &["x", "x"], &["y"], &[])
        .output("y", DType::F32, &[3])
        .to_bytes();
    write(&case.join("model.onnx"), &model);
    let x = Constant::from_f32(&[3], &[1.0, -2.0, 0.5]).unwrap();
    let data = case.join("test_data_set_0");
    write(&data.join("input_0.pb"), &test_value_to_bytes(&x, "x").unwrap());
    write(&data.join("output_0.pb"), &test_value_to_bytes(expected, "y").unwrap());
    case
}

fn doubled() -> Constant {
    Constant::from_f32(&[3], &[2.0, -4.0, 1.0]).unwrap()
}

/// Folders `add` (passes), `unknown` (fails), `wrong` (fails).
fn cases(folder: &Path) {
    case(folder, "add", "Add", &doubled());
    case(folder, "wrong", "Mul", &doubled());
    case(folder, "unknown", "NoSuchOperator", &doubled());
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn test_tells_what_does_not_pass_and_counts() {
    let folder = tempfile::tempdir().unwrap();
    cases(folder.path());
    for backend in ["c", "interp"] {
        let output = niello(&["test", path(folder.path()), "--backend", backend]);
        let text = stdout(&output);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("unknown: fail: ") && lines[0].contains("NoSuchOperator"));
        assert!(lines[1].starts_with("wrong: fail: output 0: 3 of 3 elements differ"), "{text}");
        assert_eq!(lines[2], "1 passed, 2 failed, 0 skipped");
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn a_single_case_passes_with_status_zero() {
    let folder = tempfile::tempdir().unwrap();
    let case = case(folder.path(), "add", "Add", &doubled());
    let output = niello(&["test", path(&case), "-O0"]);
    assert_eq!(stdout(&output), "1 passed, 0 failed, 0 skipped\n");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn json_has_every_case_and_leaves_the_standard_output_alone() {
    let folder = tempfile::tempdir().unwrap();
    cases(folder.path());
    let file = folder.path().join("result.json");
    for (backend, runs_kernels) in [("c", true), ("interp", false)] {
        let args = ["test", path(folder.path()), "--backend", backend, "--json"];
        let to_file = niello(&[&args[..], &[path(&file)]].concat());
        assert!(stdout(&to_file).ends_with("1 passed, 2 failed, 0 skipped\n"));
        let json: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
        assert_eq!(
            (&json["passed"], &json["failed"], &json["skipped"]),
            (&1.into(), &2.into(), &0.into())
        );
        let cases = json["cases"].as_array().unwrap();
        let names: Vec<&str> = cases.iter().map(|case| case["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["add", "unknown", "wrong"]);
        assert_eq!(cases[0]["result"], "pass");
        assert_eq!(cases[0]["kernels"].as_u64().unwrap() > 0, runs_kernels);
        assert_eq!(cases[2]["result"], "fail");

        let to_stdout = niello(&[&args[..], &["-"]].concat());
        let json: Value = serde_json::from_str(&stdout(&to_stdout)).unwrap();
        assert_eq!(json["passed"], 1);
        assert!(stderr(&to_stdout).ends_with("1 passed, 2 failed, 0 skipped\n"));
    }
}

#[test]
fn compile_writes_what_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let case = case(folder.path(), "add", "Add", &doubled());
    let out = folder.path().join("out");
    let model = case.join("model.onnx");
    let args = ["compile", path(&model), "-o", path(&out), "--name", "adder"];
    let output =
        niello(&[&args[..], &["--emit", "obj,c,graph,tir,header,bindings,shared"]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let written: Vec<String> = fs::read_dir(&out)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    for suffix in [".o", ".c", "adder.relay", "adder.tir", "adder.h", "adder.rs"] {
        assert!(written.iter().any(|name| name.ends_with(suffix)), "{suffix}: {written:?}");
    }
    assert!(written.iter().any(|name| name.contains("adder") && name.starts_with("lib")));
    // The graph reads back, and compiles to the same program.
    let text = out.join("adder.relay");
    let again = niello(&["compile", path(&text), "-o", path(&out), "--emit", "header"]);
    assert!(again.status.success(), "{}", stderr(&again));
}

#[test]
fn what_cannot_be_done_is_told_on_the_standard_error() {
    let folder = tempfile::tempdir().unwrap();
    let case = case(folder.path(), "unknown", "NoSuchOperator", &doubled());
    let model = case.join("model.onnx");
    let output = niello(&["compile", path(&model), "-o", path(folder.path())]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.starts_with("error: ") && text.contains("NoSuchOperator"), "{text}");
    assert_eq!(stdout(&output), "");

    let missing = niello(&["inspect", "no/such/model.onnx"]);
    assert!(stderr(&missing).contains("there is no such file"));
    let empty = niello(&["test", path(folder.path()), "--backend", "fortran"]);
    assert_eq!(empty.status.code(), Some(2));
}

#[test]
fn opt_inspect_and_passes_print_text() {
    let folder = tempfile::tempdir().unwrap();
    let case = case(folder.path(), "add", "Add", &doubled());
    let model = case.join("model.onnx");
    let module = niello(&["opt", path(&model), "--passes", "function(fold-constant),fuse-ops"]);
    assert!(stdout(&module).contains("def @main(%x: Tensor[(3), float32])"), "{}", stderr(&module));
    let unknown = niello(&["opt", path(&model), "--passes", "FuseOpps"]);
    assert!(stderr(&unknown).contains("FuseOps"), "{}", stderr(&unknown));
    let info = stdout(&niello(&["inspect", path(&model)]));
    assert!(info.contains("input      \"x\" Tensor[(3), float32]"), "{info}");
    assert!(stdout(&niello(&["passes"])).contains("FoldConstant"));
    let one = stdout(&niello(&["passes", "fold-constant"]));
    assert!(one.starts_with("FoldConstant\nlevel 2\n"), "{one}");
}

/// A compiler that was asked for by name is used or missed, never replaced.
#[test]
fn a_c_compiler_that_does_not_exist_is_told_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let case = case(folder.path(), "add", "Add", &doubled());
    let output = Command::new(env!("CARGO_BIN_EXE_niello"))
        .args(["compile", path(&case.join("model.onnx")), "-o", path(&folder.path().join("out"))])
        .env("CC", "/nonexistent/cc")
        .output()
        .unwrap();
    let text = stderr(&output);
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    let expected = "error: the C compiler that the environment variable CC names cannot be used: /nonexistent/cc (not installed)";
    assert!(text.starts_with(expected), "{text}");
}
