//! `nn.softmax` and `nn.log_softmax` along one axis (ONNX `Softmax` and `LogSoftmax` since
//! opset 13).

use serde::{Deserialize, Serialize};

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::{AxisSplit, EvalCx, axis_of};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, OpDef, OpPattern};
use crate::te::ComputeDag;
use crate::tir::{BinaryOp, Intrinsic, PrimExpr};

/// Attributes of `nn.softmax` and `nn.log_softmax`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SoftmaxAttrs {
    /// The axis along which the results add up to one, counted from either end.
    pub axis: i64,
}

/// `exp(x) / Σ exp(x)` along an axis.
pub static SOFTMAX: OpDef = OpDef::new(
    "nn.softmax",
    "exponentials that add up to one along an axis",
    X,
    infer,
    |cx| eval(cx, |shifted, sum| shifted.exp() / sum),
    |cx| compute(cx, false),
)
.attributes::<SoftmaxAttrs>()
.defaults(|| Attrs::new().with("axis", -1))
.pattern(OpPattern::OutElemWiseFusable);

/// `x - log(Σ exp(x))` along an axis: the logarithm of the softmax.
pub static LOG_SOFTMAX: OpDef = OpDef::new(
    "nn.log_softmax",
    "the logarithm of the softmax along an axis",
    X,
    infer,
    |cx| eval(cx, |shifted, sum| shifted - sum.ln()),
    |cx| compute(cx, true),
)
.attributes::<SoftmaxAttrs>()
.defaults(|| Attrs::new().with("axis", -1))
.pattern(OpPattern::OutElemWiseFusable);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: SoftmaxAttrs = cx.attrs()?;
    let x = cx.tensor_of(0, DTypes::Float)?;
    cx.axis(0, attrs.axis)?;
    Ok(x.clone().into())
}

/// `finish` is given each element less the greatest of its line, and the line's sum of exponentials.
fn eval(cx: &EvalCx<'_>, finish: fn(f64, f64) -> f64) -> Result<Vec<Tensor>, EvalError> {
    let attrs: SoftmaxAttrs = cx.attrs()?;
    let split = AxisSplit::new(cx.shape(), axis_of(cx.arg(0)?, attrs.axis)?);
    let mut values = cx.floats(0)?.to_vec();
    for start in split.starts() {
        let greatest = split.line(start).map(|at| values[at]).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = split.line(start).map(|at| (values[at] - greatest).exp()).sum();
        for at in split.line(start) {
            values[at] = finish(values[at] - greatest, sum);
        }
    }
    cx.result(Elements::Float(values))
}

fn compute(cx: &mut Compute<'_>, log: bool) -> Stages {
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
        // A bound that is seen: see `LowerIntrin`.
        PrimExpr::call(Intrinsic::Exp, PrimExpr::zero(wide).min(dag.at(shifted, index)))
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
