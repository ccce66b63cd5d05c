//! Properties of modules that niello's passes set and need.

use cranelift_entity::SecondaryMap;

use super::types::declared;
use crate::graph::visit::is_trivial;
use crate::graph::{Callee, Expr, ExprId, Function, ScopeId};
use crate::ir::IRModule;
use crate::pass::{IrProperty, is_optimizable};

/// Functions refer to each other with the types of their definitions.
#[derive(Clone, Copy, Debug)]
pub struct Typed;

impl IrProperty for Typed {
    const NAME: &'static str = "Typed";
    const HOLDS: Option<fn(&IRModule) -> bool> = Some(types_hold);
}

/// Whether every reference to a global has the type of its definition.
pub fn types_hold(module: &IRModule) -> bool {
    module.functions().all(|(_, function)| {
        function.global_refs().iter().all(|&id| {
            let Expr::GlobalVar(global) = function.expr(id) else { return true };
            declared(module, global)
                .is_none_or(|declared| function.ty(id).as_func() == Some(&declared))
        })
    })
}

/// Every call of an operator is in a kernel: a closure or a function with the attribute
/// `Primitive`, or one for another code generator.
#[derive(Clone, Copy, Debug)]
pub struct Fused;

impl IrProperty for Fused {
    const NAME: &'static str = "Fused";
    const HOLDS: Option<fn(&IRModule) -> bool> = Some(|module| {
        module.functions().all(|(_, function)| {
            function.attrs().flag("Primitive")
                || !is_optimizable(function.attrs())
                || is_fused(function)
        })
    });
}

fn is_fused(function: &Function) -> bool {
    let kernels = kernel_scopes(function);
    let live = function.live();
    function.iter().all(|(id, data)| match data.expr.as_call() {
        Some(call) if live[id] && !kernels[data.scope] => matches!(call.callee, Callee::Expr(_)),
        _ => true,
    })
}

/// For each scope, whether it is that of a kernel or of another code generator, or within one.
pub(crate) fn kernel_scopes(function: &Function) -> SecondaryMap<ScopeId, bool> {
    let mut kernels = SecondaryMap::new();
    for (_, data) in function.iter() {
        if let Expr::Func(closure) = &data.expr
            && (closure.attrs.flag("Primitive") || closure.attrs.get("Compiler").is_some())
        {
            kernels[closure.scope] = true;
        }
    }
    for (scope, data) in function.scopes() {
        if let Some(parent) = data.parent {
            kernels[scope] |= kernels[parent];
        }
    }
    kernels
}

/// A-normal form: every live expression that is not trivial is bound, or is the result of its
/// scope. Expressions in kernels are exempt.
#[derive(Clone, Copy, Debug)]
pub struct Anf;

impl IrProperty for Anf {
    const NAME: &'static str = "ANF";
    const HOLDS: Option<fn(&IRModule) -> bool> = Some(|module| {
        module.functions().all(|(_, function)| {
            function.attrs().flag("Primitive")
                || !is_optimizable(function.attrs())
                || is_bound(function)
        })
    });
}

/// The values that scopes of live expressions bind.
pub(crate) fn bound_values(
    function: &Function,
    live: &SecondaryMap<ExprId, bool>,
) -> SecondaryMap<ExprId, bool> {
    let mut bound = SecondaryMap::with_capacity(function.len());
    for scope in live_scopes(function, live) {
        for binding in &function.scope(scope).bindings {
            bound[binding.value] = true;
        }
    }
    bound
}

/// The body, and the scopes of live expressions.
fn live_scopes<'a>(
    function: &'a Function,
    live: &'a SecondaryMap<ExprId, bool>,
) -> impl Iterator<Item = ScopeId> + 'a {
    let inner =
        function.iter().filter(|(id, _)| live[*id]).flat_map(|(_, data)| data.expr.scopes());
    std::iter::once(function.body()).chain(inner)
}

fn is_bound(function: &Function) -> bool {
    let kernels = kernel_scopes(function);
    let live = function.live();
    let mut bound = bound_values(function, &live);
    for scope in live_scopes(function, &live) {
        bound[function.scope(scope).result] = true;
    }
    function
        .iter()
        .all(|(id, data)| bound[id] || !live[id] || kernels[data.scope] || is_trivial(&data.expr))
}

/// Basic blocks: what is not trivial and is used in a scope within its own is bound. Expressions in
/// kernels are exempt.
#[derive(Clone, Copy, Debug)]
pub struct BasicBlockNormalForm;

impl IrProperty for BasicBlockNormalForm {
    const NAME: &'static str = "BasicBlockNF";
    const HOLDS: Option<fn(&IRModule) -> bool> = Some(|module| {
        module.functions().all(|(_, function)| {
            function.attrs().flag("Primitive")
                || !is_optimizable(function.attrs())
                || is_bound_across_scopes(function)
        })
    });
}

fn is_bound_across_scopes(function: &Function) -> bool {
    let kernels = kernel_scopes(function);
    let live = function.live();
    let bound = bound_values(function, &live);
    let fits = |id: ExprId, user: ScopeId| {
        let data = function.data_of(id);
        data.scope == user || bound[id] || kernels[data.scope] || is_trivial(&data.expr)
    };
    function.iter().filter(|(id, _)| live[*id]).all(|(_, data)| {
        data.expr.operands().all(|operand| fits(operand, data.scope))
            && data.expr.scopes().all(|scope| fits(function.scope(scope).result, scope))
    })
}

/// Every buffer of every loop function has one dense axis.
#[derive(Clone, Copy, Debug)]
pub struct Flattened;

impl IrProperty for Flattened {
    const NAME: &'static str = "Flattened";
    const HOLDS: Option<fn(&IRModule) -> bool> = Some(|module| {
        module.prim_funcs().all(|(_, function)| {
            let flat = |spec: &crate::ir::BufferSpec| spec.is_dense() && spec.shape().len() == 1;
            function.buffers.values().all(|buffer| flat(&buffer.spec))
        })
    });
}
