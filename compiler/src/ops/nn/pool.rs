//! Pools along any number of axes (ONNX `MaxPool` and `AveragePool`): `nn.max_pool1d` to
//! `nn.max_pool3d` are names of one definition, as are `nn.avg_pool1d` to `nn.avg_pool3d`.

use serde::{Deserialize, Serialize};

use super::X;
use super::window::{AxisWindow, Window, layout};
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, DType, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::{EvalCx, num_elements};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, OpDef, OpPattern};
use crate::te::{Anchor, StageId, identity};
use crate::tir::{BinaryOp, PrimExpr};

/// Attributes of `nn.max_pool1d`, `nn.max_pool2d` and `nn.max_pool3d`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MaxPoolAttrs {
    /// Extents of the window.
    pub pool_size: Vec<i64>,
    /// Distance between windows along each axis.
    pub strides: Vec<i64>,
    /// Padding around the argument: before each spatial axis, then after each. Along two axes top,
    /// left, bottom, right.
    pub padding: Vec<i64>,
    /// Distance between the elements of a window along each axis.
    pub dilation: Vec<i64>,
    /// Whether a last window may reach beyond the padding.
    pub ceil_mode: bool,
}

/// Attributes of `nn.avg_pool1d`, `nn.avg_pool2d` and `nn.avg_pool3d`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AvgPoolAttrs {
    /// Extents of the window.
    pub pool_size: Vec<i64>,
    /// Distance between windows along each axis.
    pub strides: Vec<i64>,
    /// Padding around the argument: before each spatial axis, then after each. Along two axes top,
    /// left, bottom, right.
    pub padding: Vec<i64>,
    /// Distance between the elements of a window along each axis.
    pub dilation: Vec<i64>,
    /// Whether a last window may reach beyond the padding.
    pub ceil_mode: bool,
    /// Whether padding counts as elements of value zero.
    pub count_include_pad: bool,
}

impl MaxPoolAttrs {
    /// A pool by that window.
    pub fn new(window: &Window, ceil_mode: bool) -> MaxPoolAttrs {
        MaxPoolAttrs {
            pool_size: window.taps(),
            strides: window.strides(),
            padding: window.padding(),
            dilation: window.dilation(),
            ceil_mode,
        }
    }

    /// Windows of that size at every element, no padding.
    pub fn of_size(pool_size: &[i64]) -> MaxPoolAttrs {
        MaxPoolAttrs::new(&Window::dense(pool_size), false)
    }

    fn window(&self) -> Result<Window, TypeError> {
        Window::new(&self.pool_size, &self.strides, &self.padding, &self.dilation)
    }
}

impl AvgPoolAttrs {
    /// A pool by that window.
    pub fn new(window: &Window, ceil_mode: bool, count_include_pad: bool) -> AvgPoolAttrs {
        AvgPoolAttrs {
            pool_size: window.taps(),
            strides: window.strides(),
            padding: window.padding(),
            dilation: window.dilation(),
            ceil_mode,
            count_include_pad,
        }
    }

    /// Windows of that size at every element, no padding.
    pub fn of_size(pool_size: &[i64]) -> AvgPoolAttrs {
        AvgPoolAttrs::new(&Window::dense(pool_size), false, false)
    }

    fn window(&self) -> Result<Window, TypeError> {
        Window::new(&self.pool_size, &self.strides, &self.padding, &self.dilation)
    }
}

/// Defaults of the attributes that all pools have: windows next to each other, without padding.
fn adjacent(rank: usize) -> Attrs {
    Attrs::new()
        .with("strides", vec![1; rank])
        .with("padding", vec![0; 2 * rank])
        .with("dilation", vec![1; rank])
        .with("ceil_mode", false)
}

/// The greatest of each window along `RANK` spatial axes.
const fn define_max<const RANK: usize>(name: &'static str, summary: &'static str) -> OpDef {
    OpDef::new(name, summary, X, infer_max::<RANK>, eval_max, compute_max)
        .attributes::<MaxPoolAttrs>()
        .defaults(|| adjacent(RANK))
        .layouts(&["layout"])
        .pattern(OpPattern::OutElemWiseFusable)
}

