//! Operators that work element by element: arithmetic, comparison, logic, activation.

use super::broadcast;
use super::fractions::Rounding;
use crate::ir::small_float::PowerRounding;
use crate::ir::{Constant, DType};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::onnx::tensor::dtype_from_onnx;
use crate::ops::OpDef;
use crate::ops::elementwise::{
    ADD, CAST, CEIL, CELU, CLIP, CastAttrs, CeluAttrs, ClipAttrs, DIVIDE, ELU, EluAttrs, FLOOR,
    FLOOR_MOD, GELU, GREATER, GeluApproximation, GeluAttrs, HARDSIGMOID, HardsigmoidAttrs, ISINF,
    LEAKY_RELU, LEFT_SHIFT, LESS, LOGICAL_AND, LeakyReluAttrs, MAXIMUM, MINIMUM, MOD, MULTIPLY,
    POWER, PRELU, RIGHT_SHIFT, SELU, SIGMOID, SeluAttrs, THRESHOLDED_RELU, ThresholdedReluAttrs,
    WHERE,
};

/// A function of one argument without attributes.
pub(super) fn unary(node: &mut Node<'_, '_>, op: &'static OpDef) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    Ok(vec![node.call(op, &[x])?])
}

/// `Floor`-1, -6, -13 (more types).
pub(super) fn floor(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    rounded(node, Rounding::Down, &FLOOR)
}

/// `Ceil`-1, -6, -13.
pub(super) fn ceil(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    rounded(node, Rounding::Up, &CEIL)
}

fn rounded(
    node: &mut Node<'_, '_>,
    to: Rounding,
    op: &'static OpDef,
) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    match node.rounded_size(x, to)? {
        Some(size) => Ok(vec![node.cast(size, node.tensor(x)?.dtype)?]),
        None => Ok(vec![node.call(op, &[x])?]),
    }
}

/// A function of two arguments without attributes, which broadcast.
pub(super) fn binary(node: &mut Node<'_, '_>, op: &'static OpDef) -> Result<Outputs, NodeError> {
    let (lhs, rhs) = (node.input(0)?, node.input(1)?);
    Ok(vec![node.call(op, &[lhs, rhs])?])
}

/// A function of any number of arguments, applied from the left.
pub(super) fn variadic(node: &mut Node<'_, '_>, op: &'static OpDef) -> Result<Outputs, NodeError> {
    let inputs = node.all_inputs()?;
    let mut inputs = inputs.into_iter();
    let first = inputs.next().ok_or_else(|| NodeError::new("there are no inputs"))?;
    let result = inputs.try_fold(first, |so_far, next| node.call(op, &[so_far, next]))?;
    Ok(vec![result])
}

/// `Mean`-6, -8 (broadcasting), -13: the sum of the inputs divided by their number.
pub(super) fn mean(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let count = node.input_count();
    let sum = variadic(node, &ADD)?;
    let &[sum] = sum.as_slice() else { return Ok(sum) };
    if count == 1 {
        return Ok(vec![sum]);
    }
    let dtype = node.tensor(sum)?.dtype;
    let count = node.scalar(count as f64, dtype)?;
    Ok(vec![node.call(&DIVIDE, &[sum, count])?])
}

/// `Pow`-7; -12 allows another type of the exponent; -13, -15 more types. The result has the type of
/// the base.
pub(super) fn pow(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (base, exponent) = (node.input(0)?, node.input(1)?);
    let (base_type, exponent_type) = (node.tensor(base)?.dtype, node.tensor(exponent)?.dtype);
    if base_type == exponent_type {
        return Ok(vec![node.call(&POWER, &[base, exponent])?]);
    }
    // An integer to a fractional power is computed in a type that has both values; else the exponent's
    // value survives in the base's.
    if base_type.is_int() && exponent_type.is_float() {
        let is_exact = base_type.bits() <= 16 && exponent_type == DType::F32;
        let float = if is_exact { DType::F32 } else { DType::F64 };
        let (wide, exponent) = (node.cast(base, float)?, node.cast(exponent, float)?);
        let power = node.call(&POWER, &[wide, exponent])?;
        return Ok(vec![node.cast(power, base_type)?]);
    }
    let exponent = node.cast(exponent, base_type)?;
    Ok(vec![node.call(&POWER, &[base, exponent])?])
}

