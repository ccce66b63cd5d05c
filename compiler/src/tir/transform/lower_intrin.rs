//! Mathematical functions, reductions of lanes and divisions of integers in terms of plain operations.
//!
//! Greatest error of the `float32` functions on finite arguments, in units in the last place of the
//! correctly rounded result, as the tests measure it with and without fused multiply-add:
//!
//! | function | ulp | method |
//! |---|---|---|
//! | `exp` | 2.2 | Cody–Waite reduction by ln 2, degree 5, where a power of two is an instruction, and where denormal numbers are flushed to zero for arguments that are seen to be at most 88; elsewhere by 2·ln 2, degree 7, scaled by twice the same power of two, so that underflow is gradual |
//! | `log` | 1 | mantissa in [√½, √2), degree 11; denormal arguments are scaled first |
//! | `tanh` | 5 | x·P₅(x²)/Q₄(x²) up to 9.03 |
//! | `erf` | 6 | x·P₅(x²)/Q₅(x²) up to 3.95 |
//! | `sigmoid` | 3.2 | 1/(1 + exp(−x)); a result below 2⁻¹²⁶ may be 0 |
//! | `atan`, `asin`, `acos` | 3 | reduced to tan(π/8) or ½, degree 11 |
//! | `sin`, `cos` | 1.6 | reduced to ±π/4 in `float64`, however large; degrees 7 and 8 |
//! | `tan` | 3.4 | the quotient of both |
//! | `sinh`, `cosh` | 2.6 | of e^\|x\| / 2; the first up to 1 by degree 9 |
//! | `asinh`, `acosh`, `atanh` | 2.2 | log(1 + u), with what is lost of u |
//! | `pow`, exponent 3, 4, −0.5 or 0.75 | 2 | products, square roots |
//! | `pow`, others | 0.51 | 2^(y · log₂ x) in `float64`, degrees 11 and 7; the library's where there are no vectors |
//!
//! With [`STRICT_MATH`], `exp`, `tanh`, `erf` and `sigmoid` of `float32` are those of `float64`, rounded,
//! and so off by half a unit or hardly more.
//!
//! Where denormal numbers are flushed to zero, functions of the library get and give none: they are
//! not made for that mode, in which `log` of a denormal number is any number.
//!
//! NaN, infinities and signed zeros give what C's functions give. `sqrt`, `abs` and, where the
//! target has them, `floor`, `ceil`, `trunc` and `round` are instructions and stay. Everything else
//! stays as well and is a call of the system's mathematical library. Conversions of `float16` are
//! operations on bits where the target has no instruction for them.

mod angles;
mod division;
mod hyperbolic;
mod math;
mod nearest;
mod powers;
mod rounding;

use crate::ir::{DType, IRModule};
use crate::pass::{PassContext, prim_func_pass};
use crate::target::Target;
use crate::tir::transform::unsupported_dtype_legalize::convert as small_floats;
use crate::tir::transform::{FLUSH_DENORMALS, LowerMulAdd};
use crate::tir::{Intrinsic, PrimExpr, PrimFunc, PrimFuncData, Stmt};
use math::Math;

crate::register_pass_config_option! {
    /// Whether functions are computed to one unit in the last place, by the system's mathematical
    /// library, where an approximation would be off by more.
    pub STRICT_MATH: bool = "tir.strict_math", default = false;
}

