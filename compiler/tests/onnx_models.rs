//! Real models: the committed one, and those in `../shared/models` if they are present.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use niello::compile::{Model, Passes, compile};
use niello::diagnostics::Report;
use niello::executor::{LoadedModel, write_shared_library};
use niello::graph::interp::{Tensor, Value, evaluate};
use niello::graph::{PrintOptions, print_module};
use niello::ir::Constant;
use niello::onnx::{self, ImportOptions, Imported, TestValue};
use niello::options::{Backend, CompileOptions, DimSize};
use niello::pass::{Pass, PassContext};
use niello::target::Target;
use niello::transform::FakeQuantizationToInteger;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn import(path: &Path, dims: BTreeMap<String, DimSize>) -> Imported {
    let options = ImportOptions { dims, ..ImportOptions::default() };
    onnx::load(path)
        .and_then(|file| onnx::import(&file.proto, file.folder.as_deref(), &options))
        .unwrap_or_else(|report| panic!("{}:\n{report}", path.display()))
}

#[test]
fn the_digits_model_is_imported() {
    let imported = import(&root().join("examples/digits/models/digits.onnx"), BTreeMap::new());
    let ports: Vec<String> = imported
        .inputs
        .iter()
        .chain(&imported.outputs)
        .map(|port| format!("{}: {}", port.name, port.ty))
        .collect();
    assert_eq!(
        ports,
        ["image: Tensor[(1, 1, 8, 8), float32]", "probabilities: Tensor[(1, 10), float32]"]
    );
    let text = imported.module.to_string();
    for op in
        ["nn.conv2d", "nn.batch_norm", "nn.max_pool2d", "nn.dropout", "nn.dense", "nn.softmax"]
    {
        assert!(text.contains(op), "{op} is not in\n{text}");
    }
}

/// Models of other projects, which are not committed. Each is a test case of ONNX: the types of its
/// interface must equal those of the recorded tensors.
const SHARED: [&str; 23] = [
    "basic-pitch",
    "bert-toy",
    "cct-2-32",
    "cifar-cnn",
    "go1-policy",
    "hyperlpr-mobilenetv2-96",
    "lgbm-classifier",
    "magika-v1",
    "micro-kws",
    "mixed-ops-dynamic",
    "mnist-8",
    "mnist-burn-bn",
    "mobilenetv2",
    "nanodet-m-320",
    "portrait-seg",
    "ppocr-cls",
    "shufflenet_v2",
    "squeezenet1_1",
    "super-resolution-10",
    "tf-bert-cls",
    "ultraface-rfb-320",
    "vit-tracker",
    "yolox-nano",
];

/// The models among them whose reference evaluation takes less than a second unoptimised.
const EVALUATED: [&str; 14] = [
    "bert-toy",
    "cct-2-32",
    "cifar-cnn",
    "go1-policy",
    "hyperlpr-mobilenetv2-96",
    "lgbm-classifier",
    "micro-kws",
    "mixed-ops-dynamic",
    "mnist-8",
    "mnist-burn-bn",
    "portrait-seg",
    "ppocr-cls",
    "tf-bert-cls",
    "ultraface-rfb-320",
];

/// The folder of the models of other projects, if present; prints a note otherwise.
fn shared() -> Option<PathBuf> {
    let shared = root().join("../shared/models");
    if shared.is_dir() {
        return Some(shared);
    }
    // Not by `println!`, whose output the harness hides when a test passes.
    let note = format!("SKIPPED: {} is not there, its models are not tested\n", shared.display());
    std::io::stderr().write_all(note.as_bytes()).expect("standard error can be written");
    None
}

fn import_case(folder: &Path) -> Imported {
    let dims = match std::fs::read(folder.join("dims.json")) {
        Ok(text) => {
            let dims: BTreeMap<String, u64> =
                serde_json::from_slice(&text).expect("dims.json maps names to sizes");
            dims.into_iter().map(|(name, size)| (name, size.into())).collect()
        }
        Err(_) => BTreeMap::new(),
    };
    import(&folder.join("model.onnx"), dims)
}

/// The recorded tensor of an input or output.
fn recorded(folder: &Path, kind: &str, index: usize) -> Constant {
    let path = folder.join(format!("test_data_set_0/{kind}_{index}.pb"));
    let bytes = std::fs::read(&path).expect("each port has its tensor");
    match onnx::test_value_from_bytes(bytes.into()) {
        Ok(TestValue::Tensor(tensor)) => tensor,
        other => panic!("{}: {other:?}", path.display()),
    }
}

#[test]
fn models_of_other_projects_are_imported_with_the_types_of_their_data() {
    let Some(shared) = shared() else { return };
    for name in SHARED {
        let folder = shared.join(name);
        let imported = import_case(&folder);
        for (kind, ports) in [("input", &imported.inputs), ("output", &imported.outputs)] {
            for (index, port) in ports.iter().enumerate() {
                let tensor = recorded(&folder, kind, index);
                assert_eq!(*tensor.ty(), port.ty, "{name}: {kind} `{}`", port.name);
            }
        }
    }
}

/// The entry of a model in `index.json`.
#[derive(serde::Deserialize)]
struct Entry {
    name: String,
    rtol: f64,
    atol: f64,
}