/// `Mod`-10, -13, -28: with `fmod`, the remainder of the dividend's sign as in C, else of the
/// divisor's as in Python, for integers only.
pub(super) fn modulo(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let fmod = node.attrs.flag("fmod", false)?;
    let dtype = node.tensor(node.input(0)?)?.dtype;
    if !fmod && dtype.is_float() && node.version < 28 {
        return Err(NodeError::new("attribute `fmod` must be 1 for floats"));
    }
    binary(node, if fmod { &MOD } else { &FLOOR_MOD })
}

/// `BitShift`-11, -28: by the attribute `direction`.
pub(super) fn bit_shift(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    match node.attrs.string("direction")? {
        Some("LEFT") => binary(node, &LEFT_SHIFT),
        Some("RIGHT") => binary(node, &RIGHT_SHIFT),
        other => Err(NodeError::new(format!(
            "attribute `direction` must be LEFT or RIGHT, but it is {}",
            other.unwrap_or("missing")
        ))),
    }
}

/// `Where`-9, -16 (more types).
pub(super) fn select(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let inputs = node.all_inputs()?;
    Ok(vec![node.call(&WHERE, &inputs)?])
}

/// `IsInf`-10, -20 (more types): either sign can be left out.
pub(super) fn is_inf(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let negative = node.attrs.flag("detect_negative", true)?;
    let positive = node.attrs.flag("detect_positive", true)?;
    let x = node.input(0)?;
    let infinite = node.call(&ISINF, &[x])?;
    if negative && positive {
        return Ok(vec![infinite]);
    }
    let dtype = node.tensor(x)?.dtype;
    let zero = node.scalar(0.0, dtype)?;
    let sign = match (negative, positive) {
        (true, _) => node.call(&LESS, &[x, zero])?,
        (_, true) => node.call(&GREATER, &[x, zero])?,
        // Neither: nothing is less than itself.
        _ => node.call(&LESS, &[x, x])?,
    };
    Ok(vec![node.call(&LOGICAL_AND, &[infinite, sign])?])
}

/// `Clip`-6 has its bounds as attributes, -11 as inputs; -12 and -13 allow integers.
pub(super) fn clip(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    if node.version < 11 {
        let min = node.attrs.float("min")?.unwrap_or(f64::from(f32::MIN));
        let max = node.attrs.float("max")?.unwrap_or(f64::from(f32::MAX));
        let attrs = ClipAttrs { min: Some(min), max: Some(max) };
        return Ok(vec![node.call_with(&CLIP, &[x], &attrs)?]);
    }
    let bounds = [node.optional(1), node.optional(2)];
    for (bound, name) in bounds.iter().zip(["min", "max"]) {
        if let Some(bound) = *bound
            && node.tensor(bound)?.shape.rank() != 0
            && node.tensor(bound)?.num_elements() != Some(1)
        {
            return Err(NodeError::new(format!("input `{name}` must be a scalar")));
        }
    }
    // Integers of 64 bits do not all fit the floats that the attributes are.
    let exact = !matches!(node.tensor(x)?.dtype, DType::I64 | DType::U64);
    if let (true, Ok(min), Ok(max)) = (exact, node.number_input(1), node.number_input(2)) {
        if min.is_none() && max.is_none() {
            return Ok(vec![x]);
        }
        return Ok(vec![node.call_with(&CLIP, &[x], &ClipAttrs { min, max })?]);
    }
    let mut result = x;
    for (bound, op) in bounds.into_iter().zip([&MAXIMUM, &MINIMUM]) {
        if let Some(bound) = bound {
            let bound = node.reshape(bound, Vec::new())?;
            result = node.call(op, &[result, bound])?;
        }
    }
    Ok(vec![result])
}

/// `Cast`-6, -9, -13, -19 (`saturate`), -21, -23, -24 (`round_mode`), -25, -28. The two later
/// attributes only matter to 8-bit floats.
pub(super) fn cast(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let to = node.attrs.int("to")?.ok_or_else(|| NodeError::new("attribute `to` is missing"))?;
    let number = i32::try_from(to)
        .map_err(|_| NodeError::new(format!("attribute `to` is {to}, which is no data type")))?;
    cast_to(node, dtype_from_onnx(number)?)
}

/// `CastLike`-15, -19 (`saturate`), -21, -23, -24 (`round_mode`), -25: to the type of the second
/// input.
pub(super) fn cast_like(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let dtype = node.tensor(node.input(1)?)?.dtype;
    cast_to(node, dtype)
}

