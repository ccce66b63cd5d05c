//! Functions of two elements with numpy's broadcasting: arithmetic, logic and bits.
//!
//! Both arguments have one data type, which is also the result's; integer arithmetic wraps.

use std::iter;

use crate::arith::Facts;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, Dim, Type};
use crate::ops::eval::{EvalCx, broadcast_strides, offsets};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern, values};

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
    def: &'static OpDef,
    attrs: &Attrs,
    args: &[Option<&Tensor>],
    float: impl Fn(f64, f64) -> f64,
    int: impl Fn(i128, i128) -> Option<i128>,
) -> Result<Vec<Tensor>, EvalError> {
    let cx = EvalCx::new(def, attrs, args)?;
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
                EvalError::new(format!("`{}`: an integer result is not defined", def.name))
            })?)
        }
    })
}

/// Defines operators: name in the text format, summary, data types, the function of floats and of
/// integers (`None` where it is not defined), and the function of dimensions.
macro_rules! binary {
    ($(
        $(#[$doc:meta])*
        $op:ident = $name:literal, $summary:literal, $dtypes:ident,
        $float:expr, $int:expr $(, dims: $dims:expr)?;
    )*) => {$(
        $(#[$doc])*
        pub static $op: OpDef = OpDef::new(
            $name,
            $summary,
            LHS_RHS,
            |cx| infer(cx, DTypes::$dtypes),
            |attrs, args| eval(&$op, attrs, args, $float, $int),
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

/// Division of dimensions that truncates, where it is known to be what floor division yields.
fn dim_divide(facts: &Facts, a: &Dim, b: &Dim) -> Option<Dim> {
    if let (Some(a), Some(b)) = (a.as_const(), b.as_const()) {
        return a.checked_div(b).map(Dim::from);
    }
    let quotient = a.floor_div(b);
    let zero = Dim::from(0i64);
    let truncates =
        facts.prove_le(&zero, a) == Some(true) && facts.prove_lt(&zero, b) == Some(true);
    // An exact quotient is the same however it is rounded.
    (truncates || &quotient * b == *a).then_some(quotient)
}

fn dim_floor_mod(_: &Facts, a: &Dim, b: &Dim) -> Option<Dim> {
    (b.as_const() != Some(0)).then(|| a.modulo(b))
}

binary! {
    /// `lhs + rhs`.
    ADD = "add", "sum", Numeric, |a, b| a + b, |a, b| Some(a + b), dims: |_, a, b| Some(a + b);
    /// Bits set in both.
    BITWISE_AND = "bitwise_and", "bits set in both", Int, no_floats, |a, b| Some(a & b);
    /// Bits set in either.
    BITWISE_OR = "bitwise_or", "bits set in either", Int, no_floats, |a, b| Some(a | b);
    /// Bits set in one of the two.
    BITWISE_XOR = "bitwise_xor", "bits set in exactly one", Int, no_floats, |a, b| Some(a ^ b);
    /// `lhs / rhs`; of integers truncated, as in ONNX, and not defined for a zero divisor.
    DIVIDE = "divide", "quotient; of integers truncated", Numeric,
        |a, b| a / b, |a, b| a.checked_div(b), dims: dim_divide;
    /// The remainder that has the divisor's sign: ONNX `Mod` with `fmod = 0`.
    FLOOR_MOD = "floor_mod", "remainder of the divisor's sign", Numeric,
        float_floor_mod, int_floor_mod, dims: dim_floor_mod;
    /// `lhs · 2^rhs`, without the bits that leave the type: ONNX `BitShift` with `LEFT`. Zero where
    /// `rhs` is at least the number of bits.
    LEFT_SHIFT = "left_shift", "bits moved up", Int, no_floats,
        |a, b| Some(if (0..64).contains(&b) { a << b } else { 0 });
    /// True where both are.
    LOGICAL_AND = "logical_and", "true where both are", Bool, no_floats, |a, b| Some(a & b);
    /// True where either is.
    LOGICAL_OR = "logical_or", "true where either is", Bool, no_floats, |a, b| Some(a | b);
    /// True where exactly one is.
    LOGICAL_XOR = "logical_xor", "true where exactly one is", Bool, no_floats, |a, b| Some(a ^ b);
    /// The greater; NaN where either is.
    MAXIMUM = "maximum", "the greater", Numeric, maximum, |a, b| Some(a.max(b)),
        dims: |_, a, b| Some(a.maximum(b));
    /// The smaller; NaN where either is.
    MINIMUM = "minimum", "the smaller", Numeric, minimum, |a, b| Some(a.min(b)),
        dims: |_, a, b| Some(a.minimum(b));
    /// The remainder that has the dividend's sign, as C's `fmod`: ONNX `Mod` with `fmod = 1`.
    MOD = "mod", "remainder of the dividend's sign", Numeric, |a, b| a % b, |a, b| a.checked_rem(b);
    /// `lhs · rhs`.
    MULTIPLY = "multiply", "product", Numeric, |a, b| a * b, |a, b| Some(a.wrapping_mul(b)),
        dims: |_, a, b| Some(a * b);
    /// `lhs` to the power of `rhs`. Of integers not defined for zero to a negative power.
    POWER = "power", "power", Numeric, f64::powf, int_power;
    /// `lhs / 2^rhs`, rounded down: ONNX `BitShift` with `RIGHT`.
    RIGHT_SHIFT = "right_shift", "bits moved down", Int, no_floats,
        |a, b| Some(a >> u32::try_from(b).unwrap_or(127).min(127));
    /// `lhs - rhs`.
    SUBTRACT = "subtract", "difference", Numeric, |a, b| a - b, |a, b| Some(a - b),
        dims: |_, a, b| Some(a - b);
}
