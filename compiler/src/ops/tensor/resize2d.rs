//! `image.resize2d`: images of another size (ONNX `Resize` over the two innermost axes).

use serde::{Deserialize, Serialize};

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, Dim, Type};
use crate::ops::eval::EvalCx;
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, OpDef, OpPattern};

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
    /// `cubic` alone.
    pub cubic_exclude: bool,
}

impl Resize2dAttrs {
    /// The places along one axis that each place of the result reads, with their weights.
    pub(crate) fn taps(&self, axis: usize, extent: usize, size: usize) -> Vec<Vec<(usize, f64)>> {
        let scale = self.scale.map_or(size as f64 / extent as f64, |scale| scale[axis]);
        let last = extent as i64 - 1;
        let clamp = |place: i64| place.clamp(0, last) as usize;
        (0..size)
            .map(|index| {
                let at = self.coordinate(index as f64, scale, extent as f64, size as f64);
                let floor = at.floor();
                let (low, part) = (floor as i64, at - floor);
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
                        vec![(clamp(low), 1.0 - part), (clamp(low.saturating_add(1)), part)]
                    }
                    ResizeMethod::Cubic => self.cubic_taps(low, part, last),
                }
            })
            .collect()
    }

    fn cubic_taps(&self, low: i64, part: f64, last: i64) -> Vec<(usize, f64)> {
        let a = self.cubic_alpha;
        let near = |t: f64| ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0;
        let far = |t: f64| ((a * t - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a;
        let weights = [far(part + 1.0), near(part), near(1.0 - part), far(2.0 - part)];
        let mut taps: Vec<(usize, f64)> = (-1..3)
            .zip(weights)
            .map(|(step, weight)| {
                let place = low.saturating_add(step);
                let outside = self.cubic_exclude && !(0..=last).contains(&place);
                (place.clamp(0, last) as usize, if outside { 0.0 } else { weight })
            })
            .collect();
        if self.cubic_exclude {
            let total: f64 = taps.iter().map(|(_, weight)| weight).sum();
            taps.iter_mut().for_each(|(_, weight)| *weight /= total);
        }
        taps
    }

    fn coordinate(&self, index: f64, scale: f64, extent: f64, size: f64) -> f64 {
        match self.coordinate_transformation_mode {
            CoordinateTransformation::PytorchHalfPixel if size <= 1.0 => 0.0,
            CoordinateTransformation::HalfPixel | CoordinateTransformation::PytorchHalfPixel => {
                (index + 0.5) / scale - 0.5
            }
            CoordinateTransformation::AlignCorners if extent * scale <= 1.0 => 0.0,
            // With a scale, ONNX takes the unrounded size here.
            CoordinateTransformation::AlignCorners => {
                index * (extent - 1.0) / (extent * scale - 1.0)
            }
            CoordinateTransformation::Asymmetric => index / scale,
        }
    }
}

/// Images `(N, C, H, W)` of another height and width.
pub static RESIZE2D: OpDef = OpDef::new("image.resize2d", "images of another size", X, infer, eval)
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
    for (axis, size) in [2, 3].into_iter().zip(&attrs.size) {
        ensure!(
            x.shape[axis].as_const() != Some(0) || size.as_const() == Some(0),
            "input `x`, which is {x}, has no elements to make an image of"
        );
    }
    let [height, width] = attrs.size;
    cx.result([x.shape[0].clone(), x.shape[1].clone(), height, width], x.dtype)
}

fn eval(attrs: &Attrs, args: &[Option<&Tensor>]) -> Result<Vec<Tensor>, EvalError> {
    let cx = EvalCx::new(&RESIZE2D, attrs, args)?;
    let attrs: Resize2dAttrs = cx.attrs()?;
    let x = cx.arg(0)?;
    let (&[_, _, height, width], &[n, c, out_height, out_width]) = (x.shape(), cx.shape()) else {
        return Err(EvalError::new("input `x` must have 4 dimensions"));
    };
    if cx.len() == 0 {
        return cx.result(crate::ops::eval::pick(x.elements(), std::iter::empty()));
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
                .map(|(plane, row, column)| {
                    values[(plane * height + row[0].0) * width + column[0].0]
                })
                .collect(),
        ),
    })
}
