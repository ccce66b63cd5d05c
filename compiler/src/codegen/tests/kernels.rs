//! Typical kernels of schedules.

use super::{check, check_level, f32_bytes, f32_values, small_floats};
use crate::codegen::STACK_BYTES;
use crate::codegen::c::generate;
use crate::codegen::kernel::Locals;
use crate::codegen::testing::runnable_levels;
use crate::ir::{BufferSpec, DType};
use crate::options::Denormals;
use crate::target::Target;
use crate::tir::{
    BinaryOp, ForKind, Intrinsic, PrimExpr, PrimFunc, PrimFuncData, Stmt, UnaryOp, lower, parse,
    scalar,
};

#[test]
fn a_parallel_gelu_is_right_at_every_level() {
    let mut func = PrimFuncData::new("gelu");
    let x = func.input("x", DType::F32, BufferSpec::dense(&[4, 37]));
    let y = func.output("y", DType::F32, BufferSpec::dense(&[4, 37]));
    func.body = func.for_("i", 4, ForKind::Parallel, |f, i| {
        f.for_("j", 37, ForKind::Vectorized, |f, j| {
            let v = f.load(x, [i.clone(), j.clone()]);
            let half = v.clone() * PrimExpr::f32(0.5);
            let scaled = v * PrimExpr::f32(std::f32::consts::FRAC_1_SQRT_2);
            let value = half.clone() * PrimExpr::call(Intrinsic::Erf, scaled) + half;
            f.store(y, [i, j], value)
        })
    });
    let input = |_: usize, bytes: usize| f32_bytes((0..bytes / 4).map(|i| i as f32 / 10.0 - 7.0));
    let results = check(&PrimFunc::new(func), &[], &input, 2e-6);
    for (x, y) in f32_values(&results[0]).into_iter().zip(f32_values(&results[1])) {
        let x = f64::from(x);
        let expected = 0.5 * x * (1.0 + scalar::erf(x / 2f64.sqrt()));
        assert!((expected - f64::from(y)).abs() < 1e-6, "gelu({x}) = {y}");
    }
}

/// C[6, 32] = A[6, K] · B[K, 32], B packed in one panel, accumulators in registers.
#[test]
fn a_matrix_multiplication_tile_keeps_its_accumulators_in_registers() {
    const ROWS: i64 = 6;
    const COLS: i64 = 32;
    const DEPTH: i64 = 19;
    let mut func = PrimFuncData::new("gemm_tile");
    let a = func.input("a", DType::F32, BufferSpec::dense(&[ROWS, DEPTH]));
    let panel = BufferSpec::packed(&[DEPTH, COLS], &[(1, 32), (0, 1), (1, 1)]);
    let b = func.constant("b", DType::F32, panel);
    let c = func.output("c", DType::F32, BufferSpec::dense(&[ROWS, COLS]));
    let acc = func.register("acc", DType::F32, &[ROWS, COLS]);
    let tile =
        |f: &mut PrimFuncData,
         body: &mut dyn FnMut(&mut PrimFuncData, PrimExpr, PrimExpr) -> Stmt| {
            f.for_("i", ROWS, ForKind::Unrolled, |f, i| {
                f.for_("j", COLS, ForKind::Vectorized, |f, j| body(f, i, j))
            })
        };
    let clear = tile(&mut func, &mut |f, i, j| f.store(acc, [i, j], PrimExpr::f32(0.0)));
    let step = func.serial("k", DEPTH, |f, k| {
        let ahead = f.prefetch(b, [k.clone() + 8, PrimExpr::index(0)], 3);
        let update = tile(f, &mut |f, i, j| {
            let (a, b) = (f.load(a, [i.clone(), k.clone()]), f.load(b, [k.clone(), j.clone()]));
            let sum = f.load(acc, [i.clone(), j.clone()]);
            f.store(acc, [i, j], PrimExpr::mul_add(a, b, sum))
        });
        Stmt::seq([ahead, update])
    });
    let write = tile(&mut func, &mut |f, i, j| {
        let value = PrimExpr::f32(0.0).max(f.load(acc, [i.clone(), j.clone()]));
        f.store(c, [i, j], value)
    });
    func.body = Stmt::allocate(acc, Stmt::seq([clear, step, Stmt::block("relu", write)]));
    let func = PrimFunc::new(func);
    let results = check(&func, &[], &small_floats, 1e-5);

    let (a, b, c) = (f32_values(&results[0]), f32_values(&results[1]), f32_values(&results[2]));
    for i in 0..ROWS as usize {
        for j in 0..COLS as usize {
            let sum: f64 = (0..DEPTH as usize)
                .map(|k| f64::from(a[i * DEPTH as usize + k]) * f64::from(b[k * 32 + j]))
                .sum();
            assert!((f64::from(c[i * 32 + j]) - sum.max(0.0)).abs() < 1e-4);
        }
    }
    for target in runnable_levels() {
        let lowered = lower(func.clone(), &target).unwrap();
        let kernel = generate(&lowered, "tile", &target).unwrap();
        let locals = Locals::of(&lowered).unwrap();
        assert_eq!((locals.stack_bytes, locals.scratch_bytes), (0, 0));
        // Every accumulator is a variable, and no access of the buffer remains.
        assert!(!kernel.definition.contains("acc["), "{}", kernel.definition);
        assert_eq!(kernel.definition.contains("fma"), target.has_fma());
        assert!(kernel.definition.contains("__builtin_prefetch(&b[k * 32 + 256], 0, 3)"));
    }
}

