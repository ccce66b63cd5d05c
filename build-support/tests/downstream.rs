//! Builds and runs real packages that use build-support like any user.
//!
//! The packages are in `packages/`. They are copied to a folder of Cargo's for tests and form a
//! workspace there, so that shared dependencies are built once. Most models are a few lines of
//! handwritten C: the tests are about everything between compiled code and a program. The package
//! `real` goes the whole way, from ONNX.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use niello_build::niello::compile::Model;
use niello_build::niello::graph::interp::{Tensor, Value, evaluate};
use niello_build::niello::ir::{Constant, DType};
use niello_build::niello::onnx::{ModelBuilder, ModelDim, ModelFile};
use niello_build::niello::options::CompileOptions;
use niello_build::niello::target::{CpuLevel, Target};
use object::{Object, ObjectSymbol};

/// Copies the packages, once for all tests, and returns the workspace's folder.
fn workspace() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("downstream");
        let packages = here.join("tests/packages");
        let root = here.parent().expect("the crate is a folder of the repository");
        for entry in fs::read_dir(packages).unwrap() {
            let from = entry.unwrap().path();
            let name = from.file_name().unwrap().to_str().unwrap().to_owned();
            let copies: &[&str] = match name.as_str() {
                "lints" => &["2018", "2021", "2024"],
                "versioned" => &["1", "2"],
                _ => {
                    copy(&from, &folder.join(name), root, "");
                    continue;
                }
            };
            for copy_of in copies {
                copy(&from, &folder.join(format!("{name}-{copy_of}")), root, copy_of);
            }
        }
        for (path, model) in onnx_models() {
            write(&folder.join(path), model.to_bytes());
        }
        // The same dependencies as the repository's, so that nothing has to be fetched.
        write(&folder.join("Cargo.lock"), fs::read(root.join("Cargo.lock")).unwrap());
        folder
    })
}

/// Where Cargo builds the packages: with those that other tests have outside the workspace, which depend
/// on the same.
fn target_folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("outside")
}

/// Copies a file or folder with the placeholders filled in; files that are equal are left alone.
fn copy(from: &Path, to: &Path, root: &Path, variant: &str) {
    if from.is_dir() {
        for entry in fs::read_dir(from).unwrap() {
            let from = entry.unwrap().path();
            copy(&from, &to.join(from.file_name().unwrap()), root, variant);
        }
        return;
    }
    let text = fs::read_to_string(from)
        .unwrap()
        .replace("@ROOT@", &root.display().to_string().replace('\\', "/"))
        .replace("@EDITION@", variant)
        .replace("@VERSION@", variant);
    let to =
        if from.extension().is_some_and(|e| e == "in") { to.with_extension("") } else { to.into() };
    write(&to, text);
}

fn write(path: &Path, contents: impl AsRef<[u8]>) {
    if fs::read(path).is_ok_and(|old| old == contents.as_ref()) {
        return;
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, contents).unwrap();
}

