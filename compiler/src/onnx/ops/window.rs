//! Convolutions and pools: operators with a window over the spatial axes of `(N, C, spatial…)`.

use super::norm;
use crate::graph::ExprId;
use crate::ir::{Dim, Shape};
use crate::onnx::import::{Node, NodeError, Outputs};
use crate::ops::OpDef;
use crate::ops::elementwise::MULTIPLY;
use crate::ops::nn::{
    AVG_POOL1D, AVG_POOL2D, AVG_POOL3D, AvgPool1dAttrs, AvgPool2dAttrs, AvgPool3dAttrs, CONV1D,
    CONV2D, CONV3D, Conv1dAttrs, Conv2dAttrs, Conv3dAttrs, GLOBAL_AVG_POOL2D, GLOBAL_MAX_POOL2D,
    MAX_POOL1D, MAX_POOL2D, MAX_POOL3D, MaxPool1dAttrs, MaxPool2dAttrs, MaxPool3dAttrs,
};
use crate::ops::reduce::{MAX, MEAN, ReduceAttrs};

/// A window, with one entry for each spatial axis.
struct Window {
    kernel: Vec<i64>,
    strides: Vec<i64>,
    dilations: Vec<i64>,
    /// Padding before each axis, then after each.
    pads: Vec<i64>,
}

impl Window {
    /// Reads `kernel_shape`, `strides`, `dilations` (if the operator has them at its version), `pads`
    /// and `auto_pad`. The kernel's extents are the attribute's, else those given.
    fn read(
        node: &mut Node<'_, '_>,
        x: &Shape,
        kernel: Option<Vec<i64>>,
        has_dilations: bool,
    ) -> Result<Window, NodeError> {
        let Some(rank) = x.rank().checked_sub(2).filter(|rank| (1..=3).contains(rank)) else {
            return Err(NodeError::new(format!(
                "1 to 3 spatial dimensions are supported, but input 0 has the shape {x}"
            )));
        };
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
            .find(|(_, list)| list.len() != rank || list.iter().any(|&value| value < 1));
        if let Some((name, list)) = wrong {
            return Err(NodeError::new(format!(
                "attribute `{name}` must have {rank} positive values, but it is {list:?}"
            )));
        }
        let mut window = Window { kernel, strides, dilations, pads: Vec::new() };
        window.pads = window.read_pads(node, x, rank)?;
        Ok(window)
    }

    fn read_pads(
        &self,
        node: &mut Node<'_, '_>,
        x: &Shape,
        rank: usize,
    ) -> Result<Vec<i64>, NodeError> {
        let pads = node.attrs.ints_or("pads", 2 * rank, 0)?;
        let auto_pad = node.attrs.string("auto_pad")?.unwrap_or("NOTSET");
        let at_end = match auto_pad {
            "NOTSET" | "" => return Ok(pads),
            "VALID" => return Ok(vec![0; 2 * rank]),
            "SAME_UPPER" => true,
            "SAME_LOWER" => false,
            other => {
                return Err(NodeError::new(format!(
                    "attribute `auto_pad` must be NOTSET, SAME_UPPER, SAME_LOWER or VALID, but it is `{other}`"
                )));
            }
        };
        let mut pads = vec![0; 2 * rank];
        for axis in 0..rank {
            let total = self.same_padding(axis, &x[axis + 2])?;
            let (less, more) = (total / 2, total - total / 2);
            (pads[axis], pads[rank + axis]) = if at_end { (less, more) } else { (more, less) };
        }
        Ok(pads)
    }

