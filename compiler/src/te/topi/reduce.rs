//! Sums, products and extremes over axes, and where extremes are.

use super::{Compute, ComputeError, Stages};
use crate::ir::DType;
use crate::ops::reduce::{ArgReduceAttrs, ReduceAttrs};
use crate::te::{StageId, identity};
use crate::tir::{BinaryOp, PrimExpr};

pub(super) fn compute(cx: &mut Compute<'_>) -> Option<Stages> {
    Some(match cx.op.name {
        "sum" => reduce(cx, BinaryOp::Add),
        "prod" => reduce(cx, BinaryOp::Mul),
        "max" => reduce(cx, BinaryOp::Max),
        "min" => reduce(cx, BinaryOp::Min),
        "mean" => mean(cx),
        "argmax" => arg_reduce(cx, BinaryOp::Max),
        "argmin" => arg_reduce(cx, BinaryOp::Min),
        _ => return None,
    })
}

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

fn reduce(cx: &mut Compute<'_>, combiner: BinaryOp) -> Stages {
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
fn mean(cx: &mut Compute<'_>) -> Stages {
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
fn arg_reduce(cx: &mut Compute<'_>, combiner: BinaryOp) -> Stages {
    let attrs: ArgReduceAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let (shape, index_dtype) = cx.result();
    let input = cx.dag.shape(x).to_vec();
    let mut reduced = vec![false; input.len()];
    reduced[cx.axis(attrs.axis, input.len())?] = true;
    let axes = Axes::new(&input, reduced, attrs.keepdims);
    let dtype = cx.dag.dtype(x);
    let extreme = axes.reduce(cx, x, combiner, dtype);
    let choice = if attrs.select_last_index { BinaryOp::Max } else { BinaryOp::Min };
    let none = identity(choice, index_dtype);
    let (op, over) = (cx.op.name, &axes.over);
    let found = cx.dag.reduce(op, &shape, index_dtype, choice, over, |dag, index, by| {
        let (value, extreme) = (dag.at(x, &axes.place(index, by)), dag.at(extreme, index));
        let mut found = value.clone().equal(extreme);
        if dtype.is_float() {
            // The extreme of a line with a NaN is a NaN, which equals nothing.
            found = found.or(value.clone().not_equal(value));
        }
        PrimExpr::select(found, by[0].clone().cast(index_dtype), none)
    });
    Ok(vec![found])
}
