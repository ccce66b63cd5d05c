//! Operators on integers in vectors, and conversions to them and from them, against the interpreter.

use super::check;
use crate::ir::{BufferSpec, DType};
use crate::tir::{BinaryOp, ForKind, PrimExpr, PrimFunc, PrimFuncData, Stmt};

/// Numbers of a type at which something goes wrong if it does.
fn numbers(dtype: DType) -> Vec<i64> {
    let (low, high) = dtype.int_range().unwrap();
    let (low, high) = (low as i64, high as u64 as i64);
    let mut numbers = vec![low, low + 1, low / 3, high, high.wrapping_sub(1), high / 3, 0, 1, 2, 7];
    if dtype.is_signed_int() {
        numbers.extend([-1, -2, -7, -100]);
    }
    numbers
}

fn bytes(dtype: DType, numbers: impl IntoIterator<Item = i64>) -> Vec<u8> {
    let size = dtype.bytes().unwrap();
    numbers.into_iter().flat_map(|number| number.to_le_bytes()[..size].to_vec()).collect()
}

/// All pairs of some numbers, by every operator in a function of its own.
fn check_pairs(ops: &[BinaryOp], dtype: DType, left: &[i64], right: &[i64]) {
    let len = left.len() * right.len();
    for &op in ops {
        let mut func = PrimFuncData::new("pairs");
        let [x, y] =
            ["x", "y"].map(|name| func.input(name, dtype, BufferSpec::dense(&[len as i64])));
        let z = func.output("z", dtype, BufferSpec::dense(&[len as i64]));
        func.body = func.for_("i", len as i64, ForKind::Vectorized, |f, i| {
            let value = PrimExpr::binary(op, f.load(x, [i.clone()]), f.load(y, [i.clone()]));
            f.store(z, [i], value)
        });
        let fill = |position: usize, _: usize| {
            let pairs = left.iter().flat_map(|l| right.iter().map(move |r| [*l, *r]));
            bytes(dtype, pairs.map(|pair| pair[position]))
        };
        check(&PrimFunc::new(func), &[], &fill, 0.0);
    }
}

const INTEGERS: [DType; 8] =
    [DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::U32, DType::I64, DType::U64];

#[test]
fn quotients_and_remainders_by_zero_by_minus_one_and_of_the_ends() {
    let ops = [BinaryOp::Div, BinaryOp::Rem, BinaryOp::FloorDiv, BinaryOp::FloorMod];
    for dtype in INTEGERS {
        check_pairs(&ops, dtype, &numbers(dtype), &numbers(dtype));
    }
}

#[test]
fn quotients_of_neighbours_of_multiples_are_not_rounded_up() {
    for (dtype, most) in [(DType::I32, i64::from(i32::MAX)), (DType::U32, u32::MAX.into())] {
        let divisors = [3, 7, 65_537, 1 << 20, most / 2, most - 1];
        let near = |divisor: i64| {
            let multiple = most / divisor * divisor;
            [multiple - 1, multiple, (multiple + 1).min(most)]
        };
        let dividends: Vec<i64> = divisors.into_iter().flat_map(near).collect();
        check_pairs(&[BinaryOp::Div, BinaryOp::FloorMod], dtype, &dividends, &divisors);
    }
}

#[test]
fn shifts_by_any_amount() {
    for dtype in INTEGERS {
        let amounts = [0, 1, 5, 7, 8, 15, 16, 31, 32, 63, 64, 100, -1];
        check_pairs(&[BinaryOp::Shl, BinaryOp::Shr], dtype, &numbers(dtype), &amounts);
    }
}

#[test]
fn floats_become_integers_and_bool_by_saturating() {
    let values = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        0.0,
        -0.0,
        0.75,
        -1.9,
        2_147_483_520.0,
        2_147_483_648.0,
        -2_147_483_648.0,
        4_294_967_296.0,
        9.223_371_5e18,
        9.223_372e18,
        -9.223_372e18,
        1.844_674_4e19,
        3e38,
        -3e38,
        1e-40,
    ];
    let len = values.len() * 2 + 1;
    for dtype in INTEGERS.into_iter().chain([DType::Bool]) {
        let mut func = PrimFuncData::new("convert");
        let spec = BufferSpec::dense(&[len as i64]);
        let x = func.input("x", DType::F32, spec.clone());
        let y = func.output("y", dtype, spec.clone());
        let z = func.output("z", DType::F32, spec);
        func.body = func.for_("i", len as i64, ForKind::Vectorized, |f, i| {
            let value = f.load(x, [i.clone()]).cast(dtype);
            let back = f.store(z, [i.clone()], value.clone().cast(DType::F32));
            Stmt::seq([f.store(y, [i], value), back])
        });
        let fill = |_: usize, _: usize| super::f32_bytes(values.into_iter().cycle().take(len));
        check(&PrimFunc::new(func), &[], &fill, 0.0);
    }
}

#[test]
fn integers_become_bool_and_bool_numbers() {
    for dtype in INTEGERS {
        let numbers: Vec<i64> = numbers(dtype).into_iter().cycle().take(53).collect();
        let mut func = PrimFuncData::new("convert");
        let spec = BufferSpec::dense(&[53]);
        let x = func.input("x", dtype, spec.clone());
        let [y, z] = [("y", DType::Bool), ("z", dtype)]
            .map(|(name, dtype)| func.output(name, dtype, spec.clone()));
        func.body = func.for_("i", 53, ForKind::Vectorized, |f, i| {
            let value = f.load(x, [i.clone()]).cast(DType::Bool);
            let back = f.store(z, [i.clone()], value.clone().cast(dtype));
            Stmt::seq([f.store(y, [i], value), back])
        });
        let fill = |_: usize, _: usize| bytes(dtype, numbers.iter().copied());
        check(&PrimFunc::new(func), &[], &fill, 0.0);
    }
}