/// The mean of each window along `RANK` spatial axes.
const fn define_avg<const RANK: usize>(name: &'static str, summary: &'static str) -> OpDef {
    OpDef::new(name, summary, X, infer_avg::<RANK>, eval_avg, compute_avg)
        .attributes::<AvgPoolAttrs>()
        .defaults(|| adjacent(RANK).with("count_include_pad", false))
        .layouts(&["layout"])
        .pattern(OpPattern::OutElemWiseFusable)
}

/// The greatest of each window along one axis.
pub static MAX_POOL1D: OpDef =
    define_max::<1>("nn.max_pool1d", "the greatest of each window along one axis");

/// The greatest of each window along two axes.
pub static MAX_POOL2D: OpDef =
    define_max::<2>("nn.max_pool2d", "the greatest of each window along two axes");

/// The greatest of each window along three axes.
pub static MAX_POOL3D: OpDef =
    define_max::<3>("nn.max_pool3d", "the greatest of each window along three axes");

/// The mean of each window along one axis.
pub static AVG_POOL1D: OpDef =
    define_avg::<1>("nn.avg_pool1d", "the mean of each window along one axis");

/// The mean of each window along two axes.
pub static AVG_POOL2D: OpDef =
    define_avg::<2>("nn.avg_pool2d", "the mean of each window along two axes");

/// The mean of each window along three axes.
pub static AVG_POOL3D: OpDef =
    define_avg::<3>("nn.avg_pool3d", "the mean of each window along three axes");

/// The pool of the greatest along so many spatial axes, if there is one.
pub fn max_pool(rank: usize) -> Option<&'static OpDef> {
    [&MAX_POOL1D, &MAX_POOL2D, &MAX_POOL3D].get(rank.checked_sub(1)?).copied()
}

/// The pool of means along so many spatial axes, if there is one.
pub fn avg_pool(rank: usize) -> Option<&'static OpDef> {
    [&AVG_POOL1D, &AVG_POOL2D, &AVG_POOL3D].get(rank.checked_sub(1)?).copied()
}

fn infer_max<const RANK: usize>(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: MaxPoolAttrs = cx.attrs()?;
    infer(cx, RANK, DTypes::Numeric, &attrs.window()?, attrs.ceil_mode)
}

fn infer_avg<const RANK: usize>(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: AvgPoolAttrs = cx.attrs()?;
    infer(cx, RANK, DTypes::Float, &attrs.window()?, attrs.ceil_mode)
}

pub(super) fn infer(
    cx: &InferCx<'_>,
    rank: usize,
    dtypes: DTypes,
    window: &Window,
    ceil_mode: bool,
) -> Result<Type, TypeError> {
    let x = cx.tensor_of_rank(0, dtypes, rank + 2, &layout("N, C", rank))?;
    ensure!(
        window.axes.len() == rank,
        "attribute `pool_size` must have {rank} values, but it is {:?}",
        window.taps()
    );
    let places = window.places(x, ceil_mode, ["window", "pool_size"])?;
    for axis in &window.axes {
        ensure!(
            axis.before < axis.span() && axis.after < axis.span(),
            "padding {} and {} must be less than the {} elements that a window spans, \
             or there are windows without elements",
            axis.before,
            axis.after,
            axis.span()
        );
    }
    cx.result(x.shape[..2].iter().cloned().chain(places), x.dtype)
}

/// Calls `visit` with each element of each window: the place of the window in the result and the
/// place of the element in the argument.
pub(super) fn each_tap(
    window: &Window,
    x_shape: &[usize],
    out_shape: &[usize],
    mut visit: impl FnMut(usize, usize),
) {
    let (input, output) = (&x_shape[2..], &out_shape[2..]);
    let (input_len, output_len) = (num_elements(input), num_elements(output));
    let planes = num_elements(out_shape).checked_div(output_len).unwrap_or(0);
    let stride = window.column_stride();
    for tap in 0..window.len() {
        for plane in 0..planes {
            let (out, at) = (plane * output_len, plane * input_len);
            window.rows(tap, input, output, |places, first| {
                for (step, place) in places.enumerate() {
                    visit(out + place, at + first + step * stride);
                }
            });
        }
    }
}

