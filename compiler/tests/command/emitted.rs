//! C files that `niello compile --emit c` writes, compiled by themselves: docs/c.md.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::target::{DIGITS, is_there};
use super::{fails, names, npy_elements, npy_f32, path, stderr, stdout, succeeds};

/// A five: 8 by 8 pixels.
const PICTURE: &str = "..++#+..\
                       .##++...\
                       .++.....\
                       .+###+..\
                       ..+++#+.\
                       .....+#.\
                       .....++.\
                       ..+###..";

fn image() -> Vec<f32> {
    let ink = |c| match c {
        '#' => 1.0,
        '+' => 0.5,
        _ => 0.0,
    };
    PICTURE.chars().map(ink).collect()
}

/// A file that docs/c.md shows.
fn shown(name: &str) -> String {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/c.md");
    let text = fs::read_to_string(document).unwrap();
    let mark = format!("<!-- file: {name} -->\n```c\n");
    let (_, rest) = text.split_once(&mark).unwrap_or_else(|| panic!("docs/c.md shows no {name}"));
    rest.split_once("```\n").unwrap().0.to_owned()
}

/// What niello itself computes of the picture, on a CPU.
fn expected(folder: &Path, image: &[f32], cpu: &str) -> Vec<f32> {
    let (input, output) = (folder.join("image.npy"), folder.join("output.npy"));
    fs::write(&input, npy_f32(&[1, 1, 8, 8], image)).unwrap();
    succeeds(&["run", DIGITS, path(&input), "-o", path(&output), "--target-cpu", cpu]);
    npy_elements(&output)
}

/// Compiles a program that docs/c.md shows with the files in a folder.
fn built(folder: &Path, program: &str, compiler: &str, options: &[&str]) -> PathBuf {
    let main = folder.join(program);
    fs::write(&main, shown(program)).unwrap();
    let model = folder.join("model");
    let sources = names(&model).into_iter().filter(|name| name.ends_with(".c"));
    let output = folder.join("program");
    let result = Command::new(compiler)
        .args(["-O2", "-Wall", "-Wextra", "-Werror"])
        .args(options)
        .arg(format!("-I{}", path(&model)))
        .arg(&main)
        .args(sources.map(|name| model.join(name)))
        .arg("-o")
        .arg(&output)
        .arg("-lm")
        .output()
        .unwrap();
    assert!(result.status.success(), "{compiler}: {}", stderr(&result));
    output
}

/// What a program prints of the picture.
fn printed(mut command: Command) -> Vec<f32> {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let numbers: Vec<String> = image().iter().map(f32::to_string).collect();
    child.stdin.take().unwrap().write_all(numbers.join(" ").as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let last = |line: &str| line.rsplit(' ').next().unwrap().parse().unwrap();
    stdout(&output).lines().map(last).collect()
}

fn compile(folder: &Path, options: &[&str]) {
    let model = folder.join("model");
    let _ = fs::remove_dir_all(&model);
    succeeds(&[&["compile", DIGITS, "-o", path(&model), "--emit", "c"], options].concat());
}

/// Flags that clang has no pragma for.
const CLANG: &[&str] =
    &["-fno-math-errno", "-fno-trapping-math", "-fwrapv", "-fno-strict-aliasing"];

#[test]
fn the_program_of_the_document_computes_what_niello_does() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for cpu in ["portable", "baseline", "native"] {
        compile(folder, &["--target-cpu", cpu]);
        let expected = expected(folder, &image(), cpu);
        assert!(expected[5] > 0.99, "{expected:?}");
        for (compiler, options) in [("gcc", &[][..]), ("clang", CLANG)] {
            if is_there(compiler) {
                let program = built(folder, "main.c", compiler, options);
                assert_eq!(printed(Command::new(&program)), expected, "{compiler}, {cpu}");
            }
        }
    }
}

