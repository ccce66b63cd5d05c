//! Convolutions and pools: operators with a window over the spatial axes of `(N, C, spatial…)`.

use super::norm;
use super::pad::padded;
use crate::graph::ExprId;
use crate::ir::{DType, Dim, Shape};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::OpDef;
use crate::ops::elementwise::MULTIPLY;
use crate::ops::nn::{
    self, AvgPoolAttrs, AxisWindow, ConvAttrs, GLOBAL_AVG_POOL2D, GLOBAL_MAX_POOL2D,
    MAX_POOL_INDICES, MaxPoolAttrs, MaxPoolIndicesAttrs, PadMode, Window,
};
use crate::ops::reduce::{MAX, MEAN, ReduceAttrs};

/// Greatest extent, stride, dilation and padding of a window.
const MOST: i64 = i32::MAX as i64;

/// Reads `kernel_shape`, `strides`, `dilations` (if the operator has them at its version), `pads` and
/// `auto_pad`. The kernel's extents are the attribute's, else those given. An extent that is not known is a
/// multiple of the stride, where padding depends on it.
pub(super) fn read_window(
    node: &mut Node<'_, '_>,
    x: &Shape,
    kernel: Option<Vec<i64>>,
    has_dilations: bool,
) -> Result<Window, NodeError> {
    let (window, open) = read(node, x, kernel, has_dilations)?;
    for OpenPadding { axis, of, stride, .. } in open {
        let multiple = of.floor_div(&Dim::from(stride)) * stride;
        if !node.is_same(std::slice::from_ref(&of), &[multiple]) {
            return Err(NodeError::new(format!(
                "with `auto_pad` and a stride, dimension {axis} of input 0 must be known, but it is {of}"
            ))
            .pin([&of]));
        }
    }
    Ok(window)
}

/// The same, and the input with what `auto_pad` puts around it where that depends on an extent that is not
/// known: as many elements of a value, zero if there is none, as the extent of a run takes.
fn read_padded(
    node: &mut Node<'_, '_>,
    x: ExprId,
    kernel: Option<Vec<i64>>,
    has_dilations: bool,
    fill: Option<f64>,
) -> Result<(Window, ExprId), NodeError> {
    let shape = node.shape(x)?;
    let (mut window, open) = read(node, &shape, kernel, has_dilations)?;
    let dtype = node.tensor(x)?.dtype;
    let fill = match fill {
        Some(fill) if !open.is_empty() => Some(node.scalar(fill, dtype)?),
        _ => None,
    };
    let mut x = x;
    for OpenPadding { axis, of, before, total, .. } in open {
        let before = node.size_scalar(&before)?;
        x = padded(node, x, axis, (before, of + total), (PadMode::Constant, fill))?;
        let along = &mut window.axes[axis - 2];
        (along.before, along.after) = (0, 0);
    }
    Ok((window, x))
}

/// Padding of an axis that depends on its extent, which is not known.
struct OpenPadding {
    axis: usize,
    of: Dim,
    stride: i64,
    /// Elements before the axis, and around it.
    before: Dim,
    total: Dim,
}

/// Of padding that depends on an extent that is not known, the window has what multiples of the stride take.
fn read(
    node: &mut Node<'_, '_>,
    x: &Shape,
    kernel: Option<Vec<i64>>,
    has_dilations: bool,
) -> Result<(Window, Vec<OpenPadding>), NodeError> {
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
        "NOTSET" | "" => return Ok((window, Vec::new())),
        "VALID" => None,
        "SAME_UPPER" => Some(true),
        "SAME_LOWER" => Some(false),
        other => {
            return Err(NodeError::new(format!(
                "attribute `auto_pad` must be NOTSET, SAME_UPPER, SAME_LOWER or VALID, but it is `{other}`"
            )));
        }
    };
    let mut open = Vec::new();
    for (axis, window) in window.axes.iter_mut().enumerate() {
        let total = match at_end {
            Some(_) => same_padding(*window, &x[axis + 2])?,
            None => Dim::from(0i64),
        };
        let total = node.facts().simplify(&total);
        let less = total.floor_div(&Dim::from(2i64));
        let before = if at_end == Some(false) { &total - &less } else { less };
        let (all, first) = match (total.as_const(), before.as_const()) {
            (Some(all), Some(first)) => (all, first),
            _ => {
                let (of, stride) = (x[axis + 2].clone(), window.stride);
                open.push(OpenPadding { axis: axis + 2, of, stride, before, total });
                let all = (window.span() - stride).max(0);
                (all, if at_end == Some(false) { all - all / 2 } else { all / 2 })
            }
        };
        (window.before, window.after) = (first, all - first);
    }
    Ok((window, open))
}

/// The padding with which there are as many windows as strides in the extent.
fn same_padding(window: AxisWindow, extent: &Dim) -> Result<Dim, NodeError> {
    let (span, stride) = (window.span(), window.stride);
    if span > MOST {
        return Err(NodeError::new("the window is too large"));
    }
    if stride == 1 {
        return Ok(Dim::from(span - 1));
    }
    let covered = extent.ceil_div(&Dim::from(stride)) * stride + Dim::from(span - stride);
    let padding = covered - extent.clone();
    Ok(if span < stride { padding.maximum(&Dim::from(0i64)) } else { padding })
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
    let kernel = kernel_of(node, x, weight)?;
    let (window, x) = read_padded(node, x, kernel, true, None)?;
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
    let kernel = kernel_of(node, x, weight)?;
    let x_shape = node.shape(x)?;
    read_window(node, &x_shape, kernel, true)
}

/// The extents of a convolution's kernel, if they are known.
fn kernel_of(
    node: &Node<'_, '_>,
    x: ExprId,
    weight: ExprId,
) -> Result<Option<Vec<i64>>, NodeError> {
    let (x_shape, w_shape) = (node.shape(x)?, node.shape(weight)?);
    if w_shape.rank() != x_shape.rank() {
        return Err(NodeError::new(format!(
            "the weights must have as many dimensions as the input, but they have {} and {}",
            w_shape.rank(),
            x_shape.rank()
        )));
    }
    Ok(w_shape.iter().skip(2).map(Dim::as_const).collect())
}

/// `MaxPool`-1, -8 (indices as a second output), -10 (`ceil_mode`, `dilations`), -11, -12 (8-bit
/// integers), -22 (more types).
pub(super) fn max_pool(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let x_shape = node.shape(x)?;
    let ceil_mode = if node.version >= 10 { node.attrs.flag("ceil_mode", false)? } else { false };
    let column_major = node.version >= 8 && node.attrs.flag("storage_order", false)?;
    let has_dilations = node.version >= 10;
    let (window, x) = if node.wants_output(1) {
        (read_window(node, &x_shape, None, has_dilations)?, x)
    } else {
        let least = node.tensor(x)?.dtype.int_range().map_or(f64::NEG_INFINITY, |all| all.0 as f64);
        read_padded(node, x, None, has_dilations, Some(least))?
    };
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
