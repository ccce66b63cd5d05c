//! Constant folding.

use std::sync::Arc;

use crate::graph::{Call, Callee, Expr, ExprId, Function, Rewriter, ScopeId};
use crate::ir::{Constant, DType, Dim, IRModule, SharedBytes, TensorType, Type};
use crate::ops::nn::DROPOUT;
use crate::ops::{Effect, Op};
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

/// Largest constant, in bytes, that a fold may create if that is more than its arguments take.
///
/// Under it, folding is cheaper than the call that it removes. Over it, a broadcast of a scalar
/// would end up in the object file, element by element. Tests derive their sizes from it.
pub const MAX_GROWN_BYTES: u64 = 64 << 10;

/// Replaces calls whose arguments are constants by their values.
///
/// So are extents of tensors that are known, and fields of tuples. Nothing within a fused kernel is
/// touched, nor what draws random numbers or has state.
#[function_pass(opt_level = 2, required = [InferType])]
pub fn fold_constant(function: Function, _module: &IRModule, cx: &PassContext) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let closed = closed_scopes(&function);
    let mut rewriter = Rewriter::new(function);
    let bound = bound_constants(rewriter.old());
    for id in bound {
        rewriter.unbind(id);
    }
    while let Some(id) = rewriter.next_expr()? {
        let old = rewriter.old().clone();
        if closed[old.data_of(id).scope.as_u32() as usize] {
            continue;
        }
        match old.expr(id) {
            &Expr::TupleGet { tuple, index } => {
                let tuple = rewriter.mapped(tuple);
                if let Expr::Tuple(fields) = rewriter.builder().expr(tuple) {
                    let field = fields[index as usize];
                    rewriter.replace(field);
                }
            }
            Expr::Call(call) => fold_call(&mut rewriter, cx, id, call)?,
            Expr::Var(_)
            | Expr::GlobalVar(_)
            | Expr::Constant(_)
            | Expr::Tuple(_)
            | Expr::If(_)
            | Expr::While(_)
            | Expr::Func(_) => {}
        }
    }
    Ok(rewriter.finish()?)
}

fn fold_call(rewriter: &mut Rewriter, cx: &PassContext, id: ExprId, call: &Call) -> Result<()> {
    let Callee::Op(op) = call.callee else { return Ok(()) };
    if op.effect != Effect::Pure || call.args.iter().flatten().next().is_none() || op.is(&DROPOUT) {
        return Ok(());
    }
    let old = rewriter.old().clone();
    if let Some(constant) = known_extents(old.data_of(id).shape_value.as_ref(), old.ty(id)) {
        rewriter.unbind(id);
        rewriter.replace_with_constant(constant);
        return Ok(());
    }
    let Some(args) = rewriter.constant_args(call) else { return Ok(()) };
    if args.iter().flatten().any(Constant::is_opaque) {
        cx.missed(id, "the elements of an argument are not known, only their digest");
        return Ok(());
    }
    let grown = result_bytes(old.ty(id)).is_none_or(|bytes| {
        let given: u64 = args.iter().flatten().map(Constant::byte_len).sum();
        bytes > given.max(MAX_GROWN_BYTES)
    });
    if grown {
        cx.missed(
            id,
            format!("the result is larger than {MAX_GROWN_BYTES} bytes and than the arguments"),
        );
        return Ok(());
    }
    match cx.evaluator().eval_call(op, &call.attrs, &args) {
        Ok(values) => {
            cx.count("folded calls", 1);
            rewriter.unbind(id);
            replace_with(rewriter, old.ty(id), op, values)
        }
        Err(error) => {
            // The call may never be reached: that it cannot be computed is told when it is.
            cx.missed(id, error);
            Ok(())
        }
    }
}

fn replace_with(rewriter: &mut Rewriter, ty: &Type, op: Op, values: Vec<Constant>) -> Result<()> {
    let found = values.len();
    let mut fields = values.into_iter();
    match (ty, fields.next()) {
        (Type::Tensor(_), Some(value)) if found == 1 => rewriter.replace_with_constant(value),
        (Type::Tuple(types), first) if types.len() == found => {
            let fields: Vec<ExprId> = first
                .into_iter()
                .chain(fields)
                .map(|field| rewriter.builder().constant(field))
                .collect();
            let tuple = rewriter.builder().tuple(&fields);
            rewriter.replace(tuple);
        }
        _ => return Err(format!("`{op}` was evaluated to {found} values, but it is {ty}").into()),
    }
    Ok(())
}

/// Bytes of a tensor, or of a tuple of tensors, if they are known.
fn result_bytes(ty: &Type) -> Option<u64> {
    match ty {
        Type::Tensor(tensor) => tensor.bytes(),
        Type::Tuple(fields) => {
            fields.iter().try_fold(0u64, |sum, field| sum.checked_add(field.as_tensor()?.bytes()?))
        }
        Type::Func(_) | Type::Sequence(_) | Type::Optional(_) => None,
    }
}

/// An integer tensor whose elements are known as numbers, though its arguments may not be.
fn known_extents(value: Option<&Arc<[Dim]>>, ty: &Type) -> Option<Constant> {
    let ty: &TensorType = ty.as_tensor()?;
    let elements: Option<Vec<i64>> = value?.iter().map(Dim::as_const).collect();
    let mut bytes = Vec::new();
    for element in elements? {
        match ty.dtype {
            DType::I64 => bytes.extend(element.to_le_bytes()),
            DType::I32 => bytes.extend(i32::try_from(element).ok()?.to_le_bytes()),
            _ => return None,
        }
    }
    Constant::new(ty.clone(), SharedBytes::new(bytes)).ok()
}

/// Which scopes are those of fused kernels or of another code generator, or within one, by index.
fn closed_scopes(function: &Function) -> Vec<bool> {
    let mut closed: Vec<bool> = function.scopes().map(|_| false).collect();
    for (_, data) in function.iter() {
        if let Expr::Func(closure) = &data.expr
            && (closure.attrs.flag("Primitive") || closure.attrs.get("Compiler").is_some())
        {
            closed[closure.scope.as_u32() as usize] = true;
        }
    }
    // Each scope comes after the one around it.
    for (scope, data) in function.scopes() {
        if let Some(parent) = data.parent.map(ScopeId::as_u32) {
            closed[scope.as_u32() as usize] |= closed[parent as usize];
        }
    }
    closed
}

/// Constants that are bound, which need no name.
fn bound_constants(function: &Function) -> Vec<ExprId> {
    function
        .scopes()
        .flat_map(|(_, scope)| &scope.bindings)
        .map(|binding| binding.value)
        .filter(|&value| function.expr(value).as_constant().is_some())
        .collect()
}
