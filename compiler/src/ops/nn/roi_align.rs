//! `vision.roi_align`: regions of images, each as an image of one size (ONNX `RoiAlign`).

use serde::{Deserialize, Serialize};

use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, BufferSpec, DType, Dim, Type};
use crate::ops::compute::{Compute, Stages, extent_of};
use crate::ops::eval::{EvalCx, ints};
use crate::ops::relation::{DTypes, at_least};
use crate::ops::{EvalError, InferCx, Input, OpDef};
use crate::te::{ComputeDag, StageId, identity};
use crate::tir::{BinaryOp, BufferId, BufferScope, ForKind, Intrinsic, PrimExpr, Stmt, VarId};

/// What an element of a region is, of the samples within it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoiAlignMode {
    /// Their mean.
    Avg,
    /// The greatest of the weighted neighbours of all of them.
    Max,
}

/// Attributes of `vision.roi_align`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoiAlignAttrs {
    /// Height and width of the result.
    pub pooled_size: [i64; 2],
    /// Places of the image for each unit of the regions.
    pub spatial_scale: f64,
    /// Samples of an element of the result along each axis. If 0, as many as it covers elements of
    /// the image, at most as many as one of a region twice as large as the image.
    pub sample_ratio: i64,
    /// Whether places are the middles of elements, ONNX `half_pixel`. Else a region has at least the
    /// size of an element.
    pub aligned: bool,
    /// What an element is of its samples.
    pub mode: RoiAlignMode,
}

/// Most samples of an element along an axis that may be asked for: they have a place in memory.
const MOST_SAMPLES: i64 = 4096;

impl RoiAlignAttrs {
    /// Most samples along an axis.
    fn most_samples(&self, axis: usize, extent: i64) -> i64 {
        match self.sample_ratio {
            0 => extent.saturating_mul(2) / self.pooled_size[axis] + 2,
            samples => samples,
        }
    }
}

/// Regions `(left, top, right, bottom)` of the images `(N, C, H, W)` that `batch_indices` names, as
/// images of the size `pooled_size`.
pub static ROI_ALIGN: OpDef = OpDef::new(
    "vision.roi_align",
    "regions of images as images of one size",
    &[Input::required("x"), Input::required("rois"), Input::required("batch_indices")],
    infer,
    eval,
    compute,
)
.attributes::<RoiAlignAttrs>()
.defaults(|| {
    Attrs::new()
        .with("spatial_scale", 1.0)
        .with("sample_ratio", 0)
        .with("aligned", true)
        .with("mode", "avg")
});

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: RoiAlignAttrs = cx.attrs()?;
    let x = cx.tensor_of_rank(0, DTypes::Float, 4, "(N, C, H, W)")?;
    let rois = cx.tensor_of_rank(1, DTypes::Float, 2, "(regions, 4)")?;
    let batch = cx.tensor_of_rank(2, DTypes::Int, 1, "(regions)")?;
    for extent in attrs.pooled_size {
        at_least("pooled_size", extent, 1)?;
    }
    at_least("sample_ratio", attrs.sample_ratio, 0)?;
    ensure!(
        attrs.sample_ratio <= MOST_SAMPLES,
        "attribute `sample_ratio` {} is more than {MOST_SAMPLES}",
        attrs.sample_ratio
    );
    ensure!(
        attrs.spatial_scale.is_finite(),
        "attribute `spatial_scale` {} must be finite",
        attrs.spatial_scale
    );
    ensure!(
        rois.shape[1].as_const() == Some(4) && cx.same(&rois.shape[0], &batch.shape[0]),
        "inputs `rois` and `batch_indices` must have 4 numbers and one index for each region, but \
         they are {rois} and {batch}"
    );
    ensure!(
        x.shape.iter().all(|extent| extent.as_const() != Some(0)),
        "input `x`, which is {x}, has no elements"
    );
    let [height, width] = attrs.pooled_size.map(Dim::from);
    cx.result([rois.shape[0].clone(), x.shape[1].clone(), height, width], x.dtype)
}

