//! `niello bench`.

use std::fs;

use niello::ir::{Constant, DType};
use niello::onnx::ModelBuilder;
use niello::options::Backend;
use serde_json::Value;

use super::{case, doubled, fails, niello, path, scores, stderr, stdout, succeeds, write};

const HEADER: &str = "model\tthreads\tcompile_ms\tmedian_us\tmin_us\tworkspace_bytes\tweight_bytes\tcode_bytes\tchecked";

/// The cells of the one row below the header.
fn cells(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!(lines[0], HEADER);
    lines[1].split('\t').collect()
}

#[test]
fn a_header_and_a_row_are_printed_and_the_test_data_checked() {
    let folder = tempfile::tempdir().unwrap();
    let case = case(folder.path(), "add", "Add", &doubled());
    let model = case.join("model.onnx");
    let text = succeeds(&["bench", path(&model), "--seconds", "0.01", "-O1", "--threads", "1"]);
    let cells = cells(&text);
    assert_eq!((cells.len(), cells[0], cells[1], cells[8]), (9, "add", "1", "test_data"));
    let number = |column: usize| cells[column].parse::<f64>().unwrap();
    assert!(number(2) > 0.0 && number(7) > 0.0, "{text}");
    assert!(number(4) > 0.0 && number(3) >= number(4), "the median is no less than the least");
}

#[test]
fn a_text_is_measured_at_its_greatest_sizes() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("open.relay");
    let text = "def @main(%x: Tensor[(n, 4), float32]) -> Tensor[(n, 4), float32] { nn.relu(%x) }";
    write(&model, text.as_bytes());
    let open = fails(&["bench", path(&model), "--seconds", "0"]);
    assert!(
        open.contains("the size of `n` is not known; help: write a number in its place"),
        "{open}"
    );
    let bounded = succeeds(&["bench", path(&model), "--seconds", "0", "--dim", "n=1..=16"]);
    assert_eq!(cells(&bounded)[8], "interpreter");
}

#[test]
fn a_profile_has_the_time_and_the_rule_of_each_kernel() {
    let folder = tempfile::tempdir().unwrap();
    let model = scores(folder.path());
    let args = ["bench", path(&model), "--dim", "batch=4", "--seconds", "0.01", "--profile"];
    for backend in Backend::ALL {
        let text = succeeds(&[&args[..], &["--backend", &backend.to_string()]].concat());
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert!(lines[0].ends_with("kernel"), "{text}");
        assert!(lines.iter().any(|line| line.contains(": matrix product: panels of")), "{text}");
        let all = lines.last().unwrap().split_whitespace().collect::<Vec<_>>();
        assert_eq!(all[1..], ["100.0%", "all", "calls"], "{text}");
        assert!(all[0].parse::<f64>().unwrap() > 0.0, "{text}");
    }
}

#[test]
fn the_profile_of_a_model_without_calls_is_empty() {
    let folder = tempfile::tempdir().unwrap();
    let model = ModelBuilder::new(13)
        .input("x", DType::F32, &[0i64])
        .node("Identity", &["x"], &["y"], &[])
        .output("y", DType::F32, &[0i64])
        .to_bytes();
    let file = folder.path().join("empty.onnx");
    write(&file, &model);
    let text = succeeds(&["bench", path(&file), "--seconds", "0.01", "--profile"]);
    assert!(text.ends_with("100.0%  all calls\n"), "{text}");
    assert_eq!(text.lines().count(), 4, "{text}");
}

#[test]
fn json_has_the_columns_as_keys() {
    let folder = tempfile::tempdir().unwrap();
    let model = scores(folder.path());
    let file = folder.path().join("row.json");
    let args = ["bench", path(&model), "--dim", "batch=4", "--seconds", "0", "--json"];
    let text = succeeds(&[&args[..], &[path(&file)]].concat());
    assert_eq!(cells(&text)[8], "interpreter");
    let json: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(keys.len(), 9);
    assert!(HEADER.split('\t').all(|column| json.get(column).is_some()), "{json}");
    assert_eq!((&json["model"], &json["threads"]), (&"scores".into(), &1.into()));
    assert!(json["weight_bytes"].as_u64().unwrap() >= 24, "{json}");

    let output = niello(&[&args[..], &["-"]].concat());
    let json: Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(json["checked"], "interpreter");
    assert_eq!(cells(&stderr(&output)).len(), 9);
}

#[test]
fn wrong_outputs_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let case = case(folder.path(), "wrong", "Mul", &doubled());
    let text = fails(&["bench", path(&case.join("model.onnx")), "--seconds", "0"]);
    assert!(text.contains("test_data_set_0: output 0: 3 of 3 elements differ"), "{text}");
}

/// Test data of another size than requested is not used.
#[test]
fn pinned_dimensions_win_over_test_data() {
    let folder = tempfile::tempdir().unwrap();
    let model = scores(folder.path());
    let data = folder.path().join("test_data_set_0");
    let x = Constant::from_f32(&[1, 2], &[1.0, 2.0]).unwrap();
    let bias = Constant::from_f32(&[3], &[0.0; 3]).unwrap();
    let y = Constant::from_f32(&[1, 3], &[9.0, 12.0, 15.0]).unwrap();
    let values = [("input_0", &x), ("input_1", &bias), ("output_0", &y), ("output_1", &y)];
    for (name, value) in values {
        let bytes = niello::onnx::test_value_to_bytes(value, name).unwrap();
        write(&data.join(format!("{name}.pb")), &bytes);
    }
    let checked = |args: &[&str]| {
        let all = [&["bench", path(&model), "--seconds", "0"], args].concat();
        cells(&succeeds(&all))[8].to_owned()
    };
    assert_eq!(checked(&[]), "test_data");
    assert_eq!(checked(&["--dim", "batch=1"]), "test_data");
    assert_eq!(checked(&["--dim", "batch=3"]), "interpreter");
}

#[test]
fn a_model_that_is_too_large_for_the_interpreter_is_unchecked() {
    let folder = tempfile::tempdir().unwrap();
    let n = 1024;
    let weight = Constant::from_f32(&[n, n], &vec![0.5; (n * n) as usize]).unwrap();
    let model = ModelBuilder::new(13)
        .input("x", DType::F32, &[n, n])
        .initializer("w", &weight)
        .node("MatMul", &["x", "w"], &["y"], &[])
        .output("y", DType::F32, &[n, n])
        .to_bytes();
    let file = folder.path().join("large.onnx");
    write(&file, &model);
    let text = succeeds(&["bench", path(&file), "--seconds", "0"]);
    assert_eq!(cells(&text)[8], "unchecked");
}

#[test]
fn what_cannot_be_measured_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let model = scores(folder.path());
    let open = fails(&["bench", path(&model)]);
    assert!(
        open.contains("the size of `batch` is not known; help: pin it: --dim batch=N"),
        "{open}"
    );
    let engine = fails(&["bench", path(&model), "--backend", "interp"]);
    assert!(engine.contains("the interpreter is not measured"), "{engine}");
    let missing = fails(&["bench", "no/such/model.onnx"]);
    assert_eq!(missing, "error: no/such/model.onnx: there is no such file\n");
}
