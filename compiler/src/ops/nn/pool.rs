//! Pools: `nn.max_pool1d` to `nn.max_pool3d` and `nn.avg_pool1d` to `nn.avg_pool3d` (ONNX `MaxPool`
//! and `AveragePool`).

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::X;
use super::window::{Window, spatial};
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, DType, Type};
use crate::ops::compute::{Compute, Stages, within};
use crate::ops::eval::{EvalCx, num_elements};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, OpDef, OpPattern};
use crate::te::{StageId, identity};
use crate::tir::{BinaryOp, PrimExpr};

/// Attributes that describe a pool of any number of spatial axes.
trait PoolAttrs: DeserializeOwned {
    /// Number of spatial axes.
    const RANK: usize;
    /// Layout of the argument, in messages.
    const LAYOUT: &'static str;

    fn window(&self) -> Window;

    fn ceil_mode(&self) -> bool;

    /// Whether padding counts as elements of value zero, for averages.
    fn count_include_pad(&self) -> bool;
}

macro_rules! pool_attrs {
    ($(
        $name:ident, $op:literal, $rank:literal, $pads:literal, $layout:literal, $order:literal
        $(, $count:ident)?;
    )*) => {$(
        #[doc = concat!("Attributes of `", $op, "`.")]
        #[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            /// Extents of the window.
            pub pool_size: [i64; $rank],
            /// Distance between windows along each axis.
            pub strides: [i64; $rank],
            #[doc = concat!("Padding around the argument: ", $order, ".")]
            pub padding: [i64; $pads],
            /// Distance between the elements of a window along each axis.
            pub dilation: [i64; $rank],
            /// Whether a last window may reach beyond the padding.
            pub ceil_mode: bool,
            $(
                /// Whether padding counts as elements of value zero.
                pub $count: bool,
            )?
        }

        impl Default for $name {
            /// Windows of one element next to each other, no padding.
            fn default() -> $name {
                $name {
                    pool_size: [1; $rank],
                    strides: [1; $rank],
                    padding: [0; $pads],
                    dilation: [1; $rank],
                    ceil_mode: false,
                    $($count: false,)?
                }
            }
        }

        impl PoolAttrs for $name {
            const RANK: usize = $rank;
            const LAYOUT: &'static str = $layout;

            fn window(&self) -> Window {
                Window::new(&self.pool_size, &self.strides, &self.padding, &self.dilation)
            }

            fn ceil_mode(&self) -> bool {
                self.ceil_mode
            }

            fn count_include_pad(&self) -> bool {
                false $(|| self.$count)?
            }
        }
    )*};
}

pool_attrs! {
    MaxPool1dAttrs, "nn.max_pool1d", 1, 2, "(N, C, W)", "left, right";
    MaxPool2dAttrs, "nn.max_pool2d", 2, 4, "(N, C, H, W)", "top, left, bottom, right";
    MaxPool3dAttrs, "nn.max_pool3d", 3, 6, "(N, C, D, H, W)",
        "front, top, left, back, bottom, right";
    AvgPool1dAttrs, "nn.avg_pool1d", 1, 2, "(N, C, W)", "left, right", count_include_pad;
    AvgPool2dAttrs, "nn.avg_pool2d", 2, 4, "(N, C, H, W)", "top, left, bottom, right",
        count_include_pad;
    AvgPool3dAttrs, "nn.avg_pool3d", 3, 6, "(N, C, D, H, W)",
        "front, top, left, back, bottom, right", count_include_pad;
}

macro_rules! pools {
    ($($op:ident = $name:literal, $attrs:ty, $summary:literal, $dtypes:ident, $eval:ident, $compute:ident;)*) => {$(
        #[doc = concat!($summary, ".")]
        pub static $op: OpDef = OpDef::new(
            $name,
            $summary,
            X,
            |cx| infer::<$attrs>(cx, DTypes::$dtypes),
            |attrs, args| $eval::<$attrs>(&$op, attrs, args),
            $compute,
        )
        .pattern(OpPattern::OutElemWiseFusable);
    )*};
}