/// ONNX models of the packages, with their paths.
fn onnx_models() -> [(&'static str, ModelBuilder); 8] {
    let floats = |shape: &[i64], values: &[f32]| Constant::from_f32(shape, values).unwrap();
    let affine = ModelBuilder::new(13)
        .input("x:0", DType::F32, &[3])
        .initializer("scale", &floats(&[3], &[2.0, 3.0, 4.0]))
        .initializer("shift", &floats(&[], &[0.5]))
        .node("Mul", &["x:0", "scale"], &["scaled"], &[])
        .node("Add", &["scaled", "shift"], &["type"], &[])
        .output("type", DType::F32, &[3]);
    let scaled = |scale: &[f32; 3]| {
        ModelBuilder::new(13)
            .input("x", DType::F32, &[3])
            .initializer("scale", &floats(&[3], scale))
            .node("Mul", &["x", "scale"], &["scaled"], &[])
            .node("Relu", &["scaled"], &["y"], &[])
            .output("y", DType::F32, &[3])
    };
    let dense = ModelBuilder::new(13)
        .input("12", DType::F32, &[ModelDim::from("batch"), 2.into()])
        .initializer("w", &floats(&[2, 3], &[1.0, 2.0, 3.0, -4.0, 5.0, -6.0]))
        .node("MatMul", &["12", "w"], &["product"], &[])
        .node("Relu", &["product"], &["y"], &[])
        .output("y", DType::F32, &[ModelDim::from("batch"), 3.into()]);
    // Small integers, of which every sum is exact; one of the models has a bias.
    let integers = |shape: &[i64; 2], step: i64| {
        let values = (0..shape[0] * shape[1]).map(|i| ((i * step) % 9 - 4) as f32);
        floats(shape, &values.collect::<Vec<f32>>())
    };
    let (matrix, bias) = (integers(&[192, 160], 7), integers(&[1, 160], 5));
    let plain = ModelBuilder::new(13)
        .input("x", DType::F32, &[4, 192])
        .initializer("matrix", &matrix)
        .node("MatMul", &["x", "matrix"], &["y"], &[])
        .output("y", DType::F32, &[4, 160]);
    let biased = ModelBuilder::new(13)
        .input("x", DType::F32, &[4, 192])
        .initializer("matrix", &matrix)
        .initializer("bias", &bias)
        .node("MatMul", &["x", "matrix"], &["product"], &[])
        .node("Add", &["product", "bias"], &["y"], &[])
        .output("y", DType::F32, &[4, 160]);
    let unknown = ModelBuilder::new(13)
        .input("x", DType::F32, &[3])
        .node("Frobnicate", &["x"], &["t"], &[])
        .node("Transmogrify", &["t"], &["y"], &[])
        .output("y", DType::F32, &[3]);
    [
        ("real/models/affine.onnx", affine),
        ("real/models/dense.onnx", dense),
        ("shared/models/plain.onnx", plain),
        ("shared/models/biased.onnx", biased),
        ("unsupported/unknown.onnx", unknown),
        ("levels/models/network.onnx", network()),
        ("kernels/models/one.onnx", scaled(&[0.0, 1.0, 2.0])),
        ("kernels/models/two.onnx", scaled(&[50.0, 1.0, 2.0])),
    ]
}

/// A convolution and a matrix product of small integers, with sizes that are no multiple of a
/// vector: every sum is exact, so that all CPU levels have the same result.
fn network() -> ModelBuilder {
    let integers = |shape: &[i64], step: i64, modulus: i64| {
        let count: i64 = shape.iter().product();
        let values: Vec<f32> =
            (0..count).map(|i| ((i * step) % modulus - modulus / 2) as f32).collect();
        Constant::from_f32(shape, &values).unwrap()
    };
    ModelBuilder::new(13)
        .input("x", DType::F32, &[1, 3, 6, 5])
        .initializer("filter", &integers(&[20, 3, 3, 3], 5, 7))
        .initializer("bias", &integers(&[20], 3, 11))
        .initializer("dense", &integers(&[600, 21], 7, 5))
        .initializer("shape", &Constant::from_i64(&[2], &[1, -1]).unwrap())
        .node("Conv", &["x", "filter", "bias"], &["c"], &[("pads", vec![1i64, 1, 1, 1].into())])
        .node("Relu", &["c"], &["r"], &[])
        .node("Reshape", &["r", "shape"], &["flat"], &[])
        .node("MatMul", &["flat", "dense"], &["y"], &[])
        .output("y", DType::F32, &[1, 21])
}

/// Cargo in the workspace.
fn cargo_command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    // Before `--`, behind which arguments are another program's.
    command.arg("--offline").args(arguments).current_dir(workspace());
    // Variables of the outer Cargo do not concern the packages, but for how long a build takes.
    let kept = ["CARGO_HOME", "CARGO_INCREMENTAL", "CARGO_PROFILE_DEV_DEBUG"];
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let outer = name.starts_with("CARGO_") || name.starts_with("NIELLO_");
        if (outer && !kept.contains(&&*name)) || name == "RUSTFLAGS" {
            command.env_remove(name);
        }
    }
    command.env("CARGO_TARGET_DIR", target_folder());
    command
}

