//! Functions that are marked to be inlined.

use std::collections::{BTreeMap, BTreeSet};

use crate::analysis::CallGraph;
use crate::arith::Facts;
use crate::graph::visit::used_as_values;
use crate::graph::{
    Binding, Call, Callee, Expr, ExprId, Function, Rewriter, ScopeKind, Splice, regions,
};
use crate::ir::{Definition, GlobalVar, IRModule};
use crate::pass::{PassContext, Result, is_optimizable, module_pass};
use crate::transform::InferType;

/// Expressions that a function may have after calls in it were replaced. Functions that call each
/// other twice double with each call, and models come from users.
const MAX_EXPRS: usize = 1 << 22;

/// Puts the body of a function with the attribute `Inline` where it is called.
///
/// Callees come first, so that chains of such functions become one. A reference to such a function
/// that is not called becomes a closure. Functions that call themselves, directly or through others,
/// and those for other code generators stay; the others go when nothing refers to them any more.
#[module_pass(opt_level = 1, required = [InferType])]
pub fn inline(mut module: IRModule, cx: &PassContext) -> Result<IRModule> {
    let is_marked =
        |function: &Function| function.attrs().flag("Inline") && is_optimizable(function.attrs());
    if !module.functions().any(|(_, function)| is_marked(function)) {
        return Ok(module);
    }
    let calls = cx.analysis::<CallGraph>(&module);
    let mut bodies: BTreeMap<GlobalVar, Function> = BTreeMap::new();
    let mut called: BTreeSet<GlobalVar> = BTreeSet::new();
    for group in calls.groups() {
        for global in &group {
            called.extend(calls.callees(global).iter().cloned());
            let Some(function) = module.get(global).and_then(Definition::as_graph).cloned() else {
                continue;
            };
            let function = match is_optimizable(function.attrs()) {
                true => inline_calls(function, &bodies, cx)?,
                false => function,
            };
            let is_recursive = group.len() > 1 || calls.callees(global).contains(global);
            if is_marked(&function) {
                match is_recursive {
                    true => cx.missed_in(&function, function.result(), "the function is recursive"),
                    false => {
                        bodies.insert(global.clone(), function.clone());
                    }
                }
            }
            module.insert(global.clone(), Definition::Graph(function));
        }
    }
    let mut used: BTreeSet<GlobalVar> = BTreeSet::new();
    for (_, function) in module.functions() {
        let refs = function.global_refs().iter().map(|&id| function.expr(id));
        used.extend(refs.filter_map(|expr| match expr {
            Expr::GlobalVar(global) => Some(global.clone()),
            _ => None,
        }));
    }
    let is_gone = |global: &GlobalVar| {
        bodies.contains_key(global) && called.contains(global) && !used.contains(global)
    };
    module.retain(|global, _| !is_gone(global));
    Ok(module)
}

fn inline_calls(
    function: Function,
    bodies: &BTreeMap<GlobalVar, Function>,
    cx: &PassContext,
) -> Result<Function> {
    let body_of = |function: &Function, id: ExprId| match function.expr(id) {
        Expr::GlobalVar(global) => bodies.get(global).cloned(),
        _ => None,
    };
    if !function.global_refs().iter().any(|&id| body_of(&function, id).is_some()) {
        return Ok(function);
    }
    let values = used_as_values(&function);
    let mut rewriter = Rewriter::new(function.clone());
    while let Some(id) = rewriter.next_expr()? {
        let refused = |body: &Function| {
            if rewriter.built().len() + body.len() > MAX_EXPRS {
                Some("the caller would have too many expressions")
            } else if body.facts() != function.facts() && *body.facts() != Facts::dims() {
                Some("the caller does not know the same of the symbols in the types")
            } else {
                None
            }
        };
        match function.expr(id) {
            Expr::Call(call @ Call { callee: Callee::Expr(callee), .. }) => {
                let Some(body) = body_of(&function, *callee) else { continue };
                if let Some(why) = refused(&body) {
                    cx.missed_in(&function, id, why);
                    continue;
                }
                let args: Vec<ExprId> = rewriter.args(call).into_iter().flatten().collect();
                let (result, bindings) = copy_body(&mut rewriter, &body, &args)?;
                rewriter.insert_bindings(bindings);
                cx.count("inlined calls", 1);
                rewriter.replace(result);
            }
            Expr::GlobalVar(_) if values[id] => {
                let Some(body) = body_of(&function, id).filter(|body| refused(body).is_none())
                else {
                    continue;
                };
                let b = rewriter.builder();
                let scope = b.open_scope(ScopeKind::Closure);
                let params = body.params().iter().map(|&param| {
                    let name = body.var_name(param).unwrap_or("p");
                    b.param(name, body.ty(param).clone())
                });
                let params: Vec<ExprId> = params.collect();
                let (result, bindings) = copy_body(&mut rewriter, &body, &params)?;
                let b = rewriter.builder();
                for binding in bindings {
                    b.bind(&binding.name, binding.value);
                }
                b.close_scope(result);
                let closure = b.closure(scope, None, body.attrs().clone().without("Inline"))?;
                rewriter.replace(closure);
            }
            _ => {}
        }
    }
    Ok(rewriter.finish()?)
}

/// Copies a function's body to the current scope; its result, and the bindings of the body.
fn copy_body(
    rewriter: &mut Rewriter,
    body: &Function,
    args: &[ExprId],
) -> Result<(ExprId, Vec<Binding>)> {
    let root = body.body();
    let mut splice = Splice::new(body, root, rewriter.built());
    for (&param, &arg) in body.params().iter().zip(args) {
        splice.set(param, arg);
    }
    for &member in regions(body, [root]).get(&root).into_iter().flatten() {
        if splice.get(member).is_none() {
            splice.copy(rewriter.builder(), member)?;
        }
    }
    let result = splice.result(rewriter.builder(), root)?;
    Ok((result, splice.bindings(root)))
}
