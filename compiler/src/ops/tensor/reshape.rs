//! Other shapes for the same elements in the same order: `reshape`, `squeeze`, `expand_dims`.

use serde::{Deserialize, Serialize};

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::{Attrs, Dim, Shape, Type, normalize_axis};
use crate::ops::eval::EvalCx;
use crate::ops::relation::is_one;
use crate::ops::{EvalError, InferCx, OpDef, OpPattern, values};

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
pub static RESHAPE: OpDef =
    OpDef::new("reshape", "the elements under another shape", X, infer_reshape, |attrs, args| {
        keep_elements(&RESHAPE, attrs, args)
    })
    .pattern(OpPattern::Injective)
    .shape_value(values::unchanged);

/// Removes axes of extent one (ONNX `Squeeze`).
pub static SQUEEZE: OpDef = OpDef::new(
    "squeeze",
    "the elements without some axes of extent one",
    X,
    infer_squeeze,
    |attrs, args| keep_elements(&SQUEEZE, attrs, args),
)
.pattern(OpPattern::Injective)
.shape_value(values::unchanged);

/// Inserts axes of extent one (ONNX `Unsqueeze`).
pub static EXPAND_DIMS: OpDef = OpDef::new(
    "expand_dims",
    "the elements with new axes of extent one",
    X,
    infer_expand_dims,
    |attrs, args| keep_elements(&EXPAND_DIMS, attrs, args),
)
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
    let mut dims = Vec::new();
    for (index, (dim, removed)) in x.shape.iter().zip(removed).enumerate() {
        if removed {
            ensure!(
                is_one(dim),
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

fn keep_elements(
    def: &'static OpDef,
    attrs: &Attrs,
    args: &[Option<&Tensor>],
) -> Result<Vec<Tensor>, EvalError> {
    let cx = EvalCx::new(def, attrs, args)?;
    cx.result(cx.arg(0)?.elements().clone())
}
