//! Operators whose result at an index depends on their arguments at that index.

use super::{Compute, ComputeError, Stages, broadcast};
use crate::ir::DType;
use crate::ops::elementwise::{
    CastAttrs, CeluAttrs, ClipAttrs, EluAttrs, GeluApproximation, GeluAttrs, HardsigmoidAttrs,
    LeakyReluAttrs, SeluAttrs, ThresholdedReluAttrs,
};
use crate::tir::{BinaryOp, CompareOp, Intrinsic, PrimExpr, UnaryOp};

pub(super) fn compute(cx: &mut Compute<'_>) -> Option<Stages> {
    if let Some(intrinsic) = intrinsic(cx.op.name) {
        return Some(call(cx, intrinsic));
    }
    if let Some(op) = compare(cx.op.name) {
        return Some(binary(cx, |_, a, b| Ok(PrimExpr::compare(op, a, b))));
    }
    Some(match cx.op.name {
        "add" => arithmetic(cx, BinaryOp::Add),
        "subtract" => arithmetic(cx, BinaryOp::Sub),
        "multiply" => arithmetic(cx, BinaryOp::Mul),
        "divide" => arithmetic(cx, BinaryOp::Div),
        "maximum" => binary(cx, |_, a, b| Ok(extreme(BinaryOp::Max, a, b))),
        "minimum" => binary(cx, |_, a, b| Ok(extreme(BinaryOp::Min, a, b))),
        "power" => power(cx),
        "logical_and" => arithmetic(cx, BinaryOp::And),
        "logical_or" => arithmetic(cx, BinaryOp::Or),
        "logical_xor" => arithmetic(cx, BinaryOp::Xor),
        "logical_not" => unary(cx, |x| PrimExpr::unary(UnaryOp::Not, x)),
        "negative" => unary(cx, |x| -x),
        "reciprocal" => unary(cx, |x| one(&x) / x),
        "rsqrt" => unary(cx, |x| one(&x) / PrimExpr::call(Intrinsic::Sqrt, x)),
        "sign" => unary(cx, sign),
        "nn.relu" => unary(cx, |x| PrimExpr::zero(x.ty()).max(x)),
        "nn.leaky_relu" => cx.attrs().and_then(|attrs: LeakyReluAttrs| {
            unary(cx, |x| {
                let scaled = x.clone() * like(attrs.alpha, &x);
                PrimExpr::select(negative(&x), scaled, x)
            })
        }),
        "nn.elu" => cx.attrs().and_then(|attrs: EluAttrs| {
            unary(cx, |x| {
                let curve = exp_minus_one(x.clone()) * like(attrs.alpha, &x);
                PrimExpr::select(negative(&x), curve, x)
            })
        }),
        "nn.celu" => cx.attrs().and_then(|attrs: CeluAttrs| {
            unary(cx, |x| {
                let alpha = like(attrs.alpha, &x);
                let curve = exp_minus_one(x.clone() / alpha.clone()) * alpha;
                PrimExpr::select(negative(&x), curve, x)
            })
        }),
        "nn.selu" => cx.attrs().and_then(|attrs: SeluAttrs| {
            unary(cx, |x| {
                let curve = exp_minus_one(x.clone()) * like(attrs.alpha, &x);
                let gamma = like(attrs.gamma, &x);
                PrimExpr::select(negative(&x), curve, x) * gamma
            })
        }),
        "nn.thresholded_relu" => cx.attrs().and_then(|attrs: ThresholdedReluAttrs| {
            unary(cx, |x| {
                let above = x.clone().greater(like(attrs.alpha, &x));
                let zero = PrimExpr::zero(x.ty());
                PrimExpr::select(above, x, zero)
            })
        }),
        "nn.hardsigmoid" => cx.attrs().and_then(|attrs: HardsigmoidAttrs| {
            unary(cx, |x| hardsigmoid(&x, attrs.alpha, attrs.beta))
        }),
        "nn.hardswish" => unary(cx, |x| hardsigmoid(&x, 1.0 / 6.0, 0.5) * x),
        "nn.softplus" => unary(cx, |x| {
            // log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), which does not overflow.
            let magnitude = PrimExpr::call(Intrinsic::Abs, x.clone());
            let tail = one(&x) + PrimExpr::call(Intrinsic::Exp, -magnitude);
            PrimExpr::zero(x.ty()).max(x) + PrimExpr::call(Intrinsic::Log, tail)
        }),
        "nn.softsign" => unary(cx, |x| {
            let magnitude = PrimExpr::call(Intrinsic::Abs, x.clone());
            x.clone() / (one(&x) + magnitude)
        }),
        "nn.gelu" => {
            cx.attrs().and_then(|attrs: GeluAttrs| unary(cx, |x| gelu(x, attrs.approximate)))
        }
        "nn.prelu" => binary(cx, |_, x, slope| {
            let scaled = x.clone() * slope;
            Ok(PrimExpr::select(negative(&x), scaled, x))
        }),
        "clip" => cx.attrs().and_then(|attrs: ClipAttrs| {
            unary(cx, |x| {
                // The operand is on the right: a NaN passes.
                let above = match attrs.min {
                    Some(min) => like(min, &x).max(x),
                    None => x,
                };
                match attrs.max {
                    Some(max) => like(max, &above).min(above),
                    None => above,
                }
            })
        }),
        "cast" => cx.attrs().and_then(|attrs: CastAttrs| unary(cx, |x| x.cast(attrs.dtype))),
        "where" => choose(cx),
        "nn.bias_add" => bias_add(cx),
        _ => return None,
    })
}