/// Where a region begins along an axis, how long an element of the result is, and its samples.
fn span(attrs: &RoiAlignAttrs, axis: usize, ends: [f64; 2], extent: i64) -> (f64, f64, i64) {
    let offset = if attrs.aligned { 0.5 } else { 0.0 };
    let [start, end] = ends.map(|end| end * attrs.spatial_scale - offset);
    let length = if attrs.aligned { end - start } else { (end - start).max(1.0) };
    let bin = length / attrs.pooled_size[axis] as f64;
    let samples = match attrs.sample_ratio {
        0 => (bin.ceil() as i64).clamp(0, attrs.most_samples(axis, extent)),
        samples => samples,
    };
    (start, bin, samples)
}

/// The two neighbours of a sample with their weights; none if it is outside of the image.
fn neighbours(at: f64, extent: i64) -> Option<[(usize, f64); 2]> {
    if !(-1.0..=extent as f64).contains(&at) {
        return None;
    }
    let at = at.max(0.0);
    let low = (at as i64).min(extent - 1);
    let part = if low == extent - 1 { 0.0 } else { at - low as f64 };
    Some([(low as usize, 1.0 - part), ((low + 1).min(extent - 1) as usize, part)])
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: RoiAlignAttrs = cx.attrs()?;
    let (values, rois) = (cx.floats(0)?, cx.floats(1)?);
    let (&[images, channels, height, width], &[.., rows, columns]) =
        (cx.arg(0)?.shape(), cx.shape())
    else {
        return Err(EvalError::new("input `x` must have 4 dimensions"));
    };
    let mut result = Vec::with_capacity(cx.len());
    for (roi, &image) in rois.chunks_exact(4).zip(ints(cx.arg(2)?)?) {
        let image =
            usize::try_from(image).ok().filter(|&image| image < images).ok_or_else(|| {
                EvalError::new(format!(
                    "index {image} in `batch_indices` is not one of {images} images"
                ))
            })?;
        let down = span(&attrs, 0, [roi[1], roi[3]], height as i64);
        let across = span(&attrs, 1, [roi[0], roi[2]], width as i64);
        let place = |(start, bin, samples): (f64, f64, i64), index: usize, sample: i64| {
            start + index as f64 * bin + (sample as f64 + 0.5) * bin / samples as f64
        };
        for channel in 0..channels {
            let plane = &values[(image * channels + channel) * height * width..][..height * width];
            for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |c| (row, c))) {
                let (mut sum, mut greatest) = (0.0, f64::NEG_INFINITY);
                for (i, j) in (0..down.2).flat_map(|i| (0..across.2).map(move |j| (i, j))) {
                    let y = neighbours(place(down, row, i), height as i64);
                    let x = neighbours(place(across, column, j), width as i64);
                    let (Some(y), Some(x)) = (y, x) else {
                        greatest = f64::max(greatest, 0.0);
                        continue;
                    };
                    for ((y, down), (x, across)) in y.into_iter().flat_map(|y| x.map(|x| (y, x))) {
                        let share = down * across * plane[y * width + x];
                        sum += share;
                        greatest = greatest.max(share);
                    }
                }
                let count = down.2 * across.2;
                result.push(match attrs.mode {
                    RoiAlignMode::Avg => sum / count.max(1) as f64,
                    RoiAlignMode::Max if count == 0 => 0.0,
                    RoiAlignMode::Max => greatest,
                });
            }
        }
    }
    cx.result(Elements::Float(result))
}

/// The samples along one axis of a region: how many an element of the result has, and where they are read.
struct Samples {
    count: PrimExpr,
    /// Places in the tables for each element of the result.
    most: i64,
    /// The two neighbours of each sample.
    places: [BufferId; 2],
    /// The weight of the second neighbour; less than zero for a sample outside of the image.
    part: BufferId,
    /// Names of what the tables are made of.
    lets: Vec<(VarId, PrimExpr)>,
    /// Makes the tables.
    fill: Stmt,
}

