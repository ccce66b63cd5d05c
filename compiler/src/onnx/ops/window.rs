//! Convolutions and pools: operators with a window over the spatial axes of `(N, C, spatial…)`.

use super::norm;
use crate::graph::ExprId;
use crate::ir::{DType, Dim, Shape};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::OpDef;
use crate::ops::elementwise::MULTIPLY;
use crate::ops::nn::{
    self, AvgPoolAttrs, AxisWindow, ConvAttrs, GLOBAL_AVG_POOL2D, GLOBAL_MAX_POOL2D,
    MAX_POOL_INDICES, MaxPoolAttrs, MaxPoolIndicesAttrs, Window,
};
use crate::ops::reduce::{MAX, MEAN, ReduceAttrs};

/// Greatest extent, stride, dilation and padding of a window.
const MOST: i64 = i32::MAX as i64;

/// Reads `kernel_shape`, `strides`, `dilations` (if the operator has them at its version), `pads` and
/// `auto_pad`. The kernel's extents are the attribute's, else those given.
pub(super) fn read_window(
    node: &mut Node<'_, '_>,
    x: &Shape,
    kernel: Option<Vec<i64>>,
    has_dilations: bool,
) -> Result<Window, NodeError> {
    let rank = x.rank().saturating_sub(2);
    if nn::conv(rank).is_none() {
        return Err(NodeError::new(format!(
            "1 to 3 spatial dimensions are supported, but input 0 has the shape {x}"
        )));
    }
    let declared = node.attrs.ints("kernel_shape")?.map(<[i64]>::to_vec);
    if let (Some(declared), Some(kernel)) = (&declared, &kernel)
        && declared != kernel
    {
        return Err(NodeError::new(format!(
            "attribute `kernel_shape` is {declared:?}, but the weights have {kernel:?}"
        )));
    }
    let Some(kernel) = declared.or(kernel) else {
        return Err(NodeError::new("attribute `kernel_shape` is missing"));
    };
    let strides = node.attrs.ints_or("strides", rank, 1)?;
    let dilations =
        if has_dilations { node.attrs.ints_or("dilations", rank, 1)? } else { vec![1; rank] };
    let wrong = [("kernel_shape", &kernel), ("strides", &strides), ("dilations", &dilations)]
        .into_iter()
        .find(|(_, list)| {
            list.len() != rank || list.iter().any(|value| !(1..=MOST).contains(value))
        });
    if let Some((name, list)) = wrong {
        return Err(NodeError::new(format!(
            "attribute `{name}` must have {rank} values from 1 to {MOST}, but it is {list:?}"
        )));
    }
    let pads = node.attrs.ints_or("pads", 2 * rank, 0)?;
    if pads.iter().any(|pad| pad.abs() > MOST) {
        return Err(NodeError::new(format!(
            "attribute `pads` must have values up to {MOST}, but it is {pads:?}"
        )));
    }
    let mut window = Window::new(&kernel, &strides, &pads, &dilations)?;
    let auto_pad = node.attrs.string("auto_pad")?.unwrap_or("NOTSET");
    let at_end = match auto_pad {
        "NOTSET" | "" => return Ok(window),
        "VALID" => None,
        "SAME_UPPER" => Some(true),
        "SAME_LOWER" => Some(false),
        other => {
            return Err(NodeError::new(format!(
                "attribute `auto_pad` must be NOTSET, SAME_UPPER, SAME_LOWER or VALID, but it is `{other}`"
            )));
        }
    };
    for (axis, window) in window.axes.iter_mut().enumerate() {
        let total = match at_end {
            Some(_) => same_padding(node, *window, axis, &x[axis + 2])?,
            None => 0,
        };
        let (less, more) = (total / 2, total - total / 2);
        (window.before, window.after) =
            if at_end == Some(false) { (more, less) } else { (less, more) };
    }
    Ok(window)
}