fn eval_max(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let window = cx.attrs::<MaxPoolAttrs>()?.window()?;
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

fn eval_avg(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: AvgPoolAttrs = cx.attrs()?;
    let window = attrs.window()?;
    let (x, values) = (cx.arg(0)?, cx.floats(0)?);
    if cx.len() == 0 {
        return cx.result(Elements::Float(Vec::new()));
    }
    let mut sums = vec![0.0; cx.len()];
    each_tap(&window, x.shape(), cx.shape(), |out, at| sums[out] += values[at]);
    let counts = counts(&window, &x.shape()[2..], &cx.shape()[2..], attrs.count_include_pad);
    for (sum, &count) in sums.iter_mut().zip(counts.iter().cycle()) {
        // A window of which every tap is padding has no elements; its mean is taken to be zero.
        *sum /= count.max(1) as f64;
    }
    cx.result(Elements::Float(sums))
}

/// For each window of one plane the number of its elements. What a last window in `ceil_mode` has
/// beyond the padding never counts.
fn counts(window: &Window, input: &[usize], output: &[usize], include_pad: bool) -> Vec<usize> {
    let mut counts = vec![1];
    for ((&axis, &extent), &windows) in window.axes.iter().zip(input).zip(output) {
        let (axis, extent) = if include_pad {
            let padded = extent.saturating_add((axis.before + axis.after) as usize);
            (AxisWindow { before: 0, after: 0, ..axis }, padded)
        } else {
            (axis, extent)
        };
        let mut along = vec![0usize; windows];
        for tap in 0..usize::try_from(axis.taps).unwrap_or(0) {
            let (places, _) = axis.valid(tap, extent, windows);
            along[places].iter_mut().for_each(|count| *count += 1);
        }
        counts = counts.iter().flat_map(|count| along.iter().map(move |a| count * a)).collect();
    }
    counts
}

impl Window {
    /// A window of that size at every element, without padding.
    fn dense(taps: &[i64]) -> Window {
        let axis = |&taps: &i64| AxisWindow { taps, stride: 1, dilation: 1, before: 0, after: 0 };
        Window { axes: taps.iter().map(axis).collect() }
    }

    /// Along which axes some window reaches beyond the input, as ceil mode or padding make it, or may for
    /// other extents that a run says.
    pub(super) fn overhangs(
        &self,
        cx: &Compute<'_>,
        [x, shape]: [&[i64]; 2],
        ceil: bool,
    ) -> Vec<bool> {
        let overhangs = |(number, axis): (usize, &AxisWindow)| {
            let start = (shape[number + 2] - 1).saturating_mul(axis.stride) - axis.before;
            let may =
                cx.open_axes.contains(&(number + 2)) && (axis.after > 0 || ceil && axis.span() > 1);
            may || axis.before > 0 || start.saturating_add(axis.span() - 1) >= x[number + 2]
        };
        self.axes.iter().enumerate().map(overhangs).collect()
    }

    /// `combiner` over the windows of elements as `dtype`; what is outside of the input counts as the
    /// neutral element. Large windows that overlap are combined along one axis after the other,
    /// rows last, so that a window takes the sum and not the product of its extents.
    pub(super) fn reduce(
        &self,
        cx: &mut Compute<'_>,
        x: StageId,
        shape: &[i64],
        ceil: bool,
        (combiner, dtype): (BinaryOp, DType),
    ) -> StageId {
        let (input, output) = match cx.open_axes.iter().any(|&axis| axis >= 2) {
            // What there is for each element of a large result.
            true => (self.strides(), vec![1; self.axes.len()]),
            false => (cx.dag.shape(x)[2..].to_vec(), shape[2..].to_vec()),
        };
        if !self.is_less_by_axis(&input, &output) {
            return self.reduce_at_once(cx, x, shape, ceil, (combiner, dtype));
        }
        let (mut stage, mut between) = (x, cx.dag.shape(x).to_vec());
        for axis in 0..self.axes.len() {
            between[axis + 2] = shape[axis + 2];
            let mut along = Window::dense(&vec![1; self.axes.len()]);
            along.axes[axis] = self.axes[axis];
            stage = along.reduce_at_once(cx, stage, &between, ceil, (combiner, dtype));
        }
        stage
    }

    /// Whether there is much less to combine along one axis after the other.
    fn is_less_by_axis(&self, input: &[i64], output: &[i64]) -> bool {
        let elements = |extents: &[i64]| extents.iter().map(|&n| n as f64).product::<f64>();
        let mut between = input.to_vec();
        let mut by_axis = 0.0;
        for (axis, window) in self.axes.iter().enumerate() {
            between[axis] = output[axis];
            // What is between is stored and read again.
            by_axis += elements(&between) * (window.taps + 2) as f64;
        }
        by_axis * 1.1 < elements(output) * self.len() as f64
    }

    fn reduce_at_once(
        &self,
        cx: &mut Compute<'_>,
        x: StageId,
        shape: &[i64],
        ceil: bool,
        (combiner, dtype): (BinaryOp, DType),
    ) -> StageId {
        let guard = self.overhangs(cx, [cx.dag.shape(x), shape], ceil).contains(&true);
        let input = cx.dag.shape(x)[2..].to_vec();
        let neutral = identity(combiner, dtype);
        let (op, taps) = (cx.op.name, self.taps());
        let stage = cx.dag.reduce(op, shape, dtype, combiner, &taps, |dag, index, by| {
            let (places, inside) = self.read(&index[2..], by, &input);
            let value = dag.at(x, &[&index[..2], &places[..]].concat()).cast(dtype);
            if guard { PrimExpr::select(inside, value, neutral) } else { value }
        });
        if guard {
            let padding = self.axes.iter().map(|axis| axis.before).collect();
            let (strides, dilation) = (self.strides(), self.dilation());
            cx.dag.set_anchor(stage, Anchor::Window { data: x, taps, strides, padding, dilation });
        }
        stage
    }
}

impl AxisWindow {
    /// Taps of the window of an output index that lie in `low..high`.
    fn taps_within(self, index: &PrimExpr, low: i64, high: i64) -> PrimExpr {
        let start = index.clone() * self.stride - self.before;
        let step = self.dilation.max(1);
        let ceil = |distance: PrimExpr| (distance + (step - 1)).floordiv(step);
        let first = ceil(PrimExpr::index(low) - start.clone()).max(0);
        let end = ceil(PrimExpr::index(high) - start).min(self.taps);
        (end - first).max(0)
    }
}

/// How many elements along an axis count in a window.
enum Count {
    /// As many in each.
    Taps(i64),
    /// An entry for each.
    Table(StageId),
}

fn compute_max(cx: &mut Compute<'_>) -> Stages {
    let attrs: MaxPoolAttrs = cx.attrs()?;
    let (x, (shape, dtype)) = (cx.arg(0)?, cx.result());
    Ok(vec![attrs.window()?.reduce(cx, x, &shape, attrs.ceil_mode, (BinaryOp::Max, dtype))])
}

fn compute_avg(cx: &mut Compute<'_>) -> Stages {
    let attrs: AvgPoolAttrs = cx.attrs()?;
    let window = attrs.window()?;
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    let wide = dtype.accumulator();
    let sum = window.reduce(cx, x, &shape, attrs.ceil_mode, (BinaryOp::Add, wide));
    let overhangs = window.overhangs(cx, [cx.dag.shape(x), &shape], attrs.ceil_mode);
    let input = cx.dag.shape(x)[2..].to_vec();
    let op = cx.op.name;
    let counts: Vec<Count> = (window.axes.iter().zip(overhangs).zip(&input).zip(&shape[2..]))
        .map(|(((axis, overhangs), &extent), &windows)| {
            if !overhangs {
                return Count::Taps(axis.taps);
            }
            // What ceil mode has beyond the padding never counts.
            let (before, after) =
                if attrs.count_include_pad { (axis.before, axis.after) } else { (0, 0) };
            let table = cx.dag.compute(op, &[windows], wide, |_, index| {
                let taps = axis.taps_within(&index[0], -before, extent.saturating_add(after));
                taps.max(1).cast(wide)
            });
            cx.dag.set_stored(table);
            Count::Table(table)
        })
        .collect();
    cx.element(|dag, index| {
        let mut taps = 1.0;
        let mut tables = Vec::new();
        for (count, at) in counts.iter().zip(&index[2..]) {
            match *count {
                Count::Taps(count) => taps *= count as f64,
                Count::Table(table) => tables.push(dag.at(table, std::slice::from_ref(at))),
            }
        }
        let taps = PrimExpr::float(taps, wide);
        let count = tables.into_iter().fold(taps, |count, table| count * table);
        (dag.at(sum, index) / count).cast(dtype)
    })
}
