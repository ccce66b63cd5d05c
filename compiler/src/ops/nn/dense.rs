//! `nn.dense`: a fully connected layer (the core of ONNX `Gemm` with `transB`).

use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::Type;
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::EvalCx;
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern};
use crate::te::Anchor;
use crate::tir::BinaryOp;

/// `x (…, K)` times the transpose of `weight (N, K)`, which is `(…, N)`.
pub static DENSE: OpDef = OpDef::new(
    "nn.dense",
    "product with a transposed matrix of weights",
    &[Input::required("x"), Input::required("weight")],
    infer,
    eval,
    compute,
)
.pattern(OpPattern::OutElemWiseFusable);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    cx.attrs::<()>()?;
    let x = cx.tensor_of(0, DTypes::Numeric)?;
    let weight = cx.tensor_of_rank(1, DTypes::Numeric, 2, "(N, K)")?;
    cx.same_dtype(0, 1)?;
    let Some((inner, outer)) = x.shape.split_last() else {
        bail!("input `x` must have dimensions (…, K), but it is {x}");
    };
    ensure!(
        cx.same(inner, &weight.shape[1]),
        "input `weight`, which is {weight}, takes vectors of {}, \
         but the innermost extent of input `x`, which is {x}, is {inner}",
        weight.shape[1]
    );
    cx.result(outer.iter().chain([&weight.shape[0]]).cloned(), x.dtype)
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let k = cx.arg(1)?.shape()[1];
    if cx.len() == 0 || k == 0 {
        return cx.result(match cx.arg(0)?.elements() {
            Elements::Float(_) => Elements::Float(vec![0.0; cx.len()]),
            Elements::Int(_) => Elements::Int(vec![0; cx.len()]),
        });
    }

    /// The product of each row of `x` with each row of `weight`.
    fn products<T>(x: &[T], weight: &[T], k: usize, dot: impl Fn(&[T], &[T]) -> T) -> Vec<T> {
        let row = |x| weight.chunks_exact(k).map(|weight| dot(x, weight)).collect::<Vec<_>>();
        x.chunks_exact(k).flat_map(row).collect()
    }
    cx.result(match cx.arg(0)?.elements() {
        Elements::Float(x) => Elements::Float(products(x, cx.floats(1)?, k, |x, weight| {
            x.iter().zip(weight).map(|(&x, &weight)| x * weight).sum()
        })),
        Elements::Int(x) => Elements::Int(products(x, cx.ints(1)?, k, |x, weight| {
            let step =
                |sum: i128, (&x, &weight): (&i128, &i128)| sum.wrapping_add(x.wrapping_mul(weight));
            x.iter().zip(weight).fold(0, step)
        })),
    })
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let (x, weight) = (cx.arg(0)?, cx.arg(1)?);
    let (shape, dtype) = cx.result();
    let k = cx.dag.shape(weight)[1];
    let stage = cx.dag.reduce(cx.op.name, &shape, dtype, BinaryOp::Add, &[k], |dag, index, by| {
        let (column, rows) = index.split_last().expect("a matrix has two axes");
        let mut at = rows.to_vec();
        at.push(by[0].clone());
        dag.at(x, &at) * dag.at(weight, &[column.clone(), by[0].clone()])
    });
    cx.dag.set_anchor(
        stage,
        Anchor::MatMul { lhs: x, rhs: weight, transpose_a: false, transpose_b: true },
    );
    Ok(vec![stage])
}