/// The padding with which there are as many windows as strides in the extent. One that is not known is
/// a multiple of the stride, if it may be.
fn same_padding(
    node: &mut Node<'_, '_>,
    window: AxisWindow,
    axis: usize,
    extent: &Dim,
) -> Result<i64, NodeError> {
    let AxisWindow { taps, stride, dilation, .. } = window;
    let too_large = || NodeError::new("the window is too large");
    let span = (taps - 1)
        .checked_mul(dilation)
        .and_then(|span| span.checked_add(1))
        .ok_or_else(too_large)?;
    if stride == 1 {
        return Ok(span - 1);
    }
    let multiple = extent.floor_div(&Dim::from(stride)) * stride;
    if extent.as_const().is_none() && node.is_same(std::slice::from_ref(extent), &[multiple]) {
        return Ok((span - stride).max(0));
    }
    let Some(extent) = extent.as_const() else {
        return Err(NodeError::new(format!(
            "with `auto_pad` and a stride, dimension {} of input 0 must be known, but it is {extent}",
            axis + 2
        ))
        .pin([extent]));
    };
    let windows = extent.checked_add(stride - 1).ok_or_else(too_large)? / stride;
    let covered = (windows - 1)
        .checked_mul(stride)
        .and_then(|covered| covered.checked_add(span))
        .ok_or_else(too_large)?;
    Ok((covered - extent).max(0))
}

/// The operator for so many spatial axes.
pub(super) fn of_rank(
    op: fn(usize) -> Option<&'static OpDef>,
    rank: usize,
) -> Result<&'static OpDef, NodeError> {
    op(rank).ok_or_else(|| NodeError::new(format!("{rank} spatial dimensions are not supported")))
}

/// `Conv`-1, -11 (defaults of strides and dilations spelled out), -22 (more types).
pub(super) fn conv(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let (x, weight, bias) = (node.input(0)?, node.input(1)?, node.optional(2));
    Ok(vec![convolve(node, x, weight, bias)?])
}

/// A convolution with the attributes that all ONNX operators for it have.
pub(super) fn convolve(
    node: &mut Node<'_, '_>,
    x: ExprId,
    weight: ExprId,
    bias: Option<ExprId>,
) -> Result<ExprId, NodeError> {
    let window = conv_window(node, x, weight)?;
    convolve_by(node, &window, [Some(x), Some(weight), bias], 0, None)
}

/// The same by a window that was read, with what padding reads as and the type of the sums.
pub(super) fn convolve_by(
    node: &mut Node<'_, '_>,
    window: &Window,
    operands: [Option<ExprId>; 3],
    pad_value: i64,
    out_dtype: Option<DType>,
) -> Result<ExprId, NodeError> {
    let groups = node.attrs.int("group")?.unwrap_or(1);
    let op = of_rank(nn::conv, window.axes.len())?;
    let attrs = ConvAttrs { pad_value, out_dtype, ..ConvAttrs::new(window, groups) };
    node.call_optional(op, operands.to_vec(), &attrs)
}

/// The window of a convolution.
pub(super) fn conv_window(
    node: &mut Node<'_, '_>,
    x: ExprId,
    weight: ExprId,
) -> Result<Window, NodeError> {
    let (x_shape, w_shape) = (node.shape(x)?, node.shape(weight)?);
    if w_shape.rank() != x_shape.rank() {
        return Err(NodeError::new(format!(
            "the weights must have as many dimensions as the input, but they have {} and {}",
            w_shape.rank(),
            x_shape.rank()
        )));
    }
    let kernel = w_shape.iter().skip(2).map(Dim::as_const).collect();
    read_window(node, &x_shape, kernel, true)
}

