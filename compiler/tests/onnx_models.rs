//! Real models: the committed one, and those of `../shared/models` where they are there.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use niello::onnx::{self, ImportOptions, Imported, TestValue};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn import(path: &Path, dims: BTreeMap<String, u64>) -> Imported {
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
/// interface must be those of the recorded tensors.
const SHARED: [&str; 19] = [
    "basic-pitch",
    "cct-2-32",
    "cifar-cnn",
    "go1-policy",
    "hyperlpr-mobilenetv2-96",
    "magika-v1",
    "micro-kws",
    "mixed-ops-dynamic",
    "mnist-8",
    "mnist-burn-bn",
    "mobilenetv2",
    "nanodet-m-320",
    "portrait-seg",
    "shufflenet_v2",
    "squeezenet1_1",
    "super-resolution-10",
    "ultraface-rfb-320",
    "vit-tracker",
    "yolox-nano",
];

#[test]
fn models_of_other_projects_are_imported_with_the_types_of_their_data() {
    let shared = root().join("../shared/models");
    if !shared.is_dir() {
        // Not through `println!`, which the harness keeps to itself when a test passes.
        let note =
            format!("SKIPPED: {} is not there, its models are not imported\n", shared.display());
        std::io::stderr().write_all(note.as_bytes()).expect("standard error can be written");
        return;
    }
    for name in SHARED {
        let folder = shared.join(name);
        let dims = match std::fs::read(folder.join("dims.json")) {
            Ok(text) => serde_json::from_slice(&text).expect("dims.json maps names to sizes"),
            Err(_) => BTreeMap::new(),
        };
        let imported = import(&folder.join("model.onnx"), dims);
        for (kind, ports) in [("input", &imported.inputs), ("output", &imported.outputs)] {
            for (index, port) in ports.iter().enumerate() {
                let path = folder.join(format!("test_data_set_0/{kind}_{index}.pb"));
                let bytes = std::fs::read(&path).expect("each port has its tensor");
                let value = onnx::test_value_from_bytes(bytes.into());
                let Ok(TestValue::Tensor(tensor)) = value else {
                    panic!("{}: {value:?}", path.display());
                };
                assert_eq!(*tensor.ty(), port.ty, "{name}: {kind} `{}`", port.name);
            }
        }
    }
}