fn intrinsic(name: &str) -> Option<Intrinsic> {
    Some(match name {
        "exp" => Intrinsic::Exp,
        "log" => Intrinsic::Log,
        "tanh" => Intrinsic::Tanh,
        "erf" => Intrinsic::Erf,
        "sigmoid" => Intrinsic::Sigmoid,
        "sqrt" => Intrinsic::Sqrt,
        "floor" => Intrinsic::Floor,
        "ceil" => Intrinsic::Ceil,
        "trunc" => Intrinsic::Trunc,
        "round" => Intrinsic::Round,
        "abs" => Intrinsic::Abs,
        "sin" => Intrinsic::Sin,
        "cos" => Intrinsic::Cos,
        "tan" => Intrinsic::Tan,
        "asin" => Intrinsic::Asin,
        "acos" => Intrinsic::Acos,
        "atan" => Intrinsic::Atan,
        "sinh" => Intrinsic::Sinh,
        "cosh" => Intrinsic::Cosh,
        "asinh" => Intrinsic::Asinh,
        "acosh" => Intrinsic::Acosh,
        "atanh" => Intrinsic::Atanh,
        _ => return None,
    })
}

fn compare(name: &str) -> Option<CompareOp> {
    Some(match name {
        "equal" => CompareOp::Eq,
        "not_equal" => CompareOp::Ne,
        "less" => CompareOp::Lt,
        "less_equal" => CompareOp::Le,
        "greater" => CompareOp::Gt,
        "greater_equal" => CompareOp::Ge,
        _ => return None,
    })
}

fn call(cx: &mut Compute<'_>, intrinsic: Intrinsic) -> Stages {
    let dtype = cx.dag.dtype(cx.arg(0)?);
    if dtype.is_float() {
        return unary(cx, |x| PrimExpr::call(intrinsic, x));
    }
    match intrinsic {
        Intrinsic::Abs if dtype.is_unsigned_int() => unary(cx, |x| x),
        Intrinsic::Abs => unary(cx, |x| x.clone().max(-x)),
        Intrinsic::Floor | Intrinsic::Ceil | Intrinsic::Trunc | Intrinsic::Round => {
            unary(cx, |x| x)
        }
        _ => cx.unsupported(format_args!("of {dtype}")),
    }
}

fn unary(cx: &mut Compute<'_>, body: impl FnOnce(PrimExpr) -> PrimExpr) -> Stages {
    let x = cx.arg(0)?;
    cx.element(|dag, index| body(dag.at(x, index)))
}

fn binary(
    cx: &mut Compute<'_>,
    body: impl FnOnce(DType, PrimExpr, PrimExpr) -> Result<PrimExpr, ComputeError>,
) -> Stages {
    let (lhs, rhs) = (cx.arg(0)?, cx.arg(1)?);
    let (shape, _) = cx.result();
    let mut error = None;
    let stages = cx.element(|dag, index| {
        let a = dag.at(lhs, &broadcast(dag.shape(lhs), &shape, index));
        let b = dag.at(rhs, &broadcast(dag.shape(rhs), &shape, index));
        let dtype = dag.dtype(lhs);
        body(dtype, a, b).unwrap_or_else(|e| {
            error = Some(e);
            PrimExpr::zero(dtype)
        })
    });
    match error {
        Some(error) => Err(error),
        None => stages,
    }
}

