//! Kernels of tensors whose outermost extent is known at run time alone.
//!
//! A kernel is made for the greatest sizes. It does for smaller ones as it is: an element of a result
//! depends on none behind its own in any tensor, whose strides are the same for all sizes. That is
//! seen by making the tensor expressions for two sizes, which then differ in outermost extents alone.
//! What a run does not need is left out by `tir.LimitLoops`.

use super::Machine;
use super::primitive::{Extents, Primitive, primitive, problem_at};
use crate::diagnostics::Problem;
use crate::executor::{Kernel, RunTimeAxis, RunTimeSizes};
use crate::graph::{Callee, Expr, Function};
use crate::ir::{BufferSpec, DType, IRModule, Span, TensorType, Type};
use crate::target::Target;
use crate::te::{ComputeDag, StageId, StageKind};
use crate::tir::{Analyzer, ForKind, PrimExpr, PrimFunc, PrimFuncData, Stmt};

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

/// Checks that the kernel of a function, made for the greatest sizes, does for all.
///
/// # Errors
///
/// An operator whose elements depend on an extent that is known at run time alone, or a tensor that
/// has such an extent along another axis than the outermost.
pub(super) fn check(
    name: &str,
    function: &Function,
    greatest: &Primitive,
    sizes: &RunTimeSizes,
) -> Result<(), Vec<Problem>> {
    let live = function.live();
    let ids = || function.ids().filter(|&id| live[id]);
    let is_fixed = |ty: &Type| tensor_types(ty).iter().all(|t| t.shape.as_consts().is_some());
    if ids().all(|id| is_fixed(function.ty(id))) {
        return Ok(());
    }
    let problems: Vec<Problem> =
        ids().filter_map(|id| axes_of(function.ty(id), function.span(id), sizes).err()).collect();
    if !problems.is_empty() {
        return Err(problems);
    }
    let other = primitive(name, function, &|dim| sizes.other(dim))?;
    let Some(op) = depends_on_rows(&greatest.dag, &other.dag) else { return Ok(()) };
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

/// Whether each unit of the only size could be a run of its own: no element depends on one of another
/// unit. The module's computations are all calls of primitive functions.
pub fn units_are_independent(module: &IRModule, sizes: &RunTimeSizes) -> bool {
    let Some(max) = sizes.iter().next().and_then(|size| i64::try_from(size.max).ok()) else {
        return false;
    };
    // What other code generators make of a function is not known.
    let is_ours = |function: &Function| function.attrs().str("Compiler").is_none();
    let mut primitives = module.functions().filter(|(_, f)| f.attrs().flag("Primitive"));
    sizes.len() == 1
        && module.functions().all(|(_, function)| is_ours(function))
        && primitives.all(|(global, function)| {
            let made = |extents: &Extents<'_>| primitive(global.name(), function, extents);
            let dags = (made(&|dim| sizes.greatest(dim)), made(&|dim| sizes.other(dim)));
            let (Ok(greatest), Ok(other)) = dags else { return false };
            depends_on_rows(&greatest.dag, &other.dag).is_none()
                && Units { dag: &greatest.dag, other: &other.dag, max }.are_independent()
        })
}

/// The elements of a dag by the unit of the only size that they belong to.
struct Units<'a> {
    dag: &'a ComputeDag,
    /// The same for another size.
    other: &'a ComputeDag,
    max: i64,
}

impl Units<'_> {
    /// The axis that goes over units, and how far it goes with each.
    fn axis(&self, stage: StageId) -> Option<(usize, i64)> {
        let (shape, other) = (self.dag.shape(stage), self.other.shape(stage));
        let axis = shape.iter().zip(other).position(|(a, b)| a != b)?;
        Some((axis, shape[axis] / self.max))
    }

    fn are_independent(&self) -> bool {
        self.dag.stages.iter().all(|(stage, data)| match &data.kind {
            StageKind::Placeholder => true,
            StageKind::Compute(value) => self.reads_own(stage, value),
            StageKind::Reduce { value, .. } => self.reads_own(stage, value),
            StageKind::Joint { reduction, .. } => {
                reduction.values.iter().all(|value| self.reads_own(stage, value))
            }
            StageKind::Concat { axis, parts } => {
                let own = self.axis(stage);
                own.is_none_or(|own| own.0 != *axis)
                    && parts.iter().all(|part| self.axis(part.stage) == own)
            }
            StageKind::Extern { statement, .. } => {
                let all = statement.inputs.iter().chain(&statement.results);
                all.copied().all(|stage| self.axis(stage).is_none())
            }
        })
    }

    /// Whether an element reads elements of its own unit, and such that belong to none.
    fn reads_own(&self, stage: StageId, value: &PrimExpr) -> bool {
        let mut own = true;
        value.walk(&mut |expr| {
            if let PrimExpr::Load { buffer, indices, .. } = expr
                && let Some(read) = self.dag.stage_of(*buffer)
                && let Some((axis, factor)) = self.axis(read)
            {
                own &= self.is_own(stage, &indices[axis], factor);
            }
        });
        own
    }

    fn is_own(&self, stage: StageId, index: &PrimExpr, factor: i64) -> bool {
        let Some((axis, own_factor)) = self.axis(stage) else { return false };
        let data = &self.dag.stages[stage];
        let own = self.dag.func.var_expr(data.axes[axis]);
        if factor == own_factor && *index == own {
            return true;
        }
        let mut analyzer = Analyzer::new();
        for (&var, &extent) in data.axes.iter().zip(self.dag.shape(stage)) {
            analyzer.bind(var, 0, extent);
        }
        let unit = |at: PrimExpr, factor: i64| at.floordiv(factor);
        analyzer.can_prove_equal(&unit(index.clone(), factor), &unit(own, own_factor))
    }
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
