//! Quantisation, and products of quantised tensors.
//!
//! Products are sums of 32-bit integers and so exact. Constant weights that fit become `int8` without
//! a zero point; activations stay as they are, and what their zero point contributes to the sums is
//! subtracted from these. Of other operands the zero points are subtracted in 32 bits before an
//! ordinary convolution or matrix product.

use super::window::{conv_window, convolve, convolve_by};
use crate::graph::ExprId;
use crate::ir::{Constant, DType, Dim};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::onnx::tensor::dtype_from_onnx;
use crate::ops::elementwise::{ADD, CLIP, ClipAttrs, EQUAL, MAXIMUM, MINIMUM, ROUND};
use crate::ops::nn::{BIAS_ADD, BiasAddAttrs, MATMUL, MatmulAttrs, PAD, PadAttrs, PadMode};
use crate::ops::qnn::weights::{SignedWeights, int32s};
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
pub(super) fn quantize(
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
    Ok(vec![conv_sums(node, [0, 2], [1, 3], None)?])
}

/// `MatMulInteger`-10.
pub(super) fn matmul_integer(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    Ok(vec![matmul_sums(node, [0, 2], [1, 3])?])
}

/// `QLinearConv`-10: the weights may have a scale for each output channel.
pub(super) fn qlinear_conv(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let bias = node.optional(8);
    let sums = conv_sums(node, [0, 2], [3, 5], bias)?;
    let scale = product_scale(node, [1, 4, 6])?;
    Ok(vec![requantize(node, sums, scale, 7, 1)?])
}

/// `QLinearMatMul`-10, -21 (more types): `a` may have a scale for each row, or `b` one for each
/// column.
pub(super) fn qlinear_matmul(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let sums = matmul_sums(node, [0, 2], [3, 5])?;
    let (by_row, by_column) = (!is_single(node, 1)?, !is_single(node, 4)?);
    if by_row && by_column {
        return Err(NodeError::new(
            "scales for each row of `a` and for each column of `b` at once are not supported",
        ));
    }
    let scale = product_scale(node, [1, 4, 6])?;
    Ok(vec![requantize(node, sums, scale, 7, if by_row { -2 } else { -1 })?])
}

/// Operands of a product of bytes.
struct Bytes {
    x: ExprId,
    /// The one zero point of `x`, and its value if that is known.
    zero: Option<ExprId>,
    known_zero: Option<i64>,
    weights: SignedWeights,
}

/// The operands at two pairs of inputs, each with its zero point, if they are bytes with one zero
/// point and constant weights that are `int8` without theirs. Output channels run along `axis`.
fn bytes(
    node: &mut Node<'_, '_>,
    [x, x_zero]: [usize; 2],
    [weight, weight_zero]: [usize; 2],
    axis: usize,
) -> Result<Option<Bytes>, NodeError> {
    let (x, weight) = (node.input(x)?, node.input(weight)?);
    let zero = node.optional(x_zero);
    if !matches!(node.tensor(x)?.dtype, DType::I8 | DType::U8)
        || (zero.is_some() && !is_single(node, x_zero)?)
    {
        return Ok(None);
    }
    let known_zero = match zero {
        None => Some(0),
        Some(_) => node.int_input(x_zero).ok().flatten(),
    };
    let zeros = match node.optional(weight_zero) {
        None => Some(vec![0]),
        Some(_) => node.ints_input(weight_zero).ok().flatten(),
    };
    let weights = node
        .known_value(weight)
        .zip(zeros)
        .and_then(|(weight, zeros)| SignedWeights::new(&weight, &zeros, axis));
    Ok(weights.map(|weights| Bytes { x, zero, known_zero, weights }))
}

impl Bytes {
    /// What a known zero point and a bias add to the sums, if both are known.
    fn bias(&self, bias: Option<&[i64]>) -> Option<Vec<i32>> {
        self.weights.bias(self.known_zero?, bias)
    }

    /// What a zero point that is computed takes from the sums, as a vector.
    fn correction(&self, node: &mut Node<'_, '_>) -> Result<ExprId, NodeError> {
        let zero = match self.zero {
            Some(zero) => node.cast(zero, DType::I32)?,
            None => node.scalar(0.0, DType::I32)?,
        };
        let zero = node.reshape(zero, Vec::new())?;
        let sums = self.weights.bias(-1, None).and_then(|sums| vector(&sums));
        let sums = sums.ok_or_else(|| NodeError::new("sums of weights are beyond 32 bits"))?;
        let sums = node.constant(sums);
        node.multiply(sums, zero)
    }
}

