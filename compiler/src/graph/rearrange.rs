//! Functions of the same expressions in other scopes, in another order, under other bindings.

use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::{PackedOption, ReservedValue};

use super::{Binding, Closure, Expr, ExprId, Function, FunctionBuilder, IdMap, Scope, ScopeId};
use crate::ir::Span;

/// What is left to do, the last first: no recursion, however deep operands or scopes are.
enum Task {
    /// Adds the expression after what it uses and what is in its scopes.
    Visit(ExprId),
    /// Adds the expression, whose operands and scopes are there.
    Add(ExprId),
    /// Adds a scope of an expression that will stand in the other one.
    Open(ScopeId, ScopeId),
    /// Adds the binding of that number of a scope.
    Bind(ScopeId, usize),
    /// Ends a scope, whose result is there.
    Close(ScopeId),
}

/// The function with every live expression in the scope that `scope_of` says and, if `name_of`
/// gives it a name, bound by that when it is first computed.
///
/// Expressions come in the order in which they are evaluated: bindings, then the result, each after
/// its operands, from left to right. Bindings that were there stay. The scope must be one from which
/// all users are visible, and one that sees all operands; variables keep theirs.
pub(crate) fn rearranged(
    function: &Function,
    scope_of: impl Fn(ExprId) -> ScopeId,
    mut name_of: impl FnMut(ExprId) -> Option<String>,
) -> Function {
    let mut b = FunctionBuilder::new();
    *b.facts_mut() = function.facts().clone();
    b.set_attrs(function.attrs().clone());
    let mut ids = IdMap::with_capacity(function.len());
    let mut scopes: SecondaryMap<ScopeId, PackedOption<ScopeId>> = SecondaryMap::new();
    let body = function.body();
    scopes[body] = b.current_scope().into();
    let mut tasks = Vec::new();
    enter(function, body, &mut tasks);
    while let Some(task) = tasks.pop() {
        match task {
            Task::Visit(id) if ids[id].is_some() => {}
            Task::Visit(id) => {
                let expr = function.expr(id);
                tasks.push(Task::Add(id));
                // A closure's name for itself stands in its scope, though nothing may use it.
                if let Expr::Func(Closure { recursive: Some(recursive), .. }) = expr {
                    tasks.push(Task::Visit(*recursive));
                }
                let inner: Vec<ScopeId> = expr.scopes().collect();
                tasks.extend(inner.iter().rev().map(|&scope| Task::Open(scope, scope_of(id))));
                let operands: Vec<ExprId> = expr.operands().collect();
                tasks.extend(operands.into_iter().rev().map(Task::Visit));
            }
            Task::Open(scope, around) => {
                let old = function.scope(scope);
                let new = b.data.scopes.push(Scope {
                    kind: old.kind,
                    parent: scopes[around].expand(),
                    params: Vec::new(),
                    bindings: Vec::new(),
                    result: ExprId::reserved_value(),
                });
                scopes[scope] = new.into();
                enter(function, scope, &mut tasks);
            }
            Task::Bind(scope, index) => {
                let Binding { name, value } = &function.scope(scope).bindings[index];
                if let (Some(scope), Some(value)) = (scopes[scope].expand(), ids[*value].expand()) {
                    let bindings = &mut b.data.scopes[scope].bindings;
                    bindings.push(Binding { name: name.clone(), value });
                }
            }
            Task::Close(scope) => {
                let old = function.scope(scope);
                if let (Some(scope), Some(result)) =
                    (scopes[scope].expand(), ids[old.result].expand())
                {
                    let new = &mut b.data.scopes[scope];
                    new.result = result;
                    new.params = old.params.iter().filter_map(|&id| ids[id].expand()).collect();
                }
            }
            Task::Add(id) => {
                let data = function.data_of(id);
                let Some(scope) = scopes[scope_of(id)].expand() else { continue };
                b.enter(scope, data.span.clone());
                let new = data.expr.map(
                    |operand| ids[operand].expect("operands are visited before"),
                    |scope| scopes[scope].expect("scopes are opened before"),
                );
                let new = b.push_typed(new, (data.ty.clone(), data.shape_value.clone()));
                ids[id] = new.into();
                if let Some(name) = name_of(id) {
                    let binding = Binding { name: name.into(), value: new };
                    b.data.scopes[scope].bindings.push(binding);
                }
            }
        }
    }
    let result = ids[function.result()].expect("the result is visited");
    b.enter(scopes[body].expect("the body is open"), Span::Unknown);
    b.finish(result)
}

/// The tasks of a scope: parameters, the name of a closure for itself, bindings, the result.
fn enter(function: &Function, scope: ScopeId, tasks: &mut Vec<Task>) {
    let data = function.scope(scope);
    tasks.push(Task::Close(scope));
    tasks.push(Task::Visit(data.result));
    for (index, binding) in data.bindings.iter().enumerate().rev() {
        tasks.push(Task::Bind(scope, index));
        tasks.push(Task::Visit(binding.value));
    }
    tasks.extend(data.params.iter().rev().copied().map(Task::Visit));
}
