//! Operators that put elements to other places: crops, folds, pools undone, caches; and determinants,
//! which rows are exchanged for.

use super::missing;
use super::window::read_window;
use crate::ir::{DType, Dim, Shape};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::onnx::tensor::dtype_from_onnx;
use crate::ops::elementwise::{
    ABS, EQUAL, FLOOR_MOD, GREATER_EQUAL, LESS, LOGICAL_AND, REINTERPRET, ReinterpretAttrs,
};
use crate::ops::nn::{PAD, PadAttrs, PadMode};
use crate::ops::reduce::{ARGMAX, ArgReduceAttrs};
use crate::ops::tensor::{
    GATHER, GatherAttrs, SCATTER_ELEMENTS, SCATTER_ND, ScatterElementsAttrs, ScatterNdAttrs,
    ScatterReduction,
};

/// Most indices that are computed while compiling.
const MAX_INDICES: i64 = 1 << 24;

/// Largest matrix whose determinant is computed: each row is a step of its own.
const MAX_DETERMINANT: i64 = 64;

/// `BitCast`-26.
pub(super) fn bit_cast(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let code = node.attrs.int("to")?.ok_or_else(|| missing("to"))?;
    let dtype = dtype_from_onnx(i32::try_from(code).unwrap_or(0))?;
    if node.tensor(x)?.dtype == dtype {
        return Ok(vec![x]);
    }
    Ok(vec![node.call_with(&REINTERPRET, &[x], &ReinterpretAttrs { dtype })?])
}

/// `CenterCropPad`-18: the middle of a tensor, or the tensor in the middle of zeros.
pub(super) fn center_crop_pad(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let sizes = node.ints_input(1)?.ok_or_else(|| missing("shape"))?;
    let rank = node.shape(x)?.rank();
    let axes = match node.attrs.ints("axes")? {
        Some(axes) => node.axes(axes, rank)?,
        None => (0..rank).collect(),
    };
    if sizes.len() != axes.len() || sizes.iter().any(|&size| size < 0) {
        return Err(NodeError::new(format!(
            "a size for each of {} axes is expected, but they are {sizes:?}",
            axes.len()
        )));
    }
    let mut result = x;
    let mut pad_width = vec![[0, 0]; rank];
    for (axis, size) in axes.into_iter().zip(sizes) {
        let extent = node.known_extent(x, axis)?;
        if size < extent {
            let begin = (extent - size) / 2;
            result = node.slice(result, axis, begin, begin + size)?;
        } else {
            let before = (size - extent) / 2;
            pad_width[axis] = [before, size - extent - before];
        }
    }
    if pad_width.iter().flatten().any(|&width| width > 0) {
        let attrs = PadAttrs { pad_width, mode: PadMode::Constant };
        result = node.call_with(&PAD, &[result], &attrs)?;
    }
    Ok(vec![result])
}

