//! Pools over whole images: `nn.global_avg_pool2d` and `nn.global_max_pool2d` (ONNX
//! `GlobalAveragePool` and `GlobalMaxPool`).

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::Elements;
use crate::ir::{Dim, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::{EvalCx, num_elements};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, OpDef, OpPattern};
use crate::tir::{BinaryOp, PrimExpr};

/// The mean of each channel of `(N, C, H, W)`, as `(N, C, 1, 1)`.
pub static GLOBAL_AVG_POOL2D: OpDef = OpDef::new(
    "nn.global_avg_pool2d",
    "the mean of each channel",
    X,
    |cx| infer(cx, DTypes::Float),
    |cx| {
        let mean = |plane: &[f64]| plane.iter().sum::<f64>() / plane.len() as f64;
        cx.result(Elements::Float(of_planes(cx, cx.floats(0)?, mean)?))
    },
    |cx| compute(cx, BinaryOp::Add),
)
.layouts(&["layout"])
.pattern(OpPattern::OutElemWiseFusable);

/// The greatest element of each channel of `(N, C, H, W)`, as `(N, C, 1, 1)`.
pub static GLOBAL_MAX_POOL2D: OpDef = OpDef::new(
    "nn.global_max_pool2d",
    "the greatest element of each channel",
    X,
    |cx| infer(cx, DTypes::Numeric),
    |cx| {
        if !cx.arg(0)?.dtype().is_float() {
            let greatest = |plane: &[i128]| plane.iter().copied().fold(i128::MIN, i128::max);
            return cx.result(Elements::Int(of_planes(cx, cx.ints(0)?, greatest)?));
        }
        let greater = |a: f64, &b: &f64| if a.is_nan() || a > b { a } else { b };
        let greatest = |plane: &[f64]| plane.iter().fold(f64::NEG_INFINITY, greater);
        cx.result(Elements::Float(of_planes(cx, cx.floats(0)?, greatest)?))
    },
    |cx| compute(cx, BinaryOp::Max),
)
.layouts(&["layout"])
.pattern(OpPattern::OutElemWiseFusable);

fn infer(cx: &InferCx<'_>, dtypes: DTypes) -> Result<Type, TypeError> {
    cx.attrs::<()>()?;
    let x = cx.tensor_of_rank(0, dtypes, 4, "(N, C, H, W)")?;
    ensure!(
        x.shape[2..].iter().all(|dim| dim.as_const() != Some(0)),
        "input `x`, which is {x}, has no elements to pool"
    );
    let one = Dim::from(1i64);
    cx.result([x.shape[0].clone(), x.shape[1].clone(), one.clone(), one], x.dtype)
}

/// One element of each channel.
fn of_planes<T>(
    cx: &EvalCx<'_>,
    elements: &[T],
    pool: impl Fn(&[T]) -> T,
) -> Result<Vec<T>, EvalError> {
    let plane = num_elements(&cx.arg(0)?.shape()[2..]);
    Ok(elements.chunks_exact(plane).map(pool).collect())
}

fn compute(cx: &mut Compute<'_>, combiner: BinaryOp) -> Stages {
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    let over = cx.dag.shape(x)[2..].to_vec();
    let wide = if combiner == BinaryOp::Max { dtype } else { dtype.accumulator() };
    let stage = cx.dag.reduce(cx.op.name, &shape, wide, combiner, &over, |dag, index, by| {
        let at: Vec<PrimExpr> = index[..2].iter().chain(by).cloned().collect();
        dag.at(x, &at).cast(wide)
    });
    if combiner == BinaryOp::Max {
        return Ok(vec![stage]);
    }
    let count = over.iter().map(|&extent| extent as f64).product();
    cx.element(|dag, index| (dag.at(stage, index) / PrimExpr::float(count, wide)).cast(dtype))
}
