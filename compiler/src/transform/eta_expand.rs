//! Eta expansion: references to functions, as values, become closures.

use crate::analysis::kernel_scopes;
use crate::graph::visit::used_as_values;
use crate::graph::{Call, Callee, Expr, Function, Rewriter, ScopeKind};
use crate::ir::{Attrs, IRModule};
use crate::pass::{PassContext, Result, function_pass};

/// Makes `fn (%p0) { @f(%p0) }` of a reference `@f` that is not called where it stands.
///
/// After it, a global is named in calls alone, so that whoever looks for calls of a function finds
/// all its uses. Nothing within a kernel is touched.
#[function_pass(opt_level = 1)]
pub fn eta_expand(function: Function, _module: &IRModule, cx: &PassContext) -> Result<Function> {
    if function.attrs().flag("Primitive") || function.global_refs().is_empty() {
        return Ok(function);
    }
    let values = used_as_values(&function);
    let kernels = kernel_scopes(&function);
    let mut rewriter = Rewriter::new(function);
    while let Some(id) = rewriter.next_expr()? {
        let old = rewriter.old().clone();
        if kernels[old.data_of(id).scope] {
            continue;
        }
        match old.expr(id) {
            Expr::GlobalVar(global) if values[id] => {
                let Some(ty) = old.ty(id).as_func().cloned() else { continue };
                let b = rewriter.builder();
                let scope = b.open_scope(ScopeKind::Closure);
                let params: Vec<_> = (ty.params.iter().enumerate())
                    .map(|(index, param)| b.param(&format!("p{index}"), param.clone()))
                    .collect();
                let callee = b.global(global.clone(), ty);
                let result = b.call_function(callee, &params)?;
                b.close_scope(result);
                let closure = b.closure(scope, None, Attrs::new())?;
                cx.count("expanded references", 1);
                rewriter.replace(closure);
            }
            // A call of the reference needs no closure.
            Expr::Call(Call { callee: Callee::Expr(callee), args: _, attrs: _ })
                if values[*callee] =>
            {
                let Expr::GlobalVar(global) = old.expr(*callee) else { continue };
                let Some(ty) = old.ty(*callee).as_func().cloned() else { continue };
                let Some(call) = old.expr(id).as_call() else { continue };
                let args: Vec<_> = rewriter.args(call).into_iter().flatten().collect();
                let b = rewriter.builder();
                let callee = b.global(global.clone(), ty);
                let call = b.call_function(callee, &args)?;
                rewriter.replace(call);
            }
            _ => {}
        }
    }
    Ok(rewriter.finish()?)
}
