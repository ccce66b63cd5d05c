//! `cast`: conversion to another data type (ONNX `Cast`).

use serde::{Deserialize, Serialize};

use super::X;
use super::expr::{like, unary};
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::small_float::{PowerRounding, SmallFloat, decode_e8m0, encode_e8m0};
use crate::ir::{DType, Dim, TensorType, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::EvalCx;
use crate::ops::{EvalError, InferCx, OpDef, OpPattern, values};
use crate::te::held_as;
use crate::tir::{BinaryOp, PrimExpr};

/// Attributes of `cast`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CastAttrs {
    /// The data type of the result.
    pub dtype: DType,
    /// Whether a number beyond the greatest one of an 8-bit float becomes that number. Else it
    /// becomes infinity, or NaN where there is none.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub saturate: bool,
    /// How numbers become powers of two, in casts to `float8_e8m0`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub round_mode: PowerRounding,
}

impl CastAttrs {
    /// A cast as casts usually are: saturating, and powers of two rounded up.
    pub fn to(dtype: DType) -> CastAttrs {
        CastAttrs { dtype, saturate: true, round_mode: PowerRounding::Up }
    }
}

fn yes() -> bool {
    true
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_yes(value: &bool) -> bool {
    *value
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_default(mode: &PowerRounding) -> bool {
    *mode == PowerRounding::default()
}

/// The elements in another data type.
///
/// Floats become integers by truncation and saturate, as Rust's `as`; they wrap in integers narrower
/// than a byte, as other integers do everywhere; floats are rounded to nearest, ties to even; what is not zero becomes true. Casts to 8-bit floats go by the
/// attributes.
pub static CAST: OpDef =
    OpDef::new("cast", "the elements in another data type", X, infer, eval, compute)
        .attributes::<CastAttrs>()
        .pattern(OpPattern::ElemWise)
        .shape_value(shape_value);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: CastAttrs = cx.attrs()?;
    Ok(TensorType::new(cx.tensor(0)?.shape.clone(), attrs.dtype).into())
}

fn shape_value(cx: &InferCx<'_>) -> Option<Vec<Dim>> {
    let attrs: CastAttrs = cx.attrs().ok()?;
    let dims = cx.arg(0)?.shape_value?;
    values::checked(dims.to_vec(), attrs.dtype)
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let CastAttrs { dtype, saturate, round_mode } = cx.attrs()?;
    let elements = cx.arg(0)?.elements();
    let by_attributes = dtype.is_float() && dtype.bits() == 8;
    if !by_attributes {
        return cx.result(elements.clone());
    }
    let limit = SmallFloat::of(dtype).map(SmallFloat::max_value);
    let convert = |value: f64| match limit {
        None => decode_e8m0(encode_e8m0(value as f32, round_mode, saturate)),
        // A NaN passes.
        Some(limit) if saturate => value.clamp(-limit, limit),
        Some(_) => value,
    };
    let values = match elements {
        Elements::Float(values) => values.iter().map(|&value| convert(value)).collect(),
        Elements::Int(values) => values.iter().map(|&value| convert(value as f64)).collect(),
    };
    cx.result(Elements::Float(values))
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: CastAttrs = cx.attrs()?;
    unary(cx, |x| cast(x, &attrs))
}

/// An element in another data type, as tensors of it are held.
pub(in crate::ops) fn cast(x: PrimExpr, attrs: &CastAttrs) -> PrimExpr {
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
