//! The keywords example's model: its accuracy, and ONNX Runtime's probabilities.

use std::fs;
use std::path::PathBuf;

use niello::compile::Model;
use niello::ir::{Constant, DType, SharedBytes, TensorType};
use niello::options::CompileOptions;
use niello::samples::runner::Runner;
use niello::target::Target;
use niello_tests::{python, workspace};

const SOUNDS: usize = 240;
const FEATURES: usize = 490;
const CLASSES: usize = 8;

/// How many of the test set the committed model hears.
const RIGHT: usize = 228;

/// How far probabilities may be from ONNX Runtime's: where a sum is nearly half-way between two steps of a
/// quantisation, the order in which its terms are added decides.
const TOLERANCE: f32 = 0.02;

fn example(file: &str) -> PathBuf {
    workspace().join("examples/keywords").join(file)
}

/// The probabilities of each sound, as niello computes them on this machine.
fn probabilities(sounds: &[u8]) -> Vec<f32> {
    let model = Model::read(&example("models/keywords.onnx")).unwrap();
    let mut options = CompileOptions::new(Target::host());
    options.set_target_cpu("native").unwrap();
    let input = |sound: &[u8]| {
        let ty = TensorType::from_consts(&[1, 1, 49, 10], DType::U8);
        [Constant::new(ty, SharedBytes::new(sound.to_vec())).unwrap()]
    };
    let backend = Some(options.backend);
    let runner = Runner::new(backend, &model, &input(&sounds[..FEATURES]), &options, 1).unwrap();
    let row = |sound| runner.run(&input(sound)).unwrap()[0].to_f64_vec().unwrap();
    sounds.chunks_exact(FEATURES).flat_map(row).map(|value| value as f32).collect()
}

#[test]
fn words_are_heard_and_onnx_runtime_hears_the_same() {
    let bytes = fs::read(example("data/keywords-test.bin")).unwrap();
    let (sounds, labels) = bytes.split_at(SOUNDS * FEATURES);
    let found = probabilities(sounds);
    let class = |row: &[f32]| (0..CLASSES).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
    let rows = found.chunks_exact(CLASSES).zip(labels);
    let right = rows.filter(|(row, label)| class(row) == usize::from(**label)).count();
    assert_eq!(right, RIGHT);

    let Some(mut python) = python("keywords in ONNX Runtime") else { return };
    let output = python.arg(example("train/check.py")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let expected: Vec<f32> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!(found.len(), expected.len());
    let differences = found.iter().zip(&expected).map(|(found, expected)| found - expected);
    let most = differences.fold(0f32, |most, difference| most.max(difference.abs()));
    println!("{right} of {SOUNDS}, at most {most:.6} from ONNX Runtime");
    assert!(most <= TOLERANCE, "{most}");
}
