//! Operators of neural networks: convolution, matrix products, pools, normalisation, padding.

mod conv;
mod matmul;
mod norm;
mod pad;
mod pool;
mod winograd;

use super::{Compute, Stages};
use crate::tir::{BinaryOp, PrimExpr};

pub(super) fn compute(cx: &mut Compute<'_>) -> Option<Stages> {
    Some(match cx.op.name {
        "nn.conv1d" => conv::conv1d(cx),
        "nn.conv2d" => conv::conv2d(cx),
        "nn.conv3d" => conv::conv3d(cx),
        "nn.contrib_conv2d_winograd_without_weight_transform" => winograd::conv2d_winograd(cx),
        "nn.dense" => matmul::dense(cx),
        "nn.matmul" => matmul::matmul(cx),
        "nn.max_pool1d" => pool::max_pool1d(cx),
        "nn.max_pool2d" => pool::max_pool2d(cx),
        "nn.max_pool3d" => pool::max_pool3d(cx),
        "nn.avg_pool1d" => pool::avg_pool1d(cx),
        "nn.avg_pool2d" => pool::avg_pool2d(cx),
        "nn.avg_pool3d" => pool::avg_pool3d(cx),
        "nn.global_avg_pool2d" => pool::global_pool(cx, BinaryOp::Add),
        "nn.global_max_pool2d" => pool::global_pool(cx, BinaryOp::Max),
        "nn.batch_norm" => norm::batch_norm(cx),
        "nn.layer_norm" => norm::layer_norm(cx),
        "nn.lrn" => norm::lrn(cx),
        "nn.softmax" => norm::softmax(cx, false),
        "nn.log_softmax" => norm::softmax(cx, true),
        "nn.pad" => pad::pad(cx),
        "nn.dropout" => dropout(cx),
        _ => return None,
    })
}

/// Whether `low <= index < high`.
fn within(index: &PrimExpr, low: i64, high: i64) -> PrimExpr {
    index.clone().greater_equal(low).and(index.clone().less(high))
}

/// At inference nothing is dropped, and the mask says so.
fn dropout(cx: &mut Compute<'_>) -> Stages {
    let x = cx.arg(0)?;
    let mut stages = cx.element(|dag, index| dag.at(x, index))?;
    for (shape, dtype) in cx.results.iter().skip(1) {
        let kept = PrimExpr::int(1, *dtype);
        stages.push(cx.dag.compute(cx.op.name, shape, *dtype, |_, _| kept));
    }
    Ok(stages)
}
