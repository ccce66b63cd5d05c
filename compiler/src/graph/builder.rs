//! Building functions.

use std::sync::{Arc, OnceLock};

use cranelift_entity::packed_option::ReservedValue;
use cranelift_entity::{EntityRef, PrimaryMap};

use super::find_symbols::Found;
use super::function::FunctionData;
use super::typing::{self, Typed};
use super::{
    Binding, Call, Callee, Closure, Expr, ExprData, ExprId, Function, If, Scope, ScopeId,
    ScopeKind, TypeError, While,
};
use crate::arith::Facts;
use crate::ir::{Attrs, Constant, FuncType, GlobalVar, Span, Type};
use crate::ops::Op;

/// Builds a function, one expression after the other, each typed as it is pushed.
///
/// ```
/// use niello::graph::FunctionBuilder;
/// use niello::ir::{Attrs, DType, Type};
/// use niello::ops::Op;
///
/// let mut b = FunctionBuilder::new();
/// let x = b.param("x", Type::tensor(&[1, 8], DType::F32));
/// let relu = Op::get("nn.relu").expect("an operator of the table");
/// let y = b.call(relu, &[x], Attrs::new())?;
/// let function = b.finish(y);
/// assert_eq!(function.func_type().ret, Type::tensor(&[1, 8], DType::F32));
/// # Ok::<(), niello::graph::TypeError>(())
/// ```
pub struct FunctionBuilder {
    pub(super) data: FunctionData,
    stack: Vec<ScopeId>,
    span: Span,
    /// If symbols are found out: why what is known of them is so.
    pub(super) found: Option<Vec<Found>>,
}

impl Default for FunctionBuilder {
    fn default() -> FunctionBuilder {
        FunctionBuilder::new()
    }
}

impl FunctionBuilder {
    /// An empty function; expressions are pushed to its body.
    pub fn new() -> FunctionBuilder {
        let mut builder = FunctionBuilder {
            data: FunctionData {
                exprs: PrimaryMap::new(),
                scopes: PrimaryMap::new(),
                attrs: Attrs::new(),
                facts: Facts::dims(),
                global_refs: OnceLock::new(),
            },
            stack: Vec::new(),
            span: Span::Unknown,
            found: None,
        };
        builder.open_scope(ScopeKind::Body);
        builder
    }

    /// A builder with the scopes of `function`, all empty; for rewriting.
    pub(super) fn with_scopes_of(function: &Function) -> FunctionBuilder {
        let mut data = FunctionData {
            exprs: PrimaryMap::with_capacity(function.len()),
            scopes: PrimaryMap::new(),
            attrs: function.attrs().clone(),
            facts: function.facts().clone(),
            global_refs: OnceLock::new(),
        };
        for (_, scope) in function.scopes() {
            data.scopes.push(Scope {
                kind: scope.kind,
                parent: scope.parent,
                params: Vec::new(),
                bindings: Vec::new(),
                result: ExprId::reserved_value(),
            });
        }
        FunctionBuilder { data, stack: vec![function.body()], span: Span::Unknown, found: None }
    }

    /// Makes the scope current, for rewriting.
    pub(super) fn enter(&mut self, scope: ScopeId, span: Span) {
        self.stack.clear();
        self.stack.push(scope);
        self.span = span;
    }

    /// The span of expressions that are pushed.
    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// Sets the span of expressions pushed from now on.
    pub fn set_span(&mut self, span: Span) {
        self.span = span;
    }

    /// Pushes expressions of a span to a scope, and comes back to the current one.
    pub(super) fn within<R>(
        &mut self,
        scope: ScopeId,
        span: Span,
        push: impl FnOnce(&mut FunctionBuilder) -> R,
    ) -> R {
        self.stack.push(scope);
        let around = std::mem::replace(&mut self.span, span);
        let pushed = push(self);
        self.span = around;
        self.stack.pop();
        pushed
    }

    /// The scope that expressions are pushed to.
    pub fn current_scope(&self) -> ScopeId {
        *self.stack.last().expect("the body stays open until the function is finished")
    }

    /// An expression that was pushed.
    pub fn expr(&self, id: ExprId) -> &Expr {
        &self.data.exprs[id].expr
    }

    /// The type of an expression that was pushed.
    pub fn ty(&self, id: ExprId) -> &Type {
        &self.data.exprs[id].ty
    }

    /// An expression that was pushed, with its data.
    pub fn data_of(&self, id: ExprId) -> &ExprData {
        &self.data.exprs[id]
    }

    /// Number of expressions so far.
    pub fn len(&self) -> usize {
        self.data.exprs.len()
    }

    /// Whether nothing was pushed yet.
    pub fn is_empty(&self) -> bool {
        self.data.exprs.is_empty()
    }

    /// A new last parameter of the current scope.
    pub fn param(&mut self, name: &str, ty: impl Into<Type>) -> ExprId {
        let id = self.push_typed(Expr::Var(name.into()), (ty.into(), None));
        let scope = self.current_scope();
        self.data.scopes[scope].params.push(id);
        id
    }

    /// A variable that is no parameter, by which a recursive closure refers to itself.
    pub fn recursive_var(&mut self, name: &str, ty: FuncType) -> ExprId {
        self.push_typed(Expr::Var(name.into()), (Type::Func(Arc::new(ty)), None))
    }

    /// A reference to a definition of the module, with its type.
    pub fn global(&mut self, global: GlobalVar, ty: FuncType) -> ExprId {
        self.push_typed(Expr::GlobalVar(global), (Type::Func(Arc::new(ty)), None))
    }

    /// A constant.
    pub fn constant(&mut self, constant: Constant) -> ExprId {
        self.push(Expr::Constant(constant)).expect("a constant always has a type")
    }

