//! `niello inspect`.

use serde_json::Value;

use niello::ir::{Constant, DType};
use niello::onnx::ModelBuilder;

use super::{niello, path, scores, stderr, stdout, succeeds, write};

#[test]
fn a_model_is_described() {
    let folder = tempfile::tempdir().unwrap();
    let model = scores(folder.path());
    let open = succeeds(&["inspect", path(&model)]);
    for line in [
        "input      \"x\" Tensor[(batch, 2), float32]",
        "input      \"bias\" Tensor[(3), float32]",
        "output     \"total\" Tensor[(batch, 3), float32]",
        "parameters 6 in 1 tensors, 24 bytes",
        "sizes      not known before `batch` is pinned: --dim NAME=N",
        "opset      ai.onnx 13",
        "operators  2 of 2 kinds",
        "       1 MatMul",
    ] {
        assert!(open.lines().any(|found| found == line), "{line}\n{open}");
    }
    let pinned = succeeds(&["inspect", path(&model), "--dim", "batch=2"]);
    assert!(pinned.contains("\nmacs       12\n"), "{pinned}");
    assert!(pinned.contains("Tensor[(2, 3), float32]") && pinned.contains("\nworkspace "));
}

#[test]
fn json_has_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let model = scores(folder.path());
    let args = ["inspect", path(&model), "--json", "-"];
    let json: Value = serde_json::from_str(&succeeds(&args)).unwrap();
    assert_eq!(json["inputs"][0]["shape"], serde_json::json!(["batch", 2]));
    assert_eq!(json["operators"]["MatMul"], 1);
    assert_eq!(json["unpinned"], serde_json::json!(["batch"]));
    assert_eq!(json.get("macs"), None);
    let pinned = succeeds(&[&args[..], &["--dim", "batch=2"]].concat());
    let json: Value = serde_json::from_str(&pinned).unwrap();
    assert_eq!(json["macs"], 12);
    assert!(json["workspace_bytes"].is_u64() && json["peak_live_bytes"].is_u64(), "{json}");
}

#[test]
fn passes_are_shown_with_what_they_change() {
    let folder = tempfile::tempdir().unwrap();
    let model = scores(folder.path());
    let args = ["inspect", path(&model), "--passes", "--dim", "batch=2", "-O", "1"];
    let text = succeeds(&args);
    let line = |pass: &str| text.lines().find(|line| line.starts_with(pass)).unwrap().to_owned();
    assert!(line("FoldScaleAxis").ends_with("3  did not run"), "{text}");
    assert!(line("DeadCodeElimination").contains(" 1  no "), "{text}");
    assert!(line("FuseOps").contains(" 0  yes        2 -> 2 "), "{text}");
    assert!(text.lines().last().unwrap().starts_with("2 kernels, an arena of "), "{text}");
    let json = succeeds(&[&args[..], &["--json", "-"]].concat());
    let json: Value = serde_json::from_str(&json).unwrap();
    let passes = json["passes"].as_array().unwrap();
    let fuse = passes.iter().find(|row| row["pass"] == "FuseOps").unwrap();
    assert_eq!(
        (&fuse["ran"]["changed"], &fuse["ran"]["operators_after"]),
        (&true.into(), &2.into())
    );
    assert_eq!(json["kernels"], 2);
    assert!(json["arena_bytes"].is_u64(), "{json}");
}

/// All problems at once, and everything else that is known.
#[test]
fn a_model_that_cannot_be_compiled_is_described_as_far_as_possible() {
    let folder = tempfile::tempdir().unwrap();
    let weight = Constant::from_f32(&[2], &[1.0, 2.0]).unwrap();
    let model = ModelBuilder::new(13)
        .input("x", DType::F32, &[2])
        .initializer("w", &weight)
        .node("Frobnicate", &["x"], &["a"], &[])
        .node("Add", &["x", "w"], &["b"], &[])
        .node("Transmogrify", &["b"], &["c"], &[])
        .node("Add", &["a", "c"], &["y"], &[])
        .output("y", DType::F32, &[2])
        .to_bytes();
    let file = folder.path().join("odd.onnx");
    write(&file, &model);
    let output = niello(&["inspect", path(&file)]);
    assert_eq!(output.status.code(), Some(1));
    let text = stdout(&output);
    assert!(text.contains("input      \"x\" Tensor[(2), float32]"), "{text}");
    assert!(text.contains("       1 Frobnicate (not supported)\n"), "{text}");
    assert!(text.contains("       2 Add\n"), "{text}");
    let errors = stderr(&output);
    assert_eq!(errors.lines().count(), 2, "{errors}");
    assert!(errors.contains("Frobnicate") && errors.contains("Transmogrify"), "{errors}");

    let output = niello(&["inspect", path(&file), "--json", "-"]);
    let json: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(json["unsupported"], serde_json::json!(["Frobnicate", "Transmogrify"]));
    assert_eq!(json["problems"].as_array().unwrap().len(), 2);
}
