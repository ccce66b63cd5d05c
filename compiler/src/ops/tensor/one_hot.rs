//! `one_hot`: indices as vectors with one place marked (ONNX `OneHot`, with a depth that data do not say).

use serde::{Deserialize, Serialize};

use super::from_either_end;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, Dim, Type, normalize_axis};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::{EvalCx, num_elements};
use crate::ops::relation::{DTypes, at_least};
use crate::ops::values;
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern};
use crate::tir::PrimExpr;

/// Attributes of `one_hot`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OneHotAttrs {
    /// The extent of the new axis, which may depend on sizes of inputs.
    pub depth: Dim,
    /// Where in the result the new axis is, counted from either of its ends.
    pub axis: i64,
}

/// `on_value` where the position along the new axis is the index, else `off_value`; both are
/// scalars, whose data type is the result's. A negative index counts from the end; one that is out
/// of range marks nothing.
pub static ONE_HOT: OpDef = OpDef::new(
    "one_hot",
    "indices as vectors with one place marked",
    &[Input::required("indices"), Input::required("on_value"), Input::required("off_value")],
    infer,
    eval,
    compute,
)
.attributes::<OneHotAttrs>()
.defaults(|| Attrs::new().with("axis", -1))
.pattern(OpPattern::Injective)
.shape_value(shape_value);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: OneHotAttrs = cx.attrs()?;
    let indices = cx.tensor_of(0, DTypes::Int)?;
    let on = cx.tensor(1)?;
    cx.same_dtype(1, 2)?;
    for index in [1, 2] {
        let ty = cx.tensor(index)?;
        ensure!(
            ty.shape.rank() == 0,
            "input `{}` must be a scalar, but it is {ty}",
            cx.input_name(index)
        );
    }
    if let Some(depth) = attrs.depth.as_const() {
        at_least("depth", depth, 0)?;
    }
    let rank = indices.shape.rank() + 1;
    let Some(axis) = normalize_axis(attrs.axis, rank) else {
        bail!("axis {} is out of range for a result of {rank} dimensions", attrs.axis);
    };
    let mut dims = indices.shape.to_vec();
    dims.insert(axis, attrs.depth);
    cx.result(dims, on.dtype)
}

/// Of one index, as in the repeats of `Tile` that PyTorch writes.
fn shape_value(cx: &InferCx<'_>) -> Option<Vec<Dim>> {
    let attrs: OneHotAttrs = cx.attrs().ok()?;
    let (indices, _) = values::value(cx, 0)?;
    let ((on, ty), (off, _)) = (values::value(cx, 1)?, values::value(cx, 2)?);
    let [index] = indices else { return None };
    let (index, depth) = (index.as_const()?.into(), attrs.depth.as_const()?.into());
    let pair = [off.first()?.clone(), on.first()?.clone()];
    let marks = (0..depth).map(|position| is_marked(index, depth, position));
    values::checked(values::picked(&pair, marks)?, ty.dtype)
}

/// 1 for the position of an index, which may count from the end, else 0.
fn is_marked(index: i128, depth: i128, position: i128) -> usize {
    let index = if index < 0 { index + depth } else { index };
    usize::from(index == position)
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: OneHotAttrs = cx.attrs()?;
    let axis = normalize_axis(attrs.axis, cx.shape().len())
        .ok_or_else(|| EvalError::new(format!("axis {} is out of range", attrs.axis)))?;
    let (indices, depth) = (cx.ints(0)?, cx.shape()[axis] as i128);
    let inner = num_elements(&cx.shape()[axis + 1..]);
    let places = if cx.len() == 0 { 0 } else { indices.len() / inner };
    // Of the pair (off, on), the place of each element.
    let marks = (0..places).flat_map(|outer| {
        (0..depth).flat_map(move |position| {
            (0..inner).map(move |at| is_marked(indices[outer * inner + at], depth, position))
        })
    });
    let pair = match (cx.arg(2)?.elements(), cx.arg(1)?.elements()) {
        (Elements::Float(off), Elements::Float(on)) => {
            Elements::Float([off.as_slice(), on.as_slice()].concat())
        }
        _ => Elements::Int([cx.ints(2)?, cx.ints(1)?].concat()),
    };
    cx.picked(&Tensor::from_elements(cx.arg(2)?.dtype(), &[2], pair)?, marks)
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: OneHotAttrs = cx.attrs()?;
    let (indices, on, off) = (cx.arg(0)?, cx.arg(1)?, cx.arg(2)?);
    let (shape, _) = cx.result();
    let axis = cx.axis(attrs.axis, shape.len())?;
    let depth = cx.size(&attrs.depth)?;
    cx.element(|dag, index| {
        let at: Vec<PrimExpr> = [&index[..axis], &index[axis + 1..]].concat();
        let which = from_either_end(dag.at(indices, &at), depth);
        PrimExpr::select(index[axis].clone().equal(which), dag.at(on, &[]), dag.at(off, &[]))
    })
}