    /// A call of an operator.
    ///
    /// # Errors
    ///
    /// If the operator's type relation does not hold.
    pub fn call(&mut self, op: Op, args: &[ExprId], attrs: Attrs) -> Result<ExprId, TypeError> {
        self.call_optional(op, args.iter().copied().map(Some).collect(), attrs)
    }

    /// A call of an operator, some of whose arguments are absent.
    ///
    /// # Errors
    ///
    /// If the operator's type relation does not hold.
    pub fn call_optional(
        &mut self,
        op: Op,
        args: Vec<Option<ExprId>>,
        attrs: Attrs,
    ) -> Result<ExprId, TypeError> {
        self.push(Expr::Call(Call { callee: Callee::Op(op), args, attrs }))
    }

    /// A call of an expression of function type.
    ///
    /// # Errors
    ///
    /// If the number or types of the arguments do not match the function's parameters.
    pub fn call_function(&mut self, callee: ExprId, args: &[ExprId]) -> Result<ExprId, TypeError> {
        self.push(Expr::Call(Call {
            callee: Callee::Expr(callee),
            args: args.iter().copied().map(Some).collect(),
            attrs: Attrs::new(),
        }))
    }

    /// A tuple.
    pub fn tuple(&mut self, fields: &[ExprId]) -> ExprId {
        self.push(Expr::Tuple(fields.to_vec())).expect("a tuple always has a type")
    }

    /// A field of a tuple.
    ///
    /// # Errors
    ///
    /// If there is no such field.
    pub fn tuple_get(&mut self, tuple: ExprId, index: u32) -> Result<ExprId, TypeError> {
        self.push(Expr::TupleGet { tuple, index })
    }

    /// A choice between two closed scopes.
    ///
    /// # Errors
    ///
    /// If the condition is no boolean scalar, or the scopes yield different types.
    pub fn if_else(
        &mut self,
        cond: ExprId,
        then_scope: ScopeId,
        else_scope: ScopeId,
    ) -> Result<ExprId, TypeError> {
        self.push(Expr::If(If { cond, then_scope, else_scope }))
    }

    /// A loop of two closed scopes; see [`While`].
    ///
    /// # Errors
    ///
    /// If the scopes' parameters and results do not fit the state.
    pub fn while_loop(
        &mut self,
        init: &[ExprId],
        cond: ScopeId,
        body: ScopeId,
    ) -> Result<ExprId, TypeError> {
        self.push(Expr::While(While { init: init.to_vec(), cond, body }))
    }

    /// A closure of a closed scope.
    ///
    /// # Errors
    ///
    /// If `recursive` was declared with another type than the closure has.
    pub fn closure(
        &mut self,
        scope: ScopeId,
        recursive: Option<ExprId>,
        attrs: Attrs,
    ) -> Result<ExprId, TypeError> {
        self.push(Expr::Func(Closure { scope, recursive, attrs }))
    }

    /// Binds a value in the current scope, after the present bindings.
    pub fn bind(&mut self, name: &str, value: ExprId) {
        let scope = self.current_scope();
        self.data.scopes[scope].bindings.push(Binding { name: name.into(), value });
    }

    /// Opens a scope within the current one and makes it current.
    pub fn open_scope(&mut self, kind: ScopeKind) -> ScopeId {
        let scope = self.data.scopes.push(Scope {
            kind,
            parent: self.stack.last().copied(),
            params: Vec::new(),
            bindings: Vec::new(),
            result: ExprId::reserved_value(),
        });
        self.stack.push(scope);
        scope
    }

    /// Closes the current scope with its result.
    ///
    /// # Panics
    ///
    /// If the current scope is the function's body, which [`finish`](Self::finish) closes.
    pub fn close_scope(&mut self, result: ExprId) -> ScopeId {
        assert!(self.stack.len() > 1, "the function's body is closed by finishing it");
        let scope = self.stack.pop().expect("just checked");
        self.data.scopes[scope].result = result;
        scope
    }

    /// Makes a closed scope, which nothing has yet, current again, until it is closed with another result.
    pub fn reopen_scope(&mut self, scope: ScopeId) {
        self.stack.push(scope);
    }

    /// Pushes any expression but a variable or a global, whose types must be declared.
    ///
    /// # Errors
    ///
    /// If its operands have no fitting types.
    pub fn push(&mut self, expr: Expr) -> Result<ExprId, TypeError> {
        let typed = match self.found {
            None => typing::infer(&self.data, &expr, None)?,
            Some(_) => self.infer_finding(&expr)?,
        };
        Ok(self.push_typed(expr, typed))
    }

    pub(super) fn push_typed(&mut self, expr: Expr, (ty, shape_value): Typed) -> ExprId {
        debug_assert!(
            expr.operands().all(|operand| operand.index() < self.data.exprs.len()),
            "operands come before their users"
        );
        let scope = self.current_scope();
        let span = self.span.clone();
        self.data.exprs.push(ExprData { expr, ty, shape_value, scope, span })
    }

    /// Replaces the function's attributes.
    pub fn set_attrs(&mut self, attrs: Attrs) {
        self.data.attrs = attrs;
    }

    /// The facts about the symbols in the function's types.
    pub fn facts(&self) -> &Facts {
        &self.data.facts
    }

    /// The same, to add to them.
    pub fn facts_mut(&mut self) -> &mut Facts {
        &mut self.data.facts
    }

    /// The function with that result.
    ///
    /// # Panics
    ///
    /// If a scope was opened and not closed.
    pub fn finish(mut self, result: ExprId) -> Function {
        assert_eq!(self.stack.len(), 1, "every scope must be closed before the function is");
        let body = self.stack[0];
        self.data.scopes[body].result = result;
        Function::from_data(self.data)
    }
}
