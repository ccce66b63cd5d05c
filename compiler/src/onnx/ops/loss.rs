//! Losses of classifiers: `NegativeLogLikelihoodLoss` and `SoftmaxCrossEntropyLoss`.

use crate::graph::ExprId;
use crate::ir::Dim;
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::elementwise::{EQUAL, LOGICAL_AND, NEGATIVE, NOT_EQUAL};
use crate::ops::nn::{LOG_SOFTMAX, SoftmaxAttrs};
use crate::ops::reduce::{ReduceAttrs, SUM};

/// `NegativeLogLikelihoodLoss`-12, -13, -22 (more types).
pub(super) fn negative_log_likelihood(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    Ok(vec![likelihood_loss(node, x)?])
}

/// `SoftmaxCrossEntropyLoss`-12, -13: the former loss of the logarithm of the softmax, which is the
/// second output.
pub(super) fn softmax_cross_entropy(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    if node.shape(x)?.rank() < 2 {
        return Err(NodeError::new("input 0 must have dimensions (N, C, …)"));
    }
    let log = node.call_with(&LOG_SOFTMAX, &[x], &SoftmaxAttrs { axis: 1 })?;
    Ok(vec![likelihood_loss(node, log)?, log])
}

/// For each place the negative of the element at its class, times the weight of that class. A place
/// whose class is to be ignored has neither a loss nor a weight.
fn likelihood_loss(node: &mut Node<'_, '_>, x: ExprId) -> Result<ExprId, NodeError> {
    let (target, weight) = (node.input(1)?, node.optional(2));
    let ignored = node.attrs.int("ignore_index")?;
    let reduction = node.attrs.string("reduction")?.unwrap_or("mean");
    if !matches!(reduction, "none" | "sum" | "mean") {
        return Err(NodeError::new(format!(
            "attribute `reduction` must be none, sum or mean, but it is `{reduction}`"
        )));
    }
    let ty = node.tensor(x)?;
    let classes = node.known_extent(x, 1)?;
    let target_ty = node.tensor(target)?;
    let one = Dim::from(1i64);
    let mut places = ty.shape.to_vec();
    places[1] = one.clone();
    if target_ty.shape.rank() + 1 != ty.shape.rank() {
        return Err(NodeError::new(format!(
            "input 1 must have one class for each place of input 0, which is {ty}, but it is {target_ty}"
        )));
    }
    let target = node.reshape(target, places)?;
    let mut by_class = vec![one; ty.shape.rank()];
    by_class[1] = Dim::from(classes);
    let numbers = node.counting(classes)?;
    let numbers = node.cast(numbers, target_ty.dtype)?;
    let numbers = node.reshape(numbers, by_class.clone())?;
    let mut chosen = node.call(&EQUAL, &[target, numbers])?;
    if let Some(ignored) = ignored {
        let counts = node.with_scalar(&NOT_EQUAL, target, ignored as f64)?;
        chosen = node.call(&LOGICAL_AND, &[chosen, counts])?;
    }
    let zero = node.scalar(0.0, ty.dtype)?;
    let weights = match weight {
        Some(weight) => node.reshape(weight, by_class)?,
        None => node.scalar(1.0, ty.dtype)?,
    };
    let weights = node.choose(chosen, weights, zero)?;
    let weights = node.reduce(&SUM, weights, [1], false)?;
    let picked = node.choose(chosen, x, zero)?;
    let picked = node.reduce(&SUM, picked, [1], false)?;
    let loss = node.multiply(picked, weights)?;
    let loss = node.call(&NEGATIVE, &[loss])?;
    if reduction == "none" {
        return Ok(loss);
    }
    let all = ReduceAttrs { axis: Vec::new(), keepdims: false };
    let loss = node.widened(loss)?;
    let loss = node.call_with(&SUM, &[loss], &all)?;
    if reduction == "sum" {
        return node.cast(loss, ty.dtype);
    }
    let weights = node.widened(weights)?;
    let total = node.call_with(&SUM, &[weights], &all)?;
    let mean = node.divide(loss, total)?;
    node.cast(mean, ty.dtype)
}
