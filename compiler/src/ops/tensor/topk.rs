//! `topk`: the greatest or least elements along an axis, and where they are (ONNX `TopK`).

use serde::{Deserialize, Serialize};

use super::X;
use super::clamped;
use super::scatter::{in_loop, loops};
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, DType, Dim, Type};
use crate::ops::compute::{Compute, Stages, extent_of};
use crate::ops::eval::{AxisSplit, EvalCx, axis_of};
use crate::ops::heap::{Heap, complement, each, named, ordered};
use crate::ops::relation::at_least;
use crate::ops::{EvalError, InferCx, OpDef};
use crate::te::{ComputeDag, StageId};
use crate::tir::{BufferId, ForKind, PrimExpr, Stmt};

/// Attributes of `topk`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopkAttrs {
    /// How many elements are kept, which may depend on sizes of inputs; no more than there are.
    pub k: Dim,
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
    let extent = &x.shape[axis];
    let is_known = attrs.k.is_const() && extent.is_const();
    ensure!(
        cx.same(&attrs.k.maximum(extent), extent),
        "attribute `k` {} {} the {extent} elements of the axis",
        attrs.k,
        if is_known { "exceeds" } else { "may, unless symbolic dimensions are pinned, exceed" }
    );
    if let Some(k) = attrs.k.as_const() {
        at_least("k", k, 0)?;
    }
    ensure!(x.dtype != DType::Bool, "input `x` must hold numbers, but it is {x}");
    let mut dims = x.shape.to_vec();
    dims[axis] = attrs.k;
    Ok(Type::tuple([cx.result(dims.clone(), x.dtype)?, cx.result(dims, DType::I64)?]))
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: TopkAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let split = AxisSplit::new(x.shape(), axis_of(x, attrs.axis)?);
    let k = cx.shape()[axis_of(x, attrs.axis)?];
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

/// Where the best elements of each line are; then the elements there.
fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: TopkAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let (shape, dtype) = (cx.dag.shape(x).to_vec(), cx.dag.dtype(x));
    let axis = cx.axis(attrs.axis, shape.len())?;
    let op = cx.op.name;
    let [(kept, _), (_, index_dtype)] = cx.results else {
        return cx.unsupported("with one result");
    };
    let index_dtype = *index_dtype;
    // In vectors, as everything that has an expression.
    let keys = if dtype.bits() > 32 { DType::I64 } else { DType::I32 };
    let keys = cx.dag.compute(op, &shape, keys, |dag, index| {
        let value = dag.at(x, index);
        let key = ordered(dag, value, keys);
        if attrs.largest { key } else { complement(key) }
    });
    let is_open = [cx.open_axes, &cx.open_args[0]].map(|open| open.contains(&axis));
    let place = cx.dag.statement(op, kept, index_dtype, &[keys], |dag, result| {
        let (mut vars, index) = loops(dag, kept);
        let line = Line { keys, axis, index, extent: shape[axis], is_open };
        let best = match kept[axis] {
            0 => Stmt::nop(),
            count => line.best(dag, count, result),
        };
        vars.remove(axis);
        let extents = kept.iter().enumerate().filter(|(other, _)| *other != axis);
        let around: Vec<i64> = extents.map(|(_, &extent)| extent).collect();
        let around = vars.into_iter().zip(around).rev();
        around.fold(best, |body, (var, extent)| in_loop(var, extent, ForKind::Serial, body))
    });
    let value = cx.dag.compute(op, kept, dtype, |dag, index| {
        let mut at = index.to_vec();
        at[axis] = clamped(dag.at(place, index).cast(DType::I64), shape[axis]);
        dag.at(x, &at)
    });
    Ok(vec![value, place])
}

/// A line along the axis.
struct Line {
    /// Integers that are greater for better elements.
    keys: StageId,
    axis: usize,
    /// The line; what is along the axis does not count.
    index: Vec<PrimExpr>,
    extent: i64,
    /// Whether a run has a number of its own of the best, and of all.
    is_open: [bool; 2],
}

impl Line {
    fn at(&self, position: PrimExpr) -> Vec<PrimExpr> {
        let mut at = self.index.clone();
        at[self.axis] = position;
        at
    }

    fn key(&self, dag: &mut ComputeDag, position: &PrimExpr) -> PrimExpr {
        dag.at(self.keys, &self.at(position.clone())).cast(DType::I64)
    }

    /// Stores where the `count` best are, the best first.
    ///
    /// The best so far are a heap of which the worst comes first. Each better element takes its place, and in
    /// the end that of the last one, time after time. The complements of positions make the earlier one of
    /// equal elements the better.
    fn best(&self, dag: &mut ComputeDag, count: i64, result: BufferId) -> Stmt {
        let heap = &Heap::new(dag, count, dag.dtype(self.keys), self.extent);
        let size = &extent_of(count, self.is_open[0]);
        let extent = extent_of(self.extent, self.is_open[1]);
        let first = &PrimExpr::index(0);
        // A run's own heap has as many as of the greatest number of places, or fewer.
        let levels = if self.is_open[0] { u32::BITS } else { count.ilog2() };
        let levels = || PrimExpr::index(levels.into());
        let last_place = || PrimExpr::int(u32::MAX.into(), DType::I64);
        let pair = |dag: &mut ComputeDag, position: &PrimExpr| {
            heap.pair(self.key(dag, position), last_place() - position.clone())
        };
        let fill = each(dag, "i", size.clone(), |dag, at| {
            let pair = pair(dag, &at);
            heap.store(dag, &at, pair)
        });
        let order = heap.order(dag, size, levels());
        let rest = each(dag, "i", extent - size.clone(), |dag, step| {
            let position = step + size.clone();
            // A later one of equal elements is no better.
            let is_better = heap.key(dag, first).less(self.key(dag, &position));
            let pair = pair(dag, &position);
            Stmt::if_then(is_better, heap.sift(dag, pair, first.clone(), size, levels()))
        });
        let sort = each(dag, "step", size.clone() - 1, |dag, step| {
            let last = size.clone() - 1 - step;
            let pair = heap.load(dag, &last);
            named(dag, pair, |dag, pair| {
                let worst = heap.load(dag, first);
                let out = heap.store(dag, &last, worst);
                Stmt::seq([out, heap.sift(dag, pair, first.clone(), &last, levels())])
            })
        });
        let found = each(dag, "rank", size.clone(), |dag, rank| {
            let position = last_place() - heap.place(dag, &rank);
            let position = position.cast(dag.func.buffers[result].dtype);
            dag.func.store(result, self.at(rank), position)
        });
        heap.allocate(Stmt::seq([fill, order, rest, sort, found]))
    }
}
