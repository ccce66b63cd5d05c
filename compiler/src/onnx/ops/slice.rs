//! Parts of tensors along axes: `Slice` and `Split`. Where a part begins and ends may be known,
//! follow from sizes of inputs, or be computed by a run.

use super::missing;
use crate::graph::ExprId;
use crate::ir::{DType, Dim};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::elementwise::{ADD, LESS, MAXIMUM, MINIMUM, MULTIPLY};
use crate::ops::tensor::{
    ARANGE, ArangeAttrs, SHAPE_OF, SPLIT, STRIDED_SLICE, ShapeOfAttrs, SplitAttrs,
    StridedSliceAttrs, TAKE, TakeAttrs, TakeMode,
};

/// `Slice`-1 has its bounds as attributes, -10 as inputs, with steps; -11 (negative axes), -13 (more
/// types).
pub(super) fn slice(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let dims =
        |list: Option<&[i64]>| list.map(|list| list.iter().copied().map(Dim::from).collect());
    let (begins, ends, axes, steps) = if node.version < 10 {
        let begins: Option<Vec<Dim>> = dims(node.attrs.ints("starts")?);
        let ends: Option<Vec<Dim>> = dims(node.attrs.ints("ends")?);
        (begins, ends, node.attrs.ints("axes")?.map(<[i64]>::to_vec), None)
    } else {
        (node.ends(1)?, node.ends(2)?, node.ints_input(3)?, node.ints_input(4)?)
    };
    let given = begins.as_ref().or(ends.as_ref()).map_or(0, Vec::len);
    let axes = axes.unwrap_or_else(|| (0..given as i64).collect());
    let strides = steps.unwrap_or_else(|| vec![1; axes.len()]);
    let length = |list: &Option<Vec<Dim>>| list.as_ref().map_or(axes.len(), Vec::len);
    let lengths = [length(&begins), length(&ends), axes.len(), strides.len()];
    if lengths.iter().any(|&length| length != axes.len()) {
        return Err(NodeError::new(format!(
            "starts, ends, axes and steps must have one length, but they have {lengths:?}"
        )));
    }
    let (Some(begins), Some(ends)) = (begins, ends) else {
        return computed(node, x, &axes, &strides);
    };
    let mut closed =
        StridedSliceAttrs { begin: vec![], end: vec![], strides: vec![], axes: vec![] };
    let mut sliced = x;
    for (place, (begin, end)) in begins.iter().zip(&ends).enumerate() {
        let (stride, axis) = (strides[place], axes[place]);
        match [begin, end].map(Dim::as_const) {
            [Some(begin), Some(end)] => {
                closed.begin.push(begin);
                closed.end.push(end);
                closed.strides.push(stride);
                closed.axes.push(axis);
            }
            _ => sliced = open(node, sliced, axis, [begin, end], stride)?,
        }
    }
    if !closed.axes.is_empty() {
        sliced = node.call_with(&STRIDED_SLICE, &[sliced], &closed)?;
    }
    Ok(vec![sliced])
}

impl Node<'_, '_> {
    /// The elements of an input as extents; `None` if a run computes them.
    fn ends(&mut self, index: usize) -> Result<Option<Vec<Dim>>, NodeError> {
        let value = self.optional(index).ok_or_else(|| missing(["", "starts", "ends"][index]))?;
        let is_known =
            self.builder.data_of(value).shape_value.is_some() || self.known_value(value).is_some();
        if is_known { self.dims_input(index) } else { Ok(None) }
    }
}

