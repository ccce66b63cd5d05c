//! Normalisation and softmax.

use super::within;
use crate::ops::nn::{BatchNormAttrs, LayerNormAttrs, LrnAttrs, SoftmaxAttrs};
use crate::te::ComputeDag;
use crate::te::topi::{Compute, Stages, broadcast, multiply_add};
use crate::tir::{BinaryOp, Intrinsic, PrimExpr};

/// Inference only: the statistics are handed on.
pub(super) fn batch_norm(cx: &mut Compute<'_>) -> Stages {
    let attrs: BatchNormAttrs = cx.attrs()?;
    let (x, gamma, beta) = (cx.arg(0)?, cx.arg(1)?, cx.arg(2)?);
    let (mean, variance) = (cx.arg(3)?, cx.arg(4)?);
    let axis = cx.axis(attrs.axis, cx.dag.shape(x).len())?;
    let (_, dtype) = cx.result();
    let wide = dtype.accumulator();
    let mut stages = cx.element(|dag, index| {
        let channel = &index[axis..=axis];
        let of_channel = |stage| dag.at(stage, channel).cast(wide);
        let spread = of_channel(variance) + PrimExpr::float(attrs.epsilon, wide);
        let scale = of_channel(gamma) / PrimExpr::call(Intrinsic::Sqrt, spread);
        let deviation = dag.at(x, index).cast(wide) - of_channel(mean);
        multiply_add(deviation, scale, of_channel(beta)).cast(dtype)
    })?;
    for (stage, (shape, dtype)) in [mean, variance].into_iter().zip(cx.results.iter().skip(1)) {
        stages.push(cx.dag.compute(cx.op.name, shape, *dtype, |dag, index| dag.at(stage, index)));
    }
    Ok(stages)
}

pub(super) fn softmax(cx: &mut Compute<'_>, log: bool) -> Stages {
    let attrs: SoftmaxAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    let axis = cx.axis(attrs.axis, shape.len())?;
    let mut rows = shape.clone();
    rows[axis] = 1;
    let over = [shape[axis]];
    let along = |index: &[PrimExpr], by: &PrimExpr| {
        let mut at = index.to_vec();
        at[axis] = by.clone();
        at
    };
    let row = |index: &[PrimExpr]| {
        let mut at = index.to_vec();
        at[axis] = PrimExpr::index(0);
        at
    };
    let op = cx.op.name;
    let wide = dtype.accumulator();
    let dag: &mut ComputeDag = cx.dag;
    let greatest = dag.reduce(op, &rows, dtype, BinaryOp::Max, &over, |dag, index, by| {
        dag.at(x, &along(index, &by[0]))
    });
    // A NaN comes back with its own difference, and makes the sum one.
    dag.set_ignores_nan(greatest);
    let shifted = dag.compute(op, &shape, wide, |dag, index| {
        dag.at(x, index).cast(wide) - dag.at(greatest, &row(index)).cast(wide)
    });
    let exp = dag.compute(op, &shape, wide, |dag, index| {
        PrimExpr::call(Intrinsic::Exp, dag.at(shifted, index))
    });
    let sum = dag.reduce(op, &rows, wide, BinaryOp::Add, &over, |dag, index, by| {
        dag.at(exp, &along(index, &by[0]))
    });
    if log {
        let log = dag.compute(op, &rows, wide, |dag, index| {
            PrimExpr::call(Intrinsic::Log, dag.at(sum, index))
        });
        return cx
            .element(|dag, index| (dag.at(shifted, index) - dag.at(log, &row(index))).cast(dtype));
    }
    // Each takes longer to compute than to store.
    dag.set_stored(exp);
    let scale =
        dag.compute(op, &rows, wide, |dag, index| PrimExpr::float(1.0, wide) / dag.at(sum, index));
    cx.element(|dag, index| (dag.at(exp, index) * dag.at(scale, &row(index))).cast(dtype))
}

/// Mean and variance are found in two passes, so that a mean far from zero takes no digits from the
/// variance.
pub(super) fn layer_norm(cx: &mut Compute<'_>) -> Stages {
    let attrs: LayerNormAttrs = cx.attrs()?;
    let (x, gamma, beta) = (cx.arg(0)?, cx.optional(1), cx.optional(2));
    let (shape, dtype) = cx.result();
    let axis = cx.axis(attrs.axis, shape.len())?;
    let (outer, over) = shape.split_at(axis);
    let wide = dtype.accumulator();
    let count = PrimExpr::float(over.iter().map(|&extent| extent as f64).product(), wide);
    let at = |index: &[PrimExpr], by: &[PrimExpr]| [&index[..axis], by].concat();
    let op = cx.op.name;
    let dag: &mut ComputeDag = cx.dag;
    let sum = dag.reduce(op, outer, wide, BinaryOp::Add, over, |dag, index, by| {
        dag.at(x, &at(index, by)).cast(wide)
    });
    let mean = dag.compute(op, outer, wide, |dag, index| dag.at(sum, index) / count.clone());
    let deviation = dag.compute(op, &shape, wide, |dag, index| {
        dag.at(x, index).cast(wide) - dag.at(mean, &index[..axis])
    });
    let squares = dag.reduce(op, outer, wide, BinaryOp::Add, over, |dag, index, by| {
        let deviation = dag.at(deviation, &at(index, by));
        deviation.clone() * deviation
    });
    let scale = dag.compute(op, outer, wide, |dag, index| {
        let variance = dag.at(squares, index) / count + PrimExpr::float(attrs.epsilon, wide);
        PrimExpr::float(1.0, wide) / PrimExpr::call(Intrinsic::Sqrt, variance)
    });
    cx.element(|dag, index| {
        let at = |stage| dag.at(stage, &broadcast(dag.shape(stage), &shape, index)).cast(wide);
        let (deviation, scale) = (dag.at(deviation, index), dag.at(scale, &index[..axis]));
        let (value, factor) = match gamma {
            Some(gamma) => (deviation * scale, at(gamma)),
            None => (deviation, scale),
        };
        let value = match beta {
            Some(beta) => multiply_add(value, factor, at(beta)),
            None => value * factor,
        };
        value.cast(dtype)
    })
}

/// The sum of squares goes over the channels around each; there are none before the first and after
/// the last.
pub(super) fn lrn(cx: &mut Compute<'_>) -> Stages {
    let attrs: LrnAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    let channels = shape[1];
    let (before, after) = (((attrs.size - 1) / 2).min(channels), (attrs.size / 2).min(channels));
    let over = [before + after + 1];
    let wide = dtype.accumulator();
    let (op, zero) = (cx.op.name, PrimExpr::zero(wide));
    let sum = cx.dag.reduce(op, &shape, wide, BinaryOp::Add, &over, |dag, index, by| {
        let channel = index[1].clone() + by[0].clone() - before;
        let mut at = index.to_vec();
        at[1] = channel.clone();
        let element = dag.at(x, &at).cast(wide);
        let value = PrimExpr::select(within(&channel, 0, channels), element, zero);
        value.clone() * value
    });
    cx.element(|dag, index| {
        let share = PrimExpr::float(attrs.alpha / attrs.size as f64, wide);
        let base = multiply_add(dag.at(sum, index), share, PrimExpr::float(attrs.bias, wide));
        (dag.at(x, index).cast(wide) / base.pow(PrimExpr::float(attrs.beta, wide))).cast(dtype)
    })
}
