//! Tests of the replacement of data types, against the host's conversions of every code.

use super::*;
use crate::ir::BufferSpec;
use crate::ir::small_float::{PowerRounding, SmallFloat, encode_e8m0};
use crate::pass::Pass;
use crate::tir::{ForKind, PrimFuncData, interpret, scalar, verify};

/// A function that converts each element of `x` to the type of `y`.
fn conversion(from: DType, to: DType, count: i64) -> PrimFunc {
    let mut func = PrimFuncData::new("convert");
    let x = func.input("x", from, BufferSpec::dense(&[count]));
    let y = func.output("y", to, BufferSpec::dense(&[count]));
    func.body = func.for_("i", count, ForKind::Serial, |func, i| {
        let value = func.load(x, [i.clone()]).cast(to);
        func.store(y, [i], value)
    });
    PrimFunc::new(func)
}

/// Runs a function of one input and one output after the replacement.
fn run(func: PrimFunc, input: Vec<u8>, output_bytes: usize) -> Vec<u8> {
    verify(&func).unwrap();
    let legal = UnsupportedDtypeLegalize.run_on_prim_func(func, &PassContext::default()).unwrap();
    verify(&legal).unwrap();
    assert!(!Types { chosen: is_unsupported }.are_mentioned(&legal));
    let mut args = [input, vec![0xaa; output_bytes]];
    interpret(&legal, &mut args, &[]).unwrap();
    let [_, output] = args;
    output
}

fn small_floats() -> impl Iterator<Item = DType> {
    DType::all().filter(|dtype| dtype.is_float() && (8..=16).contains(&dtype.bits()))
}

/// The bytes of codes of a type of 8 or 16 bits.
fn code_bytes(dtype: DType, codes: impl Iterator<Item = u64>) -> Vec<u8> {
    let width = dtype.bits() as usize / 8;
    codes.flat_map(|code| code.to_le_bytes().into_iter().take(width)).collect()
}

#[test]
fn every_code_becomes_its_value() {
    for dtype in small_floats() {
        let count = 1u64 << dtype.bits();
        let input = code_bytes(dtype, 0..count);
        let output = run(conversion(dtype, DType::F32, count as i64), input, count as usize * 4);
        for (code, bytes) in (0..count).zip(output.chunks_exact(4)) {
            let found = f32::from_le_bytes(bytes.try_into().unwrap());
            let expected = scalar::float_value(code, dtype).unwrap() as f32;
            let same = found.to_bits() == expected.to_bits();
            assert!(same || (found.is_nan() && expected.is_nan()), "{dtype} {code:#x}: {found}");
        }
    }
}

/// Numbers around every code of a type, and some far from all of them.
fn probes(dtype: DType) -> Vec<f64> {
    let mut values = vec![0.0, f64::INFINITY, f64::NAN, 1e30, 1e-40, 3e-39, f64::from(f32::MAX)];
    let step = if dtype.bits() == 16 { 37 } else { 1 };
    for code in (0..1u64 << dtype.bits()).step_by(step) {
        let value = scalar::float_value(code, dtype).unwrap().abs();
        let next = scalar::float_value(code + 1, dtype).unwrap_or(value).abs();
        let middle = (value + next) / 2.0;
        for near in [value, middle] {
            values.extend([near, near * (1.0 - 1e-7), near * (1.0 + 1e-7)]);
        }
    }
    let negative: Vec<f64> = values.iter().map(|v| -v).collect();
    values.extend(negative);
    values
}

fn check_rounding(from: DType, dtype: DType, values: &[f64], input: Vec<u8>) {
    let count = values.len();
    let width = dtype.bits() as usize / 8;
    let output = run(conversion(from, dtype, count as i64), input, count * width);
    for (&value, bytes) in values.iter().zip(output.chunks_exact(width)) {
        let found = bytes.iter().rev().fold(0u64, |code, &byte| code << 8 | u64::from(byte));
        let expected = match SmallFloat::of(dtype) {
            Some(format) => u64::from(format.encode(value)),
            None => encode_e8m0(value as f32, PowerRounding::Nearest, false).into(),
        };
        let number = |code| scalar::float_value(code, dtype).unwrap();
        let both_nan = number(found).is_nan() && number(expected).is_nan();
        assert!(found == expected || both_nan, "{value:e} as {dtype}: {found:#x}, {expected:#x}");
    }
}

