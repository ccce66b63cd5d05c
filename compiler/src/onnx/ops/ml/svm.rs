//! Support vector machines.

use super::coupling::coupled;
use super::{Classes, PostTransform, floats, opposites, rows, wide};
use crate::graph::ExprId;
use crate::ir::{DType, Dim};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::onnx::ops::missing;
use crate::ops::elementwise::{ADD, CLIP, ClipAttrs, EXP, GREATER, MULTIPLY, POWER, SIGMOID, TANH};
use crate::ops::nn::DENSE;
use crate::ops::reduce::SUM;

/// Most classes that have a vote for each two.
const MAX_CLASSES: usize = 256;

/// Most classes that have probabilities: a step of the iteration has some calls for each.
const MAX_COUPLED: usize = 64;

/// Least probability of one of two classes.
const LEAST: f64 = 1e-7;

/// The function that rows and support vectors are compared by.
struct Kernel {
    kind: String,
    gamma: f64,
    constant: f64,
    degree: f64,
}

impl Kernel {
    fn read(node: &mut Node<'_, '_>) -> Result<Kernel, NodeError> {
        let kind = node.attrs.string("kernel_type")?.unwrap_or("LINEAR").to_owned();
        let parameters = wide(node.attrs.floats("kernel_params")?.unwrap_or_default());
        let parameter = |index: usize| parameters.get(index).copied().unwrap_or(0.0);
        Ok(Kernel { kind, gamma: parameter(0), constant: parameter(1), degree: parameter(2) })
    }

    /// Rows by vectors: `(batch, vectors)`.
    fn apply(
        &self,
        node: &mut Node<'_, '_>,
        x: ExprId,
        vectors: &[f64],
    ) -> Result<ExprId, NodeError> {
        let columns = node.known_extent(x, 1)?;
        if columns == 0 || vectors.len() as i64 % columns != 0 {
            return Err(NodeError::new(format!(
                "the {} numbers of vectors are no rows of {columns}",
                vectors.len()
            )));
        }
        let count = vectors.len() as i64 / columns;
        if self.kind == "RBF" {
            let batch = node.shape(x)?[0].clone();
            let row = node.reshape(x, vec![batch, Dim::from(1i64), columns.into()])?;
            let vectors = floats(node, &[1, count, columns], vectors, DType::F32)?;
            let apart = node.subtract(row, vectors)?;
            let square = node.multiply(apart, apart)?;
            let distance = node.reduce(&SUM, square, [2], false)?;
            let scaled = node.with_scalar(&MULTIPLY, distance, -self.gamma)?;
            return node.call(&EXP, &[scaled]);
        }
        let vectors = floats(node, &[count, columns], vectors, DType::F32)?;
        let product = node.call(&DENSE, &[x, vectors])?;
        if self.kind == "LINEAR" {
            return Ok(product);
        }
        let scaled = node.with_scalar(&MULTIPLY, product, self.gamma)?;
        let sum = node.with_scalar(&ADD, scaled, self.constant)?;
        match self.kind.as_str() {
            "POLY" => node.with_scalar(&POWER, sum, self.degree),
            "SIGMOID" => node.call(&TANH, &[sum]),
            other => Err(NodeError::new(format!(
                "attribute `kernel_type` must be LINEAR, POLY, RBF or SIGMOID, but it is `{other}`"
            ))),
        }
    }
}

/// `SVMRegressor`-1: without support vectors, a linear model.
pub(super) fn regressor(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = rows(node)?;
    let x = node.cast(x, DType::F32)?;
    let kernel = Kernel::read(node)?;
    let transform = PostTransform::read(node)?;
    let coefficients = node.attrs.floats("coefficients")?.ok_or_else(|| missing("coefficients"))?;
    let coefficients = wide(coefficients);
    let vectors = wide(node.attrs.floats("support_vectors")?.unwrap_or_default());
    let rho = node.attrs.floats("rho")?.and_then(|list| list.first().copied()).unwrap_or(0.0);
    let count = node.attrs.int("n_supports")?.unwrap_or(0);
    let is_one_class = node.attrs.int("one_class")?.unwrap_or(0) != 0;
    let sums = if count > 0 {
        if coefficients.len() as i64 != count {
            return Err(NodeError::new(format!(
                "attribute `coefficients` must have a number for each of {count} vectors, but it has {}",
                coefficients.len()
            )));
        }
        let near = kernel.apply(node, x, &vectors)?;
        let weights = floats(node, &[1, count], &coefficients, DType::F32)?;
        node.call(&DENSE, &[near, weights])?
    } else {
        kernel.apply(node, x, &coefficients)?
    };
    let y = node.with_scalar(&ADD, sums, f64::from(rho))?;
    if is_one_class {
        let above = node.with_scalar(&GREATER, y, 0.0)?;
        let (one, other) = (node.scalar(1.0, DType::F32)?, node.scalar(-1.0, DType::F32)?);
        return Ok(vec![node.choose(above, one, other)?]);
    }
    Ok(vec![transform.of_targets(node, y)?])
}

