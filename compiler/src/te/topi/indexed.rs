//! Operators whose elements are found through a tensor of indices, by their rank, or by adding up
//! what is before them.
//!
//! All of them are written from the result's side: each element looks for what belongs there. So
//! scattering, ranking and cumulative sums take one step for each pair of places along the axis.

use super::tensor::{from_either_end, within};
use super::{Compute, Stages};
use crate::ir::DType;
use crate::ops::tensor::{
    CumulativeAttrs, GatherAttrs, GatherNdAttrs, ScatterElementsAttrs, ScatterNdAttrs,
    ScatterReduction, TopkAttrs,
};
use crate::te::{ComputeDag, identity};
use crate::tir::{BinaryOp, PrimExpr};

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

/// Something about an element, from its index and the axes over which updates are numbered.
type OfElement<'a> = dyn Fn(&ComputeDag, &[PrimExpr], &[PrimExpr]) -> PrimExpr + 'a;

/// A tensor with updates put into it, which are numbered along axes of the extents `over`: whether
/// an update `belongs` to an element, and what it is.
fn scatter(
    cx: &mut Compute<'_>,
    reduction: ScatterReduction,
    over: &[i64],
    belongs: &OfElement<'_>,
    update: &OfElement<'_>,
) -> Stages {
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    let op = cx.op.name;
    if let Some(combiner) = combiner(reduction) {
        let neutral = identity(combiner, dtype);
        let updates = cx.dag.reduce(op, &shape, dtype, combiner, over, |dag, index, by| {
            PrimExpr::select(belongs(dag, index, by), update(dag, index, by), neutral)
        });
        return cx.element(|dag, index| {
            PrimExpr::binary(combiner, dag.at(x, index), dag.at(updates, index))
        });
    }
    // The number of the last update for each element.
    let last = cx.dag.reduce(op, &shape, DType::I64, BinaryOp::Max, over, |dag, index, by| {
        let number = by
            .iter()
            .zip(over)
            .fold(PrimExpr::index(0), |number, (by, &extent)| number * extent + by.clone());
        PrimExpr::select(belongs(dag, index, by), number, PrimExpr::index(-1))
    });
    cx.element(|dag, index| {
        let number = dag.at(last, index);
        let mut rest = PrimExpr::index(0).max(number.clone());
        let mut by = Vec::with_capacity(over.len());
        for &extent in over.iter().rev() {
            by.push(rest.clone().floormod(extent));
            rest = rest.floordiv(extent);
        }
        by.reverse();
        PrimExpr::select(number.less(0), dag.at(x, index), update(dag, index, &by))
    })
}

/// The tensor itself, which nothing is put into.
fn unchanged(cx: &mut Compute<'_>) -> Stages {
    let x = cx.arg(0)?;
    cx.element(|dag, index| dag.at(x, index))
}

fn scatter_elements(cx: &mut Compute<'_>) -> Stages {
    let attrs: ScatterElementsAttrs = cx.attrs()?;
    let (x, indices, updates) = (cx.arg(0)?, cx.arg(1)?, cx.arg(2)?);
    let (shape, given) = (cx.dag.shape(x).to_vec(), cx.dag.shape(updates).to_vec());
    if given.contains(&0) {
        return unchanged(cx);
    }
    let axis = cx.axis(attrs.axis, shape.len())?;
    let at = |index: &[PrimExpr], by: &PrimExpr| -> Vec<PrimExpr> {
        let place = |(other, i): (usize, &PrimExpr)| match () {
            _ if other == axis => by.clone(),
            _ if given[other] < shape[other] => i.clone().min(given[other] - 1),
            _ => i.clone(),
        };
        index.iter().enumerate().map(place).collect()
    };
    let belongs = |dag: &ComputeDag, index: &[PrimExpr], by: &[PrimExpr]| {
        let which = from_either_end(dag.at(indices, &at(index, &by[0])), shape[axis]);
        let mut belongs = index[axis].clone().equal(which);
        for (other, i) in index.iter().enumerate() {
            if other != axis && given[other] < shape[other] {
                belongs = belongs.and(i.clone().less(given[other]));
            }
        }
        belongs
    };
    let update =
        |dag: &ComputeDag, index: &[PrimExpr], by: &[PrimExpr]| dag.at(updates, &at(index, &by[0]));
    scatter(cx, attrs.reduction, &[given[axis]], &belongs, &update)
}

fn scatter_nd(cx: &mut Compute<'_>) -> Stages {
    let attrs: ScatterNdAttrs = cx.attrs()?;
    let (x, indices, updates) = (cx.arg(0)?, cx.arg(1)?, cx.arg(2)?);
    let shape = cx.dag.shape(x).to_vec();
    let (length, outer) = match cx.dag.shape(indices) {
        [outer @ .., length] => (*length as usize, outer.to_vec()),
        [] => return cx.unsupported("with a scalar of indices"),
    };
    if outer.contains(&0) || cx.dag.shape(updates).contains(&0) {
        return unchanged(cx);
    }
    let belongs = |dag: &ComputeDag, index: &[PrimExpr], by: &[PrimExpr]| {
        let matches = |position: usize| {
            let which = dag.at(indices, &place(&by[..outer.len()], position));
            index[position].clone().equal(from_either_end(which, shape[position]))
        };
        (1..length).fold(matches(0), |all, position| all.and(matches(position)))
    };
    let update = |dag: &ComputeDag, index: &[PrimExpr], by: &[PrimExpr]| {
        dag.at(updates, &[&by[..outer.len()], &index[length..]].concat())
    };
    // One update is a reduction over one.
    let over = if outer.is_empty() { vec![1] } else { outer.clone() };
    scatter(cx, attrs.reduction, &over, &belongs, &update)
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
    let neutral = identity(combiner, dtype);
    let (op, over) = (cx.op.name, [shape[axis]]);
    let all = cx.dag.reduce(op, &shape, dtype, combiner, &over, |dag, index, by| {
        let mut at = index.to_vec();
        at[axis] = by[0].clone();
        let (here, there) = (index[axis].clone(), by[0].clone());
        let counts = match (attrs.reverse, attrs.exclusive) {
            (false, false) => there.less_equal(here),
            (false, true) => there.less(here),
            (true, false) => there.greater_equal(here),
            (true, true) => there.greater(here),
        };
        PrimExpr::select(counts, dag.at(x, &at), neutral)
    });
    Ok(vec![all])
}
