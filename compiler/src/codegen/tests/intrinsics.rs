//! Error of the polynomials of `lower_intrin`, measured on compiled code against `f64`.

use super::{check_level, compare, f32_bytes, f32_values};
use crate::codegen::testing::{LoadedKernel, runnable_levels};
use crate::ir::{BufferSpec, DType};
use crate::options::{Backend, Denormals};
use crate::pass::PassContext;
use crate::target::Target;
use crate::tir::transform::FLUSH_DENORMALS;
use crate::tir::{
    BinaryOp, ForKind, Intrinsic, Lowering, PrimExpr, PrimFunc, PrimFuncData, Stmt, lower, scalar,
};

/// The function `y[i] = f(x[i])` over `len` elements.
fn elementwise(intrinsic: Intrinsic, dtype: DType, len: usize) -> PrimFunc {
    let mut func = PrimFuncData::new(intrinsic.name());
    let x = func.input("x", dtype, BufferSpec::dense(&[len as i64]));
    let y = func.output("y", dtype, BufferSpec::dense(&[len as i64]));
    func.body = func.for_("i", len as i64, ForKind::Vectorized, |f, i| {
        let value = PrimExpr::call(intrinsic, f.load(x, [i.clone()]));
        f.store(y, [i], value)
    });
    PrimFunc::new(func)
}

/// Distance between the floats around a value.
fn ulp(value: f64) -> f64 {
    let exponent = (value.abs() as f32).max(f32::MIN_POSITIVE).log2().floor();
    2f64.powi(exponent as i32 - 23)
}

/// Every n-th of all finite floats.
fn sweep() -> Vec<f32> {
    (0..=u32::MAX).step_by(8191).map(f32::from_bits).filter(|x| x.is_finite()).collect()
}

/// Runs a kernel; all backends must agree bit for bit.
fn run(func: &PrimFunc, args: &[Vec<u8>], target: &Target) -> Vec<Vec<u8>> {
    let lowered = lower(func.clone(), target).unwrap();
    let mut results = Backend::ALL.iter().map(|&backend| {
        let mut buffers = args.to_vec();
        LoadedKernel::new(&lowered, target, backend).run(&mut buffers, &[]);
        buffers
    });
    let first = results.next().expect("there is a backend");
    for other in results {
        compare(func, Denormals::Keep, &first, &other, &format!("{:?}", target.cpu));
    }
    first
}

#[test]
fn the_errors_of_the_polynomials_are_as_documented() {
    // Of millions of points, those at which some level is off by most.
    let worst =
        [78.325_63, -8.470_96, 3.945_903_3, -2.089_461_6, -1.225_959_7, -1.946_818_1, 1.915_915_9];
    let inputs: Vec<f32> = sweep().into_iter().chain(worst).collect();
    let args = [f32_bytes(inputs.iter().copied()), vec![0; inputs.len() * 4]];
    // The table of `lower_intrin`.
    for (intrinsic, limit) in [
        (Intrinsic::Exp, 2.5),
        (Intrinsic::Log, 1.0),
        (Intrinsic::Tanh, 6.5),
        (Intrinsic::Erf, 6.0),
        (Intrinsic::Sigmoid, 3.6),
        (Intrinsic::Atan, 3.0),
        (Intrinsic::Asin, 3.0),
        (Intrinsic::Acos, 3.0),
        (Intrinsic::Sin, 1.6),
        (Intrinsic::Cos, 1.6),
        (Intrinsic::Tan, 3.4),
        (Intrinsic::Sinh, 3.5),
        (Intrinsic::Cosh, 3.5),
        (Intrinsic::Asinh, 2.2),
        (Intrinsic::Acosh, 2.2),
        (Intrinsic::Atanh, 2.2),
    ] {
        let expected: Vec<f64> = inputs
            .iter()
            .map(|x| {
                let bits = scalar::call(intrinsic, DType::F64, &[f64::from(*x).to_bits()]);
                f64::from_bits(bits.unwrap())
            })
            .collect();
        let func = elementwise(intrinsic, DType::F32, inputs.len());
        for target in runnable_levels() {
            let buffers = run(&func, &args, &target);
            let (mut worst, mut worst_at) = (0.0, 0.0);
            for ((x, y), expected) in inputs.iter().zip(f32_values(&buffers[1])).zip(&expected) {
                let rounded = *expected as f32;
                // Where a bound is reached it is met, so that GELU of -1e6 is zero.
                let saturates = matches!(intrinsic, Intrinsic::Erf | Intrinsic::Tanh);
                if saturates && x.abs() > 9.1 {
                    assert_eq!(y, rounded, "{} of {x} on {:?}", intrinsic.name(), target.cpu);
                }
                if y == rounded || (y.is_nan() && rounded.is_nan()) {
                    continue;
                }
                let denormal = expected.abs() < f64::from(f32::MIN_POSITIVE);
                if intrinsic == Intrinsic::Sigmoid && denormal && y == 0.0 {
                    continue;
                }
                let error = (f64::from(y) - expected).abs() / ulp(*expected);
                // An infinity in the wrong place is infinitely wrong, and so is a NaN.
                if error.is_nan() || error > worst {
                    (worst, worst_at) = (if error.is_nan() { f64::INFINITY } else { error }, *x);
                }
            }
            eprintln!("{} on {:?}: {worst:.2} ulp at {worst_at:e}", intrinsic.name(), target.cpu);
            assert!(
                worst <= limit,
                "{} on {:?} is off by {worst} ulp at {worst_at:e}",
                intrinsic.name(),
                target.cpu
            );
        }
    }
}

