//! Functions of one element without attributes. Names and meaning are Relay's; they are the ONNX
//! operators of nearly the same names (`negative` is `Neg`, `logical_not` is `Not`).

use super::erf::erf;
use super::{X, map, same_type};
use crate::ops::relation::DTypes;
use crate::ops::values;
use crate::ops::{OpDef, OpPattern};

/// Defines operators: name in the text format, summary, data types, the function of a float and,
/// where integers or booleans are allowed, of an integer.
macro_rules! unary {
    ($(
        $(#[$doc:meta])*
        $op:ident = $name:literal, $summary:literal, $dtypes:ident,
        |$v:ident| $float:expr $(, |$i:ident| $int:expr)?;
    )*) => {$(
        $(#[$doc])*
        pub static $op: OpDef = OpDef::new(
            $name,
            $summary,
            X,
            |cx| same_type(cx, DTypes::$dtypes),
            |attrs, args| map(&$op, attrs, args, |$v| $float, unary!(@int $(|$i| $int)?)),
        )
        .pattern(OpPattern::ElemWise);
    )*};
    (@int |$i:ident| $int:expr) => { |$i| $int };
    // The type relation lets no integer come here.
    (@int) => { |v| v };
}

unary! {
    /// `|x|`; the least integer stays as it is.
    ABS = "abs", "magnitude", Numeric, |v| v.abs(), |i| i.abs();
    /// Arc cosine, in radians.
    ACOS = "acos", "arc cosine", Float, |v| v.acos();
    /// Inverse hyperbolic cosine.
    ACOSH = "acosh", "inverse hyperbolic cosine", Float, |v| v.acosh();
    /// Arc sine, in radians.
    ASIN = "asin", "arc sine", Float, |v| v.asin();
    /// Inverse hyperbolic sine.
    ASINH = "asinh", "inverse hyperbolic sine", Float, |v| v.asinh();
    /// Arc tangent, in radians.
    ATAN = "atan", "arc tangent", Float, |v| v.atan();
    /// Inverse hyperbolic tangent.
    ATANH = "atanh", "inverse hyperbolic tangent", Float, |v| v.atanh();
    /// All bits inverted.
    BITWISE_NOT = "bitwise_not", "all bits inverted", Int, |v| v, |i| !i;
    /// The least integer not less than `x`.
    CEIL = "ceil", "rounded up to an integer", Float, |v| v.ceil();
    /// Cosine of radians.
    COS = "cos", "cosine", Float, |v| v.cos();
    /// Hyperbolic cosine.
    COSH = "cosh", "hyperbolic cosine", Float, |v| v.cosh();
    /// The error function.
    ERF = "erf", "error function", Float, |v| erf(v);
    /// `eˣ`.
    EXP = "exp", "exponential function", Float, |v| v.exp();
    /// The greatest integer not greater than `x`.
    FLOOR = "floor", "rounded down to an integer", Float, |v| v.floor();
    /// Natural logarithm; of a negative number NaN.
    LOG = "log", "natural logarithm", Float, |v| v.ln();
    /// True where `x` is false.
    LOGICAL_NOT = "logical_not", "true where the element is false", Bool,
        |v| v, |i| i128::from(i == 0);
    /// `1 / x`.
    RECIPROCAL = "reciprocal", "one divided by the element", Float, |v| 1.0 / v;
    /// The nearest integer; halves go to the even one.
    ROUND = "round", "rounded to the nearest integer, halves to even", Float,
        |v| v.round_ties_even();
    /// `1 / √x`.
    RSQRT = "rsqrt", "one divided by the square root", Float, |v| 1.0 / v.sqrt();
    /// `1 / (1 + e⁻ˣ)`.
    SIGMOID = "sigmoid", "logistic function", Float, |v| 1.0 / (1.0 + (-v).exp());
    /// -1, 0 or 1; of NaN NaN.
    SIGN = "sign", "the element's sign as -1, 0 or 1", Numeric,
        |v| if v == 0.0 { 0.0 } else if v.is_nan() { v } else { v.signum() }, |i| i.signum();
    /// Sine of radians.
    SIN = "sin", "sine", Float, |v| v.sin();
    /// Hyperbolic sine.
    SINH = "sinh", "hyperbolic sine", Float, |v| v.sinh();
    /// Square root; of a negative number NaN.
    SQRT = "sqrt", "square root", Float, |v| v.sqrt();
    /// Tangent of radians.
    TAN = "tan", "tangent", Float, |v| v.tan();
    /// Hyperbolic tangent.
    TANH = "tanh", "hyperbolic tangent", Float, |v| v.tanh();
}

/// `-x`; the least integer stays as it is.
pub static NEGATIVE: OpDef = OpDef::new(
    "negative",
    "the element with its sign changed",
    X,
    |cx| same_type(cx, DTypes::Numeric),
    |attrs, args| map(&NEGATIVE, attrs, args, |v| -v, |i| -i),
)
.pattern(OpPattern::ElemWise)
.shape_value(|cx| values::map(cx, |v| -v));
