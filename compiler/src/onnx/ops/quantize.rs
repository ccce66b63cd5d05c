//! Quantisation, and products of quantised tensors.
//!
//! Products are sums of 32-bit integers and so exact: what is quantised is widened and its zero
//! points are subtracted before an ordinary convolution or matrix product.

use super::window::convolve;
use crate::graph::ExprId;
use crate::ir::{DType, Dim};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::onnx::tensor::dtype_from_onnx;
use crate::ops::OpDef;
use crate::ops::elementwise::{CLIP, ClipAttrs, EQUAL, MAXIMUM, MINIMUM, ROUND};
use crate::ops::nn::{BIAS_ADD, BiasAddAttrs, MATMUL, MatmulAttrs};
use crate::ops::qnn::{
    DEQUANTIZE, DequantizeAttrs, QUANTIZE, QuantizeAttrs, REQUANTIZE, RequantizeAttrs,
};
use crate::ops::reduce::{MAX, MIN, ReduceAttrs};

/// An attribute that holds the number of a data type; 0 stands for none.
fn dtype_attribute(node: &mut Node<'_, '_>, name: &str) -> Result<Option<DType>, NodeError> {
    let Some(number) = node.attrs.int(name)?.filter(|&number| number != 0) else { return Ok(None) };
    let number = i32::try_from(number)
        .map_err(|_| NodeError::new(format!("attribute `{name}` is {number}, no data type")))?;
    Ok(Some(dtype_from_onnx(number)?))
}

/// `QuantizeLinear`-10, -13 (`axis`), -19 (8-bit floats, `saturate`), -21 (`block_size`,
/// `output_dtype`), -23 (`precision`), -24, -25 and -28 (more types).
pub(super) fn quantize_linear(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    quantize_at(node, node.version)
}

/// `QuantizeLinear` of the domain com.microsoft, which had the attributes before ONNX.
pub(super) fn microsoft_quantize_linear(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    quantize_at(node, 21)
}

fn quantize_at(node: &mut Node<'_, '_>, version: i64) -> Result<Outputs, NodeError> {
    let (axis, block_size) = axis_and_block(node, version)?;
    let saturate = version < 19 || node.attrs.flag("saturate", true)?;
    let declared = if version >= 21 { dtype_attribute(node, "output_dtype")? } else { None };
    let precision = if version >= 23 { dtype_attribute(node, "precision")? } else { None };
    let (x, scale, zero_point) = (node.input(0)?, node.input(1)?, node.optional(2));
    let zero_type = match zero_point {
        Some(zero_point) => Some(node.tensor(zero_point)?.dtype),
        None => None,
    };
    if let (Some(declared), Some(zero_type)) = (declared, zero_type)
        && declared != zero_type
    {
        return Err(NodeError::new(format!(
            "attribute `output_dtype` is {declared}, but the zero point is {zero_type}"
        )));
    }
    let dtype = zero_type.or(declared).unwrap_or(DType::U8);
    let attrs = QuantizeAttrs { axis, block_size, dtype, precision, saturate };
    Ok(vec![node.call_optional(&QUANTIZE, vec![Some(x), Some(scale), zero_point], &attrs)?])
}

/// `DequantizeLinear`-10, -13 (`axis`), -19 (8-bit floats), -21 (`block_size`), -23
/// (`output_dtype`), -24, -25 and -28 (more types).
pub(super) fn dequantize_linear(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    dequantize_at(node, node.version)
}

/// `DequantizeLinear` of the domain com.microsoft, which had the attributes before ONNX.
pub(super) fn microsoft_dequantize_linear(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    dequantize_at(node, 21)
}

fn dequantize_at(node: &mut Node<'_, '_>, version: i64) -> Result<Outputs, NodeError> {
    let (axis, block_size) = axis_and_block(node, version)?;
    let declared = if version >= 23 { dtype_attribute(node, "output_dtype")? } else { None };
    let (x, scale, zero_point) = (node.input(0)?, node.input(1)?, node.optional(2));
    let dtype = declared.unwrap_or(node.tensor(scale)?.dtype);
    let attrs = DequantizeAttrs { axis, block_size, dtype };
    Ok(vec![node.call_optional(&DEQUANTIZE, vec![Some(x), Some(scale), zero_point], &attrs)?])
}

