//! Reductions over axes: ONNX's `ReduceSum` and its kin, `ArgMax` and `ArgMin`.
//!
//! Floats are accumulated in double precision and rounded once.

use serde::{Deserialize, Serialize};

use super::compute::{Compute, ComputeError, Stages};
use super::eval::{AxisSplit, EvalCx, axis_of, offsets};
use super::relation::{DTypes, is_one};
use super::{EvalError, InferCx, Input, OpDef, OpPattern, values};
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, DType, Dim, Type};
use crate::te::{StageId, identity};
use crate::tir::{BinaryOp, PrimExpr};

const X: &[Input] = &[Input::required("x")];

/// Attributes of `sum`, `mean`, `max`, `min` and `prod`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReduceAttrs {
    /// The axes that are reduced, counted from either end; all if there are none.
    pub axis: Vec<i64>,
    /// Whether reduced axes stay, with extent one.
    pub keepdims: bool,
}

/// Attributes of `argmax` and `argmin`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArgReduceAttrs {
    /// The axis that is searched, counted from either end.
    pub axis: i64,
    /// Whether the axis stays, with extent one.
    pub keepdims: bool,
    /// Of equal elements, take the last instead of the first.
    pub select_last_index: bool,
}

/// What is left of a shape of which the axes in `reduced` are reduced.
fn reduced_shape<D: Clone>(shape: &[D], reduced: &[bool], keepdims: bool, one: D) -> Vec<D> {
    (shape.iter().zip(reduced))
        .filter(|(_, reduced)| keepdims || !**reduced)
        .map(|(dim, &reduced)| if reduced { one.clone() } else { dim.clone() })
        .collect()
}

impl ReduceAttrs {
    fn mask(&self, cx: &InferCx<'_>) -> Result<Vec<bool>, TypeError> {
        let mask = cx.axis_mask(0, &self.axis)?;
        Ok(if self.axis.is_empty() { vec![true; mask.len()] } else { mask })
    }
}

fn infer(cx: &InferCx<'_>, dtypes: DTypes) -> Result<Type, TypeError> {
    let attrs: ReduceAttrs = cx.attrs()?;
    let x = cx.tensor_of(0, dtypes)?;
    let mask = attrs.mask(cx)?;
    cx.result(reduced_shape(&x.shape, &mask, attrs.keepdims, Dim::from(1i64)), x.dtype)
}

/// How elements of one type are reduced.
struct Fold<T> {
    /// The result of no elements.
    init: T,
    /// Adds an element to a result.
    step: fn(T, T) -> T,
    /// Makes the final result from the number of elements; `None` where there is none.
    finish: fn(T, usize) -> Option<T>,
}

impl<T: Copy> Fold<T> {
    /// A reduction that is finished with its last step.
    fn new(init: T, step: fn(T, T) -> T) -> Fold<T> {
        Fold { init, step, finish: |result, _| Some(result) }
    }

    /// Reduces `values` of `shape` to `len` results, which lie at `strides`.
    fn run(
        &self,
        shape: &[usize],
        strides: &[isize],
        len: usize,
        values: &[T],
    ) -> Result<Vec<T>, EvalError> {
        let mut results = vec![self.init; len];
        for (at, &value) in offsets(shape, strides, 0).zip(values) {
            results[at] = (self.step)(results[at], value);
        }
        let count = values.len().checked_div(len).unwrap_or(0);
        (results.into_iter().map(|result| (self.finish)(result, count)).collect::<Option<_>>())
            .ok_or_else(|| EvalError::new("the mean of no integers is not defined"))
    }
}

/// The strides in the result along each axis of the argument: none along reduced ones.
fn result_strides(shape: &[usize], reduced: &[bool]) -> Vec<isize> {
    let mut stride = 1usize;
    let mut strides = vec![0; shape.len()];
    for axis in (0..shape.len()).rev() {
        if !reduced[axis] {
            strides[axis] = stride as isize;
            stride = stride.saturating_mul(shape[axis]);
        }
    }
    strides
}

fn eval(cx: &EvalCx<'_>, float: Fold<f64>, int: Fold<i128>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: ReduceAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let mut reduced = vec![attrs.axis.is_empty(); x.shape().len()];
    for &axis in &attrs.axis {
        reduced[axis_of(x, axis)?] = true;
    }
    let strides = result_strides(x.shape(), &reduced);
    cx.result(match x.elements() {
        Elements::Float(values) => {
            Elements::Float(float.run(x.shape(), &strides, cx.len(), values)?)
        }
        Elements::Int(values) => Elements::Int(int.run(x.shape(), &strides, cx.len(), values)?),
    })
}

