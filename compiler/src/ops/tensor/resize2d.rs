//! `image.resize2d`: images of another size (ONNX `Resize` over the two innermost axes).

mod axis;

use serde::{Deserialize, Serialize};

use self::axis::Axis;
use super::X;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::DType;
use crate::ir::{Attrs, Dim, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::EvalCx;
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, OpDef, OpPattern};
use crate::tir::PrimExpr;

/// How an element between the places of the argument is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResizeMethod {
    /// The nearest element.
    NearestNeighbor,
    /// Linear interpolation between the two neighbours along each axis.
    Linear,
    /// Cubic convolution of the four neighbours along each axis.
    Cubic,
}

/// Where in the argument a place of the result is: ONNX `coordinate_transformation_mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoordinateTransformation {
    /// `(i + 0.5) / scale - 0.5`.
    HalfPixel,
    /// As `half_pixel`, but zero if the result's extent is one.
    PytorchHalfPixel,
    /// `i · (extent - 1) / (extent · scale - 1)`.
    AlignCorners,
    /// `i / scale`.
    Asymmetric,
    /// As `half_pixel`, about the middle of the argument: what a size that was rounded leaves out is
    /// left out on both sides.
    HalfPixelSymmetric,
    /// `(i + 0.5) / scale`, as TensorFlow finds the nearest.
    TfHalfPixelForNn,
    /// Between the ends of the region `roi`, which are fractions of the last index.
    TfCropAndResize,
}

/// Which of two neighbours is the nearest: ONNX `nearest_mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NearestRounding {
    /// The nearer; in the middle the lower one.
    RoundPreferFloor,
    /// The nearer; in the middle the upper one.
    RoundPreferCeil,
    /// The lower one.
    Floor,
    /// The upper one.
    Ceil,
}

/// Attributes of `image.resize2d`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resize2dAttrs {
    /// Height and width of the result.
    pub size: [Dim; 2],
    /// Factors of height and width by which places are computed; the quotient of the sizes if they
    /// are left out. They matter where the size was rounded.
    pub scale: Option<[f64; 2]>,
    /// The interpolation.
    pub method: ResizeMethod,
    /// Where a place of the result is in the argument.
    pub coordinate_transformation_mode: CoordinateTransformation,
    /// Which neighbour is the nearest; of `nearest_neighbor` alone.
    pub rounding_method: NearestRounding,
    /// The coefficient of cubic convolution, ONNX `cubic_coeff_a`; of `cubic` alone.
    pub cubic_alpha: f64,
    /// Whether neighbours outside of the image have no weight, instead of being its border; of
    /// `linear` and `cubic`.
    pub cubic_exclude: bool,
    /// Whether a filter reaches as far as the image is made smaller, so that every element counts; of
    /// `linear` and `cubic`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub antialias: bool,
    /// Top, left, bottom and right of the region that becomes the result, as fractions of the last
    /// row and column; of `tf_crop_and_resize` alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roi: Option<[f64; 4]>,
    /// What is outside of the image, where the region reaches beyond it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub extrapolation_value: f64,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Most neighbours of a place that a filter against aliasing has along an axis.
const MAX_TAPS: f64 = 65536.0;

/// Most weights of such a filter along an axis.
const MAX_TABLE: f64 = 67_108_864.0;

/// A filter against aliasing: the neighbours from `first` on, by the distance from the place below.
#[derive(Clone, Copy)]
struct Filter {
    /// By how much distances shrink: at most 1.
    scale: f64,
    first: i64,
    taps: i64,
}