fn arithmetic(cx: &mut Compute<'_>, op: BinaryOp) -> Stages {
    binary(cx, |_, a, b| Ok(PrimExpr::binary(op, a, b)))
}

fn power(cx: &mut Compute<'_>) -> Stages {
    let (base, exponent) = (cx.dag.dtype(cx.arg(0)?), cx.dag.dtype(cx.arg(1)?));
    if !base.is_float() {
        return cx.unsupported(format_args!("of {base}"));
    }
    binary(cx, |_, a, b| Ok(a.pow(if exponent == base { b } else { b.cast(base) })))
}

fn choose(cx: &mut Compute<'_>) -> Stages {
    let (cond, yes, no) = (cx.arg(0)?, cx.arg(1)?, cx.arg(2)?);
    let (shape, _) = cx.result();
    cx.element(|dag, index| {
        let at = |stage| dag.at(stage, &broadcast(dag.shape(stage), &shape, index));
        let (cond, yes, no) = (at(cond), at(yes), at(no));
        PrimExpr::select(cond, yes, no)
    })
}

fn bias_add(cx: &mut Compute<'_>) -> Stages {
    let (x, bias) = (cx.arg(0)?, cx.arg(1)?);
    let rank = cx.dag.shape(x).len();
    let axis = match cx.attrs.get("axis") {
        Some(crate::ir::AttrValue::Int(axis)) => *axis,
        _ => 1,
    };
    let axis = cx.axis(axis, rank)?;
    cx.element(|dag, index| dag.at(x, index) + dag.at(bias, &index[axis..=axis]))
}

/// The greater or lesser of two, where a NaN on either side gives a NaN.
fn extreme(op: BinaryOp, a: PrimExpr, b: PrimExpr) -> PrimExpr {
    let plain = PrimExpr::binary(op, a.clone(), b);
    if !a.dtype().is_float() {
        return plain;
    }
    PrimExpr::select(a.clone().not_equal(a.clone()), a, plain)
}

fn like(value: f64, x: &PrimExpr) -> PrimExpr {
    let ty = x.ty();
    let value = if ty.dtype.is_float() {
        PrimExpr::float(value, ty.dtype)
    } else {
        PrimExpr::int(value as i64, ty.dtype)
    };
    value.broadcast_to(ty.lanes)
}

fn one(x: &PrimExpr) -> PrimExpr {
    like(1.0, x)
}

fn negative(x: &PrimExpr) -> PrimExpr {
    x.clone().less(PrimExpr::zero(x.ty()))
}

fn sign(x: PrimExpr) -> PrimExpr {
    let positive = PrimExpr::select(
        x.clone().greater(PrimExpr::zero(x.ty())),
        one(&x),
        // Zero and NaN stay what they are.
        x.clone(),
    );
    if x.dtype().is_unsigned_int() {
        return positive;
    }
    PrimExpr::select(negative(&x), -one(&x), positive)
}

fn exp_minus_one(x: PrimExpr) -> PrimExpr {
    let one = one(&x);
    PrimExpr::call(Intrinsic::Exp, x) - one
}

fn hardsigmoid(x: &PrimExpr, alpha: f64, beta: f64) -> PrimExpr {
    let line = x.clone() * like(alpha, x) + like(beta, x);
    one(x).min(PrimExpr::zero(x.ty()).max(line))
}

fn gelu(x: PrimExpr, approximate: GeluApproximation) -> PrimExpr {
    let half = like(0.5, &x) * x.clone();
    let bend = match approximate {
        GeluApproximation::None => {
            PrimExpr::call(Intrinsic::Erf, x.clone() * like(std::f64::consts::FRAC_1_SQRT_2, &x))
        }
        GeluApproximation::Tanh => {
            let cube = x.clone() * x.clone() * x.clone() * like(0.044_715, &x);
            let scale = like((2.0 / std::f64::consts::PI).sqrt(), &x);
            PrimExpr::call(Intrinsic::Tanh, (x.clone() + cube) * scale)
        }
    };
    half * (one(&x) + bend)
}
