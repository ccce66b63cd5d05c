//! Types of expressions, from the types of their operands.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use super::function::FunctionData;
use super::{Call, Callee, Closure, Expr, If, ScopeId, While};
use crate::ir::{Constant, DType, Dim, FuncType, Type};
use crate::ops::{self, InferArg, InferCx, InputKind, Op};

/// Elements above which an integer constant no longer carries its value as dimensions.
///
/// Shapes, axes, pads and slice bounds stay far below it; larger integer tensors are weights, which
/// must not become expressions one by one.
pub(crate) const MAX_SHAPE_VALUE: u64 = 64;

/// The error of an expression that has no type.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TypeError {
    message: String,
}

impl TypeError {
    /// An error of that message.
    pub fn new(message: impl Into<String>) -> TypeError {
        TypeError { message: message.into() }
    }
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for TypeError {}

/// A type, and the value of a small integer tensor as dimensions where it is known.
pub(super) type Typed = (Type, Option<Arc<[Dim]>>);

/// Dimensions that a relation needs to be equal, and that may be.
pub(super) type Equations = RefCell<Vec<(Dim, Dim)>>;

/// Computes the type of an expression from its operands. Variables and globals have declared types
/// instead. Dimensions of which it is not known whether they are equal are equal, and `equal` has them
/// afterwards; without that list they are different.
pub(super) fn infer(
    data: &FunctionData,
    expr: &Expr,
    equal: Option<&Equations>,
) -> Result<Typed, TypeError> {
    let ty = match expr {
        Expr::Var(_) | Expr::GlobalVar(_) => {
            return Err(TypeError::new("the type of a variable or a global must be declared"));
        }
        Expr::Constant(constant) => {
            let small = constant.ty().num_elements().is_some_and(|n| n <= MAX_SHAPE_VALUE);
            let value = small.then(|| shape_value(constant)).flatten();
            return Ok((constant.ty().clone().into(), value));
        }
        Expr::Tuple(fields) => Type::tuple(fields.iter().map(|&id| data.exprs[id].ty.clone())),
        Expr::TupleGet { tuple, index } => {
            let ty = &data.exprs[*tuple].ty;
            let fields =
                ty.as_tuple().ok_or_else(|| TypeError::new(format!("{ty} has no fields")))?;
            fields.get(*index as usize).cloned().ok_or_else(|| {
                TypeError::new(format!("field {index} of a tuple of {} fields", fields.len()))
            })?
        }
        Expr::Call(call) => return infer_call(data, call, equal),
        Expr::If(If { cond, then_scope, else_scope }) => {
            expect_condition(&data.exprs[*cond].ty)?;
            let (yes, no) = (result_type(data, *then_scope), result_type(data, *else_scope));
            if yes != no {
                return Err(TypeError::new(format!(
                    "the branches have different types: {yes} and {no}"
                )));
            }
            yes.clone()
        }
        Expr::While(While { init, cond, body }) => {
            let state: Vec<Type> = init.iter().map(|&id| data.exprs[id].ty.clone()).collect();
            for (scope, what) in [(*cond, "condition"), (*body, "body")] {
                let params = param_types(data, scope);
                if params != state {
                    return Err(TypeError::new(format!(
                        "the loop's state is {:?}, but its {what} takes {params:?}",
                        Type::tuple(state)
                    )));
                }
            }
            expect_condition(result_type(data, *cond))?;
            let (next, state) = (result_type(data, *body), Type::tuple(state));
            if *next != state {
                return Err(TypeError::new(format!(
                    "the loop's state is {state}, but its body yields {next}"
                )));
            }
            state
        }
        Expr::Func(Closure { scope, recursive, attrs: _ }) => {
            let ty = Type::Func(Arc::new(FuncType {
                params: param_types(data, *scope),
                ret: result_type(data, *scope).clone(),
            }));
            if let Some(recursive) = recursive
                && data.exprs[*recursive].ty != ty
            {
                return Err(TypeError::new(format!(
                    "a recursive closure is declared as {}, but it is {ty}",
                    data.exprs[*recursive].ty
                )));
            }
            ty
        }
    };
    Ok((ty, None))
}

/// The value of a small constant, if it holds integers or floats that are such.
fn shape_value(constant: &Constant) -> Option<Arc<[Dim]>> {
    let dtype = constant.ty().dtype;
    if dtype.is_int() {
        return constant.to_i64_vec().map(|dims| dims.into_iter().map(Dim::from).collect());
    }
    let whole = |value: f64| (value.fract() == 0.0).then_some(Dim::from(value as i64));
    let values = matches!(dtype, DType::F32 | DType::F64).then(|| constant.to_f64_vec())??;
    let dims: Option<Vec<Dim>> = values.into_iter().map(whole).collect();
    ops::values::checked(dims?, dtype).map(Arc::from)
}

fn result_type(data: &FunctionData, scope: ScopeId) -> &Type {
    &data.exprs[data.scopes[scope].result].ty
}

fn param_types(data: &FunctionData, scope: ScopeId) -> Vec<Type> {
    data.scopes[scope].params.iter().map(|&id| data.exprs[id].ty.clone()).collect()
}

fn expect_condition(ty: &Type) -> Result<(), TypeError> {
    if *ty == Type::tensor(&[], DType::Bool) {
        return Ok(());
    }
    Err(TypeError::new(format!("a condition must be a boolean scalar, but it is {ty}")))
}

fn infer_call(
    data: &FunctionData,
    call: &Call,
    equal: Option<&Equations>,
) -> Result<Typed, TypeError> {
    match &call.callee {
        Callee::Op(op) => infer_op(data, *op, call, equal),
        Callee::Expr(callee) => {
            let ty = &data.exprs[*callee].ty;
            let func =
                ty.as_func().ok_or_else(|| TypeError::new(format!("{ty} cannot be called")))?;
            if func.params.len() != call.args.len() {
                return Err(TypeError::new(format!(
                    "the function takes {} arguments, but {} are given",
                    func.params.len(),
                    call.args.len()
                )));
            }
            for (index, (param, arg)) in func.params.iter().zip(&call.args).enumerate() {
                let Some(arg) = arg else {
                    return Err(TypeError::new(format!("argument {index} is missing")));
                };
                let arg = &data.exprs[*arg].ty;
                if param != arg {
                    return Err(TypeError::new(format!(
                        "argument {index} must be {param}, but it is {arg}"
                    )));
                }
            }
            Ok((func.ret.clone(), None))
        }
    }
}

fn infer_op(
    data: &FunctionData,
    op: Op,
    call: &Call,
    equal: Option<&Equations>,
) -> Result<Typed, TypeError> {
    check_arity(op, &call.args)?;
    let args: Vec<Option<InferArg<'_>>> = call
        .args
        .iter()
        .map(|arg| {
            arg.map(|id| {
                let arg = &data.exprs[id];
                InferArg {
                    ty: &arg.ty,
                    shape_value: arg.shape_value.as_deref(),
                    constant: arg.expr.as_constant(),
                }
            })
        })
        .collect();
    let cx =
        InferCx { op: op.definition(), args: &args, attrs: &call.attrs, facts: &data.facts, equal };
    let ty = ops::infer(&cx)?;
    let value = op.shape_value.and_then(|shape_value| shape_value(&cx));
    Ok((ty, value.filter(|v| v.len() as u64 <= MAX_SHAPE_VALUE).map(Into::into)))
}

/// Checks that an operator can have these arguments, of which some are absent.
pub(super) fn check_arity<T>(op: Op, args: &[Option<T>]) -> Result<(), TypeError> {
    let variadic = op.inputs.last().is_some_and(|input| input.kind == InputKind::Variadic);
    if args.len() > op.inputs.len() && !variadic {
        return Err(TypeError::new(format!(
            "`{op}` takes at most {} inputs, but {} are given",
            op.inputs.len(),
            args.len()
        )));
    }
    for (index, input) in op.inputs.iter().enumerate() {
        let given = args.get(index).is_some_and(Option::is_some);
        if !given && input.kind != InputKind::Optional {
            return Err(TypeError::new(format!("input `{}` of `{op}` is missing", input.name)));
        }
    }
    if variadic && args.iter().skip(op.inputs.len()).any(Option::is_none) {
        return Err(TypeError::new(format!("an input of `{op}` is missing")));
    }
    Ok(())
}
