//! Extents that are found out from the uses of values, while a function is built.
//!
//! Symbols stand for what is not known of the types of parameters. Each equation that a relation needs
//! goes to the facts of the function, which solve it for a symbol; so an extent may come from an
//! attribute, a constant or another parameter, before or after the value in the function.

use std::collections::BTreeSet;

use super::{Callee, Expr, ExprId, Function, FunctionBuilder, Rewriter, TypeError};
use crate::arith::{Facts, Symbol};
use crate::graph::typing::{self, Equations, Typed};
use crate::ir::{Dim, Shape, TensorType, Type};

/// Attribute of functions in text whose symbols are extents that are to be found out.
pub const INFER_SHAPES: &str = "InferShapes";

/// An equation, and what needs it.
pub(super) struct Found {
    left: Dim,
    right: Dim,
    by: String,
}

impl FunctionBuilder {
    /// From now on, dimensions that a relation needs to be equal are so, unless it is known that they
    /// are not: the function's facts say it afterwards.
    pub fn find_symbols(&mut self) {
        self.found.get_or_insert_default();
    }

    /// Whether symbols are [found](Self::find_symbols).
    pub(crate) fn is_finding(&self) -> bool {
        self.found.is_some()
    }

    /// The function with that result, and with the extents that were found in the places of symbols.
    /// All types are computed again with them. Symbols of which nothing is known stay.
    ///
    /// # Errors
    ///
    /// If an expression has no type then.
    pub fn finish_found(self, result: ExprId) -> Result<Function, TypeError> {
        let mut rewriter = Rewriter::new(self.finish(result));
        let mut unknown = false;
        while let Some(id) = rewriter.next_expr()? {
            let old = rewriter.old().clone();
            if let Expr::Var(name) = old.expr(id) {
                let ty = resolved(old.ty(id), old.facts());
                unknown |= has_symbols(&ty);
                let new = rewriter.builder().push_typed(Expr::Var(name.clone()), (ty, None));
                rewriter.replace(new);
            }
        }
        let attrs = rewriter.old().attrs().clone().without(INFER_SHAPES);
        rewriter.set_attrs(attrs);
        if !unknown {
            *rewriter.builder().facts_mut() = Facts::dims();
        }
        rewriter.finish()
    }

    /// The pairs of extents that were taken for equal.
    pub(crate) fn equations(&self) -> impl Iterator<Item = (&Dim, &Dim)> {
        self.found.iter().flatten().map(|found| (&found.left, &found.right))
    }

    /// Whether two shapes have the same extents, which they have if they may and symbols are
    /// [found](Self::find_symbols).
    pub(crate) fn is_same_shape(&mut self, left: &[Dim], right: &[Dim]) -> bool {
        let by = format!("the operation at {}", self.span());
        left.len() == right.len()
            && left.iter().zip(right).all(|(left, right)| {
                match self.facts().prove_eq(left, right) {
                    Some(same) => same,
                    None => self.found.is_some() && self.assume(left, right, &by).is_ok(),
                }
            })
    }

    /// Has the tensors of two types have the same extents; other differences are left for later.
    /// Nothing is done unless symbols are [found](Self::find_symbols).
    ///
    /// # Errors
    ///
    /// If an extent is known to differ, with what makes it so.
    pub(super) fn equate(&mut self, left: &Type, right: &Type, by: &str) -> Result<(), TypeError> {
        let mut pairs = vec![(left, right)];
        while let (Some((left, right)), true) = (pairs.pop(), self.found.is_some()) {
            if let (Some(left), Some(right)) = (left.as_tuple(), right.as_tuple()) {
                pairs.extend(left.iter().zip(right));
            }
            if let (Some(left), Some(right)) = (left.as_tensor(), right.as_tensor())
                && left.shape.rank() == right.shape.rank()
            {
                for (a, b) in left.shape.iter().zip(right.shape.iter()) {
                    self.assume(a, b, by)?;
                }
            }
        }
        Ok(())
    }

    /// Whether two types are the same, as far as extents are known.
    pub(super) fn is_same_type(&self, left: &Type, right: &Type) -> bool {
        left == right
            || self.found.is_some() && resolved(left, self.facts()) == resolved(right, self.facts())
    }

    fn assume(&mut self, left: &Dim, right: &Dim, by: &str) -> Result<(), TypeError> {
        if let Err(mismatch) = self.data.facts.assume_eq(left, right) {
            let error = TypeError::new(format!("{mismatch}, as {by} needs"));
            let symbols = [left, right].into_iter().flat_map(Dim::symbols);
            return Err(self.explained(error, symbols.collect()));
        }
        let (left, right) = if left.is_const() { (right, left) } else { (left, right) };
        let (left, right, by) = (left.clone(), right.clone(), by.to_owned());
        self.found.get_or_insert_default().push(Found { left, right, by });
        Ok(())
    }

    /// The type of an expression, whose equations become facts.
    pub(super) fn infer_finding(&mut self, expr: &Expr) -> Result<Typed, TypeError> {
        let equations = Equations::default();
        let typed = typing::infer(&self.data, expr, Some(&equations)).map_err(|error| {
            let types = expr.operands().filter_map(|operand| self.ty(operand).as_tensor());
            let symbols = types.flat_map(|ty| ty.shape.iter()).flat_map(Dim::symbols).collect();
            self.explained(error, symbols)
        })?;
        let equations = equations.into_inner();
        if equations.is_empty() {
            return Ok(typed);
        }
        let callee = match expr {
            Expr::Call(call) => match call.callee {
                Callee::Op(op) => format!("`{op}`"),
                Callee::Expr(_) => "the call".to_owned(),
            },
            _ => "the expression".to_owned(),
        };
        let by = format!("{callee} at {}", self.span());
        for (left, right) in &equations {
            self.assume(left, right, &by)?;
        }
        typing::infer(&self.data, expr, None)
    }

    /// An error about types with these symbols, and why their extents are what they are.
    fn explained(&self, error: TypeError, mut symbols: BTreeSet<Symbol>) -> TypeError {
        let mut message = error.to_string();
        for Found { left, right, by } in self.found.iter().flatten().rev() {
            let of_equation: BTreeSet<Symbol> =
                [left, right].into_iter().flat_map(|dim| dim.symbols()).collect();
            if !of_equation.is_disjoint(&symbols) {
                message.push_str(&format!("; `{left}` is {right} because of {by}"));
                symbols.extend(of_equation);
            }
        }
        TypeError::new(message)
    }
}

/// A type of tensors with the extents that are known of its symbols.
fn resolved(ty: &Type, facts: &Facts) -> Type {
    match ty {
        Type::Tensor(TensorType { shape, dtype }) => {
            let dims = shape.iter().map(|dim| facts.simplify(dim));
            TensorType::new(Shape::new(dims), *dtype).into()
        }
        Type::Tuple(fields) => Type::tuple(fields.iter().map(|field| resolved(field, facts))),
        Type::Func(_) | Type::Sequence(_) | Type::Optional(_) => ty.clone(),
    }
}

/// Whether a tensor, or one of a tuple, has extents that are no numbers.
fn has_symbols(ty: &Type) -> bool {
    match ty {
        Type::Tensor(tensor) => tensor.shape.as_consts().is_none(),
        Type::Tuple(fields) => fields.iter().any(has_symbols),
        Type::Func(_) | Type::Sequence(_) | Type::Optional(_) => false,
    }
}