/// A 3x3 convolution of 16 to 16 channels, NCHW16c with a halo on the input.
#[test]
fn a_blocked_convolution_reads_its_halo() {
    const SIZE: i64 = 5;
    let mut func = PrimFuncData::new("conv");
    let input = BufferSpec::nchwc(&[1, 16, SIZE, SIZE], 16, &[(1, 1), (1, 1)]);
    let x = func.input("x", DType::F32, input.clone());
    // OIHW as [KH][KW][I][O].
    let packed = BufferSpec::packed(&[16, 16, 3, 3], &[(2, 1), (3, 1), (1, 1), (0, 1)]);
    let w = func.constant("w", DType::F32, packed.clone());
    let output = BufferSpec::nchwc(&[1, 16, SIZE, SIZE], 16, &[]);
    let y = func.output("y", DType::F32, output.clone());
    let acc = func.register("acc", DType::F32, &[SIZE, 16]);
    let zero = || PrimExpr::index(0);
    func.body = func.serial("h", SIZE, |f, h| {
        let clear = f.for_("i", SIZE, ForKind::Unrolled, |f, i| {
            f.for_("o", 16, ForKind::Vectorized, |f, o| f.store(acc, [i, o], PrimExpr::f32(0.0)))
        });
        let taps = f.serial("kh", 3, |f, kh| {
            f.serial("kw", 3, |f, kw| {
                f.serial("c", 16, |f, c| {
                    f.for_("i", SIZE, ForKind::Unrolled, |f, i| {
                        f.for_("o", 16, ForKind::Vectorized, |f, o| {
                            let row = h.clone() + kh.clone() - 1;
                            let column = i.clone() + kw.clone() - 1;
                            let pixel = f.load(x, [zero(), c.clone(), row, column]);
                            let weight = f.load(w, [o.clone(), c.clone(), kh.clone(), kw.clone()]);
                            let sum = f.load(acc, [i.clone(), o.clone()]);
                            let sum = PrimExpr::mul_add(pixel, weight, sum);
                            f.store(acc, [i, o], sum)
                        })
                    })
                })
            })
        });
        let write = f.for_("i", SIZE, ForKind::Unrolled, |f, i| {
            f.for_("o", 16, ForKind::Vectorized, |f, o| {
                let value = f.load(acc, [i.clone(), o.clone()]);
                f.store(y, [zero(), o, h.clone(), i], value)
            })
        });
        Stmt::allocate(acc, Stmt::seq([clear, taps, write]))
    });
    let dense_x = small_floats(1, 16 * 25 * 4);
    let dense_w = small_floats(2, 16 * 16 * 9 * 4);
    let fill = |position: usize, _: usize| match position {
        0 => input.pack(&dense_x, DType::F32).unwrap(),
        _ => packed.pack(&dense_w, DType::F32).unwrap(),
    };
    let results = check(&PrimFunc::new(func), &[], &fill, 1e-4);

    let (x, w) = (f32_values(&dense_x), f32_values(&dense_w));
    let y = f32_values(&output.unpack(&results[2], DType::F32).unwrap());
    let mut element = 0;
    for o in 0..16 {
        for row in 0..SIZE {
            for column in 0..SIZE {
                let mut sum = 0.0;
                for c in 0..16 {
                    for (kh, kw) in (0..3).flat_map(|kh| (0..3).map(move |kw| (kh, kw))) {
                        let (h, v) = (row + kh - 1, column + kw - 1);
                        if (0..SIZE).contains(&h) && (0..SIZE).contains(&v) {
                            let pixel = x[(c * SIZE * SIZE + h * SIZE + v) as usize];
                            let weight = w[(((o * 16 + c) * 3 + kh) * 3 + kw) as usize];
                            sum += f64::from(pixel) * f64::from(weight);
                        }
                    }
                }
                assert!((f64::from(y[element]) - sum).abs() < 1e-3);
                element += 1;
            }
        }
    }
}