pools! {
    MAX_POOL1D = "nn.max_pool1d", MaxPool1dAttrs, "the greatest of each window along one axis",
        Numeric, max_pool, compute_max_pool1d;
    MAX_POOL2D = "nn.max_pool2d", MaxPool2dAttrs, "the greatest of each window along two axes",
        Numeric, max_pool, compute_max_pool2d;
    MAX_POOL3D = "nn.max_pool3d", MaxPool3dAttrs, "the greatest of each window along three axes",
        Numeric, max_pool, compute_max_pool3d;
    AVG_POOL1D = "nn.avg_pool1d", AvgPool1dAttrs, "the mean of each window along one axis",
        Float, avg_pool, compute_avg_pool1d;
    AVG_POOL2D = "nn.avg_pool2d", AvgPool2dAttrs, "the mean of each window along two axes",
        Float, avg_pool, compute_avg_pool2d;
    AVG_POOL3D = "nn.avg_pool3d", AvgPool3dAttrs, "the mean of each window along three axes",
        Float, avg_pool, compute_avg_pool3d;
}

fn infer<A: PoolAttrs>(cx: &InferCx<'_>, dtypes: DTypes) -> Result<Type, TypeError> {
    let attrs: A = cx.attrs()?;
    let x = cx.tensor_of_rank(0, dtypes, A::RANK + 2, A::LAYOUT)?;
    let window = attrs.window();
    let mut dims = x.shape[..2].to_vec();
    for (index, axis) in window.last(A::RANK).iter().enumerate() {
        axis.check("pool_size")?;
        ensure!(
            axis.before < axis.span() && axis.after < axis.span(),
            "padding {} and {} must be less than the {} elements that a window spans, \
             or there are windows without elements",
            axis.before,
            axis.after,
            axis.span()
        );
        let windows = axis.outputs(&x.shape[index + 2], attrs.ceil_mode());
        ensure!(
            windows.as_const().is_none_or(|windows| windows >= 1),
            "a window that spans {} elements does not fit into dimension {} of input `x`, \
             which is {x}, with padding {} and {}",
            axis.span(),
            index + 2,
            axis.before,
            axis.after
        );
        dims.push(windows);
    }
    cx.result(dims, x.dtype)
}

/// Calls `visit` with each element of each window: the place of the window in the result and the
/// place of the element in the argument.
fn each_tap(
    window: &Window,
    x_shape: &[usize],
    out_shape: &[usize],
    mut visit: impl FnMut(usize, usize),
) {
    let (input, output) = (spatial(x_shape), spatial(out_shape));
    let (input_len, output_len) = (num_elements(&input), num_elements(&output));
    let planes = num_elements(out_shape).checked_div(output_len).unwrap_or(0);
    let [z_taps, y_taps, x_taps] = window.taps();
    for tap in 0..z_taps * y_taps * x_taps {
        let taps = [tap / x_taps / y_taps, tap / x_taps % y_taps, tap % x_taps];
        let valid = |axis: usize| window.0[axis].valid(taps[axis], input[axis], output[axis]);
        let [z, y, x] = [valid(0), valid(1), valid(2)];
        let stride = window.0.map(|axis| axis.stride as usize);
        for plane in 0..planes {
            for (step_z, out_z) in (z.0..z.1).enumerate() {
                for (step_y, out_y) in (y.0..y.1).enumerate() {
                    let (in_z, in_y) = (z.2 + step_z * stride[0], y.2 + step_y * stride[1]);
                    let row = plane * input_len + (in_z * input[1] + in_y) * input[2];
                    let out = plane * output_len + (out_z * output[1] + out_y) * output[2];
                    for (step_x, out_x) in (x.0..x.1).enumerate() {
                        visit(out + out_x, row + x.2 + step_x * stride[2]);
                    }
                }
            }
        }
    }
}

