//! Values of the interpreter.

use std::fmt;
use std::sync::Arc;

use super::Tensor;
use super::plan::Plan;
use super::symbols::Symbols;
use crate::graph::ExprId;
use crate::ir::GlobalVar;

/// A value of any type. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Value {
    /// A tensor.
    Tensor(Arc<Tensor>),
    /// A tuple.
    Tuple(Arc<[Value]>),
    /// A function.
    Function(FunctionValue),
}

impl Value {
    /// A tuple.
    pub fn tuple(fields: impl IntoIterator<Item = Value>) -> Value {
        Value::Tuple(fields.into_iter().collect())
    }

    /// The tensor, if this is one.
    pub fn as_tensor(&self) -> Option<&Tensor> {
        if let Value::Tensor(tensor) = self { Some(tensor) } else { None }
    }

    /// The fields, if this is a tuple.
    pub fn as_tuple(&self) -> Option<&[Value]> {
        if let Value::Tuple(fields) = self { Some(fields) } else { None }
    }
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Value {
        Value::Tensor(Arc::new(tensor))
    }
}

/// A function as a value: a global, or a closure with its captured values.
#[derive(Clone)]
pub struct FunctionValue(pub(super) Callable);

#[derive(Clone)]
pub(super) enum Callable {
    Global(GlobalVar),
    Closure(Arc<ClosureData>),
}

/// A closure: an expression of a function, and the values that it uses from outside.
pub(super) struct ClosureData {
    pub(super) plan: Arc<Plan>,
    pub(super) func: ExprId,
    /// In the order of the expressions.
    pub(super) captured: Vec<(ExprId, Value)>,
    pub(super) symbols: Symbols,
}

impl ClosureData {
    /// The value of an expression that the closure captured.
    pub(super) fn get(&self, id: ExprId) -> Option<Value> {
        let at = self.captured.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.captured[at].1.clone())
    }
}

impl Drop for ClosureData {
    /// Closures that captured closures can form chains of any length, so they are dropped without
    /// recursion.
    fn drop(&mut self) {
        let mut values: Vec<Value> = self.captured.drain(..).map(|(_, value)| value).collect();
        while let Some(value) = values.pop() {
            match value {
                Value::Function(FunctionValue(Callable::Closure(closure))) => {
                    if let Some(mut closure) = Arc::into_inner(closure) {
                        values.extend(closure.captured.drain(..).map(|(_, value)| value));
                    }
                }
                Value::Tuple(mut fields) => {
                    for field in Arc::get_mut(&mut fields).into_iter().flatten() {
                        if !matches!(field, Value::Tensor(_)) {
                            values.push(std::mem::replace(field, Value::tuple([])));
                        }
                    }
                }
                Value::Tensor(_) | Value::Function(FunctionValue(Callable::Global(_))) => {}
            }
        }
    }
}

impl fmt::Debug for FunctionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Callable::Global(global) => write!(f, "FunctionValue({global})"),
            Callable::Closure(closure) => write!(f, "FunctionValue({:?})", closure.func),
        }
    }
}
