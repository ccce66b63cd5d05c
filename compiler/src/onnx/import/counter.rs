//! Loops that end when a counter reaches a number which is known before them.
//!
//! tf2onnx writes the recurrent layers of Keras that no operator of ONNX stands for so: without a number of
//! steps, and with a condition of a state that begins at 0, grows by 1, and is compared with an extent.

use super::Node;
use crate::graph::{Callee, ExprId};
use crate::ir::{DType, Dim};
use crate::onnx::ops::repeat::Repeat;
use crate::ops::OpDef;
use crate::ops::elementwise::{ADD, CAST, LESS};
use crate::ops::tensor::{EXPAND_DIMS, RESHAPE, SQUEEZE};

/// A number of steps that is known before the loop.
pub(super) struct Counted {
    /// A tensor of one integer, from outside of the loop.
    pub(super) count: ExprId,
    /// The number, by sizes of inputs.
    pub(super) length: Dim,
}

impl Node<'_, '_> {
    /// How many steps a loop has that goes on while its first state holds. `first` are the states before
    /// the loop, `after` those that a step leaves; `goes` says that there is a first step.
    pub(super) fn counted(
        &mut self,
        repeat: &Repeat,
        first: &[ExprId],
        after: &[ExprId],
        goes: bool,
    ) -> Option<Counted> {
        let [counter, end] = self.compared(after[0])?;
        let at = after.iter().position(|&state| self.unwrapped(state) == counter)?;
        let [a, b] = self.operands_of(counter, &ADD)?;
        let is_before = |node: &Self, value| node.unwrapped(value) == repeat.states[at];
        let step = match (is_before(self, a), is_before(self, b)) {
            (true, false) => b,
            (false, true) => a,
            _ => return None,
        };
        if self.number(step)? != 1 || self.number(first[at])? != 0 {
            return None;
        }
        let count = match repeat.states.iter().position(|&state| state == end) {
            Some(state) => (self.unwrapped(after[state]) == end).then_some(first[state])?,
            None => end,
        };
        let data = self.builder.data_of(count);
        let length = match data.shape_value.as_deref()? {
            [length] if data.scope == repeat.around() => length.clone(),
            _ => return None,
        };
        // A loop that begins in any case has a step at least, and no loop has less than none.
        let least = if goes { 1 } else { 0 };
        if self.facts().prove_le(&Dim::from(least), &length) != Some(true) {
            return None;
        }
        // The first step is asked for in the same way.
        let goes = goes
            || self.compared(first[0]).is_some_and(|[start, end]| {
                let is_same = self.builder.data_of(end).shape_value.as_deref()
                    == Some(std::slice::from_ref(&length));
                is_same && self.number(start) == Some(0)
            });
        goes.then_some(Counted { count, length })
    }

    /// The two sides of `a < b`.
    fn compared(&self, condition: ExprId) -> Option<[ExprId; 2]> {
        let sides = self.operands_of(self.unwrapped(condition), &LESS)?;
        Some(sides.map(|side| self.unwrapped(side)))
    }

    fn operands_of(&self, value: ExprId, def: &OpDef) -> Option<[ExprId; 2]> {
        self.operands(value).filter(|(op, _)| op.is(def)).map(|(_, operands)| operands)
    }

    /// A number, before it changes its shape, or its type for another one that holds extents.
    fn unwrapped(&self, mut value: ExprId) -> ExprId {
        let is_wide = |value| {
            let dtype = self.builder.ty(value).as_tensor().map(|ty| ty.dtype);
            matches!(dtype, Some(DType::I32 | DType::I64 | DType::F32 | DType::F64))
        };
        while let Some(call) = self.builder.expr(value).as_call()
            && let Callee::Op(op) = call.callee
            && ([&RESHAPE, &SQUEEZE, &EXPAND_DIMS].iter().any(|def| op.is(def))
                || op.is(&CAST) && is_wide(value))
            && let Some(&Some(from)) = call.args.first()
        {
            value = from;
        }
        value
    }

    /// The only element of a tensor, as a whole number.
    fn number(&mut self, value: ExprId) -> Option<i64> {
        let value = self.unwrapped(value);
        let constant = self.known_value(value)?;
        let floats = || constant.to_f64_vec()?.iter().map(|&number| whole(number)).collect();
        match constant.to_i64_vec().or_else(floats)?.as_slice() {
            &[number] => Some(number),
            _ => None,
        }
    }

    /// The number of steps as the end of a loop.
    ///
    /// # Errors
    ///
    /// It is no scalar of integers.
    pub(super) fn end_of(&mut self, counted: &Counted) -> Result<ExprId, super::NodeError> {
        let count = self.cast(counted.count, DType::I64)?;
        self.reshape(count, Vec::new())
    }
}

fn whole(number: f64) -> Option<i64> {
    (number.fract() == 0.0 && number.abs() < f64::from(u32::MAX)).then_some(number as i64)
}
