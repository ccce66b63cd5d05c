//! Pools: windows that slide over one, two or three axes, and whole images.

use super::within;
use crate::ir::DType;
use crate::ops::nn::{
    AvgPool1dAttrs, AvgPool2dAttrs, AvgPool3dAttrs, MaxPool1dAttrs, MaxPool2dAttrs, MaxPool3dAttrs,
};
use crate::te::topi::{Compute, Stages};
use crate::te::{StageId, identity};
use crate::tir::{BinaryOp, PrimExpr};

/// A window along one axis of the input.
struct AxisWindow {
    size: i64,
    stride: i64,
    dilation: i64,
    before: i64,
    after: i64,
    /// The axis's extent.
    input: i64,
}

/// A window that slides over the spatial axes.
struct Window(Vec<AxisWindow>);

impl Window {
    /// `padding` has all that is before the axes, then all that is after them; `input` is the shape
    /// `(N, C, spatial…)`.
    fn new<const RANK: usize>(
        size: [i64; RANK],
        strides: [i64; RANK],
        padding: &[i64],
        dilation: [i64; RANK],
        input: &[i64],
    ) -> Window {
        let axis = |axis: usize| AxisWindow {
            size: size[axis],
            stride: strides[axis],
            dilation: dilation[axis],
            before: padding[axis],
            after: padding[axis + RANK],
            input: input[axis + 2],
        };
        Window((0..RANK).map(axis).collect())
    }

    /// Whether some window reaches beyond the input, as ceil mode or padding make it.
    fn overhangs(&self, output: &[i64]) -> bool {
        self.0.iter().zip(&output[2..]).any(|(axis, &windows)| {
            let start = (windows - 1).saturating_mul(axis.stride) - axis.before;
            let span = (axis.size - 1).saturating_mul(axis.dilation);
            axis.before > 0 || start.saturating_add(span) >= axis.input
        })
    }

    /// `combiner` over the windows of elements as `dtype`; what is outside of the input counts as the
    /// neutral element.
    fn reduce(
        &self,
        cx: &mut Compute<'_>,
        x: StageId,
        shape: &[i64],
        combiner: BinaryOp,
        dtype: DType,
    ) -> StageId {
        let neutral = identity(combiner, dtype);
        let guard = self.overhangs(shape);
        let over: Vec<i64> = self.0.iter().map(|axis| axis.size).collect();
        let op = cx.op.name;
        cx.dag.reduce(op, shape, dtype, combiner, &over, |dag, index, by| {
            let mut at = index[..2].to_vec();
            let mut inside = PrimExpr::bool(true);
            for ((axis, i), tap) in self.0.iter().zip(&index[2..]).zip(by) {
                let place = axis.start(i) + tap.clone() * axis.dilation;
                inside = inside.and(within(&place, 0, axis.input));
                at.push(place);
            }
            let value = dag.at(x, &at).cast(dtype);
            if guard { PrimExpr::select(inside, value, neutral) } else { value }
        })
    }
}

impl AxisWindow {
    /// Where the window of an output index begins.
    fn start(&self, index: &PrimExpr) -> PrimExpr {
        index.clone() * self.stride - self.before
    }

    /// Taps of the window of an output index that lie in `low..high`.
    fn taps(&self, index: &PrimExpr, low: i64, high: i64) -> PrimExpr {
        let start = self.start(index);
        let step = self.dilation.max(1);
        let ceil = |distance: PrimExpr| (distance + (step - 1)).floordiv(step);
        let first = ceil(PrimExpr::index(low) - start.clone()).max(0);
        let end = ceil(PrimExpr::index(high) - start).min(self.size);
        (end - first).max(0)
    }
}

pub(super) fn max_pool1d(cx: &mut Compute<'_>) -> Stages {
    let MaxPool1dAttrs { pool_size, strides, padding, dilation, ceil_mode: _ } = cx.attrs()?;
    max_pool(cx, |x| Window::new(pool_size, strides, &padding, dilation, x))
}

