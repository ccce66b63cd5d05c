//! The dag of a primitive function: its calls as tensor expressions.

use cranelift_entity::SecondaryMap;

use super::run_time::tensor_types;
use crate::diagnostics::{Problem, ProblemNode, pin};
use crate::executor::Truncation;
use crate::graph::{Call, Callee, Expr, ExprId, Function, PrintOptions, print_function};
use crate::ir::{Constant, DType, Dim, Span, TensorType, Type};
use crate::ops::{self, Compute, tensor};
use crate::te::{Anchor, ComputeDag, StageId, held_as, held_constant};
use crate::tir::PrimExpr;

/// A primitive function as one dag.
pub(super) struct Primitive {
    pub(super) dag: ComputeDag,
    /// The placeholders of the parameters, tuples flattened.
    pub(super) params: Vec<StageId>,
    /// Constants of more than one element in the body.
    pub(super) constants: Vec<(StageId, Constant)>,
    /// The results, tuples flattened.
    pub(super) results: Vec<StageId>,
    /// The text of the function, line by line.
    pub(super) origin: Vec<String>,
    /// Whether no call does more than give the elements another shape.
    pub(super) reshape_only: bool,
    /// The size that the function's only call defines, if that is `truncate`, and the position of its
    /// count among the parameters, or the count itself.
    pub(super) truncation: Option<(String, Result<usize, Constant>)>,
    /// Whether the function is one call, which changes some elements of its first parameter.
    pub(super) is_update: bool,
}

impl Primitive {
    /// The convolution whose image a parameter is: its anchor and the extents of its result.
    pub(super) fn conv_of(&self, param: usize) -> Option<(&Anchor, &[i64])> {
        let stage = self.params[param];
        self.dag.stages.iter().find_map(|(id, s)| match &s.anchor {
            Anchor::Conv2d { data, .. } | Anchor::Winograd { data, .. } if *data == stage => {
                Some((&s.anchor, self.dag.shape(id)))
            }
            Anchor::Conv2d { .. }
            | Anchor::Winograd { .. }
            | Anchor::MatMul { .. }
            | Anchor::Window { .. }
            | Anchor::None => None,
        })
    }
}

/// A problem at an expression.
pub(super) fn problem_at(message: impl Into<String>, span: &Span) -> Problem {
    let problem = Problem::new(message);
    match ProblemNode::of(span) {
        Some(node) => problem.at(node),
        None => problem,
    }
}

/// The number that stands for an extent; `None` if nothing is known of it.
pub(super) type Extents<'a> = dyn Fn(&Dim) -> Option<i64> + 'a;

/// Extents of a tensor, which must be known, and the data type in which programs hold it.
pub(super) fn static_tensor(
    ty: &TensorType,
    span: &Span,
    extents: &Extents<'_>,
) -> Result<(Vec<i64>, DType), Problem> {
    let dims: Option<Vec<i64>> = ty.shape.iter().map(extents).collect();
    let fits = |dims: &[i64]| TensorType::from_consts(dims, ty.dtype).bytes().is_some();
    if ty.shape.as_consts().is_none() && dims.as_ref().is_some_and(|dims| !fits(dims)) {
        let what = format!("a tensor of type {ty} is too large for the greatest size of a run");
        return Err(problem_at(what, span).help("lower the bound of the size"));
    }
    let dims = dims.filter(|dims| dims.iter().all(|&d| d >= 0) && fits(dims));
    dims.map(|dims| (dims, held_as(ty.dtype))).ok_or_else(|| {
        let problem =
            problem_at(format!("the extents of a tensor of type {ty} must be known"), span);
        match pin(ty.shape.iter()) {
            Some(help) => problem.help(help),
            None => problem,
        }
    })
}

