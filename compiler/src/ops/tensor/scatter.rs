//! `scatter_elements` and `scatter_nd`: a tensor with elements or slices replaced at places that a
//! tensor of indices names (ONNX `ScatterElements`, `ScatterND`).

use serde::{Deserialize, Serialize};

use super::from_either_end;
use super::gather::{fits_beside_axis, indices_lie_within, position, tuple_length, tuple_place};
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor, wrap_int};
use crate::ir::{Attrs, DType, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::elementwise::{maximum, minimum};
use crate::ops::eval::{EvalCx, axis_of, dense_strides, num_elements, offsets};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef};
use crate::te::{ComputeDag, combined};
use crate::tir::{BinaryOp, ForKind, PrimExpr, Stmt, VarId};

/// What becomes of an element and an update for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScatterReduction {
    /// The update; of several for one place the last, where ONNX leaves it open.
    Update,
    /// Their sum.
    Add,
    /// Their product.
    Mul,
    /// The lesser; NaN if either is.
    Min,
    /// The greater; NaN if either is.
    Max,
}

/// Attributes of `scatter_elements`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScatterElementsAttrs {
    /// The axis that is indexed, counted from either end.
    pub axis: i64,
    /// What becomes of an element and its update.
    pub reduction: ScatterReduction,
}

const INPUTS: &[Input] =
    &[Input::required("x"), Input::required("indices"), Input::required("updates")];

/// `x` with each element of `updates` put to the same place, but for the axis, where the index says
/// which. `indices` and `updates` have one shape. A negative index counts from the end.
pub static SCATTER_ELEMENTS: OpDef = OpDef::new(
    "scatter_elements",
    "elements put to places along an axis",
    INPUTS,
    infer_scatter_elements,
    eval_scatter_elements,
    compute_scatter_elements,
)
.attributes::<ScatterElementsAttrs>()
.defaults(|| Attrs::new().with("reduction", "update"));

/// Attributes of `scatter_nd`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScatterNdAttrs {
    /// What becomes of an element and its update.
    pub reduction: ScatterReduction,
}

/// `x` with slices put to places: the last axis of `indices` holds one index for each of the first
/// axes of `x`, the rest of the axes are the slice. A negative index counts from the end.
pub static SCATTER_ND: OpDef = OpDef::new(
    "scatter_nd",
    "slices put to places along several axes",
    INPUTS,
    infer_scatter_nd,
    eval_scatter_nd,
    compute_scatter_nd,
)
.attributes::<ScatterNdAttrs>()
.defaults(|| Attrs::new().with("reduction", "update"));

fn check_reduction(reduction: ScatterReduction, dtype: DType) -> Result<(), TypeError> {
    let combines = reduction == ScatterReduction::Update || dtype != DType::Bool;
    ensure!(combines, "attribute `reduction` must be `update` for elements of {dtype}");
    Ok(())
}

fn infer_scatter_elements(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: ScatterElementsAttrs = cx.attrs()?;
    let (x, indices) = (cx.tensor(0)?, cx.tensor_of(1, DTypes::Int)?);
    let updates = cx.tensor(2)?;
    cx.same_dtype(0, 2)?;
    check_reduction(attrs.reduction, x.dtype)?;
    let axis = cx.axis(0, attrs.axis)?;
    fits_beside_axis(x, indices, axis)?;
    indices_lie_within(cx, axis..axis + 1)?;
    ensure!(
        updates.shape.rank() == indices.shape.rank()
            && updates.shape.iter().zip(indices.shape.iter()).all(|(a, b)| cx.same(a, b)),
        "inputs `indices` and `updates` must have one shape, but they are {indices} and {updates}"
    );
    cx.result(x.shape.to_vec(), x.dtype)
}

/// Puts updates, each with its place, into a copy of the elements.
fn scatter(
    elements: &Elements,
    updates: &Elements,
    places: &[usize],
    reduction: ScatterReduction,
    dtype: DType,
) -> Elements {
    match (elements, updates) {
        (Elements::Float(elements), Elements::Float(updates)) => {
            let mut elements = elements.clone();
            for (&place, &update) in places.iter().zip(updates) {
                let old = elements[place];
                elements[place] = match reduction {
                    ScatterReduction::Update => update,
                    ScatterReduction::Add => old + update,
                    ScatterReduction::Mul => old * update,
                    ScatterReduction::Min => minimum(old, update),
                    ScatterReduction::Max => maximum(old, update),
                };
            }
            Elements::Float(elements)
        }
        (Elements::Int(elements), Elements::Int(updates)) => {
            let mut elements = elements.clone();
            for (&place, &update) in places.iter().zip(updates) {
                let old = elements[place];
                elements[place] = wrap_int(
                    match reduction {
                        ScatterReduction::Update => update,
                        ScatterReduction::Add => old + update,
                        ScatterReduction::Mul => old.wrapping_mul(update),
                        ScatterReduction::Min => old.min(update),
                        ScatterReduction::Max => old.max(update),
                    },
                    dtype,
                );
            }
            Elements::Int(elements)
        }
        // The type relation has made sure that both are of one data type.
        (elements, _) => elements.clone(),
    }
}

