//! Operators on quantised tensors: on the numbers that the elements stand for, but for products,
//! which are sums of 32-bit integers.

use super::{channels_first, channels_last, single};
use crate::graph::ExprId;
use crate::ir::{Constant, DType, Dim, SharedBytes, TensorType, pack_elements, unpack_elements};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::onnx::ops::quantize::{dynamic_quantize_linear, matmul_sums, qlinear_conv, quantize};
use crate::onnx::ops::{missing, nn, reduce, window};
use crate::ops::OpDef;
use crate::ops::elementwise::MULTIPLY;
use crate::ops::nn::DENSE;
use crate::ops::qnn::{DEQUANTIZE, DequantizeAttrs, REQUANTIZE, RequantizeAttrs};
use crate::ops::reduce::MEAN;

/// Most rows, columns and elements of a block of packed weights, whose products 64 bits hold.
const MAX_EXTENT: i64 = 1 << 28;

/// The numbers that an input stands for, whose scale and zero point are the next two inputs.
fn numbers(node: &mut Node<'_, '_>, first: usize) -> Result<ExprId, NodeError> {
    let (x, scale) = (node.input(first)?, node.input(first + 1)?);
    let dtype = node.tensor(scale)?.dtype;
    let args = vec![Some(x), Some(scale), node.optional(first + 2)];
    let attrs = DequantizeAttrs { axis: 0, block_size: 0, dtype };
    node.call_optional(&DEQUANTIZE, args, &attrs)
}

/// The elements that stand for numbers, whose scale and zero point are two inputs. Without a zero
/// point they are of the type of input `like`.
fn quantized(
    node: &mut Node<'_, '_>,
    numbers: ExprId,
    scale: usize,
    like: usize,
) -> Result<ExprId, NodeError> {
    let zero_point = match node.optional(scale + 1) {
        Some(zero_point) => zero_point,
        None => {
            let dtype = node.tensor(node.input(like)?)?.dtype;
            node.scalar(0.0, dtype)?
        }
    };
    let scale = node.input(scale)?;
    quantize(node, numbers, scale, zero_point)
}

/// `QLinearAdd` and `QLinearMul`.
pub(super) fn binary(node: &mut Node<'_, '_>, op: &'static OpDef) -> Result<Outputs, NodeError> {
    let operands = [numbers(node, 0)?, numbers(node, 3)?];
    let result = node.call(op, &operands)?;
    Ok(vec![quantized(node, result, 6, 0)?])
}

/// `QLinearLeakyRelu` and other functions of one operand.
pub(super) fn function(
    node: &mut Node<'_, '_>,
    handler: impl FnOnce(&mut Node<'_, '_>) -> Result<Outputs, NodeError>,
) -> Result<Outputs, NodeError> {
    let x = numbers(node, 0)?;
    let y = single(node, 22, &[x], |node| handler(node))?;
    Ok(vec![quantized(node, y, 3, 0)?])
}

/// `QLinearSoftmax`: what `axis` means follows from the attribute `opset`.
pub(super) fn softmax(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let opset = node.attrs.int("opset")?.ok_or_else(|| missing("opset"))?;
    let axis = if node.attrs.has("axis") { None } else { Some(-1) };
    let x = numbers(node, 0)?;
    if opset < 13 && axis.is_some() {
        return Err(missing("axis").help("write the axis out, which is 1 before opset 13"));
    }
    let y = single(node, opset, &[x], |node| nn::softmax(node, &crate::ops::nn::SOFTMAX))?;
    Ok(vec![quantized(node, y, 3, 0)?])
}

/// `QLinearConcat`: operands, each with its scale and zero point, behind those of the result.
pub(super) fn concat(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let axis = node.attrs.int("axis")?.ok_or_else(|| missing("axis"))?;
    let count = node.input_count().saturating_sub(2);
    if count == 0 || !count.is_multiple_of(3) {
        return Err(NodeError::new(format!(
            "behind the first two inputs there must be three for each operand, but there are {count}"
        )));
    }
    let operands: Vec<ExprId> =
        (0..count / 3).map(|index| numbers(node, 2 + 3 * index)).collect::<Result<_, _>>()?;
    let axis = node.axis(axis, node.shape(operands[0])?.rank())?;
    let all = node.concatenate(&operands, axis)?;
    Ok(vec![quantized(node, all, 0, 2)?])
}