fn cast_to(node: &mut Node<'_, '_>, dtype: DType) -> Result<Outputs, NodeError> {
    let saturate = node.version < 19 || node.attrs.flag("saturate", true)?;
    let mode = if node.version >= 24 { node.attrs.string("round_mode")? } else { None };
    let round_mode = match mode {
        None | Some("up") => PowerRounding::Up,
        Some("down") => PowerRounding::Down,
        Some("nearest") => PowerRounding::Nearest,
        Some(other) => {
            return Err(NodeError::new(format!(
                "attribute `round_mode` must be up, down or nearest, but it is {other}"
            )));
        }
    };
    let x = node.input(0)?;
    // Only these types make use of the attributes: elsewhere one form of a cast is enough.
    let attrs = match dtype {
        DType::F8E8M0 => CastAttrs { dtype, saturate, round_mode },
        DType::F8E4M3FN | DType::F8E4M3FNUZ | DType::F8E5M2 | DType::F8E5M2FNUZ => {
            CastAttrs { saturate, ..CastAttrs::to(dtype) }
        }
        _ if dtype.is_int() => {
            let rounded = node.rounded_size(x, Rounding::TowardsZero)?;
            let whole = node.cast(rounded.unwrap_or(x), dtype)?;
            // A number that floats made of one extent, as its root, may be an extent beside open ones.
            let known = node.known_value(whole).map(|number| node.constant(number));
            return Ok(vec![known.unwrap_or(whole)]);
        }
        _ => return Ok(vec![node.cast(x, dtype)?]),
    };
    if node.tensor(x)?.dtype == dtype {
        return Ok(vec![x]);
    }
    Ok(vec![node.call_with(&CAST, &[x], &attrs)?])
}

/// `LeakyRelu`-6, -16 (more types).
pub(super) fn leaky_relu(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    // ONNX keeps the default in 32 bits.
    let alpha = node.attrs.float("alpha")?.unwrap_or(f64::from(0.01f32));
    let x = node.input(0)?;
    Ok(vec![node.call_with(&LEAKY_RELU, &[x], &LeakyReluAttrs { alpha })?])
}

/// `PRelu`-7 (broadcasting), -9, -16 (more types). The slope must broadcast to the input.
pub(super) fn prelu(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, slope) = (node.input(0)?, node.input(1)?);
    let shape = node.shape(x)?;
    let slope_shape = node.shape(slope)?;
    let fits =
        broadcast(&shape, &slope_shape, |_, _| false).is_ok_and(|dims| dims[..] == shape[..]);
    let channels = shape.get(1);
    let slope = if !fits && slope_shape.rank() == 1 && slope_shape.first() == channels {
        // Some exporters wrote one slope per channel as a vector, which runtimes accept.
        let mut dims = vec![crate::ir::Dim::from(1i64); shape.rank() - 1];
        dims[0] = slope_shape[0].clone();
        node.reshape(slope, dims)?
    } else {
        slope
    };
    Ok(vec![node.call(&PRELU, &[x, slope])?])
}

/// `Elu`-6, -22 (more types).
pub(super) fn elu(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let alpha = node.attrs.float("alpha")?.unwrap_or(1.0);
    let x = node.input(0)?;
    Ok(vec![node.call_with(&ELU, &[x], &EluAttrs { alpha })?])
}

/// `Celu`-12, -28 (more types).
pub(super) fn celu(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let alpha = node.attrs.float("alpha")?.unwrap_or(1.0);
    let x = node.input(0)?;
    Ok(vec![node.call_with(&CELU, &[x], &CeluAttrs { alpha })?])
}

/// `Selu`-6, -22 (more types).
pub(super) fn selu(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let alpha = node.attrs.float("alpha")?.unwrap_or(f64::from(1.673_263_2_f32));
    let gamma = node.attrs.float("gamma")?.unwrap_or(f64::from(1.050_701_f32));
    let x = node.input(0)?;
    Ok(vec![node.call_with(&SELU, &[x], &SeluAttrs { alpha, gamma })?])
}

/// `ThresholdedRelu`-10, -22 (more types).
pub(super) fn thresholded_relu(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let alpha = node.attrs.float("alpha")?.unwrap_or(1.0);
    let x = node.input(0)?;
    Ok(vec![node.call_with(&THRESHOLDED_RELU, &[x], &ThresholdedReluAttrs { alpha })?])
}

