//! Random numbers. They are a function of the seed and of the place of an element: Widynski's
//! "squares" of a counter. So a model computes the same whenever and wherever it runs.
//!
//! A node without a seed takes one from the name of its output, so that two nodes differ.

use super::missing;
use crate::graph::ExprId;
use crate::ir::{DType, Dim, Shape};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::onnx::tensor::dtype_from_onnx;
use crate::ops::elementwise::{
    ADD, BITWISE_OR, COS, LEFT_SHIFT, LESS, LESS_EQUAL, LOG, MINIMUM, MULTIPLY, RIGHT_SHIFT, SQRT,
};
use crate::ops::nn::{SOFTMAX, SoftmaxAttrs};
use crate::ops::reduce::SUM;
use crate::ops::tensor::{CUMSUM, CumulativeAttrs};

/// Most places along an axis: their numbers are constants.
const MAX_EXTENT: i64 = 1 << 24;

/// The last step of the generator SplitMix64, which makes any number a random one.
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The key of a node's numbers, which is odd.
fn key(node: &Node<'_, '_>, seed: Option<u64>) -> u64 {
    let of_name = |name: &str| {
        name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        })
    };
    mixed(seed.unwrap_or_else(|| of_name(node.output_name(0)))) | 1
}

/// A scalar of 64 bits.
fn number(node: &mut Node<'_, '_>, value: u64) -> Result<ExprId, NodeError> {
    let signed = node.integers(&[], &[value as i64])?;
    node.cast(signed, DType::U64)
}

/// 32 random bits for each element of a shape, as 64-bit integers. `stream` of `streams` tells apart
/// the numbers that one element takes.
fn bits(
    node: &mut Node<'_, '_>,
    shape: &[Dim],
    key: u64,
    [stream, streams]: [u64; 2],
) -> Result<ExprId, NodeError> {
    let mut counter = number(node, stream)?;
    let mut distance = Dim::from(streams);
    for (axis, extent) in shape.iter().enumerate().rev() {
        if extent.as_const().is_some_and(|extent| extent > MAX_EXTENT) {
            return Err(NodeError::new(format!(
                "random numbers of shape {} are not supported: an axis may have at most \
                 {MAX_EXTENT} elements",
                Shape::new(shape.iter().cloned())
            )));
        }
        let mut dims = vec![Dim::from(1i64); shape.len()];
        dims[axis] = extent.clone();
        let places = node.counting(extent.clone())?;
        let places = node.reshape(places, dims)?;
        let places = node.cast(places, DType::U64)?;
        let step = node.size_scalar(&distance)?;
        let step = node.cast(step, DType::U64)?;
        let places = node.multiply(places, step)?;
        counter = node.add(counter, places)?;
        distance *= extent;
    }
    let key = number(node, key)?;
    let half = number(node, 32)?;
    let y = node.multiply(counter, key)?;
    let z = node.add(y, key)?;
    let mut x = y;
    for added in [y, z, y] {
        let square = node.multiply(x, x)?;
        let sum = node.add(square, added)?;
        let low = node.call(&RIGHT_SHIFT, &[sum, half])?;
        let high = node.call(&LEFT_SHIFT, &[sum, half])?;
        x = node.call(&BITWISE_OR, &[low, high])?;
    }
    let square = node.multiply(x, x)?;
    let sum = node.add(square, z)?;
    node.call(&RIGHT_SHIFT, &[sum, half])
}

/// Numbers from 0 up to but not 1, in 24 bits, or in 32 as `float64`.
fn uniform(
    node: &mut Node<'_, '_>,
    shape: &[Dim],
    dtype: DType,
    key: u64,
    streams: [u64; 2],
) -> Result<ExprId, NodeError> {
    let mut bits = bits(node, shape, key, streams)?;
    let mut unit = 2f64.powi(-32);
    if dtype != DType::F64 {
        let shift = number(node, 8)?;
        bits = node.call(&RIGHT_SHIFT, &[bits, shift])?;
        unit = 2f64.powi(-24);
    }
    // Both kinds of conversions are exact.
    let bits = node.cast(bits, DType::I64)?;
    let floats = node.cast(bits, dtype)?;
    node.with_scalar(&MULTIPLY, floats, unit)
}

/// The attribute `seed`, a float.
fn seed(node: &mut Node<'_, '_>) -> Result<Option<u64>, NodeError> {
    Ok(node.attrs.float("seed")?.map(f64::to_bits))
}

/// The type that an attribute names, if it is there.
fn dtype(node: &mut Node<'_, '_>) -> Result<Option<DType>, NodeError> {
    let code = node.attrs.int("dtype")?;
    Ok(code.map(|code| dtype_from_onnx(i32::try_from(code).unwrap_or(0))).transpose()?)
}

/// Shape and type of the result of `RandomUniform` and `RandomNormal`, or the kinds that are like
/// the input.
fn result(node: &mut Node<'_, '_>, like: bool) -> Result<(Vec<Dim>, DType), NodeError> {
    let named = dtype(node)?;
    let (shape, dtype) = if like {
        let x = node.input(0)?;
        (node.shape(x)?.to_vec(), named.unwrap_or(node.tensor(x)?.dtype))
    } else {
        let shape = node.attrs.ints("shape")?.ok_or_else(|| missing("shape"))?;
        (shape.iter().map(|&extent| Dim::from(extent)).collect(), named.unwrap_or(DType::F32))
    };
    let is_negative = |extent: &Dim| extent.as_const().is_some_and(|extent| extent < 0);
    if !dtype.is_float() || shape.iter().any(is_negative) {
        return Err(NodeError::new(format!(
            "random floats of a shape are expected, but they would be {dtype} of shape {}",
            Shape::new(shape)
        )));
    }
    Ok((shape, dtype))
}

