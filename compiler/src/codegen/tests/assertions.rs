//! Assertions in generated code: a trap ends the process.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use super::{f32_bytes, f32_values};
use crate::codegen::testing::LoadedKernel;
use crate::ir::{BufferSpec, DType};
use crate::options::Backend;
use crate::target::Target;
use crate::tir::{PrimExpr, PrimFunc, PrimFuncData, Stmt, lower};

/// Set in the child process, which the trap ends: the dimension for the kernel's call.
const DIMENSION: &str = "NIELLO_TEST_ASSERTED_DIMENSION";

/// `y = x` if `n` is less than 5.
fn guarded_copy() -> PrimFunc {
    let mut func = PrimFuncData::new("guarded");
    let x = func.input("x", DType::F32, BufferSpec::dense(&[1]));
    let y = func.output("y", DType::F32, BufferSpec::dense(&[1]));
    let n = func.dim("n");
    func.body = Stmt::seq([
        Stmt::assert(n.less(PrimExpr::index(5)), "n is 5 or more"),
        func.store(y, [0], func.load(x, [0])),
    ]);
    PrimFunc::new(func)
}

/// Runs the kernel in this process, or this test again in a child process that calls the kernel
/// with 5.
fn holds_and_traps(backend: Backend, test: &str) {
    let target = Target::host();
    let kernel = LoadedKernel::new(&lower(guarded_copy(), &target).unwrap(), &target, backend);
    let dimension = std::env::var(DIMENSION).ok().and_then(|text| text.parse().ok());
    let mut buffers = [f32_bytes([3.0]), f32_bytes([0.0])];
    kernel.run(&mut buffers, &[dimension.unwrap_or(4)]);
    assert_eq!(f32_values(&buffers[1]), [3.0]);
    if dimension.is_some() {
        return;
    }
    let module = module_path!().split_once("::").map_or("", |(_, path)| path);
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::{test}")])
        .env(DIMENSION, "5")
        .output()
        .unwrap()
        .status;
    assert!(status.signal().is_some(), "the trap should have ended the process: {status}");
}

#[test]
fn c_traps_where_an_assertion_does_not_hold() {
    holds_and_traps(Backend::C, "c_traps_where_an_assertion_does_not_hold");
}

#[cfg(feature = "llvm")]
#[test]
fn llvm_traps_where_an_assertion_does_not_hold() {
    holds_and_traps(Backend::Llvm, "llvm_traps_where_an_assertion_does_not_hold");
}