/// `QLinearWhere`.
pub(super) fn select(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let condition = node.input(0)?;
    let (yes, no) = (numbers(node, 1)?, numbers(node, 4)?);
    let result = node.choose(condition, yes, no)?;
    Ok(vec![quantized(node, result, 7, 1)?])
}

/// `QLinearReduceMean`.
pub(super) fn reduce_mean(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = numbers(node, 0)?;
    let y = single(node, 13, &[x], |node| reduce::simple(node, &MEAN, 18))?;
    Ok(vec![quantized(node, y, 3, 0)?])
}

/// What a pool makes of an image's numbers, whichever axis the channels are.
fn pool(
    node: &mut Node<'_, '_>,
    handler: impl FnOnce(&mut Node<'_, '_>) -> Result<Outputs, NodeError>,
) -> Result<Outputs, NodeError> {
    let is_last = node.attrs.flag("channels_last", false)?;
    let mut x = numbers(node, 0)?;
    if is_last {
        x = channels_first(node, x)?;
    }
    let mut y = single(node, 11, &[x], |node| handler(node))?;
    if is_last {
        y = channels_last(node, y)?;
    }
    Ok(vec![quantized(node, y, 3, 0)?])
}

/// `QLinearAveragePool`.
pub(super) fn average_pool(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    pool(node, window::average_pool)
}

/// `QLinearGlobalAveragePool`.
pub(super) fn global_average_pool(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    pool(node, window::global_average_pool)
}

/// `QLinearConv`: ONNX's, also of `(N, spatial…, C)`.
pub(super) fn conv(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    if !node.attrs.flag("channels_last", false)? {
        return qlinear_conv(node);
    }
    let mut inputs: Vec<_> = (0..node.input_count()).map(|index| node.optional(index)).collect();
    let x = node.input(0)?;
    inputs[0] = Some(channels_first(node, x)?);
    let outputs = node.on_inputs(10, inputs, |node| qlinear_conv(node))?;
    Ok(vec![channels_last(node, outputs[0])?])
}

/// Sums of products of bytes: of two matrices, each with its zero point.
fn sums(
    node: &mut Node<'_, '_>,
    a: [Option<ExprId>; 2],
    b: [Option<ExprId>; 2],
) -> Result<ExprId, NodeError> {
    let inputs = [a, b].concat();
    node.on_inputs(10, inputs, |node| matmul_sums(node, [0, 1], [2, 3]))
}

/// Sums of products times the product of two scales, with a bias.
fn scaled_sums(
    node: &mut Node<'_, '_>,
    sums: ExprId,
    scales: [ExprId; 2],
    bias: Option<ExprId>,
) -> Result<ExprId, NodeError> {
    let dtype = node.tensor(scales[1])?.dtype;
    let scale = node.multiply(scales[0], scales[1])?;
    let sums = node.cast(sums, dtype)?;
    let product = node.multiply(sums, scale)?;
    match bias {
        Some(bias) => node.add(product, bias),
        None => Ok(product),
    }
}

/// `MatMulIntegerToFloat`.
pub(super) fn matmul_integer_to_float(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (a, b) = (node.optional(0), node.optional(1));
    let scales = [node.input(2)?, node.input(3)?];
    let (a_zero, b_zero, bias) = (node.optional(4), node.optional(5), node.optional(6));
    let sums = sums(node, [a, a_zero], [b, b_zero])?;
    Ok(vec![scaled_sums(node, sums, scales, bias)?])
}

/// `DynamicQuantizeMatMul`: `DynamicQuantizeLinear` of the first operand, and the product.
pub(super) fn dynamic_quantize_matmul(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let a = node.input(0)?;
    let (b, b_scale, b_zero) = (node.optional(1), node.input(2)?, node.optional(3));
    let bias = node.optional(4);
    Ok(vec![dynamic_product(node, a, [b, b_zero], b_scale, bias)?])
}

/// The product of numbers, which are quantised for it, and quantised weights.
pub(in crate::onnx::ops) fn dynamic_product(
    node: &mut Node<'_, '_>,
    a: ExprId,
    b: [Option<ExprId>; 2],
    b_scale: ExprId,
    bias: Option<ExprId>,
) -> Result<ExprId, NodeError> {
    let quantized = node.on_inputs(11, vec![Some(a)], |node| dynamic_quantize_linear(node))?;
    let &[bytes, scale, zero] = quantized.as_slice() else {
        return Err(NodeError::new("three outputs are expected"));
    };
    let sums = sums(node, [Some(bytes), Some(zero)], b)?;
    scaled_sums(node, sums, [scale, b_scale], bias)
}

