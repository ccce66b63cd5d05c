//! Optimisers of `ai.onnx.preview.training`: one step of `Adagrad`, `Adam` and `Momentum`.

use crate::graph::ExprId;
use crate::ir::DType;
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::elementwise::{ADD, GREATER, MULTIPLY, POWER, SQRT};

/// The inputs of an optimiser: rate, number of the step, and for each tensor that is trained the
/// tensor, its gradient and what the optimiser remembers of it.
struct Trained {
    rate: ExprId,
    step: ExprId,
    /// For each tensor, itself and the others.
    tensors: Vec<Vec<ExprId>>,
}

impl Trained {
    /// `kinds` inputs for each tensor: all of one kind, then all of the next.
    fn read(node: &Node<'_, '_>, kinds: usize) -> Result<Trained, NodeError> {
        let inputs = node.all_inputs()?;
        let (Some((&[rate, step], rest)), true) =
            (inputs.split_first_chunk::<2>(), inputs.len() >= 2 && (inputs.len() - 2) % kinds == 0)
        else {
            return Err(NodeError::new(format!(
                "there must be two inputs and {kinds} for each tensor, but there are {}",
                inputs.len()
            )));
        };
        let count = rest.len() / kinds;
        let tensors = (0..count)
            .map(|tensor| (0..kinds).map(|kind| rest[kind * count + tensor]).collect())
            .collect();
        Ok(Trained { rate, step, tensors })
    }
}

/// Outputs of each tensor, `kinds` of them, as all of one kind, then all of the next.
fn by_kind(results: &[Vec<ExprId>], kinds: usize) -> Outputs {
    (0..kinds).flat_map(|kind| results.iter().map(move |result| result[kind])).collect()
}

/// The gradient with that of the squared norm of the tensor.
fn regularized(
    node: &mut Node<'_, '_>,
    x: ExprId,
    gradient: ExprId,
    coefficient: f64,
) -> Result<ExprId, NodeError> {
    if coefficient == 0.0 {
        return Ok(gradient);
    }
    let norm = node.with_scalar(&MULTIPLY, x, coefficient)?;
    node.add(norm, gradient)
}

/// `a·x + b·y`.
fn mix(
    node: &mut Node<'_, '_>,
    (a, x): (f64, ExprId),
    (b, y): (f64, ExprId),
) -> Result<ExprId, NodeError> {
    let x = node.with_scalar(&MULTIPLY, x, a)?;
    let y = node.with_scalar(&MULTIPLY, y, b)?;
    node.add(x, y)
}

/// A number that a node must give.
fn number(node: &mut Node<'_, '_>, name: &str, default: Option<f64>) -> Result<f64, NodeError> {
    node.attrs.float(name)?.or(default).ok_or_else(|| super::missing(name))
}

/// `Adagrad`-1.
pub(super) fn adagrad(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let decay = number(node, "decay_factor", Some(0.0))?;
    let epsilon = number(node, "epsilon", Some(f64::from(1e-6f32)))?;
    let norm = number(node, "norm_coefficient", Some(0.0))?;
    let Trained { mut rate, step, tensors } = Trained::read(node, 3)?;
    if decay != 0.0 {
        let dtype = node.tensor(rate)?.dtype;
        let step = node.cast(step, dtype)?;
        let slower = node.with_scalar(&MULTIPLY, step, decay)?;
        let slower = node.with_scalar(&ADD, slower, 1.0)?;
        rate = node.divide(rate, slower)?;
    }
    let mut results = Vec::new();
    for tensor in tensors {
        let (x, squares) = (tensor[0], tensor[2]);
        let gradient = regularized(node, x, tensor[1], norm)?;
        let square = node.multiply(gradient, gradient)?;
        let squares = node.add(squares, square)?;
        let root = node.call(&SQRT, &[squares])?;
        let root = node.with_scalar(&ADD, root, epsilon)?;
        let change = node.multiply(rate, gradient)?;
        let change = node.divide(change, root)?;
        results.push(vec![node.subtract(x, change)?, squares]);
    }
    Ok(by_kind(&results, 2))
}

