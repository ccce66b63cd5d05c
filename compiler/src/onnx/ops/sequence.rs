//! Sequences and optional values. How many elements a sequence has is known while compiling, so that
//! nothing is left of either: a sequence is the list of its elements, a tuple that no call takes.

use super::slice::pieces;
use crate::graph::ExprId;
use crate::ir::DType;
use crate::onnx::import::{MAX_UNROLLED_STEPS, Node, NodeError, Outputs};

/// `SequenceConstruct`-11.
pub(super) fn construct(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let elements = node.all_inputs()?;
    of(node, &elements)
}

/// `SequenceEmpty`-11. The type of the elements is that of the first that is inserted.
pub(super) fn empty(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    node.attrs.int("dtype")?;
    of(node, &[])
}

/// `SequenceLength`-11.
pub(super) fn length(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let length = elements(node)?.len();
    Ok(vec![node.scalar(length as f64, DType::I64)?])
}

/// `SequenceAt`-11.
pub(super) fn at(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let elements = elements(node)?;
    let place = place(node, 1, elements.len(), elements.len())?;
    let place = place.ok_or_else(|| super::missing("position"))?;
    Ok(vec![elements[place]])
}

/// `SequenceInsert`-11: before the element at a position, or at the end.
pub(super) fn insert(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let mut elements = elements(node)?;
    let new = node.input(1)?;
    let place = place(node, 2, elements.len(), elements.len() + 1)?;
    elements.insert(place.unwrap_or(elements.len()), new);
    of(node, &elements)
}

/// `SequenceErase`-11: the element at a position, or the last.
pub(super) fn erase(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let mut elements = elements(node)?;
    let place = match place(node, 1, elements.len(), elements.len())? {
        Some(place) => place,
        None => elements
            .len()
            .checked_sub(1)
            .ok_or_else(|| NodeError::new("the sequence has no element to erase"))?,
    };
    elements.remove(place);
    of(node, &elements)
}

/// `SplitToSequence`-11, -24 (more types). The sizes are a list, or one number for all but perhaps
/// the last; without them each element is one step of the axis, which `keepdims` keeps.
pub(super) fn split(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let axis = node.attrs.int("axis")?.unwrap_or(0);
    let keeps = node.attrs.flag("keepdims", true)?;
    let x = node.input(0)?;
    let axis = node.axis(axis, node.shape(x)?.rank())?;
    let extent = node.known_extent(x, axis)?;
    let sizes = node.ints_input(1)?;
    let squeezes = sizes.is_none() && !keeps;
    let is_list = match node.optional(1) {
        Some(sizes) => node.shape(sizes)?.rank() > 0,
        None => false,
    };
    let sizes = match sizes {
        Some(sizes) if is_list => sizes,
        sizes => chunks(extent, sizes.and_then(|sizes| sizes.first().copied()).unwrap_or(1))?,
    };
    if sizes.len() > MAX_UNROLLED_STEPS {
        return Err(NodeError::new(format!(
            "the sequence would have {} elements; at most {MAX_UNROLLED_STEPS} are possible",
            sizes.len()
        )));
    }
    let elements = if squeezes {
        (0..extent).map(|at| node.step_of(x, axis, at)).collect::<Result<Vec<_>, _>>()?
    } else if sizes.is_empty() {
        Vec::new()
    } else {
        pieces(node, x, axis as i64, sizes)?
    };
    of(node, &elements)
}

/// Sizes of the pieces of an extent, each of so many but perhaps the last.
fn chunks(extent: i64, size: i64) -> Result<Vec<i64>, NodeError> {
    if size < 1 {
        return Err(NodeError::new(format!(
            "the sizes of elements must be at least 1, not {size}"
        )));
    }
    let step = usize::try_from(size).unwrap_or(usize::MAX);
    Ok((0..extent).step_by(step).map(|from| size.min(extent - from)).collect())
}

/// `ConcatFromSequence`-11: the elements along an axis, or along a new one.
pub(super) fn concat(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let axis = node.attrs.int("axis")?.ok_or_else(|| super::missing("axis"))?;
    let is_new = node.attrs.flag("new_axis", false)?;
    let elements = elements(node)?;
    let Some(&first) = elements.first() else {
        return Err(NodeError::new("the sequence has no elements to join"));
    };
    if is_new {
        return Ok(vec![node.stack(&elements, axis)?]);
    }
    let axis = node.axis(axis, node.shape(first)?.rank())?;
    Ok(vec![node.concatenate(&elements, axis)?])
}

/// `OptionalHasElement`-15, -18 (also of values that are not optional, or left out).
pub(super) fn has_element(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let has = f64::from(u8::from(node.optional(0).is_some()));
    Ok(vec![node.scalar(has, DType::Bool)?])
}

/// `OptionalGetElement`-15, -18 (also of values that are not optional).
pub(super) fn get_element(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    match node.optional(0) {
        Some(value) => Ok(vec![value]),
        None => Err(NodeError::new("the optional value has no element")),
    }
}

/// The elements of the first input.
fn elements(node: &Node<'_, '_>) -> Result<Vec<ExprId>, NodeError> {
    let value = node.input(0)?;
    let elements = node.elements(value).map(<[ExprId]>::to_vec);
    elements.ok_or_else(|| NodeError::new("input 0 must be a sequence"))
}

/// The position that an input says, counted from either end of a sequence, if the input is there;
/// less than `places`.
fn place(
    node: &mut Node<'_, '_>,
    input: usize,
    length: usize,
    places: usize,
) -> Result<Option<usize>, NodeError> {
    let Some(position) = node.int_input(input)? else { return Ok(None) };
    let from_start = if position < 0 { position + length as i64 } else { position };
    match usize::try_from(from_start) {
        Ok(place) if place < places => Ok(Some(place)),
        Ok(_) | Err(_) => Err(NodeError::new(format!(
            "position {position} is out of range for a sequence of {length} elements"
        ))),
    }
}

/// A sequence of tensors, which must be of one element type.
fn of(node: &mut Node<'_, '_>, elements: &[ExprId]) -> Result<Outputs, NodeError> {
    let mut dtype = None;
    for &element in elements {
        let found = node.tensor(element)?.dtype;
        let expected = *dtype.get_or_insert(found);
        if found != expected {
            return Err(NodeError::new(format!(
                "the elements of a sequence must be of one type, but there are {expected} and {found}"
            )));
        }
    }
    Ok(vec![node.sequence(elements)])
}
