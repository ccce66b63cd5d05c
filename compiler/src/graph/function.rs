//! Functions: one arena of expressions, and the scopes they stand in.

use std::sync::{Arc, OnceLock};

use cranelift_entity::{PrimaryMap, SecondaryMap};

use super::{Expr, ExprId, ScopeId};
use crate::arith::Facts;
use crate::ir::{Attrs, Dim, FuncType, Identity, Span, Type};

/// An expression with its type, scope and span.
#[derive(Clone, Debug)]
pub struct ExprData {
    /// The expression.
    pub expr: Expr,
    /// Its type, computed from its operands' when it was pushed.
    pub ty: Type,
    /// The elements, row-major, of a small integer tensor whose elements are known as dimensions.
    pub shape_value: Option<Arc<[Dim]>>,
    /// The scope that contains it.
    pub scope: ScopeId,
    /// The origin in the source.
    pub span: Span,
}

/// The kind of expression that a scope belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ScopeKind {
    /// The function itself.
    Body,
    /// A closure.
    Closure,
    /// One branch of an `If`.
    Branch,
    /// The condition or the body of a `While`.
    Loop,
}

/// `let %name = value;`: fixes when a value is computed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Binding {
    /// The name it prints as.
    pub name: Arc<str>,
    /// The bound expression. Uses refer to it by its own id, not to the binding.
    pub value: ExprId,
}

/// A scope of expressions, which may use expressions of the same scope and of enclosing ones.
#[derive(Clone, Debug)]
pub struct Scope {
    /// What the scope belongs to.
    pub kind: ScopeKind,
    /// The scope around it.
    pub parent: Option<ScopeId>,
    /// Its parameters, all of them `Var`s.
    pub params: Vec<ExprId>,
    /// Bindings, in the order in which they are computed. Expressions without a binding are pure,
    /// and shared.
    pub bindings: Vec<Binding>,
    /// The value of the scope.
    pub result: ExprId,
}

#[derive(Clone, Debug)]
pub(super) struct FunctionData {
    pub(super) exprs: PrimaryMap<ExprId, ExprData>,
    pub(super) scopes: PrimaryMap<ScopeId, Scope>,
    pub(super) attrs: Attrs,
    pub(super) facts: Facts,
    /// Computed on first use; the expressions never change.
    pub(super) global_refs: OnceLock<Arc<[ExprId]>>,
}

/// A function of the graph IR. A cheap handle to data that never changes: edits make new ones.
#[derive(Clone, Debug)]
pub struct Function(Arc<FunctionData>);

impl Function {
    pub(super) fn from_data(data: FunctionData) -> Function {
        Function(Arc::new(data))
    }

    pub(super) fn data(&self) -> &FunctionData {
        &self.0
    }

    /// Whether both are the same handle, and so certainly equal.
    pub fn same(&self, other: &Function) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// An identity that no other data has as long as this handle or a clone exists.
    pub(crate) fn identity(&self) -> Identity {
        Identity::of(&self.0)
    }

    /// Number of expressions, dead ones included.
    pub fn len(&self) -> usize {
        self.0.exprs.len()
    }

    /// Whether there are no expressions; never so for a function that was built.
    pub fn is_empty(&self) -> bool {
        self.0.exprs.is_empty()
    }