/// `Adam`-1.
pub(super) fn adam(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let alpha = number(node, "alpha", Some(f64::from(0.9f32)))?;
    let beta = number(node, "beta", Some(f64::from(0.999f32)))?;
    let epsilon = number(node, "epsilon", Some(f64::from(1e-6f32)))?;
    let norm = number(node, "norm_coefficient", Some(0.0))?;
    let norm_post = number(node, "norm_coefficient_post", Some(0.0))?;
    let Trained { rate, step, tensors } = Trained::read(node, 4)?;
    // From the second step on, the rate makes up for means that started at zero.
    let dtype = node.tensor(rate)?.dtype;
    let later = node.with_scalar(&GREATER, step, 0.0)?;
    let step = node.cast(step, dtype)?;
    let mut rest = |base: f64| -> Result<ExprId, NodeError> {
        let base = node.scalar(base, dtype)?;
        let power = node.call(&POWER, &[base, step])?;
        node.scalar_less(1.0, power)
    };
    let (rest_alpha, rest_beta) = (rest(alpha)?, rest(beta)?);
    let root = node.call(&SQRT, &[rest_beta])?;
    let adjusted = node.multiply(rate, root)?;
    let adjusted = node.divide(adjusted, rest_alpha)?;
    let rate = node.choose(later, adjusted, rate)?;
    let mut results = Vec::new();
    for tensor in tensors {
        let x = tensor[0];
        let gradient = regularized(node, x, tensor[1], norm)?;
        let mean = mix(node, (alpha, tensor[2]), (1.0 - alpha, gradient))?;
        let square = node.multiply(gradient, gradient)?;
        let squares = mix(node, (beta, tensor[3]), (1.0 - beta, square))?;
        let root = node.call(&SQRT, &[squares])?;
        let root = node.with_scalar(&ADD, root, epsilon)?;
        let change = node.divide(mean, root)?;
        let change = node.multiply(rate, change)?;
        let mut x = node.subtract(x, change)?;
        if norm_post != 0.0 {
            x = node.with_scalar(&MULTIPLY, x, 1.0 - norm_post)?;
        }
        results.push(vec![x, mean, squares]);
    }
    Ok(by_kind(&results, 3))
}

/// `Momentum`-1.
pub(super) fn momentum(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let alpha = number(node, "alpha", None)?;
    let beta = number(node, "beta", None)?;
    let norm = number(node, "norm_coefficient", None)?;
    let is_nesterov = match node.attrs.string("mode")? {
        Some("standard") => false,
        Some("nesterov") => true,
        other => {
            return Err(NodeError::new(format!(
                "attribute `mode` must be standard or nesterov, but it is {}",
                other.unwrap_or("missing")
            )));
        }
    };
    let Trained { rate, step, tensors } = Trained::read(node, 3)?;
    // The first gradient counts in full.
    let later = node.with_scalar(&GREATER, step, 0.0)?;
    let mut results = Vec::new();
    for tensor in tensors {
        let x = tensor[0];
        let dtype: DType = node.tensor(x)?.dtype;
        let gradient = regularized(node, x, tensor[1], norm)?;
        let (beta, one) = (node.scalar(beta, dtype)?, node.scalar(1.0, dtype)?);
        let share = node.choose(later, beta, one)?;
        let added = node.multiply(share, gradient)?;
        let kept = node.with_scalar(&MULTIPLY, tensor[2], alpha)?;
        let velocity = node.add(kept, added)?;
        let mut change = velocity;
        if is_nesterov {
            let ahead = node.with_scalar(&MULTIPLY, velocity, alpha)?;
            change = node.add(gradient, ahead)?;
        }
        let change = node.multiply(rate, change)?;
        results.push(vec![node.subtract(x, change)?, velocity]);
    }
    Ok(by_kind(&results, 2))
}