/// The elements along an axis between bounds that depend on sizes of inputs.
fn open(
    node: &mut Node<'_, '_>,
    x: ExprId,
    axis: i64,
    bounds: [&Dim; 2],
    stride: i64,
) -> Result<ExprId, NodeError> {
    let shape = node.shape(x)?;
    let axis = node.axis(axis, shape.rank())?;
    let (extent, zero) = (&shape[axis], Dim::from(0i64));
    let [Some(begin), Some(end)] = bounds.map(|bound| within(node, bound, extent)) else {
        let [begin, end] = bounds;
        let what = format!(
            "the slice of axis {axis} begins at {begin} and ends at {end}, which may be positions \
             from either end"
        );
        return Err(NodeError::new(what).pin(bounds));
    };
    if stride < 1 {
        let what = format!("steps of {stride} between {begin} and {end} are not supported");
        return Err(NodeError::new(what).pin(bounds));
    }
    if let (Some(begin), true, 1) = (begin.as_const(), end == *extent, stride) {
        return node.slice(x, axis, begin, i64::MAX);
    }
    let length = (&end - &begin).maximum(&zero).ceil_div(&Dim::from(stride));
    let length = node.facts().simplify(&length);
    places(node, x, axis, begin, stride, length)
}

/// Where a bound is on an axis, if it always counts from the same end, or has to from now on.
fn within(node: &mut Node<'_, '_>, bound: &Dim, extent: &Dim) -> Option<Dim> {
    let zero = Dim::from(0i64);
    let is = node.facts().bounds_of(bound);
    let at = match (is.lower, is.upper, (extent - bound).as_const()) {
        (Some(0..), ..) => bound.minimum(extent),
        (_, Some(..0), _) => (bound + extent).maximum(&zero),
        // One or two before the end: below zero they are before the beginning from the other end, too.
        (.., Some(1..=2)) => bound.maximum(&zero),
        _ if node.is_at_least(bound, &zero) => bound.minimum(extent),
        _ => return None,
    };
    Some(node.facts().simplify(&at))
}

/// So many elements along an axis, the first of them at `start`, which is no less than zero.
pub(super) fn places(
    node: &mut Node<'_, '_>,
    x: ExprId,
    axis: usize,
    start: Dim,
    step: i64,
    length: Dim,
) -> Result<ExprId, NodeError> {
    let attrs = ArangeAttrs { start, step, length, dtype: DType::I64 };
    let places = node.call_with(&ARANGE, &[], &attrs)?;
    let attrs = TakeAttrs { axis: axis as i64, mode: TakeMode::Clip };
    node.call_with(&TAKE, &[x, places], &attrs)
}

/// The elements between bounds that a run computes: as many along an axis as it says.
fn computed(
    node: &mut Node<'_, '_>,
    x: ExprId,
    axes: &[i64],
    strides: &[i64],
) -> Result<Outputs, NodeError> {
    let bounds = [node.input(1)?, node.input(2)?];
    if let Some(stride) = strides.iter().find(|&&stride| stride != 1) {
        return Err(NodeError::new(format!(
            "steps of {stride} between bounds that are computed from the model's inputs are not \
             supported"
        )));
    }
    let mut sliced = x;
    for (place, &axis) in (0..).zip(axes) {
        let shape = node.shape(sliced)?;
        let axis = node.axis(axis, shape.rank())?;
        let all = node.call_with(&SHAPE_OF, &[sliced], &ShapeOfAttrs { dtype: DType::I64 })?;
        let extent = node.first_axis_at(all, axis as i64)?;
        let zero = node.scalar(0.0, DType::I64)?;
        let mut ends = [zero; 2];
        for (end, &bound) in ends.iter_mut().zip(&bounds) {
            let bound = node.cast(bound, DType::I64)?;
            let bound = node.first_axis_at(bound, place)?;
            let from_end = node.call(&LESS, &[bound, zero])?;
            let from_end = node.cast(from_end, DType::I64)?;
            let shift = node.call(&MULTIPLY, &[from_end, extent])?;
            let at = node.call(&ADD, &[bound, shift])?;
            let at = node.call(&MAXIMUM, &[at, zero])?;
            *end = node.call(&MINIMUM, &[at, extent])?;
        }
        let [begin, end] = ends;
        let count = node.subtract(end, begin)?;
        let count = node.call(&MAXIMUM, &[count, zero])?;
        let size = node.size(count)?;
        let places = node.arange(0, shape[axis].clone())?;
        let places = node.truncated(places, 0, &size)?;
        let places = node.call(&ADD, &[places, begin])?;
        let attrs = TakeAttrs { axis: axis as i64, mode: TakeMode::Clip };
        sliced = node.call_with(&TAKE, &[sliced, places], &attrs)?;
    }
    Ok(vec![sliced])
}