/// `MaxPool`-1, -8 (indices as a second output), -10 (`ceil_mode`, `dilations`), -11, -12 (8-bit
/// integers), -22 (more types).
pub(super) fn max_pool(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let x_shape = node.shape(x)?;
    let ceil_mode = if node.version >= 10 { node.attrs.flag("ceil_mode", false)? } else { false };
    let column_major = node.version >= 8 && node.attrs.flag("storage_order", false)?;
    let window = read_window(node, &x_shape, None, node.version >= 10)?;
    let op = of_rank(nn::max_pool, window.axes.len())?;
    let mut outputs = vec![node.call_with(op, &[x], &MaxPoolAttrs::new(&window, ceil_mode))?];
    if node.wants_output(1) {
        let attrs = MaxPoolIndicesAttrs::new(&window, ceil_mode, column_major);
        outputs.push(node.call_with(&MAX_POOL_INDICES, &[x], &attrs)?);
    }
    Ok(outputs)
}

/// `AveragePool`-7 (`count_include_pad`), -10 (`ceil_mode`), -11, -19 (`dilations`), -22 (more types).
pub(super) fn average_pool(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let x_shape = node.shape(x)?;
    let count_include_pad = node.attrs.flag("count_include_pad", false)?;
    let ceil_mode = if node.version >= 10 { node.attrs.flag("ceil_mode", false)? } else { false };
    let window = read_window(node, &x_shape, None, node.version >= 19)?;
    let op = of_rank(nn::avg_pool, window.axes.len())?;
    let attrs = AvgPoolAttrs::new(&window, ceil_mode, count_include_pad);
    Ok(vec![node.call_with(op, &[x], &attrs)?])
}

/// `LpPool`-2, -11, -18 (`ceil_mode`, `dilations`), -22 (more types): the norm of each window.
pub(super) fn lp_pool(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let p = norm::order(node)?;
    let x_shape = node.shape(x)?;
    let since_18 = node.version >= 18;
    let ceil_mode = since_18 && node.attrs.flag("ceil_mode", false)?;
    let mut window = read_window(node, &x_shape, None, since_18)?;
    if ceil_mode {
        // Elements beyond the end are zeros, as padding is; so they can be padding.
        for (axis, window) in window.axes.iter_mut().enumerate() {
            let extent = node.known_extent(x, axis + 2)?;
            let padded = extent.saturating_add(window.before);
            let free = padded.saturating_add(window.after) - window.span();
            let over = free.rem_euclid(window.stride);
            // A window that would start behind the elements is left out.
            let last = (free - over).saturating_add(window.stride);
            if over > 0 && last < padded {
                window.after = window.after.saturating_add(window.stride - over);
            }
        }
    }
    let wide = node.widened(x)?;
    let powers = norm::power_of_magnitude(node, wide, p)?;
    let op = of_rank(nn::avg_pool, window.axes.len())?;
    let mean = node.call_with(op, &[powers], &AvgPoolAttrs::new(&window, false, true))?;
    let taps: f64 = window.axes.iter().map(|axis| axis.taps as f64).product();
    let sum = node.with_scalar(&MULTIPLY, mean, taps)?;
    let norm = norm::root(node, sum, p)?;
    let dtype = node.tensor(x)?.dtype;
    Ok(vec![node.cast(norm, dtype)?])
}

/// `GlobalAveragePool`-1, -22 (more types).
pub(super) fn global_average_pool(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    global_pool(node, &GLOBAL_AVG_POOL2D, &MEAN)
}

/// `GlobalMaxPool`-1, -22 (more types).
pub(super) fn global_max_pool(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    global_pool(node, &GLOBAL_MAX_POOL2D, &MAX)
}

/// A pool over all spatial axes; of other than two, a reduction.
fn global_pool(
    node: &mut Node<'_, '_>,
    images: &'static OpDef,
    reduction: &'static OpDef,
) -> Result<Outputs, NodeError> {
    let x: ExprId = node.input(0)?;
    let rank = node.shape(x)?.rank();
    if rank == 4 {
        return Ok(vec![node.call(images, &[x])?]);
    }
    if rank < 3 {
        return Err(NodeError::new("input 0 must have dimensions (N, C, spatial…)"));
    }
    let attrs = ReduceAttrs { axis: (2..rank as i64).collect(), keepdims: true };
    Ok(vec![node.call_with(reduction, &[x], &attrs)?])
}
