//! `niello run`.

use std::fs;

use niello::ir::{Constant, DType};
use niello::onnx::{ModelBuilder, TestValue, test_value_from_bytes, test_value_to_bytes};
use serde_json::Value;

use super::{as_sequence, fails, names, npy_elements, npy_f32, path, scores, succeeds, write};

/// `x` in `x.npy`, `bias` in `bias.pb`; the outputs for them are [`SCORES`] and [`TOTAL`].
struct Files {
    folder: tempfile::TempDir,
    model: String,
    x: String,
    bias: String,
}

const SCORES: [f32; 6] = [9.0, 12.0, 15.0, 4.0, 5.0, 6.0];
const TOTAL: [f32; 6] = [9.5, 13.0, 13.0, 4.5, 6.0, 4.0];

impl Files {
    fn new() -> Files {
        let folder = tempfile::tempdir().unwrap();
        let model = scores(folder.path());
        let (x, bias) = (folder.path().join("x.npy"), folder.path().join("bias.pb"));
        write(&x, &npy_f32(&[2, 2], &[1.0, 2.0, 0.0, 1.0]));
        let constant = Constant::from_f32(&[3], &[0.5, 1.0, -2.0]).unwrap();
        write(&bias, &test_value_to_bytes(&constant, "any name").unwrap());
        let text = |file: &std::path::Path| path(file).to_owned();
        Files { model: text(&model), x: text(&x), bias: text(&bias), folder }
    }

    fn path(&self, name: &str) -> String {
        path(&self.folder.path().join(name)).to_owned()
    }
}

#[test]
fn inputs_have_a_position_or_a_name_and_outputs_the_format_of_their_file() {
    let files = Files::new();
    let (scores, total) = (files.path("scores.npy"), files.path("total.pb"));
    let (x, bias) = (format!("x={}", files.x), format!("bias={}", files.bias));
    for backend in ["c", "interp"] {
        for inputs in [
            vec![files.x.as_str(), &files.bias],
            vec!["--input", &bias, "--input", &x],
            vec![&files.x, "--input", &bias],
        ] {
            let args = ["run", &files.model, "--backend", backend, "-o", &scores, "-o", &total];
            let text = succeeds(&[&args[..], &inputs].concat());
            assert_eq!(text, format!("{scores}\n{total}\n"));
            assert_eq!(npy_elements(scores.as_ref()), SCORES);
            let bytes = fs::read(&total).unwrap();
            let expected = Constant::from_f32(&[2, 3], &TOTAL).unwrap();
            assert_eq!(test_value_from_bytes(bytes.into()), Ok(TestValue::Tensor(expected)));
            fs::remove_file(&scores).unwrap();
        }
    }
    let named = format!("total={}", files.path("one.npy"));
    succeeds(&["run", &files.model, &files.x, &files.bias, "-o", &named]);
    assert_eq!(npy_elements(files.path("one.npy").as_ref()), TOTAL);
}

#[test]
fn an_archive_written_by_one_run_is_read_by_another() {
    let files = Files::new();
    let all = files.path("all.npz");
    let x = files.path("x.npz");
    succeeds(&["run", &files.model, &files.x, &files.bias, "-o", &all]);
    let bytes = fs::read(&all).unwrap();
    assert_eq!(bytes[..4], *b"PK\x03\x04");
    // The arrays are the model's outputs, not its inputs.
    let error = fails(&["run", &files.model, &all]);
    assert!(error.contains("`scores` is no input of the model; it has `x`, `bias`"), "{error}");
    // One of the outputs, in a file with another name, is an input for any model.
    let one = format!("scores={x}");
    succeeds(&["run", &files.model, &files.x, &files.bias, "-o", &one]);
    let error = fails(&["run", &files.model, "--input", &format!("x={x}"), &files.bias]);
    assert!(error.contains("input `x`") && error.contains("dimension 1 is 2"), "{error}");
}

