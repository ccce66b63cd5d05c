//! Probabilities of several classes from those of each two: the second method of Wu, Lin and Weng,
//! "Probability Estimates for Multi-class Classification by Pairwise Coupling" (2004), with the steps
//! of libsvm.

use super::floats;
use crate::graph::ExprId;
use crate::ir::{DType, Dim};
use crate::onnx::import::{Node, NodeError};
use crate::onnx::ops::repeat::{Repeated, Until};
use crate::ops::elementwise::{ABS, ADD, GREATER, LESS, MULTIPLY};
use crate::ops::nn::DENSE;
use crate::ops::reduce::{MAX, SUM};

/// Most steps of the iteration.
const MOST_STEPS: i64 = 100;

/// The error of all probabilities together at which the iteration ends.
const TOLERANCE: f64 = 0.005;

/// Probabilities `(batch, classes)`. `first` is `(batch, pairs)`: that of the first of each two
/// classes where it is one of them, in the order (0, 1), (0, 2), …, (1, 2), ….
pub(super) fn coupled(
    node: &mut Node<'_, '_>,
    first: ExprId,
    classes: usize,
) -> Result<ExprId, NodeError> {
    let n = classes as i64;
    let batch = node.shape(first)?[0].clone();
    let [q, diagonal] = quadratic(node, first, classes)?;
    let count = node.int(MOST_STEPS);
    let start = node.full(1.0 / n as f64, DType::F32, vec![batch.clone(), Dim::from(n)])?;
    let goes_on = node.scalar(1.0, DType::Bool)?;
    let repeat = node.begin_loop(&[start, goes_on]);
    let p = repeat.states[0];
    let row = node.reshape(p, vec![batch.clone(), Dim::from(1i64), Dim::from(n)])?;
    let products = node.multiply(q, row)?;
    let mut qp = node.reduce(&SUM, products, [2], false)?;
    let products = node.multiply(p, qp)?;
    let mut pqp = node.reduce(&SUM, products, [1], true)?;
    let error = node.subtract(qp, pqp)?;
    let error = node.call(&ABS, &[error])?;
    let error = node.reduce(&MAX, error, [1], true)?;
    let done = node.with_scalar(&LESS, error, TOLERANCE / n as f64)?;
    let mut next = p;
    for class in 0..n {
        let own = node.slice(qp, 1, class, class + 1)?;
        let weight = node.slice(diagonal, 1, class, class + 1)?;
        let change = node.subtract(pqp, own)?;
        let change = node.divide(change, weight)?;
        let total = node.with_scalar(&ADD, change, 1.0)?;
        let unit: Vec<f64> = (0..n).map(|other| f64::from(u8::from(other == class))).collect();
        let unit = floats(node, &[1, n], &unit, DType::F32)?;
        next = moved(node, next, [change, unit, total])?;
        let column = node.slice(q, 1, class, class + 1)?;
        let column = node.reshape(column, vec![batch.clone(), Dim::from(n)])?;
        qp = moved(node, qp, [change, column, total])?;
        let doubled = node.with_scalar(&MULTIPLY, own, 2.0)?;
        let slope = node.multiply(change, weight)?;
        let slope = node.add(slope, doubled)?;
        pqp = moved(node, pqp, [change, slope, total])?;
        pqp = node.divide(pqp, total)?;
    }
    let next = node.choose(done, p, next)?;
    let error = node.reduce(&MAX, error, [0, 1], false)?;
    let goes_on = node.with_scalar(&GREATER, error, TOLERANCE / n as f64)?;
    let until = Until { count: Some(count), state: Some(1) };
    let Repeated { last, .. } = node.end_loop(repeat, &[next, goes_on], &[], until)?;
    Ok(last[0])
}

/// `(value + change · by) / total`.
fn moved(
    node: &mut Node<'_, '_>,
    value: ExprId,
    [change, by, total]: [ExprId; 3],
) -> Result<ExprId, NodeError> {
    let added = node.multiply(change, by)?;
    let sum = node.add(value, added)?;
    node.divide(sum, total)
}

/// The matrices of the quadratic forms that the probabilities make least, `(batch, n, n)`, and their
/// diagonals, `(batch, n)`: with `r` of a class and another one, `-r(i, j)·r(j, i)` beside the
/// diagonal, and there the sum of `r(j, i)²`.
fn quadratic(
    node: &mut Node<'_, '_>,
    first: ExprId,
    classes: usize,
) -> Result<[ExprId; 2], NodeError> {
    let (n, pairs) = (classes, classes * (classes - 1) / 2);
    // The second of two classes has the rest.
    let (mut places, mut rest) = (vec![0.0; n * n * pairs], vec![0.0; n * n]);
    let both = (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b)));
    for (pair, (a, b)) in both.enumerate() {
        places[(a * n + b) * pairs + pair] = 1.0;
        places[(b * n + a) * pairs + pair] = -1.0;
        rest[b * n + a] = 1.0;
    }
    let batch = node.shape(first)?[0].clone();
    let places = floats(node, &[(n * n) as i64, pairs as i64], &places, DType::F32)?;
    let rest = floats(node, &[(n * n) as i64], &rest, DType::F32)?;
    let of = node.call(&DENSE, &[first, places])?;
    let of = node.add(of, rest)?;
    let extent = Dim::from(n as i64);
    let of = node.reshape(of, vec![batch.clone(), extent.clone(), extent.clone()])?;
    let other = node.transposed(of, &[0, 2, 1])?;
    let products = node.multiply(of, other)?;
    let squares = node.multiply(other, other)?;
    let diagonal = node.reduce(&SUM, squares, [2], false)?;
    let sums = node.reshape(diagonal, vec![batch, extent, Dim::from(1i64)])?;
    let identity: Vec<f64> =
        (0..n * n).map(|place| if place % (n + 1) == 0 { 1.0 } else { 0.0 }).collect();
    let identity = floats(node, &[1, n as i64, n as i64], &identity, DType::F32)?;
    let sums = node.multiply(sums, identity)?;
    Ok([node.subtract(sums, products)?, diagonal])
}