/// `Col2Im`-18: the sum of blocks `(N, C·block, places)` at their places in images.
pub(super) fn col2im(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let image = node.ints_input(1)?.ok_or_else(|| missing("image_shape"))?;
    let block = node.ints_input(2)?.ok_or_else(|| missing("block_shape"))?;
    let rank = image.len();
    let strides = node.attrs.ints_or("strides", rank, 1)?;
    let dilations = node.attrs.ints_or("dilations", rank, 1)?;
    let pads = node.attrs.ints_or("pads", 2 * rank, 0)?;
    let ty = node.tensor(x)?;
    let product =
        |extents: &[i64]| extents.iter().fold(1i64, |n, &extent| n.saturating_mul(extent));
    let positive = [&image, &block, &strides, &dilations].into_iter().flatten().all(|&n| n > 0);
    if block.len() != rank || !positive || pads.iter().any(|&pad| pad < 0) || ty.shape.rank() != 3 {
        return Err(NodeError::new(format!(
            "blocks (N, C·block, places) are expected, and positive sizes for each of {rank} axes, \
             but the blocks are {ty}, in an image of {image:?}, each of {block:?}, with strides \
             {strides:?}, dilations {dilations:?} and pads {pads:?}"
        )));
    }
    let places: Vec<i64> = (0..rank)
        .map(|axis| {
            let padded = image[axis].saturating_add(pads[axis]).saturating_add(pads[rank + axis]);
            let span = dilations[axis].saturating_mul(block[axis] - 1).saturating_add(1);
            (padded.saturating_sub(span) / strides[axis] + 1).max(0)
        })
        .collect();
    let (of_block, of_places) = (product(&block), product(&places));
    let columns = node.known_extent(x, 1)?;
    if columns % of_block != 0 || ty.shape[2].as_const() != Some(of_places) {
        return Err(NodeError::new(format!(
            "blocks of {block:?} at {places:?} places of an image of {image:?} are (N, C·{of_block}, \
             {of_places}), but they are {ty}"
        )));
    }
    if of_block.saturating_mul(of_places) > MAX_INDICES {
        return Err(NodeError::new(format!(
            "{of_block} elements at {of_places} places are more than the {MAX_INDICES} that are \
             supported"
        )));
    }
    // Where each element of each block goes in a flat image; those in the padding go behind it.
    let behind = product(&image);
    let mut targets = Vec::with_capacity((of_block * of_places) as usize);
    for element in 0..of_block {
        for place in 0..of_places {
            let (mut element, mut place, mut distance) = (element, place, 1);
            let mut target = Some(0);
            for axis in (0..rank).rev() {
                let tap = element % block[axis] * dilations[axis];
                let at = place % places[axis] * strides[axis] + tap - pads[axis];
                let inside = (0..image[axis]).contains(&at);
                target = target.filter(|_| inside).map(|target| target + at * distance);
                element /= block[axis];
                place /= places[axis];
                distance *= image[axis];
            }
            targets.push(target.unwrap_or(behind));
        }
    }
    // Along the first axis, so that all images and channels are added at a time.
    let (batch, channels) = (ty.shape[0].clone(), Dim::from(columns / of_block));
    let split = vec![&batch * &channels, Dim::from(of_block * of_places)];
    let blocks = node.reshape(x, split)?;
    let blocks = node.transposed(blocks, &[1, 0])?;
    let count = &batch * &channels;
    let zeros = node.full(0.0, ty.dtype, vec![Dim::from(behind + 1), count])?;
    let targets = node.integers(&[of_block * of_places, 1], &targets)?;
    let attrs = ScatterNdAttrs { reduction: ScatterReduction::Add };
    let sum = node.call_with(&SCATTER_ND, &[zeros, targets, blocks], &attrs)?;
    let sum = node.slice(sum, 0, 0, behind)?;
    let sum = node.transposed(sum, &[1, 0])?;
    let dims = [batch, channels].into_iter().chain(image.into_iter().map(Dim::from)).collect();
    Ok(vec![node.reshape(sum, dims)?])
}

/// `MaxUnpool`-9, -11, -22 (more types): elements at the places that `MaxPool` found them, the rest
/// zeros. A larger output than the window makes has zeros behind.
pub(super) fn max_unpool(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, indices) = (node.input(0)?, node.input(1)?);
    let ty = node.tensor(x)?;
    let window = read_window(node, &ty.shape, None, false)?;
    let mut dims = ty.shape[..2].to_vec();
    for (axis, window) in window.axes.iter().enumerate() {
        let extent = node.known_extent(x, axis + 2)?;
        let full = (extent - 1).saturating_mul(window.stride).saturating_add(window.taps);
        dims.push(Dim::from(full.saturating_sub(window.before).saturating_sub(window.after)));
    }
    let count: Dim = dims.iter().product();
    let zeros = node.full(0.0, ty.dtype, vec![count])?;
    let of_x: Dim = ty.shape.iter().product();
    let flat = node.reshape(x, vec![of_x.clone()])?;
    let indices = node.reshape(indices, vec![of_x])?;
    let attrs = ScatterElementsAttrs { axis: 0, reduction: ScatterReduction::Update };
    let result = node.call_with(&SCATTER_ELEMENTS, &[zeros, indices, flat], &attrs)?;
    let mut result = node.reshape(result, dims.clone())?;
    if let Some(sizes) = node.ints_input(2)? {
        let mut pad_width = vec![[0, 0]; dims.len()];
        let wrong = || {
            NodeError::new(format!(
                "input `output_shape` {sizes:?} must be at least the shape that the window makes, {}",
                Shape::new(dims.clone())
            ))
        };
        if sizes.len() != dims.len() {
            return Err(wrong());
        }
        for (axis, &size) in sizes.iter().enumerate() {
            // A symbolic batch keeps its extent.
            let Some(extent) = dims[axis].as_const() else { continue };
            if size < extent {
                return Err(wrong());
            }
            pad_width[axis][1] = size - extent;
        }
        if pad_width.iter().any(|width| width[1] > 0) {
            let attrs = PadAttrs { pad_width, mode: PadMode::Constant };
            result = node.call_with(&PAD, &[result], &attrs)?;
        }
    }
    Ok(vec![result])
}