/// Replaces mathematical functions by polynomials and reductions of lanes by shuffles.
///
/// Functions for which the target has an instruction stay.
#[prim_func_pass(opt_level = 0, name = "tir.LowerIntrin", after = [LowerMulAdd], crate = crate)]
pub fn lower_intrin(mut func: PrimFunc, _module: &IRModule, cx: &PassContext) -> PrimFunc {
    let mut any = false;
    func.body.walk_exprs(&mut |expr| {
        any |= matches!(
            expr,
            PrimExpr::Call { .. } | PrimExpr::VectorReduce { .. } | PrimExpr::DotAdd { .. }
        ) || matches!(expr, PrimExpr::Binary { op, lhs, rhs } if division::is_of_floats(*op, lhs, rhs));
    });
    if !any {
        return func;
    }
    let data = func.make_mut();
    let strict = cx.get(&STRICT_MATH);
    let flush = cx.get(&FLUSH_DENORMALS) && cx.target().can_flush_denormals();
    let part = f64_lanes(cx.target());
    let body = std::mem::replace(&mut data.body, Stmt::nop());
    data.body = body.map_exprs(&mut |expr| {
        // Before roundings are replaced, which these take the place of.
        let expr = expr.rewrite(&mut |expr| match expr {
            PrimExpr::Cast { value, dtype } => {
                Math::plain(data).finish(|math| math.small_integer(*value, dtype))
            }
            other => other,
        });
        expr.rewrite(&mut |expr| match expr {
            PrimExpr::Call { intrinsic, args } if strict && is_approximate(intrinsic, &args) => {
                strict_call(data, cx.target(), flush, intrinsic, args)
            }
            PrimExpr::Call { intrinsic, args } => call(data, cx.target(), flush, intrinsic, args),
            PrimExpr::VectorReduce { op, value } => {
                Math::plain(data).finish(|math| math.reduce(op, *value))
            }
            PrimExpr::Binary { op, lhs, rhs }
                if part > 0 && division::is_of_floats(op, &lhs, &rhs) =>
            {
                Math::plain(data).finish(|math| {
                    let trunc =
                        |math: &mut Math<'_>, x| round(math, cx.target(), Intrinsic::Trunc, x);
                    math.divide(op, *lhs, *rhs, part, &trunc)
                })
            }
            PrimExpr::DotAdd { a, b, c } if !has_dot_add(cx.target(), a.dtype(), c.ty().lanes) => {
                dot_add(data, *a, *b, *c)
            }
            other => other,
        })
    });
    func
}

/// Whether what takes the place of a function is off by more than one unit in the last place.
fn is_approximate(intrinsic: Intrinsic, args: &[PrimExpr]) -> bool {
    let is_f32 = args.first().is_some_and(|x| x.dtype() == DType::F32);
    let exponent = || args.get(1).and_then(PrimExpr::as_float);
    is_f32
        && match intrinsic {
            Intrinsic::Exp
            | Intrinsic::Tanh
            | Intrinsic::Erf
            | Intrinsic::Sigmoid
            | Intrinsic::Atan
            | Intrinsic::Asin
            | Intrinsic::Acos
            | Intrinsic::Sin
            | Intrinsic::Cos
            | Intrinsic::Tan
            | Intrinsic::Sinh
            | Intrinsic::Cosh
            | Intrinsic::Asinh
            | Intrinsic::Acosh
            | Intrinsic::Atanh => true,
            Intrinsic::Pow => matches!(exponent(), Some(3.0 | 4.0 | -0.5 | 0.75)),
            _ => false,
        }
}

/// A function of `float32` computed in `float64`, in parts for which the target has vectors.
fn strict_call(
    data: &mut PrimFuncData,
    target: &Target,
    flush: bool,
    intrinsic: Intrinsic,
    args: Vec<PrimExpr>,
) -> PrimExpr {
    let wide = |args: &[PrimExpr]| args.iter().map(|arg| arg.clone().cast(DType::F64)).collect();
    let lanes = args.first().map_or(1, |x| x.ty().lanes);
    let part = f64_lanes(target);
    if part == 0 || lanes <= part || !lanes.is_multiple_of(part) {
        return call(data, target, flush, intrinsic, wide(&args)).cast(DType::F32);
    }
    // The arguments are computed once.
    let names: Vec<_> = args.into_iter().map(|x| (data.var("x", x.ty()), x)).collect();
    let whole: Vec<PrimExpr> = names.iter().map(|(name, _)| data.var_expr(*name)).collect();
    let parts = (0..lanes).step_by(part as usize).map(|first| {
        let picked = |x: &PrimExpr| x.clone().shuffle((first..first + part).collect());
        let args: Vec<PrimExpr> = whole.iter().map(picked).collect();
        call(data, target, flush, intrinsic, wide(&args)).cast(DType::F32)
    });
    let vectors = parts.collect();
    let joined = PrimExpr::Shuffle { vectors, lanes: (0..lanes).collect() };
    names.into_iter().rev().fold(joined, |body, (var, value)| PrimExpr::Let {
        var,
        value: Box::new(value),
        body: Box::new(body),
    })
}

