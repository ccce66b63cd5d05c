//! Expressions.

use std::sync::Arc;

use cranelift_entity::entity_impl;

use crate::ir::{Attrs, Constant, GlobalVar};
use crate::ops::{Op, OpDef};

/// An expression of a function; prints as `%3`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExprId(u32);
entity_impl!(ExprId, "%");

/// A scope of a function; prints as `scope1`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScopeId(u32);
entity_impl!(ScopeId, "scope");

/// The target of a call.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Callee {
    /// An operator.
    Op(Op),
    /// An expression of function type: a global, a closure or a parameter.
    Expr(ExprId),
}

/// A call of an operator or a function.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Call {
    /// The operator or function.
    pub callee: Callee,
    /// The arguments; an optional one of an operator may be absent.
    pub args: Vec<Option<ExprId>>,
    /// The operator's attributes.
    pub attrs: Attrs,
}

/// A choice between two branches by a boolean scalar.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct If {
    /// The condition.
    pub cond: ExprId,
    /// Evaluated if the condition is true.
    pub then_scope: ScopeId,
    /// Evaluated if the condition is false; its result has the same type.
    pub else_scope: ScopeId,
}

/// A loop over state: `while cond(state) { state = body(state) }`; yields the last state as a
/// tuple. ONNX `Loop` and `Scan` become this.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct While {
    /// The first state.
    pub init: Vec<ExprId>,
    /// Parameters: the state; result: a boolean scalar.
    pub cond: ScopeId,
    /// Parameters: the state; result: a tuple, the next state.
    pub body: ScopeId,
}

/// A function within a function, which may use expressions of the enclosing scopes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Closure {
    /// The body; the scope's parameters are the closure's.
    pub scope: ScopeId,
    /// In a recursive closure, the variable in its scope that stands for the closure.
    pub recursive: Option<ExprId>,
    /// Attributes such as `Primitive` and `Compiler`.
    pub attrs: Attrs,
}

/// An expression. Its type, scope and span are in [`ExprData`](super::ExprData).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Expr {
    /// A parameter of a scope, with its printed name.
    Var(Arc<str>),
    /// A definition of the module, with its declared type.
    GlobalVar(GlobalVar),
    /// A constant tensor.
    Constant(Constant),
    /// A tuple.
    Tuple(Vec<ExprId>),
    /// A field of a tuple.
    TupleGet {
        /// The tuple.
        tuple: ExprId,
        /// Which field, from 0.
        index: u32,
    },
    /// A call.
    Call(Call),
    /// A choice of two scopes.
    If(If),
    /// A loop.
    While(While),
    /// A closure.
    Func(Closure),
}

impl Expr {
    /// The direct operands of this expression, in order, without those of nested scopes.
    pub fn operands(&self) -> impl Iterator<Item = ExprId> + '_ {
        let (first, list, optional): (Option<ExprId>, &[ExprId], &[Option<ExprId>]) = match self {
            Expr::Var(_) | Expr::GlobalVar(_) | Expr::Constant(_) | Expr::Func(_) => {
                (None, &[], &[])
            }
            Expr::Tuple(fields) => (None, fields, &[]),
            Expr::TupleGet { tuple, index: _ } => (Some(*tuple), &[], &[]),
            Expr::Call(Call { callee, args, attrs: _ }) => match callee {
                Callee::Op(_) => (None, &[], args),
                Callee::Expr(callee) => (Some(*callee), &[], args),
            },
            Expr::If(If { cond, then_scope: _, else_scope: _ }) => (Some(*cond), &[], &[]),
            Expr::While(While { init, cond: _, body: _ }) => (None, init, &[]),
        };
        first.into_iter().chain(list.iter().copied()).chain(optional.iter().flatten().copied())
    }

    /// The scopes nested directly in this expression, in order.
    pub fn scopes(&self) -> impl Iterator<Item = ScopeId> + use<> {
        let (first, second) = match self {
            Expr::Var(_)
            | Expr::GlobalVar(_)
            | Expr::Constant(_)
            | Expr::Tuple(_)
            | Expr::TupleGet { .. }
            | Expr::Call(_) => (None, None),
            Expr::If(If { cond: _, then_scope, else_scope }) => {
                (Some(*then_scope), Some(*else_scope))
            }
            Expr::While(While { init: _, cond, body }) => (Some(*cond), Some(*body)),
            Expr::Func(Closure { scope, recursive: _, attrs: _ }) => (Some(*scope), None),
        };
        first.into_iter().chain(second)
    }

    /// The call, if this is one.
    pub fn as_call(&self) -> Option<&Call> {
        if let Expr::Call(call) = self { Some(call) } else { None }
    }

    /// Whether this is a call of that operator: `expr.is_call_of(&RELU)`.
    pub fn is_call_of(&self, def: &OpDef) -> bool {
        matches!(self, Expr::Call(Call { callee: Callee::Op(op), .. }) if op.is(def))
    }

    /// The fields, if it is a tuple.
    pub fn as_tuple(&self) -> Option<&[ExprId]> {
        if let Expr::Tuple(fields) = self { Some(fields) } else { None }
    }

    /// The constant, if this is one.
    pub fn as_constant(&self) -> Option<&Constant> {
        if let Expr::Constant(constant) = self { Some(constant) } else { None }
    }

    /// This expression with every operand and scope mapped.
    #[must_use]
    pub fn map(
        &self,
        mut id: impl FnMut(ExprId) -> ExprId,
        mut scope: impl FnMut(ScopeId) -> ScopeId,
    ) -> Expr {
        match self {
            Expr::Var(name) => Expr::Var(name.clone()),
            Expr::GlobalVar(global) => Expr::GlobalVar(global.clone()),
            Expr::Constant(constant) => Expr::Constant(constant.clone()),
            Expr::Tuple(fields) => Expr::Tuple(fields.iter().map(|&field| id(field)).collect()),
            Expr::TupleGet { tuple, index } => Expr::TupleGet { tuple: id(*tuple), index: *index },
            Expr::Call(Call { callee, args, attrs }) => Expr::Call(Call {
                callee: match callee {
                    Callee::Op(op) => Callee::Op(*op),
                    Callee::Expr(callee) => Callee::Expr(id(*callee)),
                },
                args: args.iter().map(|arg| arg.map(&mut id)).collect(),
                attrs: attrs.clone(),
            }),
            Expr::If(If { cond, then_scope, else_scope }) => Expr::If(If {
                cond: id(*cond),
                then_scope: scope(*then_scope),
                else_scope: scope(*else_scope),
            }),
            Expr::While(While { init, cond, body }) => Expr::While(While {
                init: init.iter().map(|&value| id(value)).collect(),
                cond: scope(*cond),
                body: scope(*body),
            }),
            Expr::Func(Closure { scope: body, recursive, attrs }) => Expr::Func(Closure {
                scope: scope(*body),
                recursive: recursive.map(&mut id),
                attrs: attrs.clone(),
            }),
        }
    }
}
