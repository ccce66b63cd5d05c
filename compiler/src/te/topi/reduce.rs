//! Sums, extremes and products over axes.

use super::{Compute, Stages};
use crate::ir::DType;
use crate::ops::reduce::ReduceAttrs;
use crate::te::identity;
use crate::tir::{BinaryOp, PrimExpr};

pub(super) fn compute(cx: &mut Compute<'_>) -> Option<Stages> {
    Some(match cx.op.name {
        "sum" => reduce(cx, BinaryOp::Add, false),
        "mean" => reduce(cx, BinaryOp::Add, true),
        "max" => reduce(cx, BinaryOp::Max, false),
        "min" => reduce(cx, BinaryOp::Min, false),
        "prod" => reduce(cx, BinaryOp::Mul, false),
        _ => return None,
    })
}

fn reduce(cx: &mut Compute<'_>, combiner: BinaryOp, mean: bool) -> Stages {
    let attrs: ReduceAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let input = cx.dag.shape(x).to_vec();
    let mut reduced = vec![attrs.axis.is_empty(); input.len()];
    for axis in &attrs.axis {
        let axis = cx.axis(*axis, input.len())?;
        reduced[axis] = true;
    }
    let over: Vec<i64> =
        input.iter().zip(&reduced).filter(|(_, r)| **r).map(|(&extent, _)| extent).collect();
    let (shape, dtype) = cx.result();
    if dtype == DType::Bool {
        return cx.unsupported("of bool");
    }
    let init = identity(combiner, dtype);
    let keepdims = attrs.keepdims;
    let stage =
        cx.dag.reduce(cx.op.name, &shape, dtype, combiner, init, &over, |dag, index, by| {
            let (mut kept, mut by) = (index.iter(), by.iter());
            let at: Vec<PrimExpr> = reduced
                .iter()
                .map(|&reduced| {
                    let place = if reduced { by.next() } else { kept.next() };
                    if reduced && keepdims {
                        kept.next();
                    }
                    place.cloned().unwrap_or_else(|| PrimExpr::index(0))
                })
                .collect();
            dag.at(x, &at)
        });
    if !mean {
        return Ok(vec![stage]);
    }
    let count = over.iter().product::<i64>();
    let count = if dtype.is_float() {
        PrimExpr::float(count as f64, dtype)
    } else {
        PrimExpr::int(count, dtype)
    };
    Ok(vec![cx.dag.compute(cx.op.name, &shape, dtype, |dag, index| dag.at(stage, index) / count)])
}