fn max_pool<A: PoolAttrs>(
    def: &'static OpDef,
    attrs: &Attrs,
    args: &[Option<&Tensor>],
) -> Result<Vec<Tensor>, EvalError> {
    let cx = EvalCx::new(def, attrs, args)?;
    let window = cx.attrs::<A>()?.window();
    let x = cx.arg(0)?;
    cx.result(match x.elements() {
        Elements::Float(values) => {
            let mut greatest = vec![f64::NEG_INFINITY; cx.len()];
            each_tap(&window, x.shape(), cx.shape(), |out, at| {
                // A NaN, once met, stays.
                if values[at].is_nan() || values[at] > greatest[out] {
                    greatest[out] = values[at];
                }
            });
            Elements::Float(greatest)
        }
        Elements::Int(values) => {
            let least = DType::int_range(x.dtype()).map_or(0, |(least, _)| least);
            let mut greatest = vec![least; cx.len()];
            each_tap(&window, x.shape(), cx.shape(), |out, at| {
                greatest[out] = greatest[out].max(values[at]);
            });
            Elements::Int(greatest)
        }
    })
}

fn avg_pool<A: PoolAttrs>(
    def: &'static OpDef,
    attrs: &Attrs,
    args: &[Option<&Tensor>],
) -> Result<Vec<Tensor>, EvalError> {
    let cx = EvalCx::new(def, attrs, args)?;
    let attrs: A = cx.attrs()?;
    let window = attrs.window();
    let (x, values) = (cx.arg(0)?, cx.floats(0)?);
    if cx.len() == 0 {
        return cx.result(Elements::Float(Vec::new()));
    }
    let mut sums = vec![0.0; cx.len()];
    each_tap(&window, x.shape(), cx.shape(), |out, at| sums[out] += values[at]);
    let counts = window_counts(&window, x.shape(), cx.shape(), attrs.count_include_pad());
    for (sum, &count) in sums.iter_mut().zip(counts.iter().cycle()) {
        // A window of which every tap is padding has no elements; its mean is taken to be zero.
        *sum /= count.max(1) as f64;
    }
    cx.result(Elements::Float(sums))
}

/// For each window of one plane the number of its elements. What a last window in `ceil_mode` has
/// beyond the padding never counts.
fn window_counts(
    window: &Window,
    x_shape: &[usize],
    out_shape: &[usize],
    include_pad: bool,
) -> Vec<usize> {
    let (mut input, mut counted) = (spatial(x_shape), *window);
    if include_pad {
        for (axis, extent) in counted.0.iter_mut().zip(&mut input) {
            *extent = extent.saturating_add((axis.before + axis.after) as usize);
            (axis.before, axis.after) = (0, 0);
        }
    }
    let output = spatial(out_shape);
    let along = |axis: usize| {
        let mut counts = vec![0usize; output[axis]];
        for tap in 0..counted.taps()[axis] {
            let (first, end, _) = counted.0[axis].valid(tap, input[axis], output[axis]);
            counts[first..end].iter_mut().for_each(|count| *count += 1);
        }
        counts
    };
    let [z, y, x] = [along(0), along(1), along(2)];
    let mut counts = Vec::with_capacity(num_elements(&output));
    for z in &z {
        for y in &y {
            counts.extend(x.iter().map(|x| z * y * x));
        }
    }
    counts
}

/// A window along one axis of the input.
struct TeAxis {
    size: i64,
    stride: i64,
    dilation: i64,
    before: i64,
    after: i64,
    /// The axis's extent.
    input: i64,
}

/// A window that slides over the spatial axes.
struct TeWindow(Vec<TeAxis>);

impl TeWindow {
    /// `padding` has all that is before the axes, then all that is after them; `input` is the shape
    /// `(N, C, spatial…)`.
    fn new<const RANK: usize>(
        size: [i64; RANK],
        strides: [i64; RANK],
        padding: &[i64],
        dilation: [i64; RANK],
        input: &[i64],
    ) -> TeWindow {
        let axis = |axis: usize| TeAxis {
            size: size[axis],
            stride: strides[axis],
            dilation: dilation[axis],
            before: padding[axis],
            after: padding[axis + RANK],
            input: input[axis + 2],
        };
        TeWindow((0..RANK).map(axis).collect())
    }

    /// Whether some window reaches beyond the input, as ceil mode or padding make it.
    fn overhangs(&self, output: &[i64]) -> bool {
        self.0.iter().zip(&output[2..]).any(|(axis, &windows)| {
            let start = (windows - 1).saturating_mul(axis.stride) - axis.before;
            let span = (axis.size - 1).saturating_mul(axis.dilation);
            axis.before > 0 || start.saturating_add(span) >= axis.input
        })
    }

