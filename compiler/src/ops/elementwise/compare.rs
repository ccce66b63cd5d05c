//! Comparisons, with numpy's broadcasting; the results are boolean. A comparison with NaN is false,
//! `not_equal` excepted.

use super::X;
use super::binary::{LHS_RHS, zip_broadcast};
use super::expr::{binary, like, unary};
use crate::arith::Facts;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{DType, Dim, Type};
use crate::ops::eval::EvalCx;
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, OpDef, OpPattern, values};
use crate::tir::{CompareOp, Intrinsic, PrimExpr};

fn infer(cx: &InferCx<'_>, dtypes: DTypes) -> Result<Type, TypeError> {
    cx.attrs::<()>()?;
    let (lhs, rhs) = (cx.tensor_of(0, dtypes)?, cx.tensor_of(1, dtypes)?);
    cx.same_dtype(0, 1)?;
    cx.result(cx.broadcast(&lhs.shape, &rhs.shape)?, DType::Bool)
}

fn eval(
    cx: &EvalCx<'_>,
    float: impl Fn(f64, f64) -> bool,
    int: impl Fn(i128, i128) -> bool,
) -> Result<Vec<Tensor>, EvalError> {
    let (a, b) = (cx.arg(0)?, cx.arg(1)?);
    let (a_shape, b_shape) = (a.shape(), b.shape());
    let values = match (a.elements(), b.elements()) {
        (Elements::Float(a), Elements::Float(b)) => {
            let f = |a, b| i128::from(float(a, b));
            zip_broadcast(cx.shape(), (a_shape, a), (b_shape, b), f)
        }
        _ => {
            let (a, b) = (cx.ints(0)?, cx.ints(1)?);
            let f = |a, b| i128::from(int(a, b));
            zip_broadcast(cx.shape(), (a_shape, a), (b_shape, b), f)
        }
    };
    cx.result(Elements::Int(values))
}

/// The comparison of small integer tensors, where the facts decide it for every element.
fn shape_value(
    cx: &InferCx<'_>,
    compare: fn(&Facts, &Dim, &Dim) -> Option<bool>,
) -> Option<Vec<Dim>> {
    values::broadcast(cx, [0, 1], |[a, b]| Some(i64::from(compare(cx.facts, a, b)?).into()))
}

macro_rules! comparisons {
    ($(
        $(#[$doc:meta])*
        $op:ident = $name:literal, $summary:literal, $dtypes:ident, $operator:tt, te: $te:ident
        $(, dims: $dims:expr)?;
    )*) => {$(
        $(#[$doc])*
        pub static $op: OpDef = OpDef::new(
            $name,
            $summary,
            LHS_RHS,
            |cx| infer(cx, DTypes::$dtypes),
            |cx| eval(cx, |a, b| a $operator b, |a, b| a $operator b),
            |cx| binary(cx, |a, b| PrimExpr::compare(CompareOp::$te, a, b)),
        )
        .pattern(OpPattern::Broadcast)
        $(.shape_value(|cx| shape_value(cx, $dims)))?;
    )*};
}

comparisons! {
    /// `lhs == rhs`, also of booleans.
    EQUAL = "equal", "whether both are equal", NumericOrBool, ==, te: Eq,
        dims: Facts::prove_eq;
    /// `lhs > rhs`.
    GREATER = "greater", "whether the first is greater", Numeric, >, te: Gt,
        dims: |facts, a, b| facts.prove_lt(b, a);
    /// `lhs >= rhs`.
    GREATER_EQUAL = "greater_equal", "whether the first is not smaller", Numeric, >=, te: Ge,
        dims: |facts, a, b| facts.prove_le(b, a);
    /// `lhs < rhs`.
    LESS = "less", "whether the first is smaller", Numeric, <, te: Lt,
        dims: Facts::prove_lt;
    /// `lhs <= rhs`.
    LESS_EQUAL = "less_equal", "whether the first is not greater", Numeric, <=, te: Le,
        dims: Facts::prove_le;
    /// `lhs != rhs`, also of booleans.
    NOT_EQUAL = "not_equal", "whether the two differ", NumericOrBool, !=, te: Ne,
        dims: |facts, a, b| facts.prove_eq(a, b).map(|equal| !equal);
}

macro_rules! classifications {
    ($($(#[$doc:meta])* $op:ident = $name:literal, $summary:literal, $f:expr, te: |$x:ident| $te:expr;)*) => {$(
        $(#[$doc])*
        pub static $op: OpDef = OpDef::new(
            $name,
            $summary,
            X,
            infer_class,
            |cx| {
                let is: fn(f64) -> bool = $f;
                cx.result(Elements::Int(cx.floats(0)?.iter().map(|&v| is(v).into()).collect()))
            },
            |cx| unary(cx, |$x| $te),
        )
        .pattern(OpPattern::ElemWise);
    )*};
}

fn infer_class(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    cx.attrs::<()>()?;
    cx.result(cx.tensor_of(0, DTypes::Float)?.shape.iter().cloned(), DType::Bool)
}

classifications! {
    /// Whether the element is an infinity of either sign.
    ISINF = "isinf", "whether the element is infinite", f64::is_infinite, te: |x| {
        let infinity = like(f64::INFINITY, &x);
        PrimExpr::call(Intrinsic::Abs, x).equal(infinity)
    };
    /// Whether the element is NaN.
    ISNAN = "isnan", "whether the element is not a number", f64::is_nan,
        te: |x| x.clone().not_equal(x);
}
