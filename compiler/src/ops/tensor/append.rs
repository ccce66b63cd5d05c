//! `append`: more elements behind those that a tensor has so far, as a cache gets them.

use serde::{Deserialize, Serialize};

use super::concatenate::joined;
use super::scatter::{loops, nest};
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::{Dim, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::{AxisSplit, EvalCx, axis_of};
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern};
use crate::tir::Stmt;

/// Attributes of `append`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AppendAttrs {
    /// The axis, counted from either end.
    pub axis: i64,
    /// The extent of the result along it: what there is so far, and `new`.
    pub length: Dim,
}

/// `x` has room along the axis, of which the first elements are in use: as many as `length` is more
/// than the extent of `new`. The result is these, and `new` behind them.
///
/// It is a `concatenate` whose result can be in the memory of `x`, as elements keep their places.
pub static APPEND: OpDef = OpDef::new(
    "append",
    "more elements behind those that a tensor has so far",
    &[Input::required("x"), Input::required("new")],
    infer,
    eval,
    compute,
)
.attributes::<AppendAttrs>()
.pattern(OpPattern::Opaque);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: AppendAttrs = cx.attrs()?;
    let (x, new) = (cx.tensor(0)?, cx.tensor(1)?);
    cx.same_dtype(0, 1)?;
    let axis = cx.axis(0, attrs.axis)?;
    let alike = x.shape.rank() == new.shape.rank()
        && (x.shape.iter().zip(new.shape.iter()).enumerate())
            .all(|(at, (a, b))| at == axis || cx.same(a, b));
    ensure!(
        alike,
        "input `new` is {new}, which must equal {x}, the first, in every dimension but dimension \
         {axis}"
    );
    let fits = |length: i64| {
        let [room, added] = [&x.shape[axis], &new.shape[axis]].map(Dim::as_const);
        room.is_none_or(|room| length <= room) && added.is_none_or(|added| added <= length)
    };
    ensure!(
        attrs.length.as_const().is_none_or(fits),
        "attribute `length` is {}, but there is room for {}, and `new` has {}",
        attrs.length,
        x.shape[axis],
        new.shape[axis]
    );
    let mut dims = x.shape.to_vec();
    dims[axis] = attrs.length;
    cx.result(dims, x.dtype)
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: AppendAttrs = cx.attrs()?;
    let (x, new) = (cx.arg(0)?, cx.arg(1)?);
    let axis = axis_of(x, attrs.axis)?;
    let room = AxisSplit::new(x.shape(), axis);
    let (length, added) = (cx.shape()[axis], new.shape()[axis]);
    let so_far = length.checked_sub(added).filter(|_| length <= room.extent).ok_or_else(|| {
        let room = room.extent;
        EvalError::new(format!(
            "{added} elements cannot be the last of {length} where there is room for {room}"
        ))
    })?;
    let mut shape = x.shape().to_vec();
    shape[axis] = so_far;
    let (line, used) = (room.extent * room.inner, so_far * room.inner);
    let kept = x.pick(&shape, (0..room.outer).flat_map(|at| at * line..at * line + used))?;
    cx.result(joined(&[&kept, new], axis)?)
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: AppendAttrs = cx.attrs()?;
    let (x, new) = (cx.arg(0)?, cx.arg(1)?);
    let (shape, dtype) = cx.result();
    let axis = cx.axis(attrs.axis, shape.len())?;
    let given = cx.dag.shape(new).to_vec();
    let so_far = shape[axis] - given[axis];
    let (op, in_place) = (cx.op.name, cx.in_place);
    let read = [x, new];
    let read = if in_place { &read[1..] } else { &read };
    let result = cx.dag.statement(op, &shape, dtype, read, |dag, result| {
        let mut moved = |from, extents: &[i64], offset: i64| {
            let (vars, index) = loops(dag, extents);
            let mut place = index.clone();
            place[axis] = place[axis].clone() + offset;
            let store = dag.func.store(result, place, dag.at(from, &index));
            nest(vars, extents, dtype, store)
        };
        let added = moved(new, &given, so_far);
        if in_place {
            return added;
        }
        let mut kept = shape.clone();
        kept[axis] = so_far;
        Stmt::seq([moved(x, &kept, 0), added])
    });
    Ok(vec![result])
}
