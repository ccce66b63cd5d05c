//! Windows that slide over the spatial axes of `(N, C, spatial…)`: what convolutions and pools
//! share. Axes are held as three; those that are missing have extent one.

use crate::graph::TypeError;
use crate::ir::Dim;
use crate::ops::relation::at_least;

/// A window along one axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AxisWindow {
    /// Number of taps.
    pub(super) taps: i64,
    /// Distance between windows.
    pub(super) stride: i64,
    /// Distance between taps.
    pub(super) dilation: i64,
    /// Padding before the first element.
    pub(super) before: i64,
    /// Padding after the last element.
    pub(super) after: i64,
}

impl AxisWindow {
    /// Elements that a window spans, from its first to its last tap.
    ///
    /// Saturates: what does not fit is longer than any axis.
    pub(super) fn span(self) -> i64 {
        self.dilation.saturating_mul(self.taps - 1).saturating_add(1)
    }

    /// Checks that strides, dilation and taps are positive and the padding is not negative.
    pub(super) fn check(self, taps_name: &str) -> Result<(), TypeError> {
        at_least(taps_name, self.taps, 1)?;
        at_least("strides", self.stride, 1)?;
        at_least("dilation", self.dilation, 1)?;
        at_least("padding", self.before, 0)?;
        at_least("padding", self.after, 0)
    }

    /// The number of windows over an axis of that extent.
    ///
    /// With `ceil`, a last window may reach beyond the padding, but starts within the elements or
    /// the padding before them, as ONNX and PyTorch have it.
    pub(super) fn outputs(self, extent: &Dim, ceil: bool) -> Dim {
        let (stride, before) = (Dim::from(self.stride), Dim::from(self.before));
        let padded = extent + &before;
        let free = &padded + &Dim::from(self.after) - &Dim::from(self.span());
        if ceil {
            let windows = free.ceil_div(&stride) + &Dim::from(1i64);
            windows.minimum(&padded.ceil_div(&stride))
        } else {
            free.floor_div(&stride) + &Dim::from(1i64)
        }
    }

    /// The positions `output` for which tap `tap` of window `output` is an element of an axis of
    /// `extent`, of `outputs` windows; and the element that the first of them reads.
    pub(super) fn valid(self, tap: usize, extent: usize, outputs: usize) -> (usize, usize, usize) {
        let (stride, extent) = (i128::from(self.stride), extent as i128);
        // Element `output * stride + shift` must lie within `0..extent`.
        let shift = tap as i128 * i128::from(self.dilation) - i128::from(self.before);
        let first = (-shift).max(0).div_euclid(stride)
            + i128::from((-shift).max(0).rem_euclid(stride) != 0);
        let end = (extent - shift + stride - 1).div_euclid(stride).clamp(0, outputs as i128);
        let first = first.min(end);
        (first as usize, end as usize, (first * stride + shift).max(0) as usize)
    }
}

/// Windows along three axes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Window(pub(super) [AxisWindow; 3]);

impl Window {
    /// The window of attributes whose lists have one entry for each spatial axis, and two in
    /// `padding`: all that is before, then all that is after.
    pub(super) fn new(taps: &[i64], strides: &[i64], padding: &[i64], dilation: &[i64]) -> Window {
        let point = AxisWindow { taps: 1, stride: 1, dilation: 1, before: 0, after: 0 };
        let mut window = [point; 3];
        let missing = 3usize.saturating_sub(taps.len());
        let pads = padding.iter().zip(padding.iter().skip(taps.len()));
        let axes = taps.iter().zip(strides).zip(dilation).zip(pads);
        for (axis, (((&taps, &stride), &dilation), (&before, &after))) in
            window.iter_mut().skip(missing).zip(axes)
        {
            *axis = AxisWindow { taps, stride, dilation, before, after };
        }
        Window(window)
    }

    /// The windows along the last `rank` axes.
    pub(super) fn last(&self, rank: usize) -> &[AxisWindow] {
        &self.0[3usize.saturating_sub(rank)..]
    }

    /// Numbers of taps along the axes.
    pub(super) fn taps(&self) -> [usize; 3] {
        self.0.map(|axis| usize::try_from(axis.taps).unwrap_or(0))
    }
}

/// The spatial extents of `(N, C, spatial…)` as three, those that are missing being one.
pub(super) fn spatial(shape: &[usize]) -> [usize; 3] {
    let mut extents = [1; 3];
    let axes = shape.get(2..).unwrap_or(&[]);
    let missing = 3usize.saturating_sub(axes.len());
    for (extent, &axis) in extents.iter_mut().skip(missing).zip(axes) {
        *extent = axis;
    }
    extents
}
