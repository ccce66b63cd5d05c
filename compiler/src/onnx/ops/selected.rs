//! Operators whose result is as large as their input says: it must be known while compiling.

use std::cmp::Ordering;

use crate::graph::interp::{Elements, Tensor};
use crate::onnx::import::{Node, NodeError, Outputs};

fn known(node: &mut Node<'_, '_>, index: usize) -> Result<Tensor, NodeError> {
    let constant = node.constant_input(index)?;
    Tensor::from_constant(&constant).map_err(|error| NodeError::new(error.to_string()))
}

/// The strides of a dense tensor.
fn strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1usize; shape.len()];
    for axis in (1..shape.len()).rev() {
        strides[axis - 1] = strides[axis].saturating_mul(shape[axis].max(1));
    }
    strides
}

/// `NonZero`-9, -13 (more types): the indices of the elements that are not zero, by axis.
pub(super) fn non_zero(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = known(node, 0)?;
    let places: Vec<usize> = match x.elements() {
        Elements::Float(values) => (0..values.len()).filter(|&at| values[at] != 0.0).collect(),
        Elements::Int(values) => (0..values.len()).filter(|&at| values[at] != 0).collect(),
    };
    // A scalar is a vector of one element.
    let shape = if x.shape().is_empty() { &[1] } else { x.shape() };
    let of_axis = |(&extent, stride): (&usize, usize)| {
        places.iter().map(move |place| (place / stride % extent.max(1)) as i64).collect::<Vec<_>>()
    };
    let indices: Vec<i64> = shape.iter().zip(strides(shape)).flat_map(of_axis).collect();
    Ok(vec![node.integers(&[shape.len() as i64, places.len() as i64], &indices)?])
}

/// `Unique`-11, -28 (more types): the elements, or slices along an axis, without repetition.
pub(super) fn unique(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = known(node, 0)?;
    let sorted = node.attrs.flag("sorted", true)?;
    let shape = x.shape().to_vec();
    // The extents before the axis, along it and behind it; without one, all are one axis.
    let axis = node.attrs.int("axis")?.map(|axis| node.axis(axis, shape.len())).transpose()?;
    let count = |extents: &[usize]| extents.iter().product::<usize>();
    let (outer, extent, inner) = match axis {
        Some(axis) => (count(&shape[..axis]), shape[axis], count(&shape[axis + 1..])),
        None => (1, count(&shape), 1),
    };
    let offsets = |slice: usize| {
        (0..outer).flat_map(move |o| (0..inner).map(move |i| (o * extent + slice) * inner + i))
    };
    let compare = |a: usize, b: usize| match x.elements() {
        // As numpy has it, a NaN is greater than all others, and equal to itself.
        Elements::Float(values) => offsets(a)
            .zip(offsets(b))
            .map(|(a, b)| {
                let (a, b) = (values[a], values[b]);
                a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
            })
            .find(|order| order.is_ne()),
        Elements::Int(values) => {
            offsets(a).zip(offsets(b)).map(|(a, b)| values[a].cmp(&values[b])).find(|o| o.is_ne())
        }
    };
    let compare = |a: &usize, b: &usize| compare(*a, *b).unwrap_or(Ordering::Equal);
    let mut order: Vec<usize> = (0..extent).collect();
    order.sort_by(compare);
    // Of equal slices the first comes first: the sort is stable.
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for slice in order {
        match groups.last_mut() {
            Some(group) if compare(&group[0], &slice).is_eq() => group.push(slice),
            _ => groups.push(vec![slice]),
        }
    }
    if !sorted {
        groups.sort_by_key(|group| group[0]);
    }
    let mut kept = shape.clone();
    match axis {
        Some(axis) => kept[axis] = groups.len(),
        None => kept = vec![groups.len()],
    }
    let groups_ref = &groups;
    let places = (0..outer).flat_map(|o| {
        groups_ref
            .iter()
            .flat_map(move |group| (0..inner).map(move |i| (o * extent + group[0]) * inner + i))
    });
    let y = x.pick(&kept, places).map_err(|error| NodeError::new(error.to_string()))?;
    let y = y.to_constant().map_err(|error| NodeError::new(error.to_string()))?;
    let mut inverse = vec![0i64; extent];
    for (number, group) in groups.iter().enumerate() {
        group.iter().for_each(|&slice| inverse[slice] = number as i64);
    }
    let first: Vec<i64> = groups.iter().map(|group| group[0] as i64).collect();
    let counts: Vec<i64> = groups.iter().map(|group| group.len() as i64).collect();
    let mut outputs = vec![node.constant(y)];
    for list in [first, inverse, counts] {
        outputs.push(node.integers(&[list.len() as i64], &list)?);
    }
    Ok(outputs)
}