#[test]
fn numbers_round_to_nearest_even_and_overflow_as_the_format_says() {
    for dtype in small_floats() {
        let values: Vec<f64> = probes(dtype).into_iter().map(|v| f64::from(v as f32)).collect();
        let input = values.iter().flat_map(|v| (*v as f32).to_le_bytes()).collect();
        check_rounding(DType::F32, dtype, &values, input);
    }
}

#[test]
fn wide_numbers_are_rounded_once() {
    for dtype in small_floats().filter(|dtype| *dtype != DType::F8E8M0) {
        let mut values = probes(dtype);
        // Just beside a tie: if rounded to 32 bits first, it would become the tie.
        let tie = 1.0 + scalar::float_value(1, DType::F16).unwrap();
        values.extend([1.0 + 2f64.powi(-11) + 2f64.powi(-40), 1.0 + 2f64.powi(-8), tie]);
        let input = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        check_rounding(DType::F64, dtype, &values, input);
    }
}

#[test]
fn sums_in_registers_keep_their_precision() {
    let mut func = PrimFuncData::new("sum");
    let x = func.input("x", DType::F16, BufferSpec::dense(&[4096]));
    let y = func.output("y", DType::F16, BufferSpec::dense(&[1]));
    let sum = func.register("sum", DType::F16, &[1]);
    let first = func.store(sum, [0], PrimExpr::zero(DType::F16));
    let step = func.serial("i", 4096, |func, i| {
        let value = func.load(sum, [0]) + func.load(x, [i]);
        func.store(sum, [0], value)
    });
    let last = func.store(y, [0], func.load(sum, [0]));
    func.body = Stmt::allocate(sum, Stmt::seq([first, step, last]));
    let ones = half::f16::ONE.to_le_bytes().repeat(4096);
    // In 16 bits the sum would stop growing at 2048.
    let output = run(PrimFunc::new(func), ones, 2);
    assert_eq!(half::f16::from_le_bytes([output[0], output[1]]).to_f32(), 4096.0);
}

