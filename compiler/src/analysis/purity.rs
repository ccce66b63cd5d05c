//! Effects of expressions and functions.

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;

use crate::graph::{Callee, Expr, ExprId, Function, ScopeId};
use crate::ir::{Definition, GlobalVar, IRModule};
use crate::pass::{Analyses, Analysis};

/// For each function of a module, whether its calls are free of effects.
#[derive(Clone, Copy, Debug)]
pub struct Pure;

impl Analysis for Pure {
    const NAME: &'static str = "Pure";
    type Unit = IRModule;
    type Output = BTreeMap<GlobalVar, bool>;

    fn compute(module: &IRModule, _: &Analyses<'_>) -> Self::Output {
        pure_functions(module)
    }
}

/// A function is pure if all its calls are. A recursive call back to a function under consideration
/// adds no effect of its own.
fn pure_functions(module: &IRModule) -> BTreeMap<GlobalVar, bool> {
    let mut pure: BTreeMap<GlobalVar, bool> = module
        .iter()
        .map(|(global, definition)| {
            // Loop functions write nothing but their outputs; external functions may do anything.
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

/// For each expression of a function, whether its evaluation has an effect; `pure` says which
/// called functions have none.
pub fn effects(
    function: &Function,
    pure: &BTreeMap<GlobalVar, bool>,
) -> SecondaryMap<ExprId, bool> {
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
                Callee::Op(_) => false,
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