fn eval_scatter_elements(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: ScatterElementsAttrs = cx.attrs()?;
    let (x, indices, updates) = (cx.arg(0)?, cx.arg(1)?, cx.arg(2)?);
    let axis = axis_of(x, attrs.axis)?;
    let strides = dense_strides(x.shape());
    let mut beside = strides.clone();
    beside[axis] = 0;
    let mut places = Vec::with_capacity(num_elements(indices.shape()));
    for (place, &index) in offsets(indices.shape(), &beside, 0).zip(cx.ints(1)?) {
        places.push(place + position(index, x.shape()[axis])? * strides[axis] as usize);
    }
    let dtype = x.ty().dtype;
    cx.result(scatter(x.elements(), updates.elements(), &places, attrs.reduction, dtype))
}

fn infer_scatter_nd(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: ScatterNdAttrs = cx.attrs()?;
    let (x, indices) = (cx.tensor(0)?, cx.tensor_of(1, DTypes::Int)?);
    let updates = cx.tensor(2)?;
    cx.same_dtype(0, 2)?;
    check_reduction(attrs.reduction, x.dtype)?;
    let length = tuple_length(x, indices, 0)?;
    indices_lie_within(cx, 0..length)?;
    let outer = &indices.shape[..indices.shape.rank() - 1];
    let expected: Vec<_> = outer.iter().chain(&x.shape[length..]).collect();
    ensure!(
        updates.shape.rank() == expected.len()
            && updates.shape.iter().zip(expected).all(|(a, b)| cx.same(a, b)),
        "input `updates` must have the dimensions of `indices` but the last, and those of `x` from \
         {length} on, but they are {updates}, {indices} and {x}"
    );
    cx.result(x.shape.to_vec(), x.dtype)
}

fn eval_scatter_nd(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: ScatterNdAttrs = cx.attrs()?;
    let (x, indices, updates) = (cx.arg(0)?, cx.arg(1)?, cx.arg(2)?);
    let length = indices.shape().last().copied().unwrap_or(1).max(1);
    let strides = dense_strides(x.shape());
    let slice = num_elements(&x.shape()[length..]);
    let mut places = Vec::with_capacity(num_elements(updates.shape()));
    for tuple in cx.ints(1)?.chunks_exact(length) {
        let mut start = 0;
        for (axis, &index) in tuple.iter().enumerate() {
            start += position(index, x.shape()[axis])? * strides[axis] as usize;
        }
        places.extend(start..start + slice);
    }
    let dtype = x.ty().dtype;
    cx.result(scatter(x.elements(), updates.elements(), &places, attrs.reduction, dtype))
}

fn combiner(reduction: ScatterReduction) -> Option<BinaryOp> {
    match reduction {
        ScatterReduction::Update => None,
        ScatterReduction::Add => Some(BinaryOp::Add),
        ScatterReduction::Mul => Some(BinaryOp::Mul),
        ScatterReduction::Min => Some(BinaryOp::Min),
        ScatterReduction::Max => Some(BinaryOp::Max),
    }
}

/// A place, from what was found and the index of an update.
type PlaceOf<'a> = dyn Fn(&[PrimExpr], &[PrimExpr]) -> Vec<PrimExpr> + 'a;

/// The places that a tensor of indices names.
struct Places<'a> {
    /// Leading axes of the updates along which each place is looked up; the rest are a slice.
    outer: usize,
    /// The axes of the tensor along which places are found.
    axes: &'a [usize],
    /// What is found along each of them.
    found: &'a dyn Fn(&ComputeDag, &[PrimExpr]) -> Vec<PrimExpr>,
    /// The place of an element of the updates, from what was found and the element's index.
    place: &'a PlaceOf<'a>,
}

