//! Tests of the text of bindings; build-support tests with real packages that Rust accepts it.

use std::path::Path;
use std::process::Command;

use niello_runtime::CpuLevel;

use super::{BindingsOptions, WeightsPlacement, header, rust};
use crate::executor::{CompiledModel, RunTimeAxis, RunTimeSizes, TensorInfo};
use crate::ir::{DType, Dim};

fn digits() -> CompiledModel {
    let mut image = TensorInfo::new("image", DType::F32, &[1, 1, 8, 8]);
    image.dim_names[0] = Some("batch".to_owned());
    CompiledModel {
        name: "digits".to_owned(),
        symbol: "niello_app_0_1_0_digits_0123456789abcdef".to_owned(),
        inputs: vec![image],
        outputs: vec![
            TensorInfo::new("probabilities", DType::F32, &[1, 10]),
            TensorInfo::new("Class*/", DType::I64, &[]),
        ],
        states: Vec::new(),
        sizes: Default::default(),
        levels: vec![CpuLevel::Baseline, CpuLevel::X86_64V3],
        workspace_bytes: 12_352,
        scratch_offset: 12_288,
        scratch_stride: 64,
        threads: 1,
        workers: 1,
        weights: vec![7; 1_000].into(),
        constants: Default::default(),
        other_weights: None,
        macs: 1_234_567,
        kernels: Default::default(),
        calls: 0,
        external_symbols: Vec::new(),
        digest: [0x5a; 32],
        metadata: vec![("producer_name".to_owned(), "pytorch \"2\"".to_owned())],
        external_data: Vec::new(),
        objects: Vec::new(),
    }
}

/// Compares with a file of `testdata`; `BLESS=1` writes it.
fn expect(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bindings/testdata").join(name);
    // The version does not matter for this test.
    let found = found.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "differs from {}; BLESS=1 rewrites it", path.display());
}

#[test]
fn rust_bindings_equal_the_committed_files() {
    expect("embedded.rs.txt", &rust(&digits(), &BindingsOptions::default()).unwrap());
    let external = BindingsOptions {
        weights: WeightsPlacement::External,
        runtime: "::app::inference".to_owned(),
        stub: false,
    };
    let text = rust(&digits(), &external).unwrap();
    assert!(text.contains("use ::app::inference::__private::niello_build_"), "{text}");
    assert!(!text.contains("_weights\""), "external weights are not linked: {text}");
}

#[test]
fn models_for_several_threads_take_those_of_the_caller() {
    let model = CompiledModel { threads: 4, workers: 4, ..digits() };
    for weights in [WeightsPlacement::Embedded, WeightsPlacement::External] {
        let options = BindingsOptions { weights, ..BindingsOptions::default() };
        let text = rust(&model, &options).unwrap();
        if weights == WeightsPlacement::Embedded {
            expect("threads.rs.txt", &text);
        }
        assert!(text.contains("pub const THREADS: usize = 4;"), "{text}");
    }
    let stub = BindingsOptions { stub: true, ..BindingsOptions::default() };
    assert!(rust(&model, &stub).unwrap().contains("pub fn run_into_with("));
    let text = header(&model, &BindingsOptions::default()).unwrap();
    assert!(text.contains("#define NIELLO_DIGITS_THREADS 4\n"), "{text}");
}

#[test]
fn runs_of_their_own_size_take_slices() {
    let dims = [("batch".to_owned(), crate::options::DimSize::from(1..=32))];
    let mut model = CompiledModel { sizes: RunTimeSizes::of(&dims.into()), ..digits() };
    for info in [&mut model.inputs[0], &mut model.outputs[0]] {
        info.shape[0] = 32;
        info.run_time = vec![RunTimeAxis { axis: 0, extent: Dim::symbol("batch") }];
    }
    let n = Dim::symbol("batch");
    model.sizes.equal = vec![(n.clone(), n.floor_div(&Dim::from(2)) * 2)];
    expect("sizes.rs.txt", &rust(&model, &BindingsOptions::default()).unwrap());
    let model = CompiledModel { threads: 4, workers: 4, ..model };
    let text = rust(&model, &BindingsOptions::default()).unwrap();
    assert!(text.contains("_with(__niello::executor(THREADS), inputs, outputs)\n"), "{text}");
    let text = header(&model, &BindingsOptions::default()).unwrap();
    assert!(text.contains("#define NIELLO_DIGITS_INPUTS 2\n"), "{text}");
    assert!(
        text.contains("input 1: the sizes of the run, an int64_t each: batch, 1 to 32."),
        "{text}"
    );
    assert!(text.contains("The caller sees to it that batch is 2*floordiv(batch, 2)."), "{text}");
}