#[test]
fn casts_to_narrow_integers_wrap() {
    let narrow = |from: DType, to: DType, input: Vec<u8>, count: i64| {
        let byte = if to.is_signed_int() { DType::I8 } else { DType::U8 };
        let mut func = PrimFuncData::new("narrow");
        let x = func.input("x", from, BufferSpec::dense(&[count]));
        let y = func.output("y", byte, BufferSpec::dense(&[count]));
        func.body = func.serial("i", count, |func, i| {
            let value = func.load(x, [i.clone()]).cast(to).cast(byte);
            func.store(y, [i], value)
        });
        run(PrimFunc::new(func), input, count as usize)
    };
    let floats: Vec<u8> =
        [-300.0f32, -2.5, 1.9, 7.5, 99.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    let signed = |bytes: Vec<u8>| bytes.into_iter().map(|b| b as i8).collect::<Vec<_>>();
    assert_eq!(signed(narrow(DType::F32, DType::I4, floats.clone(), 5)), [4, -2, 1, 7, 3]);
    assert_eq!(narrow(DType::F32, DType::U2, floats, 5), [0, 2, 1, 3, 3]);
    assert_eq!(signed(narrow(DType::I8, DType::I2, vec![0, 1, 2, 3, 0xff], 5)), [0, 1, -2, -1, -1]);
    assert_eq!(narrow(DType::I8, DType::U4, vec![16, 17, 0xff], 3), [0, 1, 15]);
}

#[test]
fn rounding_casts_round_and_bits_are_handed_on_as_they_are() {
    let mut func = PrimFuncData::new("f");
    let x = func.input("x", DType::F8E5M2, BufferSpec::dense(&[1]));
    let y = func.output("y", DType::F8E5M2, BufferSpec::dense(&[2]));
    let value = func.load(x, [0]);
    let tenth = PrimExpr::f32(0.1).cast(DType::F16).cast(DType::F32);
    func.body = Stmt::seq([
        func.store(y, [0], value),
        func.store(y, [1], (tenth * PrimExpr::f32(10.0)).cast(DType::F8E5M2)),
    ]);
    // A NaN with other bits than the usual one.
    assert_eq!(run(PrimFunc::new(func), vec![0xfe], 2), [0xfe, 0x3c]);
}

#[test]
fn functions_of_supported_types_are_left_as_they_are() {
    let func = conversion(DType::I32, DType::F32, 4);
    let legal = UnsupportedDtypeLegalize.run_on_prim_func(func.clone(), &PassContext::default());
    assert!(legal.unwrap().same(&func));
}

/// A sum in a register, rounded and stored, with bit casts and constants.
fn everything(dtype: DType) -> PrimFunc {
    let mut func = PrimFuncData::new("everything");
    let x = func.input("x", dtype, BufferSpec::dense(&[8]));
    let y = func.output("y", dtype, BufferSpec::dense(&[8]));
    let sum = func.register("sum", dtype, &[1]);
    let third = PrimExpr::float(scalar_third(dtype), dtype);
    let copy = func.store(y, [7], func.load(x, [7]));
    let clear = func.store(sum, [0], third.clone());
    let step = func.serial("i", 7, |func, i| {
        let scaled = func.load(x, [i.clone()]) * third.clone();
        let whole =
            func.load(x, [i.clone()]).reinterpret(DType::U16) + PrimExpr::int(1, DType::U16);
        let value = func.let_expr("v", scaled.clone() + whole.reinterpret(dtype), |_, v| {
            v.clone() * v.cast(DType::F32).cast(dtype)
        });
        let add = func.store(sum, [0], func.load(sum, [0]) + value);
        Stmt::seq([add, func.store(y, [i], func.load(sum, [0]))])
    });
    func.body = Stmt::allocate(sum, Stmt::seq([clear, step, copy]));
    PrimFunc::new(func)
}

/// The number of a type nearest to a third.
fn scalar_third(dtype: DType) -> f64 {
    let bits = scalar::float_bits(1.0 / 3.0, dtype).unwrap();
    scalar::float_value(bits, dtype).unwrap()
}

#[test]
fn separate_compute_and_storage_passes_equal_one_sweep() {
    use crate::tir::transform::{
        Bf16ComputeLegalize, Bf16StorageLegalize, Fp16ComputeLegalize, Fp16StorageLegalize,
    };
    let passes: [(DType, DType, &dyn Pass, &dyn Pass); 2] = [
        (DType::BF16, DType::F16, &Bf16ComputeLegalize, &Bf16StorageLegalize),
        (DType::F16, DType::BF16, &Fp16ComputeLegalize, &Fp16StorageLegalize),
    ];
    let cx = PassContext::default();
    for (dtype, other, compute, storage) in passes {
        let func = everything(dtype);
        verify(&func).unwrap();
        let computed = compute.run_on_prim_func(func.clone(), &cx).unwrap();
        verify(&computed).unwrap();
        assert!(computed.vars.values().all(|var| var.ty.dtype != dtype));
        assert!(computed.buffers.values().any(|buffer| buffer.dtype == dtype));
        let stored = storage.run_on_prim_func(computed, &cx).unwrap();
        verify(&stored).unwrap();
        let swept = UnsupportedDtypeLegalize.run_on_prim_func(func, &cx).unwrap();
        assert_eq!(stored.to_string(), swept.to_string());
        for pass in [compute, storage] {
            let untouched = everything(other);
            assert!(pass.run_on_prim_func(untouched.clone(), &cx).unwrap().same(&untouched));
        }
    }
}