impl Samples {
    fn new(
        dag: &mut ComputeDag,
        attrs: &RoiAlignAttrs,
        (rois, region): (StageId, &PrimExpr),
        number: usize,
        (extent, most): (PrimExpr, i64),
    ) -> Samples {
        let dtype = dag.dtype(rois).accumulator();
        let float = |value: f64| PrimExpr::float(value, dtype);
        let mut lets = Vec::new();
        let mut name = |dag: &mut ComputeDag, name: &str, value: PrimExpr| {
            let var = dag.func.var(name, value.ty());
            lets.push((var, value));
            dag.func.var_expr(var)
        };
        let offset = if attrs.aligned { 0.5 } else { 0.0 };
        let end = |dag: &ComputeDag, which: i64| {
            let number = dag.at(rois, &[region.clone(), PrimExpr::index(which)]).cast(dtype);
            number * float(attrs.spatial_scale) - float(offset)
        };
        let (first, last) = if number == 0 { (1, 3) } else { (0, 2) };
        let start = end(dag, first);
        let start = name(dag, "start", start);
        let length = end(dag, last) - start.clone();
        let length = if attrs.aligned { length } else { float(1.0).max(length) };
        let size = attrs.pooled_size[number];
        let bin = name(dag, "bin", length / float(size as f64));
        let samples = match attrs.sample_ratio {
            0 => {
                let covered = PrimExpr::call(Intrinsic::Ceil, bin.clone());
                name(dag, "samples", covered.max(float(0.0)).min(float(most as f64)))
            }
            samples => float(samples as f64),
        };
        let count = name(dag, "count", samples.clone().cast(DType::I64));

        let spec = BufferSpec::dense(&[size.saturating_mul(most)]);
        let table = |dag: &mut ComputeDag, name: &str, dtype| {
            dag.func.buffer(name, dtype, spec.clone(), BufferScope::Local)
        };
        let places = [table(dag, "low", DType::I64), table(dag, "high", DType::I64)];
        let part = table(dag, "part", dtype);
        let [element, sample] = ["element", "sample"].map(|name| dag.func.index_var(name));
        let [at, of] = [element, sample].map(|var| dag.func.var_expr(var));
        let row = at.clone() * most + of.clone();
        let at =
            start + at.cast(dtype) * bin.clone() + (of.cast(dtype) + float(0.5)) * bin / samples;
        let fill = dag.func.let_stmt("at", at, |func, at| {
            let whole = extent.clone().cast(dtype);
            let last = whole.clone() - float(1.0);
            let inside = at.clone().greater_equal(float(-1.0)).and(at.clone().less_equal(whole));
            let at = at.max(float(0.0)).min(last.clone());
            let low = PrimExpr::call(Intrinsic::Floor, at.clone());
            let high = (low.clone() + float(1.0)).min(last);
            let weight = PrimExpr::select(inside, at - low.clone(), float(-1.0));
            let place =
                |at: PrimExpr| PrimExpr::index(0).max(at.cast(DType::I64)).min(extent.clone() - 1);
            Stmt::seq([
                func.store(places[0], [row.clone()], place(low)),
                func.store(places[1], [row.clone()], place(high)),
                func.store(part, [row], weight),
            ])
        });
        let fill = in_loop(sample, count.clone(), fill);
        let fill = in_loop(element, size.into(), fill);
        Samples { count, most, places, part, lets, fill }
    }

    /// The tables and names around what reads them.
    fn around(self, body: Stmt) -> Stmt {
        let body = Stmt::seq([self.fill, body]);
        let tables = self.places.into_iter().chain([self.part]);
        let body = tables.fold(body, |body, table| Stmt::allocate(table, body));
        self.lets.into_iter().rev().fold(body, |body, (var, value)| Stmt::let_(var, value, body))
    }

    /// The weight of the second neighbour, and the two places, of a sample of an element.
    fn at(
        &self,
        dag: &ComputeDag,
        element: &PrimExpr,
        sample: &PrimExpr,
    ) -> (PrimExpr, [PrimExpr; 2]) {
        let row = element.clone() * self.most + sample.clone();
        let load = |table| dag.func.load(table, [row.clone()]);
        (load(self.part), self.places.map(load))
    }
}

