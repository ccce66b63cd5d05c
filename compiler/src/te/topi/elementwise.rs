//! Operators whose result at an index depends on their arguments at that index.

use super::{Compute, ComputeError, Stages, broadcast, multiply_add};
use crate::ir::DType;
use crate::ir::small_float::{PowerRounding, SmallFloat};
use crate::ops::elementwise::{
    CastAttrs, CeluAttrs, ClipAttrs, EluAttrs, GeluApproximation, GeluAttrs, HardsigmoidAttrs,
    LeakyReluAttrs, SeluAttrs, ThresholdedReluAttrs,
};
use crate::te::{ComputeDag, StageId, combined, held_as};
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
        "maximum" => binary(cx, |_, a, b| Ok(combined(BinaryOp::Max, a, b))),
        "minimum" => binary(cx, |_, a, b| Ok(combined(BinaryOp::Min, a, b))),
        "power" => power(cx),
        "mod" => arithmetic(cx, BinaryOp::Rem),
        "floor_mod" => floor_mod(cx),
        "left_shift" => arithmetic(cx, BinaryOp::Shl),
        "right_shift" => arithmetic(cx, BinaryOp::Shr),
        "logical_and" | "bitwise_and" => arithmetic(cx, BinaryOp::And),
        "logical_or" | "bitwise_or" => arithmetic(cx, BinaryOp::Or),
        "logical_xor" | "bitwise_xor" => arithmetic(cx, BinaryOp::Xor),
        "logical_not" | "bitwise_not" => unary(cx, |x| PrimExpr::unary(UnaryOp::Not, x)),
        "isnan" => unary(cx, |x| x.clone().not_equal(x)),
        "isinf" => unary(cx, |x| {
            let infinity = like(f64::INFINITY, &x);
            PrimExpr::call(Intrinsic::Abs, x).equal(infinity)
        }),
        "negative" => unary(cx, |x| -x),
        "reciprocal" => unary(cx, |x| one(&x) / x),
        "rsqrt" => unary(cx, |x| one(&x) / PrimExpr::call(Intrinsic::Sqrt, x)),
        "sign" => unary(cx, sign),
        "nn.relu" => unary(cx, |x| PrimExpr::zero(x.ty()).max(x)),
        "nn.leaky_relu" => cx.attrs().and_then(|attrs: LeakyReluAttrs| {
            weighted(cx, |x| {
                let scaled = x.clone() * like(attrs.alpha, &x);
                PrimExpr::select(negative(&x), scaled, x)
            })
        }),
        "nn.elu" => cx.attrs().and_then(|attrs: EluAttrs| {
            weighted(cx, |x| {
                let curve = exp_minus_one(x.clone()) * like(attrs.alpha, &x);
                PrimExpr::select(negative(&x), curve, x)
            })
        }),
        "nn.celu" => cx.attrs().and_then(|attrs: CeluAttrs| {
            weighted(cx, |x| {
                let alpha = like(attrs.alpha, &x);
                let curve = exp_minus_one(x.clone() / alpha.clone()) * alpha;
                PrimExpr::select(negative(&x), curve, x)
            })
        }),
        "nn.selu" => cx.attrs().and_then(|attrs: SeluAttrs| {
            weighted(cx, |x| {
                let curve = exp_minus_one(x.clone()) * like(attrs.alpha, &x);
                let gamma = like(attrs.gamma, &x);
                PrimExpr::select(negative(&x), curve, x) * gamma
            })
        }),
        "nn.thresholded_relu" => cx.attrs().and_then(|attrs: ThresholdedReluAttrs| {
            weighted(cx, |x| {
                let above = x.clone().greater(like(attrs.alpha, &x));
                let zero = PrimExpr::zero(x.ty());
                PrimExpr::select(above, x, zero)
            })
        }),
        "nn.hardsigmoid" => cx.attrs().and_then(|attrs: HardsigmoidAttrs| {
            weighted(cx, |x| hardsigmoid(&x, attrs.alpha, attrs.beta))
        }),
        "nn.hardswish" => weighted(cx, |x| hardsigmoid(&x, 1.0 / 6.0, 0.5) * x),
        "nn.softplus" => softplus(cx, |_, softplus| softplus),
        "nn.mish" => softplus(cx, |x, softplus| x * PrimExpr::call(Intrinsic::Tanh, softplus)),
        "nn.softsign" => unary(cx, |x| {
            let magnitude = PrimExpr::call(Intrinsic::Abs, x.clone());
            x.clone() / (one(&x) + magnitude)
        }),
        "nn.gelu" => {
            cx.attrs().and_then(|attrs: GeluAttrs| weighted(cx, |x| gelu(x, attrs.approximate)))
        }
        "nn.prelu" => binary(cx, |_, x, slope| {
            let scaled = x.clone() * slope;
            Ok(PrimExpr::select(negative(&x), scaled, x))
        }),
        "clip" => cx.attrs().and_then(|attrs: ClipAttrs| {
            unary(cx, |x| {
                // The operand is on the right: a NaN passes.
                let above = match attrs.min {
                    Some(min) => bound(min, f64::ceil, &x).max(x),
                    None => x,
                };
                match attrs.max {
                    Some(max) => bound(max, f64::floor, &above).min(above),
                    None => above,
                }
            })
        }),
        "cast" => cx.attrs().and_then(|attrs: CastAttrs| unary(cx, |x| cast(x, &attrs))),
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

