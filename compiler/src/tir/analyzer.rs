//! The arithmetic analyser: simplifies and proves integer expressions, given ranges of variables
//! and conditions that hold.
//!
//! Scalar `int64` and `int32` expressions are read into linear forms over atoms, in which equal
//! sums are equal; atoms are variables, digits of other forms (what floor division makes), minima,
//! products, and anything else as a whole. Ranges and congruences of atoms decide divisions, minima
//! and comparisons, and where they do not suffice, facts do: assumed inequalities.
//!
//! Index arithmetic is assumed not to overflow. Arithmetic on values read from memory may wrap, and
//! only rules that are true of wrapping arithmetic are used for it.

mod assume;
mod change;
mod divide;
mod linear;
mod prove;
#[cfg(test)]
mod random_tests;
mod range;
mod read;
mod rewrite;
#[cfg(test)]
mod tests;
mod vector;
mod write;

use std::collections::BTreeMap;

use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;
use indexmap::IndexSet;

use super::{PrimExpr, PrimFuncData, VarId};
use crate::arith::Modular;
use crate::ir::DType;
use assume::{Case, Known, Undo};
use linear::{Atom, AtomId, Linear};
use range::Range;

/// Maximum number of conditions with alternatives that one proof examines case by case.
const MAX_CHOICES: usize = 2;

/// Known ranges of variables and conditions, with the conclusions from them.
///
/// ```
/// use niello::tir::{Analyzer, PrimFuncData};
///
/// let mut func = PrimFuncData::new("f");
/// let (i, j) = (func.index_var("i"), func.index_var("j"));
/// let (i_expr, j_expr) = (func.var_expr(i), func.var_expr(j));
/// let mut analyzer = Analyzer::new();
/// analyzer.bind(i, 0, 8);
/// analyzer.bind(j, 0, 16);
/// let channel = i_expr.clone() * 16 + j_expr;
/// assert_eq!(analyzer.simplify(&channel.clone().floordiv(16)), i_expr);
/// assert!(analyzer.can_prove(&channel.less(128)));
/// ```
#[derive(Debug, Default)]
pub struct Analyzer {
    atoms: IndexSet<Atom>,
    vars: SecondaryMap<VarId, PackedOption<AtomId>>,
    known: SecondaryMap<AtomId, Option<Known>>,
    /// Variables that are replaced by a value.
    values: BTreeMap<VarId, PrimExpr>,
    /// Forms that are not negative.
    facts: Vec<Linear>,
    /// Conditions known to hold, or not to hold.
    truths: Vec<Case>,
    /// Pairs of conditions, at least one of which holds.
    choices: Vec<(Case, Case)>,
    /// Whether the conditions of the scope exclude each other, so that it is never entered.
    contradiction: bool,
    trail: Vec<Undo>,
}

impl Analyzer {
    /// An analyser without knowledge.
    pub fn new() -> Self {
        Self::default()
    }

    /// An analyser that knows that the dimensions of a function are not negative.
    pub fn of(func: &PrimFuncData) -> Self {
        Self::of_dims(&func.dims)
    }

    /// An analyser that knows that these dimensions are not negative.
    pub(crate) fn of_dims(dims: &[VarId]) -> Self {
        let mut analyzer = Self::new();
        for dim in dims {
            let (first, count) = (Linear::constant(0), Linear::constant(i64::MAX));
            analyzer.bind_forms(*dim, &first, &count, DType::I64);
        }
        analyzer
    }

    /// Declares a loop variable with the values `min` to `min + extent - 1`. The value replaces the
    /// variable if there is only one.
    ///
    /// Earlier knowledge about the variable is forgotten. The range is known to the end of the
    /// [scope](Self::scope).
    /// [scope](Self::scope).
    pub fn bind(&mut self, var: VarId, min: impl Into<PrimExpr>, extent: impl Into<PrimExpr>) {
        self.bind_loop(var, &min.into(), &extent.into());
    }

    /// Declares a loop variable; returns whether a single value replaces it.
    pub(crate) fn bind_loop(&mut self, var: VarId, min: &PrimExpr, extent: &PrimExpr) -> bool {
        let (first, count) = (self.linear(min), self.linear(extent));
        let replaced = count.as_const() == Some(1) && self.is_stable(&first);
        if replaced {
            let value = self.write(&first, min.dtype());
            self.set_value(var, value);
        } else {
            self.bind_forms(var, &first, &count, min.dtype());
        }
        replaced
    }