/// The least and greatest value of integers and booleans: what `max` and `min` of nothing are.
fn int_limits(cx: &EvalCx<'_>) -> (i128, i128) {
    cx.optional(0).map(Tensor::dtype).and_then(DType::int_range).unwrap_or((0, 1))
}

/// The value of a reduction of a whole small integer tensor.
fn shape_value(cx: &InferCx<'_>, f: fn(&Dim, &Dim) -> Dim) -> Option<Vec<Dim>> {
    let attrs: ReduceAttrs = cx.attrs().ok()?;
    let (dims, ty) = values::value(cx, 0)?;
    let mask = attrs.mask(cx).ok()?;
    if (mask.iter().zip(ty.shape.iter())).any(|(&reduced, dim)| !reduced && !is_one(dim)) {
        return None;
    }
    let (first, rest) = dims.split_first()?;
    values::checked(vec![rest.iter().fold(first.clone(), |a, b| f(&a, b))], ty.dtype)
}

/// The sum. Of no elements zero.
pub static SUM: OpDef = OpDef::new(
    "sum",
    "sum over axes",
    X,
    |cx| infer(cx, DTypes::Numeric),
    |cx| {
        let float = Fold::new(0.0, |a, b| a + b);
        eval(cx, float, Fold::new(0, i128::wrapping_add))
    },
    |cx| compute(cx, BinaryOp::Add),
)
.attributes::<ReduceAttrs>()
.defaults(|| Attrs::new().with("keepdims", false))
.pattern(OpPattern::CommReduce)
.shape_value(|cx| shape_value(cx, |a, b| a + b));

/// The arithmetic mean; of integers truncated, whose sum wraps at 64 bits. Of no elements NaN, and of
/// no integers an error.
pub static MEAN: OpDef = OpDef::new(
    "mean",
    "mean over axes",
    X,
    |cx| infer(cx, DTypes::Numeric),
    |cx| {
        let float =
            Fold { finish: |sum, count| Some(sum / count as f64), ..Fold::new(0.0, |a, b| a + b) };
        let is_unsigned = cx.arg(0)?.ty().dtype.is_unsigned_int();
        let finish: fn(i128, usize) -> Option<i128> = match is_unsigned {
            true => |sum, count| i128::from(sum as u64).checked_div(count as i128),
            false => |sum, count| i128::from(sum as i64).checked_div(count as i128),
        };
        let int = Fold { finish, ..Fold::new(0, i128::wrapping_add) };
        eval(cx, float, int)
    },
    compute_mean,
)
.attributes::<ReduceAttrs>()
.defaults(|| Attrs::new().with("keepdims", false))
.pattern(OpPattern::CommReduce);

/// The product. Of no elements one.
pub static PROD: OpDef = OpDef::new(
    "prod",
    "product over axes",
    X,
    |cx| infer(cx, DTypes::Numeric),
    |cx| {
        let float = Fold::new(1.0, |a, b| a * b);
        eval(cx, float, Fold::new(1, i128::wrapping_mul))
    },
    |cx| compute(cx, BinaryOp::Mul),
)
.attributes::<ReduceAttrs>()
.defaults(|| Attrs::new().with("keepdims", false))
.pattern(OpPattern::CommReduce)
.shape_value(|cx| shape_value(cx, |a, b| a * b));

/// The greatest element; NaN if one is. Of no elements the data type's least value.
pub static MAX: OpDef = OpDef::new(
    "max",
    "greatest over axes",
    X,
    |cx| infer(cx, DTypes::NumericOrBool),
    |cx| {
        let step = |a: f64, b: f64| if a.is_nan() || a > b { a } else { b };
        let int = Fold::new(int_limits(cx).0, Ord::max);
        eval(cx, Fold::new(f64::NEG_INFINITY, step), int)
    },
    |cx| compute(cx, BinaryOp::Max),
)
.attributes::<ReduceAttrs>()
.defaults(|| Attrs::new().with("keepdims", false))
.pattern(OpPattern::CommReduce)
.shape_value(|cx| shape_value(cx, |a, b| a.maximum(b)));

/// The smallest element; NaN if one is. Of no elements the data type's greatest value.
pub static MIN: OpDef = OpDef::new(
    "min",
    "smallest over axes",
    X,
    |cx| infer(cx, DTypes::NumericOrBool),
    |cx| {
        let step = |a: f64, b: f64| if a.is_nan() || a < b { a } else { b };
        let int = Fold::new(int_limits(cx).1, Ord::min);
        eval(cx, Fold::new(f64::INFINITY, step), int)
    },
    |cx| compute(cx, BinaryOp::Min),
)
.attributes::<ReduceAttrs>()
.defaults(|| Attrs::new().with("keepdims", false))
.pattern(OpPattern::CommReduce)
.shape_value(|cx| shape_value(cx, |a, b| a.minimum(b)));

