//! `topk`: the greatest or least elements along an axis, and where they are (ONNX `TopK`).

use serde::{Deserialize, Serialize};

use super::X;
use super::clamped;
use super::scatter::{in_loop, loops};
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, BufferSpec, DType, Dim, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::{AxisSplit, EvalCx, axis_of};
use crate::ops::relation::at_least;
use crate::ops::{EvalError, InferCx, OpDef};
use crate::te::{ComputeDag, StageId};
use crate::tir::{BufferId, BufferScope, ForKind, PrimExpr, Stmt};

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

/// Most elements that are kept in order while a line is gone through once. Of more, the line is
/// sorted: what is kept moves for each element that is better than the last of it.
const MOST_INSERTED: i64 = 128;

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
    let place = cx.dag.statement(op, kept, index_dtype, &[x], |dag, result| {
        let (mut vars, index) = loops(dag, kept);
        let line = Line { x, axis, index, extent: shape[axis], kept: kept[axis], attrs, dtype };
        let best = match (line.kept, line.extent) {
            (0, _) => Stmt::nop(),
            (kept, extent) if kept <= MOST_INSERTED.min(extent) => line.inserted(dag, result),
            _ => line.sorted(dag, result),
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
    x: StageId,
    axis: usize,
    /// The line; what is along the axis does not count.
    index: Vec<PrimExpr>,
    extent: i64,
    kept: i64,
    attrs: TopkAttrs,
    dtype: DType,
}

impl Line {
    fn at(&self, position: PrimExpr) -> Vec<PrimExpr> {
        let mut at = self.index.clone();
        at[self.axis] = position;
        at
    }

    /// Whether one element comes before another one that is no later in the line.
    fn better(&self, one: &PrimExpr, other: &PrimExpr) -> PrimExpr {
        let (greater, lesser) = if self.attrs.largest { (one, other) } else { (other, one) };
        let better = greater.clone().greater(lesser.clone());
        if !self.dtype.is_float() {
            return better;
        }
        // A NaN is greater than every number, and equal to another one.
        let is_nan = |value: &PrimExpr| value.clone().not_equal(value.clone());
        better.or(is_nan(greater).and(is_nan(lesser).equal(PrimExpr::bool(false))))
    }

    /// A buffer of the line's elements, or of positions.
    fn buffer(&self, dag: &mut ComputeDag, name: &str, dtype: DType, count: i64) -> BufferId {
        dag.func.buffer(name, dtype, BufferSpec::dense(&[count]), BufferScope::Local)
    }

    /// What is found, as the result.
    fn found(&self, dag: &mut ComputeDag, from: BufferId, result: BufferId) -> Stmt {
        let var = dag.func.index_var("rank");
        let rank = dag.func.var_expr(var);
        let place = dag.func.load(from, [rank.clone()]);
        let place = place.cast(dag.func.buffers[result].dtype);
        let store = dag.func.store(result, self.at(rank), place);
        in_loop(var, self.kept, ForKind::Serial, store)
    }

    /// The best so far in order, into which each element goes that is better than the last of them.
    fn inserted(&self, dag: &mut ComputeDag, result: BufferId) -> Stmt {
        let keys = self.buffer(dag, "keys", self.dtype, self.kept);
        let places = self.buffer(dag, "places", DType::I64, self.kept);
        let (none, last) = (PrimExpr::index(-1), PrimExpr::index(self.kept - 1));
        let load = |dag: &ComputeDag, buffer, at: &PrimExpr| dag.func.load(buffer, [at.clone()]);
        // Where nothing is yet, every element is better.
        let precedes = |dag: &ComputeDag, key: &PrimExpr, rank: &PrimExpr| {
            let empty = load(dag, places, rank).less(0);
            empty.or(self.better(key, &load(dag, keys, rank)))
        };
        let var = dag.func.index_var("rank");
        let rank = dag.func.var_expr(var);
        let zero = PrimExpr::zero(dag.func.buffers[keys].dtype);
        let clear = Stmt::seq([
            dag.func.store(places, [rank.clone()], none),
            dag.func.store(keys, [rank], zero),
        ]);
        let clear = in_loop(var, self.kept, ForKind::Serial, clear);

        let (element, step) = (dag.func.index_var("i"), dag.func.index_var("step"));
        let position = dag.func.var_expr(element);
        let name = dag.func.var("key", dag.at(self.x, &self.at(position.clone())).ty());
        let key = dag.func.var_expr(name);
        // From the last to the first: what is worse moves on by one.
        let rank = last.clone() - dag.func.var_expr(step);
        let before = (rank.clone() - 1).max(0);
        let shifts = precedes(dag, &key, &before).and(rank.clone().greater(0));
        let here = precedes(dag, &key, &rank);
        let moved = |dag: &mut ComputeDag, buffer, new: PrimExpr| {
            dag.func.store(buffer, [rank.clone()], new)
        };
        let (old_key, old_place) = (load(dag, keys, &before), load(dag, places, &before));
        let shift = [moved(dag, keys, old_key), moved(dag, places, old_place)];
        let put = [moved(dag, keys, key.clone()), moved(dag, places, position.clone())];
        let put = Stmt::if_then(here, Stmt::seq(put));
        let body = Stmt::if_then_else(shifts, Stmt::seq(shift), put);
        let insert = in_loop(step, self.kept, ForKind::Serial, body);
        let insert = Stmt::if_then(precedes(dag, &key, &last), insert);
        let value = dag.at(self.x, &self.at(position));
        let all = Stmt::let_(name, value, insert);
        let all = in_loop(element, self.extent, ForKind::Serial, all);
        let found = self.found(dag, places, result);
        let body = Stmt::seq([clear, all, found]);
        Stmt::allocate(keys, Stmt::allocate(places, body))
    }

    /// All elements in order, by merging runs of one element, of two and so on.
    fn sorted(&self, dag: &mut ComputeDag, result: BufferId) -> Stmt {
        let count = self.extent;
        let keys = ["keys", "more_keys"].map(|name| self.buffer(dag, name, self.dtype, count));
        let places =
            ["places", "more_places"].map(|name| self.buffer(dag, name, DType::I64, count));
        let heads = self.buffer(dag, "heads", DType::I64, 2);
        let var = dag.func.index_var("i");
        let position = dag.func.var_expr(var);
        let value = dag.at(self.x, &self.at(position.clone()));
        let fill = Stmt::seq([
            dag.func.store(keys[0], [position.clone()], value),
            dag.func.store(places[0], [position.clone()], position),
        ]);
        let mut stmts = vec![in_loop(var, count, ForKind::Serial, fill)];
        let (mut from, mut width) = (0, 1);
        while width < count {
            let to = 1 - from;
            stmts.push(self.merged(
                dag,
                [keys[from], places[from]],
                [keys[to], places[to]],
                heads,
                width,
            ));
            (from, width) = (to, 2 * width);
        }
        stmts.push(self.found(dag, places[from], result));
        let buffers = keys.into_iter().chain(places).chain([heads]);
        buffers.fold(Stmt::seq(stmts), |body, buffer| Stmt::allocate(buffer, body))
    }

    /// Runs of `width` elements, two at a time, as runs of twice as many.
    fn merged(
        &self,
        dag: &mut ComputeDag,
        from: [BufferId; 2],
        to: [BufferId; 2],
        heads: BufferId,
        width: i64,
    ) -> Stmt {
        let count = self.extent;
        let (pair, step) = (dag.func.index_var("pair"), dag.func.index_var("step"));
        let start = dag.func.var_expr(pair) * (2 * width);
        let middle = (start.clone() + width).min(count);
        let end = (start.clone() + 2 * width).min(count);
        let begin = Stmt::seq([
            dag.func.store(heads, [0], start.clone()),
            dag.func.store(heads, [1], middle.clone()),
        ]);
        let [left, right] = ["left", "right"].map(|name| dag.func.index_var(name));
        let (one, other) = (dag.func.var_expr(left), dag.func.var_expr(right));
        let key =
            |dag: &ComputeDag, at: &PrimExpr| dag.func.load(from[0], [at.clone().min(count - 1)]);
        let better = self.better(&key(dag, &other), &key(dag, &one));
        let over = one.clone().greater_equal(middle);
        let takes = other.clone().less(end.clone()).and(over.or(better));
        let chosen = dag.func.var("takes_right", takes.ty());
        let takes_right = dag.func.var_expr(chosen);
        let taken = PrimExpr::select(takes_right.clone(), other.clone(), one.clone());
        let by = PrimExpr::select(takes_right, PrimExpr::index(1), PrimExpr::index(0));
        let place = start.clone() + dag.func.var_expr(step);
        let mut body = Vec::new();
        for (from, to) in from.into_iter().zip(to) {
            let value = dag.func.load(from, [taken.clone()]);
            body.push(dag.func.store(to, [place.clone()], value));
        }
        body.push(dag.func.store(heads, [0], one + 1 - by.clone()));
        body.push(dag.func.store(heads, [1], other + by));
        let body = Stmt::let_(chosen, takes, Stmt::seq(body));
        let body = Stmt::let_(right, dag.func.load(heads, [1]), body);
        let body = Stmt::let_(left, dag.func.load(heads, [0]), body);
        let steps = Stmt::for_loop(step, 0.into(), end - start, ForKind::Serial, body);
        let pairs = (count + 2 * width - 1) / (2 * width);
        in_loop(pair, pairs, ForKind::Serial, Stmt::seq([begin, steps]))
    }
}