    /// The padding with which there are as many windows as strides in the extent.
    fn same_padding(&self, axis: usize, extent: &Dim) -> Result<i64, NodeError> {
        let (stride, dilation) = (self.strides[axis], self.dilations[axis]);
        let too_large = || NodeError::new("the window is too large");
        let span = (self.kernel[axis] - 1)
            .checked_mul(dilation)
            .and_then(|span| span.checked_add(1))
            .ok_or_else(too_large)?;
        if stride == 1 {
            return Ok(span - 1);
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
}

/// A list as an array; its length was checked when it was read.
pub(super) fn array<const N: usize>(list: &[i64]) -> Result<[i64; N], NodeError> {
    list.try_into()
        .map_err(|_| NodeError::new(format!("{N} values are expected, but not {list:?}")))
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
    let (x_shape, w_shape) = (node.shape(x)?, node.shape(weight)?);
    if w_shape.rank() != x_shape.rank() {
        return Err(NodeError::new(format!(
            "the weights must have as many dimensions as the input, but they have {} and {}",
            w_shape.rank(),
            x_shape.rank()
        )));
    }
    let groups = node.attrs.int("group")?.unwrap_or(1);
    let kernel = w_shape.iter().skip(2).map(Dim::as_const).collect();
    let Window { kernel, strides, dilations, pads } = Window::read(node, &x_shape, kernel, true)?;
    let args = vec![Some(x), Some(weight), bias];
    macro_rules! call {
        ($op:ident, $attrs:ident) => {{
            let attrs = $attrs {
                strides: array(&strides)?,
                padding: array(&pads)?,
                dilation: array(&dilations)?,
                groups,
            };
            node.call_optional(&$op, args, &attrs)?
        }};
    }
    Ok(match kernel.len() {
        1 => call!(CONV1D, Conv1dAttrs),
        2 => call!(CONV2D, Conv2dAttrs),
        _ => call!(CONV3D, Conv3dAttrs),
    })
}

/// `MaxPool`-1, -8 (indices as a second output), -10 (`ceil_mode`, `dilations`), -11, -12 (8-bit
/// integers), -22 (more types).
pub(super) fn max_pool(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let x_shape = node.shape(x)?;
    let ceil_mode = if node.version >= 10 { node.attrs.flag("ceil_mode", false)? } else { false };
    if node.version >= 8 {
        // The order of the indices, which are not supported.
        node.attrs.flag("storage_order", false)?;
    }
    let has_dilations = node.version >= 10;
    let Window { kernel, strides, dilations, pads } =
        Window::read(node, &x_shape, None, has_dilations)?;
    macro_rules! call {
        ($op:ident, $attrs:ident) => {{
            let attrs = $attrs {
                pool_size: array(&kernel)?,
                strides: array(&strides)?,
                padding: array(&pads)?,
                dilation: array(&dilations)?,
                ceil_mode,
            };
            node.call_with(&$op, &[x], &attrs)?
        }};
    }
    Ok(vec![match kernel.len() {
        1 => call!(MAX_POOL1D, MaxPool1dAttrs),
        2 => call!(MAX_POOL2D, MaxPool2dAttrs),
        _ => call!(MAX_POOL3D, MaxPool3dAttrs),
    }])
}

/// `AveragePool`-7 (`count_include_pad`), -10 (`ceil_mode`), -11, -19 (`dilations`), -22 (more types).
pub(super) fn average_pool(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let x_shape = node.shape(x)?;
    let count_include_pad = node.attrs.flag("count_include_pad", false)?;
    let ceil_mode = if node.version >= 10 { node.attrs.flag("ceil_mode", false)? } else { false };
    let has_dilations = node.version >= 19;
    let Window { kernel, strides, dilations, pads } =
        Window::read(node, &x_shape, None, has_dilations)?;
    macro_rules! call {
        ($op:ident, $attrs:ident) => {{
            let attrs = $attrs {
                pool_size: array(&kernel)?,
                strides: array(&strides)?,
                padding: array(&pads)?,
                dilation: array(&dilations)?,
                ceil_mode,
                count_include_pad,
            };
            node.call_with(&$op, &[x], &attrs)?
        }};
    }
    Ok(vec![match kernel.len() {
        1 => call!(AVG_POOL1D, AvgPool1dAttrs),
        2 => call!(AVG_POOL2D, AvgPool2dAttrs),
        _ => call!(AVG_POOL3D, AvgPool3dAttrs),
    }])
}

/// `LpPool`-2, -11, -18 (`ceil_mode`, `dilations`), -22 (more types): the norm of each window.
pub(super) fn lp_pool(node: &mut Node<'_, '_>) -> Result<Outputs, NodeError> {
    let x = node.input(0)?;
    let p = norm::order(node)?;
    let x_shape = node.shape(x)?;
    let since_18 = node.version >= 18;
    let ceil_mode = since_18 && node.attrs.flag("ceil_mode", false)?;
    let Window { kernel, strides, dilations, mut pads } =
        Window::read(node, &x_shape, None, since_18)?;
    let rank = kernel.len();
    if ceil_mode {
        // Elements beyond the end are zeros, as padding is; so they can be padding.
        for axis in 0..rank {
            let extent = node.known_extent(x, axis + 2)?;
            let span = dilations[axis].saturating_mul(kernel[axis] - 1).saturating_add(1);
            let (before, after, stride) = (pads[axis], pads[rank + axis], strides[axis]);
            let padded = extent.saturating_add(before);
            let free = padded.saturating_add(after) - span;
            let over = free.rem_euclid(stride);
            // A window that would start behind the elements is left out.
            let last = (free - over).saturating_add(stride);
            if over > 0 && last < padded {
                pads[rank + axis] = after.saturating_add(stride - over);
            }
        }
    }
    let wide = node.widened(x)?;
    let powers = norm::power_of_magnitude(node, wide, p)?;
    macro_rules! call {
        ($op:ident, $attrs:ident) => {{
            let attrs = $attrs {
                pool_size: array(&kernel)?,
                strides: array(&strides)?,
                padding: array(&pads)?,
                dilation: array(&dilations)?,
                ceil_mode: false,
                count_include_pad: true,
            };
            node.call_with(&$op, &[powers], &attrs)?
        }};
    }
    let mean = match rank {
        1 => call!(AVG_POOL1D, AvgPool1dAttrs),
        2 => call!(AVG_POOL2D, AvgPool2dAttrs),
        _ => call!(AVG_POOL3D, AvgPool3dAttrs),
    };
    let taps: f64 = kernel.iter().map(|&taps| taps as f64).product();
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
