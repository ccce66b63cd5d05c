//! Tests of every backend's code against the interpreter, at every CPU level that this machine has.

mod assertions;
#[cfg(target_arch = "x86_64")]
mod c_text;
mod integers;
mod intrinsics;
mod kernels;
mod random;

use super::testing::{LoadedKernel, compare, runnable_levels};
use crate::ir::DType;
use crate::options::{Backend, Denormals};
use crate::pass::PassContext;
use crate::target::Target;
use crate::tir::transform::FLUSH_DENORMALS;
use crate::tir::{Lowering, ParamKind, PrimFunc, interpret};

/// The bytes of a parameter, from its number of bytes.
type Fill<'a> = &'a dyn Fn(usize, usize) -> Vec<u8>;

fn f32_bytes(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

fn f32_values(bytes: &[u8]) -> Vec<f32> {
    bytes.as_chunks::<4>().0.iter().map(|chunk| f32::from_le_bytes(*chunk)).collect()
}

/// Numbers between −2 and 2 that repeat only after many.
fn small_floats(seed: usize, bytes: usize) -> Vec<u8> {
    let mut state = (seed as u32).wrapping_mul(2_654_435_761).wrapping_add(12345);
    f32_bytes((0..bytes / 4).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 22) as f32 - 2.0
    }))
}

/// Runs a function through the interpreter before and after lowering, and as code of every backend;
/// all but the first must agree bit for bit, the first within `tolerance`. Returns the outputs of
/// each level.
fn check(func: &PrimFunc, dims: &[i64], fill: Fill<'_>, tolerance: f32) -> Vec<Vec<u8>> {
    let sizes: Vec<usize> = func
        .params
        .iter()
        .map(|param| {
            let buffer = &func.buffers[param.buffer];
            let elements = buffer.spec.physical_len().unwrap() as usize;
            elements * buffer.dtype.bytes().unwrap()
        })
        .collect();
    let args: Vec<Vec<u8>> = func
        .params
        .iter()
        .zip(&sizes)
        .enumerate()
        .map(|(position, (param, &size))| match param.kind {
            ParamKind::Output => vec![0; size],
            ParamKind::Input | ParamKind::Constant => fill(position, size),
        })
        .collect();
    let mut expected = args.clone();
    interpret(func, &mut expected, dims).unwrap();
    for target in runnable_levels() {
        let results = check_level(func, dims, &args, &target, Denormals::Keep);
        for (position, param) in func.params.iter().enumerate() {
            let dtype = func.buffers[param.buffer].dtype;
            let same = match dtype {
                DType::F32 => f32_values(&results[position])
                    .iter()
                    .zip(f32_values(&expected[position]))
                    .all(|(a, b)| {
                        (a.is_nan() && b.is_nan()) || (a - b).abs() <= tolerance || *a == b
                    }),
                _ => results[position] == expected[position],
            };
            assert!(same, "lowering for {:?} changed parameter {position}", target.cpu);
        }
    }
    expected
}

/// Lowers for one target and compares the interpreter with generated code bit for bit.
fn check_level(
    func: &PrimFunc,
    dims: &[i64],
    args: &[Vec<u8>],
    target: &Target,
    denormals: Denormals,
) -> Vec<Vec<u8>> {
    let cx = PassContext::builder()
        .target(target.clone())
        .config(&FLUSH_DENORMALS, denormals == Denormals::Flush)
        .build()
        .unwrap();
    let lowered = Lowering::new(&cx).unwrap().run(func.clone(), &cx).unwrap();
    let mut interpreted = args.to_vec();
    interpret(&lowered, &mut interpreted, dims).unwrap();
    for &backend in Backend::ALL {
        let loaded = LoadedKernel::new(&lowered, target, backend);
        let mut compiled = args.to_vec();
        loaded.run(&mut compiled, dims);
        let what = format!("{backend}, {:?}", target.cpu);
        compare(func, denormals, &interpreted, &compiled, &what);
    }
    interpreted
}
