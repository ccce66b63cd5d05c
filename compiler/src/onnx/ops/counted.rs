//! Operators whose result is as large as the elements of their inputs say: it has room for the
//! greatest, and a run counts how much of it there is.

use std::cell::Cell;

use super::indexed::kept_places;
use super::missing;
use super::slice::places;
use crate::arith::Symbol;
use crate::graph::ExprId;
use crate::ir::{DType, Dim};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::elementwise::{DIVIDE, GREATER_EQUAL, MAXIMUM, NOT_EQUAL, SUBTRACT};
use crate::ops::nn::{NON_MAX_SUPPRESSION, NonMaxSuppressionAttrs};
use crate::ops::reduce::SUM;
use crate::ops::tensor::{
    CUMSUM, CumulativeAttrs, SCATTER_ELEMENTS, ScatterElementsAttrs, ScatterReduction, TOPK,
    TRUNCATE, TopkAttrs, TruncateAttrs,
};
use crate::options::DimSize;

/// How many elements a run has along an axis: a symbol, and the scalar that says what it is.
pub(in crate::onnx) struct Size {
    name: String,
    count: ExprId,
    /// Whether something stays that has the size, even if it is not used.
    is_bound: Cell<bool>,
}

impl Node<'_, '_> {
    /// A size of which a value of one integer says what it is in a run.
    pub(in crate::onnx) fn size(&mut self, count: ExprId) -> Result<Size, NodeError> {
        let count = self.cast(count, DType::I64)?;
        let count = self.reshape(count, Vec::new())?;
        Ok(Size { name: self.new_size(), count, is_bound: Cell::new(false) })
    }

    /// The first elements along an axis, as many as a size says.
    pub(in crate::onnx) fn truncated(
        &mut self,
        value: ExprId,
        axis: usize,
        size: &Size,
    ) -> Result<ExprId, NodeError> {
        let extent = self.shape(value)?[axis].clone();
        let is = Dim::from(&Symbol::new(&size.name));
        let expected = self.expected_size(&size.name);
        let at_most = |node: &mut Self, dim: &Dim| {
            let known = node.builder.facts_mut().assume_le(dim, &extent);
            known.map_err(|mismatch| NodeError::new(mismatch.to_string()))
        };
        at_most(self, &is)?;
        let attrs = TruncateAttrs {
            axis: axis as i64,
            size: size.name.clone(),
            expected: expected.clone(),
        };
        let truncated = self.call_with(&TRUNCATE, &[value, size.count], &attrs)?;
        // `Range` may need the size alone, and what is expected of it is checked.
        if !size.is_bound.replace(true) {
            self.builder.bind(&size.name, truncated);
        }
        let Some(expected) = expected else { return Ok(truncated) };
        at_most(self, &expected)?;
        places(self, value, axis, Dim::from(0i64), 1, expected)
    }

    /// Where a tensor of booleans holds, row by row, in order.
    fn places_where(&mut self, mask: ExprId) -> Result<ExprId, NodeError> {
        let known = (self.builder.current_scope(), mask);
        if let Some(&places) = self.sizes.places.get(&known) {
            return Ok(places);
        }
        let length: Dim = self.shape(mask)?.iter().product();
        let holds = self.reshape(mask, vec![length.clone()])?;
        let ones = self.cast(holds, DType::I64)?;
        let attrs = CumulativeAttrs { axis: 0, exclusive: false, reverse: false };
        let upto = self.call_with(&CUMSUM, &[ones], &attrs)?;
        let rank = self.with_scalar(&SUBTRACT, upto, 1.0)?;
        let rank = self.with_scalar(&MAXIMUM, rank, 0.0)?;
        // What is left out puts 0 to a place that has at least that.
        let place = self.arange(0, length.clone())?;
        let place = self.multiply(place, ones)?;
        let zeros = self.full(0.0, DType::I64, vec![length])?;
        let attrs = ScatterElementsAttrs { axis: 0, reduction: ScatterReduction::Max };
        let places = self.call_with(&SCATTER_ELEMENTS, &[zeros, rank, place], &attrs)?;
        let count = self.reduce(&SUM, ones, [0], false)?;
        let size = self.size(count)?;
        let places = self.truncated(places, 0, &size)?;
        self.sizes.places.insert(known, places);
        Ok(places)
    }
}