    /// Declares a variable with a known value, which replaces it.
    pub fn bind_value(&mut self, var: VarId, value: &PrimExpr) {
        let value = self.simplify(value);
        self.set_value(var, value);
    }

    /// Assumes that a condition holds, to the end of the [scope](Self::scope).
    ///
    /// Parts that read memory are ignored, because the memory may change.
    pub fn assume(&mut self, cond: &PrimExpr) {
        let cond = self.simplify(cond);
        self.assume_stable(&cond, true);
    }

    /// Assumes that a condition does not hold, like [`assume`](Self::assume) otherwise.
    pub fn assume_not(&mut self, cond: &PrimExpr) {
        let cond = self.simplify(cond);
        self.assume_stable(&cond, false);
    }

    /// Runs `inside`, and then forgets the ranges and conditions that it added.
    pub fn scope<T>(&mut self, inside: impl FnOnce(&mut Self) -> T) -> T {
        let scope = self.enter();
        let result = inside(self);
        self.leave(scope);
        result
    }

    /// Whether the assumptions contradict each other, so that code in the scope never runs.
    pub fn is_contradiction(&self) -> bool {
        self.contradiction
    }

    /// The same value in canonical form: constants folded, sums sorted, and divisions, minima,
    /// comparisons and choices decided where possible.
    pub fn simplify(&mut self, expr: &PrimExpr) -> PrimExpr {
        self.expr(expr.clone())
    }

    /// Whether a condition holds for all values of the variables, in every lane if it is a vector.
    /// `false` says nothing.
    pub fn can_prove(&mut self, cond: &PrimExpr) -> bool {
        let cond = self.simplify(cond);
        let choices = self.choices.len().min(MAX_CHOICES);
        self.prove_condition(&cond, choices)
    }

    /// Whether two integers are the same for all values of the variables.
    pub fn can_prove_equal(&mut self, lhs: &PrimExpr, rhs: &PrimExpr) -> bool {
        self.can_prove(&lhs.clone().equal(rhs))
    }

    /// The least and the greatest value of an integer, over all lanes; the limits of `int64` if
    /// there is no bound.
    pub fn const_int_bound(&mut self, expr: &PrimExpr) -> (i64, i64) {
        let expr = self.simplify(expr);
        let dtype = expr.dtype();
        let range = match &expr {
            _ if !matches!(dtype, DType::I64 | DType::I32) => match expr.as_int() {
                Some(value) => Range::point(value),
                None => Range::of_dtype(dtype),
            },
            scalar if scalar.ty().is_scalar() => {
                let linear = self.linear(scalar);
                self.bound(&linear)
            }
            vector => match self.ramp(vector) {
                Some(ramp) => self.bound(&ramp.base).add(ramp.spread()),
                None => Range::of_dtype(dtype),
            },
        };
        let whole = Range::of_dtype(dtype);
        let index = dtype == DType::I64 && self.is_index_arithmetic(&expr);
        (if range.within(whole) || index { range.intersect(whole) } else { whole }).clamped()
    }

    /// The range of a form, including facts that bound the form as a whole.
    fn bound(&self, form: &Linear) -> Range {
        let mut range = self.range(form);
        for fact in &self.facts {
            // form - fact is a constant: the form is at least that.
            if let Some(low) = form.plus(fact, -1).and_then(|rest| rest.as_const()) {
                range.min = range.min.max(low.into());
            }
            if let Some(high) = form.plus(fact, 1).and_then(|rest| rest.as_const()) {
                range.max = range.max.min(high.into());
            }
        }
        range
    }

    /// The congruence of a scalar integer.
    pub fn modular_set(&mut self, expr: &PrimExpr) -> Modular {
        let is_index = matches!(expr.dtype(), DType::I64 | DType::I32) && expr.ty().is_scalar();
        if !is_index {
            return expr.as_int().map_or(Modular::ALL, Modular::point);
        }
        let linear = self.linear(expr);
        if !self.is_exact(&linear, expr.dtype()) {
            return Modular::ALL;
        }
        self.modular(&linear)
    }
}
