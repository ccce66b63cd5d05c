//! Functions of two elements with numpy's broadcasting: arithmetic, logic and bits.
//!
//! Both arguments have one data type, which is also the result's; integer arithmetic wraps.

use std::iter;

use super::expr::{binary, negative};
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Dim, Type};
use crate::ops::compute::{Compute, Stages, broadcast};
use crate::ops::eval::{EvalCx, broadcast_strides, offsets};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern, values};
use crate::te::{ComputeDag, StageId, combined};
use crate::tir::{BinaryOp, CompareOp, PrimExpr};

/// The inputs of an operator of two arguments.
pub(super) const LHS_RHS: &[Input] = &[Input::required("lhs"), Input::required("rhs")];

fn infer(cx: &InferCx<'_>, dtypes: DTypes) -> Result<Type, TypeError> {
    cx.attrs::<()>()?;
    let (lhs, rhs) = (cx.tensor_of(0, dtypes)?, cx.tensor_of(1, dtypes)?);
    cx.same_dtype(0, 1)?;
    cx.result(cx.broadcast(&lhs.shape, &rhs.shape)?, lhs.dtype)
}

/// Applies a function to the elements that broadcasting brings together, in the result's order.
pub(super) fn zip_broadcast<T: Copy, R>(
    shape: &[usize],
    (a_shape, a): (&[usize], &[T]),
    (b_shape, b): (&[usize], &[T]),
    f: impl Fn(T, T) -> R,
) -> Vec<R> {
    if a_shape == b_shape {
        return iter::zip(a, b).map(|(&a, &b)| f(a, b)).collect();
    }
    let a_strides = broadcast_strides(a_shape, shape);
    let b_strides = broadcast_strides(b_shape, shape);
    iter::zip(offsets(shape, &a_strides, 0), offsets(shape, &b_strides, 0))
        .map(|(at, bt)| f(a[at], b[bt]))
        .collect()
}

fn eval(
    cx: &EvalCx<'_>,
    float: impl Fn(f64, f64) -> f64,
    int: impl Fn(i128, i128) -> Option<i128>,
) -> Result<Vec<Tensor>, EvalError> {
    let (a, b) = (cx.arg(0)?, cx.arg(1)?);
    let (a_shape, b_shape) = (a.shape(), b.shape());
    cx.result(match (a.elements(), b.elements()) {
        (Elements::Float(a), Elements::Float(b)) => {
            Elements::Float(zip_broadcast(cx.shape(), (a_shape, a), (b_shape, b), float))
        }
        _ => {
            let (a, b) = (cx.ints(0)?, cx.ints(1)?);
            let values = zip_broadcast(cx.shape(), (a_shape, a), (b_shape, b), int);
            let values: Option<Vec<i128>> = values.into_iter().collect();
            Elements::Int(values.ok_or_else(|| {
                EvalError::new(format!("`{}`: an integer result is not defined", cx.op().name))
            })?)
        }
    })
}

/// Defines operators: name in the text format, summary, data types, the function of floats and of
/// integers (`None` where it is not defined), the tensor expression, and the function of dimensions.
macro_rules! binary {
    ($(
        $(#[$doc:meta])*
        $op:ident = $name:literal, $summary:literal, $dtypes:ident,
        $float:expr, $int:expr, te: $te:expr $(, dims: $dims:expr)?;
    )*) => {$(
        $(#[$doc])*
        pub static $op: OpDef = OpDef::new(
            $name,
            $summary,
            LHS_RHS,
            |cx| infer(cx, DTypes::$dtypes),
            |cx| eval(cx, $float, $int),
            $te,
        )
        .pattern(OpPattern::Broadcast)
        $(.shape_value(|cx| values::zip(cx, $dims)))?;
    )*};
}

/// What the operators on booleans and bits do with floats, which their type relation refuses.
fn no_floats(_: f64, _: f64) -> f64 {
    f64::NAN
}

/// The greater, or NaN if either is.
pub(in crate::ops) fn maximum(a: f64, b: f64) -> f64 {
    if a.is_nan() || a > b { a } else { b }
}

/// The smaller, or NaN if either is.
pub(in crate::ops) fn minimum(a: f64, b: f64) -> f64 {
    if a.is_nan() || a < b { a } else { b }
}

/// `a` to the power of `b`, wrapping. Not defined for zero to a negative power.
fn int_power(a: i128, b: i128) -> Option<i128> {
    if b < 0 {
        // The reciprocal of an integer, truncated.
        return match a {
            0 => None,
            1 => Some(1),
            -1 => Some(if b % 2 == 0 { 1 } else { -1 }),
            _ => Some(0),
        };
    }
    let (mut result, mut square, mut exponent) = (1i128, a, b);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result.wrapping_mul(square);
        }
        square = square.wrapping_mul(square);
        exponent >>= 1;
    }
    Some(result)
}

/// A remainder of the divisor's sign.
fn float_floor_mod(a: f64, b: f64) -> f64 {
    let remainder = a % b;
    if remainder != 0.0 && (remainder < 0.0) != (b < 0.0) { remainder + b } else { remainder }
}

