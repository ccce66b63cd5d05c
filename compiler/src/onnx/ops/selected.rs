//! Operators whose result is as large as their input says: it must be known while compiling.

use std::cmp::Ordering;

use crate::graph::interp::{Elements, Tensor};
use crate::onnx::import::{Node, NodeError, Outputs};

/// Most boxes of an image: each may be compared with all others.
const MAX_BOXES: usize = 1 << 12;

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
    let shape = x.shape();
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

/// A box as the ends along both axes.
fn ends(corners: &[f64], centred: bool) -> [[f64; 2]; 2] {
    let &[a, b, c, d] = corners else { return [[0.0; 2]; 2] };
    if centred {
        return [[a - c / 2.0, a + c / 2.0], [b - d / 2.0, b + d / 2.0]];
    }
    [[a.min(c), a.max(c)], [b.min(d), b.max(d)]]
}

/// The area in which two boxes overlap, as a share of the area of both.
fn overlap(a: [[f64; 2]; 2], b: [[f64; 2]; 2]) -> f64 {
    let area = |[x, y]: [[f64; 2]; 2]| (x[1] - x[0]).max(0.0) * (y[1] - y[0]).max(0.0);
    let common = [0, 1].map(|axis: usize| [a[axis][0].max(b[axis][0]), a[axis][1].min(b[axis][1])]);
    let (common, a, b) = (area(common), area(a), area(b));
    if common <= 0.0 || a <= 0.0 || b <= 0.0 { 0.0 } else { common / (a + b - common) }
}

/// `NonMaxSuppression`-10, -11: for each image and class the best boxes, without those that overlap
/// a better one.
pub(super) fn non_max_suppression(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (boxes, scores) = (known(node, 0)?, known(node, 1)?);
    let most = node.int_input(2)?.unwrap_or(0);
    let threshold = node.number_input(3)?.unwrap_or(0.0);
    let least_score = node.number_input(4)?;
    let centred = node.attrs.flag("center_point_box", false)?;
    let (&[batch, count, 4], &[images, classes, scored]) = (boxes.shape(), scores.shape()) else {
        return Err(wrong_boxes(&boxes, &scores));
    };
    let (Some(corners), Some(points)) = (boxes.floats(), scores.floats()) else {
        return Err(wrong_boxes(&boxes, &scores));
    };
    if batch != images || count != scored || count > MAX_BOXES {
        return Err(wrong_boxes(&boxes, &scores));
    }
    let mut selected: Vec<i64> = Vec::new();
    for (image, class) in (0..batch).flat_map(|image| (0..classes).map(move |c| (image, c))) {
        let points = &points[(image * classes + class) * count..][..count];
        let of = |index: usize| ends(&corners[(image * count + index) * 4..][..4], centred);
        let mut order: Vec<usize> =
            (0..count).filter(|&i| least_score.is_none_or(|least| points[i] > least)).collect();
        order.sort_by(|&a, &b| points[b].total_cmp(&points[a]));
        let mut taken: Vec<usize> = Vec::new();
        for index in order {
            if taken.len() as i64 >= most {
                break;
            }
            if taken.iter().all(|&better| overlap(of(index), of(better)) <= threshold) {
                taken.push(index);
                selected.extend([image as i64, class as i64, index as i64]);
            }
        }
    }
    Ok(vec![node.integers(&[selected.len() as i64 / 3, 3], &selected)?])
}

fn wrong_boxes(boxes: &Tensor, scores: &Tensor) -> NodeError {
    NodeError::new(format!(
        "up to {MAX_BOXES} boxes (images, boxes, 4) and scores (images, classes, boxes) are \
         expected, but they are {} and {}",
        boxes.ty(),
        scores.ty()
    ))
}