/// The tensors of a type, tuples flattened.
pub(super) fn tensors_of(
    ty: &Type,
    span: &Span,
    extents: &Extents<'_>,
) -> Result<Vec<(Vec<i64>, DType)>, Problem> {
    match ty {
        Type::Tensor(tensor) => Ok(vec![static_tensor(tensor, span, extents)?]),
        Type::Tuple(fields) => {
            let mut tensors = Vec::new();
            for field in fields.iter() {
                match field {
                    Type::Tensor(tensor) => tensors.push(static_tensor(tensor, span, extents)?),
                    Type::Tuple(_) | Type::Func(_) | Type::Sequence(_) | Type::Optional(_) => {
                        let what = format!("no code can be generated for a value of type {ty} yet");
                        return Err(problem_at(what, span));
                    }
                }
            }
            Ok(tensors)
        }
        Type::Func(_) | Type::Sequence(_) | Type::Optional(_) => {
            Err(problem_at(format!("no code can be generated for a value of type {ty} yet"), span))
        }
    }
}

/// The dag of a primitive function. If it is made `in_place`, which an update can be, its
/// result is in the memory of its first parameter, which it does not read.
///
/// # Errors
///
/// Every call that has no tensor expression, and every tensor whose extents are not known.
pub(super) fn primitive(
    name: &str,
    function: &Function,
    extents: &Extents<'_>,
    in_place: bool,
) -> Result<Primitive, Vec<Problem>> {
    let mut builder = Builder {
        extents,
        in_place,
        dag: ComputeDag::new(name),
        values: SecondaryMap::new(),
        params: Vec::new(),
        constants: Vec::new(),
        reshape_only: true,
    };
    let live = function.live();
    let mut problems = Vec::new();
    for id in function.ids().filter(|&id| live[id]) {
        // What needs a value that is a problem already is not another one.
        let operands = || function.expr(id).operands();
        if operands().any(|operand| builder.values[operand].is_none()) {
            continue;
        }
        match builder.expr(function, id) {
            Ok(stages) => builder.values[id] = Some(stages),
            Err(problem) => problems.push(problem),
        }
    }
    let results = builder.values[function.result()].take();
    match results {
        Some(results) if problems.is_empty() => Ok(Primitive {
            dag: builder.dag,
            params: builder.params,
            constants: builder.constants,
            results,
            origin: print_function(function, None, &PrintOptions::default())
                .lines()
                .map(str::to_owned)
                .collect(),
            reshape_only: builder.reshape_only,
            truncation: truncation(function),
            is_update: is_update(function),
        }),
        _ => Err(problems),
    }
}

/// What a function defines that is one call of `truncate`.
fn truncation(function: &Function) -> Option<(String, Result<usize, Constant>)> {
    let Truncation { size, count, .. } = Truncation::of(function, function.result())?;
    let count = match function.expr(count) {
        Expr::Constant(constant) => Err(constant.clone()),
        _ => Ok(function.params().iter().position(|&param| param == count)?),
    };
    Some((size, count))
}

/// Whether a function is one call of an operator that changes some elements of the first parameter.
fn is_update(function: &Function) -> bool {
    let Expr::Call(Call { callee: Callee::Op(op), args, .. }) = function.expr(function.result())
    else {
        return false;
    };
    let is_simple = |arg: &ExprId| matches!(function.expr(*arg), Expr::Var(_) | Expr::Constant(_));
    tensor::is_update(*op)
        && args.first().copied().flatten() == function.params().first().copied()
        && args.iter().flatten().all(is_simple)
}

struct Builder<'a> {
    extents: &'a Extents<'a>,
    in_place: bool,
    dag: ComputeDag,
    /// The stages of each expression; `None` if it, or something it needs, is a problem.
    values: SecondaryMap<ExprId, Option<Vec<StageId>>>,
    params: Vec<StageId>,
    constants: Vec<(StageId, Constant)>,
    reshape_only: bool,
}

