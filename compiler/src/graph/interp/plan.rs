//! The plan of an evaluation: the expressions of each scope in order, and the last use of each
//! value.

use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;

use crate::graph::visit::{ScopeTree, captures};
use crate::graph::{Expr, ExprId, Function, ScopeId, ScopeKind};
use crate::ir::GlobalVar;

/// A function prepared for evaluation.
pub(super) struct Plan {
    pub(super) global: GlobalVar,
    pub(super) function: Function,
    /// The live expressions of each scope in order, without variables and constants: a constant is
    /// made on each use, so that no weight is held longer than its call.
    code: SecondaryMap<ScopeId, Vec<ExprId>>,
    /// The values of the same call that are not used after an expression.
    dying: SecondaryMap<ExprId, Vec<ExprId>>,
    /// Whether a value is used after it is made.
    needed: SecondaryMap<ExprId, bool>,
    /// The expressions that the closure of a scope uses from outside, in order.
    captures: SecondaryMap<ScopeId, Vec<ExprId>>,
    /// The region of each scope: the body or the closure's scope with which it is evaluated.
    regions: SecondaryMap<ScopeId, PackedOption<ScopeId>>,
    /// The slot of each expression among the values of its region.
    slots: SecondaryMap<ExprId, u32>,
    /// The number of expressions of a region.
    sizes: SecondaryMap<ScopeId, u32>,
}

impl Plan {
    /// Prepares a function.
    pub(super) fn new(global: GlobalVar, function: Function) -> Plan {
        let tree = ScopeTree::new(&function);
        let live = function.live();
        let mut plan = Plan {
            global,
            code: SecondaryMap::new(),
            dying: SecondaryMap::new(),
            needed: SecondaryMap::new(),
            captures: captures(&function, &tree),
            regions: SecondaryMap::new(),
            slots: SecondaryMap::new(),
            sizes: SecondaryMap::new(),
            function,
        };
        let function = &plan.function;
        for (id, data) in function.iter().filter(|(id, _)| live[*id]) {
            match &data.expr {
                Expr::Var(_) | Expr::Constant(_) => continue,
                Expr::Func(_)
                | Expr::GlobalVar(_)
                | Expr::Tuple(_)
                | Expr::TupleGet { .. }
                | Expr::Call(_)
                | Expr::If(_)
                | Expr::While(_) => {}
            }
            plan.code[data.scope].push(id);
        }
        // Every scope comes after the one around it.
        for (id, scope) in function.scopes() {
            let outer = scope.parent.and_then(|parent| plan.regions[parent].expand());
            let region = outer.filter(|_| scope.kind != ScopeKind::Closure).unwrap_or(id);
            plan.regions[id] = region.into();
            for &expr in tree.exprs(id) {
                plan.slots[expr] = plan.sizes[region];
                plan.sizes[region] += 1;
            }
        }
        plan.lifetimes(&tree);
        plan
    }

    /// Finds the last use of each value within its own scope; a use in a nested scope counts for
    /// the expression that owns the nested scope.
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
                // Uses come in the order of the walk, which differs from the order of ids.
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
                let data = function.scope(scope);
                note(&mut last, &path, data.result, None);
                // Values bound by the scope itself are bound when they are computed.
                let from_outside = |value: &ExprId| function.data_of(*value).scope != scope;
                let bound = data.bindings.iter().map(|binding| binding.value);
                for value in bound.filter(from_outside) {
                    note(&mut last, &path, value, None);
                }
            }
            let children = tree.children(scope);
            let Some(&child) = children.get(next) else {
                path.pop();
                continue;
            };
            stack.push((scope, next + 1));
            // A scope without an owner is never evaluated.
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

    /// The expressions of a scope to evaluate, in order.
    pub(super) fn code(&self, scope: ScopeId) -> &[ExprId] {
        &self.code[scope]
    }

    /// The values that are not used after an expression.
    pub(super) fn dying_after(&self, id: ExprId) -> &[ExprId] {
        &self.dying[id]
    }

    /// Whether the value of an expression is used.
    pub(super) fn is_needed(&self, id: ExprId) -> bool {
        self.needed[id]
    }

    /// The number of values that a call of the body, or of the closure of a scope, can have.
    pub(super) fn size(&self, region: ScopeId) -> usize {
        self.sizes[region] as usize
    }

    /// The slot of an expression among the values of a region, if it belongs to that region.
    pub(super) fn slot(&self, region: ScopeId, id: ExprId) -> Option<usize> {
        let own = self.regions[self.function.data_of(id).scope].expand();
        (own == Some(region)).then(|| self.slots[id] as usize)
    }

    /// The expressions that the closure of a scope captures, in order.
    pub(super) fn captures(&self, scope: ScopeId) -> &[ExprId] {
        &self.captures[scope]
    }
}
