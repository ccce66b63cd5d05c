//! Kernels of tensors whose extents are known at run time alone.
//!
//! A kernel is made for the greatest sizes. It does for smaller ones if an element of a result is the
//! same expression of the same places for all of them, as tensors' strides are those of the greatest
//! sizes. That is seen by making the tensor expressions for another value of each size: what differs
//! then may be extents alone, of tensors and of what is reduced. Reductions, and loops of statements,
//! end where those of the run end; what else a run does not need is left out by `tir.LimitLoops`.

mod samples;
mod units;

pub use units::units_are_independent;

use samples::{Known, edges, samples};

use super::Machine;
use super::primitive::{Primitive, primitive, problem_at};
use crate::diagnostics::{Problem, pin};
use crate::executor::{Kernel, RunTimeAxis, RunTimeSizes};
use crate::graph::{Callee, Expr, ExprId, Function};
use crate::ir::{BufferSpec, DType, Dim, Span, TensorType, Type};
use crate::target::Target;
use crate::te::ComputeDag;
use crate::tir::{BufferId, ForKind, PrimExpr, PrimFunc, PrimFuncData, Stmt, VarId};

/// The tensors of a type, tuples flattened.
pub(crate) fn tensor_types(ty: &Type) -> Vec<&TensorType> {
    match ty {
        Type::Tensor(tensor) => vec![tensor],
        Type::Tuple(fields) => fields.iter().filter_map(Type::as_tensor).collect(),
        Type::Func(_) | Type::Sequence(_) | Type::Optional(_) => Vec::new(),
    }
}

/// The axes of each tensor of a type that depend on sizes of the run.
///
/// # Errors
///
/// As [`RunTimeSizes::axes`].
pub(super) fn axes_of(
    ty: &Type,
    span: &Span,
    sizes: &RunTimeSizes,
) -> Result<Vec<Vec<RunTimeAxis>>, Problem> {
    let axes = |tensor: &TensorType| {
        sizes.axes(&tensor.shape).map_err(|problem| problem_at(problem.message, span))
    };
    tensor_types(ty).into_iter().map(axes).collect()
}

/// The [primitive] of a function for the greatest sizes, with how far a run goes along each axis.
///
/// # Errors
///
/// An operator whose elements are others if an extent is, or an extent that is no multiple of a size.
pub(super) fn limited(
    name: &str,
    function: &Function,
    sizes: &RunTimeSizes,
    in_place: bool,
) -> Result<Primitive, Vec<Problem>> {
    let mut greatest = primitive(name, function, &|dim| sizes.greatest(dim), in_place)?;
    let live = function.live();
    let ids = || function.ids().filter(|&id| live[id]);
    // Numbers may be made of sizes that no tensor has.
    let is_fixed = |id: ExprId| {
        let call = function.expr(id).as_call();
        call.is_none_or(|call| call.attrs.dims().all(Dim::is_const))
            && tensor_types(function.ty(id)).iter().all(|t| t.shape.as_consts().is_some())
    };
    if ids().all(is_fixed) {
        greatest.fold_tables(&|_, _| true);
        return Ok(greatest);
    }
    let problems: Vec<Problem> =
        ids().filter_map(|id| axes_of(function.ty(id), function.span(id), sizes).err()).collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    let dims = sizes.declare(&mut greatest.dag.func);
    let mut made = Vec::new();
    let samples = samples(function, sizes).ok_or_else(|| {
        let what =
            "no code can be generated yet for sizes of runs that have to go together as these do";
        vec![problem_at(what, function.span(function.result()))]
    })?;
    for sample in samples.iter().skip(1) {
        made.push(primitive(name, function, &|dim| sizes.value(dim, sample), in_place)?.dag);
    }
    let edges = edges(function, sizes, &samples);
    let at_edges = edges.iter().map(|sample| {
        let made = primitive(name, function, &|dim| sizes.value(dim, sample), in_place);
        made.map(|made| made.dag).ok()
    });
    let at_edges: Vec<Option<ComputeDag>> = at_edges.collect();
    let known = Known::new(function, sizes, &samples, &edges, &dims);
    let limits = known.limits(&greatest.dag, &made, &at_edges).map_err(|op| {
        let calls_it = |expr: &Expr| match expr {
            Expr::Call(call) => matches!(call.callee, Callee::Op(found) if found.to_string() == op),
            _ => false,
        };
        let span = ids().find(|&id| calls_it(function.expr(id))).unwrap_or(function.result());
        let what = format!(
            "no code can be generated yet for `{op}` along an axis whose extent is known at run time \
             alone"
        );
        let problem = problem_at(what, function.span(span));
        let types = ids().flat_map(|id| tensor_types(function.ty(id)));
        vec![match pin(types.flat_map(|ty| ty.shape.iter())) {
            Some(help) => problem.help(help),
            None => problem,
        }]
    })?;
    greatest.fold_tables(&|stage, id| !limits.changes(stage, id));
    limits.set(&mut greatest);
    Ok(greatest)
}

