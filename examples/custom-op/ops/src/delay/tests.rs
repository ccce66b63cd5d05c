//! The operator in models: what it refuses, and what compiled code computes.

use niello::compile::{Model, Passes, compile};
use niello::executor::{LoadedModel, write_shared_library};
use niello::graph::interp::evaluate;
use niello::graph::parse_module;
use niello::ir::DType;
use niello::options::CompileOptions;
use niello::target::Target;

use super::*;

fn model(call: &str) -> String {
    format!("def @main(%x: Tensor[(2, 20), float32]) -> Tensor[(2, 20), float32] {{ {call} }}")
}

#[test]
fn compiled_code_and_evaluation_agree() {
    let values: Vec<f64> = (1..=40).map(f64::from).collect();
    let x = Tensor::from_floats(DType::F32, &[2, 20], values.clone()).unwrap();
    for steps in [0, 1, 7, 20, i64::MAX] {
        let module = parse_module(&model(&format!("audio.delay(%x, steps={steps})"))).unwrap();
        let expected = evaluate(&module, "main", &[x.clone().into()]).unwrap();
        let expected = expected.as_tensor().unwrap().to_constant().unwrap().to_f64_vec().unwrap();
        let zeros = usize::try_from(steps).unwrap().min(20);
        assert!(expected[20..20 + zeros].iter().all(|&y| y == 0.0), "{steps}");
        assert_eq!(expected[20 + zeros..], values[20..40 - zeros]);

        let options = CompileOptions::new(Target::host());
        let model = Model::from_module("delay", module);
        let compilation = compile(&model, &options, &Passes::new(&options).unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("delay.so");
        write_shared_library(&compilation.model, &options.target, &path).unwrap();
        let loaded = LoadedModel::load(&compilation.model, &path).unwrap();
        let found = loaded.run(&[x.to_constant().unwrap()]).unwrap();
        assert_eq!(found[0].to_f64_vec().unwrap(), expected, "{steps}");
    }
}

#[test]
fn attributes_are_checked() {
    for (call, expected) in [
        ("audio.delay(%x, steps=-1)", "attribute `steps` must be at least 0, not -1"),
        ("audio.delay(%x)", "attribute `steps` is missing"),
        ("audio.delay(%x, steps=1, step=2)", "`step`"),
    ] {
        let error = parse_module(&model(call)).unwrap_err().to_string();
        assert!(error.contains(expected), "{call}: {error}");
    }
}
