//! Effects of expressions and functions.

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;

use crate::graph::{Callee, Closure, Expr, ExprId, Function, ScopeId};
use crate::ir::{Definition, GlobalVar, IRModule};
use crate::ops::tensor::TRUNCATE;
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
///
/// That a loop or a recursion may not end is no effect. A closure that calls itself has the effects
/// of its other calls.
pub fn effects(
    function: &Function,
    pure: &BTreeMap<GlobalVar, bool>,
) -> SecondaryMap<ExprId, bool> {
    // The names by which closures call themselves, and whether they have an effect otherwise.
    let mut itself: BTreeMap<ExprId, bool> = BTreeMap::new();
    let mut recursive: Vec<(ExprId, ScopeId)> = Vec::new();
    for (_, data) in function.iter() {
        if let Expr::Func(Closure { scope, recursive: Some(name), attrs: _ }) = &data.expr {
            itself.insert(*name, false);
            recursive.push((*name, *scope));
        }
    }
    loop {
        let (effects, in_scope) = effects_if(function, pure, &itself);
        let found: Vec<ExprId> = recursive
            .iter()
            .filter(|(name, scope)| in_scope[*scope] && !itself[name])
            .map(|(name, _)| *name)
            .collect();
        if found.is_empty() {
            return effects;
        }
        itself.extend(found.into_iter().map(|name| (name, true)));
    }
}

/// As [`effects`], if closures that call themselves have the effects that `itself` says; with it,
/// for each scope, whether something in it has an effect.
fn effects_if(
    function: &Function,
    pure: &BTreeMap<GlobalVar, bool>,
    itself: &BTreeMap<ExprId, bool>,
) -> (SecondaryMap<ExprId, bool>, SecondaryMap<ScopeId, bool>) {
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
                // It says what a symbol is, which types may have that are of other values.
                Callee::Op(op) => op.is(&TRUNCATE),
                Callee::Expr(callee) => match function.expr(*callee) {
                    Expr::GlobalVar(global) => !pure.get(global).copied().unwrap_or(false),
                    Expr::Func(closure) => in_scope[closure.scope],
                    Expr::Var(_) => itself.get(callee).copied().unwrap_or(true),
                    Expr::Constant(_)
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
    (effects, in_scope)
}
