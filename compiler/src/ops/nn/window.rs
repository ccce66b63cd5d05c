//! Windows that slide over the spatial axes of `(N, C, spatial…)`, whatever their number: what the
//! relations, evaluations and tensor expressions of convolutions and pools share with the import.

use std::ops::Range;

use crate::graph::TypeError;
use crate::ir::{Dim, TensorType};
use crate::ops::compute::within;
use crate::ops::relation::at_least;
use crate::tir::PrimExpr;

/// A window along one axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AxisWindow {
    /// Number of taps.
    pub taps: i64,
    /// Distance between windows.
    pub stride: i64,
    /// Distance between taps.
    pub dilation: i64,
    /// Padding before the first element.
    pub before: i64,
    /// Padding after the last element.
    pub after: i64,
}

impl AxisWindow {
    /// Elements that a window spans, from its first to its last tap.
    ///
    /// Saturates: what does not fit is longer than any axis.
    pub fn span(self) -> i64 {
        self.dilation.saturating_mul(self.taps - 1).saturating_add(1)
    }

    /// Checks that strides, dilation and taps are positive and the padding is not negative.
    fn check(self, taps_name: &str) -> Result<(), TypeError> {
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
    fn outputs(self, extent: &Dim, ceil: bool) -> Dim {
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

    /// The taps, from the first to the last one, that read an element of an axis of `extent` in any of
    /// `outputs` windows.
    pub(crate) fn read_taps(self, extent: i64, outputs: i64) -> Range<i64> {
        let [taps, stride, dilation, before] =
            [self.taps, self.stride, self.dilation, self.before].map(i128::from);
        let first_at = |element: i128| (element + dilation - 1).div_euclid(dilation);
        let first = first_at(before - (i128::from(outputs) - 1) * stride).clamp(0, taps);
        let end = first_at(before + i128::from(extent)).clamp(first, taps);
        // Both are at most as many as there are taps.
        first as i64..end as i64
    }

    /// The positions `output` for which tap `tap` of window `output` is an element of an axis of
    /// `extent`, of `outputs` windows; and the element that the first of them reads.
    pub(super) fn valid(self, tap: usize, extent: usize, outputs: usize) -> (Range<usize>, usize) {
        let (stride, extent) = (i128::from(self.stride), extent as i128);
        // Element `output * stride + shift` must lie within `0..extent`.
        let shift = tap as i128 * i128::from(self.dilation) - i128::from(self.before);
        let first = (-shift).max(0).div_euclid(stride)
            + i128::from((-shift).max(0).rem_euclid(stride) != 0);
        let end = (extent - shift + stride - 1).div_euclid(stride).clamp(0, outputs as i128);
        let first = first.min(end);
        (first as usize..end as usize, (first * stride + shift).max(0) as usize)
    }
}

/// A window along each spatial axis.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Window {
    /// The axes, outermost first.
    pub axes: Vec<AxisWindow>,
}

impl Window {
    /// The window of attributes whose lists have one entry for each spatial axis, and two in
    /// `padding`: all that is before, then all that is after.
    ///
    /// # Errors
    ///
    /// If a list has another length than `taps` asks for.
    pub fn new(
        taps: &[i64],
        strides: &[i64],
        padding: &[i64],
        dilation: &[i64],
    ) -> Result<Window, TypeError> {
        let rank = taps.len();
        let lists = [("strides", strides, rank), ("dilation", dilation, rank)];
        for (name, list, len) in lists.into_iter().chain([("padding", padding, 2 * rank)]) {
            ensure!(
                list.len() == len,
                "attribute `{name}` must have {len} values for {rank} spatial axes, but it is {list:?}"
            );
        }
        let axis = |axis: usize| AxisWindow {
            taps: taps[axis],
            stride: strides[axis],
            dilation: dilation[axis],
            before: padding[axis],
            after: padding[rank + axis],
        };
        Ok(Window { axes: (0..rank).map(axis).collect() })
    }

    fn list(&self, of: impl Fn(&AxisWindow) -> i64) -> Vec<i64> {
        self.axes.iter().map(of).collect()
    }

    /// Numbers of taps along the axes.
    pub fn taps(&self) -> Vec<i64> {
        self.list(|axis| axis.taps)
    }

    /// Attribute `strides`.
    pub fn strides(&self) -> Vec<i64> {
        self.list(|axis| axis.stride)
    }

