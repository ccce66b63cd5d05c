//! `cumsum` and `cumprod`: sums and products of all elements up to one (ONNX `CumSum`, `CumProd`).

use serde::{Deserialize, Serialize};

use super::X;
use super::scatter::{in_loop, loops, nest};
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor, wrap_int};
use crate::ir::{Attrs, BufferSpec, DType, Type};
use crate::ops::compute::{Compute, Stages, extent_of};
use crate::ops::eval::{AxisSplit, EvalCx, axis_of};
use crate::ops::{EvalError, InferCx, OpDef};
use crate::te::{ComputeDag, StageId, combined, identity};
use crate::tir::{BinaryOp, BufferId, BufferScope, ForKind, PrimExpr, Stmt, VarId};

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

/// Lines of the innermost axis at a time: each waits for its own sums alone.
const LINES: i64 = 4;

/// What is accumulated, and where the results go.
struct Lines<'a> {
    combiner: BinaryOp,
    attrs: &'a CumulativeAttrs,
    x: StageId,
    result: BufferId,
    shape: &'a [i64],
    axis: usize,
    /// The axes whose extents a run says.
    open_axes: &'a [usize],
    dtype: DType,
}

impl Lines<'_> {
    fn extent(&self) -> i64 {
        self.shape[self.axis]
    }

    /// Whether a run says how long lines are.
    fn is_open(&self) -> bool {
        self.open_axes.contains(&self.axis)
    }

    /// The place of a step in the line that an index is in.
    fn at(&self, index: &[PrimExpr], step: PrimExpr) -> Vec<PrimExpr> {
        let last = PrimExpr::index(self.extent() - 1);
        let mut at = index.to_vec();
        at[self.axis] = if self.attrs.reverse { last - step } else { step };
        at
    }

    fn element(&self, dag: &ComputeDag, index: &[PrimExpr], step: PrimExpr) -> PrimExpr {
        dag.at(self.x, &self.at(index, step)).cast(self.dtype)
    }

    fn neutral(&self) -> PrimExpr {
        identity(self.combiner, self.dtype)
    }

    /// All lines, along the axis one element after the other.
    fn all(&self, dag: &mut ComputeDag) -> Stmt {
        let (vars, index) = loops(dag, self.shape);
        let around = |stmt: Stmt, axes: usize| {
            let outer = vars[..axes].iter().zip(self.shape).rev();
            outer.fold(stmt, |body, (&var, &extent)| in_loop(var, extent, ForKind::Serial, body))
        };
        if self.extent() == 0 && !self.is_open() {
            return Stmt::nop();
        } else if self.axis + 1 < self.shape.len() {
            let inner = &vars[self.axis + 1..];
            return around(self.in_vectors(dag, &index, vars[self.axis], inner), self.axis);
        } else if self.axis == 0 {
            return self.side_by_side(dag, &[index]);
        }
        let beside = self.axis - 1;
        // Of as many lines as a run says, there may be none to go beside another one.
        let together = if self.open_axes.contains(&beside) { 1 } else { LINES };
        let (whole, rest) = (self.shape[beside] / together, self.shape[beside] % together);
        let mut parts = Vec::new();
        for (first, count, lines) in [(0, whole, together), (whole * together, rest, 1)] {
            if count == 0 {
                continue;
            }
            let var = dag.func.index_var("lines");
            let number = dag.func.var_expr(var);
            let line = |line: i64| {
                let mut index = index.clone();
                index[beside] = number.clone() * lines + (first + line);
                index
            };
            let lines: Vec<Vec<PrimExpr>> = (0..lines).map(line).collect();
            let lines = self.side_by_side(dag, &lines);
            parts.push(in_loop(var, count, ForKind::Serial, lines));
        }
        around(Stmt::seq(parts), beside)
    }

    /// Lines whose elements are adjacent. What is so far stays in a register: stored and read again, it
    /// takes longer than a sum.
    fn side_by_side(&self, dag: &mut ComputeDag, lines: &[Vec<PrimExpr>]) -> Stmt {
        let spec = BufferSpec::dense(&[lines.len() as i64]);
        let so_far = dag.func.buffer("so_far", self.dtype, spec, BufferScope::Local);
        let step = dag.func.index_var("step");
        let (mut first, mut steps) = (Vec::new(), Vec::new());
        for (line, index) in lines.iter().enumerate() {
            let line = PrimExpr::index(line as i64);
            let before = dag.func.load(so_far, [line.clone()]);
            let element = self.element(dag, index, dag.func.var_expr(step));
            let next = combined(self.combiner, before, element);
            let next = dag.func.store(so_far, [line.clone()], next);
            let now = dag.func.load(so_far, [line.clone()]);
            let put = dag.func.store(self.result, self.at(index, dag.func.var_expr(step)), now);
            steps.extend(if self.attrs.exclusive { [put, next] } else { [next, put] });
            first.push(dag.func.store(so_far, [line], self.neutral()));
        }
        first.push(in_loop(step, self.extent(), ForKind::Serial, Stmt::seq(steps)));
        Stmt::allocate(so_far, Stmt::seq(first))
    }

    /// Each step from the one before it, of the axes inside in vectors.
    fn in_vectors(
        &self,
        dag: &mut ComputeDag,
        index: &[PrimExpr],
        step: VarId,
        inner: &[VarId],
    ) -> Stmt {
        let extents = &self.shape[self.axis + 1..];
        let first = match self.attrs.exclusive {
            true => self.neutral(),
            false => combined(self.combiner, self.neutral(), self.element(dag, index, 0.into())),
        };
        let first = dag.func.store(self.result, self.at(index, 0.into()), first);
        let mut first = nest(inner.to_vec(), extents, self.dtype, first);
        if self.is_open() {
            // A line may have no first step.
            first = Stmt::if_then(extent_of(self.extent(), true).greater(0), first);
        }
        let now = dag.func.var_expr(step);
        let before = dag.func.load(self.result, self.at(index, now.clone()));
        let read = now.clone() + i64::from(!self.attrs.exclusive);
        let next = combined(self.combiner, before, self.element(dag, index, read));
        let next = dag.func.store(self.result, self.at(index, now + 1), next);
        let next = nest(inner.to_vec(), extents, self.dtype, next);
        let rest = extent_of(self.extent() - 1, self.is_open());
        let steps = Stmt::for_loop(step, 0.into(), rest, ForKind::Serial, next);
        Stmt::seq([first, steps])
    }
}

fn compute(cx: &mut Compute<'_>, combiner: BinaryOp) -> Stages {
    let attrs: CumulativeAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    let axis = cx.axis(attrs.axis, shape.len())?;
    let wide = dtype.accumulator();
    let open_axes = cx.open_axes;
    let all = cx.dag.statement(cx.op.name, &shape, wide, &[x], |dag, result| {
        let (attrs, shape) = (&attrs, &shape[..]);
        Lines { combiner, attrs, x, result, shape, axis, open_axes, dtype: wide }.all(dag)
    });
    if wide == dtype {
        return Ok(vec![all]);
    }
    cx.element(|dag, index| dag.at(all, index).cast(dtype))
}
