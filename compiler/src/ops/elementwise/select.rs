//! `where`: a choice element by element (ONNX `Where`).

use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, Type};
use crate::ops::eval::{EvalCx, broadcast_strides, offsets};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern};

/// `x` where the condition is true, else `y`; all three broadcast.
pub static WHERE: OpDef = OpDef::new(
    "where",
    "the second input where the first is true, else the third",
    &[Input::required("condition"), Input::required("x"), Input::required("y")],
    infer,
    eval,
)
.pattern(OpPattern::Broadcast);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    cx.attrs::<()>()?;
    let condition = cx.tensor_of(0, DTypes::Bool)?;
    let (x, y) = (cx.tensor(1)?, cx.tensor(2)?);
    cx.same_dtype(1, 2)?;
    let chosen = cx.broadcast(&x.shape, &y.shape)?;
    cx.result(cx.broadcast(&condition.shape, &chosen)?, x.dtype)
}

fn eval(attrs: &Attrs, args: &[Option<&Tensor>]) -> Result<Vec<Tensor>, EvalError> {
    let cx = EvalCx::new(&WHERE, attrs, args)?;
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