    /// Attribute `dilation`.
    pub fn dilation(&self) -> Vec<i64> {
        self.list(|axis| axis.dilation)
    }

    /// Attribute `padding`: all that is before the axes, then all that is after them.
    pub fn padding(&self) -> Vec<i64> {
        [self.list(|axis| axis.before), self.list(|axis| axis.after)].concat()
    }

    /// The extents of the windows' places in `x`, which is `(N, C, spatial…)`; `what` is what spans
    /// the elements, and `taps_name` the attribute that has their number.
    pub(super) fn places(
        &self,
        x: &TensorType,
        ceil: bool,
        [what, taps_name]: [&str; 2],
    ) -> Result<Vec<Dim>, TypeError> {
        let mut places = Vec::with_capacity(self.axes.len());
        for (axis, window) in self.axes.iter().enumerate() {
            window.check(taps_name)?;
            let windows = window.outputs(&x.shape[axis + 2], ceil);
            ensure!(
                windows.as_const().is_none_or(|windows| windows >= 1),
                "a {what} that spans {} elements does not fit into dimension {} of input `x`, \
                 which is {x}, with padding {} and {}",
                window.span(),
                axis + 2,
                window.before,
                window.after
            );
            places.push(windows);
        }
        Ok(places)
    }

    /// Number of taps along all axes.
    pub(super) fn len(&self) -> usize {
        let taps = self.axes.iter().map(|axis| usize::try_from(axis.taps).unwrap_or(0));
        taps.fold(1, usize::saturating_mul)
    }

    /// The elements that the tap of that number reads in a plane of extents `input`, row by row of
    /// the windows' places, whose extents are `output`: calls `visit` with the places and the
    /// element that the first of them reads. The others follow by the stride of the last axis.
    pub(super) fn rows(
        &self,
        tap: usize,
        input: &[usize],
        output: &[usize],
        mut visit: impl FnMut(Range<usize>, usize),
    ) {
        let mut rest = tap;
        let mut valid: Vec<(Range<usize>, usize)> = Vec::with_capacity(self.axes.len());
        for (axis, window) in self.axes.iter().enumerate().rev() {
            let taps = usize::try_from(window.taps).unwrap_or(1).max(1);
            valid.push(window.valid(rest % taps, input[axis], output[axis]));
            rest /= taps;
        }
        valid.reverse();
        let Some(((columns, first_column), outer)) = valid.split_last() else { return };
        if columns.is_empty() {
            return;
        }
        let rows: usize = outer.iter().map(|(places, _)| places.len()).product();
        for row in 0..rows {
            let (mut rest, mut out, mut at) = (row, 0, 0);
            let (mut out_stride, mut in_stride) = (1, 1);
            for (axis, (places, first)) in outer.iter().enumerate().rev() {
                out_stride *= output[axis + 1];
                in_stride *= input[axis + 1];
                let step = rest % places.len();
                rest /= places.len();
                out += (places.start + step) * out_stride;
                at += (first + step * self.axes[axis].stride as usize) * in_stride;
            }
            visit(out + columns.start..out + columns.end, at + first_column);
        }
    }

    /// The distance of elements that neighbouring places read along the last axis.
    pub(super) fn column_stride(&self) -> usize {
        self.axes.last().map_or(1, |axis| axis.stride as usize)
    }

    /// The spatial index that the windows at an index read at taps, and whether it lies within the
    /// extents of the input.
    pub(super) fn read(
        &self,
        index: &[PrimExpr],
        taps: &[PrimExpr],
        input: &[i64],
    ) -> (Vec<PrimExpr>, PrimExpr) {
        let mut at = Vec::with_capacity(self.axes.len());
        let mut inside = PrimExpr::bool(true);
        for (((axis, i), tap), &extent) in self.axes.iter().zip(index).zip(taps).zip(input) {
            let place = i.clone() * axis.stride + tap.clone() * axis.dilation - axis.before;
            inside = inside.and(within(&place, 0, extent));
            at.push(place);
        }
        (at, inside)
    }
}

/// Layout of a tensor of so many spatial axes, in messages: `(N, C, H, W)`.
pub(super) fn layout(outer: &str, rank: usize) -> String {
    let axes = ["D", "H", "W"];
    format!("({outer}, {})", axes[axes.len().saturating_sub(rank)..].join(", "))
}
