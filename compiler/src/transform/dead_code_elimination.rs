//! Bindings that nothing needs.

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;

use crate::graph::{Callee, Expr, ExprId, Function, Rewriter, ScopeId, compact};
use crate::ir::{Definition, GlobalVar, IRModule};
use crate::ops::Effect;
use crate::pass::{PassContext, Result, module_pass};
use crate::transform::InferType;

crate::register_pass_config_option! {
    /// Whether a value that is used once, in the scope it is bound in, loses its name.
    pub INLINE_ONCE: bool = "relay.DeadCodeElimination.inline_once";
}

/// Drops expressions that nothing needs, and bindings whose value nothing needs and that have no
/// effect.
#[module_pass(opt_level = 1, required = [InferType], preserves = [InferType])]
pub fn dead_code_elimination(mut module: IRModule, cx: &PassContext) -> Result<IRModule> {
    let inline_once = cx.get(&INLINE_ONCE);
    let pure = pure_functions(&module);
    let before = module.clone();
    for (global, function) in before.functions() {
        if !crate::pass::is_optimizable(function.attrs()) {
            continue;
        }
        let function = without_dead_bindings(function.clone(), &pure, inline_once)?;
        module.insert(global.clone(), Definition::Graph(compact(function)));
    }
    Ok(module)
}

/// Which functions have no effect when they are called: those all of whose calls have none. A call
/// that leads back to a function under consideration adds no effect of its own.
fn pure_functions(module: &IRModule) -> BTreeMap<GlobalVar, bool> {
    let mut pure: BTreeMap<GlobalVar, bool> = module
        .iter()
        .map(|(global, definition)| {
            // Loop functions write nothing but their outputs; what is defined elsewhere may do
            // anything.
            (global.clone(), !matches!(definition, Definition::Extern(_)))
        })
        .collect();
    loop {
        let impure: Vec<GlobalVar> = module
            .functions()
            .filter(|(global, function)| {
                pure[*global] && !effects(function, &pure).iter().all(|(_, &effect)| !effect)
            })
            .map(|(global, _)| global.clone())
            .collect();
        if impure.is_empty() {
            return pure;
        }
        for global in impure {
            pure.insert(global, false);
        }
    }
}

/// Which expressions have an effect when they are evaluated.
fn effects(function: &Function, pure: &BTreeMap<GlobalVar, bool>) -> SecondaryMap<ExprId, bool> {
    let mut effects: SecondaryMap<ExprId, bool> = SecondaryMap::with_capacity(function.len());
    // Everything in a scope comes before the expression that the scope belongs to.
    let mut in_scope: SecondaryMap<ScopeId, bool> = SecondaryMap::new();
    for (id, data) in function.iter() {
        let effect = match &data.expr {
            Expr::Var(_)
            | Expr::GlobalVar(_)
            | Expr::Constant(_)
            | Expr::Tuple(_)
            | Expr::TupleGet { .. }
            // A closure has its effects when it is called.
            | Expr::Func(_) => false,
            Expr::Call(call) => match &call.callee {
                Callee::Op(op) => op.effect == Effect::Stateful,
                Callee::Expr(callee) => match function.expr(*callee) {
                    Expr::GlobalVar(global) => !pure.get(global).copied().unwrap_or(false),
                    Expr::Func(closure) => in_scope[closure.scope],
                    Expr::Var(_)
                    | Expr::Constant(_)
                    | Expr::Tuple(_)
                    | Expr::TupleGet { .. }
                    | Expr::Call(_)
                    | Expr::If(_)
                    | Expr::While(_) => true,
                },
            },
            Expr::If(_) | Expr::While(_) => data.expr.scopes().any(|scope| in_scope[scope]),
        };
        effects[id] = effect;
        in_scope[data.scope] |= effect;
    }
    effects
}

fn without_dead_bindings(
    function: Function,
    pure: &BTreeMap<GlobalVar, bool>,
    inline_once: bool,
) -> Result<Function> {
    let bindings: Vec<(ScopeId, ExprId)> = function
        .scopes()
        .flat_map(|(id, scope)| scope.bindings.iter().map(move |binding| (id, binding.value)))
        .collect();
    if bindings.is_empty() {
        return Ok(function);
    }
    let effects = effects(&function, pure);
    let Uses { needed, count, only_user } = uses(&function, &effects);
    let mut rewriter = Rewriter::new(function);
    for (scope, value) in bindings {
        let dead = !needed[value];
        let inline =
            inline_once && !effects[value] && count[value] == 1 && only_user[value] == Some(scope);
        if dead || inline {
            rewriter.unbind(value);
        }
    }
    Ok(rewriter.finish()?)
}

/// What needs what.
struct Uses {
    /// Whether a result or an effect needs the expression.
    needed: SecondaryMap<ExprId, bool>,
    /// How often needed expressions use it.
    count: SecondaryMap<ExprId, u32>,
    /// The scope of the last of those uses.
    only_user: SecondaryMap<ExprId, Option<ScopeId>>,
}

fn uses(function: &Function, effects: &SecondaryMap<ExprId, bool>) -> Uses {
    let mut uses = Uses {
        needed: SecondaryMap::with_capacity(function.len()),
        count: SecondaryMap::with_capacity(function.len()),
        only_user: SecondaryMap::with_capacity(function.len()),
    };
    let enter = |uses: &mut Uses, scope: ScopeId| {
        let data = function.scope(scope);
        for binding in data.bindings.iter().filter(|binding| effects[binding.value]) {
            uses.needed[binding.value] = true;
        }
        for &param in &data.params {
            uses.needed[param] = true;
        }
        uses.needed[data.result] = true;
        uses.count[data.result] += 1;
        uses.only_user[data.result] = Some(scope);
    };
    enter(&mut uses, function.body());
    for id in function.ids().rev() {
        if !uses.needed[id] {
            continue;
        }
        let data = function.data_of(id);
        for operand in data.expr.operands() {
            uses.needed[operand] = true;
            uses.count[operand] += 1;
            uses.only_user[operand] = Some(data.scope);
        }
        for scope in data.expr.scopes() {
            enter(&mut uses, scope);
        }
        if let Expr::Func(closure) = &data.expr
            && let Some(recursive) = closure.recursive
        {
            uses.needed[recursive] = true;
        }
    }
    uses
}
