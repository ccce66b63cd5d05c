//! Copies of expressions of one function in another one that is being built.

use std::collections::BTreeMap;

use super::function::FunctionData;
use super::{Binding, Expr, ExprId, Function, FunctionBuilder, Scope, ScopeId, TypeError};
use cranelift_entity::packed_option::ReservedValue;

/// Copies expressions of a function, in their order, to a builder.
///
/// What a copied expression uses must have been copied before, or stand for something of the
/// builder ([`set`](Self::set)). Takes memory for what is copied alone: a function may have as many
/// closures as expressions.
pub(crate) struct Splice<'a> {
    from: &'a Function,
    ids: BTreeMap<ExprId, ExprId>,
    scopes: BTreeMap<ScopeId, ScopeId>,
}

impl<'a> Splice<'a> {
    /// Of expressions of `root` and of scopes within it, to the builder's current scope.
    pub(crate) fn new(from: &'a Function, root: ScopeId, b: &FunctionBuilder) -> Splice<'a> {
        let scopes = BTreeMap::from([(root, b.current_scope())]);
        Splice { from, ids: BTreeMap::new(), scopes }
    }

    /// What stands for an expression of the function.
    pub(crate) fn set(&mut self, old: ExprId, new: ExprId) {
        self.ids.insert(old, new);
    }

    /// The copy of an expression, or what stands for it.
    pub(crate) fn get(&self, old: ExprId) -> Option<ExprId> {
        self.ids.get(&old).copied()
    }

    /// The copy of an expression; of a constant or a reference to a global one is made if there is
    /// none, wherever it stands.
    fn operand(&mut self, b: &mut FunctionBuilder, old: ExprId) -> Result<ExprId, TypeError> {
        if let Some(new) = self.get(old) {
            return Ok(new);
        }
        let data = self.from.data_of(old);
        match &data.expr {
            expr @ (Expr::Constant(_) | Expr::GlobalVar(_)) => {
                let ty = (data.ty.clone(), data.shape_value.clone());
                let new = b.push_typed(expr.clone(), ty);
                Ok(new)
            }
            _ => Err(TypeError::new(format!("{old} is not defined where it is used"))),
        }
    }

    /// The copy of a scope, or the builder's scope that stands for it.
    fn scope(&mut self, b: &mut FunctionBuilder, scope: ScopeId) -> ScopeId {
        let mut missing = Vec::new();
        let mut known = scope;
        while !self.scopes.contains_key(&known) {
            missing.push(known);
            let Some(parent) = self.from.scope(known).parent else { break };
            known = parent;
        }
        for old in missing.into_iter().rev() {
            let data = self.from.scope(old);
            let new = b.data.scopes.push(Scope {
                kind: data.kind,
                parent: data.parent.and_then(|parent| self.scopes.get(&parent).copied()),
                params: Vec::new(),
                bindings: Vec::new(),
                result: ExprId::reserved_value(),
            });
            self.scopes.insert(old, new);
        }
        self.scopes[&scope]
    }

    /// Copies an expression to the copy of its scope.
    ///
    /// # Errors
    ///
    /// If the expression does not type with what its operands have become.
    pub(crate) fn copy(
        &mut self,
        b: &mut FunctionBuilder,
        old: ExprId,
    ) -> Result<ExprId, TypeError> {
        let data = self.from.data_of(old);
        let scope = self.scope(b, data.scope);
        b.within(scope, data.span.clone(), |b| self.copy_here(b, old))
    }

    /// Pushes expressions to the copy of a scope.
    pub(crate) fn within<R>(
        &mut self,
        b: &mut FunctionBuilder,
        scope: ScopeId,
        push: impl FnOnce(&mut FunctionBuilder) -> R,
    ) -> R {
        let scope = self.scope(b, scope);
        b.within(scope, crate::ir::Span::Unknown, push)
    }

    fn copy_here(&mut self, b: &mut FunctionBuilder, old: ExprId) -> Result<ExprId, TypeError> {
        let data = self.from.data_of(old);
        for scope in data.expr.scopes() {
            // A scope of nothing but its result has no expression that would have opened it.
            let new = self.scope(b, scope);
            let result = self.from.scope(scope).result;
            let result = b.within(new, data.span.clone(), |b| self.operand(b, result))?;
            self.fill(&mut b.data, scope, result);
        }
        for operand in data.expr.operands() {
            if self.get(operand).is_none() {
                let new = self.operand(b, operand)?;
                self.ids.insert(operand, new);
            }
        }
        let expr = data.expr.map(|operand| self.ids[&operand], |scope| self.scopes[&scope]);
        let new = match &data.expr {
            Expr::Var(_) | Expr::GlobalVar(_) => {
                b.push_typed(expr, (data.ty.clone(), data.shape_value.clone()))
            }
            _ => b.push(expr)?,
        };
        self.set(old, new);
        Ok(new)
    }

    /// Gives the copy of a scope its parameters, bindings and result.
    fn fill(&self, data: &mut FunctionData, scope: ScopeId, result: ExprId) {
        let old = self.from.scope(scope);
        let bindings = self.bindings(scope);
        let new = &mut data.scopes[self.scopes[&scope]];
        new.params = old.params.iter().filter_map(|&param| self.get(param)).collect();
        new.bindings = bindings;
        new.result = result;
    }

    /// The bindings of a scope, with what has been copied of it.
    pub(crate) fn bindings(&self, scope: ScopeId) -> Vec<Binding> {
        let copied = |binding: &Binding| {
            let value = self.get(binding.value)?;
            Some(Binding { name: binding.name.clone(), value })
        };
        self.from.scope(scope).bindings.iter().filter_map(copied).collect()
    }

    /// The copy of the result of the scope that the copying began with.
    ///
    /// # Errors
    ///
    /// If the result was not copied.
    pub(crate) fn result(
        &mut self,
        b: &mut FunctionBuilder,
        root: ScopeId,
    ) -> Result<ExprId, TypeError> {
        self.operand(b, self.from.scope(root).result)
    }
}

/// The live expressions of each of the given scopes, with those of the scopes within it up to the
/// next given one; in order. What stands in no given scope is left out.
pub(crate) fn regions(
    function: &Function,
    roots: impl IntoIterator<Item = ScopeId>,
) -> BTreeMap<ScopeId, Vec<ExprId>> {
    let mut members: BTreeMap<ScopeId, Vec<ExprId>> =
        roots.into_iter().map(|root| (root, Vec::new())).collect();
    let mut region: cranelift_entity::SecondaryMap<ScopeId, Option<ScopeId>> =
        cranelift_entity::SecondaryMap::new();
    for (id, scope) in function.scopes() {
        region[id] = match members.contains_key(&id) {
            true => Some(id),
            false => scope.parent.and_then(|parent| region[parent]),
        };
    }
    let live = function.live();
    for (id, data) in function.iter().filter(|(id, _)| live[*id]) {
        if let Some(members) = region[data.scope].and_then(|root| members.get_mut(&root)) {
            members.push(id);
        }
    }
    members
}
