//! `topk`: the greatest or least elements along an axis, and where they are (ONNX `TopK`).

use serde::{Deserialize, Serialize};

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, DType, Dim, Type};
use crate::ops::eval::{AxisSplit, EvalCx, axis_of, pick};
use crate::ops::relation::at_least;
use crate::ops::{EvalError, InferCx, OpDef};

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
    OpDef::new("topk", "the best elements along an axis and their places", X, infer, eval);

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

fn eval(attrs: &Attrs, args: &[Option<&Tensor>]) -> Result<Vec<Tensor>, EvalError> {
    let cx = EvalCx::new(&TOPK, attrs, args)?;
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
    cx.results([pick(x.elements(), places.into_iter()), Elements::Int(positions)])
}