/// `SVMClassifier`-1. Without support vectors there is a row of coefficients for each class; with
/// them, each two classes have a score whose sign is a vote.
pub(super) fn classifier(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = rows(node)?;
    let x = node.cast(x, DType::F32)?;
    let kernel = Kernel::read(node)?;
    let transform = PostTransform::read(node)?;
    let classes = Classes::read(node, "classlabels_ints")?;
    let sigmoids = [
        wide(node.attrs.floats("prob_a")?.unwrap_or_default()),
        wide(node.attrs.floats("prob_b")?.unwrap_or_default()),
    ];
    let coefficients = node.attrs.floats("coefficients")?.ok_or_else(|| missing("coefficients"))?;
    let coefficients = wide(coefficients);
    let rho = wide(node.attrs.floats("rho")?.unwrap_or_default());
    let vectors = wide(node.attrs.floats("support_vectors")?.unwrap_or_default());
    let counts = node.attrs.ints("vectors_per_class")?.unwrap_or_default();
    if counts.is_empty() {
        let scores = kernel.apply(node, x, &coefficients)?;
        let scores = node.with_scalar(&ADD, scores, rho.first().copied().unwrap_or(0.0))?;
        if node.known_extent(scores, 1)? != classes.len() as i64 {
            return Err(NodeError::new(format!(
                "there are {} scores for {} classes",
                node.shape(scores)?[1],
                classes.len()
            )));
        }
        let labels = classes.of_greatest(node, scores)?;
        return Ok(vec![labels, transform.apply(node, scores)?]);
    }
    let total = counts
        .iter()
        .map(|&count| usize::try_from(count).unwrap_or(0))
        .fold(0, usize::saturating_add);
    let pairs = classes.len() * (classes.len() - 1) / 2;
    if counts.len() != classes.len()
        || total == 0
        || coefficients.len() != (classes.len() - 1).saturating_mul(total)
        || rho.len() != pairs
        || classes.len() > MAX_CLASSES
    {
        return Err(NodeError::new(format!(
            "{} vectors of {} classes need {} coefficients and {pairs} constants, but there are {} and {}",
            total,
            classes.len(),
            (classes.len() - 1).saturating_mul(total),
            coefficients.len(),
            rho.len()
        )));
    }
    // The class of each vector; the coefficients of each pair; who gets a vote if it is positive.
    let of_vector: Vec<usize> = counts
        .iter()
        .enumerate()
        .flat_map(|(class, &count)| std::iter::repeat_n(class, count.max(0) as usize))
        .collect();
    let mut weights = Vec::with_capacity(pairs * total);
    let (mut votes, mut rest) = (vec![0.0; classes.len() * pairs], vec![0.0; classes.len()]);
    let both = (0..classes.len()).flat_map(|a| (a + 1..classes.len()).map(move |b| (a, b)));
    for (pair, (a, b)) in both.enumerate() {
        weights.extend(of_vector.iter().enumerate().map(|(vector, &class)| match class {
            class if class == a => coefficients[(b - 1) * total + vector],
            class if class == b => coefficients[a * total + vector],
            _ => 0.0,
        }));
        votes[a * pairs + pair] = 1.0;
        votes[b * pairs + pair] = -1.0;
        rest[b] += 1.0;
    }
    let near = kernel.apply(node, x, &vectors)?;
    let weights = floats(node, &[pairs as i64, total as i64], &weights, DType::F32)?;
    let scores = node.call(&DENSE, &[near, weights])?;
    let rho = floats(node, &[pairs as i64], &rho, DType::F32)?;
    let scores = node.add(scores, rho)?;
    let probabilities = match &sigmoids {
        [a, b] if a.is_empty() && b.is_empty() => None,
        sigmoids => Some(probabilities(node, scores, sigmoids, classes.len())?),
    };
    let positive = node.with_scalar(&GREATER, scores, 0.0)?;
    let positive = node.cast(positive, DType::F32)?;
    let votes = floats(node, &[classes.len() as i64, pairs as i64], &votes, DType::F32)?;
    let count = node.call(&DENSE, &[positive, votes])?;
    let rest = floats(node, &[classes.len() as i64], &rest, DType::F32)?;
    let count = node.add(count, rest)?;
    let labels = classes.of_greatest(node, count)?;
    let scores = match probabilities {
        Some(probabilities) => probabilities,
        None if pairs == 1 => opposites(node, scores)?,
        None => scores,
    };
    Ok(vec![labels, transform.apply(node, scores)?])
}

/// Probabilities of classes: `1 / (1 + exp(a · score + b))` is that of the first of each two, with an
/// `a` and a `b` for each pair.
fn probabilities(
    node: &mut Node<'_, '_>,
    scores: ExprId,
    sigmoids: &[Vec<f64>; 2],
    classes: usize,
) -> Result<ExprId, NodeError> {
    let pairs = classes * (classes - 1) / 2;
    if sigmoids.iter().any(|list| list.len() != pairs) || classes > MAX_COUPLED {
        return Err(NodeError::new(format!(
            "probabilities of {classes} classes, of which there may be {MAX_COUPLED}, need {pairs} \
             numbers in `prob_a` and `prob_b` each, but there are {} and {}",
            sigmoids[0].len(),
            sigmoids[1].len()
        )));
    }
    let negative = sigmoids.each_ref().map(|list| list.iter().map(|x| -x).collect::<Vec<f64>>());
    let [a, b] = [
        floats(node, &[pairs as i64], &negative[0], DType::F32)?,
        floats(node, &[pairs as i64], &negative[1], DType::F32)?,
    ];
    let scaled = node.multiply(scores, a)?;
    let sum = node.add(scaled, b)?;
    let first = node.call(&SIGMOID, &[sum])?;
    let range = ClipAttrs { min: Some(LEAST), max: Some(1.0 - LEAST) };
    let first = node.call_with(&CLIP, &[first], &range)?;
    coupled(node, first, classes)
}
