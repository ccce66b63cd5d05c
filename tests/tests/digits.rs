//! The digits example against scikit-learn, against ONNX Runtime, and with a model that is known to be wrong.

use std::fs;
use std::path::Path;
use std::process::Command;

use niello_tests::{packages_outside, python, workspace};

const IMAGES: usize = 360;

/// The accuracy of the committed model in ONNX Runtime: 355 of 360.
const ACCURACY: &str = "accuracy: 98.61%";

/// Runs `command`, which has to succeed, and returns its standard output.
#[track_caller]
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{errors}", output.status);
    String::from_utf8(output.stdout).expect("text is UTF-8")
}

/// Builds the package in `folder` and runs it from a folder that is not its own.
#[track_caller]
fn run_package(folder: &Path, target: &Path, options: &[&str], argument: Option<&str>) -> String {
    let elsewhere = tempfile::tempdir().unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["run", "--quiet", "--offline"]).args(options);
    cargo.arg("--manifest-path").arg(folder.join("Cargo.toml"));
    cargo.env("CARGO_TARGET_DIR", target).current_dir(elsewhere.path());
    output(cargo.arg("--").args(argument))
}

/// Runs the example as the README does, which has built what it needs.
#[track_caller]
fn run_example(argument: Option<&str>) -> String {
    let tests = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let target = tests.parent().expect("Cargo's folder for tests lies inside of its own");
    run_package(&workspace().join(example()), target, &["--release"], argument)
}

#[track_caller]
fn classes(lines: &str) -> Vec<u8> {
    let classes: Vec<u8> = lines.lines().map(|line| line.parse().expect("a class")).collect();
    assert_eq!(classes.len(), IMAGES);
    assert!(classes.iter().all(|&class| class < 10));
    classes
}

fn example() -> &'static str {
    "examples/digits"
}

#[test]
fn accuracy_is_printed_once_and_follows_from_the_classes() {
    let folder = workspace().join(example());
    let printed = run_example(None);
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines.len(), 2, "{printed}");
    assert_eq!(lines[0], ACCURACY);
    assert!(lines[1].starts_with("latency: "), "{printed}");

    let data = fs::read(folder.join("data/digits-test.bin")).unwrap();
    let labels = &data[data.len() - IMAGES..];
    let classes = classes(&run_example(Some("--predictions")));
    let right = classes.iter().zip(labels).filter(|(class, label)| class == label).count();
    assert_eq!(right, 355);
}

#[test]
fn the_images_are_scikit_learns() {
    let Some(mut python) = python("digits images against scikit-learn") else { return };
    output(python.args([&format!("{}/train/check.py", example()), "images"]));
}

#[test]
fn every_prediction_equals_onnx_runtimes() {
    let Some(mut python) = python("digits predictions against ONNX Runtime") else { return };
    let expected = output(python.args([&format!("{}/train/check.py", example()), "predict"]));
    let found = run_example(Some("--predictions"));
    assert_eq!(classes(&found), classes(&expected));
}

/// The same program with another model has to answer differently, or the answers do not come from
/// the model.
#[test]
fn a_model_with_moved_classes_changes_every_answer() {
    let Some(mut python) = python("digits with moved classes") else { return };
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path();
    let original = workspace().join(example());
    for file in ["build.rs", "src/main.rs", "data/digits-test.bin"] {
        let to = copy.join(file);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(original.join(file), to).unwrap();
    }
    fs::write(copy.join("Cargo.toml"), manifest()).unwrap();
    // The same versions of everything, which are there offline.
    fs::copy(workspace().join("Cargo.lock"), copy.join("Cargo.lock")).unwrap();
    fs::create_dir(copy.join("models")).unwrap();
    let script = format!("{}/train/permute.py", example());
    output(python.arg(script).arg(copy.join("models/digits.onnx")));

    let target = packages_outside(env!("CARGO_TARGET_TMPDIR"));
    let run = |argument| run_package(copy, &target, &[], argument);
    let moved = classes(&run(Some("--predictions")));
    let original = classes(&run_example(Some("--predictions")));
    let expected: Vec<u8> = original.iter().map(|class| (class + 1) % 10).collect();
    assert_eq!(moved, expected);
    let printed = run(None);
    assert!(printed.starts_with("accuracy: 0.56%\n"), "{printed}");
}

/// The example's manifest for a package outside the workspace.
fn manifest() -> String {
    let path = |member: &str| workspace().join(member).display().to_string();
    format!(
        "[package]\nname = \"digits-moved\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n\
         [dependencies]\nniello-runtime = {{ path = {:?}, features = [\"std\"] }}\n\n\
         [build-dependencies]\nniello-build = {{ path = {:?} }}\n\n\
         [workspace]\n",
        path("runtime"),
        path("build-support"),
    )
}
