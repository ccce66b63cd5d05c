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
use crate::tir::{BinaryOp, BufferId, BufferScope, ForKind, PrimExpr, Stmt, VarId};

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
        key(dag, value, keys, attrs.largest)
    });
    let place = cx.dag.statement(op, kept, index_dtype, &[keys], |dag, result| {
        let (mut vars, index) = loops(dag, kept);
        let line = Line { keys, axis, index, extent: shape[axis] };
        let best = match kept[axis] {
            0 => Stmt::nop(),
            count => Heap::new(dag, line, count).best(dag, result),
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

/// A signed integer that is greater for better elements.
fn key(dag: &mut ComputeDag, value: PrimExpr, bits: DType, largest: bool) -> PrimExpr {
    let int = |value: i64| PrimExpr::int(value, bits);
    let key = match value.dtype() {
        DType::F64 => ordered(dag, value, bits),
        dtype if dtype.is_float() => ordered(dag, value.cast(DType::F32), bits),
        DType::U32 | DType::U64 => {
            PrimExpr::binary(BinaryOp::Xor, value.cast(bits), int(i64::MIN >> (64 - bits.bits())))
        }
        _ => value.cast(bits),
    };
    // The complement turns the order around.
    if largest { key } else { PrimExpr::binary(BinaryOp::Xor, key, int(-1)) }
}

/// An integer that is greater for greater numbers: zeros are equal, and so are NaNs, which are greater
/// than infinity.
fn ordered(dag: &mut ComputeDag, value: PrimExpr, bits: DType) -> PrimExpr {
    let (dtype, most) = (value.dtype(), i64::MAX >> (64 - bits.bits()));
    let int = |value: i64| PrimExpr::int(value, bits);
    let (var, x) = name(dag, "x", dtype);
    let is_nan = x.clone().not_equal(x.clone());
    // Where denormal numbers count as zeros, they are equal as well.
    let zero = PrimExpr::float(0.0, dtype);
    let number = PrimExpr::select(x.clone().equal(zero.clone()), zero, x);
    let (bits_var, number_bits) = name(dag, "bits", bits);
    let sign =
        PrimExpr::binary(BinaryOp::Shr, number_bits.clone(), int(i64::from(bits.bits()) - 1));
    let flips = PrimExpr::binary(BinaryOp::And, sign, int(most));
    let key = PrimExpr::binary(BinaryOp::Xor, number_bits, flips);
    let key = PrimExpr::select(is_nan, int(most), key);
    let bind =
        |var, value, body| PrimExpr::Let { var, value: Box::new(value), body: Box::new(body) };
    bind(var, value, bind(bits_var, number.reinterpret(bits), key))
}

/// A line along the axis.
struct Line {
    /// Integers that are greater for better elements.
    keys: StageId,
    axis: usize,
    /// The line; what is along the axis does not count.
    index: Vec<PrimExpr>,
    extent: i64,
}

impl Line {
    fn at(&self, position: PrimExpr) -> Vec<PrimExpr> {
        let mut at = self.index.clone();
        at[self.axis] = position;
        at
    }
}

/// The best elements of a line so far, of which the worst is the first: a binary heap (Williams 1964).
/// Each better element takes the place of the worst, and in the end the worst, time after time, that
/// of the last one. No order of elements makes it quadratic.
///
/// An element is a pair of its key and of its position's complement, which makes the earlier one of equal
/// elements the better: in one integer if the key has at most 32 bits, in two if it has more.
struct Heap {
    line: Line,
    count: i64,
    /// The integers of elements, the first of which counts most.
    parts: Vec<BufferId>,
    /// Where an element is missing.
    hole: BufferId,
}

/// The lowest bits of a pair in one integer: the complement of a position.
const PLACE_BITS: u32 = 32;

impl Heap {
    fn new(dag: &mut ComputeDag, line: Line, count: i64) -> Self {
        let is_wide = dag.dtype(line.keys) == DType::I64 || line.extent >> PLACE_BITS != 0;
        let mut buffer = |name: &str, count: i64| {
            dag.func.buffer(name, DType::I64, BufferSpec::dense(&[count]), BufferScope::Local)
        };
        let (hole, heap) = (buffer("hole", 1), buffer("heap", count));
        let places = is_wide.then(|| buffer("places", count));
        Heap { line, count, parts: [heap].into_iter().chain(places).collect(), hole }
    }

    /// The key of the line's element at a position.
    fn key(&self, dag: &mut ComputeDag, position: &PrimExpr) -> PrimExpr {
        dag.at(self.line.keys, &self.line.at(position.clone())).cast(DType::I64)
    }

    /// The parts of the line's element at a position.
    fn element(&self, dag: &mut ComputeDag, position: &PrimExpr) -> Vec<PrimExpr> {
        let key = self.key(dag, position);
        let int = |value: i64| PrimExpr::int(value, DType::I64);
        let place = int(u32::MAX.into()) - position.clone();
        match self.parts[..] {
            [_] => {
                let key = PrimExpr::binary(BinaryOp::Shl, key, int(PLACE_BITS.into()));
                vec![PrimExpr::binary(BinaryOp::Or, key, place)]
            }
            _ => vec![key, place],
        }
    }

    /// Puts an element into the first `size` of the heap, in the place of the one at `from`: what is worse
    /// and below moves up.
    fn sift(
        &self,
        dag: &mut ComputeDag,
        element: Vec<PrimExpr>,
        from: PrimExpr,
        size: &PrimExpr,
    ) -> Stmt {
        let level = dag.func.index_var("level");
        let start = dag.func.store(self.hole, [0], from);
        let hole = |dag: &ComputeDag| dag.func.load(self.hole, [0]);
        let (at_var, at) = name(dag, "at", DType::I64);
        let (below_var, below) = name(dag, "below", DType::I64);
        let left = at.clone() * 2 + 1;
        let right = (left.clone() + 1).min(size.clone() - 1);
        let is_right = worse(&load(dag, &self.parts, &right), &load(dag, &self.parts, &left));
        let worst = PrimExpr::select(is_right, right, left.clone());
        let child = load(dag, &self.parts, &below);
        let moves = worse(&child, &element);
        let up = store(dag, &self.parts, &at, child);
        let up = Stmt::seq([up, dag.func.store(self.hole, [0], below)]);
        let up = Stmt::let_(below_var, worst, Stmt::if_then(moves, up));
        let step = Stmt::let_(at_var, hole(dag), Stmt::if_then(left.less(size.clone()), up));
        let steps = in_loop(level, self.count.ilog2().into(), ForKind::Serial, step);
        let at = hole(dag);
        let put = store(dag, &self.parts, &at, element);
        Stmt::seq([start, steps, put])
    }

    /// Stores where the best are, the best first.
    fn best(&self, dag: &mut ComputeDag, result: BufferId) -> Stmt {
        let (count, size, first) = (self.count, PrimExpr::index(self.count), PrimExpr::index(0));
        let fill = each(dag, "i", count, |dag, at| {
            let element = self.element(dag, &at);
            store(dag, &self.parts, &at, element)
        });
        let order = each(dag, "step", count / 2, |dag, step| {
            let at = PrimExpr::index(count / 2 - 1) - step;
            let element = load(dag, &self.parts, &at);
            named(dag, element, |dag, element| self.sift(dag, element, at, &size))
        });
        let rest = each(dag, "i", self.line.extent - count, |dag, step| {
            let position = step + count;
            let worst = load(dag, &self.parts, &first).swap_remove(0);
            let worst = match self.parts[..] {
                [_] => PrimExpr::binary(BinaryOp::Shr, worst, PrimExpr::index(PLACE_BITS.into())),
                _ => worst,
            };
            // A later one of equal elements is no better.
            let is_better = worst.less(self.key(dag, &position));
            let element = self.element(dag, &position);
            let put =
                named(dag, element, |dag, element| self.sift(dag, element, first.clone(), &size));
            Stmt::if_then(is_better, put)
        });
        let sort = each(dag, "step", count - 1, |dag, step| {
            let last = PrimExpr::index(count - 1) - step;
            let element = load(dag, &self.parts, &last);
            named(dag, element, |dag, element| {
                let worst = load(dag, &self.parts, &first);
                let out = store(dag, &self.parts, &last, worst);
                Stmt::seq([out, self.sift(dag, element, first.clone(), &last)])
            })
        });
        let found = each(dag, "rank", count, |dag, rank| {
            let lowest = load(dag, &self.parts, &rank).pop().unwrap_or_else(|| rank.clone());
            let complement = PrimExpr::int(u32::MAX.into(), DType::I64);
            let place = match self.parts[..] {
                [_] => PrimExpr::binary(BinaryOp::And, lowest, complement.clone()),
                _ => lowest,
            };
            let place = (complement - place).cast(dag.func.buffers[result].dtype);
            dag.func.store(result, self.line.at(rank), place)
        });
        let body = Stmt::seq([fill, order, rest, sort, found]);
        let buffers = self.parts.iter().chain([&self.hole]);
        buffers.fold(body, |body, &buffer| Stmt::allocate(buffer, body))
    }
}

/// A serial loop around the statement of each of its indices.
fn each(
    dag: &mut ComputeDag,
    name: &str,
    extent: i64,
    body: impl FnOnce(&mut ComputeDag, PrimExpr) -> Stmt,
) -> Stmt {
    let var = dag.func.index_var(name);
    let index = dag.func.var_expr(var);
    let body = body(dag, index);
    in_loop(var, extent, ForKind::Serial, body)
}

fn load(dag: &ComputeDag, parts: &[BufferId], at: &PrimExpr) -> Vec<PrimExpr> {
    parts.iter().map(|&part| dag.func.load(part, [at.clone()])).collect()
}

fn store(dag: &mut ComputeDag, parts: &[BufferId], at: &PrimExpr, element: Vec<PrimExpr>) -> Stmt {
    let parts = parts.iter().zip(element);
    Stmt::seq(parts.map(|(&part, value)| dag.func.store(part, [at.clone()], value)))
}

/// A name for a value, and its use.
fn name(dag: &mut ComputeDag, name: &str, dtype: DType) -> (VarId, PrimExpr) {
    let var = dag.func.var(name, dtype);
    (var, dag.func.var_expr(var))
}

/// A statement about an element whose parts have names.
fn named(
    dag: &mut ComputeDag,
    element: Vec<PrimExpr>,
    body: impl FnOnce(&mut ComputeDag, Vec<PrimExpr>) -> Stmt,
) -> Stmt {
    let (vars, names): (Vec<_>, _) = element.iter().map(|_| name(dag, "part", DType::I64)).unzip();
    let body = body(dag, names);
    let values = vars.into_iter().zip(element).rev();
    values.fold(body, |body, (var, value)| Stmt::let_(var, value, body))
}

/// Whether one element is worse than another one.
fn worse(one: &[PrimExpr], other: &[PrimExpr]) -> PrimExpr {
    let pairs = one.iter().zip(other).rev();
    let is_worse = pairs.fold(None, |rest, (one, other)| {
        let less = one.clone().less(other.clone());
        let equal = || one.clone().equal(other.clone());
        Some(rest.map_or(less.clone(), |rest| less.or(equal().and(rest))))
    });
    is_worse.unwrap_or(PrimExpr::bool(false))
}