fn axis_and_block(node: &mut Node<'_, '_>, version: i64) -> Result<(i64, i64), NodeError> {
    let axis = if version >= 13 { node.attrs.int("axis")? } else { None };
    let block_size = if version >= 21 { node.attrs.int("block_size")? } else { None };
    Ok((axis.unwrap_or(1), block_size.unwrap_or(0)))
}

/// `DynamicQuantizeLinear`-11: to unsigned bytes, with the scale that the elements fill.
pub(super) fn dynamic_quantize_linear(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let float = node.tensor(x)?.dtype;
    let (zero, one) = (node.scalar(0.0, float)?, node.scalar(1.0, float)?);
    // Zero must be one of the numbers.
    let all = ReduceAttrs { axis: Vec::new(), keepdims: false };
    let (greatest, least) = (node.call_with(&MAX, &[x], &all)?, node.call_with(&MIN, &[x], &all)?);
    let greatest = node.call(&MAXIMUM, &[greatest, zero])?;
    let least = node.call(&MINIMUM, &[least, zero])?;
    let span = node.subtract(greatest, least)?;
    let is_empty = node.call(&EQUAL, &[span, zero])?;
    let span = node.choose(is_empty, one, span)?;
    let steps = node.scalar(255.0, float)?;
    let scale = node.divide(span, steps)?;
    let first = node.divide(least, scale)?;
    let zero_point = node.subtract(zero, first)?;
    let range = ClipAttrs { min: Some(0.0), max: Some(255.0) };
    let zero_point = node.call_with(&CLIP, &[zero_point], &range)?;
    let zero_point = node.call(&ROUND, &[zero_point])?;
    let zero_point = node.cast(zero_point, DType::U8)?;
    let y = quantize(node, x, scale, zero_point)?;
    Ok(vec![y, scale, zero_point])
}

/// Elements quantised with one scale.
fn quantize(
    node: &mut Node<'_, '_>,
    x: ExprId,
    scale: ExprId,
    zero_point: ExprId,
) -> Result<ExprId, NodeError> {
    let dtype = node.tensor(zero_point)?.dtype;
    let attrs = QuantizeAttrs { axis: 0, block_size: 0, dtype, precision: None, saturate: true };
    node.call_with(&QUANTIZE, &[x, scale, zero_point], &attrs)
}

/// `ConvInteger`-10.
pub(super) fn conv_integer(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = widened(node, 0, 2, Side::Single)?;
    let weight = widened(node, 1, 3, Side::First)?;
    Ok(vec![convolve(node, x, weight, None)?])
}

/// `MatMulInteger`-10.
pub(super) fn matmul_integer(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let a = widened(node, 0, 2, Side::Rows)?;
    let b = widened(node, 1, 3, Side::Single)?;
    Ok(vec![matmul(node, a, b)?])
}

/// `QLinearConv`-10: the weights may have a scale for each output channel.
pub(super) fn qlinear_conv(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = widened(node, 0, 2, Side::Single)?;
    let weight = widened(node, 3, 5, Side::First)?;
    let mut sums = convolve(node, x, weight, None)?;
    if let Some(bias) = node.optional(8) {
        sums = node.call_with(&BIAS_ADD, &[sums, bias], &BiasAddAttrs { axis: 1 })?;
    }
    let scale = product_scale(node, [1, 4, 6])?;
    Ok(vec![requantize(node, sums, scale, 7, 1)?])
}

/// `QLinearMatMul`-10, -21 (more types): `a` may have a scale for each row, or `b` one for each
/// column.
pub(super) fn qlinear_matmul(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let a = widened(node, 0, 2, Side::Rows)?;
    let b = widened(node, 3, 5, Side::Single)?;
    let sums = matmul(node, a, b)?;
    let (by_row, by_column) = (!is_single(node, 1)?, !is_single(node, 4)?);
    if by_row && by_column {
        return Err(NodeError::new(
            "scales for each row of `a` and for each column of `b` at once are not supported",
        ));
    }
    let scale = product_scale(node, [1, 4, 6])?;
    Ok(vec![requantize(node, sums, scale, 7, if by_row { -2 } else { -1 })?])
}

