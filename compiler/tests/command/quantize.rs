//! `niello quantize`.

use std::fs;

use super::{fails, npy_elements, npy_f32, path, succeeds, write};

/// Images of the digits example, whose pixels go from 0 to 16, with a label for each.
const IMAGES: usize = 360;
const PIXELS: usize = 64;

/// How many images the ranges are taken from.
const SAMPLES: usize = 20;

fn digits(file: &str) -> String {
    format!("{}/../examples/digits/{file}", env!("CARGO_MANIFEST_DIR"))
}

fn images() -> Vec<Vec<f32>> {
    let bytes = fs::read(digits("data/digits-test.bin")).unwrap();
    let pixels = bytes[..IMAGES * PIXELS].chunks_exact(PIXELS);
    pixels.map(|image| image.iter().map(|&pixel| f32::from(pixel) / 16.0).collect()).collect()
}

#[test]
fn a_quantised_model_is_smaller_and_computes_nearly_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    for (at, image) in images().iter().take(SAMPLES).enumerate() {
        write(&file(&format!("data/{at:02}.npy")), &npy_f32(&[1, 1, 8, 8], image));
    }
    let (model, data) = (digits("models/digits.onnx"), file("data"));
    let quantized = [file("a.onnx"), file("b.onnx")];
    let mut text = String::new();
    for output in &quantized {
        text = succeeds(&["quantize", &model, "--data", path(&data), "-o", path(output)]);
    }
    for layer in ["/conv1/Conv", "/conv2/Conv", "/fc/Gemm", "output `probabilities`"] {
        let line = text.lines().find(|line| line.starts_with(layer)).unwrap();
        let decibels = line.split(" dB").next().unwrap().rsplit(' ').next().unwrap();
        assert!(decibels.parse::<f64>().unwrap() > 30.0, "{line}");
    }
    let bytes = quantized.each_ref().map(|file| fs::read(file).unwrap());
    assert_eq!(bytes[0], bytes[1]);
    assert!(bytes[0].len() * 2 < fs::read(&model).unwrap().len());

    // Products are of bytes, and images that were no samples have the same probabilities.
    let module = succeeds(&["opt", path(&quantized[0])]);
    assert_eq!(module.matches("out_dtype=\"int32\"").count(), 3, "{module}");
    let (input, output) = (file("x.npy"), file("y.npy"));
    for image in images().iter().skip(SAMPLES).step_by(100) {
        write(&input, &npy_f32(&[1, 1, 8, 8], image));
        let outputs = [model.as_str(), path(&quantized[0])].map(|model| {
            succeeds(&["run", model, path(&input), "-o", path(&output)]);
            npy_elements(&output)
        });
        for (float, quantized) in outputs[0].iter().zip(&outputs[1]) {
            assert!((float - quantized).abs() < 0.05, "{float}, quantised {quantized}");
        }
    }
}

/// The operators of a model's file, and how often each is there.
fn operators(file: &std::path::Path) -> String {
    let text = succeeds(&["inspect", path(file)]);
    text.split_once("operators").map(|(_, after)| after.to_owned()).unwrap_or(text)
}

#[test]
fn every_method_makes_a_smaller_model_and_tells_what_it_loses() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (sample, output) = (file("x.npy"), file("q.onnx"));
    write(&sample, &npy_f32(&[1, 1, 8, 8], &images()[0]));
    let model = digits("models/digits.onnx");
    let before = fs::read(&model).unwrap().len();
    for (method, expected, most) in [
        ("static", "DequantizeLinear", 0.4),
        ("dynamic", "ConvInteger", 0.4),
        ("weights8", "DequantizeLinear", 0.4),
        ("weights4", "MatMulNBits", 0.4),
        ("float16", "Cast", 0.6),
    ] {
        let text = succeeds(&[
            "quantize",
            &model,
            "--method",
            method,
            "--data",
            path(&sample),
            "-o",
            path(&output),
        ]);
        let layer = text.lines().find(|line| line.starts_with("/fc/Gemm")).unwrap();
        assert!(layer.contains(" dB, "), "{method}: {text}");
        assert!(operators(&output).contains(expected), "{method}");
        let after = fs::read(&output).unwrap().len();
        assert!((after as f64) < before as f64 * most, "{method}: {after} of {before} bytes");
        // Without samples it is the same model, and there is nothing to tell of layers.
        if method != "static" {
            let bytes = fs::read(&output).unwrap();
            let text = succeeds(&["quantize", &model, "--method", method, "-o", path(&output)]);
            assert!(!text.contains(" dB"), "{text}");
            assert_eq!(fs::read(&output).unwrap(), bytes, "{method}");
        }
    }
}

#[test]
fn calibrations_choose_the_ranges() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name);
    let (sample, output) = (file("x.npy"), file("q.onnx"));
    write(&sample, &npy_f32(&[1, 1, 8, 8], &images()[0]));
    let model = digits("models/digits.onnx");
    let common = ["quantize", model.as_str(), "--data", path(&sample), "-o", path(&output)];
    let quantized = |args: &[&str]| {
        succeeds(&[&common[..], args].concat());
        fs::read(&output).unwrap()
    };
    let all = quantized(&[]);
    assert_eq!(quantized(&["--calibration", "minmax"]), all);
    let most = quantized(&["--calibration", "percentile"]);
    assert_eq!(quantized(&["--percentile", "99.99"]), most);
    // Of so few numbers there is no distribution that would leave some of them out.
    assert_eq!(quantized(&["--calibration", "entropy"]), all);
    for args in [&["--percentile", "90"][..], &["--symmetric"]] {
        assert!(quantized(args) != all, "{args:?}");
    }
    let error = |args: &[&str]| fails(&[&common[..], args].concat());
    let several = error(&["--calibration", "entropy", "--percentile", "99"]);
    assert!(several.contains("--percentile is for --calibration percentile"), "{several}");
    let dynamic = error(&["--method", "dynamic", "--symmetric"]);
    assert!(dynamic.contains("the method `dynamic` takes no ranges from samples"), "{dynamic}");
    let none = fails(&["quantize", &model, "-o", path(&output)]);
    assert!(none.contains("name their files: --data PATH"), "{none}");
}

#[test]
fn samples_that_do_not_fit_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let model = digits("models/digits.onnx");
    let output = folder.path().join("q.onnx");
    let error = |data: &std::path::Path| {
        fails(&["quantize", &model, "--data", path(data), "-o", path(&output)])
    };
    assert!(error(folder.path()).contains("the folder has no samples"));
    assert!(error(&folder.path().join("elsewhere")).contains("cannot read samples from"));
    let x = folder.path().join("x.npy");
    write(&x, &npy_f32(&[1, 1, 8, 8], &[f32::NAN; PIXELS]));
    assert!(error(&x).contains("has elements that are no finite numbers"));
    write(&x, &npy_f32(&[2, 8], &[0.0; 16]));
    assert!(error(&x).contains("image"));
    assert!(!output.exists());
}