#[test]
fn sizes_that_a_run_computes_are_returned() {
    let counted = |dims: &[(String, crate::options::DimSize)]| {
        let mut sizes = RunTimeSizes::of(&dims.iter().cloned().collect());
        let text = "def @main(%x: Tensor[(32), float32], %n: Tensor[(), int64])
            -> Tensor[(found), float32] { truncate(%x, %n, axis=0, size=\"found\") }";
        sizes.add_counted(&crate::graph::parse_module(text).unwrap());
        let mut model = CompiledModel { sizes, ..digits() };
        model.outputs[0].shape[0] = 32;
        model.outputs[0].run_time = vec![RunTimeAxis { axis: 0, extent: Dim::symbol("found") }];
        model
    };
    // Nothing can be told wrongly: a run does not fail, but slices for its results may be too short.
    let alone = rust(&counted(&[]), &BindingsOptions::default()).unwrap();
    for expected in [
        "pub fn run(&mut self, inputs: &Inputs<'_>) -> Outputs<'_> {",
        "-> ::core::result::Result<Sizes, __niello::SizeError> {",
        "pub const GREATEST: Sizes = Sizes { found: 32 };",
        "probabilities: &outputs.probabilities[..sizes.found * 10],",
        "let sizes = call_model(",
        "of_run.as_mut_ptr().cast_const().cast(),",
    ] {
        assert!(alone.contains(expected), "{expected}: {alone}");
    }
    let text = header(&counted(&[]), &BindingsOptions::default()).unwrap();
    assert!(text.contains("found, 0 to 32, which the run stores."), "{text}");
    let batch = [("batch".to_owned(), crate::options::DimSize::from(1..=4))];
    let mut both = counted(&batch);
    both.inputs[0].run_time = vec![RunTimeAxis { axis: 0, extent: Dim::symbol("batch") }];
    let both = rust(&both, &BindingsOptions::default()).unwrap();
    for expected in ["let sizes = Sizes::of(inputs)?;", "found: 32,", "..sizes\n"] {
        assert!(both.contains(expected), "{expected}: {both}");
    }
    // A run that finds another size than the model takes it to be fails.
    let mut fixed = counted(&[]);
    fixed.sizes.equal_counts = vec![(Dim::symbol("found"), Dim::from(4))];
    let text = rust(&fixed, &BindingsOptions::default()).unwrap();
    for expected in [
        "-> ::core::result::Result<Outputs<'_>, __niello::SizeError> {",
        "__niello::check_equal((\"found\", sizes.found), (\"4\", 4))?;\n        ::core::result::Result::Ok(Outputs",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let text = header(&fixed, &BindingsOptions::default()).unwrap();
    assert!(text.contains("A run that stores a found other than 4 has no result."), "{text}");
    let stub = BindingsOptions { stub: true, ..BindingsOptions::default() };
    assert!(rust(&counted(&[]), &stub).unwrap().contains(") -> Sizes {\n"));
}

/// The identifier is missing in a runtime of another version.
#[test]
fn bindings_name_the_runtime_of_this_version() {
    let version = concat!(env!("CARGO_PKG_VERSION_MAJOR"), "_", env!("CARGO_PKG_VERSION_MINOR"));
    let text = rust(&digits(), &BindingsOptions::default()).unwrap();
    let module = format!("niello_build_{version}_needs_niello_runtime_{version}");
    assert!(text.contains(&module), "bindings should name {module}");
}

#[test]
fn a_model_without_tensors_or_weights_has_bindings_as_well() {
    let mut model = digits();
    model.inputs.clear();
    model.outputs.clear();
    model.weights = Default::default();
    let text = rust(&model, &BindingsOptions::default()).unwrap();
    assert!(text.contains("model.run(&Inputs::default())"), "{text}");
    assert!(!text.contains("static WEIGHTS"), "{text}");
}

#[test]
fn sizes_that_cannot_be_counted_are_an_error() {
    let mut model = digits();
    model.inputs[0].shape = vec![1 << 40, 1 << 40];
    let error = rust(&model, &BindingsOptions::default()).unwrap_err().to_string();
    assert!(error.contains("`image`") && error.contains("1099511627776"), "{error}");
    model.inputs[0].shape.push(0);
    assert!(rust(&model, &BindingsOptions::default()).is_ok(), "an empty tensor has no elements");
}

/// The header compiles without a warning as C and as C++, and its function calls the model.
#[test]
fn the_header_is_c_and_calls_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let text = header(&digits(), &BindingsOptions::default()).unwrap();
    expect("embedded.h.txt", &text);
    std::fs::write(folder.path().join("digits.h"), text).unwrap();
    let symbol = digits().symbol;
    let main = r#"
#include "digits.h"
#ifdef __cplusplus
extern "C"
#endif
const unsigned char SYMBOL_weights[NIELLO_DIGITS_WEIGHT_BYTES] = {42};
void SYMBOL_run(const struct niello_context *context, const void *const *inputs,
                void *const *outputs) {
    const float *image = (const float *)inputs[0];
    *(int64_t *)outputs[1] = *(const unsigned char *)context->weights + (int64_t)image[63]
        + ((char *)context->scratch - (char *)context->workspace) + (int64_t)context->workers;
}
static float image[NIELLO_DIGITS_INPUT_0_BYTES / sizeof(float)];
int main(void) {
    static char workspace[NIELLO_DIGITS_WORKSPACE_BYTES];
    float probabilities[NIELLO_DIGITS_OUTPUT_0_BYTES / sizeof(float)];
    int64_t found = 0;
    const void *inputs[NIELLO_DIGITS_INPUTS] = {image};
    void *outputs[NIELLO_DIGITS_OUTPUTS] = {probabilities, &found};
    image[63] = 100;
    niello_digits_run(workspace, inputs, outputs);
    return found == 42 + 100 + 12288 + 1 ? 0 : 1;
}
"#;
    let main = main.replace("SYMBOL", &symbol);
    for (compiler, file, standard) in
        [("cc", "main.c", "-std=c99"), ("c++", "main.cpp", "-std=c++11")]
    {
        std::fs::write(folder.path().join(file), &main).unwrap();
        let compiled = Command::new(compiler)
            .args([standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o", "main", file])
            .current_dir(folder.path())
            .output();
        let Ok(compiled) = compiled else {
            eprintln!("skipped: there is no `{compiler}`");
            continue;
        };
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let status = Command::new(folder.path().join("main")).status().unwrap();
        assert!(status.success(), "{compiler}: the model was not called as it should");
    }
}