/// Which way a tensor is copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// From the memory of a caller, which has as much as belongs to the run.
    FromCaller,
    /// To such memory.
    ToCaller,
}

/// A kernel that copies as many elements of a dense tensor as belong to a run, and touches no others.
pub(super) fn copy(
    name: &str,
    spec: &BufferSpec,
    dtype: DType,
    axes: &[RunTimeAxis],
    way: Way,
    sizes: &RunTimeSizes,
    levels: &[Target],
) -> Kernel {
    let shape = spec.shape();
    let elements = spec.num_elements().unwrap_or(0);
    // What comes with one place along the last such axis, and all of its places, lie side by side.
    let last = axes.iter().map(|open| open.axis).max().unwrap_or(0);
    let unit: i64 = shape[last + 1..].iter().product();
    let version = |level: &Target| {
        let mut func = PrimFuncData::new(name);
        let from = func.input("x", dtype, BufferSpec::dense(&[elements]));
        let to = func.output("copy", dtype, BufferSpec::dense(&[elements]));
        let dims = sizes.declare(&mut func);
        let extent = |axis: usize| {
            let open = axes.iter().find(|open| open.axis == axis);
            let run = open.and_then(|open| sizes.extent(&open.extent, &dims));
            run.unwrap_or(PrimExpr::index(shape[axis]))
        };
        let row = |count: PrimExpr| count * unit;
        let loops: Vec<VarId> = (0..last).map(|axis| func.index_var(format!("i{axis}"))).collect();
        let start = |of_run: bool| {
            let before = loops.iter().enumerate().fold(PrimExpr::index(0), |at, (axis, &var)| {
                let extent = if of_run { extent(axis) } else { PrimExpr::index(shape[axis]) };
                at * extent + func.var_expr(var)
            });
            before * row(if of_run { extent(last) } else { PrimExpr::index(shape[last]) })
        };
        let (caller, own) = (start(true), start(false));
        let (read, written) = match way {
            Way::FromCaller => (caller, own),
            Way::ToCaller => (own, caller),
        };
        let body = copy_row(&mut func, [from, to], [read, written], row(extent(last)), level);
        let body = loops.into_iter().enumerate().rev().fold(body, |body, (axis, var)| {
            Stmt::for_loop(var, PrimExpr::index(0), extent(axis), ForKind::Serial, body)
        });
        func.body = body;
        PrimFunc::new(func)
    };
    Kernel::new(levels.iter().map(version).collect())
}

/// Copies so many elements from a place to another, in vectors as far as they go.
fn copy_row(
    func: &mut PrimFuncData,
    [from, to]: [BufferId; 2],
    [read, written]: [PrimExpr; 2],
    count: PrimExpr,
    level: &Target,
) -> Stmt {
    let lanes = Machine::of(level).lanes(func.buffers[to].dtype);
    let vectors = count.clone().floordiv(lanes);
    let element = |func: &mut PrimFuncData, at: PrimExpr| {
        let value = func.load(from, [read.clone() + at.clone()]);
        func.store(to, [written.clone() + at], value)
    };
    let (outer, lane) = (func.index_var("i"), func.index_var("lane"));
    let at = func.var_expr(outer) * lanes + func.var_expr(lane);
    let body = element(func, at);
    let zero = PrimExpr::index(0);
    let body =
        Stmt::for_loop(lane, zero.clone(), PrimExpr::index(lanes), ForKind::Vectorized, body);
    let whole = Stmt::for_loop(outer, zero.clone(), vectors, ForKind::Serial, body);
    let rest = func.index_var("rest");
    let at = count.clone() - count.clone().floormod(lanes) + func.var_expr(rest);
    let body = element(func, at);
    let rest = Stmt::for_loop(rest, zero, count.floormod(lanes), ForKind::Serial, body);
    Stmt::seq([whole, rest])
}