/// Attention's projection of `QAttention`: inputs 0 to 4, 6 and 7.
pub(super) fn attention_projection(node: &mut Node<'_, '_>) -> Result<ExprId, NodeError> {
    let (x, weight, bias) = (node.optional(0), node.optional(1), node.input(2)?);
    let scales = [node.input(3)?, node.input(4)?];
    let (x_zero, weight_zero) = (node.optional(6), node.optional(7));
    let sums = sums(node, [x, x_zero], [weight, weight_zero])?;
    scaled_sums(node, sums, scales, Some(bias))
}

/// `QGemm`: `alpha·A'·B' + C` in 32-bit integers, then quantised, or not without a scale.
pub(super) fn gemm(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (mut a, mut b) = (node.input(0)?, node.input(3)?);
    let scales = [node.input(1)?, node.input(4)?];
    let (a_zero, b_zero, c) = (node.optional(2), node.optional(5), node.optional(6));
    let (y_scale, y_zero) = (node.optional(7), node.optional(8));
    if node.attrs.flag("transA", false)? {
        a = transposed_matrix(node, a)?;
    }
    if node.attrs.flag("transB", false)? {
        b = transposed_matrix(node, b)?;
    }
    let alpha = node.attrs.float("alpha")?.unwrap_or(1.0);
    let mut sums = sums(node, [Some(a), a_zero], [Some(b), b_zero])?;
    if let Some(c) = c {
        sums = node.add(sums, c)?;
    }
    let a_scale = node.with_scalar(&MULTIPLY, scales[0], alpha)?;
    let Some(y_scale) = y_scale else {
        return Ok(vec![scaled_sums(node, sums, [a_scale, scales[1]], None)?]);
    };
    let y_zero = match y_zero {
        Some(zero) => zero,
        None => {
            let dtype = node.tensor(a)?.dtype;
            node.scalar(0.0, dtype)?
        }
    };
    let scale = node.multiply(a_scale, scales[1])?;
    let mut scale = node.divide(scale, y_scale)?;
    if node.tensor(scale)?.num_elements() == Some(1) {
        scale = node.reshape(scale, Vec::new())?;
    }
    let dtype = node.tensor(y_zero)?.dtype;
    let attrs = RequantizeAttrs { axis: -1, dtype };
    Ok(vec![node.call_with(&REQUANTIZE, &[sums, scale, y_zero], &attrs)?])
}

/// A matrix of bytes with its axes exchanged; a constant stays one.
fn transposed_matrix(node: &mut Node<'_, '_>, matrix: ExprId) -> Result<ExprId, NodeError> {
    let ty = node.tensor(matrix)?;
    let known = node.known_value(matrix).and_then(|constant| constant.to_bytes());
    let extents = ty.shape.as_consts();
    if let (Some(bytes), Some(&[rows, columns]), 8) = (known, extents.as_deref(), ty.dtype.bits()) {
        let (rows, columns) = (rows as usize, columns as usize);
        let turned: Vec<u8> = (0..columns)
            .flat_map(|column| (0..rows).map(move |row| row * columns + column))
            .map(|at| bytes[at])
            .collect();
        let ty = TensorType::from_consts(&[columns as i64, rows as i64], ty.dtype);
        return constant(node, ty, turned);
    }
    node.transposed(matrix, &[1, 0])
}

fn constant(node: &mut Node<'_, '_>, ty: TensorType, bytes: Vec<u8>) -> Result<ExprId, NodeError> {
    let constant = Constant::new(ty, SharedBytes::new(bytes));
    Ok(node.constant(constant.map_err(|error| NodeError::new(error.to_string()))?))
}

