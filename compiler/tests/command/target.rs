//! `niello compile --target`: code for other machines than this one.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use object::{Architecture, Endianness, Object, ObjectSection, ObjectSymbol};

use super::{command, fails, names, path, stderr, stdout, succeeds};

pub(super) const DIGITS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/digits/models/digits.onnx");

/// Whether a program is installed.
pub(super) fn is_there(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// The objects in a folder, which must be for a machine, and the bytes of the weights in one of them.
fn weights_of(folder: &Path, machine: (Architecture, bool, Endianness)) -> Vec<u8> {
    let mut weights = None;
    for name in names(folder).iter().filter(|name| name.ends_with(".o")) {
        let bytes = fs::read(folder.join(name)).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let found = (file.architecture(), file.is_64(), file.endianness());
        assert_eq!(found, machine, "{name}");
        let symbol = file.symbols().find(|s| s.name().unwrap().ends_with("_weights"));
        if let Some(index) = symbol.and_then(|symbol| symbol.section_index()) {
            weights = Some(file.section_by_index(index).unwrap().data().unwrap().to_vec());
        }
    }
    weights.unwrap()
}

/// What is not installed is left out, as `cargo xtask machines` leaves it out.
#[test]
fn objects_and_weights_are_for_the_target() {
    let folder = tempfile::tempdir().unwrap();
    let mut plain = Vec::new();
    for (triple, compiler, machine) in [
        (
            "aarch64-unknown-linux-gnu",
            "aarch64-linux-gnu-gcc",
            (Architecture::Aarch64, true, Endianness::Little),
        ),
        (
            "riscv64gc-unknown-linux-gnu",
            "riscv64-linux-gnu-gcc",
            (Architecture::Riscv64, true, Endianness::Little),
        ),
        (
            "thumbv7em-none-eabihf",
            "arm-none-eabi-gcc",
            (Architecture::Arm, false, Endianness::Little),
        ),
        (
            "s390x-unknown-linux-gnu",
            "s390x-linux-gnu-gcc",
            (Architecture::S390x, true, Endianness::Big),
        ),
    ] {
        if !is_there(compiler) {
            println!("{triple}: no {compiler}");
            continue;
        }
        let out = folder.path().join(triple);
        succeeds(&["compile", DIGITS, "-o", path(&out), "--target", triple]);
        let mut weights = weights_of(&out, machine);
        if machine.2 == Endianness::Big {
            // Every constant of this model is a float of 32 bits.
            weights.chunks_mut(4).for_each(<[u8]>::reverse);
        }
        if matches!(machine.0, Architecture::Arm | Architecture::S390x) {
            plain.push(weights);
        }
    }
    // These two have no vectors, and the same number of registers.
    assert!(plain.windows(2).all(|pair| pair[0] == pair[1]));
}

/// By clang, which compiles for WebAssembly wherever it is installed.
#[test]
fn objects_for_webassembly_link_with_their_weights() {
    if !is_there("clang") {
        println!("no clang");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let args = ["compile", DIGITS, "-o", path(&out), "--target", "wasm32-wasip1"];
    let more = ["--target-cpu", "simd128", "--weights", "file"];
    succeeds(&[&args[..], &more].concat());
    let weights = fs::read(out.join("digits.weights")).unwrap();
    fs::remove_dir_all(&out).unwrap();
    let text = succeeds(&[&args[..], &more[..2]].concat());
    assert!(text.contains("\ncode ") && !text.contains("\ncode 0 "), "{text}");
    let objects = names(&out).into_iter().filter(|name| name.ends_with(".o"));
    let objects: Vec<_> = objects.map(|name| out.join(name)).collect();
    for object in &objects {
        assert!(fs::read(object).unwrap().starts_with(b"\0asm"), "{}", object.display());
    }
    if is_there("wasm-ld") {
        let program = folder.path().join("program.wasm");
        let mut linker = Command::new("wasm-ld");
        linker.args(["--no-entry", "--allow-undefined", "--export-all", "-o"]).arg(&program);
        let output = linker.args(&objects).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let program = fs::read(program).unwrap();
        assert!(program.windows(weights.len()).any(|window| window == weights));
    }
    succeeds(&[&args[..], &more[..2], &["--emit", "c"]].concat());
    let name = |name: &String| name.starts_with("niello_kernel_") && name.ends_with(".c");
    let kernel = names(&out).into_iter().find(|found| name(found)).unwrap();
    let mut clang = Command::new("clang");
    clang.args(["--target=wasm32-unknown-unknown", "-fsyntax-only"]).arg(out.join(kernel));
    let output = clang.output().unwrap();
    assert!(stderr(&output).contains("compile this file with -msimd128"), "{}", stderr(&output));
    assert!(clang.arg("-msimd128").output().unwrap().status.success());
}

/// Vectors, levels and the code are those of the target, not of this machine.
#[test]
fn texts_are_for_the_target_and_need_no_compiler() {
    let folder = tempfile::tempdir().unwrap();
    let header = |triple: &str| {
        let out = folder.path().join(triple);
        let output = command()
            .args(["compile", DIGITS, "-o", path(&out), "--target", triple, "--emit", "c,header"])
            .env("PATH", "/nonexistent")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        fs::read_to_string(out.join("digits.h")).unwrap()
    };
    assert!(header("x86_64-pc-windows-gnu").contains("baseline, x86-64-v3, x86-64-v4. */"));
    assert!(header("aarch64-unknown-linux-gnu").contains("this machine can run: baseline. */"));
    // Every Mac has it.
    assert!(header("aarch64-apple-darwin").contains("this machine can run: aarch64-dotprod. */"));
}

#[test]
fn the_processor_of_this_machine_is_not_that_of_another() {
    let args = ["compile", DIGITS, "-o", "out", "--target-cpu", "native", "--target"];
    let error = fails(&[&args[..], &["riscv64gc-unknown-linux-gnu"]].concat());
    assert!(error.contains("the code is for riscv64gc-unknown-linux-gnu and this"), "{error}");
    let error = fails(&[&args[..], &["vax-dec-vms"]].concat());
    assert!(error.contains("`vax` is no known architecture"), "{error}");
}

#[test]
fn a_compiler_for_another_machine_is_refused_with_the_package_that_has_one() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let compile = |variable: &str, value: &str| {
        let output = command()
            .args(["compile", DIGITS, "-o", path(&out), "--target", "s390x-unknown-linux-gnu"])
            .env(variable, value)
            .output()
            .unwrap();
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(1), ""));
        assert!(names(&out).is_empty());
        stderr(&output)
    };
    let error = compile("PATH", "/nonexistent");
    assert!(error.contains("no C compiler for s390x-unknown-linux-gnu was found"), "{error}");
    assert!(error.contains("apt install gcc-s390x-linux-gnu"), "{error}");
    // Of whatever kind this machine is, it is another one.
    let error = compile("CC_s390x_unknown_linux_gnu", "cc");
    let what = "the C compiler that the environment variable CC_s390x_unknown_linux_gnu names";
    assert!(error.contains(what), "{error}");
    assert!(error.contains("it makes objects for ") && error.contains("apt install"), "{error}");
}

#[test]
fn machines_without_shared_libraries_are_told_before_the_work() {
    let args = ["compile", "missing.onnx", "-o", "out", "--emit", "shared", "--target"];
    let error = fails(&[&args[..], &["thumbv7em-none-eabihf"]].concat());
    assert!(error.contains("no shared libraries on thumbv7em-none-eabihf"), "{error}");
    assert!(error.contains("--emit obj,header"), "{error}");
}

/// LLVM has two kinds of machines; of others the error says what remains.
#[cfg(feature = "llvm")]
#[test]
fn llvm_makes_objects_for_its_targets() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let args = ["compile", DIGITS, "-o", path(&out), "--backend", "llvm", "--target"];
    succeeds(&[&args[..], &["aarch64-unknown-linux-gnu"]].concat());
    weights_of(&out, (Architecture::Aarch64, true, Endianness::Little));
    let error = fails(&[&args[..], &["s390x-unknown-linux-gnu"]].concat());
    assert!(
        error.contains("generates no code for s390x") && error.contains("C backend"),
        "{error}"
    );
}
