//! `vision.roi_align`: regions of images, each as an image of one size (ONNX `RoiAlign`).

use serde::{Deserialize, Serialize};

use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, DType, Dim, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::{EvalCx, ints};
use crate::ops::relation::{DTypes, at_least};
use crate::ops::{EvalError, InferCx, Input, OpDef};
use crate::te::{ComputeDag, StageId, identity};
use crate::tir::{BinaryOp, Intrinsic, PrimExpr};

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

/// One axis of the regions: stages with a number for each.
struct Axis {
    extent: i64,
    start: StageId,
    bin: StageId,
    /// Samples, as floats.
    samples: StageId,
    dtype: DType,
}

impl Axis {
    fn new(
        dag: &mut ComputeDag,
        op: &str,
        attrs: &RoiAlignAttrs,
        rois: StageId,
        number: usize,
        extent: i64,
    ) -> Axis {
        let dtype = dag.dtype(rois).accumulator();
        let float = |value: f64| PrimExpr::float(value, dtype);
        let offset = if attrs.aligned { 0.5 } else { 0.0 };
        let end = |dag: &ComputeDag, region: &PrimExpr, which: i64| {
            let number = dag.at(rois, &[region.clone(), PrimExpr::index(which)]).cast(dtype);
            number * float(attrs.spatial_scale) - float(offset)
        };
        let (first, last) = if number == 0 { (1, 3) } else { (0, 2) };
        let regions = [dag.shape(rois)[0]];
        let mut stage = |body: &dyn Fn(&ComputeDag, &PrimExpr) -> PrimExpr| {
            let stage = dag.compute(op, &regions, dtype, |dag, index| body(dag, &index[0]));
            dag.set_stored(stage);
            stage
        };
        let start = stage(&|dag, region| end(dag, region, first));
        let bin = stage(&|dag, region| {
            let length = end(dag, region, last) - end(dag, region, first);
            let length = if attrs.aligned { length } else { float(1.0).max(length) };
            length / float(attrs.pooled_size[number] as f64)
        });
        let most = attrs.most_samples(number, extent) as f64;
        let samples = stage(&|dag, region| match attrs.sample_ratio {
            0 => {
                let covered =
                    PrimExpr::call(Intrinsic::Ceil, dag.at(bin, std::slice::from_ref(region)));
                covered.max(float(0.0)).min(float(most))
            }
            samples => float(samples as f64),
        });
        Axis { extent, start, bin, samples, dtype }
    }

    /// Where a sample is, whether it is within the image, and its neighbours with their weights.
    fn sample(
        &self,
        dag: &ComputeDag,
        region: &PrimExpr,
        index: &PrimExpr,
        sample: &PrimExpr,
    ) -> (PrimExpr, [(PrimExpr, PrimExpr); 2]) {
        let float = |value: f64| PrimExpr::float(value, self.dtype);
        let of = |stage: StageId| dag.at(stage, std::slice::from_ref(region));
        let bin = of(self.bin);
        let at = of(self.start)
            + index.clone().cast(self.dtype) * bin.clone()
            + (sample.clone().cast(self.dtype) + float(0.5)) * bin / of(self.samples);
        let counts = sample.clone().cast(self.dtype).less(of(self.samples));
        let inside = at.clone().greater_equal(float(-1.0));
        let inside = inside.and(at.clone().less_equal(float(self.extent as f64))).and(counts);
        let last = float(self.extent as f64 - 1.0);
        let at = at.max(float(0.0)).min(last.clone());
        let low = PrimExpr::call(Intrinsic::Floor, at.clone());
        let part = at - low.clone();
        let high = (low.clone() + float(1.0)).min(last);
        let place = |at: PrimExpr| PrimExpr::index(0).max(at.cast(DType::I64)).min(self.extent - 1);
        (inside, [(place(low), float(1.0) - part.clone()), (place(high), part)])
    }
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: RoiAlignAttrs = cx.attrs()?;
    let (x, rois, batch) = (cx.arg(0)?, cx.arg(1)?, cx.arg(2)?);
    let (shape, dtype) = cx.result();
    let input = cx.dag.shape(x).to_vec();
    let op = cx.op.name;
    let axes = [0, 1].map(|axis| Axis::new(cx.dag, op, &attrs, rois, axis, input[axis + 2]));
    let over = [0, 1].map(|axis| attrs.most_samples(axis, input[axis + 2]));
    let wide = dtype.accumulator();
    let (combiner, neutral) = match attrs.mode {
        RoiAlignMode::Avg => (BinaryOp::Add, PrimExpr::zero(wide)),
        RoiAlignMode::Max => (BinaryOp::Max, identity(BinaryOp::Max, wide)),
    };
    let reduced = cx.dag.reduce(op, &shape, wide, combiner, &over, |dag, index, by| {
        let region = &index[0];
        let [(in_rows, rows), (in_columns, columns)] =
            [0, 1].map(|axis| axes[axis].sample(dag, region, &index[axis + 2], &by[axis]));
        let image = dag.at(batch, std::slice::from_ref(region)).cast(DType::I64);
        let image = PrimExpr::index(0).max(image).min(input[0] - 1);
        let shares = rows.iter().flat_map(|row| columns.iter().map(move |column| (row, column)));
        let shares = shares.map(|((y, down), (x_, across))| {
            let weight = (down.clone() * across.clone()).cast(wide);
            weight * dag.at(x, &[image.clone(), index[1].clone(), y.clone(), x_.clone()]).cast(wide)
        });
        let combined = shares.reduce(|a, b| match attrs.mode {
            RoiAlignMode::Avg => a + b,
            RoiAlignMode::Max => a.max(b),
        });
        let combined = combined.unwrap_or(PrimExpr::zero(wide));
        let inside = in_rows.and(in_columns);
        match attrs.mode {
            RoiAlignMode::Avg => PrimExpr::select(inside, combined, PrimExpr::zero(wide)),
            RoiAlignMode::Max => {
                // A sample outside of the image is zero; one that is not taken is none.
                let counts = [0, 1].map(|axis: usize| {
                    let samples = dag.at(axes[axis].samples, std::slice::from_ref(region));
                    by[axis].clone().cast(axes[axis].dtype).less(samples)
                });
                let [down, across] = counts;
                let value = PrimExpr::select(inside, combined, PrimExpr::zero(wide));
                PrimExpr::select(down.and(across), value, neutral)
            }
        }
    });
    cx.element(|dag, index| {
        let count = |axis: &Axis| dag.at(axis.samples, std::slice::from_ref(&index[0]));
        let count = (count(&axes[0]) * count(&axes[1])).cast(wide);
        let value = dag.at(reduced, index);
        match attrs.mode {
            RoiAlignMode::Avg => (value / PrimExpr::float(1.0, wide).max(count)).cast(dtype),
            RoiAlignMode::Max => {
                let zero = PrimExpr::zero(wide);
                PrimExpr::select(count.greater(zero.clone()), value, zero).cast(dtype)
            }
        }
    })
}
