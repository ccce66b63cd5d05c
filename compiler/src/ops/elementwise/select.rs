//! `where`: a choice element by element (ONNX `Where`).

use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Dim, Type};
use crate::ops::compute::{Compute, Stages, broadcast};
use crate::ops::eval::{EvalCx, broadcast_strides, offsets};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern, values};
use crate::tir::PrimExpr;

/// `x` where the condition is true, else `y`; all three broadcast.
pub static WHERE: OpDef = OpDef::new(
    "where",
    "the second input where the first is true, else the third",
    &[Input::required("condition"), Input::required("x"), Input::required("y")],
    infer,
    eval,
    compute,
)
.pattern(OpPattern::Broadcast)
.shape_value(shape_value);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    cx.attrs::<()>()?;
    let condition = cx.tensor_of(0, DTypes::Bool)?;
    let (x, y) = (cx.tensor(1)?, cx.tensor(2)?);
    cx.same_dtype(1, 2)?;
    let chosen = cx.broadcast(&x.shape, &y.shape)?;
    cx.result(cx.broadcast(&condition.shape, &chosen)?, x.dtype)
}

/// Where it is known which is chosen, and what that is.
fn shape_value(cx: &InferCx<'_>) -> Option<Vec<Dim>> {
    let (_, ty) = values::value(cx, 1)?;
    let choose = |[condition, x, y]: [&Dim; 3]| match condition.as_const() {
        Some(0) => Some(y.clone()),
        Some(_) => Some(x.clone()),
        None => None,
    };
    values::checked(values::broadcast(cx, [0, 1, 2], choose)?, ty.dtype)
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let condition = cx.ints(0)?;
    let (x, y) = (cx.arg(1)?, cx.arg(2)?);
    let strides = |tensor: &Tensor| broadcast_strides(tensor.shape(), cx.shape());
    let (c_strides, x_strides, y_strides) = (strides(cx.arg(0)?), strides(x), strides(y));
    let places = offsets(cx.shape(), &c_strides, 0)
        .zip(offsets(cx.shape(), &x_strides, 0))
        .zip(offsets(cx.shape(), &y_strides, 0));
    cx.result(match (x.elements(), y.elements()) {
        (Elements::Float(x), Elements::Float(y)) => Elements::Float(
            places.map(|((c, xt), yt)| if condition[c] != 0 { x[xt] } else { y[yt] }).collect(),
        ),
        _ => {
            let (x, y) = (cx.ints(1)?, cx.ints(2)?);
            Elements::Int(
                places.map(|((c, xt), yt)| if condition[c] != 0 { x[xt] } else { y[yt] }).collect(),
            )
        }
    })
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let (cond, yes, no) = (cx.arg(0)?, cx.arg(1)?, cx.arg(2)?);
    let (shape, _) = cx.result();
    cx.element(|dag, index| {
        let at = |stage| dag.at(stage, &broadcast(dag.shape(stage), &shape, index));
        let (cond, yes, no) = (at(cond), at(yes), at(no));
        PrimExpr::select(cond, yes, no)
    })
}
