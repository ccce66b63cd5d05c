//! Fractions of sizes, which are whole again once they are rounded, as exporters write the sizes of
//! images that are resized, and numbers of windows: `Shape → Cast → Mul → Floor → Cast`.

use crate::graph::{Callee, ExprId};
use crate::ir::{DType, Dim};
use crate::onnx::import::{Node, NodeError};
use crate::ops::Op;
use crate::ops::elementwise::{ADD, DIVIDE, FLOOR_MOD, MULTIPLY, NEGATIVE, SUBTRACT};

/// What a factor must be a multiple of one part of. Halves, quarters and eighths of sizes are exact in
/// floats, so that integers yield the same number; a tenth is not.
const PARTS: f64 = 8.0;

/// Greatest factor. Sizes times that many parts are still exact.
const MAX_FACTOR: f64 = 1024.0;

/// Greatest whole divisor. The quotient of a size, which a float holds, is nearer to what it is rounded to
/// than to the next whole number.
const MAX_DIVISOR: f64 = 65536.0;

/// The whole number that takes the place of a fraction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rounding {
    Down,
    Up,
    TowardsZero,
}

/// A float that is made of a size.
struct Fraction {
    size: ExprId,
    /// What the size is multiplied with, or divided by.
    numbers: ExprId,
    divides: bool,
    /// What is added to it.
    added: Option<ExprId>,
}

impl Node<'_, '_> {
    /// A size times a constant fraction, or divided by one, and perhaps a whole number more, rounded: as
    /// `int64`, so that what it is stays known. `None` for any other value.
    pub(super) fn rounded_size(
        &mut self,
        value: ExprId,
        to: Rounding,
    ) -> Result<Option<ExprId>, NodeError> {
        let Some(Fraction { size, numbers, divides, added }) = self.fraction(value, to) else {
            return Ok(None);
        };
        let dims: Option<Vec<i64>> = self.shape(numbers)?.iter().map(Dim::as_const).collect();
        let numbers = self.known_value(numbers).and_then(|numbers| numbers.to_f64_vec());
        let (Some(dims), Some(numbers)) = (dims, numbers) else { return Ok(None) };
        let is_exact = |number: &f64| {
            let parts =
                (1.0 / PARTS..=MAX_FACTOR).contains(number) && (number * PARTS).fract() == 0.0;
            parts || (divides && (1.0..=MAX_DIVISOR).contains(number) && number.fract() == 0.0)
        };
        if !numbers.iter().all(is_exact) {
            return Ok(None);
        }
        let parts: Vec<i64> = numbers.iter().map(|number| (number * PARTS) as i64).collect();
        let (parts, whole) = (self.integers(&dims, &parts)?, self.int(PARTS as i64));
        let (factor, divisor) = if divides { (whole, parts) } else { (parts, whole) };
        let size = self.cast(size, DType::I64)?;
        let product = self.call(&MULTIPLY, &[size, factor])?;
        let multiple = if to == Rounding::Up {
            let negative = self.call(&NEGATIVE, &[product])?;
            let missing = self.call(&FLOOR_MOD, &[negative, divisor])?;
            self.call(&ADD, &[product, missing])?
        } else {
            let rest = self.call(&FLOOR_MOD, &[product, divisor])?;
            self.call(&SUBTRACT, &[product, rest])?
        };
        let quotient = self.call(&DIVIDE, &[multiple, divisor])?;
        let Some(added) = added else { return Ok(Some(quotient)) };
        let added = self.cast(added, DType::I64)?;
        Ok(Some(self.call(&ADD, &[quotient, added])?))
    }

    fn fraction(&mut self, value: ExprId, to: Rounding) -> Option<Fraction> {
        if !self.tensor(value).ok()?.dtype.is_float() {
            return None;
        }
        let (op, [lhs, rhs]) = self.operands(value)?;
        if !op.is(&ADD) {
            return self.product(op, [lhs, rhs], to, None);
        }
        for [fraction, added] in [[lhs, rhs], [rhs, lhs]] {
            let numbers = self.known_value(added).and_then(|numbers| numbers.to_f64_vec());
            let is_whole =
                |number: &f64| (0.0..=MAX_FACTOR).contains(number) && number.fract() == 0.0;
            if numbers.is_some_and(|numbers| numbers.iter().all(is_whole))
                && let Some((op, operands)) = self.operands(fraction)
            {
                return self.product(op, operands, to, Some(added));
            }
        }
        None
    }

    /// An operator of two values, and these.
    pub(in crate::onnx) fn operands(&self, value: ExprId) -> Option<(Op, [ExprId; 2])> {
        let call = self.builder.expr(value).as_call()?;
        match (&call.callee, call.args.as_slice()) {
            (Callee::Op(op), &[Some(lhs), Some(rhs)]) => Some((*op, [lhs, rhs])),
            _ => None,
        }
    }

    /// The product or quotient of a size and another value.
    fn product(
        &self,
        op: Op,
        [lhs, rhs]: [ExprId; 2],
        to: Rounding,
        added: Option<ExprId>,
    ) -> Option<Fraction> {
        let is_size = |value: ExprId| {
            let dims = self.builder.data_of(value).shape_value.as_deref();
            let is_positive = |dim: &Dim| self.facts().bounds_of(dim).lower >= Some(0);
            dims.is_some_and(|dims| {
                (to != Rounding::TowardsZero || dims.iter().all(is_positive))
                    && !dims.iter().all(Dim::is_const)
            })
        };
        let divides = op.is(&DIVIDE);
        match (is_size(lhs), is_size(rhs)) {
            (true, false) if divides || op.is(&MULTIPLY) => {
                Some(Fraction { size: lhs, numbers: rhs, divides, added })
            }
            (false, true) if op.is(&MULTIPLY) => {
                Some(Fraction { size: rhs, numbers: lhs, divides, added })
            }
            _ => None,
        }
    }
}