/// `NonZero`-9, -13 (more types): the indices of the elements that are not zero, by axis.
pub(super) fn non_zero(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    if node.known_value(x).is_some() {
        return super::selected::non_zero(node);
    }
    let ty = node.tensor(x)?;
    // A scalar is a vector of one element.
    let shape = match ty.shape.rank() {
        0 => vec![Dim::from(1i64)],
        _ => ty.shape.to_vec(),
    };
    let holds = match ty.dtype {
        DType::Bool => x,
        _ => node.with_scalar(&NOT_EQUAL, x, 0.0)?,
    };
    let elements: Dim = shape.iter().product();
    let places = node.places_where(holds)?;
    let mut indices = Vec::with_capacity(shape.len());
    for (axis, extent) in shape.iter().enumerate() {
        let index = node.arange(0, extent.clone())?;
        let dims = (0..shape.len()).map(|other| match other == axis {
            true => extent.clone(),
            false => Dim::from(1i64),
        });
        let index = node.reshape(index, dims.collect())?;
        let index = node.broadcast_to(index, shape.clone())?;
        let index = node.reshape(index, vec![elements.clone()])?;
        indices.push(node.taken(index, places, 0)?);
    }
    Ok(vec![node.stack(&indices, 0)?])
}

/// `Compress`-9, -11 (negative axes): the slices for which the condition holds.
pub(super) fn compress(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let condition = node.input(1)?;
    let (x, axis) = match node.attrs.int("axis")? {
        Some(axis) => (x, axis),
        None => {
            let all = node.shape(x)?.iter().product();
            (node.reshape(x, vec![all])?, 0)
        }
    };
    let axis = node.axis(axis, node.shape(x)?.rank())?;
    let places = match node.known_value(condition) {
        Some(_) => kept_places(node, x, axis)?,
        None => {
            let [given] = &node.shape(condition)?[..] else {
                return Err(NodeError::new("a vector of conditions is expected"));
            };
            let (given, extent) = (given.clone(), node.shape(x)?[axis].clone());
            if node.builder.facts_mut().assume_eq(&extent, &extent.maximum(&given)).is_err() {
                let what = format!("{given} conditions are given for {extent} slices");
                return Err(NodeError::new(what));
            }
            node.places_where(condition)?
        }
    };
    Ok(vec![node.taken(x, places, axis)?])
}

/// `TopK`-10, -11 (`largest`, `sorted`), -24 (more types) with `k` that a run computes.
pub(super) fn topk(
    node: &mut Node<'_, '_>,
    axis: i64,
    largest: bool,
) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let k = node.optional(1).ok_or_else(|| missing("k"))?;
    let at = node.axis(axis, node.shape(x)?.rank())?;
    let all = node.shape(x)?[at].clone();
    let both = node.call_with(&TOPK, &[x], &TopkAttrs { k: all, axis, largest })?;
    let size = node.size(k)?;
    let fields = [node.field(both, 0)?, node.field(both, 1)?];
    fields.into_iter().map(|field| node.truncated(field, at, &size)).collect()
}

/// The elements of `Range` of integers with an end that a run computes, by a constant step. How many there
/// may be is what the rest of the model tells, or an option by the name of the size: a run that finds
/// other or more elements is an error. `None` if ends or step are something else.
pub(super) fn range(node: &mut Node<'_, '_>) -> Result<Option<ExprId>, NodeError> {
    let [start, limit] = [node.input(0)?, node.input(1)?];
    let dtype = node.tensor(start)?.dtype;
    let is_known = |node: &mut Node<'_, '_>, end| {
        node.builder.data_of(end).shape_value.is_some() || node.known_value(end).is_some()
    };
    if !dtype.is_int() || [start, limit].into_iter().all(|end| is_known(node, end)) {
        return Ok(None);
    }
    let Some(step) = node.int_input(2)?.filter(|&step| step != 0) else { return Ok(None) };
    let start = node.cast(start, DType::I64)?;
    let limit = node.cast(limit, DType::I64)?;
    let ends = if step > 0 { [limit, start] } else { [start, limit] };
    let span = node.call(&SUBTRACT, &ends)?;
    let [distance, missing, zero] =
        [step.saturating_abs(), step.saturating_abs() - 1, 0].map(|number| node.int(number));
    let span = node.add(span, missing)?;
    let count = node.call(&DIVIDE, &[span, distance])?;
    let count = node.call(&MAXIMUM, &[count, zero])?;
    let places = node.places_up_to(count)?;
    let step = node.int(step);
    let distances = node.multiply(places, step)?;
    let elements = node.add(distances, start)?;
    node.cast(elements, dtype).map(Some)
}