fn int_floor_mod(a: i128, b: i128) -> Option<i128> {
    let remainder = a.checked_rem(b)?;
    Some(if remainder != 0 && (remainder < 0) != (b < 0) { remainder + b } else { remainder })
}

/// Division of dimensions: of integers truncated, of floats where it is exact.
fn dim_divide(cx: &InferCx<'_>, a: &Dim, b: &Dim) -> Option<Dim> {
    let truncates = cx.tensor(0).is_ok_and(|ty| ty.dtype.is_int());
    if let (Some(a), Some(b)) = (a.as_const(), b.as_const()) {
        let exact = a.checked_rem(b)? == 0;
        return (truncates || exact).then(|| a.checked_div(b).map(Dim::from))?;
    }
    let quotient = a.floor_div(b);
    // An exact quotient is the same however it is rounded.
    if &quotient * b == *a {
        return Some(quotient);
    }
    let zero = Dim::from(0i64);
    if !truncates || cx.facts.prove_lt(&zero, b) != Some(true) {
        return None;
    }
    let negated = || (&zero - a).floor_div(b);
    Some(match (cx.facts.prove_le(&zero, a), cx.facts.prove_le(a, &zero)) {
        (Some(true), _) => quotient,
        (_, Some(true)) => &zero - &negated(),
        _ => quotient.maximum(&zero) - negated().maximum(&zero),
    })
}

fn dim_floor_mod(_: &InferCx<'_>, a: &Dim, b: &Dim) -> Option<Dim> {
    (b.as_const() != Some(0)).then(|| a.modulo(b))
}

binary! {
    /// `lhs + rhs`.
    ADD = "add", "sum", Numeric, |a, b| a + b, |a, b| Some(a + b),
        te: |cx| arithmetic(cx, BinaryOp::Add),
        dims: |_, a, b| Some(a + b);
    /// Bits set in both.
    BITWISE_AND = "bitwise_and", "bits set in both", Int, no_floats, |a, b| Some(a & b),
        te: |cx| arithmetic(cx, BinaryOp::And);
    /// Bits set in either.
    BITWISE_OR = "bitwise_or", "bits set in either", Int, no_floats, |a, b| Some(a | b),
        te: |cx| arithmetic(cx, BinaryOp::Or);
    /// Bits set in one of the two.
    BITWISE_XOR = "bitwise_xor", "bits set in exactly one", Int, no_floats, |a, b| Some(a ^ b),
        te: |cx| arithmetic(cx, BinaryOp::Xor);
    /// `lhs / rhs`; of integers truncated, as in ONNX, and not defined for a zero divisor.
    DIVIDE = "divide", "quotient; of integers truncated", Numeric,
        |a, b| a / b, |a, b| a.checked_div(b),
        te: |cx| arithmetic(cx, BinaryOp::Div),
        dims: dim_divide;
    /// The remainder that has the divisor's sign: ONNX `Mod` with `fmod = 0`.
    FLOOR_MOD = "floor_mod", "remainder of the divisor's sign", Numeric,
        float_floor_mod, int_floor_mod,
        te: compute_floor_mod,
        dims: dim_floor_mod;
    /// `lhs · 2^rhs`, without the bits that leave the type: ONNX `BitShift` with `LEFT`. Zero where
    /// `rhs` is at least the number of bits.
    LEFT_SHIFT = "left_shift", "bits moved up", Int, no_floats,
        |a, b| Some(if (0..64).contains(&b) { a << b } else { 0 }),
        te: |cx| arithmetic(cx, BinaryOp::Shl);
    /// True where both are.
    LOGICAL_AND = "logical_and", "true where both are", Bool, no_floats, |a, b| Some(a & b),
        te: |cx| arithmetic(cx, BinaryOp::And);
    /// True where either is.
    LOGICAL_OR = "logical_or", "true where either is", Bool, no_floats, |a, b| Some(a | b),
        te: |cx| arithmetic(cx, BinaryOp::Or);
    /// True where exactly one is.
    LOGICAL_XOR = "logical_xor", "true where exactly one is", Bool, no_floats, |a, b| Some(a ^ b),
        te: |cx| arithmetic(cx, BinaryOp::Xor);
    /// The greater; NaN where either is.
    MAXIMUM = "maximum", "the greater", Numeric, maximum, |a, b| Some(a.max(b)),
        te: |cx| binary(cx, |a, b| combined(BinaryOp::Max, a, b)),
        dims: |_, a, b| Some(a.maximum(b));
    /// The smaller; NaN where either is.
    MINIMUM = "minimum", "the smaller", Numeric, minimum, |a, b| Some(a.min(b)),
        te: |cx| binary(cx, |a, b| combined(BinaryOp::Min, a, b)),
        dims: |_, a, b| Some(a.minimum(b));
    /// The remainder that has the dividend's sign, as C's `fmod`: ONNX `Mod` with `fmod = 1`.
    MOD = "mod", "remainder of the dividend's sign", Numeric, |a, b| a % b, |a, b| a.checked_rem(b),
        te: |cx| arithmetic(cx, BinaryOp::Rem);
    /// `lhs · rhs`.
    MULTIPLY = "multiply", "product", Numeric, |a, b| a * b, |a, b| Some(a.wrapping_mul(b)),
        te: |cx| arithmetic(cx, BinaryOp::Mul),
        dims: |_, a, b| Some(a * b);
    /// `lhs` to the power of `rhs`. Of integers not defined for zero to a negative power.
    POWER = "power", "power", Numeric, f64::powf, int_power,
        te: compute_power;
    /// `lhs / 2^rhs`, rounded down: ONNX `BitShift` with `RIGHT`.
    RIGHT_SHIFT = "right_shift", "bits moved down", Int, no_floats,
        |a, b| Some(a >> u32::try_from(b).unwrap_or(127).min(127)),
        te: |cx| arithmetic(cx, BinaryOp::Shr);
    /// `lhs - rhs`.
    SUBTRACT = "subtract", "difference", Numeric, |a, b| a - b, |a, b| Some(a - b),
        te: |cx| arithmetic(cx, BinaryOp::Sub),
        dims: |_, a, b| Some(a - b);
}