#[test]
fn all_tensors_of_a_sequence_are_written() {
    let files = Files::new();
    let mut model = ModelBuilder::new(13)
        .input("a", DType::F32, &[2])
        .input("b", DType::F32, &[1])
        .node("SequenceConstruct", &["a", "b"], &["s"], &[])
        .output("s", DType::F32, &[1])
        .build();
    as_sequence(&mut model.graph.as_mut().unwrap().output[0]);
    let [file, a, b, all, first, second] =
        ["s.onnx", "a.npy", "b.npy", "all.npz", "first.npy", "second.npy"].map(|n| files.path(n));
    write(file.as_ref(), &model.to_bytes());
    write(a.as_ref(), &npy_f32(&[2], &[1.0, 2.0]));
    write(b.as_ref(), &npy_f32(&[1], &[3.0]));
    succeeds(&["run", &file, &a, &b, "-o", &all]);
    // The archive has both, as what reads it says.
    let error = fails(&["run", &file, &all]);
    assert!(error.contains("`s_0`") && error.contains("`s_1`"), "{error}");
    succeeds(&["run", &file, &a, &b, "-o", &first, "-o", &second]);
    assert_eq!(npy_elements(first.as_ref()), [1.0, 2.0]);
    assert_eq!(npy_elements(second.as_ref()), [3.0]);
    let error = fails(&["run", &file, &a, &b, "-o", &first]);
    assert!(error.contains("the model has 2 outputs (`s_0`, `s_1`)"), "{error}");
    let error = fails(&["run", &file, &a, &b, "-o", &format!("s={all}")]);
    assert!(
        error.contains("`s` is no tensor, but a sequence; help: the outputs are `s_0`, `s_1`"),
        "{error}"
    );
    succeeds(&["run", &file, &a, &b, "-o", &format!("s_1={first}")]);
    assert_eq!(npy_elements(first.as_ref()), [3.0]);
}

