//! What arguments fix of a model's inputs, and models whose files are no ordinary ones.

use std::fs;
use std::path::{Path, PathBuf};

use niello::ir::DType;
use niello::onnx::{ModelBuilder, ModelDim};

use super::{fails, niello, npy_f32, path, stdout, succeeds, write};

/// `y = reshape(x, shape)`, whose input `x` has an extent without a name.
fn reshape(folder: &Path) -> PathBuf {
    let model = ModelBuilder::new(13)
        .input("x", DType::F32, &[ModelDim::Unknown])
        .input("shape", DType::I64, &[2])
        .node("Reshape", &["x", "shape"], &["y"], &[])
        .output("y", DType::F32, &[ModelDim::Unknown, ModelDim::Unknown]);
    let file = folder.join("reshape.onnx");
    write(&file, &model.to_bytes());
    file
}

#[test]
fn an_input_of_a_fixed_value_is_no_input_any_more() {
    let folder = tempfile::tempdir().unwrap();
    let model = reshape(folder.path());
    let out = folder.path().join("out");
    let compile = ["compile", path(&model), "-o", path(&out), "--emit", "bindings"];
    let text = fails(&compile);
    assert!(text.contains("fix what it is computed from: --input-value shape=VALUE"), "{text}");
    let fixed = ["--input-shape", "x=6", "--input-value", "shape=3,-1"];
    succeeds(&[&compile[..], &fixed].concat());
    let bindings = fs::read_to_string(out.join("reshape.rs")).unwrap();
    let inputs = &bindings[bindings.find("pub struct Inputs").unwrap()..];
    let inputs = &inputs[..inputs.find('}').unwrap()];
    assert!(inputs.contains("pub x: &'a [f32; 6]") && !inputs.contains("shape"), "{inputs}");

    let x = folder.path().join("x.npy");
    write(&x, &npy_f32(&[6], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    let run = |args: &[&str]| {
        let args = [&["run", path(&model), path(&x), "--backend", "interp"], args].concat();
        stdout(&niello(&args))
    };
    assert!(run(&fixed[2..]).starts_with("y: Tensor[(3, 2), float32]"), "{}", run(&fixed[2..]));
    let inspected = succeeds(&[&["inspect", path(&model)], &fixed[..]].concat());
    assert!(inspected.contains("workspace") && !inspected.contains("\"shape\""), "{inspected}");
}

#[test]
fn values_that_do_not_fit_are_told_with_the_type_of_the_input() {
    let folder = tempfile::tempdir().unwrap();
    let model = reshape(folder.path());
    for (value, expected) in [
        ("shape=3,1,2", "has 3 numbers, but the input is Tensor[(2), int64] of 2 elements"),
        ("shape=1.5", "has 1.5, which is no int64"),
        ("size=1", "a value was given for input `size`, but the model has no such input"),
    ] {
        let output =
            niello(&["inspect", path(&model), "--input-shape=x=6", "--input-value", value]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(text.contains(expected), "{value}: {text}");
    }
}

#[cfg(unix)]
#[test]
fn pipes_are_told_by_every_command() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe.onnx");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for reader in
        [&["inspect"][..], &["compile", "-o", "unwritten"], &["opt"], &["run"], &["bench"]]
    {
        let text = fails(&[reader, &[path(&pipe)]].concat());
        assert!(text.contains("it is a pipe, not a regular file"), "{reader:?}: {text}");
    }
}