impl Builder<'_> {
    /// The stages of an operand, which has some: see [`primitive`].
    fn value(&self, id: ExprId) -> &[StageId] {
        self.values[id].as_deref().unwrap_or_default()
    }

    fn one(&self, id: ExprId) -> Result<StageId, Problem> {
        match self.value(id) {
            [stage] => Ok(*stage),
            _ => Err(Problem::new("an operator was given a tuple where it takes a tensor")),
        }
    }

    fn expr(&mut self, function: &Function, id: ExprId) -> Result<Vec<StageId>, Problem> {
        let span = function.span(id);
        match function.expr(id) {
            Expr::Var(name) => {
                let tensors = tensors_of(function.ty(id), span, self.extents)?;
                let stages: Vec<StageId> = tensors
                    .into_iter()
                    .map(|(shape, dtype)| self.dag.placeholder(name, &shape, dtype))
                    .collect();
                self.params.extend(&stages);
                Ok(stages)
            }
            Expr::Constant(constant) => Ok(vec![self.constant(constant, span)?]),
            Expr::Tuple(fields) => {
                let fields: Result<Vec<_>, _> = fields.iter().map(|&id| self.one(id)).collect();
                fields
            }
            Expr::TupleGet { tuple, index } => self
                .value(*tuple)
                .get(*index as usize)
                .map(|&stage| vec![stage])
                .ok_or_else(|| problem_at("a tuple has fewer fields than are read", span)),
            Expr::Call(call) => {
                let Callee::Op(op) = call.callee else {
                    return Err(problem_at("a kernel cannot call a function", span));
                };
                let reshapes = [&tensor::RESHAPE, &tensor::SQUEEZE, &tensor::EXPAND_DIMS]
                    .iter()
                    .any(|def| op.is(def));
                self.reshape_only &= reshapes;
                let args: Vec<Option<StageId>> = call
                    .args
                    .iter()
                    .map(|arg| arg.map(|arg| self.one(arg)).transpose())
                    .collect::<Result<_, _>>()?;
                let results = tensors_of(function.ty(id), span, self.extents)?;
                let open_axes = |id: &ExprId| -> Vec<usize> {
                    let first = tensor_types(function.ty(*id)).into_iter().next();
                    let dims = first.iter().flat_map(|tensor| tensor.shape.iter());
                    let open = dims.enumerate().filter(|(_, dim)| !dim.is_const());
                    open.map(|(axis, _)| axis).collect()
                };
                let open_args: Vec<Vec<usize>> = call
                    .args
                    .iter()
                    .map(|arg| arg.as_ref().map(open_axes).unwrap_or_default())
                    .collect();
                ops::compute(&mut Compute {
                    dag: &mut self.dag,
                    op,
                    attrs: &call.attrs,
                    args: &args,
                    results: &results,
                    open_axes: &open_axes(&id),
                    open_args: &open_args,
                    sizes: self.extents,
                    in_place: self.in_place,
                })
                .map_err(|error| problem_at(error.0, span))
            }
            Expr::GlobalVar(_) | Expr::If(_) | Expr::While(_) | Expr::Func(_) => {
                Err(problem_at("a kernel can contain calls of operators only", span))
            }
        }
    }

    fn constant(&mut self, constant: &Constant, span: &Span) -> Result<StageId, Problem> {
        let (shape, dtype) = static_tensor(constant.ty(), span, self.extents)?;
        let constant = &held_constant(constant);
        let elements: i64 = shape.iter().product();
        if elements != 1 {
            let stage = self.dag.placeholder("const", &shape, dtype);
            self.constants.push((stage, constant.clone()));
            return Ok(stage);
        }
        let value = if dtype.is_float() {
            constant.to_f64_vec().and_then(|v| v.first().map(|&v| PrimExpr::float(v, dtype)))
        } else {
            // The bits of a u64 beyond i64 are what the expression holds.
            constant.to_bytes().map(|bytes| {
                let mut wide = [0u8; 8];
                let len = bytes.len().min(8);
                wide[..len].copy_from_slice(&bytes[..len]);
                PrimExpr::int(i64::from_le_bytes(wide), dtype)
            })
        };
        let value = value.ok_or_else(|| {
            problem_at("a constant's elements are not known, only its digest", span)
        })?;
        Ok(self.dag.compute("const", &shape, dtype, |_, _| value))
    }
}
