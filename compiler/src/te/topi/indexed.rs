//! Operators whose elements are found through a tensor of indices, by their rank, or by adding up
//! what is before them.
//!
//! But for scattering, which goes through the updates, all of them are written from the result's side:
//! each element looks for what belongs there. So ranking and cumulative sums take one step for each
//! pair of places along the axis.

use super::tensor::{from_either_end, within};
use super::{Compute, Stages};
use crate::ir::DType;
use crate::ops::tensor::{
    CumulativeAttrs, GatherAttrs, GatherNdAttrs, ScatterElementsAttrs, ScatterNdAttrs,
    ScatterReduction, TopkAttrs,
};
use crate::te::{ComputeDag, combined, identity};
use crate::tir::{BinaryOp, ForKind, PrimExpr, Stmt, VarId};

pub(super) fn compute(cx: &mut Compute<'_>) -> Option<Stages> {
    Some(match cx.op.name {
        "gather" => gather(cx),
        "gather_nd" => gather_nd(cx),
        "scatter_elements" => scatter_elements(cx),
        "scatter_nd" => scatter_nd(cx),
        "topk" => topk(cx),
        "cumsum" => cumulative(cx, BinaryOp::Add),
        "cumprod" => cumulative(cx, BinaryOp::Mul),
        _ => return None,
    })
}

fn gather(cx: &mut Compute<'_>) -> Stages {
    let attrs: GatherAttrs = cx.attrs()?;
    let (x, indices) = (cx.arg(0)?, cx.arg(1)?);
    let shape = cx.dag.shape(x).to_vec();
    let axis = cx.axis(attrs.axis, shape.len())?;
    cx.element(|dag, index| {
        let mut at = index.to_vec();
        at[axis] = within(from_either_end(dag.at(indices, index), shape[axis]), shape[axis]);
        dag.at(x, &at)
    })
}

fn gather_nd(cx: &mut Compute<'_>) -> Stages {
    let attrs: GatherNdAttrs = cx.attrs()?;
    let (x, indices) = (cx.arg(0)?, cx.arg(1)?);
    let (shape, outer) = (cx.dag.shape(x).to_vec(), cx.dag.shape(indices).len() - 1);
    let length = cx.dag.shape(indices)[outer] as usize;
    let batch = usize::try_from(attrs.batch_dims).unwrap_or(0);
    cx.element(|dag, index| {
        let mut at = index[..batch].to_vec();
        for position in 0..length {
            let extent = shape[batch + position];
            let which = dag.at(indices, &place(&index[..outer], position));
            at.push(within(from_either_end(which, extent), extent));
        }
        at.extend_from_slice(&index[outer..]);
        dag.at(x, &at)
    })
}

/// The place of one index of a tuple.
fn place(outer: &[PrimExpr], position: usize) -> Vec<PrimExpr> {
    let mut place = outer.to_vec();
    place.push(PrimExpr::index(position as i64));
    place
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
fn scatter(cx: &mut Compute<'_>, reduction: ScatterReduction, places: &Places<'_>) -> Stages {
    let (x, indices, updates) = (cx.arg(0)?, cx.arg(1)?, cx.arg(2)?);
    let (shape, dtype) = cx.result();
    let given = cx.dag.shape(updates).to_vec();
    if given.contains(&0) {
        return unchanged(cx);
    }
    let op = cx.op.name;
    let result = cx.dag.statement(op, &shape, dtype, &[x, indices, updates], |dag, result| {
        let (vars, index) = loops(dag, &shape);
        let copy = dag.func.store(result, index.iter().cloned(), dag.at(x, &index));
        let copy = nest(vars, &shape, dtype, copy);

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
fn loops(dag: &mut ComputeDag, extents: &[i64]) -> (Vec<VarId>, Vec<PrimExpr>) {
    let vars: Vec<VarId> =
        (0..extents.len()).map(|axis| dag.func.index_var(format!("i{axis}"))).collect();
    let index = vars.iter().map(|&var| dag.func.var_expr(var)).collect();
    (vars, index)
}

/// Loops around a body that moves an element, outermost first: elements that are adjacent in a dense
/// tensor in vectors.
fn nest(vars: Vec<VarId>, extents: &[i64], dtype: DType, body: Stmt) -> Stmt {
    let inner = extents.iter().rposition(|&extent| extent != 1);
    let inner = inner.filter(|_| dtype != DType::Bool);
    let loops = vars.into_iter().zip(extents).enumerate();
    loops.rev().fold(body, |body, (position, (var, &extent))| {
        let vectors = inner == Some(position) && extent > 0;
        in_loop(var, extent, if vectors { ForKind::Vectorized } else { ForKind::Serial }, body)
    })
}

fn in_loop(var: VarId, extent: i64, kind: ForKind, body: Stmt) -> Stmt {
    Stmt::for_loop(var, PrimExpr::index(0), PrimExpr::index(extent), kind, body)
}

/// The tensor itself, which nothing is put into.
fn unchanged(cx: &mut Compute<'_>) -> Stages {
    let x = cx.arg(0)?;
    cx.element(|dag, index| dag.at(x, index))
}

fn scatter_elements(cx: &mut Compute<'_>) -> Stages {
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
    scatter(cx, attrs.reduction, &places)
}

fn scatter_nd(cx: &mut Compute<'_>) -> Stages {
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
                from_either_end(dag.at(indices, &place(by, position)), shape[position])
            };
            (0..length).map(found).collect()
        },
        place: &|found, by| [found, &by[outer..]].concat(),
    };
    scatter(cx, attrs.reduction, &places)
}

/// How many elements are better than each one; then, for each rank, the element that has it.
fn topk(cx: &mut Compute<'_>) -> Stages {
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
        let which = within(dag.at(place, index), shape[axis]);
        dag.at(x, &along(index, &which))
    });
    Ok(vec![value, place])
}

fn cumulative(cx: &mut Compute<'_>, combiner: BinaryOp) -> Stages {
    let attrs: CumulativeAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    let axis = cx.axis(attrs.axis, shape.len())?;
    let wide = dtype.accumulator();
    let neutral = identity(combiner, wide);
    let (op, over) = (cx.op.name, [shape[axis]]);
    let all = cx.dag.reduce(op, &shape, wide, combiner, &over, |dag, index, by| {
        let mut at = index.to_vec();
        at[axis] = by[0].clone();
        let (here, there) = (index[axis].clone(), by[0].clone());
        let counts = match (attrs.reverse, attrs.exclusive) {
            (false, false) => there.less_equal(here),
            (false, true) => there.less(here),
            (true, false) => there.greater_equal(here),
            (true, true) => there.greater(here),
        };
        PrimExpr::select(counts, dag.at(x, &at).cast(wide), neutral)
    });
    if wide == dtype {
        return Ok(vec![all]);
    }
    cx.element(|dag, index| dag.at(all, index).cast(dtype))
}
