//! `split`: a tensor cut into pieces along an axis (ONNX `Split`).

use serde::{Deserialize, Serialize};

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::{Dim, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::{EvalCx, axis_of, dense_strides, offsets};
use crate::ops::{EvalError, InferCx, OpDef, OpPattern};

/// Attributes of `split`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SplitAttrs {
    /// The axis that is cut, counted from either end.
    pub axis: i64,
    /// The extent of each piece along the axis; together the whole.
    pub sections: Vec<i64>,
}

/// The pieces as a tuple, in order.
pub static SPLIT: OpDef = OpDef::new("split", "pieces along an axis", X, infer, eval, compute)
    .attributes::<SplitAttrs>()
    .pattern(OpPattern::Injective);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: SplitAttrs = cx.attrs()?;
    let x = cx.tensor(0)?;
    let axis = cx.axis(0, attrs.axis)?;
    ensure!(!attrs.sections.is_empty(), "attribute `sections` must list at least one piece");
    let total = attrs.sections.iter().try_fold(0i64, |total, &section| total.checked_add(section));
    ensure!(
        attrs.sections.iter().all(|&section| section >= 0)
            && total.is_some_and(|total| cx.same(&x.shape[axis], &Dim::from(total))),
        "attribute `sections` {:?} must add up to {}, the extent of axis {} of input `x`, \
         which is {x}",
        attrs.sections,
        x.shape[axis],
        attrs.axis
    );
    let mut pieces = Vec::with_capacity(attrs.sections.len());
    for &section in &attrs.sections {
        let mut dims = x.shape.to_vec();
        dims[axis] = Dim::from(section);
        pieces.push(cx.result(dims, x.dtype)?);
    }
    Ok(Type::tuple(pieces))
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: SplitAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let axis = axis_of(x, attrs.axis)?;
    let strides = dense_strides(x.shape());
    let mut start = 0;
    cx.shapes()
        .map(|shape| {
            let piece = x.pick(shape, offsets(shape, &strides, start))?;
            // Of a tensor without elements any product of extents may leave the range.
            start = shape[axis].wrapping_mul(strides[axis] as usize).wrapping_add(start);
            Ok(piece)
        })
        .collect()
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: SplitAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let axis = cx.axis(attrs.axis, cx.dag.shape(x).len())?;
    let mut start = 0;
    let mut stages = Vec::with_capacity(cx.results.len());
    for (shape, dtype) in cx.results {
        let offset = start;
        start += shape[axis];
        stages.push(cx.dag.compute(cx.op.name, shape, *dtype, |dag, index| {
            let mut at = index.to_vec();
            at[axis] = at[axis].clone() + offset;
            dag.at(x, &at)
        }));
    }
    Ok(stages)
}
