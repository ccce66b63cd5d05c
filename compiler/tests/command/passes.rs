//! `niello opt` and `niello passes`.

use std::fs;

use super::{case, doubled, fails, names, path, scores, succeeds};

#[test]
fn modules_and_passes_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    let case = case(folder.path(), "add", "Add", &doubled());
    let model = case.join("model.onnx");
    let text = succeeds(&["opt", path(&model), "--passes", "function(fold-constant),fuse-ops"]);
    assert!(text.contains("def @main(%x: Tensor[(3), float32])"), "{text}");
    let unknown = fails(&["opt", path(&model), "--passes", "FuseOpps"]);
    assert!(unknown.contains("FuseOps"), "{unknown}");
    assert!(succeeds(&["passes"]).contains("FoldConstant"));
    let one = succeeds(&["passes", "fold-constant"]);
    assert!(one.starts_with("FoldConstant\n"), "{one}");
    assert!(fails(&["passes", "FoldConstnat"]).contains("FoldConstant"));
}

#[test]
fn a_module_is_written_whole_and_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let model = scores(folder.path());
    let text = folder.path().join("scores.relay");
    succeeds(&["opt", path(&model), "--dim", "batch=2", "-o", path(&text)]);
    let printed = succeeds(&["opt", path(&text), "--passes", "fold-constant"]);
    assert_eq!(
        printed.matches("def @").count(),
        fs::read_to_string(&text).unwrap().matches("def @").count()
    );
    let nowhere = folder.path().join("none/scores.relay");
    let error = fails(&["opt", path(&model), "--dim", "batch=2", "-o", path(&nowhere)]);
    assert!(error.contains("scores.relay: cannot write the file: "), "{error}");
    assert!(names(folder.path()).iter().all(|name| !name.ends_with(".tmp")));
}