    /// `combiner` over the windows; what is outside of the input counts as the neutral element.
    fn reduce(
        &self,
        cx: &mut Compute<'_>,
        x: StageId,
        shape: &[i64],
        combiner: BinaryOp,
    ) -> StageId {
        let dtype = cx.dag.dtype(x);
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
            let value = dag.at(x, &at);
            if guard { PrimExpr::select(inside, value, neutral) } else { value }
        })
    }
}

impl TeAxis {
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

fn compute_max_pool1d(cx: &mut Compute<'_>) -> Stages {
    let MaxPool1dAttrs { pool_size, strides, padding, dilation, ceil_mode: _ } = cx.attrs()?;
    compute_max_pool(cx, |x| TeWindow::new(pool_size, strides, &padding, dilation, x))
}

fn compute_max_pool2d(cx: &mut Compute<'_>) -> Stages {
    let MaxPool2dAttrs { pool_size, strides, padding, dilation, ceil_mode: _ } = cx.attrs()?;
    compute_max_pool(cx, |x| TeWindow::new(pool_size, strides, &padding, dilation, x))
}

fn compute_max_pool3d(cx: &mut Compute<'_>) -> Stages {
    let MaxPool3dAttrs { pool_size, strides, padding, dilation, ceil_mode: _ } = cx.attrs()?;
    compute_max_pool(cx, |x| TeWindow::new(pool_size, strides, &padding, dilation, x))
}

fn compute_avg_pool1d(cx: &mut Compute<'_>) -> Stages {
    let AvgPool1dAttrs { pool_size, strides, padding, dilation, ceil_mode: _, count_include_pad } =
        cx.attrs()?;
    let window = |x: &[i64]| TeWindow::new(pool_size, strides, &padding, dilation, x);
    compute_avg_pool(cx, window, count_include_pad)
}

fn compute_avg_pool2d(cx: &mut Compute<'_>) -> Stages {
    let AvgPool2dAttrs { pool_size, strides, padding, dilation, ceil_mode: _, count_include_pad } =
        cx.attrs()?;
    let window = |x: &[i64]| TeWindow::new(pool_size, strides, &padding, dilation, x);
    compute_avg_pool(cx, window, count_include_pad)
}

fn compute_avg_pool3d(cx: &mut Compute<'_>) -> Stages {
    let AvgPool3dAttrs { pool_size, strides, padding, dilation, ceil_mode: _, count_include_pad } =
        cx.attrs()?;
    let window = |x: &[i64]| TeWindow::new(pool_size, strides, &padding, dilation, x);
    compute_avg_pool(cx, window, count_include_pad)
}

fn compute_max_pool(cx: &mut Compute<'_>, window: impl FnOnce(&[i64]) -> TeWindow) -> Stages {
    let x = cx.arg(0)?;
    let (shape, _) = cx.result();
    let window = window(cx.dag.shape(x));
    Ok(vec![window.reduce(cx, x, &shape, BinaryOp::Max)])
}

fn compute_avg_pool(
    cx: &mut Compute<'_>,
    window: impl FnOnce(&[i64]) -> TeWindow,
    count_include_pad: bool,
) -> Stages {
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    let window = window(cx.dag.shape(x));
    let sum = window.reduce(cx, x, &shape, BinaryOp::Add);
    let overhangs = window.overhangs(&shape);
    cx.element(|dag, index| {
        let count = if overhangs {
            // What ceil mode has beyond the padding never counts.
            let taps = window.0.iter().zip(&index[2..]).map(|(axis, i)| {
                let (before, after) =
                    if count_include_pad { (axis.before, axis.after) } else { (0, 0) };
                axis.taps(i, -before, axis.input.saturating_add(after))
            });
            taps.reduce(|count, taps| count * taps).unwrap_or(1.into()).max(1).cast(dtype)
        } else {
            let taps = window.0.iter().map(|axis| axis.size as f64).product();
            PrimExpr::float(taps, dtype)
        };
        dag.at(sum, index) / count
    })
}