/// A copy of a tensor, then one update after the other. Places outside are passed over.
fn compute_scatter(
    cx: &mut Compute<'_>,
    reduction: ScatterReduction,
    places: &Places<'_>,
) -> Stages {
    let (x, indices, updates) = (cx.arg(0)?, cx.arg(1)?, cx.arg(2)?);
    let (shape, dtype) = cx.result();
    let given = cx.dag.shape(updates).to_vec();
    if given.contains(&0) {
        return unchanged(cx);
    }
    let (op, in_place) = (cx.op.name, cx.in_place);
    let read = [x, indices, updates];
    let read = if in_place { &read[1..] } else { &read };
    let result = cx.dag.statement(op, &shape, dtype, read, |dag, result| {
        let copy = match in_place {
            true => Stmt::nop(),
            false => {
                let (vars, index) = loops(dag, &shape);
                let copy = dag.func.store(result, index.iter().cloned(), dag.at(x, &index));
                nest(vars, &shape, dtype, copy)
            }
        };

        let (vars, by) = loops(dag, &given);
        let (outer, slice) = vars.split_at(places.outer);
        let found = (places.found)(dag, &by[..places.outer]);
        let names: Vec<VarId> = found.iter().map(|_| dag.func.index_var("at")).collect();
        let at: Vec<PrimExpr> = names.iter().map(|&name| dag.func.var_expr(name)).collect();
        let place = (places.place)(&at, &by);
        let update = dag.at(updates, &by);
        let value = match combiner(reduction) {
            Some(combiner) => {
                combined(combiner, dag.func.load(result, place.iter().cloned()), update)
            }
            None => update,
        };
        let body = dag.func.store(result, place, value);
        let body = nest(slice.to_vec(), &given[places.outer..], dtype, body);
        let inside =
            at.iter().zip(places.axes).fold(PrimExpr::bool(true), |inside, (at, &axis)| {
                let from = PrimExpr::index(0).less_equal(at.clone());
                inside.and(from).and(at.clone().less(shape[axis]))
            });
        let body = names
            .into_iter()
            .zip(found)
            .rev()
            .fold(Stmt::if_then(inside, body), |body, (name, found)| Stmt::let_(name, found, body));
        let all = outer
            .iter()
            .zip(&given)
            .rev()
            .fold(body, |body, (&var, &extent)| in_loop(var, extent, ForKind::Serial, body));
        Stmt::seq([copy, all])
    });
    Ok(vec![result])
}

/// A loop variable for each extent, and its use.
pub(super) fn loops(dag: &mut ComputeDag, extents: &[i64]) -> (Vec<VarId>, Vec<PrimExpr>) {
    let vars: Vec<VarId> =
        (0..extents.len()).map(|axis| dag.func.index_var(format!("i{axis}"))).collect();
    let index = vars.iter().map(|&var| dag.func.var_expr(var)).collect();
    (vars, index)
}

/// Loops around a body that moves an element, outermost first: elements that are adjacent in a dense
/// tensor in vectors.
pub(super) fn nest(vars: Vec<VarId>, extents: &[i64], dtype: DType, body: Stmt) -> Stmt {
    let inner = extents.iter().rposition(|&extent| extent != 1);
    let inner = inner.filter(|_| dtype != DType::Bool);
    let loops = vars.into_iter().zip(extents).enumerate();
    loops.rev().fold(body, |body, (position, (var, &extent))| {
        let vectors = inner == Some(position) && extent > 0;
        in_loop(var, extent, if vectors { ForKind::Vectorized } else { ForKind::Serial }, body)
    })
}

pub(super) fn in_loop(var: VarId, extent: i64, kind: ForKind, body: Stmt) -> Stmt {
    Stmt::for_loop(var, PrimExpr::index(0), PrimExpr::index(extent), kind, body)
}

/// The tensor itself, which nothing is put into.
fn unchanged(cx: &mut Compute<'_>) -> Stages {
    let x = cx.arg(0)?;
    cx.element(|dag, index| dag.at(x, index))
}

fn compute_scatter_elements(cx: &mut Compute<'_>) -> Stages {
    let attrs: ScatterElementsAttrs = cx.attrs()?;
    let (x, indices) = (cx.arg(0)?, cx.arg(1)?);
    let shape = cx.dag.shape(x).to_vec();
    let axis = cx.axis(attrs.axis, shape.len())?;
    let places = Places {
        outer: shape.len(),
        axes: &[axis],
        found: &|dag, by| vec![from_either_end(dag.at(indices, by), shape[axis])],
        place: &|found, by| {
            let mut place = by.to_vec();
            place[axis] = found[0].clone();
            place
        },
    };
    compute_scatter(cx, attrs.reduction, &places)
}

fn compute_scatter_nd(cx: &mut Compute<'_>) -> Stages {
    let attrs: ScatterNdAttrs = cx.attrs()?;
    let (x, indices) = (cx.arg(0)?, cx.arg(1)?);
    let shape = cx.dag.shape(x).to_vec();
    let (length, outer) = match cx.dag.shape(indices) {
        [outer @ .., length] => (*length as usize, outer.len()),
        [] => return cx.unsupported("with a scalar of indices"),
    };
    let axes: Vec<usize> = (0..length).collect();
    let places = Places {
        outer,
        axes: &axes,
        found: &|dag, by| {
            let found = |position: usize| {
                from_either_end(dag.at(indices, &tuple_place(by, position)), shape[position])
            };
            (0..length).map(found).collect()
        },
        place: &|found, by| [found, &by[outer..]].concat(),
    };
    compute_scatter(cx, attrs.reduction, &places)
}