/// Lanes of a vector of `float64`; 0 for a target without vectors.
fn f64_lanes(target: &Target) -> u32 {
    u32::try_from(target.vector_bits()).map_or(0, |bits| bits / DType::F64.bits())
}

fn call(
    data: &mut PrimFuncData,
    target: &Target,
    flush: bool,
    intrinsic: Intrinsic,
    args: Vec<PrimExpr>,
) -> PrimExpr {
    let Some(x) = args.first().cloned() else { return PrimExpr::Call { intrinsic, args } };
    let dtype = x.dtype();
    let is_f32 = dtype == DType::F32;
    let mut math = Math::of_target(data, target, flush);
    match intrinsic {
        Intrinsic::Exp if is_f32 => math.finish(|math| math.exp(x)),
        Intrinsic::Log if is_f32 => math.finish(|math| math.log(x)),
        Intrinsic::Tanh if is_f32 => math.finish(|math| math.tanh(x)),
        Intrinsic::Erf if is_f32 => math.finish(|math| math.erf(x)),
        Intrinsic::Atan if is_f32 => math.finish(|math| math.atan(x)),
        Intrinsic::Asin if is_f32 => math.finish(|math| math.asin(x)),
        Intrinsic::Acos if is_f32 => math.finish(|math| math.acos(x)),
        Intrinsic::Sigmoid if is_f32 => math.finish(|math| math.sigmoid(x)),
        Intrinsic::Sinh if is_f32 => math.finish(|math| math.sinh(x)),
        Intrinsic::Cosh if is_f32 => math.finish(|math| math.cosh(x)),
        Intrinsic::Asinh if is_f32 => math.finish(|math| math.asinh(x)),
        Intrinsic::Acosh if is_f32 => math.finish(|math| math.acosh(x)),
        Intrinsic::Atanh if is_f32 => math.finish(|math| math.atanh(x)),
        Intrinsic::Sin | Intrinsic::Cos | Intrinsic::Tan if is_f32 => {
            math.finish(|math| math.angle(intrinsic, x, f64_lanes(target)))
        }
        Intrinsic::Sigmoid => {
            let one = || PrimExpr::float(1.0, dtype);
            let lanes = x.ty().lanes;
            let exp = math.library_call(Intrinsic::Exp, vec![-x], flush);
            one().broadcast_to(lanes) / (exp + one())
        }
        Intrinsic::Ldexp if is_f32 && !target.has_ldexp() => {
            let n = args[1].clone();
            math.finish(|math| {
                let floor = |math: &mut Math<'_>, n| round(math, target, Intrinsic::Floor, n);
                math.ldexp(x, n, &floor)
            })
        }
        Intrinsic::Pow => {
            let power = args[1].as_float().and_then(|exponent| power(&mut math, &x, exponent));
            let part = f64_lanes(target);
            match power {
                Some(power) => power,
                None if is_f32 && part > 0 => {
                    let trunc = |math: &mut Math<'_>, x| round(math, target, Intrinsic::Trunc, x);
                    math.finish(|math| {
                        // LLVM looks at bits where a number is compared with zero and infinity.
                        let [x, y] = [x, args[1].clone()].map(|arg| match flush {
                            true => math.without_denormals(arg),
                            false => arg,
                        });
                        math.pow(x, y, part, &trunc)
                    })
                }
                None => math.library_call(intrinsic, args, flush),
            }
        }
        Intrinsic::Floor | Intrinsic::Ceil | Intrinsic::Trunc | Intrinsic::Round
            if !target.has_rounding() && matches!(dtype, DType::F32 | DType::F64) =>
        {
            math.finish(|math| math.round(intrinsic, x))
        }
        Intrinsic::Sqrt
        | Intrinsic::Floor
        | Intrinsic::Ceil
        | Intrinsic::Trunc
        | Intrinsic::Round
        | Intrinsic::Abs
        | Intrinsic::Ldexp => PrimExpr::Call { intrinsic, args },
        Intrinsic::FromFp16 | Intrinsic::ToFp16 if target.has_fp16_conversion() => {
            PrimExpr::Call { intrinsic, args }
        }
        Intrinsic::FromFp16 => small_floats::widen(data, x, DType::F16),
        Intrinsic::ToFp16 => small_floats::narrow(data, x, DType::F16),
        Intrinsic::Exp
        | Intrinsic::Log
        | Intrinsic::Tanh
        | Intrinsic::Erf
        | Intrinsic::Sin
        | Intrinsic::Cos
        | Intrinsic::Tan
        | Intrinsic::Asin
        | Intrinsic::Acos
        | Intrinsic::Atan
        | Intrinsic::Sinh
        | Intrinsic::Cosh
        | Intrinsic::Asinh
        | Intrinsic::Acosh
        | Intrinsic::Atanh => math.library_call(intrinsic, args, flush),
    }
}