fn infer_arg(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: ArgReduceAttrs = cx.attrs()?;
    let x = cx.tensor_of(0, DTypes::Numeric)?;
    let axis = cx.axis(0, attrs.axis)?;
    ensure!(
        x.shape[axis].as_const() != Some(0),
        "axis {} of input `x`, which is {x}, is empty and so has no greatest or smallest element",
        attrs.axis
    );
    let mut mask = vec![false; x.shape.rank()];
    mask[axis] = true;
    cx.result(reduced_shape(&x.shape, &mask, attrs.keepdims, Dim::from(1i64)), DType::I64)
}

/// Evaluates a search along an axis; `better(a, b)` is whether `a` is to be preferred to `b`.
fn eval_arg(
    cx: &EvalCx<'_>,
    float: fn(f64, f64) -> bool,
    int: fn(&i128, &i128) -> bool,
) -> Result<Vec<Tensor>, EvalError> {
    fn search<T: Copy>(
        split: AxisSplit,
        values: &[T],
        last: bool,
        better: impl Fn(T, T) -> bool,
    ) -> Vec<i128> {
        let line = |start| {
            let mut best = 0;
            for index in 1..split.extent {
                let (new, old) =
                    (values[start + index * split.inner], values[start + best * split.inner]);
                if better(new, old) || (last && !better(old, new)) {
                    best = index;
                }
            }
            best as i128
        };
        split.starts().map(line).collect()
    }
    let attrs: ArgReduceAttrs = cx.attrs()?;
    let (x, last) = (cx.arg(0)?, attrs.select_last_index);
    let split = AxisSplit::new(x.shape(), axis_of(x, attrs.axis)?);
    cx.result(Elements::Int(match x.elements() {
        // As in numpy, a NaN is the greatest and the smallest of all.
        Elements::Float(values) => {
            search(split, values, last, |a, b| !b.is_nan() && (a.is_nan() || float(a, b)))
        }
        Elements::Int(values) => search(split, values, last, |a, b| int(&a, &b)),
    }))
}

/// The index of the greatest element along an axis, as `int64`; that of a NaN if there is one.
pub static ARGMAX: OpDef = OpDef::new(
    "argmax",
    "index of the greatest element along an axis",
    X,
    infer_arg,
    |cx| eval_arg(cx, |a, b| a > b, PartialOrd::gt),
    |cx| compute_arg(cx, BinaryOp::Max),
)
.attributes::<ArgReduceAttrs>()
.defaults(|| Attrs::new().with("keepdims", false).with("select_last_index", false))
.pattern(OpPattern::CommReduce);

/// The index of the smallest element along an axis, as `int64`; that of a NaN if there is one.
pub static ARGMIN: OpDef = OpDef::new(
    "argmin",
    "index of the smallest element along an axis",
    X,
    infer_arg,
    |cx| eval_arg(cx, |a, b| a < b, PartialOrd::lt),
    |cx| compute_arg(cx, BinaryOp::Min),
)
.attributes::<ArgReduceAttrs>()
.defaults(|| Attrs::new().with("keepdims", false).with("select_last_index", false))
.pattern(OpPattern::CommReduce);

/// The axes of an argument that are reduced.
struct Axes {
    reduced: Vec<bool>,
    keepdims: bool,
    /// Extents of the reduced axes.
    over: Vec<i64>,
}

impl Axes {
    fn new(input: &[i64], reduced: Vec<bool>, keepdims: bool) -> Axes {
        let over = input.iter().zip(&reduced).filter(|(_, r)| **r).map(|(&extent, _)| extent);
        Axes { over: over.collect(), reduced, keepdims }
    }

    fn of_attrs(cx: &Compute<'_>) -> Result<Axes, ComputeError> {
        let attrs: ReduceAttrs = cx.attrs()?;
        let input = cx.dag.shape(cx.arg(0)?);
        let mut reduced = vec![attrs.axis.is_empty(); input.len()];
        for axis in &attrs.axis {
            reduced[cx.axis(*axis, input.len())?] = true;
        }
        Ok(Axes::new(input, reduced, attrs.keepdims))
    }

