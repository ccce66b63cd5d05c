//! Models compiled the whole way and run, against values computed by hand and the interpreter.

use super::*;
use crate::executor::{LoadedModel, write_shared_library};
use crate::ir::{Constant, DType};
use crate::onnx::{ModelBuilder, ModelDim, load_bytes};
use crate::target::Target;

fn options() -> CompileOptions {
    let mut options = CompileOptions::new(Target::host());
    options.package = "app".to_owned();
    options.version = "1.2.3".to_owned();
    options.jobs = 2;
    options
}

/// `y = relu(x · w + b)` with a batch that is not known.
fn dense() -> Model {
    let weight = Constant::from_f32(&[3, 2], &[1.0, -1.0, 2.0, 0.5, 0.0, 3.0]).unwrap();
    let bias = Constant::from_f32(&[2], &[0.5, -10.0]).unwrap();
    let proto = ModelBuilder::new(13)
        .input("x", DType::F32, &[ModelDim::from("batch"), ModelDim::from(3)])
        .initializer("w", &weight)
        .initializer("b", &bias)
        .node("MatMul", &["x", "w"], &["xw"], &[])
        .node("Add", &["xw", "b"], &["sum"], &[])
        .node("Relu", &["sum"], &["y"], &[])
        .output("y", DType::F32, &[ModelDim::from("batch"), ModelDim::from(2)])
        .build();
    Model::from_onnx("dense", load_bytes(proto.to_bytes()).unwrap())
}

fn pinned(batch: u64) -> CompileOptions {
    CompileOptions { dims: [("batch".to_owned(), batch)].into(), ..options() }
}

#[test]
fn a_model_runs_as_native_code() {
    for opt_level in [0, 3] {
        let options = CompileOptions { opt_level, ..pinned(2) };
        let compilation = compile(&dense(), &options).unwrap();
        let model = &compilation.model;
        assert_eq!(model.macs, 12);
        assert!(model.symbol.starts_with("niello_app_1_2_3_dense_"), "{}", model.symbol);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("dense.so");
        write_shared_library(model, &options.target, &path).unwrap();
        let loaded = LoadedModel::load(model, &path).unwrap();
        let x = Constant::from_f32(&[2, 3], &[1.0, 2.0, 3.0, -1.0, 0.0, 5.0]).unwrap();
        // 1+4+0+0.5, -1+1+9-10; -1+0+0+0.5, 1+0+15-10
        let expected = Constant::from_f32(&[2, 2], &[5.5, 0.0, 0.0, 6.0]).unwrap();
        assert_eq!(loaded.run(&[x]).unwrap(), [expected]);
    }
}

#[test]
fn the_interface_keeps_names_and_symbols() {
    let compilation = compile(&dense(), &CompileOptions { stub: true, ..pinned(4) }).unwrap();
    let model = compilation.model;
    let input = &model.inputs[0];
    assert_eq!((input.name.as_str(), input.shape.as_slice()), ("x", &[4, 3][..]));
    assert_eq!(input.dim_names, [Some("batch".to_owned()), None]);
    assert_eq!(model.outputs[0].shape, [4, 2]);
    assert!(model.objects.is_empty() && model.weights.is_empty());
    assert_eq!(model.name, "dense");
}

#[test]
fn a_size_that_is_not_known_is_told_once_with_what_to_do() {
    let report = compile(&dense(), &options()).unwrap_err();
    assert_eq!(report.problems.len(), 1);
    let text = report.to_string();
    assert!(text.contains("the size of `batch` is not known"), "{text}");
    assert!(text.contains(".dim(\"batch\", N)"), "{text}");
}

#[test]
fn whatever_changes_the_code_changes_the_symbol() {
    let symbol = |options: &CompileOptions| compile(&dense(), options).unwrap().model.symbol;
    let base = symbol(&pinned(1));
    assert_eq!(symbol(&CompileOptions { jobs: 1, ..pinned(1) }), base);
    assert_ne!(symbol(&pinned(2)), base);
    assert_ne!(symbol(&CompileOptions { opt_level: 0, ..pinned(1) }), base);
    assert_ne!(symbol(&CompileOptions { threads: 2, ..pinned(1) }), base);
}

#[test]
fn two_compilations_are_equal_byte_for_byte() {
    let once = |jobs| compile(&dense(), &CompileOptions { jobs, ..pinned(2) }).unwrap().model;
    assert_eq!(once(1), once(3));
}

#[test]
fn a_text_compiles_as_the_model_it_was_printed_from() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dense.relay");
    let imported = dense().import(&pinned(2)).unwrap();
    let print = crate::graph::PrintOptions { inline_elements: 0, ..Default::default() };
    let (text, sidecar) = crate::graph::print_with_sidecar(&imported.module, &print);
    std::fs::write(&path, text).unwrap();
    let mut bytes = Vec::new();
    sidecar.write_to(&mut bytes).unwrap();
    std::fs::write(sidecar_path(&path), bytes).unwrap();
    let from_text = compile(&Model::read(&path).unwrap(), &options()).unwrap();
    let from_onnx = compile(&dense(), &pinned(2)).unwrap();
    assert_eq!(from_text.model.weights, from_onnx.model.weights);
    assert_eq!(from_text.program.digest(), from_onnx.program.digest());
    assert_eq!(from_text.model.inputs[0].name, "x");
}

#[test]
fn a_file_that_is_no_model_is_named_for_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.onnx");
    std::fs::write(&path, b"version https://git-lfs.github.com/spec/v1\n").unwrap();
    let report = compile_file(&path, &options()).unwrap_err();
    assert!(report.to_string().contains("Git LFS pointer"), "{report}");
    let path = folder.path().join("model.relay");
    std::fs::write(&path, "def @main(").unwrap();
    let report = compile_file(&path, &options()).unwrap_err();
    assert!(report.to_string().contains("model.relay:"), "{report}");
}
