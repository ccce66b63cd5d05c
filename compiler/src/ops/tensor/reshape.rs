//! Other shapes for the same elements in the same order: `reshape`, `squeeze`, `expand_dims`.

use serde::{Deserialize, Serialize};

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::{Dim, Shape, Type, normalize_axis};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::EvalCx;
use crate::ops::{EvalError, InferCx, OpDef, OpPattern, values};
use crate::tir::PrimExpr;

/// Attributes of `reshape`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReshapeAttrs {
    /// The extents of the result, all of them final: neither 0 for "as before" nor -1 for "the
    /// rest" is known here.
    pub newshape: Vec<Dim>,
}

/// Attributes of `squeeze`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqueezeAttrs {
    /// The axes that go, each of extent one, counted from either end.
    pub axis: Vec<i64>,
}

/// Attributes of `expand_dims`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpandDimsAttrs {
    /// The axes of the result that are new, counted from either of its ends.
    pub axis: Vec<i64>,
}

/// The elements under another shape of as many elements.
pub static RESHAPE: OpDef = OpDef::new(
    "reshape",
    "the elements under another shape",
    X,
    infer_reshape,
    keep_elements,
    compute,
)
.attributes::<ReshapeAttrs>()
.pattern(OpPattern::Injective)
.shape_value(values::unchanged);

/// Removes axes of extent one (ONNX `Squeeze`).
pub static SQUEEZE: OpDef = OpDef::new(
    "squeeze",
    "the elements without some axes of extent one",
    X,
    infer_squeeze,
    keep_elements,
    compute,
)
.attributes::<SqueezeAttrs>()
.pattern(OpPattern::Injective)
.shape_value(values::unchanged);

/// Inserts axes of extent one (ONNX `Unsqueeze`).
pub static EXPAND_DIMS: OpDef = OpDef::new(
    "expand_dims",
    "the elements with new axes of extent one",
    X,
    infer_expand_dims,
    keep_elements,
    compute,
)
.attributes::<ExpandDimsAttrs>()
.pattern(OpPattern::Injective)
.shape_value(values::unchanged);

fn infer_reshape(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: ReshapeAttrs = cx.attrs()?;
    let x = cx.tensor(0)?;
    let newshape = Shape::new(attrs.newshape);
    let ty = cx.result(newshape.iter().cloned(), x.dtype)?;
    let (before, after) = (x.shape.num_elements(), newshape.num_elements());
    // A product with a zero is zero, even if others of its factors leave 64 bits.
    let empty = |shape: &[Dim]| shape.iter().any(|d| d.as_const() == Some(0));
    let same = cx.same(&before, &after) || (empty(&x.shape) && empty(&newshape));
    ensure!(
        same,
        "input `x` is {x} and cannot take the shape {newshape}: \
         the numbers of elements {before} and {after} {}",
        cx.differ(&before, &after)
    );
    Ok(ty)
}

fn infer_squeeze(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: SqueezeAttrs = cx.attrs()?;
    let x = cx.tensor(0)?;
    let removed = cx.axis_mask(0, &attrs.axis)?;
    let one = Dim::from(1i64);
    let mut dims = Vec::new();
    for (index, (dim, removed)) in x.shape.iter().zip(removed).enumerate() {
        if removed {
            ensure!(
                cx.same(dim, &one),
                "axis {index} of input `x`, which is {x}, cannot be squeezed: \
                 its extent is {dim}, not 1"
            );
        } else {
            dims.push(dim.clone());
        }
    }
    cx.result(dims, x.dtype)
}

fn infer_expand_dims(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: ExpandDimsAttrs = cx.attrs()?;
    let x = cx.tensor(0)?;
    let rank = x.shape.rank() + attrs.axis.len();
    let mut new = vec![false; rank];
    for &axis in &attrs.axis {
        let Some(index) = normalize_axis(axis, rank) else {
            bail!("axis {axis} is out of range for a result of {rank} dimensions");
        };
        ensure!(!new[index], "axis {axis} is listed twice in {:?}", attrs.axis);
        new[index] = true;
    }
    let mut old = x.shape.iter();
    let one = Dim::from(1i64);
    cx.result(
        new.iter().filter_map(|&new| if new { Some(&one) } else { old.next() }).cloned(),
        x.dtype,
    )
}

fn keep_elements(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    Ok(vec![cx.arg(0)?.clone().reshape(cx.shape())?])
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let x = cx.arg(0)?;
    let input = cx.dag.shape(x).to_vec();
    let (output, _) = cx.result();
    cx.element(|dag, index| dag.at(x, &reshaped(&input, &output, index)))
}

/// The index of the same element under another shape. Runs of dimensions that hold the same number
/// of elements on both sides are translated on their own, so that a dimension that stays as it is
/// keeps its index.
fn reshaped(input: &[i64], output: &[i64], index: &[PrimExpr]) -> Vec<PrimExpr> {
    let mut at: Vec<PrimExpr> = Vec::with_capacity(input.len());
    let (mut i, mut o) = (0, 0);
    while i < input.len() || o < output.len() {
        // Dimensions of one element need no partner.
        if input.get(i) == Some(&1) {
            at.push(PrimExpr::index(0));
            i += 1;
            continue;
        }
        if output.get(o) == Some(&1) {
            o += 1;
            continue;
        }
        let (first_in, first_out) = (i, o);
        let (mut in_size, mut out_size) = (1i64, 1i64);
        loop {
            if in_size <= out_size && i < input.len() {
                in_size = in_size.saturating_mul(input[i]);
                i += 1;
            } else if o < output.len() {
                out_size = out_size.saturating_mul(output[o]);
                o += 1;
            } else {
                break;
            }
            if in_size == out_size || (i == input.len() && o == output.len()) {
                break;
            }
        }
        let (ins, outs) = (&input[first_in..i], &output[first_out..o]);
        if let ([_], [_]) = (ins, outs) {
            at.push(index[first_out].clone());
            continue;
        }
        let flat = outs
            .iter()
            .zip(&index[first_out..o])
            .fold(PrimExpr::index(0), |flat, (&extent, i)| flat * extent + i.clone());
        let mut stride = ins.iter().fold(1i64, |n, &extent| n.saturating_mul(extent));
        for (position, &extent) in ins.iter().enumerate() {
            stride = if extent == 0 { 0 } else { stride / extent };
            let digit = flat.clone().floordiv(stride.max(1));
            at.push(if position == 0 { digit } else { digit.floormod(extent.max(1)) });
        }
    }
    at
}