fn vector(values: &[i32]) -> Option<Constant> {
    int32s(&[values.len() as i64], values)
}

/// The sums of a quantised convolution, and a bias.
fn conv_sums(
    node: &mut Node<'_, '_>,
    x: [usize; 2],
    weight: [usize; 2],
    bias: Option<ExprId>,
) -> Result<ExprId, NodeError> {
    let Some(bytes) = bytes(node, x, weight, 0)? else {
        let x = widened(node, x[0], x[1], Side::Single)?;
        let weight = widened(node, weight[0], weight[1], Side::First)?;
        let sums = convolve(node, x, weight, None)?;
        return add_bias(node, sums, bias);
    };
    let weight = node.constant(bytes.weights.weight.clone());
    let mut window = conv_window(node, bytes.x, weight)?;
    let known = bias.map(|bias| node.known_value(bias).and_then(|bias| bias.to_i64_vec()));
    let folded = match known {
        None => bytes.bias(None),
        Some(Some(known)) if known.len() == bytes.weights.sums.len() => bytes.bias(Some(&known)),
        Some(_) => None,
    };
    if let (Some(zero), Some(vector)) = (bytes.known_zero, folded.and_then(|all| vector(&all))) {
        let vector = node.constant(vector);
        let operands = [Some(bytes.x), Some(weight), Some(vector)];
        return convolve_by(node, &window, operands, zero, Some(DType::I32));
    }
    let x = match bytes.zero {
        Some(zero) if window.axes.iter().any(|axis| axis.before != 0 || axis.after != 0) => {
            let fill = node.reshape(zero, Vec::new())?;
            let sides = window.axes.iter().map(|axis| [axis.before, axis.after]);
            let pad_width = [[0, 0]; 2].into_iter().chain(sides).collect();
            for axis in &mut window.axes {
                (axis.before, axis.after) = (0, 0);
            }
            let attrs = PadAttrs { pad_width, mode: PadMode::Constant };
            node.call_with(&PAD, &[bytes.x, fill], &attrs)?
        }
        _ => bytes.x,
    };
    let operands = [Some(x), Some(weight), None];
    let sums = convolve_by(node, &window, operands, 0, Some(DType::I32))?;
    let correction = bytes.correction(node)?;
    let ones = window.axes.len();
    let shape = node.shape(correction)?;
    let dims = shape.iter().cloned().chain(std::iter::repeat_n(Dim::from(1i64), ones)).collect();
    let correction = node.reshape(correction, dims)?;
    let sums = node.subtract(sums, correction)?;
    add_bias(node, sums, bias)
}

fn add_bias(
    node: &mut Node<'_, '_>,
    sums: ExprId,
    bias: Option<ExprId>,
) -> Result<ExprId, NodeError> {
    match bias {
        Some(bias) => node.call_with(&BIAS_ADD, &[sums, bias], &BiasAddAttrs { axis: 1 }),
        None => Ok(sums),
    }
}

/// The sums of a quantised matrix product.
pub(super) fn matmul_sums(
    node: &mut Node<'_, '_>,
    a: [usize; 2],
    b: [usize; 2],
) -> Result<ExprId, NodeError> {
    let ranks = [node.shape(node.input(a[0])?)?.rank(), node.shape(node.input(b[0])?)?.rank()];
    let bytes = if ranks[0] >= 2 && ranks[1] == 2 { bytes(node, a, b, 1)? } else { None };
    let Some(bytes) = bytes else {
        let a = widened(node, a[0], a[1], Side::Rows)?;
        let b = widened(node, b[0], b[1], Side::Single)?;
        return matmul(node, a, b);
    };
    let weight = node.constant(bytes.weights.weight.clone());
    let attrs = MatmulAttrs { out_dtype: Some(DType::I32), ..MatmulAttrs::default() };
    let sums = node.call_with(&MATMUL, &[bytes.x, weight], &attrs)?;
    if bytes.known_zero == Some(0) {
        return Ok(sums);
    }
    if let Some(vector) = bytes.bias(None).and_then(|all| vector(&all)) {
        let vector = node.constant(vector);
        return node.call(&ADD, &[sums, vector]);
    }
    let correction = bytes.correction(node)?;
    node.subtract(sums, correction)
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
    let dtype = node.tensor(x)?.dtype;
    if !matches!(dtype, DType::I8 | DType::U8) {
        return Err(NodeError::new(format!(
            "int8 or uint8 is expected, but input {input} is {dtype}: quantise it, or use the \
             operator for floats"
        )));
    }
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
    let attrs = MatmulAttrs::default();
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