/// A rounding function, by an instruction where the target has one.
fn round(math: &mut Math<'_>, target: &Target, intrinsic: Intrinsic, x: PrimExpr) -> PrimExpr {
    match target.has_rounding() {
        true => PrimExpr::call(intrinsic, x),
        false => math.round(intrinsic, x),
    }
}

/// `x` to a power that takes no library function: those that models have; 0.75 is that of
/// normalisations over neighbouring channels.
fn power(math: &mut Math<'_>, x: &PrimExpr, exponent: f64) -> Option<PrimExpr> {
    let constant = |value: f64| PrimExpr::float(value, x.dtype()).broadcast_to(x.ty().lanes);
    // The square root of C has other values at -0 and at -infinity.
    let root = |x: PrimExpr| {
        let is_lowest = x.clone().equal(constant(f64::NEG_INFINITY));
        let x = PrimExpr::select(is_lowest, constant(f64::INFINITY), x);
        PrimExpr::call(Intrinsic::Sqrt, x) + constant(0.0)
    };
    if ![1.0, 2.0, 3.0, 4.0, -1.0, 0.5, -0.5, 0.75].contains(&exponent) {
        return None;
    }
    Some(math.finish(|math| {
        let x = math.bind("x", x.clone());
        match exponent {
            1.0 => x,
            2.0 => x.clone() * x,
            3.0 => x.clone() * x.clone() * x,
            4.0 => {
                let square = math.bind("square", x.clone() * x);
                square.clone() * square
            }
            0.5 => root(x),
            -0.5 => constant(1.0) / root(x),
            0.75 => {
                let root = math.bind("root", root(x));
                root.clone() * PrimExpr::call(Intrinsic::Sqrt, root)
            }
            _ => constant(1.0) / x,
        }
    }))
}

/// Whether code generators have instructions for dot products of bytes, or of words.
fn has_dot_add(target: &Target, factors: DType, lanes: u32) -> bool {
    match factors {
        DType::I16 => target.has_word_dot_add(lanes),
        _ => target.has_dot_add(lanes) || target.has_pair_add(lanes),
    }
}

/// Products of each lane of a group, added one after the other.
fn dot_add(data: &mut PrimFuncData, a: PrimExpr, b: PrimExpr, c: PrimExpr) -> PrimExpr {
    let mut math = Math::plain(data);
    math.finish(|math| {
        let lanes = c.ty().lanes;
        let group = a.ty().lanes / lanes;
        let (a, b) = (math.bind("a", a), math.bind("b", b));
        (0..group).fold(c, |sum, part| {
            let wide = |vector: &PrimExpr| {
                let lanes = (0..lanes).map(|lane| lane * group + part).collect();
                vector.clone().shuffle(lanes).cast(DType::I32)
            };
            sum + wide(&a) * wide(&b)
        })
    })
}
