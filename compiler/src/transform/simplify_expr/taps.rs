//! Taps of convolutions that read padding alone.

use super::Site;
use crate::graph::{ExprId, FunctionBuilder};
use crate::ir::Attrs;
use crate::ops::nn::{CONV1D, CONV2D, CONV3D, ConvAttrs};
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
    let mut attrs: ConvAttrs = site.attrs.parse()?;
    if attrs.pad_value != 0 {
        return Ok(None);
    }
    let [image, kernel] = [tensor(b, x)?, tensor(b, weight)?].map(|ty| ty.shape);
    let axes = attrs.strides.len();
    let mut slice = StridedSliceAttrs { begin: vec![], end: vec![], strides: vec![], axes: vec![] };
    for axis in 0..axes {
        let extents = [&image, &kernel, &site.ty.shape].map(|shape| shape[axis + 2].as_const());
        let [Some(from), Some(taps), Some(to)] = extents else { continue };
        let [before, after] = [attrs.padding[axis], attrs.padding[axes + axis]];
        let step = attrs.dilation[axis];
        let is_read = |tap: i64| {
            let first = tap * step - before;
            first < from && first + (to - 1) * attrs.strides[axis] >= 0
        };
        // What is left out takes its padding with it.
        let first = (0..taps).find(|&tap| is_read(tap)).unwrap_or(0).min(before / step);
        let last = (first..taps).rev().find(|&tap| is_read(tap)).unwrap_or(first);
        let kept = first..(last + 1).max(taps - after / step);
        if kept != (0..taps) {
            attrs.padding[axis] = before - kept.start * step;
            attrs.padding[axes + axis] = after - (taps - kept.end) * step;
            slice.axes.push(axis as i64 + 2);
            slice.begin.push(kept.start);
            slice.end.push(kept.end);
            slice.strides.push(1);
        }
    }
    if slice.axes.is_empty() {
        return Ok(None);
    }
    let weight = call_with(b, &STRIDED_SLICE, &[weight], &slice)?;
    let mut args = site.args.to_vec();
    args[1] = Some(weight);
    let attrs = Attrs::from_struct(&attrs)?;
    Ok(Some(b.call_optional(site.op, args, attrs)?))
}