/// Softmax over rows of a length that is a dimension of the call.
#[test]
fn reductions_scratch_and_dimensions() {
    let mut func = PrimFuncData::new("softmax");
    let x = func.input("x", DType::F32, BufferSpec::dense(&[4, 24]));
    let y = func.output("y", DType::F32, BufferSpec::dense(&[4, 24]));
    // A buffer too large for the stack, and a small one.
    let row = func.local("row", DType::F32, BufferSpec::dense(&[461]));
    let total = func.local("total", DType::F32, BufferSpec::dense(&[1]));
    let n = func.dim("n");
    func.body = func.for_("i", n, ForKind::Parallel, |f, i| {
        let four = |f: &PrimFuncData, buffer, i: Option<PrimExpr>, j: i64| match i {
            Some(i) => f.load(buffer, [i, PrimExpr::ramp(PrimExpr::index(j * 4), 1, 4)]),
            None => f.load(buffer, [PrimExpr::ramp(PrimExpr::index(j * 80), 20, 4)]),
        };
        let largest = (0..6)
            .map(|j| four(f, x, Some(i.clone()), j))
            .reduce(|a, b| a.max(b))
            .unwrap()
            .vector_reduce(BinaryOp::Max);
        let body = f.let_stmt("largest", largest, |f, largest| {
            let exps = f.for_("j", 24, ForKind::Vectorized, |f, j| {
                let shifted = f.load(x, [i.clone(), j.clone()]) - largest.clone();
                f.store(row, [j * 20], PrimExpr::call(Intrinsic::Exp, shifted))
            });
            let sums = (0..6)
                .map(|j| four(f, row, None, j).vector_reduce(BinaryOp::Add))
                .reduce(|a, b| a + b)
                .unwrap();
            let sum = f.store(total, [0], sums);
            let divide = f.for_("j", 24, ForKind::Vectorized, |f, j| {
                let value = f.load(row, [j.clone() * 20]) / f.load(total, [0]);
                f.store(y, [i.clone(), j], value)
            });
            Stmt::seq([exps, sum, divide])
        });
        Stmt::allocate(row, Stmt::allocate(total, body))
    });
    let func = PrimFunc::new(func);
    let results = check(&func, &[4], &small_floats, 1e-6);
    for row in f32_values(&results[1]).chunks(24) {
        assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5);
    }
    let target = Target::host();
    let lowered = lower(func, &target).unwrap();
    let locals = Locals::of(&lowered).unwrap();
    assert_eq!(locals.scratch_bytes, (461u64 * 4).next_multiple_of(64));
    assert!(locals.stack_bytes <= STACK_BYTES && locals.stack_bytes == 64);
    let kernel = generate(&lowered, "softmax", &target).unwrap();
    assert!(kernel.definition.contains("float *restrict y, i64 n) {"), "{}", kernel.definition);
}

#[test]
fn masks_gathers_and_scatters() {
    let mut func = PrimFuncData::new("masks");
    let x = func.input("x", DType::F32, BufferSpec::dense(&[64]));
    let flags = func.output("flags", DType::Bool, BufferSpec::dense(&[16]));
    let spread = func.output("spread", DType::F32, BufferSpec::dense(&[32]));
    let counts = func.output("counts", DType::I64, BufferSpec::dense(&[4]));
    let gathered = |f: &PrimFuncData, lanes: u32| f.load(x, [PrimExpr::ramp(3.into(), 5, lanes)]);
    let mask = gathered(&func, 4)
        .greater(PrimExpr::f32(0.0))
        .and(!gathered(&func, 4).less(PrimExpr::f32(-1.0)));
    let from_memory = func.load(flags, [PrimExpr::ramp(0.into(), 1, 4)]);
    let both = PrimExpr::select(from_memory, gathered(&func, 4), -gathered(&func, 4));
    func.body = Stmt::seq([
        func.store(flags, [PrimExpr::ramp(0.into(), 1, 4)], mask.clone()),
        func.store(flags, [PrimExpr::index(4)], mask.clone().lane(2)),
        func.store(spread, [PrimExpr::ramp(1.into(), 4, 4)], both),
        func.store(counts, [PrimExpr::index(0)], mask.lane(1).cast(DType::I64)),
        func.store(counts, [PrimExpr::ramp(1.into(), 1, 2)], PrimExpr::ramp(7.into(), -3, 2)),
    ]);
    check(&PrimFunc::new(func), &[], &small_floats, 0.0);
}