impl Resize2dAttrs {
    /// The places along one axis that each place of the result reads, with their weights.
    /// A place outside of the image, in a region that reaches beyond it, reads none.
    pub(crate) fn taps(&self, axis: usize, extent: usize, size: usize) -> Vec<Vec<(usize, f64)>> {
        let scale = self.scale.map_or(size as f64 / extent as f64, |scale| scale[axis]);
        let last = extent as i64 - 1;
        let clamp = |place: i64| place.clamp(0, last) as usize;
        let filter = self.filter(scale);
        (0..size)
            .map(|index| {
                let at = self.coordinate(axis, index as f64, scale, extent as f64, size as f64);
                if self.crops() && !(0.0..=last as f64).contains(&at) {
                    return Vec::new();
                }
                let floor = at.floor();
                let (low, part) = (floor as i64, at - floor);
                if let Some(filter) = filter {
                    let weights = (filter.first..filter.first + filter.taps)
                        .map(|step| self.filtered((step as f64 - part) * filter.scale));
                    return self.weighted_taps(
                        low.saturating_add(filter.first),
                        weights,
                        last,
                        true,
                    );
                }
                match self.method {
                    ResizeMethod::NearestNeighbor => {
                        let nearest = match self.rounding_method {
                            NearestRounding::RoundPreferFloor => (at - 0.5).ceil(),
                            NearestRounding::RoundPreferCeil => (at + 0.5).floor(),
                            NearestRounding::Floor => floor,
                            NearestRounding::Ceil => at.ceil(),
                        };
                        vec![(clamp(nearest as i64), 1.0)]
                    }
                    ResizeMethod::Linear => {
                        self.weighted_taps(low, [1.0 - part, part].into_iter(), last, false)
                    }
                    ResizeMethod::Cubic => {
                        let weights = (-1..3).map(|step| self.filtered(f64::from(step) - part));
                        self.weighted_taps(low.saturating_sub(1), weights, last, false)
                    }
                }
            })
            .collect()
    }

    /// Whether a region becomes the result, which may reach beyond the image.
    fn crops(&self) -> bool {
        self.coordinate_transformation_mode == CoordinateTransformation::TfCropAndResize
    }

    /// The filter against aliasing along an axis, if there is one.
    fn filter(&self, scale: f64) -> Option<Filter> {
        let reach = match self.method {
            ResizeMethod::NearestNeighbor => return None,
            ResizeMethod::Linear => 1.0,
            ResizeMethod::Cubic => 2.0,
        };
        if !self.antialias || scale >= 1.0 {
            return None;
        }
        let first = (-reach / scale).floor() as i64 + 1;
        Some(Filter { scale, first, taps: 2 - 2 * first })
    }

