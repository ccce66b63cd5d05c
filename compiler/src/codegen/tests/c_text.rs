//! The text of generated C for three kernels, and that compilers do not warn about it.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::check;
use super::small_floats;
use crate::codegen::c::{TempFolder, generate, translation_unit};
use crate::target::Target;
use crate::tir::{lower, parse};

/// A matrix product in register tiles, an unscheduled convolution, and a softmax as a sequence of
/// loops.
const KERNELS: [(&str, &[i64]); 3] = [("matmul", &[]), ("conv2d", &[]), ("softmax", &[5])];

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/codegen/tests/c").join(name)
}

fn text(kernel: &str, target: &Target) -> String {
    let func = parse(&std::fs::read_to_string(file(&format!("{kernel}.tir"))).unwrap()).unwrap();
    let lowered = lower(func, target).unwrap();
    translation_unit([&generate(&lowered, kernel, target).unwrap()], &[])
}

/// `BLESS=1` writes the files.
#[test]
fn the_text_of_kernels_equals_the_committed_files() {
    let target = Target::host().with_cpu("x86-64-v3").unwrap();
    for (kernel, dims) in KERNELS {
        let found = text(kernel, &target);
        let path = file(&format!("{kernel}.c"));
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, &found).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap();
        assert_eq!(found, expected, "differs from {}; BLESS=1 rewrites it", path.display());
        let func = parse(&std::fs::read_to_string(file(&format!("{kernel}.tir"))).unwrap());
        check(&func.unwrap(), dims, &small_floats, 1e-5);
    }
}

#[test]
fn compilers_do_not_warn() {
    let folder = TempFolder::new().unwrap();
    let host = Target::host();
    for cpu in ["x86-64", "x86-64-v3", "x86-64-v4"] {
        let target = host.clone().with_cpu(cpu).unwrap();
        for (kernel, _) in KERNELS {
            let source = folder.path().join(format!("{kernel}.c"));
            std::fs::write(&source, text(kernel, &target)).unwrap();
            let mut compilers = 0;
            for compiler in ["gcc", "clang", "clang-19"] {
                let output = Command::new(compiler)
                    .args(["-std=gnu11", "-O2", "-ffreestanding", "-Wall", "-Wextra", "-Werror"])
                    .args([&format!("-march={cpu}"), "-c", "-o"])
                    .arg(folder.path().join("out.o"))
                    .arg(&source)
                    .output();
                // Not every machine has every compiler.
                let Ok(output) = output else { continue };
                let messages = String::from_utf8_lossy(&output.stderr);
                assert!(output.status.success(), "{compiler} on {kernel}, {cpu}:\n{messages}");
                compilers += 1;
            }
            assert!(compilers > 0, "there is neither gcc nor clang");
        }
    }
}