impl Node<'_, '_> {
    /// The numbers from 0 up to a count that a run computes, of which no operator says how many there may
    /// be.
    fn places_up_to(&mut self, count: ExprId) -> Result<ExprId, NodeError> {
        let size = self.size(count)?;
        let is = Dim::from(&Symbol::new(&size.name));
        let mut expected = self.expected_size(&size.name);
        let mut bounds = None;
        if expected.is_none() {
            match self.take_asked_size(&size.name) {
                Some(DimSize::Fixed(is)) => expected = Some(Dim::from(is)),
                asked => bounds = asked.and_then(|size| size.bounds()),
            }
        }
        if let Some(expected) = expected {
            self.check_count(count, &expected, expected.clone())?;
            return self.arange(0, expected);
        }
        let Some(bounds) = bounds.filter(|bounds| *bounds.end() != DimSize::UNBOUNDED) else {
            if self.builder.is_finding() {
                // What else has the size may tell.
                return self.arange(0, is);
            }
            let what = "the end is computed from the model's inputs: a run says how many elements \
                        there are";
            let help = format!("say how many there may be, as in --dim {}=0..=512", size.name);
            return Err(NodeError::new(what).help(help));
        };
        let [least, most] = [bounds.start(), bounds.end()].map(|&bound| Dim::from(bound));
        let lowest = self.size_scalar(&least)?;
        let within = Size { count: self.call(&MAXIMUM, &[size.count, lowest])?, ..size };
        let all = self.arange(0, most.clone())?;
        let places = self.truncated(all, 0, &within)?;
        // It is the same size, if that is within the bounds.
        self.check_count(count, &most, is)?;
        Ok(places)
    }

    /// Has a run be an error that counts another number than expected, which is `most` at most.
    fn check_count(&mut self, count: ExprId, most: &Dim, expected: Dim) -> Result<(), NodeError> {
        let size = self.size(count)?;
        let beyond = self.full(0.0, DType::U8, vec![most + &Dim::from(1i64)])?;
        let attrs = TruncateAttrs { axis: 0, size: size.name.clone(), expected: Some(expected) };
        let found = self.call_with(&TRUNCATE, &[beyond, size.count], &attrs)?;
        self.builder.bind(&size.name, found);
        Ok(())
    }
}

/// `NonMaxSuppression`-10, -11: for each image and class the best boxes, without those that overlap a
/// better one.
pub(super) fn non_max_suppression(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (boxes, scores) = (node.input(0)?, node.input(1)?);
    let most = node.int_input(2)?.unwrap_or(0).max(0);
    let attrs = NonMaxSuppressionAttrs {
        max_output_boxes: most,
        iou_threshold: node.number_input(3)?.unwrap_or(0.0),
        score_threshold: node.number_input(4)?,
        center_point_box: node.attrs.flag("center_point_box", false)?,
    };
    let rows = node.call_with(&NON_MAX_SUPPRESSION, &[boxes, scores], &attrs)?;
    if let Some(known) = node.known_value(rows) {
        let found = known.to_i64_vec().unwrap_or_default();
        let found: Vec<i64> = found.into_iter().take_while(|&number| number >= 0).collect();
        return Ok(vec![node.integers(&[found.len() as i64 / 3, 3], &found)?]);
    }
    // Behind the last row there are rows of -1.
    let images = node.slice(rows, 1, 0, 1)?;
    let is_row = node.with_scalar(&GREATER_EQUAL, images, 0.0)?;
    let ones = node.cast(is_row, DType::I64)?;
    let count = node.reduce(&SUM, ones, [0, 1], false)?;
    let size = node.size(count)?;
    Ok(vec![node.truncated(rows, 0, &size)?])
}
