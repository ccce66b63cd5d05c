//! `concatenate`: tensors one after the other along an axis (ONNX `Concat`).

use serde::{Deserialize, Serialize};

use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Dim, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::{AxisSplit, EvalCx, axis_of, floats, ints};
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern, values};
use crate::te::StageId;
use crate::tir::PrimExpr;

/// Attributes of `concatenate`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConcatenateAttrs {
    /// The axis along which the tensors follow each other, counted from either end.
    pub axis: i64,
}

/// Tensors of one data type, equal in every extent but the axis's.
pub static CONCATENATE: OpDef = OpDef::new(
    "concatenate",
    "tensors one after the other along an axis",
    &[Input::variadic("tensors")],
    infer,
    eval,
    compute,
)
.attributes::<ConcatenateAttrs>()
.pattern(OpPattern::Injective)
.shape_value(shape_value);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: ConcatenateAttrs = cx.attrs()?;
    let first = cx.tensor(0)?;
    let axis = cx.axis(0, attrs.axis)?;
    let mut dims = first.shape.to_vec();
    for index in 1..cx.args.len() {
        let next = cx.tensor(index)?;
        cx.same_dtype(0, index)?;
        let same = next.shape.rank() == first.shape.rank()
            && (first.shape.iter().zip(next.shape.iter()).enumerate())
                .all(|(at, (a, b))| at == axis || cx.same(a, b));
        ensure!(
            same,
            "input `{}` is {next}, which must equal {first}, the first, in every dimension \
             but dimension {axis}",
            cx.input_name(index)
        );
        dims[axis] = &dims[axis] + &next.shape[axis];
    }
    cx.result(dims, first.dtype)
}

/// Only of vectors: shapes are put together so, and matrices of them are not met.
fn shape_value(cx: &InferCx<'_>) -> Option<Vec<Dim>> {
    let mut dims = Vec::new();
    for index in 0..cx.args.len() {
        let (next, ty) = values::value(cx, index)?;
        if ty.shape.rank() != 1 {
            return None;
        }
        dims.extend_from_slice(next);
    }
    Some(dims)
}

/// Appends, for each position before the axis, the part of each tensor that belongs there.
fn interleave<T: Copy>(parts: &[(&[T], AxisSplit)]) -> Vec<T> {
    let outer = parts.first().map_or(0, |(_, split)| split.outer);
    let mut joined = Vec::with_capacity(parts.iter().map(|(values, _)| values.len()).sum());
    if parts.iter().all(|(values, _)| values.is_empty()) {
        return joined;
    }
    for index in 0..outer {
        for (values, split) in parts {
            let len = split.extent * split.inner;
            joined.extend_from_slice(&values[index * len..(index + 1) * len]);
        }
    }
    joined
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: ConcatenateAttrs = cx.attrs()?;
    let axis = axis_of(cx.arg(0)?, attrs.axis)?;
    cx.result(joined(&cx.args().collect::<Vec<_>>(), axis)?)
}

/// The elements of tensors one after the other along an axis: at least one tensor, all of one type.
pub(super) fn joined(tensors: &[&Tensor], axis: usize) -> Result<Elements, EvalError> {
    let split = |tensor: &Tensor| AxisSplit::new(tensor.shape(), axis);
    let tensors = tensors.iter().copied();
    let floating = |tensor: &Tensor| matches!(tensor.elements(), Elements::Float(_));
    if tensors.clone().any(floating) {
        let part = |t| Ok::<_, EvalError>((floats(t)?, split(t)));
        Ok(Elements::Float(interleave(&tensors.map(part).collect::<Result<Vec<_>, _>>()?)))
    } else {
        let part = |t| Ok::<_, EvalError>((ints(t)?, split(t)));
        Ok(Elements::Int(interleave(&tensors.map(part).collect::<Result<Vec<_>, _>>()?)))
    }
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: ConcatenateAttrs = cx.attrs()?;
    let parts: Vec<StageId> =
        (0..cx.args.len()).map(|index| cx.arg(index)).collect::<Result<_, _>>()?;
    let rank = cx.results[0].0.len();
    let axis = cx.axis(attrs.axis, rank)?;
    // A part without elements has no index to be read at.
    let parts: Vec<StageId> =
        parts.into_iter().filter(|&part| !cx.dag.shape(part).contains(&0)).collect();
    if parts.is_empty() {
        let (_, dtype) = cx.result();
        return cx.element(|_, _| PrimExpr::zero(dtype));
    }
    Ok(vec![cx.dag.concat(cx.op.name, axis, &parts)])
}