fn in_loop(var: VarId, extent: PrimExpr, body: Stmt) -> Stmt {
    Stmt::for_loop(var, PrimExpr::index(0), extent, ForKind::Serial, body)
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: RoiAlignAttrs = cx.attrs()?;
    let (x, rois, batch) = (cx.arg(0)?, cx.arg(1)?, cx.arg(2)?);
    let (shape, dtype) = cx.result();
    let input = cx.dag.shape(x).to_vec();
    let extent = |axis: usize| extent_of(input[axis], cx.open_args[0].contains(&axis));
    let (images, extents) = (extent(0), [extent(2), extent(3)]);
    let (op, wide) = (cx.op.name, dtype.accumulator());
    let neutral = match attrs.mode {
        RoiAlignMode::Avg => PrimExpr::zero(wide),
        RoiAlignMode::Max => identity(BinaryOp::Max, wide),
    };
    // Where samples are read is the same for all channels of a region.
    let all = cx.dag.statement(op, &shape, wide, &[x, rois, batch], |dag, result| {
        let vars = ["region", "c", "y", "x"].map(|name| dag.func.index_var(name));
        let index = vars.map(|var| dag.func.var_expr(var));
        let [region, channel, ..] = &index;
        let axes = [0, 1].map(|axis| {
            let most = attrs.most_samples(axis, input[axis + 2]);
            let along = (extents[axis].clone(), most);
            Samples::new(dag, &attrs, (rois, region), axis, along)
        });
        let so_far = dag.func.buffer("so_far", wide, BufferSpec::dense(&[1]), BufferScope::Local);
        let put = |dag: &ComputeDag, value| dag.func.store(so_far, [0], value);
        let before = dag.func.load(so_far, [0]);

        let image = dag.at(batch, std::slice::from_ref(region)).cast(DType::I64);
        let image = PrimExpr::index(0).max(image).min(images.clone() - 1);
        let samples = ["sy", "sx"].map(|name| dag.func.index_var(name));
        let [(down, rows), (across, columns)] = [0, 1].map(|axis| {
            let sample = dag.func.var_expr(samples[axis]);
            axes[axis].at(dag, &index[axis + 2], &sample)
        });
        let one = PrimExpr::float(1.0, down.dtype());
        let weights = |part: &PrimExpr| [one.clone() - part.clone(), part.clone()];
        let shares = weights(&down).into_iter().zip(&rows).flat_map(|(down, y)| {
            let columns = weights(&across).into_iter().zip(&columns);
            columns.map(move |(across, x)| ((down.clone() * across).cast(wide), y, x))
        });
        let shares = shares.map(|(weight, y, x_)| {
            let place = [image.clone(), channel.clone(), y.clone(), x_.clone()];
            weight * dag.at(x, &place).cast(wide)
        });
        let combined = |a: PrimExpr, b: PrimExpr| match attrs.mode {
            RoiAlignMode::Avg => a + b,
            RoiAlignMode::Max => a.max(b),
        };
        let value = shares.reduce(combined).unwrap_or(PrimExpr::zero(wide));
        let is_in = |part: PrimExpr| part.clone().greater_equal(PrimExpr::zero(part.ty()));
        let inside = is_in(down).and(is_in(across));
        let taken = put(dag, combined(before.clone(), value));
        let step = match attrs.mode {
            RoiAlignMode::Avg => Stmt::if_then(inside, taken),
            // A sample outside of the image is zero.
            RoiAlignMode::Max => {
                let zero = put(dag, before.clone().max(PrimExpr::zero(wide)));
                Stmt::if_then_else(inside, taken, zero)
            }
        };
        let counts = [0, 1].map(|axis: usize| axes[axis].count.clone());
        let step =
            in_loop(samples[0], counts[0].clone(), in_loop(samples[1], counts[1].clone(), step));
        let [rows, columns] = counts;
        let count = (rows * columns).cast(wide);
        let value = match attrs.mode {
            RoiAlignMode::Avg => before / PrimExpr::float(1.0, wide).max(count),
            RoiAlignMode::Max => {
                let zero = PrimExpr::zero(wide);
                PrimExpr::select(count.greater(zero.clone()), before, zero)
            }
        };
        let element =
            [put(dag, neutral.clone()), step, dag.func.store(result, index.clone(), value)];
        let element = Stmt::allocate(so_far, Stmt::seq(element));
        let [region_var, inner @ ..] = vars;
        let loops = inner.into_iter().zip(&shape[1..]).rev();
        let elements =
            loops.fold(element, |body, (var, &extent)| in_loop(var, extent.into(), body));
        let [down, across] = axes;
        in_loop(region_var, shape[0].into(), down.around(across.around(elements)))
    });
    if wide == dtype {
        return Ok(vec![all]);
    }
    cx.element(|dag, index| dag.at(all, index).cast(dtype))
}
