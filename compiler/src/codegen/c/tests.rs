//! Tests of generated code against the interpreter.

use super::generate;
use super::testing::{LoadedKernel, runnable_levels};
use crate::ir::{BufferSpec, DType};
use crate::tir::{ForKind, Intrinsic, PrimExpr, PrimFunc, PrimFuncData, lower};

fn f32s(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_ne_bytes()).collect()
}

#[test]
fn a_parallel_gelu_is_right_at_every_level() {
    let mut func = PrimFuncData::new("gelu");
    let x = func.input("x", DType::F32, BufferSpec::dense(&[4, 37]));
    let y = func.output("y", DType::F32, BufferSpec::dense(&[4, 37]));
    func.body = func.for_("i", 4, ForKind::Parallel, |f, i| {
        f.for_("j", 37, ForKind::Vectorized, |f, j| {
            let v = f.load(x, [i.clone(), j.clone()]);
            let half = v.clone() * PrimExpr::f32(0.5);
            let e =
                PrimExpr::call(Intrinsic::Erf, v * PrimExpr::f32(std::f32::consts::FRAC_1_SQRT_2));
            let v = half.clone() * e + half;
            f.store(y, [i, j], v)
        })
    });
    let func = PrimFunc::new(func);
    for target in runnable_levels() {
        let lowered = lower(func.clone(), &target).unwrap();
        let kernel = generate(&lowered, "k_gelu", &target).unwrap();
        let loaded = LoadedKernel::new(&kernel, 2, 0, &target);
        let input: Vec<f32> = (0..148).map(|i| (i as f32 - 70.0) / 10.0).collect();
        let mut buffers = [f32s(&input), vec![0; 148 * 4]];
        loaded.run(&mut buffers, &[]);
        let out: Vec<f32> =
            buffers[1].as_chunks::<4>().0.iter().map(|c| f32::from_ne_bytes(*c)).collect();
        for (x, y) in input.iter().zip(out) {
            let x = f64::from(*x);
            let expected = 0.5 * x * (1.0 + crate::tir::scalar::erf(x / 2f64.sqrt()));
            assert!((expected - f64::from(y)).abs() < 1e-6, "{x} {y} {expected}");
        }
    }
}
