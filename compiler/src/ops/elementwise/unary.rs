//! Functions of one element without attributes. Names and meaning are Relay's; they are the ONNX
//! operators of nearly the same names (`negative` is `Neg`, `logical_not` is `Not`).

use super::erf::erf;
use super::expr::{negative, one, unary};
use super::{X, map, same_type};
use crate::ops::relation::DTypes;
use crate::ops::values;
use crate::ops::{OpDef, OpPattern};
use crate::tir::{Intrinsic, PrimExpr, UnaryOp};

/// Defines operators: name in the text format, summary, data types, the function of a float and,
/// where integers or booleans are allowed, of an integer, and the tensor expression of an element.
macro_rules! unary {
    ($(
        $(#[$doc:meta])*
        $op:ident = $name:literal, $summary:literal, $dtypes:ident,
        |$v:ident| $float:expr $(, |$i:ident| $int:expr)?, te: |$x:ident| $te:expr
        $(, dims: $dims:expr)?;
    )*) => {$(
        $(#[$doc])*
        pub static $op: OpDef = OpDef::new(
            $name,
            $summary,
            X,
            |cx| same_type(cx, DTypes::$dtypes),
            |cx| map(cx, |$v| $float, unary!(@int $(|$i| $int)?)),
            |cx| unary(cx, |$x| $te),
        )
        .pattern(OpPattern::ElemWise)
        $(.shape_value($dims))?;
    )*};
    (@int |$i:ident| $int:expr) => { |$i| $int };
    // The type relation lets no integer come here.
    (@int) => { |v| v };
}

unary! {
    /// `|x|`; the least integer stays as it is.
    ABS = "abs", "magnitude", Numeric, |v| v.abs(), |i| i.abs(),
        te: |x| abs(x);
    /// Arc cosine, in radians.
    ACOS = "acos", "arc cosine", Float, |v| v.acos(),
        te: |x| call(Intrinsic::Acos, x);
    /// Inverse hyperbolic cosine.
    ACOSH = "acosh", "inverse hyperbolic cosine", Float, |v| v.acosh(),
        te: |x| call(Intrinsic::Acosh, x);
    /// Arc sine, in radians.
    ASIN = "asin", "arc sine", Float, |v| v.asin(),
        te: |x| call(Intrinsic::Asin, x);
    /// Inverse hyperbolic sine.
    ASINH = "asinh", "inverse hyperbolic sine", Float, |v| v.asinh(),
        te: |x| call(Intrinsic::Asinh, x);
    /// Arc tangent, in radians.
    ATAN = "atan", "arc tangent", Float, |v| v.atan(),
        te: |x| call(Intrinsic::Atan, x);
    /// Inverse hyperbolic tangent.
    ATANH = "atanh", "inverse hyperbolic tangent", Float, |v| v.atanh(),
        te: |x| call(Intrinsic::Atanh, x);
    /// All bits inverted.
    BITWISE_NOT = "bitwise_not", "all bits inverted", Int, |v| v, |i| !i,
        te: |x| PrimExpr::unary(UnaryOp::Not, x);
    /// The least integer not less than `x`.
    CEIL = "ceil", "rounded up to an integer", Float, |v| v.ceil(),
        te: |x| call(Intrinsic::Ceil, x),
        dims: values::unchanged;
    /// Cosine of radians.
    COS = "cos", "cosine", Float, |v| v.cos(),
        te: |x| call(Intrinsic::Cos, x);
    /// Hyperbolic cosine.
    COSH = "cosh", "hyperbolic cosine", Float, |v| v.cosh(),
        te: |x| call(Intrinsic::Cosh, x);
    /// The error function.
    ERF = "erf", "error function", Float, |v| erf(v),
        te: |x| call(Intrinsic::Erf, x);
    /// `eˣ`.
    EXP = "exp", "exponential function", Float, |v| v.exp(),
        te: |x| call(Intrinsic::Exp, x);
    /// The greatest integer not greater than `x`.
    FLOOR = "floor", "rounded down to an integer", Float, |v| v.floor(),
        te: |x| call(Intrinsic::Floor, x),
        dims: values::unchanged;
    /// Natural logarithm; of a negative number NaN.
    LOG = "log", "natural logarithm", Float, |v| v.ln(),
        te: |x| call(Intrinsic::Log, x);
    /// True where `x` is false.
    LOGICAL_NOT = "logical_not", "true where the element is false", Bool,
        |v| v, |i| i128::from(i == 0),
        te: |x| PrimExpr::unary(UnaryOp::Not, x);
    /// `1 / x`.
    RECIPROCAL = "reciprocal", "one divided by the element", Float, |v| 1.0 / v,
        te: |x| one(&x) / x;
    /// The nearest integer; halves go to the even one.
    ROUND = "round", "rounded to the nearest integer, halves to even", Float,
        |v| v.round_ties_even(),
        te: |x| call(Intrinsic::Round, x),
        dims: values::unchanged;
    /// `1 / √x`.
    RSQRT = "rsqrt", "one divided by the square root", Float, |v| 1.0 / v.sqrt(),
        te: |x| one(&x) / call(Intrinsic::Sqrt, x);
    /// `1 / (1 + e⁻ˣ)`.
    SIGMOID = "sigmoid", "logistic function", Float, |v| 1.0 / (1.0 + (-v).exp()),
        te: |x| call(Intrinsic::Sigmoid, x);
    /// -1, 0 or 1; of NaN NaN.
    SIGN = "sign", "the element's sign as -1, 0 or 1", Numeric,
        |v| if v == 0.0 { 0.0 } else if v.is_nan() { v } else { v.signum() }, |i| i.signum(),
        te: |x| sign(x);
    /// Sine of radians.
    SIN = "sin", "sine", Float, |v| v.sin(),
        te: |x| call(Intrinsic::Sin, x);
    /// Hyperbolic sine.
    SINH = "sinh", "hyperbolic sine", Float, |v| v.sinh(),
        te: |x| call(Intrinsic::Sinh, x);
    /// Square root; of a negative number NaN.
    SQRT = "sqrt", "square root", Float, |v| v.sqrt(),
        te: |x| call(Intrinsic::Sqrt, x);
    /// Tangent of radians.
    TAN = "tan", "tangent", Float, |v| v.tan(),
        te: |x| call(Intrinsic::Tan, x);
    /// Hyperbolic tangent.
    TANH = "tanh", "hyperbolic tangent", Float, |v| v.tanh(),
        te: |x| call(Intrinsic::Tanh, x);
}

/// `-x`; the least integer stays as it is.
pub static NEGATIVE: OpDef = OpDef::new(
    "negative",
    "the element with its sign changed",
    X,
    |cx| same_type(cx, DTypes::Numeric),
    |cx| map(cx, |v| -v, |i| -i),
    |cx| unary(cx, |x| -x),
)
.pattern(OpPattern::ElemWise)
.shape_value(|cx| values::map(cx, |v| -v));

fn call(intrinsic: Intrinsic, x: PrimExpr) -> PrimExpr {
    PrimExpr::call(intrinsic, x)
}

fn abs(x: PrimExpr) -> PrimExpr {
    if x.dtype().is_float() {
        return call(Intrinsic::Abs, x);
    }
    if x.dtype().is_unsigned_int() { x } else { x.clone().max(-x) }
}

fn sign(x: PrimExpr) -> PrimExpr {
    let zero = PrimExpr::zero(x.ty());
    // A NaN stays what it is; that of a negative zero is zero.
    let rest = if x.dtype().is_float() {
        PrimExpr::select(x.clone().equal(zero.clone()), zero.clone(), x.clone())
    } else {
        zero.clone()
    };
    let positive = PrimExpr::select(x.clone().greater(zero), one(&x), rest);
    if x.dtype().is_unsigned_int() {
        return positive;
    }
    PrimExpr::select(negative(&x), -one(&x), positive)
}
