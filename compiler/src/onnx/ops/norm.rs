//! Normalisation by other norms than a variance, and batch normalisation while training.

use crate::graph::ExprId;
use crate::ir::DType;
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::elementwise::{ABS, ADD, EQUAL, MULTIPLY, POWER, SQRT};
use crate::ops::nn::{L2_NORMALIZE, L2NormalizeAttrs};
use crate::ops::reduce::{MEAN, SUM};

/// `|x|^p`.
pub(super) fn power_of_magnitude(
    node: &mut Node<'_, '_>,
    x: ExprId,
    p: i64,
) -> Result<ExprId, NodeError> {
    match p {
        1 => node.call(&ABS, &[x]),
        2 => node.multiply(x, x),
        p => {
            let magnitude = node.call(&ABS, &[x])?;
            node.with_scalar(&POWER, magnitude, p as f64)
        }
    }
}

/// The `p`-th root.
pub(super) fn root(node: &mut Node<'_, '_>, x: ExprId, p: i64) -> Result<ExprId, NodeError> {
    match p {
        1 => Ok(x),
        2 => node.call(&SQRT, &[x]),
        p => node.with_scalar(&POWER, x, 1.0 / p as f64),
    }
}

/// The attribute `p`, the order of a norm.
pub(super) fn order(node: &mut Node<'_, '_>) -> Result<i64, NodeError> {
    let p = node.attrs.int("p")?.unwrap_or(2);
    if p < 1 {
        return Err(NodeError::new(format!("attribute `p` must be at least 1, but it is {p}")));
    }
    Ok(p)
}

/// `LpNormalization`-1, -22 (more types; a line of zeros stays zero).
pub(super) fn lp_normalization(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let p = order(node)?;
    let axis = node.attrs.int("axis")?.unwrap_or(-1);
    let axis = node.axis(axis, node.shape(x)?.rank())?;
    let dtype = node.tensor(x)?.dtype;
    if p == 2 {
        // So small a sum is that of zeros, or of numbers whose squares are no normal ones.
        let eps = match dtype.accumulator() {
            DType::F64 => f64::MIN_POSITIVE,
            _ => f64::from(f32::MIN_POSITIVE),
        };
        let attrs = L2NormalizeAttrs { eps, axis: vec![axis as i64] };
        return Ok(vec![node.call_with(&L2_NORMALIZE, &[x], &attrs)?]);
    }
    let x = node.widened(x)?;
    let powers = power_of_magnitude(node, x, p)?;
    let sum = node.reduce(&SUM, powers, [axis], true)?;
    let norm = root(node, sum, p)?;
    let is_zero = node.with_scalar(&EQUAL, norm, 0.0)?;
    let one = node.scalar(1.0, dtype.accumulator())?;
    let norm = node.choose(is_zero, one, norm)?;
    let normal = node.divide(x, norm)?;
    Ok(vec![node.cast(normal, dtype)?])
}

/// `GlobalLpPool`-1, -2 (integral `p`), -22 (more types).
pub(super) fn global_lp_pool(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let p = order(node)?;
    let rank = node.shape(x)?.rank();
    if rank < 3 {
        return Err(NodeError::new("input 0 must have dimensions (N, C, spatial…)"));
    }
    let wide = node.widened(x)?;
    let powers = power_of_magnitude(node, wide, p)?;
    let sum = node.reduce(&SUM, powers, 2..rank, true)?;
    let norm = root(node, sum, p)?;
    let dtype = node.tensor(x)?.dtype;
    Ok(vec![node.cast(norm, dtype)?])
}

/// `MeanVarianceNormalization`-9, -13 (more types).
pub(super) fn mean_variance(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    /// What ONNX adds to the deviation, which may be zero.
    const LEAST: f64 = 1e-9;
    let x = node.input(0)?;
    let rank = node.shape(x)?.rank();
    let axes = node.attrs.ints("axes")?.unwrap_or(&[0, 2, 3]).to_vec();
    let axes = node.axes(&axes, rank)?;
    let wide = node.widened(x)?;
    let mean = node.reduce(&MEAN, wide, axes.iter().copied(), true)?;
    let centred = node.subtract(wide, mean)?;
    let square = node.multiply(centred, centred)?;
    let variance = node.reduce(&MEAN, square, axes, true)?;
    let deviation = node.call(&SQRT, &[variance])?;
    let deviation = node.with_scalar(&ADD, deviation, LEAST)?;
    let normal = node.divide(centred, deviation)?;
    let dtype = node.tensor(x)?.dtype;
    Ok(vec![node.cast(normal, dtype)?])
}

/// `BatchNormalization` in training mode: by the statistics of the batch, into which the running ones
/// are drawn.
pub(super) fn batch_in_training(
    node: &mut Node<'_, '_>,
    epsilon: f64,
    momentum: f64,
) -> Result<Outputs, NodeError> {
    let (x, gamma, beta) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let (running_mean, running_variance) = (node.input(3)?, node.input(4)?);
    let ty = node.tensor(x)?;
    let rank = ty.shape.rank();
    if rank < 2 {
        return Err(NodeError::new("input 0 must have dimensions (N, C, …)"));
    }
    let axes: Vec<usize> = (0..rank).filter(|&axis| axis != 1).collect();
    let wide = node.widened(x)?;
    let mean = node.reduce(&MEAN, wide, axes.iter().copied(), true)?;
    let centred = node.subtract(wide, mean)?;
    let square = node.multiply(centred, centred)?;
    let variance = node.reduce(&MEAN, square, axes, true)?;
    let spread = node.with_scalar(&ADD, variance, epsilon)?;
    let deviation = node.call(&SQRT, &[spread])?;
    let normal = node.divide(centred, deviation)?;
    let scaled = super::nn::per_channel(node, normal, gamma, beta)?;
    let mut outputs = vec![node.cast(scaled, ty.dtype)?];
    for (running, of_batch) in [(running_mean, mean), (running_variance, variance)] {
        let running_ty = node.tensor(running)?;
        let of_batch = node.cast(of_batch, running_ty.dtype.accumulator())?;
        let of_batch = node.reshape(of_batch, running_ty.shape.to_vec())?;
        let running = node.widened(running)?;
        let kept = node.with_scalar(&MULTIPLY, running, momentum)?;
        let drawn = node.with_scalar(&MULTIPLY, of_batch, 1.0 - momentum)?;
        let sum = node.add(kept, drawn)?;
        outputs.push(node.cast(sum, running_ty.dtype)?);
    }
    Ok(outputs)
}
