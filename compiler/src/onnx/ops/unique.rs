//! `Unique` of elements that a run computes.

use super::counted::Size;
use crate::graph::ExprId;
use crate::ir::{DType, Dim};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::elementwise::{
    GREATER, ISNAN, LOGICAL_AND, LOGICAL_NOT, LOGICAL_OR, NOT_EQUAL, SUBTRACT,
};
use crate::ops::reduce::{ARGMAX, ArgReduceAttrs, SUM};
use crate::ops::tensor::{
    CUMSUM, CumulativeAttrs, SCATTER_ELEMENTS, ScatterElementsAttrs, ScatterReduction, TOPK,
    TopkAttrs,
};

/// Most slices along an axis: each is compared with all others.
const MAX_SLICES: i64 = 1 << 11;

/// `Unique`-11, -28 (more types): the elements, or slices along an axis, without repetition.
pub(super) fn unique(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    if node.known_value(x).is_some() {
        return super::selected::unique(node);
    }
    let sorted = node.attrs.flag("sorted", true)?;
    let shape = node.shape(x)?.to_vec();
    let axis = node.attrs.int("axis")?.map(|axis| node.axis(axis, shape.len())).transpose()?;
    let (x, axis, keys) = match axis {
        Some(axis) if shape.len() > 1 => (x, axis, slice_ranks(node, x, axis)?),
        _ => {
            let flat = node.reshape(x, vec![shape.iter().product()])?;
            (flat, 0, flat)
        }
    };
    let groups = Groups::of(node, keys, sorted)?;
    let first = groups.first(node)?;
    let y = node.taken(x, first, axis)?;
    let (inverse, counts) = (groups.inverse(node)?, groups.counts(node)?);
    Ok(vec![y, first, inverse, counts])
}

/// Whether elements differ; a NaN is equal to itself.
fn differ(node: &mut Node<'_, '_>, a: ExprId, b: ExprId) -> Result<ExprId, NodeError> {
    let differ = node.call(&NOT_EQUAL, &[a, b])?;
    if !node.tensor(a)?.dtype.is_float() {
        return Ok(differ);
    }
    let (a, b) = (node.call(&ISNAN, &[a])?, node.call(&ISNAN, &[b])?);
    let both = node.call(&LOGICAL_AND, &[a, b])?;
    let not_both = node.call(&LOGICAL_NOT, &[both])?;
    node.call(&LOGICAL_AND, &[differ, not_both])
}

/// Whether the first is greater; a NaN is greater than every number.
fn greater(node: &mut Node<'_, '_>, a: ExprId, b: ExprId) -> Result<ExprId, NodeError> {
    let greater = node.call(&GREATER, &[a, b])?;
    if !node.tensor(a)?.dtype.is_float() {
        return Ok(greater);
    }
    let (a, b) = (node.call(&ISNAN, &[a])?, node.call(&ISNAN, &[b])?);
    let number = node.call(&LOGICAL_NOT, &[b])?;
    let by_nan = node.call(&LOGICAL_AND, &[a, number])?;
    node.call(&LOGICAL_OR, &[greater, by_nan])
}

/// How many slices along an axis come before each one in lexicographic order.
fn slice_ranks(node: &mut Node<'_, '_>, x: ExprId, axis: usize) -> Result<ExprId, NodeError> {
    let rank = node.shape(x)?.rank();
    let count = node.known_extent(x, axis)?;
    if count > MAX_SLICES {
        return Err(NodeError::new(format!(
            "{count} slices along axis {axis} are to be compared, but at most {MAX_SLICES} can be"
        )));
    }
    let order: Vec<usize> = std::iter::once(axis).chain((0..rank).filter(|&a| a != axis)).collect();
    let rows = node.transposed(x, &order)?;
    let mut len = 1;
    for other in 1..rank {
        len *= node.known_extent(rows, other)?;
    }
    let [one, count_dim, len_dim] = [1, count, len].map(Dim::from);
    let flat = node.reshape(rows, vec![Dim::from(count * len)])?;
    let left = node.reshape(flat, vec![count_dim.clone(), one.clone(), len_dim.clone()])?;
    let right = node.reshape(flat, vec![one.clone(), count_dim.clone(), len_dim])?;
    // Where they differ first; anywhere if they do not.
    let differs = differ(node, left, right)?;
    let differs = node.cast(differs, DType::I32)?;
    let attrs = ArgReduceAttrs { axis: 2, keepdims: false, select_last_index: false };
    let at = node.call_with(&ARGMAX, &[differs], &attrs)?;
    let at = node.cast(at, DType::I64)?;
    let starts: Vec<i64> = (0..count).map(|row| row * len).collect();
    let mut element = |dims: [i64; 2]| {
        let starts = node.integers(&dims, &starts)?;
        let place = node.add(starts, at)?;
        node.taken(flat, place, 0)
    };
    let (left, right) = (element([count, 1])?, element([1, count])?);
    let after = greater(node, left, right)?;
    let after = node.cast(after, DType::I64)?;
    node.reduce(&SUM, after, [1], false)
}

