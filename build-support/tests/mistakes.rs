//! Common mistakes of new users, and their messages: one line that names the file, once.

use std::fs;
use std::path::{Path, PathBuf};

use niello_build::niello::diagnostics::Problem;
use niello_build::niello::ir::{Constant, DType, IRModule};
use niello_build::niello::onnx::{ModelBuilder, ModelDim};
use niello_build::niello::pass::{ModulePass, PassContext, PassInfo, PassInstrument};
use niello_build::{Config, Weights, configure};

/// `y = relu(x · w)` with a symbolic batch.
fn dense() -> ModelBuilder {
    let w = Constant::from_f32(&[2, 2], &[1.0, 2.0, 3.0, 4.0]).unwrap();
    ModelBuilder::new(13)
        .input("x", DType::F32, &[ModelDim::from("batch"), 2.into()])
        .initializer("w", &w)
        .node("MatMul", &["x", "w"], &["product"], &[])
        .node("Relu", &["product"], &["y"], &[])
        .output("y", DType::F32, &[ModelDim::from("batch"), 2.into()])
}

/// A folder with a model file in it.
struct Case {
    folder: tempfile::TempDir,
    model: PathBuf,
}

impl Case {
    fn new(file: &str, contents: impl AsRef<[u8]>) -> Case {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join(file);
        fs::write(&model, contents).unwrap();
        Case { folder, model }
    }

    fn dense() -> Case {
        Case::new("dense.onnx", dense().to_bytes())
    }

    fn out_dir(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    fn configure(&self) -> Config {
        configure(&self.model).out_dir(self.out_dir())
    }

    /// The line for the only problem of a compilation, without the path at its beginning.
    #[track_caller]
    fn line(&self, config: &Config) -> String {
        let errors = config.try_compile().expect_err("a mistake was made");
        let text = errors.to_string();
        assert_eq!(text.lines().count(), 1, "{text}");
        let rest = text.strip_prefix(&format!("{}: ", self.model.display()));
        let rest = rest.unwrap_or_else(|| panic!("no path: {text}"));
        assert!(!rest.contains("dense.onnx"), "the path is repeated: {text}");
        rest.to_owned()
    }
}

#[test]
fn files_that_are_no_models_are_recognised() {
    let whole = dense().to_bytes();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n";
    for (file, contents, expected) in [
        ("m.onnx", &whole[..whole.len() / 2], "damaged or cut short"),
        ("m.onnx", b"", "the file is empty"),
        ("m.onnx", pointer.as_bytes(), "this is a Git LFS pointer, not an ONNX model; help: run"),
        ("m.pt", b"PK\x03\x04....", "how PyTorch saves a .pt file, not an ONNX model"),
        ("m.tflite", b"\x1c\0\0\0TFL3", "this is a TensorFlow Lite model"),
    ] {
        let case = Case::new(file, contents);
        let line = case.line(&case.configure());
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn a_missing_file_is_reported_and_relative_paths_explained() {
    let mut case = Case::dense();
    case.model = case.folder.path().join("desne.onnx");
    let line = case.line(&case.configure());
    assert!(line.starts_with("there is no such file; help: paths are relative"), "{line}");
}

#[test]
fn missing_and_misspelt_dimensions_are_reported() {
    let case = Case::dense();
    let line = case.line(&case.configure());
    assert!(line.contains("the size of `batch` is not known; help: pin it: .dim(\"batch\", N)"));
    let line = case.line(&case.configure().dim("btach", 1));
    assert!(line.contains("`btach`") && line.ends_with("it has `batch`"), "{line}");
}

#[test]
fn passes_that_do_not_exist_are_guessed() {
    let case = Case::dense();
    let config = || case.configure().dim("batch", 1);
    let line = case.line(&config().disable_pass("FoldConstnat"));
    assert!(line.contains("there is no pass `FoldConstnat`; did you mean `FoldConstant`?"));
    let line = case.line(&config().pass_after("FuseOpps", noop()));
    assert!(line.contains("named `FuseOpps`; help: did you mean `FuseOps`?"), "{line}");
}

fn noop() -> ModulePass {
    let info = PassInfo::new("Noop", 0).unwrap();
    ModulePass::new(info, |module: IRModule, _: &PassContext| module)
}

/// A folder that cannot be made, because a file is in its place.
#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let case = Case::dense();
    let file = case.folder.path().join("file");
    fs::write(&file, "").unwrap();
    let line = case.line(&configure(&case.model).dim("batch", 1).out_dir(&file));
    assert!(line.contains(file.to_str().unwrap()) && line.contains("Not a directory"), "{line}");
}

#[test]
fn a_model_that_fails_leaves_a_log_and_no_bindings() {
    let case = Case::dense();
    let errors = case.configure().try_compile().unwrap_err();
    assert!(fs::read_to_string(errors.log().unwrap()).unwrap().contains("problem 1 of 1"));
    assert!(!case.out_dir().join("dense.rs").exists());
    let Problem { help, .. } = &errors.problems()[0];
    assert!(help.is_some());
}

/// Records the names of passes.
#[derive(Default)]
struct Names(std::sync::Mutex<Vec<String>>);

impl PassInstrument for &'static Names {
    fn run_before_pass(
        &self,
        _: &IRModule,
        info: &PassInfo,
    ) -> niello_build::niello::pass::HookResult {
        self.0.lock().unwrap().push(info.name().to_owned());
        Ok(())
    }
}

/// No mistake: the contrast to the mistakes above.
#[test]
fn passes_and_instruments_of_the_build_script_take_part() {
    let names: &'static Names = Box::leak(Box::default());
    let case = Case::dense();
    let config = case.configure().dim("batch", 3).pass_after("fold-constant", noop());
    let config = config.instrument(names).weights(Weights::External("w.bin".into()));
    let artifacts = config.try_compile().unwrap();
    let names = names.0.lock().unwrap();
    let noop = names.iter().position(|name| name == "Noop").unwrap();
    assert_eq!(names[noop - 1], "FoldConstant");
    assert_eq!(names.iter().filter(|name| *name == "Noop").count(), 1);

    assert_eq!(artifacts.macs, 3 * 2 * 2);
    assert_eq!(artifacts.weights.as_deref(), Some(case.out_dir().join("w.bin").as_path()));
    let log = fs::read_to_string(Path::new(&artifacts.log)).unwrap();
    for stage in ["read ", "compile code ", "write files ", "total "] {
        assert!(log.lines().any(|line| line.starts_with(stage)), "{log}");
    }
}
