//! `topk`: the greatest or least elements along an axis, and where they are (ONNX `TopK`).

use serde::{Deserialize, Serialize};

use super::X;
use super::clamped;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, DType, Dim, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::{AxisSplit, EvalCx, axis_of};
use crate::ops::relation::at_least;
use crate::ops::{EvalError, InferCx, OpDef};
use crate::tir::{BinaryOp, PrimExpr};

/// Attributes of `topk`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopkAttrs {
    /// How many elements are kept.
    pub k: i64,
    /// The axis, counted from either end.
    pub axis: i64,
    /// Whether the greatest are kept, else the least.
    pub largest: bool,
}

/// The pair of the elements, best first, and their positions in `int64`. Of equal elements the one
/// with the lower position comes first; a NaN is greater than every number.
pub static TOPK: OpDef =
    OpDef::new("topk", "the best elements along an axis and their places", X, infer, eval, compute)
        .attributes::<TopkAttrs>()
        .defaults(|| Attrs::new().with("axis", -1).with("largest", true));

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: TopkAttrs = cx.attrs()?;
    let x = cx.tensor(0)?;
    let axis = cx.axis(0, attrs.axis)?;
    at_least("k", attrs.k, 0)?;
    if let Some(extent) = x.shape[axis].as_const() {
        ensure!(
            attrs.k <= extent,
            "attribute `k` {} exceeds the {extent} elements of the axis",
            attrs.k
        );
    }
    ensure!(x.dtype != DType::Bool, "input `x` must hold numbers, but it is {x}");
    let mut dims = x.shape.to_vec();
    dims[axis] = Dim::from(attrs.k);
    Ok(Type::tuple([cx.result(dims.clone(), x.dtype)?, cx.result(dims, DType::I64)?]))
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: TopkAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let split = AxisSplit::new(x.shape(), axis_of(x, attrs.axis)?);
    let k = attrs.k as usize;
    if k > split.extent {
        return Err(EvalError::new(format!("{k} of {} elements are asked for", split.extent)));
    }
    let mut places = vec![0usize; if k == 0 { 0 } else { cx.len() }];
    let mut positions = vec![0i128; places.len()];
    for (line, start) in split.starts().enumerate().filter(|_| k > 0) {
        let offsets: Vec<usize> = split.line(start).collect();
        let mut order: Vec<usize> = (0..split.extent).collect();
        // Stable, so that of equals the first stays first.
        order.sort_by(|&a, &b| {
            let ordering = match x.elements() {
                Elements::Float(values) => {
                    let (a, b) = (values[offsets[a]], values[offsets[b]]);
                    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
                }
                Elements::Int(values) => values[offsets[a]].cmp(&values[offsets[b]]),
            };
            if attrs.largest { ordering.reverse() } else { ordering }
        });
        let (outer, inner) = (line / split.inner, line % split.inner);
        for (rank, &position) in order.iter().take(k).enumerate() {
            let to = (outer * k + rank) * split.inner + inner;
            places[to] = offsets[position];
            positions[to] = position as i128;
        }
    }
    let values = x.pick(cx.shape(), places.into_iter())?;
    Ok(vec![values, Tensor::from_ints(DType::I64, cx.shape(), positions)?])
}

/// How many elements are better than each one; then, for each rank, the element that has it.
fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: TopkAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let (shape, dtype) = (cx.dag.shape(x).to_vec(), cx.dag.dtype(x));
    let axis = cx.axis(attrs.axis, shape.len())?;
    let op = cx.op.name;
    let along = |index: &[PrimExpr], position: &PrimExpr| {
        let mut at = index.to_vec();
        at[axis] = position.clone();
        at
    };
    let over = [shape[axis]];
    let rank = cx.dag.reduce(op, &shape, DType::I64, BinaryOp::Add, &over, |dag, index, by| {
        let (own, other) = (dag.at(x, index), dag.at(x, &along(index, &by[0])));
        let first = by[0].clone().less(index[axis].clone());
        let (mut better, mut equal) = if attrs.largest {
            (other.clone().greater(own.clone()), other.clone().equal(own.clone()))
        } else {
            (other.clone().less(own.clone()), other.clone().equal(own.clone()))
        };
        if dtype.is_float() {
            // A NaN is greater than every number, and equal to another one.
            let is_nan = |value: &PrimExpr| value.clone().not_equal(value.clone());
            let (own_nan, other_nan) = (is_nan(&own), is_nan(&other));
            let (greater, lesser) =
                if attrs.largest { (&other_nan, &own_nan) } else { (&own_nan, &other_nan) };
            better = better.or(greater.clone().and(!lesser.clone()));
            equal = equal.or(own_nan.and(other_nan));
        }
        let before = better.or(equal.and(first));
        PrimExpr::select(before, PrimExpr::index(1), PrimExpr::index(0))
    });
    cx.dag.set_stored(rank);
    let [(kept, _), (_, index_dtype)] = cx.results else {
        return cx.unsupported("with one result");
    };
    let place = cx.dag.reduce(op, kept, *index_dtype, BinaryOp::Max, &over, |dag, index, by| {
        let found = dag.at(rank, &along(index, &by[0])).equal(index[axis].clone());
        PrimExpr::select(found, by[0].clone(), PrimExpr::index(0))
    });
    cx.dag.set_stored(place);
    let value = cx.dag.compute(op, kept, dtype, |dag, index| {
        let which = clamped(dag.at(place, index), shape[axis]);
        dag.at(x, &along(index, &which))
    });
    Ok(vec![value, place])
}