#[test]
fn kernels_that_c_cannot_express_are_errors_with_the_cause() {
    let target = Target::host();
    let mut func = PrimFuncData::new("f");
    let x = func.input("x", DType::F16, BufferSpec::dense(&[4]));
    let y = func.output("y", DType::F32, BufferSpec::dense(&[4]));
    let error = generate(&PrimFunc::new(func.clone()), "f", &target).unwrap_err();
    assert!(error.to_string().contains("`x`") && error.message.contains("float16"), "{error}");

    func.params.remove(0);
    let acc = func.register("acc", DType::F32, &[4]);
    func.body =
        func.serial("i", 4, |f, i| Stmt::allocate(acc, f.store(acc, [i], PrimExpr::f32(0.0))));
    let error = generate(&PrimFunc::new(func.clone()), "f", &target).unwrap_err();
    assert!(error.message.contains("unroll"), "{error}");

    func.body = func.store(y, [PrimExpr::ramp(0.into(), 1, 64)], PrimExpr::f32(0.0));
    let error = generate(&PrimFunc::new(func), "f", &target).unwrap_err();
    assert!(error.message.contains("2048 bits"), "{error}");
    let _ = x;
}

/// Statements that one side of a choice needs first are in an `if`, also if that side is a choice
/// itself.
#[test]
fn choices_inside_of_choices_keep_their_variables_apart() {
    let mut func = PrimFuncData::new("choices");
    let x = func.input("x", DType::F32, BufferSpec::dense(&[16]));
    let y = func.output("y", DType::F32, BufferSpec::dense(&[16]));
    func.body = func.serial("i", 16, |f, i| {
        let v = f.load(x, [i.clone()]);
        let square = f.let_expr("v", v.clone() + v.clone(), |_, w| w.clone() * w);
        let inner = PrimExpr::select(v.clone().less(PrimExpr::f32(0.5)), square, v.clone());
        let cube = f.let_expr("v", v.clone() * v.clone(), |_, w| w * v.clone());
        let chosen = PrimExpr::select(v.clone().greater(PrimExpr::f32(0.0)), inner, cube);
        f.store(y, [i], chosen)
    });
    let results = check(&PrimFunc::new(func), &[], &small_floats, 0.0);
    for (x, y) in f32_values(&results[0]).into_iter().zip(f32_values(&results[1])) {
        let expected = match x {
            _ if x <= 0.0 => x * x * x,
            _ if x < 0.5 => 4.0 * x * x,
            _ => x,
        };
        assert_eq!(expected, y);
    }
}

/// Loops of `int32`, one of them over workers, beside a dimension that is `int64`.
#[test]
fn narrow_loops_are_right_at_every_level() {
    let text = "prim_func @narrow(x: input float32[96], y: output float32[96], z: output float32[18], n: dim) {
      for i in parallel(int32(1), int32(5)) {
        for j in vectorized(int32(13)) {
          y[i * int32(16) + j] = x[i * int32(16) + j] * cast<float32>(i - j)
        }
        for j in serial(cast<int32>(min(n, 3))) {
          z[cast<int64>(i) * n + cast<int64>(j)] = x[floormod(i * int32(-7) + j, int32(16))] + 1.0
        }
      }
      for i in parallel(int32(4)) {
        y[int32(92) + i] = x[floordiv(i - int32(9), int32(3)) + int32(3)]
      }
    }";
    let input = |_: usize, bytes: usize| f32_bytes((0..bytes / 4).map(|i| i as f32 - 7.5));
    for n in [2, 3] {
        check(&parse(text).unwrap(), &[n], &input, 0.0);
    }
}

#[test]
fn zeros_keep_the_sign_that_the_operations_give_them() {
    let mut func = PrimFuncData::new("signs");
    let x = func.input("x", DType::F32, BufferSpec::dense(&[4]));
    let y = func.output("y", DType::F32, BufferSpec::dense(&[3]));
    let at = |func: &PrimFuncData, index: i64| func.load(x, [PrimExpr::index(index)]);
    // -(1 · 1 − 1) is −0, and the fraction −0.25 has the integer 0.
    let product = PrimExpr::mul_add(at(&func, 0), at(&func, 0), at(&func, 1));
    let whole = at(&func, 2).cast(DType::I32).cast(DType::F32);
    let values = [
        PrimExpr::unary(UnaryOp::Neg, product),
        whole,
        PrimExpr::unary(UnaryOp::Neg, at(&func, 3)),
    ];
    let stores = values.into_iter().enumerate();
    let stores: Vec<Stmt> = stores
        .map(|(place, value)| func.store(y, [PrimExpr::index(place as i64)], value))
        .collect();
    func.body = Stmt::Seq(stores);
    let args = [f32_bytes([1.0, -1.0, -0.25, 0.0]), vec![0; 12]];
    for target in runnable_levels() {
        let results =
            check_level(&PrimFunc::new(func.clone()), &[], &args, &target, Denormals::Keep);
        let bits: Vec<u32> = f32_values(&results[1]).into_iter().map(f32::to_bits).collect();
        assert_eq!(bits, [1 << 31, 0, 1 << 31], "{:?}", target.cpu);
    }
}
