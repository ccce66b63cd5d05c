//! The `niello` command from the view of users and other tools.

mod bench;
mod compile;
mod docs;
mod emitted;
mod inputs;
mod inspect;
#[cfg(target_os = "linux")]
mod isolation;
#[cfg(target_os = "linux")]
mod jobserver;
mod mistakes;
mod passes;
mod quantize;
mod run;
mod target;
mod test;
mod tune;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use niello::ir::{Constant, DType};
use niello::onnx::proto::{SequenceType, TypeProto, TypeValue, ValueInfoProto};
use niello::onnx::{ModelBuilder, ModelDim, test_value_to_bytes};

fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_niello"))
}

fn niello(args: &[&str]) -> Output {
    command().args(args).output().unwrap()
}

/// Runs the command, which must succeed; returns its output.
fn succeeds(args: &[&str]) -> String {
    let output = niello(args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

/// Runs the command, which must fail with status 1 and print only errors; returns them.
fn fails(args: &[&str]) -> String {
    let output = niello(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stderr(&output));
    assert_eq!(stdout(&output), "", "{args:?}");
    let text = stderr(&output);
    // Continuation lines of an error are indented.
    assert!(text.starts_with("error: "), "{text}");
    assert!(
        text.lines().all(|line| line.starts_with("error: ") || line.starts_with(' ')),
        "{text}"
    );
    text
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn write(path: &Path, bytes: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Names of the files in a folder, in order.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A case whose model doubles its input with `op`, `x op x`, with the given expected output.
fn case(folder: &Path, name: &str, op: &str, expected: &Constant) -> PathBuf {
    let case = folder.join(name);
    let model = ModelBuilder::new(13)
        .input("x", DType::F32, &[3])
        .node(op, &["x", "x"], &["y"], &[])
        .output("y", DType::F32, &[3])
        .to_bytes();
    write(&case.join("model.onnx"), &model);
    let x = Constant::from_f32(&[3], &[1.0, -2.0, 0.5]).unwrap();
    let data = case.join("test_data_set_0");
    write(&data.join("input_0.pb"), &test_value_to_bytes(&x, "x").unwrap());
    write(&data.join("output_0.pb"), &test_value_to_bytes(expected, "y").unwrap());
    case
}

/// The output of [`case`]'s model with `Add`.
fn doubled() -> Constant {
    Constant::from_f32(&[3], &[2.0, -4.0, 1.0]).unwrap()
}

/// Folders `add` (passes), `unknown` (fails) and `wrong` (fails).
fn cases(folder: &Path) {
    case(folder, "add", "Add", &doubled());
    case(folder, "wrong", "Mul", &doubled());
    case(folder, "unknown", "NoSuchOperator", &doubled());
}

/// A model of `batch` rows: `scores` is `x` times a matrix of 2 by 3, `total` is `scores` plus
/// `bias`.
fn scores(folder: &Path) -> PathBuf {
    let weight = Constant::from_f32(&[2, 3], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let batch = || ModelDim::from("batch");
    let model = ModelBuilder::new(13)
        .input("x", DType::F32, &[batch(), 2.into()])
        .input("bias", DType::F32, &[3])
        .initializer("w", &weight)
        .node("MatMul", &["x", "w"], &["scores"], &[])
        .node("Add", &["scores", "bias"], &["total"], &[])
        .output("scores", DType::F32, &[batch(), 3.into()])
        .output("total", DType::F32, &[batch(), 3.into()])
        .to_bytes();
    let file = folder.join("scores.onnx");
    write(&file, &model);
    file
}

/// Declares an input or output as a sequence of what it is.
fn as_sequence(port: &mut ValueInfoProto) {
    let sequence = SequenceType { elem_type: port.r#type.take().map(Box::new) };
    let value = Some(TypeValue::Sequence(Box::new(sequence)));
    port.r#type = Some(TypeProto { value, denotation: None });
}

/// A `.npy` file of `f32` elements, written by hand.
fn npy_f32(shape: &[usize], values: &[f32]) -> Vec<u8> {
    let shape: String = shape.iter().map(|extent| format!("{extent},")).collect();
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({shape}), }}\n");
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    let mut bytes = [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes()].concat();
    bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
    bytes
}

/// The elements of a `.npy` file of `f32` elements.
fn npy_elements(file: &Path) -> Vec<f32> {
    let bytes = fs::read(file).unwrap();
    let start = 10 + usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let element = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
    bytes[start..].chunks(4).map(element).collect()
}