/// `RandomUniform`-1, -22 and `RandomUniformLike`-1, -22 (more types).
pub(super) fn random_uniform(node: &mut Node<'_, '_>, like: bool) -> Result<Outputs, NodeError> {
    let (shape, dtype) = result(node, like)?;
    let low = node.attrs.float("low")?.unwrap_or(0.0);
    let high = node.attrs.float("high")?.unwrap_or(1.0);
    let seed = seed(node)?;
    let key = key(node, seed);
    let unit = uniform(node, &shape, dtype.accumulator(), key, [0, 1])?;
    let scaled = node.with_scalar(&MULTIPLY, unit, high - low)?;
    let moved = node.with_scalar(&ADD, scaled, low)?;
    Ok(vec![node.cast(moved, dtype)?])
}

/// `RandomNormal`-1, -22 and `RandomNormalLike`-1, -22 (more types): by the transform of Box and
/// Muller.
pub(super) fn random_normal(node: &mut Node<'_, '_>, like: bool) -> Result<Outputs, NodeError> {
    let (shape, dtype) = result(node, like)?;
    let mean = node.attrs.float("mean")?.unwrap_or(0.0);
    let scale = node.attrs.float("scale")?.unwrap_or(1.0);
    let seed = seed(node)?;
    let key = key(node, seed);
    let wide = dtype.accumulator();
    let first = uniform(node, &shape, wide, key, [0, 2])?;
    let second = uniform(node, &shape, wide, key, [1, 2])?;
    // There is no logarithm of zero; of one there is.
    let first = node.scalar_less(1.0, first)?;
    let logarithm = node.call(&LOG, &[first])?;
    let square = node.with_scalar(&MULTIPLY, logarithm, -2.0)?;
    let radius = node.call(&SQRT, &[square])?;
    let angle = node.with_scalar(&MULTIPLY, second, 2.0 * std::f64::consts::PI)?;
    let direction = node.call(&COS, &[angle])?;
    let normal = node.multiply(radius, direction)?;
    let scaled = node.with_scalar(&MULTIPLY, normal, scale)?;
    let moved = node.with_scalar(&ADD, scaled, mean)?;
    Ok(vec![node.cast(moved, dtype)?])
}

/// `Bernoulli`-15, -22 (more types): 1 with the probability that the input says.
pub(super) fn bernoulli(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let dtype = dtype(node)?.unwrap_or(node.tensor(x)?.dtype);
    let seed = seed(node)?;
    let key = key(node, seed);
    let shape = node.shape(x)?.to_vec();
    let wide = node.widened(x)?;
    let unit = uniform(node, &shape, node.tensor(wide)?.dtype, key, [0, 1])?;
    let drawn = node.call(&LESS, &[unit, wide])?;
    Ok(vec![node.cast(drawn, dtype)?])
}

/// `Multinomial`-7, -22 (more types): indices drawn by logarithms of their probabilities.
pub(super) fn multinomial(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let dtype = dtype(node)?.unwrap_or(DType::I32);
    let count = node.attrs.int("sample_size")?.unwrap_or(1);
    let seed = seed(node)?;
    let key = key(node, seed);
    let [batch, _] = &node.shape(x)?[..] else {
        return Err(NodeError::new(format!(
            "logarithms (batch, classes) are expected, but the input is {}",
            node.tensor(x)?
        )));
    };
    let (batch, classes) = (batch.clone(), node.known_extent(x, 1)?);
    if count < 1 || classes < 1 || !matches!(dtype, DType::I32 | DType::I64) {
        return Err(NodeError::new(format!(
            "{count} samples of {classes} classes as {dtype} are not possible: there must be some, \
             as int32 or int64"
        )));
    }
    let wide = node.widened(x)?;
    let float = node.tensor(wide)?.dtype;
    let shares = node.call_with(&SOFTMAX, &[wide], &SoftmaxAttrs { axis: 1 })?;
    let attrs = CumulativeAttrs { axis: 1, exclusive: false, reverse: false };
    let bounds = node.call_with(&CUMSUM, &[shares], &attrs)?;
    let bounds = node.reshape(bounds, vec![batch.clone(), 1i64.into(), classes.into()])?;
    let unit = uniform(node, &[batch, count.into(), 1i64.into()], float, key, [0, 1])?;
    let passed = node.call(&LESS_EQUAL, &[bounds, unit])?;
    let passed = node.cast(passed, dtype)?;
    let index = node.reduce(&SUM, passed, [2], false)?;
    // Rounded, the last bound may be less than one.
    Ok(vec![node.with_scalar(&MINIMUM, index, (classes - 1) as f64)?])
}

/// The elements that `Dropout` keeps in training, as booleans.
pub(super) fn kept(
    node: &mut Node<'_, '_>,
    x: ExprId,
    ratio: f64,
    seed: Option<i64>,
) -> Result<ExprId, NodeError> {
    let key = key(node, seed.map(|seed| seed as u64));
    let shape = node.shape(x)?.to_vec();
    let dtype = node.tensor(x)?.dtype.accumulator();
    let unit = uniform(node, &shape, dtype, key, [0, 1])?;
    let ratio = node.scalar(ratio, dtype)?;
    node.call(&LESS_EQUAL, &[ratio, unit])
}