#[test]
fn bounded_exponentials_are_right_where_denormal_numbers_are_flushed() {
    let least = f64::from(f32::MIN_POSITIVE);
    let special =
        [f32::NAN, f32::NEG_INFINITY, f32::INFINITY, -0.0, 87.3, -87.336_55, -87.7, -104.5];
    let steps = (0..10_000).map(|i| 1.0 - i as f32 * 0.009_3);
    let inputs: Vec<f32> = special.into_iter().chain(steps).collect();
    let args = [f32_bytes(inputs.iter().copied()), vec![0; inputs.len() * 4]];
    let len = inputs.len() as i64;
    type Of<T> = fn(T) -> T;
    let functions: [(&str, Of<PrimExpr>, Of<f64>); 3] = [
        ("softmax", |x| exp(PrimExpr::f32(0.0).min(x)), |x| if x > 0.0 { 1.0 } else { x.exp() }),
        ("tail", |x| exp(-PrimExpr::call(Intrinsic::Abs, x)), |x| (-x.abs()).exp()),
        ("sigmoid", |x| PrimExpr::call(Intrinsic::Sigmoid, x), |x| 1.0 / (1.0 + (-x).exp())),
    ];
    for (name, of_expr, of_number) in functions {
        let mut func = PrimFuncData::new(name);
        let [x, y] = [
            func.input("x", DType::F32, BufferSpec::dense(&[len])),
            func.output("y", DType::F32, BufferSpec::dense(&[len])),
        ];
        func.body = func.for_("i", len, ForKind::Vectorized, |f, i| {
            let value = of_expr(f.load(x, [i.clone()]));
            f.store(y, [i], value)
        });
        let func = PrimFunc::new(func);
        for target in runnable_levels() {
            let [flushing, keeping] =
                [true, false].map(|flush| multiplications(&func, &target, flush));
            assert!(flushing < keeping || target.has_ldexp(), "{name} on {:?}", target.cpu);
            let buffers = check_level(&func, &[], &args, &target, Denormals::Flush);
            for (x, y) in inputs.iter().zip(f32_values(&buffers[1])) {
                let expected = of_number(f64::from(*x));
                let is_right = match expected < least {
                    // Next to the least number, an error decides whether it is one.
                    true => f64::from(y) <= least,
                    false => {
                        (f64::from(y) - expected).abs() <= 3.6 * ulp(expected)
                            || (y.is_nan() && expected.is_nan())
                            || (y == 0.0 && expected < least * 1.000_001)
                    }
                };
                assert!(is_right, "{name} of {x:e} on {:?} is {y:e}, not {expected:e}", target.cpu);
            }
        }
    }
}

fn exp(x: PrimExpr) -> PrimExpr {
    PrimExpr::call(Intrinsic::Exp, x)
}

