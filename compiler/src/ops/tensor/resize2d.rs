//! `image.resize2d`: images of another size (ONNX `Resize` over the two innermost axes).

use serde::{Deserialize, Serialize};

use super::X;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::DType;
use crate::ir::{Attrs, Dim, Type};
use crate::ops::compute::{Compute, Stages, multiply_add};
use crate::ops::eval::EvalCx;
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, OpDef, OpPattern};
use crate::te::{ComputeDag, StageId};
use crate::tir::{Intrinsic, PrimExpr};

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

/// Longest axis of a result whose places are tried as a quotient of integers.
const MAX_TRIED_SIZE: i64 = 1 << 16;

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
    };
    let (rows, columns) = (axis(0), axis(1));
    if attrs.method == ResizeMethod::NearestNeighbor {
        let (row, column) = (rows.nearest(cx.dag), columns.nearest(cx.dag));
        return cx.element(|dag, index| {
            let [n, c, y, x_] = index else { return PrimExpr::zero(dtype) };
            let at = [n.clone(), c.clone(), row.at(dag, y), column.at(dag, x_)];
            dag.at(x, &at)
        });
    }
    let row_taps = rows.taps(cx.dag, dtype);
    let column_taps = columns.taps(cx.dag, dtype);
    // One row after the other, and each element of the result from several rows.
    let widened = [shape[0], shape[1], input[2], shape[3]];
    let widened =
        cx.dag.compute(op, &widened, dtype, |dag, index| weighted(dag, &column_taps, x, index, 3));
    cx.element(|dag, index| weighted(dag, &row_taps, widened, index, 2))
}

/// The sum of an element's neighbours along an axis. One without weight does not count, not even as
/// a NaN.
fn weighted(
    dag: &ComputeDag,
    taps: &[Tap],
    from: StageId,
    index: &[PrimExpr],
    axis: usize,
) -> PrimExpr {
    let zero = PrimExpr::zero(dag.dtype(from));
    let factors = |tap: &Tap| {
        let weight = dag.at(tap.weight, &index[axis..=axis]);
        let mut at = index.to_vec();
        at[axis] = dag.at(tap.place, &index[axis..=axis]);
        let counts = weight.clone().not_equal(zero.clone());
        (weight, PrimExpr::select(counts, dag.at(from, &at), zero.clone()))
    };
    let Some((first, rest)) = taps.split_first() else { return zero };
    let (weight, element) = factors(first);
    rest.iter()
        .map(factors)
        .fold(weight * element, |sum, (weight, element)| multiply_add(weight, element, sum))
}

/// A neighbour along an axis: tables with an entry for each place of the result.
struct Tap {
    /// The place in the argument.
    place: StageId,
    weight: StageId,
}

/// The place of the nearest element along an axis.
enum Nearest {
    /// `(factor · i + offset) / divisor`, rounded down and held within the extent.
    Quotient { factor: i64, offset: i64, divisor: i64, last: i64 },
    /// An entry of a table.
    Table(StageId),
}

impl Nearest {
    fn at(&self, dag: &ComputeDag, index: &PrimExpr) -> PrimExpr {
        match *self {
            Nearest::Quotient { factor, offset, divisor, last } => {
                (index.clone() * factor + offset).floordiv(divisor).min(last)
            }
            Nearest::Table(table) => dag.at(table, std::slice::from_ref(index)),
        }
    }
}

/// One axis of an image that is resized.
struct Axis<'a> {
    attrs: &'a Resize2dAttrs,
    op: &'static str,
    /// The factor by which places are computed.
    scale: f64,
    /// 0 for rows, 1 for columns.
    number: usize,
    /// Elements of the argument.
    extent: i64,
    /// Elements of the result.
    size: i64,
}

