//! Taps of convolutions that read padding alone.

use super::Site;
use crate::graph::{ExprId, FunctionBuilder};
use crate::ir::{Attrs, Dim};
use crate::ops::nn::{AxisWindow, CONV1D, CONV2D, CONV3D, ConvAttrs};
use crate::ops::tensor::{STRIDED_SLICE, StridedSliceAttrs};
use crate::pass::Result;
use crate::transform::calls::{call_with, tensor};

/// A convolution without the outer taps that no place of the result reads the argument by, as those are
/// whose dilation is as large as the image.
pub(super) fn simpler(b: &mut FunctionBuilder, site: &Site<'_>) -> Result<Option<ExprId>> {
    let is_conv = [&CONV1D, &CONV2D, &CONV3D].iter().any(|def| site.op.is(def));
    let (Some(x), Some(weight)) = (site.arg(0), site.arg(1)) else { return Ok(None) };
    // A weight that is infinite makes NaN of padding.
    if !is_conv || site.strict {
        return Ok(None);
    }
    let attrs: ConvAttrs = site.attrs.parse()?;
    let [image, kernel] = [tensor(b, x)?, tensor(b, weight)?].map(|ty| ty.shape);
    let taps: Option<Vec<i64>> = kernel.iter().skip(2).map(Dim::as_const).collect();
    let Some(taps) = taps.filter(|_| attrs.pad_value == 0) else { return Ok(None) };
    let mut window = attrs.window(&taps)?;
    let mut slice = StridedSliceAttrs { begin: vec![], end: vec![], strides: vec![], axes: vec![] };
    for (axis, window) in window.axes.iter_mut().enumerate() {
        let extents = [&image, &site.ty.shape].map(|shape| shape[axis + 2].as_const());
        let [Some(extent), Some(outputs)] = extents else { continue };
        let AxisWindow { taps, dilation, before, after, .. } = *window;
        let read = window.read_taps(extent, outputs);
        // What is left out takes its padding with it.
        let first = read.start.min(before / dilation).min(taps - 1);
        let end = read.end.max(taps - after / dilation).max(first + 1);
        if (first, end) != (0, taps) {
            window.before -= first * dilation;
            window.after -= (taps - end) * dilation;
            slice.axes.push(axis as i64 + 2);
            slice.begin.push(first);
            slice.end.push(end);
            slice.strides.push(1);
        }
    }
    if slice.axes.is_empty() {
        return Ok(None);
    }
    let weight = call_with(b, &STRIDED_SLICE, &[weight], &slice)?;
    let mut args = site.args.to_vec();
    args[1] = Some(weight);
    let attrs = Attrs::from_struct(&ConvAttrs { padding: window.padding(), ..attrs })?;
    Ok(Some(b.call_optional(site.op, args, attrs)?))
}
