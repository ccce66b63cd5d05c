//! `cumsum` and `cumprod`: sums and products of all elements up to one (ONNX `CumSum`, `CumProd`).

use serde::{Deserialize, Serialize};

use super::X;
use super::scatter::{in_loop, loops, nest};
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor, wrap_int};
use crate::ir::{Attrs, BufferSpec, DType, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::{AxisSplit, EvalCx, axis_of};
use crate::ops::{EvalError, InferCx, OpDef};
use crate::te::{ComputeDag, combined, identity};
use crate::tir::{BinaryOp, BufferScope, ForKind, PrimExpr, Stmt};

/// Attributes of `cumsum` and `cumprod`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CumulativeAttrs {
    /// The axis, counted from either end.
    pub axis: i64,
    /// Whether the element itself is left out.
    pub exclusive: bool,
    /// Whether the elements from one on are meant, instead of those up to it.
    pub reverse: bool,
}

/// The sum of the elements up to each one; integers wrap.
pub static CUMSUM: OpDef = OpDef::new(
    "cumsum",
    "sums of the elements up to each one",
    X,
    infer,
    |cx| eval(cx, true),
    |cx| compute(cx, BinaryOp::Add),
)
.attributes::<CumulativeAttrs>()
.defaults(|| Attrs::new().with("exclusive", false).with("reverse", false));

/// The product of the elements up to each one; integers wrap.
pub static CUMPROD: OpDef = OpDef::new(
    "cumprod",
    "products of the elements up to each one",
    X,
    infer,
    |cx| eval(cx, false),
    |cx| compute(cx, BinaryOp::Mul),
)
.attributes::<CumulativeAttrs>()
.defaults(|| Attrs::new().with("exclusive", false).with("reverse", false));

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: CumulativeAttrs = cx.attrs()?;
    let x = cx.tensor(0)?;
    cx.axis(0, attrs.axis)?;
    ensure!(x.dtype != DType::Bool, "input `x` must hold numbers, but it is {x}");
    cx.result(x.shape.to_vec(), x.dtype)
}

fn eval(cx: &EvalCx<'_>, is_sum: bool) -> Result<Vec<Tensor>, EvalError> {
    let attrs: CumulativeAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let split = AxisSplit::new(x.shape(), axis_of(x, attrs.axis)?);
    let mut elements = x.elements().clone();
    for start in split.starts() {
        let mut line: Vec<usize> = split.line(start).collect();
        if attrs.reverse {
            line.reverse();
        }
        match &mut elements {
            Elements::Float(values) => {
                let combine = |a: f64, b: f64| if is_sum { a + b } else { a * b };
                accumulate(values, &line, f64::from(u8::from(!is_sum)), combine, attrs.exclusive);
            }
            Elements::Int(values) => {
                let dtype = x.ty().dtype;
                let combine = |a: i128, b: i128| {
                    wrap_int(if is_sum { a + b } else { a.wrapping_mul(b) }, dtype)
                };
                accumulate(values, &line, i128::from(!is_sum), combine, attrs.exclusive);
            }
        }
    }
    cx.result(elements)
}

fn accumulate<T: Copy>(
    values: &mut [T],
    line: &[usize],
    neutral: T,
    combine: impl Fn(T, T) -> T,
    exclusive: bool,
) {
    let mut so_far = neutral;
    for &place in line {
        let with = combine(so_far, values[place]);
        values[place] = if exclusive { so_far } else { with };
        so_far = with;
    }
}

fn compute(cx: &mut Compute<'_>, combiner: BinaryOp) -> Stages {
    let attrs: CumulativeAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    let axis = cx.axis(attrs.axis, shape.len())?;
    let wide = dtype.accumulator();
    let neutral = identity(combiner, wide);
    let (op, extent) = (cx.op.name, shape[axis]);
    // Along the axis one after the other, each from the one before; the axes inside in vectors.
    let all = cx.dag.statement(op, &shape, wide, &[x], |dag, result| {
        let (vars, index) = loops(dag, &shape);
        let (step, inner) = (vars[axis], vars[axis + 1..].to_vec());
        let at = |step: PrimExpr| {
            let place = if attrs.reverse { PrimExpr::index(extent - 1) - step } else { step };
            let mut at = index.clone();
            at[axis] = place;
            at
        };
        let element = |dag: &ComputeDag, step: PrimExpr| dag.at(x, &at(step)).cast(wide);
        let line = if extent == 0 {
            Stmt::nop()
        } else if axis + 1 == shape.len() {
            // What is so far stays in a register: stored and read again, it takes longer than a sum.
            let so_far =
                dag.func.buffer("so_far", wide, BufferSpec::dense(&[1]), BufferScope::Local);
            let before = dag.func.load(so_far, [0]);
            let next = combined(combiner, before, element(dag, dag.func.var_expr(step)));
            let next = dag.func.store(so_far, [0], next);
            let now = dag.func.load(so_far, [0]);
            let put = dag.func.store(result, at(dag.func.var_expr(step)), now);
            let both = if attrs.exclusive { [put, next] } else { [next, put] };
            let steps = in_loop(step, extent, ForKind::Serial, Stmt::seq(both));
            let first = dag.func.store(so_far, [0], neutral.clone());
            Stmt::allocate(so_far, Stmt::seq([first, steps]))
        } else {
            let first = match attrs.exclusive {
                true => neutral.clone(),
                false => combined(combiner, neutral.clone(), element(dag, 0.into())),
            };
            let first = dag.func.store(result, at(0.into()), first);
            let first = nest(inner.clone(), &shape[axis + 1..], wide, first);
            let before = dag.func.load(result, at(dag.func.var_expr(step)));
            let read = dag.func.var_expr(step) + i64::from(!attrs.exclusive);
            let next = combined(combiner, before, element(dag, read));
            let next = dag.func.store(result, at(dag.func.var_expr(step) + 1), next);
            let next = nest(inner, &shape[axis + 1..], wide, next);
            let steps = in_loop(step, (extent - 1).max(0), ForKind::Serial, next);
            Stmt::seq([first, steps])
        };
        let outer = vars[..axis].iter().zip(&shape).rev();
        outer.fold(line, |body, (&var, &extent)| in_loop(var, extent, ForKind::Serial, body))
    });
    if wide == dtype {
        return Ok(vec![all]);
    }
    cx.element(|dag, index| dag.at(all, index).cast(dtype))
}