/// How many multiplications a function has, with and without an addition, once it is lowered.
fn multiplications(func: &PrimFunc, target: &Target, flush: bool) -> usize {
    let cx = PassContext::builder().target(target.clone()).config(&FLUSH_DENORMALS, flush);
    let cx = cx.build().unwrap();
    let lowered = Lowering::new(&cx).unwrap().run(func.clone(), &cx).unwrap();
    let mut count = 0;
    lowered.body.walk_exprs(&mut |expr| {
        let is_product = matches!(expr, PrimExpr::Binary { op: BinaryOp::Mul, .. });
        // Those of indices are no floats.
        let is_float = expr.dtype().is_float();
        count += usize::from(is_float && (is_product || matches!(expr, PrimExpr::MulAdd { .. })));
    });
    count
}

#[test]
fn powers_of_two_are_rounded_once_where_there_is_an_instruction() {
    let values = [1.0, -1.5, 0.0, 1.999_999_9, f32::INFINITY, f32::NAN, 3e-39, 1e38];
    let powers = [0.0, 1.0, -1.0, 3.5, -0.5, 126.0, -127.0, -149.0, -150.0, 200.0, -300.0, 1e30];
    let pairs = values.iter().flat_map(|&value| powers.map(|power| (value, power))).cycle();
    // In vectors of every width, and as scalars.
    let len = values.len() * powers.len() + 16 + 8 + 4 + 2 + 1;
    let (values, powers): (Vec<f32>, Vec<f32>) = pairs.take(len).unzip();
    let args = [f32_bytes(values.clone()), f32_bytes(powers.clone()), vec![0; 4 * len]];
    let len = len as i64;
    let mut func = PrimFuncData::new("ldexp");
    let [x, n] = ["x", "n"].map(|name| func.input(name, DType::F32, BufferSpec::dense(&[len])));
    let y = func.output("y", DType::F32, BufferSpec::dense(&[len]));
    func.body = func.for_("i", len, ForKind::Vectorized, |f, i| {
        let args = vec![f.load(x, [i.clone()]), f.load(n, [i.clone()])];
        f.store(y, [i], PrimExpr::Call { intrinsic: Intrinsic::Ldexp, args })
    });
    let func = PrimFunc::new(func);
    for target in runnable_levels() {
        let buffers = run(&func, &args, &target);
        for ((x, n), y) in values.iter().zip(&powers).zip(f32_values(&buffers[2])) {
            let bits = [*x, *n].map(|value| u64::from(value.to_bits()));
            let expected = scalar::call(Intrinsic::Ldexp, DType::F32, &bits).unwrap();
            let expected = f32::from_bits(expected as u32);
            let denormal = !target.has_ldexp() && y.abs() < f32::MIN_POSITIVE;
            let near = denormal && (y - expected).abs() <= f32::from_bits(2);
            let same = y == expected || (y.is_nan() && expected.is_nan());
            assert!(same || near, "{x:e} * 2^{n} is {y:e} on {:?}", target.cpu);
        }
    }
}

#[test]
fn floats_become_narrow_integers_by_saturating_in_vectors_of_every_width() {
    let values = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        -0.5,
        1.9,
        -1.9,
        127.5,
        -128.9,
        128.0,
        255.4,
        256.0,
        -1e9,
        4e9,
        32767.5,
        -32768.5,
        65535.5,
        1e30,
        0.5,
        -2.5,
        247.5,
        248.5,
        -7.500_001,
    ];
    let len = 32 + 8 + 4 + 2 + 1;
    let values: Vec<f32> = values.into_iter().cycle().take(len).collect();
    let zero = 7u8;
    type Convert = fn(f32) -> i64;
    let convert: [(DType, Convert); 4] = [
        (DType::U8, |x| i64::from(x as u8)),
        (DType::I8, |x| i64::from(x as i8)),
        (DType::U16, |x| i64::from(x as u16)),
        (DType::I16, |x| i64::from(x as i16)),
    ];
    for (dtype, as_dtype) in convert {
        let mut func = PrimFuncData::new("convert");
        let extent = len as i64;
        let x = func.input("x", DType::F32, BufferSpec::dense(&[extent]));
        let z = func.input("z", DType::U8, BufferSpec::dense(&[1]));
        // As they are, and the nearest integers, moved by a zero point.
        let results = ["whole", "nearest", "moved"]
            .map(|name| func.output(name, DType::I32, BufferSpec::dense(&[extent])));
        func.body = func.for_("i", extent, ForKind::Vectorized, |f, i| {
            let value = f.load(x, [i.clone()]);
            let nearest = PrimExpr::call(Intrinsic::Round, value.clone());
            let moved = nearest.clone() + f.load(z, [0]).cast(DType::F32);
            let stores = results
                .into_iter()
                .zip([value, nearest, moved])
                .map(|(to, value)| f.store(to, [i.clone()], value.cast(dtype).cast(DType::I32)));
            Stmt::seq(stores.collect::<Vec<_>>())
        });
        let func = PrimFunc::new(func);
        for target in runnable_levels() {
            let results = || vec![0; 4 * len];
            let args = [f32_bytes(values.clone()), vec![zero], results(), results(), results()];
            let buffers = run(&func, &args, &target);
            let found = buffers[2..].iter().map(|bytes| bytes.as_chunks::<4>().0);
            let expected: [fn(f32, f32) -> f32; 3] =
                [|x, _| x, |x, _| x.round_ties_even(), |x, z| x.round_ties_even() + z];
            for (found, expected) in found.zip(expected) {
                for (x, found) in values.iter().zip(found) {
                    let found = i64::from(i32::from_le_bytes(*found));
                    let expected = as_dtype(expected(*x, zero.into()));
                    assert_eq!(found, expected, "{x} as {dtype} on {:?}", target.cpu);
                }
            }
        }
    }
}