#[test]
fn imported_models_equal_onnx_runtime() {
    let Some(shared) = shared() else { return };
    let index = std::fs::read(shared.join("index.json")).expect("the models have an index");
    let index: Vec<Entry> = serde_json::from_slice(&index).expect("the index lists tolerances");
    for name in EVALUATED {
        let folder = shared.join(name);
        let Entry { rtol, atol, .. } =
            index.iter().find(|entry| entry.name == name).expect("each model is in the index");
        let imported = import_case(&folder);
        let tensor = |constant: &Constant| Tensor::from_constant(constant).expect("a known dtype");
        let inputs: Vec<Value> = (0..imported.inputs.len())
            .map(|index| tensor(&recorded(&folder, "input", index)).into())
            .collect();
        let result = evaluate(&imported.module, "main", &inputs)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let single = [result.clone()];
        let outputs = result.as_tuple().unwrap_or(&single);
        for (index, output) in outputs.iter().enumerate() {
            let output = output.as_tensor().expect("outputs are tensors");
            let expected = tensor(&recorded(&folder, "output", index));
            assert_eq!(output.ty(), expected.ty(), "{name}: output {index}");
            assert_eq!(output.ints(), expected.ints(), "{name}: output {index}");
            let pairs = output.floats().into_iter().zip(expected.floats());
            for (place, (&found, &expected)) in pairs.flat_map(|(a, b)| a.iter().zip(b)).enumerate()
            {
                let close = (found - expected).abs() <= atol + rtol * expected.abs();
                assert!(close, "{name}: output {index}[{place}] is {found}, not {expected}");
            }
        }
    }
}

/// The output of a quantised model by its operators as imported, and by integers: at most one step
/// of its quantisation apart.
#[test]
fn a_quantised_model_in_integers_differs_by_at_most_one_step() {
    let Some(shared) = shared() else { return };
    let folder = shared.join("micro-kws-qdq");
    let module = import_case(&folder).module;
    let input: Value =
        Tensor::from_constant(&recorded(&folder, "input", 0)).expect("a known dtype").into();
    let cx = PassContext::builder().build().expect("a context");
    let integers = FakeQuantizationToInteger.run(module.clone(), &cx).expect("the pass runs");
    let text = print_module(&integers, &PrintOptions::default());
    let products = ["nn.conv2d(", "nn.matmul("];
    for line in text.lines().filter(|line| products.iter().any(|product| line.contains(product))) {
        assert!(line.contains("out_dtype=\"int32\""), "{line}");
    }
    let outputs = [&module, &integers].map(|module| {
        let value = evaluate(module, "main", std::slice::from_ref(&input)).expect("a value");
        value.as_tensor().expect("one output").floats().expect("of floats").to_vec()
    });
    // Probabilities are quantised in steps of 1/256.
    let steps = outputs[0].iter().zip(&outputs[1]).map(|(a, b)| ((a - b) * 256.0).abs().round());
    let steps: Vec<f64> = steps.collect();
    assert!(steps.iter().all(|&steps| steps <= 1.0), "{steps:?}");
}

/// The models among them that are run on several threads: each kind of kernel is in one.
const THREADED: [&str; 7] = [
    "cct-2-32",
    "hyperlpr-mobilenetv2-96",
    "micro-kws",
    "micro-kws-qdq",
    "mixed-ops-dynamic",
    "mnist-8",
    "portrait-seg",
];

/// How many threads they are compiled for, and how many run them.
const COMPILED_FOR: usize = 7;
const RUN_BY: [usize; 5] = [1, 2, 3, 4, 7];

/// The outputs of a run, as bytes.
type Outputs = Vec<Vec<u8>>;

/// The outputs of a model's code for up to so many threads by each number of them, and how many loops
/// are parallel.
fn run_by(
    model: &Model,
    inputs: &[Constant],
    backend: Backend,
    compiled_for: usize,
    threads: &[usize],
) -> Result<(Vec<Outputs>, usize), Report> {
    let mut options = CompileOptions::new(Target::host());
    options.set_target_cpu("native").expect("every machine has a CPU");
    (options.backend, options.threads, options.jobs) = (backend, compiled_for, 2);
    // What pays is a matter of machines and of estimates: here every loop that may is parallel.
    options.config.insert("tir.parallel_min_share".to_owned(), 1.into());
    let compilation = compile(model, &options, &Passes::new(&options)?)?;
    let rows = &compilation.model.kernels.rows;
    let parallel = rows.iter().map(|row| row.parallel.len()).sum();
    let folder = tempfile::tempdir().expect("a folder can be made");
    let path = folder.path().join("model.so");
    write_shared_library(&compilation.model, &options.target, &path)?;
    let mut loaded = LoadedModel::load(&compilation.model, &path)?;
    let mut outputs = Vec::new();
    for &threads in threads {
        loaded.set_threads(threads);
        let run = loaded.run(inputs)?;
        outputs.push(run.iter().filter_map(|it| Some(it.to_bytes()?.to_vec())).collect());
    }
    Ok((outputs, parallel))
}

#[test]
fn no_number_of_threads_changes_a_bit_of_a_model() {
    let Some(shared) = shared() else { return };
    let mut parallel = 0;
    for name in THREADED {
        let folder = shared.join(name);
        let imported = import_case(&folder);
        let inputs: Vec<Constant> =
            (0..imported.inputs.len()).map(|index| recorded(&folder, "input", index)).collect();
        let model = Model::from_module(name, imported.module);
        let run = |backend, compiled_for, threads: &[usize]| {
            run_by(&model, &inputs, backend, compiled_for, threads)
                .unwrap_or_else(|report| panic!("{name}, {backend}:\n{report}"))
        };
        // Backends give the same bits, so code for one thread is compiled by the faster one alone.
        let fastest = *Backend::ALL.last().expect("there is a backend");
        let (expected, _) = run(fastest, 1, &[1]);
        for &backend in Backend::ALL {
            let (found, loops) = run(backend, COMPILED_FOR, &RUN_BY);
            parallel += loops;
            for (found, threads) in found.iter().zip(RUN_BY) {
                assert!(*found == expected[0], "{name}, {backend}: {threads} threads");
            }
        }
    }
    let least = 200 * Backend::ALL.len();
    assert!(parallel >= least, "{parallel} loops are parallel");
}
