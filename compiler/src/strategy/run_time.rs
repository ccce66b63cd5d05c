//! Kernels of tensors whose outermost extent is known at run time alone.
//!
//! A kernel is made for the greatest sizes. It does for smaller ones as it is: an element of a result
//! depends on none behind its own in any tensor, whose strides are the same for all sizes. That is
//! seen by making the tensor expressions for two sizes, which then differ in outermost extents alone.
//! What a run does not need is left out by `tir.LimitLoops`.

use super::Machine;
use super::primitive::{Primitive, primitive, problem_at};
use crate::diagnostics::Problem;
use crate::executor::{Kernel, RunTimeAxis, RunTimeSizes};
use crate::graph::{Callee, Expr, Function};
use crate::ir::{BufferSpec, DType, Span, TensorType, Type};
use crate::target::Target;
use crate::te::ComputeDag;
use crate::tir::transform::RunTimeLengths;
use crate::tir::{ForKind, PrimExpr, PrimFunc, PrimFuncData, Stmt};

/// The tensors of a type, tuples flattened.
pub(super) fn tensor_types(ty: &Type) -> Vec<&TensorType> {
    match ty {
        Type::Tensor(tensor) => vec![tensor],
        Type::Tuple(fields) => fields.iter().filter_map(Type::as_tensor).collect(),
        Type::Func(_) | Type::Sequence(_) | Type::Optional(_) => Vec::new(),
    }
}

/// The axis of each tensor of a type that depends on a size of the run.
///
/// # Errors
///
/// As [`RunTimeSizes::axis`].
pub(super) fn axes_of(
    ty: &Type,
    span: &Span,
    sizes: &RunTimeSizes,
) -> Result<Vec<Option<RunTimeAxis>>, Problem> {
    let axis = |tensor: &TensorType| {
        sizes.axis(&tensor.shape).map_err(|problem| problem_at(problem.message, span))
    };
    tensor_types(ty).into_iter().map(axis).collect()
}

/// The parameters of a function's kernel that have such an axis, by their positions; the kernel, made
/// for the greatest sizes, does for all.
///
/// # Errors
///
/// An operator whose elements depend on an extent that is known at run time alone, or a tensor that
/// has such an extent along another axis than the outermost.
pub(super) fn axes(
    name: &str,
    function: &Function,
    greatest: &Primitive,
    sizes: &RunTimeSizes,
) -> Result<Vec<(usize, RunTimeAxis)>, Vec<Problem>> {
    let live = function.live();
    let ids = || function.ids().filter(|&id| live[id]);
    let is_fixed = |ty: &Type| tensor_types(ty).iter().all(|t| t.shape.as_consts().is_some());
    if ids().all(|id| is_fixed(function.ty(id))) {
        return Ok(Vec::new());
    }
    let problems: Vec<Problem> = ids()
        .filter_map(|id| axes_of(function.ty(id), function.span(id), sizes).err())
        .collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    let other = primitive(name, function, &|dim| sizes.other(dim))?;
    let Some(op) = depends_on_rows(&greatest.dag, &other.dag) else {
        // Constants of the body come between parameters and results; their extents are known.
        let axes = |id| axes_of(function.ty(id), function.span(id), sizes);
        let params = function.params().iter().map(|&param| axes(param));
        let constants = std::iter::once(Ok(vec![None; greatest.constants.len()]));
        let all = params.chain(constants).chain([axes(function.result())]);
        let all: Vec<Vec<_>> = all.collect::<Result<_, _>>().map_err(|problem| vec![problem])?;
        let all = all.into_iter().flatten().enumerate();
        return Ok(all.filter_map(|(position, axis)| Some((position, axis?))).collect());
    };
    let calls_it = |expr: &Expr| match expr {
        Expr::Call(call) => matches!(call.callee, Callee::Op(found) if found.to_string() == op),
        _ => false,
    };
    let span = ids().find(|&id| calls_it(function.expr(id))).unwrap_or(function.result());
    Err(vec![problem_at(
        format!(
            "`{op}` takes elements together along an axis whose extent is known at run time alone, or \
             counts them: no code can be generated for that yet"
        ),
        function.span(span),
    )])
}