/// `QLinearAdd` and `QLinearMul` of the domain com.microsoft: on the numbers that the elements stand
/// for.
pub(super) fn qlinear_binary(
    node: &mut Node<'_, '_>,
    op: &'static OpDef,
) -> Result<Outputs, NodeError> {
    let mut operands = Vec::new();
    for first in [0, 3] {
        let (x, scale) = (node.input(first)?, node.input(first + 1)?);
        let dtype = node.tensor(scale)?.dtype;
        let args = vec![Some(x), Some(scale), node.optional(first + 2)];
        let attrs = DequantizeAttrs { axis: 0, block_size: 0, dtype };
        operands.push(node.call_optional(&DEQUANTIZE, args, &attrs)?);
    }
    let result = node.call(op, &operands)?;
    let scale = node.input(6)?;
    let zero_point = match node.optional(7) {
        Some(zero_point) => zero_point,
        None => {
            let dtype = node.tensor(node.input(0)?)?.dtype;
            node.scalar(0.0, dtype)?
        }
    };
    Ok(vec![quantize(node, result, scale, zero_point)?])
}

/// Which axis of an operand its zero points go along if there are several.
#[derive(Clone, Copy)]
enum Side {
    /// The first one: output channels of weights.
    First,
    /// The last but one: rows of matrices.
    Rows,
    /// The last one, as broadcasting has it.
    Single,
}

/// A quantised input less its zero point, as 32-bit integers.
fn widened(
    node: &mut Node<'_, '_>,
    input: usize,
    zero_point: usize,
    side: Side,
) -> Result<ExprId, NodeError> {
    let x = node.input(input)?;
    let wide = node.cast(x, DType::I32)?;
    let Some(zero) = node.optional(zero_point) else { return Ok(wide) };
    let known = node.ints_input(zero_point);
    if matches!(known, Ok(Some(zeros)) if zeros.iter().all(|&zero| zero == 0)) {
        return Ok(wide);
    }
    let shape = node.shape(zero)?;
    let dims: Vec<Dim> = if is_single(node, zero_point)? {
        Vec::new()
    } else if shape.rank() == 1 {
        let rank = node.shape(x)?.rank();
        let after = match side {
            Side::First => rank.saturating_sub(1),
            Side::Rows => usize::from(rank >= 2),
            Side::Single => 0,
        };
        let ones = std::iter::repeat_n(Dim::from(1i64), after);
        shape.iter().cloned().chain(ones).collect()
    } else {
        shape.to_vec()
    };
    let zero = node.cast(zero, DType::I32)?;
    let zero = node.reshape(zero, dims)?;
    node.subtract(wide, zero)
}

fn is_single(node: &Node<'_, '_>, input: usize) -> Result<bool, NodeError> {
    let shape = node.shape(node.input(input)?)?;
    Ok(shape.iter().all(|dim| dim.as_const() == Some(1)))
}

fn matmul(node: &mut Node<'_, '_>, a: ExprId, b: ExprId) -> Result<ExprId, NodeError> {
    let attrs = MatmulAttrs { transpose_a: false, transpose_b: false };
    node.call_with(&MATMUL, &[a, b], &attrs)
}

/// The scale of the product of the first two divided by the third, in 32 bits.
fn product_scale(node: &mut Node<'_, '_>, inputs: [usize; 3]) -> Result<ExprId, NodeError> {
    let mut scales = Vec::with_capacity(inputs.len());
    for input in inputs {
        let scale = node.input(input)?;
        let single = is_single(node, input)?;
        let scale = node.cast(scale, DType::F32)?;
        scales.push(if single { node.reshape(scale, Vec::new())? } else { scale });
    }
    let product = node.multiply(scales[0], scales[1])?;
    node.divide(product, scales[2])
}

/// Sums in the scale and type of the result; the type is that of its zero point.
fn requantize(
    node: &mut Node<'_, '_>,
    sums: ExprId,
    scale: ExprId,
    zero_point: usize,
    axis: i64,
) -> Result<ExprId, NodeError> {
    let zero_point = match node.optional(zero_point) {
        Some(zero_point) => zero_point,
        None => {
            let dtype = node.tensor(node.input(0)?)?.dtype;
            node.scalar(0.0, dtype)?
        }
    };
    let dtype = node.tensor(zero_point)?.dtype;
    node.call_with(&REQUANTIZE, &[sums, scale, zero_point], &RequantizeAttrs { axis, dtype })
}