fn arithmetic(cx: &mut Compute<'_>, op: BinaryOp) -> Stages {
    binary(cx, |a, b| PrimExpr::binary(op, a, b))
}

/// The remainder of the divisor's sign.
fn compute_floor_mod(cx: &mut Compute<'_>) -> Stages {
    let dtype = cx.dag.dtype(cx.arg(0)?);
    if !dtype.is_float() {
        return arithmetic(cx, BinaryOp::FloorMod);
    }
    let [remainder] = arithmetic(cx, BinaryOp::Rem)?[..] else { return Ok(Vec::new()) };
    let rhs = cx.arg(1)?;
    let (shape, _) = cx.result();
    cx.element(|dag, index| {
        let r = dag.at(remainder, index);
        let b = dag.at(rhs, &broadcast(dag.shape(rhs), &shape, index));
        let differs = PrimExpr::compare(CompareOp::Ne, negative(&r), negative(&b));
        let moved = r.clone().not_equal(PrimExpr::zero(r.ty())).and(differs);
        PrimExpr::select(moved, r.clone() + b, r)
    })
}

fn compute_power(cx: &mut Compute<'_>) -> Stages {
    let base = cx.dag.dtype(cx.arg(0)?);
    if !base.is_float() {
        return compute_int_power(cx);
    }
    binary(cx, |a, b| a.pow(b))
}

/// Squares and multiplies, wrapping. A negative exponent gives the truncated reciprocal, and 0 where
/// there is none.
fn compute_int_power(cx: &mut Compute<'_>) -> Stages {
    let (base, exponent) = (cx.arg(0)?, cx.arg(1)?);
    let (shape, dtype) = cx.result();
    let op = cx.op.name;
    let dag: &mut ComputeDag = cx.dag;
    let known = dag.constant_value(exponent).and_then(|value| value.as_int());
    let one = || PrimExpr::int(1, dtype);
    let exponent_at = |dag: &ComputeDag, index: &[PrimExpr]| {
        dag.at(exponent, &broadcast(dag.shape(exponent), &shape, index))
    };
    let bits = match known {
        Some(value) => u64::BITS - (value as u64).leading_zeros(),
        None => dtype.bits(),
    };
    let base = dag.compute(op, &shape, dtype, |dag, index| {
        dag.at(base, &broadcast(dag.shape(base), &shape, index))
    });
    let mut square = base;
    let mut product: Option<StageId> = None;
    for bit in 0..bits.min(dtype.bits()) {
        if bit > 0 {
            square = dag.compute(op, &shape, dtype, |dag, index| {
                let root = dag.at(square, index);
                root.clone() * root
            });
        }
        if known.is_some_and(|value| value >> bit & 1 == 0) {
            continue;
        }
        product = Some(dag.compute(op, &shape, dtype, |dag, index| {
            let factor = dag.at(square, index);
            let factor = match known {
                Some(_) => factor,
                // Without a branch, in which a square would be computed once more.
                None => {
                    let amount = PrimExpr::int(i64::from(bit), dtype);
                    let digit = PrimExpr::binary(BinaryOp::Shr, exponent_at(dag, index), amount);
                    digit.and(one()) * (factor - one()) + one()
                }
            };
            match product {
                Some(product) => dag.at(product, index) * factor,
                None => factor,
            }
        }));
    }
    cx.element(|dag, index| {
        let product = product.map_or(one(), |product| dag.at(product, index));
        if !dtype.is_signed_int() {
            return product;
        }
        let (a, b) = (dag.at(base, index), exponent_at(dag, index));
        let is_odd = b.clone().and(one()).equal(one());
        let zero = PrimExpr::int(0, dtype);
        let sign = PrimExpr::select(is_odd, a.clone(), one());
        let is_unit = a.clone().equal(one()).or(a.equal(PrimExpr::int(-1, dtype)));
        let reciprocal = PrimExpr::select(is_unit, sign, zero.clone());
        PrimExpr::select(b.less(zero), reciprocal, product)
    })
}