#[test]
fn special_arguments_give_the_results_of_c() {
    let inputs = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        0.0,
        -0.0,
        f32::MIN_POSITIVE / 4.0,
        -1.0,
        1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        -0.7,
        8_388_609.0,
        4_194_304.5,
        88.72284,
        -103.97,
        1e30,
    ];
    let args = [f32_bytes(inputs), vec![0; inputs.len() * 4]];
    let exact =
        [Intrinsic::Sqrt, Intrinsic::Floor, Intrinsic::Ceil, Intrinsic::Trunc, Intrinsic::Round];
    let close = [
        Intrinsic::Exp,
        Intrinsic::Log,
        Intrinsic::Tanh,
        Intrinsic::Erf,
        Intrinsic::Sigmoid,
        Intrinsic::Abs,
        Intrinsic::Sin,
        Intrinsic::Cos,
        Intrinsic::Tan,
        Intrinsic::Atan,
        Intrinsic::Asin,
        Intrinsic::Acos,
        Intrinsic::Sinh,
        Intrinsic::Cosh,
        Intrinsic::Asinh,
        Intrinsic::Acosh,
        Intrinsic::Atanh,
    ];
    for intrinsic in exact.into_iter().chain(close) {
        let func = elementwise(intrinsic, DType::F32, inputs.len());
        for target in runnable_levels() {
            let buffers = run(&func, &args, &target);
            for (x, y) in inputs.iter().zip(f32_values(&buffers[1])) {
                let bits = scalar::call(intrinsic, DType::F32, &[u64::from(x.to_bits())]);
                let expected = f32::from_bits(bits.unwrap() as u32);
                let name = intrinsic.name();
                assert_eq!(y.is_nan(), expected.is_nan(), "{name}({x:e}) = {y:e}");
                if y.is_nan() {
                    continue;
                }
                assert_eq!(
                    y.is_sign_negative(),
                    expected.is_sign_negative(),
                    "{name}({x:e}) = {y:e}"
                );
                let tolerance = if exact.contains(&intrinsic) {
                    0.0
                } else {
                    expected.abs() * 1e-6 + f32::MIN_POSITIVE
                };
                assert!(
                    y == expected || (y - expected).abs() <= tolerance,
                    "{name}({x:e}) = {y:e}, {expected:e} is right, on {:?}",
                    target.cpu
                );
            }
        }
    }
}