/// A function with coefficients, which floats of 16 bits would round: it is computed in 32.
fn weighted(cx: &mut Compute<'_>, body: impl FnOnce(PrimExpr) -> PrimExpr) -> Stages {
    unary(cx, |x| match x.dtype() {
        dtype @ (DType::F16 | DType::BF16) => body(x.cast(DType::F32)).cast(dtype),
        _ => body(x),
    })
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

/// The remainder of the divisor's sign.
fn floor_mod(cx: &mut Compute<'_>) -> Stages {
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

fn power(cx: &mut Compute<'_>) -> Stages {
    let base = cx.dag.dtype(cx.arg(0)?);
    if !base.is_float() {
        return int_power(cx);
    }
    binary(cx, |_, a, b| Ok(a.pow(b)))
}

/// Squares and multiplies, wrapping. A negative exponent gives the truncated reciprocal, and 0 where
/// there is none.
fn int_power(cx: &mut Compute<'_>) -> Stages {
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

/// `log(1 + eˣ) = max(x, 0) + log(1 + e^-|x|)`, which does not overflow, and a function of it.
fn softplus(cx: &mut Compute<'_>, finish: impl FnOnce(PrimExpr, PrimExpr) -> PrimExpr) -> Stages {
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    let op = cx.op.name;
    let tail = cx.dag.compute(op, &shape, dtype, |dag, index| {
        PrimExpr::call(Intrinsic::Exp, -PrimExpr::call(Intrinsic::Abs, dag.at(x, index)))
    });
    let sum = cx
        .dag
        .compute(op, &shape, dtype, |dag, index| PrimExpr::float(1.0, dtype) + dag.at(tail, index));
    cx.element(|dag, index| {
        let (x, tail, sum) = (dag.at(x, index), dag.at(tail, index), dag.at(sum, index));
        // What the sum has lost of its small part is put back: log(1 + t) = t · log(s) / (s - 1).
        let rounded = sum.clone() - one(&sum);
        let log = PrimExpr::call(Intrinsic::Log, sum) * tail.clone() / rounded.clone();
        let lost = rounded.equal(PrimExpr::zero(dtype));
        let softplus = PrimExpr::zero(dtype).max(x.clone()) + PrimExpr::select(lost, tail, log);
        finish(x, softplus)
    })
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

/// An element in another data type, as tensors of it are held.
pub(super) fn cast(x: PrimExpr, attrs: &CastAttrs) -> PrimExpr {
    let dtype = attrs.dtype;
    // What a tensor of the type is held in: see `te::held_as`.
    let held = held_as(dtype);
    if dtype == DType::F8E8M0 {
        return power_of_two(x.cast(DType::F32), attrs.round_mode, attrs.saturate);
    }
    let limit = SmallFloat::of(dtype).filter(|_| attrs.saturate && dtype.bits() == 8);
    let Some(limit) = limit.map(SmallFloat::max_value) else { return x.cast(dtype).cast(held) };
    let x = if x.dtype().is_float() { x } else { x.cast(DType::F32) };
    // The operand is on the right: a NaN passes.
    let above = like(-limit, &x).max(x);
    like(limit, &above).min(above).cast(dtype)
}

/// The power of two near the magnitude of a `float32`, by its exponent.
fn power_of_two(x: PrimExpr, rounding: PowerRounding, saturate: bool) -> PrimExpr {
    let int = |value: i64| PrimExpr::int(value, DType::I32);
    let shr = |value: PrimExpr| PrimExpr::binary(BinaryOp::Shr, value, int(23));
    let magnitude = x.reinterpret(DType::I32).and(int(0x7fff_ffff));
    let added = match rounding {
        PowerRounding::Up => 0x7f_ffff,
        PowerRounding::Down => 0,
        PowerRounding::Nearest => 0x40_0000,
    };
    let is_finite = magnitude.clone().less(int(0x7f80_0000));
    // The least power is denormal, so it and what is below it are told apart by value.
    let is_least = magnitude.clone().less_equal(int(0x40_0000));
    let power = shr(int(0x7f7f_ffff).min(magnitude) + int(added));
    let power = if saturate { int(0xfe).min(power) } else { power };
    let power = PrimExpr::select(is_least, int(0), power);
    let code = PrimExpr::select(is_finite, power, int(0xff));
    code.cast(DType::U8).reinterpret(DType::F8E8M0)
}

/// A bound of `x`. Between integers it is the next one inwards, which `round` finds; an integer type
/// cannot leave its range in any case.
fn bound(value: f64, round: fn(f64) -> f64, x: &PrimExpr) -> PrimExpr {
    match x.dtype().int_range() {
        Some((low, high)) => {
            PrimExpr::int((round(value) as i128).clamp(low, high) as i64, x.dtype())
        }
        None => like(value, x),
    }
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

fn exp_minus_one(x: PrimExpr) -> PrimExpr {
    let one = one(&x);
    PrimExpr::call(Intrinsic::Exp, x) - one
}

fn hardsigmoid(x: &PrimExpr, alpha: f64, beta: f64) -> PrimExpr {
    let line = multiply_add(x.clone(), like(alpha, x), like(beta, x));
    one(x).min(PrimExpr::zero(x.ty()).max(line))
}

fn gelu(x: PrimExpr, approximate: GeluApproximation) -> PrimExpr {
    let half = like(0.5, &x) * x.clone();
    let bend = match approximate {
        GeluApproximation::None => {
            PrimExpr::call(Intrinsic::Erf, x.clone() * like(std::f64::consts::FRAC_1_SQRT_2, &x))
        }
        GeluApproximation::Tanh => {
            let cube = x.clone() * x.clone() * x.clone();
            let scale = like((2.0 / std::f64::consts::PI).sqrt(), &x);
            let sum = multiply_add(cube, like(0.044_715, &x), x.clone());
            PrimExpr::call(Intrinsic::Tanh, sum * scale)
        }
    };
    multiply_add(half.clone(), bend, half)
}