impl Axis<'_> {
    /// A table with an entry for each place of the result.
    fn table(
        &self,
        dag: &mut ComputeDag,
        dtype: DType,
        entry: impl FnOnce(&mut ComputeDag, &[PrimExpr]) -> PrimExpr,
    ) -> StageId {
        let table = dag.compute(self.op, &[self.size], dtype, entry);
        dag.set_stored(table);
        table
    }

    fn clamp(&self, place: PrimExpr) -> PrimExpr {
        PrimExpr::index(0).max(place).min(self.extent - 1)
    }

    /// Where in the argument a place of the result is.
    fn coordinate(&self, index: &PrimExpr) -> PrimExpr {
        let index = index.clone().cast(DType::F64);
        let f64 = |value: f64| PrimExpr::float(value, DType::F64);
        let (extent, scale) = (self.extent as f64, self.scale);
        match self.attrs.coordinate_transformation_mode {
            CoordinateTransformation::PytorchHalfPixel if self.size <= 1 => f64(0.0),
            CoordinateTransformation::HalfPixel | CoordinateTransformation::PytorchHalfPixel => {
                (index + f64(0.5)) / f64(scale) - f64(0.5)
            }
            CoordinateTransformation::AlignCorners if extent * scale <= 1.0 => f64(0.0),
            CoordinateTransformation::AlignCorners => {
                index * f64(extent - 1.0) / f64(extent * scale - 1.0)
            }
            CoordinateTransformation::Asymmetric => index / f64(scale),
        }
    }

    fn nearest(&self, dag: &mut ComputeDag) -> Nearest {
        if let Some(quotient) = self.quotient() {
            return quotient;
        }
        let table = self.table(dag, DType::I64, |_, index| {
            let at = self.coordinate(&index[0]);
            let half = PrimExpr::float(0.5, DType::F64);
            let nearest = match self.attrs.rounding_method {
                NearestRounding::RoundPreferFloor => PrimExpr::call(Intrinsic::Ceil, at - half),
                NearestRounding::RoundPreferCeil => PrimExpr::call(Intrinsic::Floor, at + half),
                NearestRounding::Floor => PrimExpr::call(Intrinsic::Floor, at),
                NearestRounding::Ceil => PrimExpr::call(Intrinsic::Ceil, at),
            };
            self.clamp(nearest.cast(DType::I64))
        });
        Nearest::Table(table)
    }

    /// The places as a quotient, if one yields just what the reference evaluation does.
    fn quotient(&self) -> Option<Nearest> {
        if self.size > MAX_TRIED_SIZE || self.extent <= 0 || self.extent > i64::from(u32::MAX) {
            return None;
        }
        let (extent, size) = (usize::try_from(self.extent).ok()?, usize::try_from(self.size).ok()?);
        let taps = self.attrs.taps(self.number, extent, size);
        let places: Vec<i64> =
            taps.iter().map(|taps| taps.first().map(|tap| tap.0 as i64)).collect::<Option<_>>()?;
        let last = self.extent - 1;
        for (numerator, denominator) in [(self.extent, self.size), (last, self.size - 1)] {
            if denominator < 1 {
                continue;
            }
            // Halves are whole where both sides are doubled.
            let (factor, divisor) = (2 * numerator, 2 * denominator);
            let offsets = [0, numerator - 1, numerator, denominator - 1, denominator, divisor - 1];
            for offset in offsets {
                let place = |i: i64| (factor * i + offset).div_euclid(divisor).min(last);
                if (0..).zip(&places).all(|(i, &found)| place(i) == found) {
                    let common = gcd(factor, divisor);
                    return Some(Nearest::Quotient {
                        factor: factor / common,
                        offset: offset.div_euclid(common),
                        divisor: divisor / common,
                        last,
                    });
                }
            }
        }
        None
    }

    /// The neighbours of each place, for interpolation.
    fn taps(&self, dag: &mut ComputeDag, dtype: DType) -> Vec<Tap> {
        let f64 = |value: f64| PrimExpr::float(value, DType::F64);
        let floor = dag.compute(self.op, &[self.size], DType::F64, |_, index| {
            PrimExpr::call(Intrinsic::Floor, self.coordinate(&index[0]))
        });
        let part = dag.compute(self.op, &[self.size], DType::F64, |dag, index| {
            self.coordinate(&index[0]) - dag.at(floor, index)
        });
        let is_cubic = self.attrs.method == ResizeMethod::Cubic;
        let first = if is_cubic { -1 } else { 0 };
        let weights: Vec<Weight> = if is_cubic {
            let a = self.attrs.cubic_alpha;
            let near = move |t: PrimExpr| {
                (t.clone() * f64(a + 2.0) - f64(a + 3.0)) * t.clone() * t + f64(1.0)
            };
            let far = move |t: PrimExpr| {
                ((t.clone() * f64(a) - f64(5.0 * a)) * t.clone() + f64(8.0 * a)) * t - f64(4.0 * a)
            };
            vec![
                Box::new(move |t| far(t + f64(1.0))),
                Box::new(near),
                Box::new(move |t| near(f64(1.0) - t)),
                Box::new(move |t| far(f64(2.0) - t)),
            ]
        } else {
            vec![Box::new(move |t| f64(1.0) - t), Box::new(|t| t)]
        };
        let excludes = is_cubic && self.attrs.cubic_exclude;
        let place = |dag: &ComputeDag, index: &[PrimExpr], step: i64| {
            dag.at(floor, index).cast(DType::I64) + (first + step)
        };
        let weights: Vec<StageId> = (0..)
            .zip(weights)
            .map(|(step, weight)| {
                self.table(dag, DType::F64, |dag, index| {
                    let weight = weight(dag.at(part, index));
                    if !excludes {
                        return weight;
                    }
                    let place = place(dag, index, step);
                    let inside = place.clone().greater_equal(0).and(place.less(self.extent));
                    PrimExpr::select(inside, weight, f64(0.0))
                })
            })
            .collect();
        (0..)
            .zip(&weights)
            .map(|(step, &weight)| Tap {
                place: self
                    .table(dag, DType::I64, |dag, index| self.clamp(place(dag, index, step))),
                weight: self.table(dag, dtype, |dag, index| {
                    let weight = dag.at(weight, index);
                    let total = weights.iter().map(|&weight| dag.at(weight, index));
                    match total.reduce(|total, weight| total + weight) {
                        Some(total) if excludes => (weight / total).cast(dtype),
                        _ => weight.cast(dtype),
                    }
                }),
            })
            .collect()
    }
}

/// The weight of a neighbour by the distance from the place below.
type Weight = Box<dyn Fn(PrimExpr) -> PrimExpr>;

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs().max(1) } else { gcd(b, a % b) }
}