/// Elements that are equal, with a number for each group of them.
struct Groups {
    /// Places of the elements in order.
    order: ExprId,
    /// The number of the group of each element in order.
    of: ExprId,
    /// How many elements there are.
    len: i64,
    /// How many groups there are.
    size: Size,
}

impl Groups {
    /// The groups of a vector, in order or as they occur first.
    fn of(node: &mut Node<'_, '_>, keys: ExprId, sorted: bool) -> Result<Groups, NodeError> {
        let len = node.known_extent(keys, 0)?;
        let attrs = TopkAttrs { k: len.into(), axis: 0, largest: false };
        let both = node.call_with(&TOPK, &[keys], &attrs)?;
        let (values, order) = (node.field(both, 0)?, node.field(both, 1)?);
        // Of each element whether it is another one than that before it.
        let (rest, before) =
            (node.slice(values, 0, 1.min(len), len)?, node.slice(values, 0, 0, (len - 1).max(0))?);
        let begins = differ(node, rest, before)?;
        let begins = node.cast(begins, DType::I64)?;
        let first = node.full(1.0, DType::I64, vec![Dim::from(1.min(len))])?;
        let begins = node.concatenate(&[first, begins], 0)?;
        let count = node.reduce(&SUM, begins, [0], false)?;
        let size = node.size(count)?;
        let of = numbers(node, begins)?;
        let groups = Groups { order, of, len, size };
        if sorted {
            return Ok(groups);
        }
        // Elements that are the first of their group, in the order of the vector.
        let is_first = groups.scattered(node, order, begins, 0, ScatterReduction::Update)?;
        let numbers = numbers(node, is_first)?;
        let first = groups.all_first(node)?;
        let renamed = node.taken(numbers, first, 0)?;
        let of = node.taken(renamed, of, 0)?;
        Ok(Groups { of, ..groups })
    }

    /// A vector of one number with values put to places of it.
    fn scattered(
        &self,
        node: &mut Node<'_, '_>,
        places: ExprId,
        values: ExprId,
        otherwise: i64,
        reduction: ScatterReduction,
    ) -> Result<ExprId, NodeError> {
        let empty = node.full(otherwise as f64, DType::I64, vec![Dim::from(self.len)])?;
        let attrs = ScatterElementsAttrs { axis: 0, reduction };
        node.call_with(&SCATTER_ELEMENTS, &[empty, places, values], &attrs)
    }

    /// Where each group occurs first; something inside behind the last one.
    fn all_first(&self, node: &mut Node<'_, '_>) -> Result<ExprId, NodeError> {
        let last = (self.len - 1).max(0);
        self.scattered(node, self.of, self.order, last, ScatterReduction::Min)
    }

    fn first(&self, node: &mut Node<'_, '_>) -> Result<ExprId, NodeError> {
        let first = self.all_first(node)?;
        node.truncated(first, 0, &self.size)
    }

    /// The group of each element.
    fn inverse(&self, node: &mut Node<'_, '_>) -> Result<ExprId, NodeError> {
        self.scattered(node, self.order, self.of, 0, ScatterReduction::Update)
    }

    /// How many elements each group has.
    fn counts(&self, node: &mut Node<'_, '_>) -> Result<ExprId, NodeError> {
        let ones = node.full(1.0, DType::I64, vec![Dim::from(self.len)])?;
        let counts = self.scattered(node, self.of, ones, 0, ScatterReduction::Add)?;
        node.truncated(counts, 0, &self.size)
    }
}

/// The number of the ones before each element and at it, less one.
fn numbers(node: &mut Node<'_, '_>, ones: ExprId) -> Result<ExprId, NodeError> {
    let attrs = CumulativeAttrs { axis: 0, exclusive: false, reverse: false };
    let upto = node.call_with(&CUMSUM, &[ones], &attrs)?;
    node.with_scalar(&SUBTRACT, upto, 1.0)
}