/// `MatMulNBits`: the product with a transposed matrix of 2, 4 or 8 bits, in blocks along its rows.
pub(super) fn matmul_n_bits(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let mut attribute = |name: &str, default: Option<i64>| -> Result<i64, NodeError> {
        let value = node.attrs.int(name)?.or(default).ok_or_else(|| missing(name))?;
        if (1..=MAX_EXTENT).contains(&value) {
            return Ok(value);
        }
        Err(NodeError::new(format!(
            "attribute `{name}` must be from 1 to {MAX_EXTENT}, but it is {value}"
        )))
    };
    let (columns, rows) = (attribute("K", None)?, attribute("N", None)?);
    let (block, bits) = (attribute("block_size", None)?, attribute("bits", Some(4))?);
    // How ONNX Runtime rounds the first operand.
    node.attrs.int("accuracy_level")?;
    if node.attrs.int("weight_prepacked")?.unwrap_or(0) != 0 {
        return Err(NodeError::new("weights in the layout of a device are not supported"));
    }
    let dtype = match bits {
        2 => DType::U2,
        4 => DType::U4,
        8 => DType::U8,
        other => {
            return Err(NodeError::new(format!(
                "attribute `bits` must be 2, 4 or 8, but it is {other}"
            )));
        }
    };
    if node.optional(4).is_some() {
        return Err(NodeError::new("input 4, `g_idx`, is not supported")
            .help("quantise the model without `act_order`"));
    }
    if block * bits % 8 != 0 {
        return Err(NodeError::new(format!("a block of {block} elements is no number of bytes")));
    }
    let (a, scales, bias) = (node.input(0)?, node.input(2)?, node.optional(5));
    let float = node.tensor(scales)?.dtype;
    let blocks = (columns + block - 1) / block;
    let blocked = |extents: [i64; 2]| extents.map(Dim::from).to_vec();
    let bytes = constant_bytes(node, 1, rows * blocks * (block * bits / 8))?;
    let ty = TensorType::from_consts(&[rows, blocks * block], dtype);
    let packed = constant(node, ty, bytes)?;
    // A constant stays one: products read blocks of a constant matrix as they are stored.
    let ty = TensorType::from_consts(&[rows, blocks], float);
    let known = node.known_value(scales).filter(|s| s.ty().num_elements() == ty.num_elements());
    let scales = match known.and_then(|scales| scales.to_bytes()) {
        Some(bytes) => constant(node, ty, bytes.to_vec())?,
        None => node.reshape(scales, blocked([rows, blocks]))?,
    };
    let zero = node.optional(3);
    let is_float = match zero {
        Some(zero) => node.tensor(zero)?.dtype.is_float(),
        None => false,
    };
    let wide = if let (Some(zero), true) = (zero, is_float) {
        let numbers = node.cast(packed, float)?;
        let grouped = [rows, blocks, block].map(Dim::from).to_vec();
        let numbers = node.reshape(numbers, grouped)?;
        let column = [rows, blocks, 1].map(Dim::from).to_vec();
        let (zero, scales) = (node.reshape(zero, column.clone())?, node.reshape(scales, column)?);
        let centred = node.subtract(numbers, zero)?;
        let weights = node.multiply(centred, scales)?;
        node.reshape(weights, blocked([rows, blocks * block]))?
    } else {
        let zeros: Vec<u8> = match zero {
            Some(_) => {
                let stride = (blocks * bits + 7) / 8;
                let bytes = constant_bytes(node, 3, rows * stride)?;
                bytes
                    .chunks(stride as usize)
                    .flat_map(|row| unpack_elements(dtype, row, blocks as usize))
                    .collect()
            }
            None => vec![1u8 << (bits - 1); (rows * blocks) as usize],
        };
        let ty = TensorType::from_consts(&[rows, blocks], dtype);
        let zeros = constant(node, ty, pack_elements(dtype, &zeros))?;
        let attrs = DequantizeAttrs { axis: 1, block_size: block, dtype: float };
        node.call_with(&DEQUANTIZE, &[packed, scales, zeros], &attrs)?
    };
    let weights = node.slice(wide, 1, 0, columns)?;
    let weights = {
        let dtype = node.tensor(a)?.dtype;
        node.cast(weights, dtype)?
    };
    let product = node.call(&DENSE, &[a, weights])?;
    Ok(vec![match bias {
        Some(bias) => node.add(product, bias)?,
        None => product,
    }])
}

/// The bytes of an input, which must be constant and so many.
fn constant_bytes(node: &mut Node<'_, '_>, index: usize, count: i64) -> Result<Vec<u8>, NodeError> {
    let value = node.input(index)?;
    let constant = node.known_value(value).ok_or_else(|| {
        NodeError::new(format!("input {index}, packed weights, must be constant"))
            .help("make it an initializer when exporting the model")
    })?;
    let bytes = constant.to_bytes().filter(|bytes| {
        constant.ty().dtype == DType::U8 && i64::try_from(bytes.len()) == Ok(count)
    });
    let ty = constant.ty();
    bytes.map(|bytes| bytes.to_vec()).ok_or_else(|| {
        NodeError::new(format!("input {index} must be {count} bytes, but it is {ty}"))
    })
}
