//! Linear models.

use super::{Classes, PostTransform, complement, floats, opposites, rows, wide};
use crate::graph::ExprId;
use crate::ir::DType;
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::onnx::ops::missing;
use crate::ops::nn::DENSE;

/// The products of rows and coefficients, a row of which is for each of so many results.
fn products(
    node: &mut Node<'_, '_>,
    x: ExprId,
    results: Option<usize>,
    intercepts: Option<&[f32]>,
) -> Result<ExprId, NodeError> {
    let coefficients = node.attrs.floats("coefficients")?.ok_or_else(|| missing("coefficients"))?;
    let columns = node.known_extent(x, 1)?;
    let dtype = node.tensor(x)?.dtype;
    let count = results.unwrap_or_else(|| coefficients.len() / columns.max(1) as usize);
    if coefficients.len() as i64 != columns.saturating_mul(count as i64) || count == 0 {
        return Err(NodeError::new(format!(
            "attribute `coefficients` must have {columns} numbers for each of {count} results, but it has {}",
            coefficients.len()
        )));
    }
    let weights = floats(node, &[count as i64, columns], &wide(coefficients), dtype)?;
    let product = node.call(&DENSE, &[x, weights])?;
    match intercepts.filter(|list| !list.is_empty()) {
        None => Ok(product),
        Some(list) if list.len() == count => {
            let bias = floats(node, &[count as i64], &wide(list), dtype)?;
            node.add(product, bias)
        }
        Some(list) => Err(NodeError::new(format!(
            "attribute `intercepts` must have a number for each of {count} results, but it has {}",
            list.len()
        ))),
    }
}

/// `LinearRegressor`-1.
pub(super) fn regressor(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = rows(node)?;
    let transform = PostTransform::read(node)?;
    let targets = node.attrs.int("targets")?.unwrap_or(1).max(1) as usize;
    let intercepts = node.attrs.floats("intercepts")?;
    let y = products(node, x, Some(targets), intercepts)?;
    let y = transform.of_targets(node, y)?;
    Ok(vec![node.cast(y, DType::F32)?])
}

/// `LinearClassifier`-1. As in ONNX Runtime, `multi_class` has no effect.
pub(super) fn classifier(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = rows(node)?;
    let x = node.cast(x, DType::F32)?;
    let transform = PostTransform::read(node)?;
    let classes = Classes::read(node, "classlabels_ints")?;
    node.attrs.int("multi_class")?;
    let intercepts = node.attrs.floats("intercepts")?;
    let results = intercepts.map(<[f32]>::len).filter(|&count| count > 0);
    let scores = products(node, x, results, intercepts)?;
    let count = node.known_extent(scores, 1)?;
    if count == 1 && classes.len() == 2 {
        let labels = classes.of_sign(node, scores, 0.0)?;
        let both = match transform {
            PostTransform::Probit => transform.apply(node, scores)?,
            PostTransform::Logistic => {
                let both = opposites(node, scores)?;
                transform.apply(node, both)?
            }
            _ => complement(node, scores)?,
        };
        return Ok(vec![labels, both]);
    }
    if count != classes.len() as i64 {
        return Err(NodeError::new(format!(
            "there are scores of {count} classes, but labels of {}",
            classes.len()
        )));
    }
    let labels = classes.of_greatest(node, scores)?;
    Ok(vec![labels, transform.apply(node, scores)?])
}
