//! Layer normalisations, with the sums that ONNX Runtime's optimiser joined to them.

use super::super::nn;
use crate::graph::ExprId;
use crate::ir::{DType, Dim};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::onnx::ops::missing;
use crate::ops::elementwise::EQUAL;
use crate::ops::nn::{LAYER_NORM, LayerNormAttrs, RMS_NORM, RmsNormAttrs};
use crate::ops::reduce::SUM;
use crate::ops::tensor::{TAKE, TakeAttrs, TakeMode};

/// What these operators add to a variance unless a node says otherwise.
const SKIP_EPSILON: f64 = 1e-12f32 as f64;

/// `SimplifiedLayerNormalization`: `RMSNormalization`, whose second output is what the elements are
/// multiplied by.
pub(super) fn simplified_layer_normalization(
    node: &mut Node<'_, '_>,
) -> Result<Outputs, NodeError> {
    let (x, gamma) = (node.input(0)?, node.input(1)?);
    let attrs = nn::rms_attrs(node)?;
    let stash_type = nn::stash_type(node)?;
    let mut outputs = vec![nn::by_root_mean_square(node, x, gamma, &attrs, stash_type)?];
    if node.wants_output(1) {
        let root = nn::root_mean_square(node, x, &attrs, stash_type)?;
        let one = node.scalar(1.0, stash_type)?;
        outputs.push(node.divide(one, root)?);
    }
    Ok(outputs)
}

/// The sum of two inputs and a bias.
fn skipped(node: &mut Node<'_, '_>, bias: Option<ExprId>) -> Result<ExprId, NodeError> {
    let (x, skip) = (node.input(0)?, node.input(1)?);
    let mut sum = node.add(x, skip)?;
    if let Some(bias) = bias {
        sum = node.add(sum, bias)?;
    }
    for index in [1, 2] {
        if node.wants_output(index) {
            return Err(NodeError::new(format!(
                "output {index}, a statistic for training, is not supported"
            ))
            .help("leave its name empty: ONNX Runtime does not compute it, either"));
        }
    }
    Ok(sum)
}

/// `SkipLayerNormalization`: `LayerNormalization` of a sum, which is the last output.
pub(super) fn skip_layer_normalization(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let bias = node.optional(4);
    let sum = skipped(node, bias)?;
    let (gamma, beta) = (node.input(2)?, node.optional(3));
    let epsilon = node.attrs.float("epsilon")?.unwrap_or(SKIP_EPSILON);
    let attrs = LayerNormAttrs { axis: -1, epsilon };
    let y = node.call_optional(&LAYER_NORM, vec![Some(sum), Some(gamma), beta], &attrs)?;
    Ok(vec![y, sum, sum, sum])
}

/// `SkipSimplifiedLayerNormalization`: `RMSNormalization` of a sum, which is the last output.
pub(super) fn skip_simplified(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let bias = node.optional(3);
    let sum = skipped(node, bias)?;
    let gamma = node.input(2)?;
    let epsilon = node.attrs.float("epsilon")?.unwrap_or(SKIP_EPSILON);
    let attrs = RmsNormAttrs { axis: -1, epsilon };
    let y = node.call_with(&RMS_NORM, &[sum, gamma], &attrs)?;
    Ok(vec![y, sum, sum, sum])
}

/// `EmbedLayerNormalization`: the normalised sum of the embeddings of words, places and segments;
/// the number of ones in each row of a mask; the sum.
pub(super) fn embed_layer_normalization(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (words, segments) = (node.input(0)?, node.optional(1));
    let (word_table, place_table, segment_table) =
        (node.input(2)?, node.input(3)?, node.optional(4));
    let (gamma, beta) = (node.input(5)?, node.input(6)?);
    let (mask, places) = (node.optional(7), node.optional(8));
    let epsilon = node.attrs.float("epsilon")?.unwrap_or(SKIP_EPSILON);
    // The second output is there whatever the mask's type is said to be.
    node.attrs.int("mask_index_type")?;
    let shape = node.shape(words)?;
    if shape.rank() != 2 {
        return Err(NodeError::new(format!(
            "input 0 must have dimensions (batch, length), but it is {shape}"
        )));
    }
    let rows = TakeAttrs { axis: 0, mode: TakeMode::Fast };
    let mut sum = node.call_with(&TAKE, &[word_table, words], &rows)?;
    let places = match places {
        Some(places) => node.call_with(&TAKE, &[place_table, places], &rows)?,
        None => {
            let (length, known) = (&shape[1], node.shape(place_table)?[0].clone());
            if !node.is_at_least(&known, length) {
                return Err(NodeError::new(format!(
                    "there are embeddings of {known} places, but the input has {length}"
                ))
                .pin([length]));
            }
            node.first_of(place_table, 0, length)?
        }
    };
    sum = node.add(sum, places)?;
    if let Some(segment_table) = segment_table {
        let segments = segments.ok_or_else(|| missing("segment_ids"))?;
        let segments = node.call_with(&TAKE, &[segment_table, segments], &rows)?;
        sum = node.add(sum, segments)?;
    }
    let attrs = LayerNormAttrs { axis: -1, epsilon };
    let y = node.call_with(&LAYER_NORM, &[sum, gamma, beta], &attrs)?;
    let counts = match mask {
        Some(mask) => {
            let ones = node.with_scalar(&EQUAL, mask, 1.0)?;
            let ones = node.cast(ones, DType::I32)?;
            node.reduce(&SUM, ones, [1], false)?
        }
        None => {
            let batch: Dim = shape[0].clone();
            node.full(0.0, DType::I32, vec![batch])?
        }
    };
    Ok(vec![y, counts, sum])
}
