//! What to evaluate in each scope, in which order, and when values are needed no longer.

use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;

use crate::graph::visit::{ScopeTree, free_vars};
use crate::graph::{Expr, ExprId, Function, ScopeId};
use crate::ir::GlobalVar;

/// A function made ready for evaluation.
pub(super) struct Plan {
    pub(super) global: GlobalVar,
    pub(super) function: Function,
    /// The live expressions of each scope in order, without variables and constants: a constant is
    /// made where it is used, so that no weight is held longer than its call.
    code: SecondaryMap<ScopeId, Vec<ExprId>>,
    /// Values of the same call that nothing needs after an expression.
    dying: SecondaryMap<ExprId, Vec<ExprId>>,
    /// Values that something needs after they are made.
    needed: SecondaryMap<ExprId, bool>,
    /// What the closure of a scope uses from outside, in order.
    captures: SecondaryMap<ScopeId, Vec<ExprId>>,
    /// The first expression in each scope or within it.
    first: SecondaryMap<ScopeId, PackedOption<ExprId>>,
}

impl Plan {
    /// Makes a function ready.
    pub(super) fn new(global: GlobalVar, function: Function) -> Plan {
        let tree = ScopeTree::new(&function);
        let live = function.live();
        let mut plan = Plan {
            global,
            code: SecondaryMap::new(),
            dying: SecondaryMap::new(),
            needed: SecondaryMap::new(),
            captures: SecondaryMap::new(),
            first: SecondaryMap::new(),
            function,
        };
        let function = &plan.function;
        for (id, data) in function.iter().filter(|(id, _)| live[*id]) {
            match &data.expr {
                Expr::Var(_) | Expr::Constant(_) => continue,
                Expr::Func(closure) => {
                    plan.captures[closure.scope] = free_vars(function, &tree, &live, closure.scope);
                }
                Expr::GlobalVar(_)
                | Expr::Tuple(_)
                | Expr::TupleGet { .. }
                | Expr::Call(_)
                | Expr::If(_)
                | Expr::While(_) => {}
            }
            plan.code[data.scope].push(id);
        }
        // Every scope comes after the one around it.
        let scopes: Vec<ScopeId> = function.scopes().map(|(scope, _)| scope).collect();
        for &scope in scopes.iter().rev() {
            let own = tree.exprs(scope).first().copied();
            let inner = tree.children(scope).iter().filter_map(|&inner| plan.first[inner].expand());
            plan.first[scope] = own.into_iter().chain(inner).min().into();
        }
        plan.lifetimes(&tree);
        plan
    }

    /// Finds the last use of each value: within its own scope, that of an expression with scopes
    /// that use it.
    fn lifetimes(&mut self, tree: &ScopeTree) {
        let function = &self.function;
        let mut last: SecondaryMap<ExprId, PackedOption<ExprId>> = SecondaryMap::new();
        let mut results: SecondaryMap<ExprId, bool> = SecondaryMap::new();
        // One walk of the tree. `path` has the expression whose scope is open at each depth.
        let mut path: Vec<ExprId> = Vec::new();
        let mut stack = vec![(function.body(), 0)];
        let mut note = |last: &mut SecondaryMap<ExprId, PackedOption<ExprId>>,
                        path: &[ExprId],
                        value: ExprId,
                        user: Option<ExprId>| {
            let depth = tree.depth(function.data_of(value).scope) as usize;
            match path.get(depth).copied().or(user) {
                // Uses come in the order of the walk, which is not that of the ids.
                Some(user) => {
                    if last[value].expand().is_none_or(|known| known < user) {
                        last[value] = user.into();
                    }
                }
                None => results[value] = true,
            }
        };
        while let Some((scope, next)) = stack.pop() {
            if next == 0 {
                for &id in &self.code[scope] {
                    for operand in function.expr(id).operands() {
                        note(&mut last, &path, operand, Some(id));
                    }
                }
                note(&mut last, &path, function.scope(scope).result, None);
            }
            let children = tree.children(scope);
            let Some(&child) = children.get(next) else {
                path.pop();
                continue;
            };
            stack.push((scope, next + 1));
            // A scope that lost its expression is never evaluated.
            if let Some(owner) = tree.owner(child) {
                path.push(owner);
                stack.push((child, 0));
            }
        }
        for (id, _) in function.iter() {
            self.needed[id] = results[id] || last[id].is_some();
            if let Some(user) = last[id].expand()
                && !results[id]
            {
                self.dying[user].push(id);
            }
        }
    }

    /// What to evaluate in a scope, in order.
    pub(super) fn code(&self, scope: ScopeId) -> &[ExprId] {
        &self.code[scope]
    }

    /// Values that nothing needs after an expression.
    pub(super) fn dying_after(&self, id: ExprId) -> &[ExprId] {
        &self.dying[id]
    }

    /// Whether anything needs the value of an expression.
    pub(super) fn is_needed(&self, id: ExprId) -> bool {
        self.needed[id]
    }

    /// The first expression in a scope or within it, if there is any.
    pub(super) fn first(&self, scope: ScopeId) -> Option<ExprId> {
        self.first[scope].expand()
    }

    /// What the closure of a scope captures, in order.
    pub(super) fn captures(&self, scope: ScopeId) -> &[ExprId] {
        &self.captures[scope]
    }
}
