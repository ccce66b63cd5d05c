//! Values of expressions whose symbols have values.

use std::fmt;

use super::expr::{Atom, IntExpr, Poison, View};
use super::symbol::Symbol;

impl IntExpr {
    /// The value where the symbols have these values.
    ///
    /// Intermediate results may exceed `i64`, the value may not.
    pub fn eval(&self, value: &dyn Fn(&Symbol) -> Option<i64>) -> Result<i64, EvalError> {
        i64::try_from(self.eval_wide(value)?).map_err(|_| EvalError::Overflow)
    }

    fn eval_wide(&self, value: &dyn Fn(&Symbol) -> Option<i64>) -> Result<i128, EvalError> {
        let poly = match self.view() {
            View::Const(constant) => return Ok(constant.into()),
            View::Poison(poison) => return Err(poison.into()),
            View::Poly(poly) => poly,
        };
        let mut sum = i128::from(poly.constant());
        for term in poly.terms() {
            let mut product = i128::from(term.coefficient());
            for factor in term.factors() {
                let atom = factor.atom.eval(value)?;
                for _ in 0..factor.power {
                    product = product.checked_mul(atom).ok_or(EvalError::Overflow)?;
                }
            }
            sum = sum.checked_add(product).ok_or(EvalError::Overflow)?;
        }
        Ok(sum)
    }
}

impl Atom {
    fn eval(&self, value: &dyn Fn(&Symbol) -> Option<i64>) -> Result<i128, EvalError> {
        let extremum = |operands: &[IntExpr], pick: fn(i128, i128) -> i128| {
            let mut best = None;
            for operand in operands {
                let it = operand.eval_wide(value)?;
                best = Some(best.map_or(it, |best| pick(best, it)));
            }
            best.ok_or(EvalError::DivisionByZero)
        };
        match self {
            Atom::Symbol(symbol) => value(symbol)
                .map(i128::from)
                .ok_or_else(|| EvalError::UnknownSymbol(symbol.clone())),
            Atom::FloorDiv(a, b) => floor_div(a.eval_wide(value)?, b.eval_wide(value)?),
            Atom::Mod(a, b) => {
                let (a, b) = (a.eval_wide(value)?, b.eval_wide(value)?);
                let quotient = floor_div(a, b)?;
                quotient
                    .checked_mul(b)
                    .and_then(|multiple| a.checked_sub(multiple))
                    .ok_or(EvalError::Overflow)
            }
            Atom::Min(operands) => extremum(operands, Ord::min),
            Atom::Max(operands) => extremum(operands, Ord::max),
        }
    }
}

fn floor_div(a: i128, b: i128) -> Result<i128, EvalError> {
    if b == 0 {
        return Err(EvalError::DivisionByZero);
    }
    let quotient = a.checked_div(b).ok_or(EvalError::Overflow)?;
    let inexact = quotient * b != a;
    Ok(if inexact && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}

/// Why an expression could not be evaluated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EvalError {
    /// The symbol was given no value.
    UnknownSymbol(Symbol),
    /// The value, or an intermediate one of more than 128 bits, leaves its range.
    Overflow,
    /// A divisor was zero.
    DivisionByZero,
    /// The expression outgrew [`MAX_SIZE`](super::MAX_SIZE) or [`MAX_DEPTH`](super::MAX_DEPTH) when it was made.
    TooComplex,
}

impl From<Poison> for EvalError {
    fn from(poison: Poison) -> EvalError {
        match poison {
            Poison::Overflow => EvalError::Overflow,
            Poison::TooComplex => EvalError::TooComplex,
            Poison::Undefined => EvalError::DivisionByZero,
        }
    }
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EvalError::UnknownSymbol(symbol) => write!(f, "symbol `{symbol}` has no value"),
            EvalError::Overflow => f.write_str("the value leaves the range of 64-bit integers"),
            EvalError::DivisionByZero => f.write_str("division by zero"),
            EvalError::TooComplex => f.write_str("the expression is too complex to be held"),
        }
    }
}

impl std::error::Error for EvalError {}