/// `Split`-2, -11 (negative axes), -13 (sizes as an input), -18 (`num_outputs`, with a smaller last
/// piece). Without sizes, the pieces are equal.
pub(super) fn split(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let shape = node.shape(x)?;
    let axis = node.attrs.int("axis")?.unwrap_or(0);
    let index = node.axis(axis, shape.rank())?;
    let count = node.output_count();
    let sizes = if node.version >= 13 {
        node.dims_input(1)?
    } else {
        node.attrs.ints("split")?.map(|sizes| sizes.iter().copied().map(Dim::from).collect())
    };
    let num_outputs = if node.version >= 18 { node.attrs.int("num_outputs")? } else { None };
    if num_outputs.is_some_and(|outputs| usize::try_from(outputs) != Ok(count)) {
        return Err(NodeError::new(format!(
            "attribute `num_outputs` is {}, but the node has {count} outputs",
            num_outputs.unwrap_or_default()
        )));
    }
    let extent = &shape[index];
    let sections = match sizes {
        Some(sizes) if sizes.len() != count => {
            return Err(NodeError::new(format!(
                "{} sizes are given, but the node has {count} outputs",
                sizes.len()
            )));
        }
        Some(sizes) => sizes,
        None => equal_pieces(node, extent, count)?,
    };
    let closed: Option<Vec<i64>> = sections.iter().map(Dim::as_const).collect();
    if let (Some(sections), true) = (closed, extent.is_const()) {
        return pieces(node, x, axis, sections);
    }
    let mut start = Dim::from(0i64);
    let mut parts = Vec::with_capacity(count);
    for size in sections {
        parts.push(places(node, x, index, start.clone(), 1, size.clone())?);
        start += size;
    }
    if !node.is_same(std::slice::from_ref(&start), std::slice::from_ref(extent)) {
        let what = format!("the pieces have {start} elements, but there are {extent}");
        return Err(NodeError::new(what).pin([&start, extent]));
    }
    Ok(parts)
}

/// The pieces of a value along an axis, of these sizes.
pub(super) fn pieces(
    node: &mut Node<'_, '_>,
    x: ExprId,
    axis: i64,
    sections: Vec<i64>,
) -> Result<Outputs, NodeError> {
    let count = sections.len() as u32;
    let tuple = node.call_with(&SPLIT, &[x], &SplitAttrs { axis, sections })?;
    (0..count).map(|piece| node.field(tuple, piece)).collect()
}

/// Sizes of so many pieces of an extent, all equal but perhaps the last.
fn equal_pieces(node: &Node<'_, '_>, extent: &Dim, pieces: usize) -> Result<Vec<Dim>, NodeError> {
    let smaller_last = node.version >= 18;
    let count = i64::try_from(pieces).ok().filter(|&count| count > 0);
    let count = count.ok_or_else(|| NodeError::new("the node has no outputs"))?;
    let divisor = Dim::from(count);
    let size = if smaller_last { extent.ceil_div(&divisor) } else { extent.floor_div(&divisor) };
    let last = extent - &size * Dim::from(count - 1);
    if last.as_const().is_some_and(|last| last < 0) {
        return Err(NodeError::new(format!("{extent} cannot be split into {count} pieces")));
    }
    if extent.is_const() && !smaller_last && last != size {
        return Err(NodeError::new(format!("{extent} cannot be split into {count} equal pieces")));
    }
    let mut sizes = vec![size.clone(); pieces];
    if smaller_last {
        sizes[pieces - 1] = last;
    }
    Ok(sizes)
}