/// Runs Cargo in the workspace.
fn cargo(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    cargo_command(arguments).envs(variables.iter().copied()).output().unwrap()
}

/// Makes the tests that build the package `real` take turns: they look at what a build has left,
/// and another build removes it.
fn turn_with_real() -> MutexGuard<'static, ()> {
    static REAL: Mutex<()> = Mutex::new(());
    REAL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs Cargo, which must succeed, and returns its standard output.
fn cargo_ok(arguments: &[&str]) -> String {
    let output = cargo(arguments, &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "cargo {arguments:?}\n{stdout}\n{stderr}");
    stdout.into_owned()
}

#[test]
fn a_model_links_in_every_kind_of_target() {
    let tests = cargo_ok(&["test", "-p", "app", "--all-targets"]);
    assert_eq!(tests.matches("test result: ok. 0 passed").count(), 2, "binary, example: {tests}");
    for name in ["the_librarys_own_tests_link", "both_inclusions_are_the_same_model"] {
        assert!(tests.contains(&format!("{name} ... ok")), "{tests}");
    }
    assert_eq!(
        cargo_ok(&["run", "-q", "-p", "app"]),
        "double [2.5, 4.25]\ntriple [3.5, 6.25]\na-b [2.5, 4.25]\na_b [2.5, 4.25]\n\
         日本 [2.5, 4.25]\n中国 [3.5, 6.25]\nfar [2.5, 4.25]\nfar [2.5, 4.25]\n\
         the model has 8 bytes of weights, but 4 were given\n"
    );
    assert_eq!(cargo_ok(&["run", "-q", "-p", "app", "--example", "example"]), "[30.5, 60.25]\n");
}

/// A shared library contains the model and exports nothing of it.
#[test]
#[cfg(target_os = "linux")]
fn a_shared_library_keeps_its_model_to_itself() {
    cargo_ok(&["build", "-p", "app", "--lib"]);
    let bytes = fs::read(target_folder().join("debug/libapp.so")).unwrap();
    let file = object::File::parse(bytes.as_slice()).unwrap();
    let names: Vec<_> = file.dynamic_symbols().map(|s| s.name().unwrap().to_owned()).collect();
    assert!(names.iter().any(|name| name == "app_double"), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("niello_app")), "{names:?}");
}

#[test]
fn two_versions_of_a_package_keep_their_models() {
    assert_eq!(cargo_ok(&["run", "-q", "-p", "versions"]), "[10.5, 20.25] [20.5, 40.25]\n");
}

