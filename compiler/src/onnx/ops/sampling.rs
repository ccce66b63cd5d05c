//! Operators that read between the elements of images: grids, regions and deformed convolutions.

use super::missing;
use super::resize::unsupported;
use super::window::{conv_window, convolve_by};
use crate::graph::ExprId;
use crate::ir::{DType, Dim};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::nn::{
    AxisWindow, MATMUL, MatmulAttrs, ROI_ALIGN, RoiAlignAttrs, RoiAlignMode, Window,
};
use crate::ops::tensor::{
    GRID_SAMPLE, GridCoordinates, GridPadding, GridSampleAttrs, ResizeMethod,
};

/// Most places of a grid that is computed while compiling.
const MAX_PLACES: i64 = 1 << 24;

/// `GridSample`-16, -20 (volumes, and other names of the modes), -22 (more types).
pub(super) fn grid_sample(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, grid) = (node.input(0)?, node.input(1)?);
    let method = match node.attrs.string("mode")?.unwrap_or("linear") {
        "nearest" => ResizeMethod::NearestNeighbor,
        "linear" | "bilinear" => ResizeMethod::Linear,
        "cubic" | "bicubic" => ResizeMethod::Cubic,
        other => return Err(unsupported("mode", other)),
    };
    let padding = match node.attrs.string("padding_mode")?.unwrap_or("zeros") {
        "zeros" => GridPadding::Zeros,
        "border" => GridPadding::Border,
        "reflection" => GridPadding::Reflection,
        other => return Err(unsupported("padding_mode", other)),
    };
    let coordinates = if node.attrs.flag("align_corners", false)? {
        GridCoordinates::Corners
    } else {
        GridCoordinates::Edges
    };
    let attrs = GridSampleAttrs { method, padding, coordinates };
    Ok(vec![node.call_with(&GRID_SAMPLE, &[x, grid], &attrs)?])
}

/// `AffineGrid`-20: the places of a grid `(N, spatial…)`, in numbers from -1 to 1, times a matrix.
pub(super) fn affine_grid(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let theta = node.input(0)?;
    let size = node.ints_input(1)?.ok_or_else(|| missing("size"))?;
    let corners = node.attrs.flag("align_corners", false)?;
    let ty = node.tensor(theta)?;
    let [batch, _, spatial @ ..] = &size[..] else {
        return Err(NodeError::new(format!(
            "input `size` must be (N, C, spatial…), but it is {size:?}"
        )));
    };
    let places = spatial.iter().fold(1i64, |places, &extent| places.saturating_mul(extent.max(0)));
    let rank = spatial.len() as i64;
    let fits = ty.shape.rank() == 3
        && ty.shape[1].as_const() == Some(rank)
        && ty.shape[2].as_const() == Some(rank + 1)
        && ty.shape[0].as_const().is_none_or(|extent| extent == *batch);
    if !(2..=3).contains(&rank) || !fits || places > MAX_PLACES {
        return Err(NodeError::new(format!(
            "matrices (N, 2, 3) of images or (N, 3, 4) of volumes are expected, and at most \
             {MAX_PLACES} places, but the matrices are {ty} and the size is {size:?}"
        )));
    }
    let along = |index: i64, extent: i64| match extent {
        _ if !corners => (2 * index + 1) as f64 / extent as f64 - 1.0,
        1 => -1.0,
        _ => 2.0 * index as f64 / (extent - 1) as f64 - 1.0,
    };
    // Of each place the numbers, that of the innermost axis first, and 1.
    let mut numbers = Vec::with_capacity((places * (rank + 1)) as usize);
    for place in 0..places {
        let mut rest = place;
        for &extent in spatial.iter().rev() {
            numbers.push(along(rest % extent, extent));
            rest /= extent;
        }
        numbers.push(1.0);
    }
    let wide = node.widened(theta)?;
    let dtype = node.tensor(wide)?.dtype;
    let numbers = node.numbers(&[places, rank + 1], numbers, dtype)?;
    let attrs = MatmulAttrs { transpose_b: true, ..MatmulAttrs::default() };
    let grid = node.call_with(&MATMUL, &[numbers, wide], &attrs)?;
    let mut dims = vec![ty.shape[0].clone()];
    dims.extend(spatial.iter().copied().chain([rank]).map(Dim::from));
    let grid = node.reshape(grid, dims)?;
    Ok(vec![node.cast(grid, ty.dtype)?])
}

/// `RoiAlign`-10, -16 (`coordinate_transformation_mode`), -22 (more types).
pub(super) fn roi_align(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let args = [node.input(0)?, node.input(1)?, node.input(2)?];
    let aligned = match node.version {
        ..16 => false,
        _ => match node.attrs.string("coordinate_transformation_mode")?.unwrap_or("half_pixel") {
            "half_pixel" => true,
            "output_half_pixel" => false,
            other => return Err(unsupported("coordinate_transformation_mode", other)),
        },
    };
    let mode = match node.attrs.string("mode")?.unwrap_or("avg") {
        "avg" => RoiAlignMode::Avg,
        "max" => RoiAlignMode::Max,
        other => return Err(unsupported("mode", other)),
    };
    let attrs = RoiAlignAttrs {
        pooled_size: [
            node.attrs.int("output_height")?.unwrap_or(1),
            node.attrs.int("output_width")?.unwrap_or(1),
        ],
        spatial_scale: node.attrs.float("spatial_scale")?.unwrap_or(1.0),
        sample_ratio: node.attrs.int("sampling_ratio")?.unwrap_or(0),
        aligned,
        mode,
    };
    Ok(vec![node.call_with(&ROI_ALIGN, &args, &attrs)?])
}

