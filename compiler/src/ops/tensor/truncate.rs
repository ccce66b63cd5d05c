//! `truncate`: as much of a tensor as a number says that a run computes.

use serde::{Deserialize, Serialize};

use crate::arith::Symbol;
use crate::graph::TypeError;
use crate::graph::interp::Tensor;
use crate::ir::{Attrs, DType, Dim, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::{AxisSplit, EvalCx, axis_of};
use crate::ops::{EvalError, InferCx, Input, OpDef, OpPattern};

/// Attributes of `truncate`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TruncateAttrs {
    /// The axis, counted from either end.
    pub axis: i64,
    /// The symbol that is the axis's extent in the result. All calls with one symbol have one
    /// `count`.
    pub size: String,
    /// What the rest of the function takes the size to be, by other sizes or as a number: a run that
    /// finds another one is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Dim>,
}

/// The first `count` elements along an axis, a scalar of type `int64`. One that is negative counts as
/// zero, one beyond the extent as the extent.
///
/// This is how sizes come to be that depend on data: the extent is a symbol, memory is planned for
/// all of `x`, and no kernel is made for the call.
pub static TRUNCATE: OpDef = OpDef::new(
    "truncate",
    "the first elements along an axis, as many as a scalar says",
    &[Input::required("x"), Input::required("count")],
    infer,
    eval,
    compute,
)
.attributes::<TruncateAttrs>()
.defaults(|| Attrs::new().with("axis", 0))
.pattern(OpPattern::Opaque);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: TruncateAttrs = cx.attrs()?;
    let (x, count) = (cx.tensor(0)?, cx.tensor(1)?);
    let axis = cx.axis(0, attrs.axis)?;
    ensure!(
        count.dtype == DType::I64 && count.shape.rank() == 0,
        "input `count` must be a scalar of type int64, but it is {count}"
    );
    ensure!(!attrs.size.is_empty(), "attribute `size` must name a symbol");
    let mut dims = x.shape.to_vec();
    dims[axis] = Dim::symbol(attrs.size.as_str());
    cx.result(dims, x.dtype)
}

/// The symbol of a call of `truncate` with its value; `None` for other operators.
pub(in crate::ops) fn size_of(
    def: &OpDef,
    attrs: &Attrs,
    args: &[Option<&Tensor>],
) -> Option<(Symbol, i64)> {
    if !std::ptr::eq(def, &TRUNCATE) {
        return None;
    }
    let TruncateAttrs { axis, size, .. } = attrs.parse().ok()?;
    let &[Some(x), Some(count)] = args else { return None };
    let extent = x.shape()[axis_of(x, axis).ok()?];
    let count = i64::try_from(*count.ints()?.first()?).unwrap_or(i64::MAX);
    Some((Symbol::new(&size), count.clamp(0, i64::try_from(extent).ok()?)))
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: TruncateAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let axis = axis_of(x, attrs.axis)?;
    let AxisSplit { outer, extent, inner } = AxisSplit::new(x.shape(), axis);
    let count = cx.shape()[axis];
    if let Some(expected) = attrs.expected.and_then(|dim| dim.as_const())
        && i64::try_from(count) != Ok(expected)
    {
        let what = format!("`{}` is {count}, but the model takes it to be {expected}", attrs.size);
        return Err(EvalError::new(what));
    }
    let (line, kept) = (extent * inner, count * inner);
    cx.picked(x, (0..outer).flat_map(|at| at * line..at * line + kept))
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let x = cx.arg(0)?;
    cx.element(|dag, index| dag.at(x, index))
}