#[test]
fn a_large_workspace_avoids_the_stack_and_a_stub_fails_with_its_reason() {
    let run = || assert_eq!(cargo_ok(&["run", "-q", "-p", "big"]), "Some(15)\n");
    run();
    // The variable makes Cargo run the build script again, here and back.
    let output = cargo(&["run", "-q", "-p", "big"], &[("NIELLO_STUB", "1")]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(stderr.contains("the model `big` was built as a stub"), "{stderr}");
    run();
}

#[test]
fn a_model_runs_without_std_and_heap() {
    let tests = cargo_ok(&["test", "-p", "bare", "--lib"]);
    assert!(tests.contains("the_model_runs_without_std ... ok"), "{tests}");
}

#[test]
fn odd_names_work_in_every_edition_under_strict_lints() {
    let packages = ["-p", "lints-2018", "-p", "lints-2021", "-p", "lints-2024"];
    let clippy = Command::new(env!("CARGO")).args(["clippy", "--version"]).output();
    let lint = if clippy.is_ok_and(|output| output.status.success()) {
        "clippy"
    } else {
        eprintln!("skipped: clippy is not installed; only rustc's own lints are checked");
        "check"
    };
    cargo_ok(&[&[lint, "--all-targets"], &packages[..]].concat());
    let tests = cargo_ok(&[&["test", "--lib"], &packages[..]].concat());
    assert_eq!(tests.matches("every_tensor_arrives_under_its_name ... ok").count(), 3, "{tests}");
    let docs = cargo(&["doc", "--no-deps", "-p", "lints-2024"], &[("RUSTDOCFLAGS", "-Dwarnings")]);
    assert!(docs.status.success(), "{}", String::from_utf8_lossy(&docs.stderr));
}

/// 2·1 + ½, 3·(−2) + ½, 4·3½ + ½; the rows (1, 2), (3, 4) and (5, 6) times the matrix, clipped at zero,
/// two of them and then as many as each run has; and what is no number of rows.
const RESULTS_OF_REAL: &str = "[2.5, -5.5, 14.5] \"affine\"
[0.0, 12.0, 0.0, 0.0, 26.0, 0.0] [2, 2]
[0.0, 12.0, 0.0]
[0.0, 12.0, 0.0, 0.0, 26.0, 0.0, 0.0, 40.0, 0.0]
input `12` has 3 elements; it takes 2 times `batch`, which is 1 to 3
output `y` has 3 elements, but 1 were given
";

#[test]
fn onnx_models_become_functions() {
    let _turn = turn_with_real();
    assert_eq!(cargo_ok(&["run", "-q", "-p", "real"]), RESULTS_OF_REAL);
}

/// The same models by LLVM, requested by the environment; a build without LLVM reports that.
#[test]
fn models_compile_by_way_of_llvm_where_it_is_there() {
    let _turn = turn_with_real();
    let llvm = [("NIELLO_BACKEND", "llvm")];
    let without = cargo(&["build", "-q", "-p", "real"], &llvm);
    let message = String::from_utf8_lossy(&without.stderr);
    assert!(!without.status.success() && message.contains("feature `llvm`"), "{message}");
    if cfg!(feature = "llvm") {
        let run = cargo(&["run", "-q", "-p", "real", "--features", "real/llvm"], &llvm);
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        assert_eq!(String::from_utf8_lossy(&run.stdout), RESULTS_OF_REAL);
    } else {
        eprintln!("skipped: this build has no LLVM backend");
    }
}

/// One binary runs at each level that the machine has, says so, and computes the same.
#[test]
fn a_program_chooses_among_cpu_levels_when_it_starts() {
    let target = Target::host();
    let mut options = CompileOptions::new(target.clone());
    // The model has no tensors of bytes.
    options.levels = target.wider_levels();
    options.levels.retain(|level| !["x86-64-v4-vnni", "x86-64-v4-amx"].contains(&level.name()));
    let levels: Vec<CpuLevel> = options.targets().iter().map(Target::cpu_level).collect();
    let native = target.with_cpu("native").unwrap();

    let file = ModelFile { proto: network().build(), folder: None, store: None };
    let module = Model::from_onnx("network", file).import(&options).unwrap().module;
    let x: Vec<f32> = (0..90).map(|i| (i % 7) as f32 - 3.0).collect();
    let x = Tensor::from_constant(&Constant::from_f32(&[1, 3, 6, 5], &x).unwrap()).unwrap();
    let y = evaluate(&module, "main", &[Value::from(x)]).unwrap();
    let y: Vec<f32> =
        y.as_tensor().unwrap().floats().unwrap().iter().map(|&value| value as f32).collect();
    let expected = |level: CpuLevel| {
        let narrow = levels[0];
        format!("{level} of {levels:?}\n{y:?}\n{narrow} of [{narrow:?}]\n{y:?}\n")
    };

    cargo_ok(&["build", "-p", "levels"]);
    let binary = target_folder().join(format!("debug/levels{}", std::env::consts::EXE_SUFFIX));
    let run = |variable: &str| {
        let output = Command::new(&binary).env("NIELLO_CPU_LEVEL", variable).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{}", text(&output.stderr));
        (text(&output.stdout), text(&output.stderr))
    };
    let best = native.cpu_level().min(CpuLevel::X86_64V4);
    for &level in &levels {
        if level <= best {
            assert_eq!(run(level.name()), (expected(level), String::new()));
            continue;
        }
        eprintln!("skipped: this machine cannot run {level}");
        let (stdout, stderr) = run(level.name());
        assert_eq!(stdout, expected(best));
        assert!(stderr.contains("which this machine cannot run"), "{stderr}");
    }
    assert_eq!(run(""), (expected(best), String::new()));
    let (stdout, stderr) = run("pentium");
    assert_eq!(stdout, expected(best));
    assert!(stderr.starts_with("niello: NIELLO_CPU_LEVEL is `pentium`"), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
}

/// The model that uses the other's weights, without that one and together with it, in every kind of
/// binary.
#[test]
#[cfg(target_os = "linux")]
fn models_that_share_weights_store_them_once() {
    // The numbers of the model's initializers; of the result, the second one is looked at.
    let integer = |index: i64, step: i64| index * step % 9 - 4;
    let product: i64 = (0..192).map(|k| (k % 5) * integer(k * 160 + 1, 7)).sum();
    let bias = integer(1, 5);
    let expected = cargo_ok(&["run", "-q", "-p", "shared"]);
    let numbers: Vec<i64> = expected.split_whitespace().map(|n| n.parse().unwrap()).collect();
    let &[result, own, all] = &numbers[..] else { panic!("{expected}") };
    assert_eq!((result, own), (product + bias, 640), "the bias is all that is stored");
    assert!(all >= own + 192 * 160 * 4, "{expected}");
    for linker in ["bfd", "lld"] {
        if Command::new(format!("ld.{linker}")).arg("--version").output().is_err() {
            eprintln!("skipped: there is no linker {linker}");
            continue;
        }
        let flag = format!("-Clink-arg=-fuse-ld={linker}");
        cargo_ok(&["rustc", "-p", "shared", "--bin", "shared", "--", &flag]);
        let output = Command::new(target_folder().join("debug/shared")).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{linker}");
    }
    // A changed time stamp changes nothing; the weights stay where they are.
    cargo_ok(&["build", "-p", "shared"]);
    let archives = weight_archives("shared-");
    assert!(!archives.is_empty());
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let model = workspace().join("shared/models/biased.onnx");
    let touched = fs::File::options().write(true).open(model).unwrap();
    touched.set_modified(std::time::SystemTime::now()).unwrap();
    cargo_ok(&["build", "-p", "shared"]);
    assert_eq!(weight_archives("shared-"), archives);

    let folder = workspace().join("shared-in-c");
    let main = "#include <stdio.h>
float shared_result(unsigned model);
int main(void) {
    printf(\"%.0f %.0f\\n\", shared_result(0), shared_result(1));
    return 0;
}
";
    write(&folder.join("main.c"), main);
    let libraries = target_folder().join("debug");
    let archive = libraries.join("libshared.a");
    let archive = archive.to_str().unwrap();
    let path = format!("-Wl,-rpath,{}", libraries.display());
    for (what, arguments) in [
        ("a static library", vec![archive]),
        ("all of one", vec!["-Wl,--whole-archive", archive, "-Wl,--no-whole-archive"]),
        ("a shared library", vec!["-L", libraries.to_str().unwrap(), "-lshared", &path]),
    ] {
        let mut cc = Command::new("cc");
        cc.args(["main.c", "-o", "main"]).args(arguments).args(["-lpthread", "-ldl", "-lm"]);
        let output = cc.current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        let output = Command::new(folder.join("main")).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(stdout, format!("{product} {}\n", product + bias), "{what}");
    }
    if cfg!(feature = "llvm") {
        let llvm = [("NIELLO_BACKEND", "llvm")];
        let run = cargo(&["run", "-q", "-p", "shared", "--features", "shared/llvm"], &llvm);
        let stderr = String::from_utf8_lossy(&run.stderr);
        assert_eq!(String::from_utf8_lossy(&run.stdout), expected, "{stderr}");
    }
}

/// Names and sizes of the archives of weights in the build folders that begin with `package`, with
/// the times when they were written.
fn weight_archives(package: &str) -> Vec<(String, u64, std::time::SystemTime)> {
    let mut archives = Vec::new();
    for entry in fs::read_dir(target_folder().join("debug/build")).unwrap().flatten() {
        let out = entry.path().join("out");
        if !entry.file_name().to_string_lossy().starts_with(package) || !out.is_dir() {
            continue;
        }
        for file in fs::read_dir(out).unwrap().flatten() {
            let name = file.file_name().to_string_lossy().into_owned();
            if name.ends_with("_weights.a") {
                let metadata = file.metadata().unwrap();
                archives.push((name, metadata.len(), metadata.modified().unwrap()));
            }
        }
    }
    archives.sort();
    archives
}

/// Two models with one kernel, by each linker that is there, in every kind of binary.
#[test]
#[cfg(target_os = "linux")]
fn models_that_share_a_kernel_link_together() {
    let expected = "[0.0, 100.0]\n";
    let binary = target_folder().join("debug/kernels");
    let run = |binary: &Path, what: &str| {
        let output = Command::new(binary).output().unwrap();
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(stdout, expected, "{what}: {}", String::from_utf8_lossy(&output.stderr));
    };
    cargo_ok(&["build", "-p", "kernels"]);
    run(&binary, "the default linker");
    let bytes = fs::read(&binary).unwrap();
    let file = object::File::parse(bytes.as_slice()).unwrap();
    let names = file.symbols().map(|symbol| symbol.name().unwrap().to_owned());
    let mut kernels: Vec<String> =
        names.filter(|name| name.starts_with("niello_kernel_")).collect();
    kernels.sort();
    let count = kernels.len();
    kernels.dedup();
    assert!(count > 0 && count == kernels.len(), "{kernels:?}");

    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    for linker in ["bfd", "lld", "mold"] {
        if !has(&format!("ld.{linker}")) && !has(linker) {
            eprintln!("skipped: there is no linker {linker}");
            continue;
        }
        let flag = format!("-Clink-arg=-fuse-ld={linker}");
        cargo_ok(&["rustc", "-p", "kernels", "--bin", "kernels", "--", &flag]);
        run(&binary, linker);
    }
    // For a target that is named, flags do not concern the build script and what it depends on.
    let triple = Target::host().triple;
    let whole =
        ["rustc", "-p", "kernels", "--bin", "kernels", "--target", &triple, "--", "-Clto=fat"];
    let output = cargo(&whole, &[("RUSTFLAGS", "-Cembed-bitcode=yes")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    run(&target_folder().join(&triple).join("debug/kernels"), "optimisation of the whole program");

    cargo_ok(&["build", "-p", "kernels", "--lib"]);
    let folder = workspace().join("kernels-in-c");
    let main = "#include <stdio.h>
float kernels_result(float x, unsigned model);
int main(void) {
    printf(\"[%.1f, %.1f]\\n\", kernels_result(2, 0), kernels_result(2, 1));
    return 0;
}
";
    write(&folder.join("main.c"), main);
    let libraries = target_folder().join("debug");
    let archive = libraries.join("libkernels.a");
    let archive = archive.to_str().unwrap();
    let path = format!("-Wl,-rpath,{}", libraries.display());
    for (what, arguments) in [
        ("a static library", vec![archive]),
        ("all of one", vec!["-Wl,--whole-archive", archive, "-Wl,--no-whole-archive"]),
        ("a shared library", vec!["-L", libraries.to_str().unwrap(), "-lkernels", &path]),
    ] {
        let mut cc = Command::new("cc");
        cc.args(["main.c", "-o", "main"]).args(arguments).args(["-lpthread", "-ldl", "-lm"]);
        let output = cc.current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        run(&folder.join("main"), what);
    }
}

#[test]
fn every_unsupported_operator_of_an_onnx_model_is_reported() {
    let output = cargo(&["check", "-p", "unsupported"], &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    for op in ["Frobnicate", "Transmogrify"] {
        let told = |line: &&str| line.starts_with("error: unsupported@0.1.0: unknown.onnx: ");
        assert!(stderr.lines().filter(told).any(|line| line.contains(op)), "{stderr}");
    }
    assert!(!stderr.contains("panicked"), "{stderr}");
}

/// What is wrong with the C compiler is said by niello, and not by a dependency that uses it too.
#[test]
#[cfg(target_os = "linux")]
fn a_c_compiler_that_does_not_work_is_named() {
    let _turn = turn_with_real();
    for (compiler, expected) in [
        ("/bin/false", "CC names cannot be used: /bin/false (exit status: 1)"),
        ("/bin/true", "CC names cannot be used: /bin/true does not behave like a C compiler"),
        ("distcc no-such-compiler", "CC names cannot be used: distcc ("),
    ] {
        let output = cargo(&["check", "-p", "real"], &[("CC", compiler)]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        let told = |line: &&str| line.starts_with("error: real@0.1.0: models/");
        assert!(stderr.lines().filter(told).any(|line| line.contains(expected)), "{stderr}");
        assert!(!stderr.contains("custom build command"), "{stderr}");
    }
    // Flags of `CFLAGS` are left aside.
    let output = cargo(&["check", "-p", "real"], &[("CFLAGS", "--no-such-flag")]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Arguments in `CC` are handed on; a compiler that fails leaves its file, the next build none.
#[test]
#[cfg(unix)]
fn arguments_of_the_c_compiler_are_kept_and_so_is_a_file_that_it_fails_on() {
    use std::os::unix::fs::PermissionsExt;

    let _turn = turn_with_real();
    let tool = workspace().join("compiler.sh");
    // As `zig cc`: the first argument says which tool it is.
    let script = "#!/bin/sh\n[ \"$1\" = cc ] || exit 7\nshift\n\
                  case \"$*\" in *-DBROKEN*\" -c \"*) echo broken >&2; exit 3;; esac\nexec cc \"$@\"\n";
    write(&tool, script);
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    let build = |arguments: &str| {
        let compiler = format!("{} {arguments}", tool.display());
        cargo(&["check", "-p", "real"], &[("CC", &compiler)])
    };
    let left = || {
        let builds = fs::read_dir(target_folder().join("debug/build")).unwrap().flatten();
        let folders = builds.flat_map(|build| fs::read_dir(build.path().join("out")));
        let mut names = folders.flat_map(|folder| folder.flatten()).map(|entry| entry.path());
        names.find(|path| path.ends_with("affine.niello-c"))
    };
    let output = build("cc -DBROKEN");
    let stderr = String::from_utf8_lossy(&output.stderr);
    let folder = left().unwrap_or_else(|| panic!("no C files are left: {stderr}"));
    let message = format!("which is left in {}", folder.display());
    assert!(stderr.contains(&message) && stderr.contains("broken"), "{stderr}");
    let mut files = fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path());
    assert!(files.any(|path| path.extension().is_some_and(|ending| ending == "c")));

    let output = build("cc -DWORKING");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(left(), None);
}

/// Under a jobserver whose tokens others hold, a build script compiles one file at a time; with one
/// of its tokens, two.
#[test]
#[cfg(target_os = "linux")]
fn a_build_script_compiles_with_the_tokens_of_the_jobserver() {
    use std::os::unix::fs::PermissionsExt;

    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    // What the build script is made of is built with all tokens.
    cargo_ok(&["build", "-p", "levels"]);
    for tokens in 0..processors.min(2) {
        let folder = tempfile::tempdir().unwrap();
        let (at_work, log) = (folder.path().join("at-work"), folder.path().join("counts"));
        fs::create_dir(&at_work).unwrap();
        let wanted = tokens + 1;
        // Each waits until there have been as many as there can be.
        let script = format!(
            "#!/bin/sh
case \" $* \" in *\" -c \"*) ;; *) exec cc \"$@\";; esac
mkdir {at}/$$; ls {at} | wc -l >> {log}; sleep 0.1
left=600
while [ $(sort -n {log} | tail -n 1) -lt {wanted} ] && [ $left -gt 0 ]; do
  sleep 0.05; left=$((left - 1))
done
cc \"$@\"; status=$?
rmdir {at}/$$; exit $status
",
            at = at_work.display(),
            log = log.display(),
        );
        let tool = folder.path().join("counting-gcc");
        write(&tool, script);
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();

        let server = jobserver::Client::new(tokens).unwrap();
        let mut command = cargo_command(&["check", "-p", "levels"]);
        server.configure(&mut command);
        // A folder without kernels, so that all of them are compiled.
        command.env("CC", &tool).env("NIELLO_CACHE_DIR", folder.path().join("kernels"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let counts = fs::read_to_string(log).unwrap();
        let counts: Vec<usize> = counts.lines().map(|line| line.trim().parse().unwrap()).collect();
        assert!(counts.len() > 2, "{counts:?}");
        assert_eq!(counts.iter().max(), Some(&wanted), "{counts:?}");
    }
}

#[test]
fn a_runtime_of_another_version_is_named_in_the_error() {
    let output = cargo(&["check", "-p", "outdated"], &[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(stderr.contains("niello_build_0_1_needs_niello_runtime_0_1"), "{stderr}");
}

#[test]
fn a_failed_build_reports_every_problem_and_a_build_repeats_only_changed_models() {
    let model = workspace().join("broken/late.onnx");
    let fails = || {
        let output = cargo(&["build", "-p", "broken"], &[]);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let _ = fs::remove_file(&model);
    let missing = fails();
    assert!(
        missing.contains("error: broken@0.1.0: late.onnx: the model cannot be read"),
        "{missing}"
    );

    fs::write(&model, "13").unwrap();
    let stderr = fails();
    for line in [
        "error: broken@0.1.0: late.onnx: first problem; with details; help: choose another factor\n",
        "error: broken@0.1.0: late.onnx: second problem\n",
    ] {
        assert!(stderr.contains(line), "{stderr}");
    }
    assert!(!stderr.contains("panicked"), "{stderr}");

    let run = || {
        let output = cargo_ok(&["run", "-q", "-p", "broken"]);
        let (result, build) = output.split_once('\n').unwrap();
        (result.to_owned(), build.to_owned())
    };
    fs::write(&model, "7").unwrap();
    let first = run();
    assert_eq!(first.0, "[7.5, 14.25]");
    fs::write(workspace().join("broken/README.md"), "not an input").unwrap();
    assert_eq!(run(), first, "the build script ran again without a reason");
    // Cargo compares modification times, and some file systems count in seconds.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    fs::write(&model, "8").unwrap();
    let second = run();
    assert_eq!(second.0, "[8.5, 16.25]");
    assert_ne!(second.1, first.1);
    let archives = walk(&target_folder().join("debug/build"), "broken-", "late");
    assert_eq!(archives, 2, "code and weights of the last build, and no others");
}

/// Counts the archives of model `name` in the build folders that begin with `package`.
fn walk(folder: &Path, package: &str, name: &str) -> usize {
    let mut count = 0;
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if !entry.file_name().to_string_lossy().starts_with(package) {
            continue;
        }
        let Ok(files) = fs::read_dir(entry.path().join("out")) else { continue };
        count += files
            .flatten()
            .map(|file| file.file_name().to_string_lossy().into_owned())
            .filter(|file| file.ends_with(".a") && file.contains(&format!("_{name}_")))
            .count();
    }
    count
}