    /// The weight of an element at that distance.
    fn filtered(&self, distance: f64) -> f64 {
        let t = distance.abs();
        let a = self.cubic_alpha;
        match self.method {
            ResizeMethod::NearestNeighbor | ResizeMethod::Linear => (1.0 - t).max(0.0),
            ResizeMethod::Cubic if t <= 1.0 => ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0,
            ResizeMethod::Cubic if t < 2.0 => ((a * t - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a,
            ResizeMethod::Cubic => 0.0,
        }
    }

    /// Neighbours from a place on, with their weights.
    fn weighted_taps(
        &self,
        first: i64,
        weights: impl Iterator<Item = f64>,
        last: i64,
        is_filter: bool,
    ) -> Vec<(usize, f64)> {
        let mut taps: Vec<(usize, f64)> = (0..)
            .zip(weights)
            .map(|(step, weight)| {
                let place = first.saturating_add(step);
                let outside = self.cubic_exclude && !(0..=last).contains(&place);
                (place.clamp(0, last) as usize, if outside { 0.0 } else { weight })
            })
            .collect();
        if self.cubic_exclude || is_filter {
            let total: f64 = taps.iter().map(|(_, weight)| weight).sum();
            taps.iter_mut().for_each(|(_, weight)| *weight /= total);
        }
        taps
    }

    fn coordinate(&self, axis: usize, index: f64, scale: f64, extent: f64, size: f64) -> f64 {
        let scaled = self.scaled(axis, extent, size);
        match self.coordinate_transformation_mode {
            CoordinateTransformation::PytorchHalfPixel if size <= 1.0 => 0.0,
            CoordinateTransformation::HalfPixel | CoordinateTransformation::PytorchHalfPixel => {
                (index + 0.5) / scale - 0.5
            }
            CoordinateTransformation::AlignCorners if scaled <= 1.0 => 0.0,
            CoordinateTransformation::AlignCorners => index * (extent - 1.0) / (scaled - 1.0),
            CoordinateTransformation::Asymmetric => index / scale,
            CoordinateTransformation::HalfPixelSymmetric => {
                let left_out = extent / 2.0 * (1.0 - size / scaled);
                left_out + (index + 0.5) / scale - 0.5
            }
            CoordinateTransformation::TfHalfPixelForNn => (index + 0.5) / scale,
            CoordinateTransformation::TfCropAndResize => {
                let [start, end] = self.region(axis);
                if size > 1.0 {
                    start * (extent - 1.0) + index * (end - start) * (extent - 1.0) / (size - 1.0)
                } else {
                    0.5 * (start + end) * (extent - 1.0)
                }
            }
        }
    }

    /// The size of the result as ONNX computes with it: with a scale, before it is rounded.
    fn scaled(&self, axis: usize, extent: f64, size: f64) -> f64 {
        self.scale.map_or(size, |scale| extent * scale[axis])
    }

    /// The ends of the region along an axis.
    fn region(&self, axis: usize) -> [f64; 2] {
        self.roi.map_or([0.0, 1.0], |roi| [roi[axis], roi[axis + 2]])
    }
}

/// A positive factor as a numerator and a denominator, if it is a fraction with a small one.
pub(crate) fn fraction(factor: f64) -> Option<(i64, i64)> {
    (0..16).map(|power| 1i64 << power).find_map(|denominator| {
        let numerator = factor * denominator as f64;
        let is_whole = numerator.fract() == 0.0 && numerator <= f64::from(u32::MAX);
        is_whole.then_some((numerator as i64, denominator))
    })
}

/// Images `(N, C, H, W)` of another height and width.
pub static RESIZE2D: OpDef =
    OpDef::new("image.resize2d", "images of another size", X, infer, eval, compute)
        .attributes::<Resize2dAttrs>()
        .defaults(|| {
            Attrs::new()
                .with("method", "linear")
                .with("coordinate_transformation_mode", "half_pixel")
                .with("rounding_method", "round_prefer_floor")
                .with("cubic_alpha", -0.75)
                .with("cubic_exclude", false)
        })
        .pattern(OpPattern::Injective);

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: Resize2dAttrs = cx.attrs()?;
    let x = cx.tensor_of_rank(0, DTypes::Numeric, 4, "(N, C, H, W)")?;
    ensure!(
        attrs.method == ResizeMethod::NearestNeighbor || x.dtype.is_float(),
        "input `x` is {x}; only floats can be interpolated, so cast it first"
    );
    if let Some(scale) = attrs.scale {
        ensure!(
            scale.iter().all(|s| s.is_finite() && *s > 0.0),
            "attribute `scale` {scale:?} must be positive and finite"
        );
    }
    ensure!(
        attrs.roi.is_none_or(|roi| roi.iter().all(|end| end.is_finite())),
        "attribute `roi` {:?} must be finite",
        attrs.roi
    );
    ensure!(
        attrs.crops() == attrs.roi.is_some(),
        "attribute `roi` is for `tf_crop_and_resize`, and must be given there"
    );
    for (axis, size) in attrs.size.iter().enumerate() {
        let extent = x.shape[axis + 2].as_const();
        let scale = match (attrs.scale, size.as_const(), extent) {
            (Some(scale), ..) => scale[axis],
            (None, Some(size), Some(extent)) if size > 0 => size as f64 / extent as f64,
            _ => continue,
        };
        let taps = size.as_const().unwrap_or(1).max(1) as f64 * 4.0 / scale;
        ensure!(
            !attrs.antialias || scale >= 1.0 || (scale * MAX_TAPS >= 4.0 && taps <= MAX_TABLE),
            "dimension {} of input `x`, which is {x}, shrinks by a factor of {scale} to {size}, for \
             which no filter against aliasing is supported",
            axis + 2
        );
    }
    for (axis, size) in [2, 3].into_iter().zip(&attrs.size) {
        ensure!(
            x.shape[axis].as_const() != Some(0) || size.as_const() == Some(0),
            "input `x`, which is {x}, has no elements to make an image of"
        );
    }
    let [height, width] = attrs.size;
    cx.result([x.shape[0].clone(), x.shape[1].clone(), height, width], x.dtype)
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: Resize2dAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let (&[_, _, height, width], &[n, c, out_height, out_width]) = (x.shape(), cx.shape()) else {
        return Err(EvalError::new("input `x` must have 4 dimensions"));
    };
    if cx.len() == 0 {
        return cx.result(Elements::Int(Vec::new()));
    }
    let rows = attrs.taps(0, height, out_height);
    let columns = attrs.taps(1, width, out_width);
    let places = (0..n * c).flat_map(|plane| {
        let (rows, columns) = (&rows, &columns);
        rows.iter().flat_map(move |row| columns.iter().map(move |column| (plane, row, column)))
    });
    cx.result(match x.elements() {
        Elements::Float(values) => Elements::Float(
            places
                .map(|(plane, row, column)| {
                    if row.is_empty() || column.is_empty() {
                        return attrs.extrapolation_value;
                    }
                    let mut sum = 0.0;
                    for &(y, row_weight) in row {
                        for &(x, weight) in column {
                            let value = values[(plane * height + y) * width + x];
                            // A neighbour without weight does not count, not even as a NaN.
                            if row_weight * weight != 0.0 {
                                sum += row_weight * weight * value;
                            }
                        }
                    }
                    sum
                })
                .collect(),
        ),
        Elements::Int(values) => Elements::Int(
            places
                .map(|(plane, row, column)| match (row.first(), column.first()) {
                    (Some(row), Some(column)) => {
                        values[(plane * height + row.0) * width + column.0]
                    }
                    _ => attrs.extrapolation_value as i128,
                })
                .collect(),
        ),
    })
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: Resize2dAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let (shape, dtype) = cx.result();
    let input = cx.dag.shape(x).to_vec();
    let op = cx.op.name;
    let axis = |axis: usize| Axis {
        attrs: &attrs,
        op,
        scale: match attrs.scale {
            Some(scale) => scale[axis],
            None => shape[axis + 2] as f64 / input[axis + 2] as f64,
        },
        number: axis,
        extent: input[axis + 2],
        size: shape[axis + 2],
        is_open: [Some(cx.open_axes), cx.open_args.first().map(Vec::as_slice)]
            .into_iter()
            .flatten()
            .any(|open| open.contains(&(axis + 2))),
    };
    let (rows, columns) = (axis(0), axis(1));
    let beyond = like_value(attrs.extrapolation_value, dtype);
    let within_image = |value: PrimExpr, index: &[PrimExpr]| {
        if !attrs.crops() {
            return value;
        }
        let inside = rows.is_inside(&index[2]).and(columns.is_inside(&index[3]));
        PrimExpr::select(inside, value, beyond.clone())
    };
    if attrs.method == ResizeMethod::NearestNeighbor {
        let (row, column) = (rows.nearest(cx.dag), columns.nearest(cx.dag));
        return cx.element(|dag, index| {
            let [n, c, y, x_] = index else { return PrimExpr::zero(dtype) };
            let at = [n.clone(), c.clone(), row.at(dag, y), column.at(dag, x_)];
            within_image(dag.at(x, &at), index)
        });
    }
    // Rows of the argument are added up to one of the result, whose elements are then found in it.
    let row = [shape[0], shape[1], shape[2], input[3]];
    let row = rows.resized(cx.dag, x, &row, dtype);
    let resized = columns.resized(cx.dag, row, &shape, dtype);
    if attrs.crops() || resized == x {
        return cx.element(|dag, index| within_image(dag.at(resized, index), index));
    }
    Ok(vec![resized])
}

/// A number of a type, whole if the type is of integers.
fn like_value(value: f64, dtype: DType) -> PrimExpr {
    if dtype.is_float() {
        PrimExpr::float(value, dtype)
    } else {
        PrimExpr::int(value as i64, dtype)
    }
}