/// The first operator whose expression is another one, if outermost extents are others.
fn depends_on_rows(a: &ComputeDag, b: &ComputeDag) -> Option<String> {
    let alike = |a: &[i64], b: &[i64]| {
        let differs = |(a, b): (&i64, &i64)| a != b;
        let mut differing = a.iter().zip(b).enumerate().filter(|&(_, pair)| differs(pair));
        let outermost = |axis: usize| a[..axis].iter().all(|&extent| extent == 1);
        a.len() == b.len()
            && differing.next().is_none_or(|(axis, _)| outermost(axis))
            && differing.next().is_none()
    };
    let mut stages = a.stages.iter();
    let found = stages.find(|(id, stage)| {
        b.stages.get(*id) != Some(*stage) || !alike(a.shape(*id), b.shape(*id))
    });
    found.map(|(_, stage)| stage.op.clone())
}

/// Tells a kernel, whose parameters with such axes are at these positions, how much of them a run
/// uses. All sizes of the model become dimensions of the kernel, in order.
pub(super) fn limit(kernel: &mut Kernel, axes: &[(usize, RunTimeAxis)], sizes: &RunTimeSizes) {
    for version in &mut kernel.versions {
        let func = version.make_mut();
        for size in sizes.iter() {
            func.dim(&size.name);
        }
        let length = |&(position, RunTimeAxis { size, .. }): &(usize, RunTimeAxis)| {
            let spec = &func.buffers[func.params.get(position)?.buffer].spec;
            let max = i64::try_from(sizes.iter().nth(size)?.max).ok()?;
            let elements = spec.physical_len().ok()?;
            (elements % max == 0).then_some((position, size, elements / max))
        };
        let lengths = RunTimeLengths(axes.iter().filter_map(length).collect());
        lengths.annotate(func);
    }
}

/// A kernel that copies as many elements of a dense tensor as belong to a run, and touches no others.
pub(super) fn copy(
    name: &str,
    spec: &BufferSpec,
    dtype: DType,
    axis: RunTimeAxis,
    sizes: &RunTimeSizes,
    levels: &[Target],
) -> Kernel {
    let max = sizes.iter().nth(axis.size).map_or(1, |size| size.max);
    let elements = spec.num_elements().unwrap_or(0);
    let unit = elements / i64::try_from(max).unwrap_or(i64::MAX).max(1);
    let version = |level: &Target| {
        let mut func = PrimFuncData::new(name);
        let from = func.input("x", dtype, BufferSpec::dense(&[elements]));
        let to = func.output("copy", dtype, BufferSpec::dense(&[elements]));
        let dims: Vec<PrimExpr> = sizes.iter().map(|size| func.dim(&size.name)).collect();
        let count = dims[axis.size].clone() * unit;
        let lanes = Machine::of(level).lanes(dtype);
        let vectors = count.clone().floordiv(lanes);
        let element = |func: &mut PrimFuncData, at: PrimExpr| {
            let value = func.load(from, [at.clone()]);
            func.store(to, [at], value)
        };
        let (outer, lane) = (func.index_var("i"), func.index_var("lane"));
        let at = func.var_expr(outer) * lanes + func.var_expr(lane);
        let body = element(&mut func, at);
        let zero = PrimExpr::index(0);
        let body =
            Stmt::for_loop(lane, zero.clone(), PrimExpr::index(lanes), ForKind::Vectorized, body);
        let whole = Stmt::for_loop(outer, zero.clone(), vectors, ForKind::Serial, body);
        let rest = func.index_var("rest");
        let at = count.clone() - count.clone().floormod(lanes) + func.var_expr(rest);
        let body = element(&mut func, at);
        let rest = Stmt::for_loop(rest, zero, count.floormod(lanes), ForKind::Serial, body);
        func.body = if unit % lanes == 0 { whole } else { Stmt::seq([whole, rest]) };
        PrimFunc::new(func)
    };
    Kernel { versions: levels.iter().map(version).collect(), macs: 0, loops: Vec::new() }
}