#[test]
fn without_a_file_outputs_are_printed_in_short() {
    let files = Files::new();
    let text = succeeds(&["run", &files.model, &files.x, &files.bias]);
    assert_eq!(
        text,
        "scores: Tensor[(2, 3), float32], min 4, max 15, mean 8.5\n  9, 12, 15, 4, 5, 6\n\
         total: Tensor[(2, 3), float32], min 4, max 13, mean 8.33333\n  9.5, 13, 13, 4.5, 6, 4\n"
    );
    let json = succeeds(&["run", &files.model, &files.x, &files.bias, "--json", "-"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["outputs"][1]["name"], "total");
    assert_eq!(json["outputs"][1]["shape"], serde_json::json!([2, 3]));
    assert_eq!(json["outputs"][1]["max"], 13.0);
}

#[test]
fn kernels_are_compared_with_the_interpreter() {
    let files = Files::new();
    let args = ["run", &files.model, &files.x, &files.bias, "--compare-with", "interp"];
    let text = succeeds(&args);
    let (first, outputs) = text.split_once('\n').unwrap();
    assert!(first.ends_with(" calls of kernels agree with the interpreter"), "{text}");
    assert_eq!(outputs, succeeds(&args[..4]));
    assert_eq!(text, succeeds(&[&args[..], &["--executor", "graph"]].concat()));
    assert_eq!(outputs, succeeds(&[&args[..4], &["--executor", "graph"]].concat()));
    let json = succeeds(&[&args[..], &["--rtol", "0", "--atol", "0.5", "--json", "-"]].concat());
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(json["compared_calls"].as_u64().is_some_and(|calls| calls > 0), "{json}");
    let itself = fails(&[&args[..], &["--backend", "interp"]].concat());
    assert!(itself.contains("the interpreter is not compared with itself"), "{itself}");
}

#[test]
fn what_each_kernel_computes_is_written_to_an_archive() {
    let files = Files::new();
    let all = files.path("values.npz");
    let args = ["run", &files.model, &files.x, &files.bias, "--values", &all];
    assert_eq!(succeeds(&args), succeeds(&args[..4]));
    let archive = fs::read(&all).unwrap();
    let has = |name: &str| archive.windows(name.len()).any(|part| part == name.as_bytes());
    assert!(archive.starts_with(b"PK\x03\x04") && has("0000_fused_") && has("_0.npy"));
    let interpreter = fails(&[&args[..], &["--backend", "interp"]].concat());
    assert!(interpreter.contains("the interpreter runs no kernels"), "{interpreter}");
}

/// A text module has types of its own and runs like an ONNX model.
#[test]
fn texts_run_as_well() {
    let files = Files::new();
    let text = files.path("twice.relay");
    write(
        text.as_ref(),
        b"def @main(%x: Tensor[(2, 2), float32]) -> Tensor[(2, 2), float32] {\n  add(%x, %x)\n}\n",
    );
    let out = files.path("out.npy");
    succeeds(&["run", &text, &files.x, "-o", &out]);
    assert_eq!(npy_elements(out.as_ref()), [2.0, 4.0, 0.0, 2.0]);
}

#[test]
fn mistakes_are_reported_and_leave_no_file() {
    let files = Files::new();
    let before = names(files.folder.path());
    let out = files.path("out.npz");
    let run = |args: &[&str]| fails(&[&["run", &files.model, "-o", &out][..], args].concat());
    let missing = run(&[]);
    assert_eq!(
        missing,
        "error: input `x` is not given; help: name its file: --input x=FILE\n\
         error: input `bias` is not given; help: name its file: --input bias=FILE\n"
    );
    assert!(run(&["--input", &format!("y={}", files.x)]).contains("the model has no input `y`"));
    assert!(run(&[&files.x, "none.npy"]).contains("none.npy: there is no such file"));
    let wrong = files.path("wrong.npy");
    write(wrong.as_ref(), &npy_f32(&[2, 5], &[0.0; 10]));
    let shape = run(&[&wrong, &files.bias]);
    assert!(
        shape.contains("the shape [2, 5] was given for input `x`, but dimension 1 is 2"),
        "{shape}"
    );
    let pinned = run(&[&files.x, &files.bias, "--dim", "batch=3"]);
    assert!(pinned.contains("dimension `batch` is pinned to 3"), "{pinned}");
    let one = fails(&["run", &files.model, &files.x, &files.bias, "-o", &files.path("one.npy")]);
    assert!(one.contains("the model has 2 outputs (`scores`, `total`)"), "{one}");
    fs::remove_file(&wrong).unwrap();
    assert_eq!(names(files.folder.path()), before);
}

#[test]
fn a_graph_runs_with_the_library_beside_it() {
    let files = Files::new();
    let out = files.path("out");
    let kinds = ["--executor", "graph", "--emit", "graph-json,shared", "--name", "scores"];
    let args = ["compile", &files.model, "-o", &out, "--dim", "batch=2"];
    succeeds(&[&args[..], &kinds].concat());
    let graph = format!("{out}/scores.graph.json");
    let [first, second, values] = ["first.npy", "second.npy", "values.npz"].map(|n| files.path(n));
    let run = ["run", &graph, &files.x, &files.bias, "-o", &first, "-o", &second];
    let text = succeeds(&[&run[..], &["--values", &values]].concat());
    assert_eq!(text, format!("{first}\n{second}\n"));
    assert_eq!(npy_elements(first.as_ref()), SCORES);
    assert_eq!(npy_elements(second.as_ref()), TOTAL);
    assert!(fs::metadata(&values).unwrap().len() > 0);

    let error = fails(&["run", &graph, &files.x, &files.bias, "--compare-with", "interp"]);
    assert!(error.contains("says nothing of their operators"), "{error}");
    let error = fails(&["run", &graph, &files.x]);
    assert!(error.contains("bias"), "{error}");
    write(graph.as_ref(), b"{\"nodes\": []}");
    let error = fails(&["run", &graph, &files.x, &files.bias]);
    assert!(error.contains("there is no list `node_row_ptr`"), "{error}");
    assert!(error.contains("niello compile --executor graph"), "{error}");
    let missing = files.path("missing.graph.json");
    let error = fails(&["run", &missing, &files.x]);
    assert!(error.contains("missing.graph.json"), "{error}");
}