/// `DeformConv`-19, -22 (more types): a convolution with windows next to each other, of the elements
/// that the taps of all windows read.
pub(super) fn deform_conv(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, weight, offset) = (node.input(0)?, node.input(1)?, node.input(2)?);
    let (bias, mask) = (node.optional(3), node.optional(4));
    let window = conv_window(node, x, weight)?;
    let [rows, columns] = window.axes[..] else {
        return Err(NodeError::new(format!(
            "deformed convolutions of images (N, C, H, W) are supported, but input 0 is {}",
            node.tensor(x)?
        )));
    };
    let groups = node.attrs.int("offset_group")?.unwrap_or(1);
    let (x_ty, offset_ty) = (node.tensor(x)?, node.tensor(offset)?);
    let (batch, channels) = (x_ty.shape[0].clone(), node.known_extent(x, 1)?);
    let taps = [rows.taps, columns.taps];
    let numbers = taps[0].saturating_mul(taps[1]).saturating_mul(2).saturating_mul(groups);
    if groups < 1
        || channels % groups != 0
        || offset_ty.shape.rank() != 4
        || offset_ty.shape[1].as_const() != Some(numbers)
    {
        return Err(NodeError::new(format!(
            "offsets of {groups} groups of {channels} channels are expected, {numbers} for each \
             place, but they are {offset_ty}"
        )));
    }
    let extents = [node.known_extent(offset, 2)?, node.known_extent(offset, 3)?];
    let numbers = [0, 1].map(|axis: usize| taps[axis].saturating_mul(extents[axis]));
    if numbers.iter().any(|&count| count > MAX_PLACES) {
        return Err(NodeError::new(format!(
            "windows of {taps:?} at {extents:?} places are more than the {MAX_PLACES} numbers along \
             an axis that are supported"
        )));
    }
    let grouped = &batch * &Dim::from(groups);
    let dims = |rest: &[i64]| -> Vec<Dim> {
        std::iter::once(grouped.clone()).chain(rest.iter().copied().map(Dim::from)).collect()
    };
    let dtype = offset_ty.dtype.accumulator();
    let wide = node.cast(offset, dtype)?;
    // (N·groups, taps…, which axis, places…) to (N·groups, places and taps by turns, which axis).
    let [[kh, kw], [oh, ow]] = [taps, extents];
    let moved = node.reshape(wide, dims(&[kh, kw, 2, oh, ow]))?;
    let moved = node.transposed(moved, &[0, 4, 1, 5, 2, 3])?;
    let (down, across) = (node.slice(moved, 5, 0, 1)?, node.slice(moved, 5, 1, 2)?);
    let mut place = |moved: ExprId, axis: AxisWindow, number: usize| {
        let starts = (0..extents[number]).flat_map(|i| {
            let start = i as f64 * axis.stride as f64 - axis.before as f64;
            (0..taps[number]).map(move |tap| start + tap as f64 * axis.dilation as f64)
        });
        let starts = starts.collect();
        let mut shape = [1; 5];
        shape[2 * number] = extents[number];
        shape[2 * number + 1] = taps[number];
        let starts = node.numbers(&shape, starts, dtype)?;
        node.add(moved, starts)
    };
    let down = place(down, rows, 0)?;
    let across = place(across, columns, 1)?;
    let grid = node.concatenate(&[across, down], 5)?;
    let grid = node.reshape(grid, dims(&[oh * kh, ow * kw, 2]))?;
    let per_group = channels / groups;
    let image = [x_ty.shape[2].clone(), x_ty.shape[3].clone()];
    let image = [vec![grouped.clone(), Dim::from(per_group)], image.to_vec()].concat();
    let image = node.reshape(x, image)?;
    let attrs = GridSampleAttrs {
        method: ResizeMethod::Linear,
        padding: GridPadding::Zeros,
        coordinates: GridCoordinates::Pixels,
    };
    let mut read = node.call_with(&GRID_SAMPLE, &[image, grid], &attrs)?;
    if let Some(mask) = mask {
        let mask = node.reshape(mask, dims(&[kh, kw, oh, ow]))?;
        let mask = node.transposed(mask, &[0, 3, 1, 4, 2])?;
        let mask = node.reshape(mask, dims(&[1, oh * kh, ow * kw]))?;
        read = node.multiply(read, mask)?;
    }
    let read =
        node.reshape(read, vec![batch, channels.into(), (oh * kh).into(), (ow * kw).into()])?;
    let adjacent = |taps: i64| AxisWindow { taps, stride: taps, dilation: 1, before: 0, after: 0 };
    let window = Window { axes: taps.map(adjacent).to_vec() };
    let result = convolve_by(node, &window, [Some(read), Some(weight), bias], 0, None)?;
    let dtype: DType = x_ty.dtype;
    Ok(vec![node.cast(result, dtype)?])
}
