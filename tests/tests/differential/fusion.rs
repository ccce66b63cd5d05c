//! What kernels are fused of changes no bit of the results, unless a pass changes the arithmetic.

use niello::graph::interp::Tolerance;
use niello::graph::parse_module;
use niello::ir::Constant;
use niello::options::{Backend, CompileOptions, Denormals, Numerics, PORTABLE};
use niello::target::Target;
use niello_tests::random::network::random_network;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use super::stages::{differing, native};
use super::{DTYPES, config, parts, setting};

/// Modules whose kernels are compared.
const FUSION_CASES: u32 = 2;

fn options(backend: Backend) -> CompileOptions {
    let mut options = CompileOptions::new(Target::host());
    options.set_target_cpu(PORTABLE).unwrap();
    options.backend = backend;
    options
}

#[test]
fn fused_kernels_give_the_bits_of_one_kernel_for_each_call() {
    let mut runner = TestRunner::new(config());
    for case in 0..setting("NIELLO_DIFF_CASES", FUSION_CASES) {
        let parts = parts().new_tree(&mut runner).expect("nothing is rejected").current();
        let network = random_network(&parts, DTYPES);
        let inputs = super::stages::constants(&network.inputs);
        let mut options = options(Backend::ALL[case as usize % Backend::ALL.len()]);
        options.numerics = Numerics::Strict;
        let (fused, results) = native(&network.module, &options, &inputs).unwrap();
        options.config.insert("relay.FuseOps.max_depth".to_owned(), 1.into());
        let (apart, expected) = native(&network.module, &options, &inputs).unwrap();
        assert!(fused.program.kernels.len() < apart.program.kernels.len());
        for (place, (results, expected)) in results.iter().zip(&expected).enumerate() {
            let exact = vec![Tolerance::EXACT; expected.len()];
            let level = &fused.model.levels[place];
            if let Some(difference) = differing(results, expected, &exact) {
                panic!("case {case}, {level}: {difference}\n{}", network.module);
            }
        }
    }
}

#[test]
fn a_variance_as_a_difference_of_products_is_exact() {
    let module = parse_module(
        "def @main(%x: Tensor[(1, 4), float32]) -> (Tensor[(1, 1), float32],) {
           %0 = multiply(%x, %x);
           %1 = mean(%0, axis=[1], keepdims=true);
           %2 = mean(%x, axis=[1], keepdims=true);
           %3 = multiply(%2, %2);
           %4 = subtract(%1, %3);
           (sqrt(%4),)
         }",
    )
    .unwrap();
    let x = Constant::from_f32(&[1, 4], &[0.3; 4]).unwrap();
    for &backend in Backend::ALL {
        let (_, results) = native(&module, &options(backend), std::slice::from_ref(&x)).unwrap();
        for level in results {
            assert_eq!(level, [Constant::from_f32(&[1, 1], &[0.0]).unwrap()], "{backend}");
        }
    }
}

#[test]
fn denormal_numbers_are_flushed_unless_they_are_to_be_kept() {
    let module = parse_module(
        "def @main(%x: Tensor[(20), float32]) -> (Tensor[(20), float32],) {
           (multiply(%x, const(0.5, float32)),)
         }",
    )
    .unwrap();
    let x = Constant::from_f32(&[20], &[f32::MIN_POSITIVE; 20]).unwrap();
    let half = std::hint::black_box(f32::MIN_POSITIVE) / 2.0;
    for &backend in Backend::ALL {
        for (denormals, expected) in [(Denormals::Flush, 0.0), (Denormals::Keep, half)] {
            let mut options = options(backend);
            options.denormals = denormals;
            let (_, results) = native(&module, &options, std::slice::from_ref(&x)).unwrap();
            let expected = [Constant::from_f32(&[20], &[expected; 20]).unwrap()];
            assert!(results.iter().all(|level| *level == expected), "{backend}, {denormals:?}");
            // The mode is this thread's own again.
            assert!(std::hint::black_box(f32::MIN_POSITIVE) / 2.0 > 0.0);
        }
    }
}
