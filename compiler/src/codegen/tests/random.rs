//! Random expressions: generated code must do what the interpreter does.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

use super::check_level;
use crate::codegen::testing::runnable_levels;
use crate::ir::DType;
use crate::tir::ParamKind;
use crate::tir::testing::{ELEMENTS, random_function};

#[test]
fn random_expressions_agree_bit_for_bit() {
    let mut runner = TestRunner::new(Config {
        cases: 6,
        max_shrink_iters: 0,
        failure_persistence: None,
        ..Config::default()
    });
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
                        _ => bits[..bytes].to_vec(),
                    }
                })
                .collect();
            check_level(&func, &[], &args, &target);
        }
        Ok(())
    });
    // The input, a thousand numbers, does not help a reader.
    if let Err(TestError::Fail(reason, _) | TestError::Abort(reason)) = result {
        panic!("{reason}");
    }
}