    /// The index into the argument at an index of the result and of the reduced axes.
    fn place(&self, index: &[PrimExpr], by: &[PrimExpr]) -> Vec<PrimExpr> {
        let (mut kept, mut by) = (index.iter(), by.iter());
        let place = |&reduced: &bool| {
            let place = if reduced { by.next() } else { kept.next() };
            if reduced && self.keepdims {
                kept.next();
            }
            place.cloned().unwrap_or_else(|| PrimExpr::index(0))
        };
        self.reduced.iter().map(place).collect()
    }

    /// `combiner` over the axes, of the elements as `dtype`.
    fn reduce(
        &self,
        cx: &mut Compute<'_>,
        x: StageId,
        combiner: BinaryOp,
        dtype: DType,
    ) -> StageId {
        let (shape, _) = cx.result();
        cx.dag.reduce(cx.op.name, &shape, dtype, combiner, &self.over, |dag, index, by| {
            dag.at(x, &self.place(index, by)).cast(dtype)
        })
    }
}

fn compute(cx: &mut Compute<'_>, combiner: BinaryOp) -> Stages {
    let axes = Axes::of_attrs(cx)?;
    let x = cx.arg(0)?;
    let (_, dtype) = cx.result();
    let wide = match combiner {
        // Of bytes that are 0 or 1; what no element leaves is not 0 or is 0 all the same.
        _ if dtype == DType::Bool => DType::U8,
        BinaryOp::Add | BinaryOp::Mul => dtype.accumulator(),
        _ => dtype,
    };
    let stage = axes.reduce(cx, x, combiner, wide);
    if wide == dtype {
        return Ok(vec![stage]);
    }
    cx.element(|dag, index| dag.at(stage, index).cast(dtype))
}

/// Integers are added up in 64 bits, where the sum of a narrow type has room, and floats of 16 bits
/// in 32.
fn compute_mean(cx: &mut Compute<'_>) -> Stages {
    let axes = Axes::of_attrs(cx)?;
    let x = cx.arg(0)?;
    let (_, dtype) = cx.result();
    let wide = match dtype {
        _ if dtype.is_float() => dtype.accumulator(),
        _ if dtype.is_unsigned_int() => DType::U64,
        _ => DType::I64,
    };
    let sum = axes.reduce(cx, x, BinaryOp::Add, wide);
    let count = if dtype.is_float() {
        PrimExpr::float(axes.over.iter().map(|&extent| extent as f64).product(), wide)
    } else {
        PrimExpr::int(axes.over.iter().fold(1, |n, &extent| n.saturating_mul(extent)), wide)
    };
    cx.element(|dag, index| (dag.at(sum, index) / count).cast(dtype))
}

/// The extreme of each line, and then the first or last index at which it stands.
fn compute_arg(cx: &mut Compute<'_>, combiner: BinaryOp) -> Stages {
    let attrs: ArgReduceAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let (shape, index_dtype) = cx.result();
    let input = cx.dag.shape(x).to_vec();
    let mut reduced = vec![false; input.len()];
    reduced[cx.axis(attrs.axis, input.len())?] = true;
    let axes = Axes::new(&input, reduced, attrs.keepdims);
    if axes.over == [1] {
        return cx.element(|_, _| PrimExpr::zero(index_dtype));
    }
    let dtype = cx.dag.dtype(x);
    // What a float is compared with is rounded as little as the float.
    let wide = if dtype.is_float() { dtype.accumulator() } else { dtype };
    let extreme = axes.reduce(cx, x, combiner, wide);
    let choice = if attrs.select_last_index { BinaryOp::Max } else { BinaryOp::Min };
    // Twice as many places are in a vector if they have 32 bits.
    let is_short = axes.over.iter().all(|&extent| extent <= i64::from(i32::MAX));
    let place_dtype = if is_short { DType::I32 } else { index_dtype };
    let none = identity(choice, place_dtype);
    let (op, over) = (cx.op.name, &axes.over);
    let found = cx.dag.reduce(op, &shape, place_dtype, choice, over, |dag, index, by| {
        let value = dag.at(x, &axes.place(index, by)).cast(wide);
        let extreme = dag.at(extreme, index);
        let mut found = value.clone().equal(extreme);
        if dtype.is_float() {
            // The extreme of a line with a NaN is a NaN, which equals nothing.
            found = found.or(value.clone().not_equal(value));
        }
        PrimExpr::select(found, by[0].clone().cast(place_dtype), none)
    });
    if place_dtype == index_dtype {
        return Ok(vec![found]);
    }
    cx.element(|dag, index| dag.at(found, index).cast(index_dtype))
}
