//! Reductions over axes.

use crate::graph::ExprId;
use crate::ir::DType;
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::OpDef;
use crate::ops::elementwise::{ABS, ADD, EXP, LESS, LOG, MULTIPLY, SQRT, SUBTRACT, WHERE};
use crate::ops::reduce::{ArgReduceAttrs, MAX, ReduceAttrs, SUM};
use crate::ops::tensor::{SQUEEZE, SqueezeAttrs};

/// Which axes a reduction goes over.
struct Reduction {
    /// Indices; empty means all.
    axes: Vec<i64>,
    keepdims: bool,
    /// Nothing is reduced: no axes are given, and the node says that this means none.
    noop: bool,
}

impl Reduction {
    /// Reads the axes: an attribute, and from version `input_since` on an input.
    fn read(node: &mut Node<'_, '_>, input_since: i64) -> Result<Reduction, NodeError> {
        let keepdims = node.attrs.flag("keepdims", true)?;
        let (axes, empty_is_none) = if node.version >= input_since {
            let noop = node.attrs.flag("noop_with_empty_axes", false)?;
            (node.ints_input(1)?.unwrap_or_default(), noop)
        } else if node.input_count() > 1 {
            return Err(NodeError::new(format!(
                "the axes are an attribute until version {input_since} of the operator"
            )));
        } else {
            (node.attrs.ints("axes")?.map(<[i64]>::to_vec).unwrap_or_default(), false)
        };
        let rank = node.shape(node.input(0)?)?.rank();
        let axes = node.axes(&axes, rank)?.into_iter().map(|axis| axis as i64).collect();
        let mut reduction = Reduction { axes, keepdims, noop: false };
        reduction.noop = empty_is_none && reduction.axes.is_empty();
        Ok(reduction)
    }

    fn apply(
        &self,
        node: &mut Node<'_, '_>,
        op: &'static OpDef,
        x: ExprId,
    ) -> Result<ExprId, NodeError> {
        if self.noop {
            return Ok(x);
        }
        let attrs = ReduceAttrs { axis: self.axes.clone(), keepdims: self.keepdims };
        node.call_with(op, &[x], &attrs)
    }
}

/// `ReduceMean`, `ReduceMax`, `ReduceMin`, `ReduceProd`: -1, -11, (-12,) -13 (more types), -18 (axes
/// as an input), (-20); `ReduceSum` has its axes as an input since -13.
pub(super) fn simple(
    node: &mut Node<'_, '_>,
    op: &'static OpDef,
    input_since: i64,
) -> Result<Outputs, NodeError> {
    let reduction = Reduction::read(node, input_since)?;
    let x = node.input(0)?;
    Ok(vec![reduction.apply(node, op, x)?])
}

/// `ReduceL1`-1, -11, -13, -18 (axes as an input): the sum of magnitudes.
pub(super) fn l1(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let reduction = Reduction::read(node, 18)?;
    let x = node.input(0)?;
    let magnitude = node.call(&ABS, &[x])?;
    Ok(vec![reduction.apply(node, &SUM, magnitude)?])
}

/// The value in floats: in the type that sums of its elements are computed in, or in `float64` of integers,
/// of which roots and logarithms are cut off.
fn in_floats(node: &mut Node<'_, '_>, value: ExprId) -> Result<ExprId, NodeError> {
    match node.tensor(value)?.dtype.is_int() {
        true => node.cast(value, DType::F64),
        false => node.widened(value),
    }
}

/// `ReduceSumSquare`-1, -11, -13, -18 (axes as an input).
pub(super) fn sum_square(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let wide = node.widened(x)?;
    sum_square_then(node, wide, |_, sum| Ok(sum))
}

/// A function of the sum of squares, before which nothing is rounded to fewer bits.
fn sum_square_then(
    node: &mut Node<'_, '_>,
    wide: ExprId,
    then: impl FnOnce(&mut Node<'_, '_>, ExprId) -> Result<ExprId, NodeError>,
) -> Result<Outputs, NodeError> {
    let reduction = Reduction::read(node, 18)?;
    let square = node.call(&MULTIPLY, &[wide, wide])?;
    let sum = reduction.apply(node, &SUM, square)?;
    let result = then(node, sum)?;
    let dtype = node.tensor(node.input(0)?)?.dtype;
    Ok(vec![node.cast(result, dtype)?])
}

/// `ReduceL2`-1, -11, -13, -18 (axes as an input): the root of the sum of squares.
pub(super) fn l2(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let wide = in_floats(node, x)?;
    sum_square_then(node, wide, |node, sum| node.call(&SQRT, &[sum]))
}

/// `ReduceLogSum`-1, -11, -13, -18 (axes as an input), -28: the logarithm of the sum.
pub(super) fn log_sum(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let reduction = Reduction::read(node, 18)?;
    let x = node.input(0)?;
    let wide = in_floats(node, x)?;
    let sum = reduction.apply(node, &SUM, wide)?;
    let log = node.call(&LOG, &[sum])?;
    let dtype = node.tensor(x)?.dtype;
    Ok(vec![node.cast(log, dtype)?])
}

/// `ReduceLogSumExp`-1, -11, -13, -18 (axes as an input), -28. The maximum is taken out first, so
/// that nothing overflows; one that is infinite stays, as its difference from itself is no number.
pub(super) fn log_sum_exp(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let reduction = Reduction::read(node, 18)?;
    let x = node.input(0)?;
    if reduction.noop {
        return Ok(vec![x]);
    }
    let kept = Reduction { keepdims: true, axes: reduction.axes.clone(), noop: false };
    let max = kept.apply(node, &MAX, x)?;
    let (wide, max) = (in_floats(node, x)?, in_floats(node, max)?);
    let dtype = node.tensor(max)?.dtype;
    let (zero, infinity) = (node.scalar(0.0, dtype)?, node.scalar(f64::INFINITY, dtype)?);
    let magnitude = node.call(&ABS, &[max])?;
    let is_finite = node.call(&LESS, &[magnitude, infinity])?;
    let max = node.call(&WHERE, &[is_finite, max, zero])?;
    let shifted = node.call(&SUBTRACT, &[wide, max])?;
    let exp = node.call(&EXP, &[shifted])?;
    let sum = kept.apply(node, &SUM, exp)?;
    let log = node.call(&LOG, &[sum])?;
    let result = node.call(&ADD, &[log, max])?;
    let dtype = node.tensor(x)?.dtype;
    let result = node.cast(result, dtype)?;
    if reduction.keepdims {
        return Ok(vec![result]);
    }
    let rank = node.shape(x)?.rank() as i64;
    let axis = if kept.axes.is_empty() { (0..rank).collect() } else { kept.axes };
    Ok(vec![node.call_with(&SQUEEZE, &[result], &SqueezeAttrs { axis })?])
}

/// `ArgMax` and `ArgMin`: -1, -11 (negative axes), -12 (`select_last_index`), -13 (more types).
pub(super) fn arg(node: &mut Node<'_, '_>, op: &'static OpDef) -> Result<Outputs, NodeError> {
    let axis = node.attrs.int("axis")?.unwrap_or(0);
    let keepdims = node.attrs.flag("keepdims", true)?;
    let select_last_index =
        if node.version >= 12 { node.attrs.flag("select_last_index", false)? } else { false };
    let x = node.input(0)?;
    let attrs = ArgReduceAttrs { axis, keepdims, select_last_index };
    Ok(vec![node.call_with(op, &[x], &attrs)?])
}
