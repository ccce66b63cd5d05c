//! `annotation.stop_fusion`: the argument, at the end of a kernel.

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::Type;
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::EvalCx;
use crate::ops::{EvalError, InferCx, OpDef};

/// The argument. `FuseOps` drops the call, and puts what computes the argument in another kernel than
/// what reads the result.
pub static STOP_FUSION: OpDef = OpDef::new(
    "annotation.stop_fusion",
    "the argument, at a kernel's end",
    X,
    infer,
    eval,
    compute,
);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    cx.attrs::<()>()?;
    Ok(cx.tensor(0)?.clone().into())
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    Ok(vec![cx.arg(0)?.clone()])
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let x = cx.arg(0)?;
    cx.element(|dag, index| dag.at(x, index))
}
