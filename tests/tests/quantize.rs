//! The digits example's model, quantised by every method: its accuracy, and ONNX Runtime's
//! probabilities.

use std::fs;
use std::path::Path;
use std::process::Command;

use niello::compile::Model;
use niello::ir::Constant;
use niello::onnx::ModelFile;
use niello::onnx::quantize::{Calibration, Method};
use niello::options::CompileOptions;
use niello::samples::formats;
use niello::samples::quantize::Quantization;
use niello::samples::runner::Runner;
use niello::target::Target;
use niello_tests::{python, workspace};

const IMAGES: usize = 360;
const PIXELS: usize = 64;
const CLASSES: usize = 10;

/// How many images the ranges of activations are taken from.
const SAMPLES: usize = 20;

/// The most points of a hundred that quantisation may cost.
const MOST_LOST: f64 = 0.5;

/// How far probabilities may be from ONNX Runtime's: where a sum is nearly half-way between two
/// steps of a quantisation, the order in which its terms are added decides.
const TOLERANCE: f32 = 0.02;

fn digits(file: &str) -> String {
    workspace().join("examples/digits").join(file).display().to_string()
}

/// Images, and the class of each.
fn images() -> (Vec<Constant>, Vec<u8>) {
    let bytes = fs::read(digits("data/digits-test.bin")).unwrap();
    let (pixels, labels) = bytes.split_at(IMAGES * PIXELS);
    let image = |pixels: &[u8]| {
        let values: Vec<f32> = pixels.iter().map(|&pixel| f32::from(pixel) / 16.0).collect();
        Constant::from_f32(&[1, 1, 8, 8], &values).unwrap()
    };
    (pixels.chunks_exact(PIXELS).map(image).collect(), labels.to_vec())
}

fn options() -> CompileOptions {
    let mut options = CompileOptions::new(Target::host());
    options.set_target_cpu("native").unwrap();
    options
}

/// The probabilities of each image, as niello computes them.
fn probabilities(file: &ModelFile, images: &[Constant]) -> Vec<f32> {
    let (model, options) = (Model::from_onnx("digits", file.clone()), options());
    let backend = Some(options.backend);
    let runner = Runner::new(backend, &model, &images[..1], &options, 1).unwrap();
    let row = |image: &Constant| {
        let outputs = runner.run(std::slice::from_ref(image)).unwrap();
        outputs[0].to_f64_vec().unwrap().into_iter().map(|value| value as f32)
    };
    images.iter().flat_map(row).collect()
}

/// Points of a hundred.
fn accuracy(probabilities: &[f32], labels: &[u8]) -> f64 {
    let class = |row: &[f32]| {
        let greatest = row.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
        greatest.map_or(0, |(class, _)| class)
    };
    let rows = probabilities.chunks_exact(CLASSES).zip(labels);
    let right = rows.filter(|(row, label)| class(row) == usize::from(**label)).count();
    right as f64 * 100.0 / labels.len() as f64
}

/// ONNX Runtime's probabilities for the model in a file.
fn of_onnx_runtime(mut python: Command, file: &Path) -> Vec<f32> {
    let output = python.arg(digits("train/check.py")).arg("probabilities").arg(file).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

#[test]
fn every_method_keeps_the_accuracy_and_onnx_runtime_computes_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let samples = folder.path().join("samples");
    fs::create_dir(&samples).unwrap();
    let (images, labels) = images();
    for (at, image) in images.iter().take(SAMPLES).enumerate() {
        formats::write(&samples.join(format!("{at:02}.npy")), &[("image", image)]).unwrap();
    }
    let model = Model::read(Path::new(&digits("models/digits.onnx"))).unwrap();
    let file = model.as_onnx().unwrap();
    let float = accuracy(&probabilities(file, &images), &labels);
    let calibrated =
        |calibration| Quantization::new(Method::Static).samples(&samples).calibration(calibration);
    let methods = [
        ("static", calibrated(Calibration::MinMax)),
        ("static, symmetric", calibrated(Calibration::MinMax).symmetric(true)),
        ("static, percentile", calibrated(Calibration::Percentile(Calibration::PERCENTILE))),
        ("static, entropy", calibrated(Calibration::Entropy)),
        ("dynamic", Quantization::new(Method::Dynamic)),
        ("weights8", Quantization::new(Method::Weights8)),
        ("weights4", Quantization::new(Method::Weights4)),
        ("float16", Quantization::new(Method::Float16)),
    ];
    println!("accuracy of the float model: {float:.2}%");
    for (name, quantization) in methods {
        let outcome = quantization.run(file.clone(), &options()).unwrap();
        let found = probabilities(outcome.file(), &images);
        let accuracy = accuracy(&found, &labels);
        let bytes = outcome.file().proto.to_bytes();
        println!("{name}: {accuracy:.2}%, {} bytes", bytes.len());
        assert!(float - accuracy < MOST_LOST, "{name}: {accuracy:.2}% of {float:.2}%");

        let Some(python) = python(&format!("digits by {name} in ONNX Runtime")) else { continue };
        let path = folder.path().join("quantized.onnx");
        fs::write(&path, bytes.as_slice()).unwrap();
        let expected = of_onnx_runtime(python, &path);
        assert_eq!(found.len(), expected.len());
        let differences = found.iter().zip(&expected).map(|(found, expected)| found - expected);
        let most = differences.fold(0f32, |most, difference| most.max(difference.abs()));
        println!("  at most {most:.6} from ONNX Runtime");
        assert!(most <= TOLERANCE, "{name}: {most}");
    }
}
