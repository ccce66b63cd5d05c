//! Removal of unused expressions and bindings.

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;

use crate::analysis::{Pure, effects};
use crate::graph::{Expr, ExprId, Function, Rewriter, ScopeId, compact};
use crate::ir::{Definition, GlobalVar, IRModule};
use crate::pass::{PassContext, Result, module_pass};
use crate::transform::InferType;

crate::register_pass_config_option! {
    /// Whether to inline a value that is used once, in the scope of its binding.
    pub INLINE_ONCE: bool = "relay.DeadCodeElimination.inline_once";
}

/// Drops unused expressions, and bindings without effect whose value is unused.
///
/// Calls of external functions have effects, and calls of functions that make such calls. Whether a
/// recursion or a loop ends is not asked: an unused call of a function that calls itself, directly or
/// through others, goes if none of them has another effect. Nothing is said of functions that are
/// not called; [`RemoveUnusedFunctions`](super::RemoveUnusedFunctions) removes those.
#[module_pass(opt_level = 1, required = [InferType], preserves = [InferType])]
pub fn dead_code_elimination(mut module: IRModule, cx: &PassContext) -> Result<IRModule> {
    let inline_once = cx.get(&INLINE_ONCE);
    let pure = cx.analysis::<Pure>(&module);
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
        // A binding of a variable computes nothing: uses name the variable itself.
        let dead = !needed[value] || matches!(rewriter.old().expr(value), Expr::Var(_));
        let inline =
            inline_once && !effects[value] && count[value] == 1 && only_user[value] == Some(scope);
        if dead || inline {
            rewriter.unbind(value);
        }
    }
    Ok(rewriter.finish()?)
}

/// The uses of the expressions of a function.
struct Uses {
    /// Whether a result or an effect needs the expression.
    needed: SecondaryMap<ExprId, bool>,
    /// The number of uses by needed expressions.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::ScopeKind;
    use crate::ir::{Attrs, ExternFunction, FuncType, Type};
    use crate::pass::{Pass, PassBody};
    use crate::transform::tests::support::{Net, after, after_in};

    fn names(function: &Function, scope: ScopeId) -> Vec<&str> {
        function.scope(scope).bindings.iter().map(|binding| &*binding.name).collect()
    }

    #[test]
    fn unused_bindings_are_removed() {
        let mut net = Net::default();
        let (x, d) = (net.input("x", &[2]), net.input("d", &[2]));
        let a = net.op("nn.relu", &[x]);
        net.0.bind("a", a);
        let unused = net.op("exp", &[a]);
        net.0.bind("unused", unused);
        let used = net.op("nn.relu", &[d]);
        net.0.bind("used", used);
        let twice = net.op("add", &[used, used]);
        let function = after(&DeadCodeElimination, net.finish(twice));
        assert_eq!(names(&function, function.body()), ["used"]);
        assert_eq!((function.params().len(), function.len()), (2, 4));
    }

    #[test]
    fn a_value_used_once_is_inlined_but_not_into_a_function() {
        let mut net = Net::default();
        let one = net.scalar(1.0);
        let x = net.op("add", &[one, one]);
        net.0.bind("x", x);
        let scope = net.0.open_scope(ScopeKind::Closure);
        let y = net.input("y", &[]);
        let z = net.op("add", &[y, y]);
        net.0.bind("z", z);
        let sum = net.op("add", &[x, z]);
        net.0.close_scope(sum);
        let f = net.0.closure(scope, None, Attrs::new()).unwrap();
        net.0.bind("f", f);
        let calls: Vec<ExprId> = (0..2).map(|_| net.0.call_function(f, &[one]).unwrap()).collect();
        let both = net.0.tuple(&calls);
        let cx = PassContext::builder().config(&INLINE_ONCE, true).build().unwrap();
        let function = after_in(&DeadCodeElimination, net.finish(both), &cx);
        assert_eq!(names(&function, function.body()), ["x", "f"]);
        let closure = function.iter().find_map(|(_, data)| data.expr.scopes().next()).unwrap();
        assert!(names(&function, closure).is_empty());
    }

    #[test]
    fn calls_with_effects_stay_even_through_other_functions() {
        let ty = FuncType { params: vec![], ret: Type::tuple([]) };
        let callee = |global: &str| {
            let mut net = Net::default();
            let callee = net.0.global(GlobalVar::new(global), ty.clone());
            let call = net.0.call_function(callee, &[]).unwrap();
            net.0.bind("_", call);
            let unit = net.0.tuple(&[]);
            net.finish(unit)
        };
        let mut module = IRModule::from_function(callee("outer"));
        module.insert(GlobalVar::new("outer"), Definition::Graph(callee("effect")));
        let effect = ExternFunction { ty: ty.clone(), attrs: Attrs::new() };
        module.insert(GlobalVar::new("effect"), Definition::Extern(effect.into()));
        assert!(DeadCodeElimination.apply(module.clone()).unwrap().same(&module));

        // Without the effect nothing of the call stays.
        let mut net = Net::default();
        let unit = net.0.tuple(&[]);
        module.insert(GlobalVar::new("effect"), Definition::Graph(net.finish(unit)));
        let after = DeadCodeElimination.apply(module).unwrap();
        assert!(after.functions().all(|(_, function)| function.len() == 1));
    }

    #[test]
    fn functions_that_call_each_other_without_effect_are_pure() {
        let ty = FuncType { params: vec![], ret: Type::tuple([]) };
        let mut net = Net::default();
        let callee = net.0.global(GlobalVar::new("main"), ty);
        let call = net.0.call_function(callee, &[]).unwrap();
        net.0.bind("_", call);
        let unit = net.0.tuple(&[]);
        let function = after(&DeadCodeElimination, net.finish(unit));
        assert_eq!(function.len(), 1);
    }

    #[test]
    fn without_dead_code_the_handle_is_the_same() {
        let mut net = Net::default();
        let mut x = net.input("x", &[2]);
        for _ in 0..100_000 {
            x = net.op("nn.relu", &[x]);
        }
        let function = net.finish(x);
        assert!(after(&DeadCodeElimination, function.clone()).same(&function));
        assert_eq!(DeadCodeElimination.info().opt_level(), 1);
    }
}
