//! Fractions of sizes, which are whole again once they are rounded, as exporters write the sizes of
//! images that are resized, and numbers of windows: `Shape → Cast → Mul → Floor → Cast`.

use crate::graph::{Callee, ExprId};
use crate::ir::{DType, Dim};
use crate::onnx::import::{Node, NodeError};
use crate::ops::elementwise::{ADD, DIVIDE, MULTIPLY, SUBTRACT};

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
}

impl Node<'_, '_> {
    /// A size times a constant fraction, or divided by one, rounded: as `int64`, so that what it is stays
    /// known. `None` for any other value.
    pub(super) fn rounded_size(
        &mut self,
        value: ExprId,
        to: Rounding,
    ) -> Result<Option<ExprId>, NodeError> {
        let Some((size, numbers, divides)) = self.fraction(value) else { return Ok(None) };
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
        let mut product = self.call(&MULTIPLY, &[size, factor])?;
        if to == Rounding::Up {
            let one = self.int(1);
            let most = self.call(&SUBTRACT, &[divisor, one])?;
            product = self.call(&ADD, &[product, most])?;
        }
        Ok(Some(self.call(&DIVIDE, &[product, divisor])?))
    }

    /// The size, the constant, and whether it divides the size, of a float that is one.
    fn fraction(&mut self, value: ExprId) -> Option<(ExprId, ExprId, bool)> {
        let is_size = |node: &Self, value: ExprId| {
            let dims = node.builder.data_of(value).shape_value.as_deref();
            let is_positive = |dim: &Dim| node.facts().bounds_of(dim).lower >= Some(0);
            dims.is_some_and(|dims| dims.iter().all(is_positive) && !dims.iter().all(Dim::is_const))
        };
        let call = self.builder.expr(value).as_call()?.clone();
        let Callee::Op(op) = call.callee else { return None };
        let (product, quotient) = (op.is(&MULTIPLY), op.is(&DIVIDE));
        let &[Some(lhs), Some(rhs)] = call.args.as_slice() else { return None };
        if !self.tensor(value).ok()?.dtype.is_float() {
            return None;
        }
        match (is_size(self, lhs), is_size(self, rhs)) {
            (true, false) if product || quotient => Some((lhs, rhs, quotient)),
            (false, true) if product => Some((rhs, lhs, false)),
            _ => None,
        }
    }
}