    /// Expressions in topological order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = ExprId> + ExactSizeIterator + use<> {
        (0..self.0.exprs.len() as u32).map(ExprId::from_u32)
    }

    /// Expressions with their data, in topological order.
    pub fn iter(&self) -> impl Iterator<Item = (ExprId, &ExprData)> {
        self.0.exprs.iter()
    }

    /// An expression with its data.
    pub fn data_of(&self, id: ExprId) -> &ExprData {
        &self.0.exprs[id]
    }

    /// An expression.
    pub fn expr(&self, id: ExprId) -> &Expr {
        &self.0.exprs[id].expr
    }

    /// The type of an expression.
    pub fn ty(&self, id: ExprId) -> &Type {
        &self.0.exprs[id].ty
    }

    /// The origin of an expression in the source.
    pub fn span(&self, id: ExprId) -> &Span {
        &self.0.exprs[id].span
    }

    /// The outermost scope: the function's body.
    pub fn body(&self) -> ScopeId {
        ScopeId::from_u32(0)
    }

    /// A scope.
    pub fn scope(&self, id: ScopeId) -> &Scope {
        &self.0.scopes[id]
    }

    /// Scopes, each after the one around it.
    pub fn scopes(&self) -> impl Iterator<Item = (ScopeId, &Scope)> {
        self.0.scopes.iter()
    }

    /// The function's parameters.
    pub fn params(&self) -> &[ExprId] {
        &self.scope(self.body()).params
    }

    /// The function's result.
    pub fn result(&self) -> ExprId {
        self.scope(self.body()).result
    }

    /// Attributes such as `Primitive` and `Compiler`.
    pub fn attrs(&self) -> &Attrs {
        &self.0.attrs
    }

    /// The facts about the symbols in the function's types.
    pub fn facts(&self) -> &Facts {
        &self.0.facts
    }

    /// The function with other attributes. With the same ones, the same handle.
    #[must_use]
    pub fn with_attrs(self, attrs: Attrs) -> Function {
        if self.0.attrs == attrs {
            return self;
        }
        let mut function = self;
        Arc::make_mut(&mut function.0).attrs = attrs;
        function
    }

    /// Parameter and result types.
    pub fn func_type(&self) -> FuncType {
        FuncType {
            params: self.params().iter().map(|&param| self.ty(param).clone()).collect(),
            ret: self.ty(self.result()).clone(),
        }
    }

    /// The name under which a variable prints, without the `%`; `None` for other expressions.
    pub fn var_name(&self, id: ExprId) -> Option<&str> {
        if let Expr::Var(name) = self.expr(id) { Some(name) } else { None }
    }

    /// The expressions that name a definition of the module, in order.
    pub fn global_refs(&self) -> &[ExprId] {
        self.0.global_refs.get_or_init(|| {
            let refs = self.iter().filter(|(_, data)| matches!(data.expr, Expr::GlobalVar(_)));
            refs.map(|(id, _)| id).collect()
        })
    }

    /// Which expressions are live: needed by the result, the bindings or the parameters.
    pub fn live(&self) -> SecondaryMap<ExprId, bool> {
        live(&self.0)
    }

    /// How often each expression is used by live expressions, bindings not counted; the result of a
    /// scope counts as one use.
    pub fn use_counts(&self) -> SecondaryMap<ExprId, u32> {
        self.use_counts_among(&self.live())
    }

    /// As [`use_counts`](Self::use_counts), given the live expressions.
    pub(crate) fn use_counts_among(
        &self,
        live: &SecondaryMap<ExprId, bool>,
    ) -> SecondaryMap<ExprId, u32> {
        let mut counts = SecondaryMap::with_capacity(self.len());
        counts[self.result()] += 1;
        for (_, data) in self.iter().filter(|(id, _)| live[*id]) {
            for operand in data.expr.operands() {
                counts[operand] += 1;
            }
            for scope in data.expr.scopes() {
                counts[self.scope(scope).result] += 1;
            }
        }
        counts
    }
}

/// One backward sweep: users come after their operands, and an expression with nested scopes comes
/// after everything in them.
pub(super) fn live(data: &FunctionData) -> SecondaryMap<ExprId, bool> {
    fn mark_scope(live: &mut SecondaryMap<ExprId, bool>, scope: &Scope) {
        live[scope.result] = true;
        for &param in &scope.params {
            live[param] = true;
        }
        for binding in &scope.bindings {
            live[binding.value] = true;
        }
    }
    let mut live = SecondaryMap::with_capacity(data.exprs.len());
    mark_scope(&mut live, &data.scopes[ScopeId::from_u32(0)]);
    for (id, expr) in data.exprs.iter().rev() {
        if !live[id] {
            continue;
        }
        for operand in expr.expr.operands() {
            live[operand] = true;
        }
        for scope in expr.expr.scopes() {
            mark_scope(&mut live, &data.scopes[scope]);
        }
        if let Expr::Func(closure) = &expr.expr
            && let Some(recursive) = closure.recursive
        {
            live[recursive] = true;
        }
    }
    live
}