/// `TensorScatter`-24: a cache with new elements along an axis, from a place on for each example.
pub(super) fn tensor_scatter(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (cache, update) = (node.input(0)?, node.input(1)?);
    let axis = node.attrs.int("axis")?.unwrap_or(-2);
    let circular = match node.attrs.string("mode")?.unwrap_or("linear") {
        "linear" => false,
        "circular" => true,
        other => return Err(super::resize::unsupported("mode", other)),
    };
    let shape = node.shape(cache)?;
    let rank = shape.rank();
    let axis = node.axis(axis, rank)?;
    if axis == 0 {
        return Err(NodeError::new("attribute `axis` must not be the first axis, the batch"));
    }
    let (extent, added) = (node.known_extent(cache, axis)?, node.known_extent(update, axis)?);
    if added == 0 {
        return Ok(vec![cache]);
    }
    // How far behind its beginning each place is.
    let along = |at: usize, dim: Dim| -> Vec<Dim> {
        (0..rank).map(|a| if a == at { dim.clone() } else { Dim::from(1i64) }).collect()
    };
    let places = node.counting(extent)?;
    let mut distance = node.reshape(places, along(axis, Dim::from(extent)))?;
    if let Some(starts) = node.optional(2) {
        let starts = node.cast(starts, DType::I64)?;
        let starts = node.reshape(starts, along(0, shape[0].clone()))?;
        distance = node.subtract(distance, starts)?;
    }
    if circular {
        distance = node.with_scalar(&FLOOR_MOD, distance, extent as f64)?;
    }
    let from = node.with_scalar(&GREATER_EQUAL, distance, 0.0)?;
    let to = node.with_scalar(&LESS, distance, added as f64)?;
    let is_new = node.call(&LOGICAL_AND, &[from, to])?;
    let zero = node.scalar(0.0, DType::I64)?;
    let places = node.choose(is_new, distance, zero)?;
    let places = node.broadcast_to(places, shape.to_vec())?;
    let added = node.call_with(&GATHER, &[update, places], &GatherAttrs { axis: axis as i64 })?;
    Ok(vec![node.choose(is_new, added, cache)?])
}

/// `Det`-11, -22 (more types): by elimination, with the greatest element of a column as the pivot.
pub(super) fn det(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let ty = node.tensor(x)?;
    let rank = ty.shape.rank();
    if rank < 2 || ty.shape[rank - 1] != ty.shape[rank - 2] {
        return Err(NodeError::new(format!("square matrices are expected, but the input is {ty}")));
    }
    let size = node.known_extent(x, rank - 1)?;
    if size > MAX_DETERMINANT {
        return Err(NodeError::new(format!(
            "determinants of matrices up to {MAX_DETERMINANT} by {MAX_DETERMINANT} are supported, \
             but the input is {ty}"
        )));
    }
    let outer = ty.shape[..rank - 2].to_vec();
    let batch: Dim = outer.iter().product();
    let wide = node.widened(x)?;
    let dtype = node.tensor(wide)?.dtype;
    let square = |extent: i64| vec![batch.clone(), Dim::from(extent), Dim::from(extent)];
    let mut matrix = node.reshape(wide, square(size))?;
    let one = node.scalar(1.0, dtype)?;
    let mut result = node.full(1.0, dtype, vec![batch.clone(), 1i64.into(), 1i64.into()])?;
    for left in (1..=size).rev() {
        // The greatest element of the first column, whose row takes the place of the first.
        let column = node.slice(matrix, 2, 0, 1)?;
        let magnitude = node.call(&ABS, &[column])?;
        let attrs = ArgReduceAttrs { axis: 1, keepdims: true, select_last_index: false };
        let pivot_row = node.call_with(&ARGMAX, &[magnitude], &attrs)?;
        let wide_row = vec![batch.clone(), 1i64.into(), Dim::from(left)];
        let at = node.broadcast_to(pivot_row, wide_row)?;
        let row = node.call_with(&GATHER, &[matrix, at], &GatherAttrs { axis: 1 })?;
        let pivot = node.slice(row, 2, 0, 1)?;
        let is_first = node.with_scalar(&EQUAL, pivot_row, 0.0)?;
        let minus = node.scalar(-1.0, dtype)?;
        let sign = node.choose(is_first, one, minus)?;
        let signed = node.multiply(pivot, sign)?;
        result = node.multiply(result, signed)?;
        if left == 1 {
            break;
        }
        let numbers = node.counting(left)?;
        let numbers = node.reshape(numbers, vec![Dim::from(left), 1i64.into()])?;
        let is_pivot = node.call(&EQUAL, &[numbers, pivot_row])?;
        let first = node.slice(matrix, 1, 0, 1)?;
        let exchanged = node.choose(is_pivot, first, matrix)?;
        let rest = node.slice(exchanged, 1, 1, left)?;
        // Where all of a column is zero, so is the determinant.
        let is_zero = node.with_scalar(&EQUAL, pivot, 0.0)?;
        let divisor = node.choose(is_zero, one, pivot)?;
        let factor = node.slice(rest, 2, 0, 1)?;
        let factor = node.divide(factor, divisor)?;
        let row = node.slice(row, 2, 1, left)?;
        let rest = node.slice(rest, 2, 1, left)?;
        let product = node.multiply(factor, row)?;
        matrix = node.subtract(rest, product)?;
    }
    let result = node.reshape(result, outer)?;
    Ok(vec![node.cast(result, ty.dtype)?])
}
