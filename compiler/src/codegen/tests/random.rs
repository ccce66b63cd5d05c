//! Random expressions: generated code must do what the interpreter does.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use super::check_level;
use crate::codegen::testing::runnable_levels;
use crate::ir::DType;
use crate::options::Denormals;
use crate::tir::ParamKind;
use crate::tir::testing::{ELEMENTS, random_function};

#[test]
fn random_expressions_agree_bit_for_bit() {
    check_random_functions(6, Denormals::Keep, |_, bytes| bytes);
}

#[test]
fn random_expressions_of_denormal_numbers_agree_bit_for_bit() {
    for denormals in [Denormals::Flush, Denormals::Keep] {
        check_random_functions(3, denormals, near_zero);
    }
}

/// Makes every other float denormal or one of the least normal numbers.
fn near_zero(dtype: DType, mut bytes: Vec<u8>) -> Vec<u8> {
    let (width, masks) = match dtype {
        DType::F32 => (4, [0x80, 0x01]),
        DType::F64 => (8, [0x80, 0x3f]),
        _ => return bytes,
    };
    for float in bytes.chunks_mut(2 * width) {
        for (byte, mask) in float[..width].iter_mut().rev().zip(masks) {
            *byte &= mask;
        }
    }
    bytes
}

/// The variable that chooses other functions: any number. What tests run is the same each time.
const SEED_VARIABLE: &str = "NIELLO_TEST_SEED";

/// Runs random functions on random bits, which `change` may replace, at every level.
fn check_random_functions(cases: u32, denormals: Denormals, change: fn(DType, Vec<u8>) -> Vec<u8>) {
    let asked = std::env::var(SEED_VARIABLE).ok();
    let seed: u64 = asked.map_or(1, |seed| seed.parse().unwrap());
    let config =
        Config { cases, max_shrink_iters: 0, failure_persistence: None, ..Config::default() };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed.to_le_bytes(); 4].concat());
    let mut runner = TestRunner::new_with_rng(config, rng);
    let strategy = (
        prop::collection::vec(any::<u32>(), 600..900),
        prop::collection::vec(any::<u8>(), 8 * ELEMENTS as usize),
    );
    let result = runner.run(&strategy, |(numbers, bits)| {
        for target in runnable_levels() {
            let func = random_function(&numbers, target.vector_bits());
            let args: Vec<Vec<u8>> = func
                .params
                .iter()
                .map(|param| {
                    let buffer = &func.buffers[param.buffer];
                    let bytes = buffer.spec.physical_len().unwrap() as usize
                        * buffer.dtype.bytes().unwrap();
                    match buffer.dtype {
                        _ if param.kind == ParamKind::Output => vec![0; bytes],
                        DType::Bool => bits[..bytes].iter().map(|b| b & 1).collect(),
                        dtype => change(dtype, bits[..bytes].to_vec()),
                    }
                })
                .collect();
            check_level(&func, &[], &args, &target, denormals);
        }
        Ok(())
    });
    // The input, a thousand numbers, does not help a reader.
    if let Err(TestError::Fail(reason, _) | TestError::Abort(reason)) = result {
        panic!("{reason}; {SEED_VARIABLE} is {seed}");
    }
}