#[test]
fn powers_without_a_library_function_are_right_to_two_units_in_the_last_place() {
    let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, 1.0, -1.0];
    let others = (0..200).map(|i| f32::from_bits(0x3000_0001 + i * 0x0018_0b0d));
    let values: Vec<f32> = others.flat_map(|x| [x, -x]).chain(special).collect();
    let extent = values.len() as i64;
    let args = [f32_bytes(values.iter().copied()), vec![0; 4 * values.len()]];
    for exponent in [1.0, 2.0, 3.0, 4.0, -1.0, 0.5, -0.5, 0.75] {
        let mut func = PrimFuncData::new("power");
        let x = func.input("x", DType::F32, BufferSpec::dense(&[extent]));
        let y = func.output("y", DType::F32, BufferSpec::dense(&[extent]));
        func.body = func.for_("i", extent, ForKind::Vectorized, |f, i| {
            let power = f.load(x, [i.clone()]).pow(PrimExpr::f32(exponent as f32));
            f.store(y, [i], power)
        });
        let func = PrimFunc::new(func);
        for target in runnable_levels() {
            let results = check_level(&func, &[], &args, &target, Denormals::Keep);
            for (x, y) in values.iter().zip(f32_values(&results[1])) {
                let right = f64::from(*x).powf(exponent);
                let what = format!("{x:e}^{exponent} = {y:e}, not {right:e}, on {:?}", target.cpu);
                assert_eq!(y.is_nan(), right.is_nan(), "{what}");
                if right.is_nan() {
                    continue;
                }
                assert_eq!(y.is_sign_negative(), right.is_sign_negative(), "{what}");
                let close = (f64::from(y) - right).abs() <= 2.0 * ulp(right);
                assert!(f64::from(y) == right || close || right.abs() > f32::MAX.into(), "{what}");
            }
        }
    }
}

#[test]
fn powers_with_any_exponent_are_rounded_once() {
    let special = [0.0, 1.0, 2.0, 3.0, 0.5, 1.5, 7.0, 16_777_217.0, 3.3e9, 1e-40, f32::INFINITY];
    let special: Vec<f32> = special.into_iter().flat_map(|x| [x, -x]).chain([f32::NAN]).collect();
    let pairs_of_special = special.iter().flat_map(|&x| special.iter().map(move |&y| (x, y)));
    // Bases of all sizes, with exponents whose results are no zeros and no infinities, and bases near 1.
    let others = (1..4000).map(|i| {
        let x = f32::from_bits(i * 0x0007_f3a1);
        (x, (f64::from(i * 7919 % 277) - 150.5) as f32 / x.log2())
    });
    let near_one = (1..1000).map(|i| {
        let x = 1.0 + (f64::from(i) - 500.5) as f32 * 1e-6;
        (x, (f64::from(i * 6841 % 277) - 150.5) as f32 / x.log2())
    });
    let pairs = pairs_of_special.chain(others).chain(near_one);
    let (xs, ys): (Vec<f32>, Vec<f32>) = pairs.unzip();
    let extent = xs.len() as i64;
    let args = [f32_bytes(xs.clone()), f32_bytes(ys.clone()), vec![0; 4 * xs.len()]];
    let mut func = PrimFuncData::new("power");
    let [x, y] = ["x", "y"].map(|name| func.input(name, DType::F32, BufferSpec::dense(&[extent])));
    let z = func.output("z", DType::F32, BufferSpec::dense(&[extent]));
    func.body = func.for_("i", extent, ForKind::Vectorized, |f, i| {
        let power = f.load(x, [i.clone()]).pow(f.load(y, [i.clone()]));
        f.store(z, [i], power)
    });
    let func = PrimFunc::new(func);
    for target in runnable_levels() {
        check_level(&func, &[], &args, &target, Denormals::Flush);
        let results = check_level(&func, &[], &args, &target, Denormals::Keep);
        let mut worst = 0.0_f64;
        for ((x, y), z) in xs.iter().zip(&ys).zip(f32_values(&results[2])) {
            let right = f64::from(*x).powf(f64::from(*y));
            let what = format!("{x:e}^{y:e} = {z:e}, not {right:e}, on {:?}", target.cpu);
            assert_eq!(z.is_nan(), right.is_nan(), "{what}");
            if right.is_nan() || z == right as f32 {
                assert!(
                    right.is_nan() || z.is_sign_negative() == right.is_sign_negative(),
                    "{what}"
                );
                continue;
            }
            let error = (f64::from(z) - right).abs() / ulp(right);
            assert!(error <= 0.51, "{what}: {error} ulp");
            worst = worst.max(error);
        }
        eprintln!("pow on {:?}: {worst:.4} ulp", target.cpu);
    }
}