/// `HardSigmoid`-6, -22 (more types).
pub(super) fn hard_sigmoid(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let alpha = node.attrs.float("alpha")?.unwrap_or(f64::from(0.2f32));
    let beta = node.attrs.float("beta")?.unwrap_or(0.5);
    let x = node.input(0)?;
    Ok(vec![node.call_with(&HARDSIGMOID, &[x], &HardsigmoidAttrs { alpha, beta })?])
}

/// `Gelu`-20: by the error function, or approximated by the hyperbolic tangent.
pub(super) fn gelu(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let approximate = match node.attrs.string("approximate")? {
        None | Some("none") => GeluApproximation::None,
        Some("tanh") => GeluApproximation::Tanh,
        Some(other) => {
            return Err(NodeError::new(format!(
                "attribute `approximate` must be none or tanh, but it is `{other}`"
            )));
        }
    };
    let x = node.input(0)?;
    Ok(vec![node.call_with(&GELU, &[x], &GeluAttrs { approximate })?])
}

/// `Swish`-24: `x·sigmoid(alpha·x)`.
pub(super) fn swish(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let alpha = node.attrs.float("alpha")?.unwrap_or(1.0);
    let x = node.input(0)?;
    let scaled = if alpha == 1.0 {
        x
    } else {
        let dtype = node.tensor(x)?.dtype;
        let alpha = node.scalar(alpha, dtype)?;
        node.call(&MULTIPLY, &[x, alpha])?
    };
    let gate = node.call(&SIGMOID, &[scaled])?;
    Ok(vec![node.call(&MULTIPLY, &[x, gate])?])
}

/// `Constant`-1, -9 (more types), -11 (`sparse_value`), -12 (lists and scalars), -13 and later (more
/// types).
pub(super) fn constant(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let constant = if let Some(tensor) = node.attrs.tensor("value")? {
        node.read_constant(tensor)?
    } else if let Some(value) = node.attrs.float("value_float")? {
        Constant::from_f32(&[], &[value as f32]).map_err(|e| NodeError::new(e.to_string()))?
    } else if let Some(value) = node.attrs.int("value_int")? {
        Constant::from_i64(&[], &[value]).map_err(|e| NodeError::new(e.to_string()))?
    } else if let Some(values) = node.attrs.floats("value_floats")? {
        Constant::from_f32(&[values.len() as i64], values)
            .map_err(|e| NodeError::new(e.to_string()))?
    } else if let Some(values) = node.attrs.ints("value_ints")? {
        Constant::from_i64(&[values.len() as i64], values)
            .map_err(|e| NodeError::new(e.to_string()))?
    } else {
        let kind = ["sparse_value", "value_string", "value_strings"];
        return Err(match kind.into_iter().find(|kind| node.attrs.has(kind)) {
            Some(kind) => {
                NodeError::new(format!("constants of attribute `{kind}` are not supported"))
            }
            None => NodeError::new("no attribute gives the constant's value"),
        });
    };
    Ok(vec![node.constant(constant)])
}

/// `Shrink`-9: what lies within `lambd` of zero becomes zero, the rest moves towards it by `bias`.
pub(super) fn shrink(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let bias = node.attrs.float("bias")?.unwrap_or(0.0);
    let lambda = node.attrs.float("lambd")?.unwrap_or(0.5);
    let dtype = node.tensor(x)?.dtype;
    // Bounds and shift are float32, whatever is compared with them.
    let wide = match dtype {
        DType::F32 | DType::F64 => dtype,
        _ if dtype.is_float() => DType::F32,
        _ => DType::F64,
    };
    let value = node.cast(x, wide)?;
    let zero = node.scalar(0.0, wide)?;
    let is_low = node.with_scalar(&LESS, value, -lambda)?;
    let is_high = node.with_scalar(&GREATER, value, lambda)?;
    let low = node.with_scalar(&ADD, value, bias)?;
    let high = node.with_scalar(&ADD, value, -bias)?;
    let high = node.choose(is_high, high, zero)?;
    let result = node.choose(is_low, low, high)?;
    Ok(vec![node.cast(result, dtype)?])
}

/// `SwiGLU`-28: the `Swish` of a gate, times a value.
pub(super) fn swiglu(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (gate, value) = (node.input(0)?, node.input(1)?);
    let alpha = node.attrs.float("alpha")?.unwrap_or(1.0);
    let scaled = if alpha == 1.0 { gate } else { node.with_scalar(&MULTIPLY, gate, alpha)? };
    let open = node.call(&SIGMOID, &[scaled])?;
    let swish = node.multiply(gate, open)?;
    Ok(vec![node.multiply(swish, value)?])
}