pub(super) fn max_pool2d(cx: &mut Compute<'_>) -> Stages {
    let MaxPool2dAttrs { pool_size, strides, padding, dilation, ceil_mode: _ } = cx.attrs()?;
    max_pool(cx, |x| Window::new(pool_size, strides, &padding, dilation, x))
}

pub(super) fn max_pool3d(cx: &mut Compute<'_>) -> Stages {
    let MaxPool3dAttrs { pool_size, strides, padding, dilation, ceil_mode: _ } = cx.attrs()?;
    max_pool(cx, |x| Window::new(pool_size, strides, &padding, dilation, x))
}

fn max_pool(cx: &mut Compute<'_>, window: impl FnOnce(&[i64]) -> Window) -> Stages {
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    let window = window(cx.dag.shape(x));
    Ok(vec![window.reduce(cx, x, &shape, BinaryOp::Max, dtype)])
}

pub(super) fn avg_pool1d(cx: &mut Compute<'_>) -> Stages {
    let AvgPool1dAttrs { pool_size, strides, padding, dilation, ceil_mode: _, count_include_pad } =
        cx.attrs()?;
    let window = |x: &[i64]| Window::new(pool_size, strides, &padding, dilation, x);
    avg_pool(cx, window, count_include_pad)
}

pub(super) fn avg_pool2d(cx: &mut Compute<'_>) -> Stages {
    let AvgPool2dAttrs { pool_size, strides, padding, dilation, ceil_mode: _, count_include_pad } =
        cx.attrs()?;
    let window = |x: &[i64]| Window::new(pool_size, strides, &padding, dilation, x);
    avg_pool(cx, window, count_include_pad)
}

pub(super) fn avg_pool3d(cx: &mut Compute<'_>) -> Stages {
    let AvgPool3dAttrs { pool_size, strides, padding, dilation, ceil_mode: _, count_include_pad } =
        cx.attrs()?;
    let window = |x: &[i64]| Window::new(pool_size, strides, &padding, dilation, x);
    avg_pool(cx, window, count_include_pad)
}

fn avg_pool(
    cx: &mut Compute<'_>,
    window: impl FnOnce(&[i64]) -> Window,
    count_include_pad: bool,
) -> Stages {
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    let window = window(cx.dag.shape(x));
    let wide = dtype.accumulator();
    let sum = window.reduce(cx, x, &shape, BinaryOp::Add, wide);
    let overhangs = window.overhangs(&shape);
    cx.element(|dag, index| {
        let count = if overhangs {
            // What ceil mode has beyond the padding never counts.
            let taps = window.0.iter().zip(&index[2..]).map(|(axis, i)| {
                let (before, after) =
                    if count_include_pad { (axis.before, axis.after) } else { (0, 0) };
                axis.taps(i, -before, axis.input.saturating_add(after))
            });
            taps.reduce(|count, taps| count * taps).unwrap_or(1.into()).max(1).cast(wide)
        } else {
            let taps = window.0.iter().map(|axis| axis.size as f64).product();
            PrimExpr::float(taps, wide)
        };
        (dag.at(sum, index) / count).cast(dtype)
    })
}

pub(super) fn global_pool(cx: &mut Compute<'_>, combiner: BinaryOp) -> Stages {
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    let over = cx.dag.shape(x)[2..].to_vec();
    let wide = if combiner == BinaryOp::Max { dtype } else { dtype.accumulator() };
    let stage = cx.dag.reduce(cx.op.name, &shape, wide, combiner, &over, |dag, index, by| {
        let at: Vec<PrimExpr> = index[..2].iter().chain(by).cloned().collect();
        dag.at(x, &at).cast(wide)
    });
    if combiner == BinaryOp::Max {
        return Ok(vec![stage]);
    }
    let count = over.iter().map(|&extent| extent as f64).product();
    cx.element(|dag, index| (dag.at(stage, index) / PrimExpr::float(count, wide)).cast(dtype))
}