#[test]
fn the_interpreter_and_the_compiler_agree_on_polynomials() {
    let inputs: Vec<f32> = (0..400).map(|i| f32::from_bits(i * 10_737_419)).collect();
    let polynomials = [
        Intrinsic::Exp,
        Intrinsic::Log,
        Intrinsic::Tanh,
        Intrinsic::Sigmoid,
        Intrinsic::Atan,
        Intrinsic::Asin,
        Intrinsic::Acos,
        Intrinsic::Sin,
        Intrinsic::Cos,
        Intrinsic::Tan,
        Intrinsic::Sinh,
        Intrinsic::Cosh,
        Intrinsic::Asinh,
        Intrinsic::Acosh,
        Intrinsic::Atanh,
    ];
    for intrinsic in polynomials {
        let func = elementwise(intrinsic, DType::F32, inputs.len());
        let args = [f32_bytes(inputs.iter().copied()), vec![0; inputs.len() * 4]];
        for target in runnable_levels() {
            check_level(&func, &[], &args, &target, Denormals::Keep);
        }
    }
}

/// Numbers that are not large are reduced in less time, unless others of their vector are large.
#[test]
fn sines_are_the_same_whatever_is_beside_them() {
    let near = || (0..512).map(|i| f32::from_bits(0x3a00_0001 + i * 0x0002_c4a3));
    let beside = |other: f32| near().flat_map(move |x| [x, other]).collect::<Vec<f32>>();
    for intrinsic in [Intrinsic::Sin, Intrinsic::Cos, Intrinsic::Tan] {
        let func = elementwise(intrinsic, DType::F32, 1024);
        for target in runnable_levels() {
            let values = |other: f32| {
                let args = [f32_bytes(beside(other)), vec![0; 4096]];
                let values = f32_values(&run(&func, &args, &target)[1]);
                values.into_iter().step_by(2).map(f32::to_bits).collect::<Vec<u32>>()
            };
            let alone = values(1.0);
            for other in [1_048_576.0, 3e9, 1e30, f32::INFINITY, f32::NAN] {
                assert_eq!(
                    values(other),
                    alone,
                    "{intrinsic:?} beside {other} on {:?}",
                    target.cpu
                );
            }
        }
    }
}

#[test]
fn double_precision_uses_the_library() {
    let inputs = [-3.0f64, -0.25, 0.0, 0.5, 1.0, 40.0];
    let bytes: Vec<u8> = inputs.iter().flat_map(|x| x.to_le_bytes()).collect();
    for intrinsic in [Intrinsic::Exp, Intrinsic::Tanh, Intrinsic::Sigmoid, Intrinsic::Floor] {
        let func = elementwise(intrinsic, DType::F64, inputs.len());
        for target in runnable_levels() {
            let args = [bytes.clone(), vec![0; bytes.len()]];
            let results = check_level(&func, &[], &args, &target, Denormals::Keep);
            for (x, y) in inputs.iter().zip(results[1].as_chunks::<8>().0) {
                let expected = scalar::call(intrinsic, DType::F64, &[x.to_bits()]).unwrap();
                let (y, expected) = (f64::from_le_bytes(*y), f64::from_bits(expected));
                assert!((y - expected).abs() <= expected.abs() * 1e-15, "{x} {y} {expected}");
            }
        }
    }
}

/// The greater of `|x|` and zero, or NaN: what LLVM 19 takes for `x` where it may look behind
/// `|x|`.
#[test]
fn magnitudes_of_negative_numbers_are_greater_than_zero() {
    let inputs = [-2.0, -0.0, 0.0, 3.0, f32::NAN, f32::NEG_INFINITY, -1e-30, 1.0];
    let mut func = PrimFuncData::new("magnitude");
    let x = func.input("x", DType::F32, BufferSpec::dense(&[8]));
    let y = func.output("y", DType::F32, BufferSpec::dense(&[8]));
    func.body = func.for_("i", 8, ForKind::Serial, |f, i| {
        let magnitude = PrimExpr::call(Intrinsic::Abs, f.load(x, [i.clone()]));
        let is_nan = magnitude.clone().not_equal(magnitude.clone());
        let greater = magnitude.clone().max(PrimExpr::f32(0.0));
        f.store(y, [i], PrimExpr::select(is_nan, magnitude, greater))
    });
    for target in runnable_levels() {
        let func = PrimFunc::new(func.clone());
        let results = run(&func, &[f32_bytes(inputs), vec![0; 32]], &target);
        let expected: Vec<f32> = inputs.iter().map(|x| x.abs()).collect();
        let found = f32_values(&results[1]);
        for (found, expected) in found.iter().zip(&expected) {
            assert!(
                found == expected || (found.is_nan() && expected.is_nan()),
                "{found} {expected}"
            );
        }
    }
}