/// By an emulator, where the compiler and its C library are installed.
#[test]
fn files_for_other_machines_compute_it_there() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let near = expected(folder, &image(), "baseline");
    for (triple, compiler, emulator, library) in [
        (
            "aarch64-unknown-linux-gnu",
            "aarch64-linux-gnu-gcc",
            "qemu-aarch64",
            "/usr/aarch64-linux-gnu",
        ),
        ("s390x-unknown-linux-gnu", "s390x-linux-gnu-gcc", "qemu-s390x", "/usr/s390x-linux-gnu"),
    ] {
        if !is_there(compiler) || !is_there(emulator) || !Path::new(library).is_dir() {
            println!("{triple}: no {compiler} or {emulator}");
            continue;
        }
        compile(folder, &["--target", triple]);
        let program = built(folder, "main.c", compiler, &["-static"]);
        let mut command = Command::new(emulator);
        command.arg(&program);
        let found = printed(command);
        assert_eq!(found.len(), near.len());
        let differs = |(found, near): (&f32, &f32)| (found - near).abs() > 1e-5;
        assert!(!found.iter().zip(&near).any(differs), "{triple}: {found:?}, {near:?}");
    }
}

#[test]
fn weights_in_a_file_are_handed_over() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    compile(folder, &["--weights", "file"]);
    let model = folder.join("model");
    assert!(names(&model).iter().all(|name| !name.ends_with("_weights.c")));
    let expected = expected(folder, &[0.0; 64], "native");
    if is_there("gcc") {
        let program = built(folder, "file.c", "gcc", &[]);
        let output = Command::new(&program).arg(model.join("digits.weights")).output().unwrap();
        assert_eq!(stdout(&output).trim_end().parse(), Ok(expected[0]));
    }
    // Objects leave them out, too, and the header asks for them.
    let out = folder.join("objects");
    succeeds(&["compile", DIGITS, "-o", path(&out), "--weights", "file"]);
    assert!(names(&out).iter().all(|name| !name.ends_with("_weights.o")));
    assert!(fs::read_to_string(out.join("digits.h")).unwrap().contains("const void *weights,"));
    let written = fs::read(out.join("digits.weights")).unwrap();
    assert_eq!(written, fs::read(model.join("digits.weights")).unwrap());
}

/// The first error of a compiler.
fn refused(compiler: &str, file: &Path, options: &[&str]) -> String {
    let output =
        Command::new(compiler).args(options).arg("-fsyntax-only").arg(file).output().unwrap();
    assert!(!output.status.success());
    stderr(&output)
}

#[test]
fn a_file_for_another_machine_ends_with_an_error_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    let entry = |options: &[&str]| {
        compile(folder.path(), options);
        let name = |name: &String| name.starts_with("niello_digits_") && !name.contains("_weights");
        model.join(names(&model).iter().find(|found| name(found)).unwrap())
    };
    let big = entry(&["--target", "s390x-unknown-linux-gnu"]);
    let order = "#error \"this file is for big-endian machines\"";
    assert!(fs::read_to_string(&big).unwrap().contains(order));
    if cfg!(target_endian = "little") && is_there("gcc") {
        assert!(refused("gcc", &big, &[]).contains("this file is for big-endian machines"));
    }
    let arm = entry(&["--target", "aarch64-unknown-linux-gnu", "--target-cpu", "cortex-a76"]);
    if cfg!(target_arch = "x86_64") && is_there("gcc") {
        assert!(refused("gcc", &arm, &[]).contains("this file is for aarch64"));
    }
    if is_there("aarch64-linux-gnu-gcc") {
        let error = refused("aarch64-linux-gnu-gcc", &arm, &[]);
        assert!(error.contains("compile this file with -march=armv8.2-a+dotprod+fp16"), "{error}");
    }
}

#[test]
fn c_and_its_header_are_named_once() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let text = succeeds(&["compile", DIGITS, "-o", path(&out), "--emit", "c,header"]);
    assert_eq!(text.lines().filter(|line| line.ends_with("digits.h")).count(), 1, "{text}");
    let error = fails(&["compile", DIGITS, "-o", path(&out), "--emit", "c", "--backend", "interp"]);
    assert!(error.contains("makes no code"), "{error}");
}
