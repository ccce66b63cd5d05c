//! Tensor expressions of one axis of an image that is resized.

use super::{
    CoordinateTransformation, Filter, NearestRounding, Resize2dAttrs, ResizeMethod, fraction,
};
use crate::ir::DType;
use crate::ops::compute::{extent_of, multiply_add, within};
use crate::te::{ComputeDag, StageId};
use crate::tir::{BinaryOp, Intrinsic, PrimExpr};

/// Longest axis of a result whose places are tried as a quotient of integers.
const MAX_TRIED_SIZE: i64 = 1 << 16;

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
        if let Some(last) = tap.last {
            at[axis] = PrimExpr::index(0).max(at[axis].clone()).min(last);
        }
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
    /// The last place there is, if the table has places beyond.
    last: Option<i64>,
    weight: StageId,
}

/// The place of the nearest element along an axis.
pub(super) enum Nearest {
    /// `(factor · i + offset) / divisor`, rounded down and held within the extent.
    Quotient { factor: i64, offset: i64, divisor: i64, last: i64 },
    /// An entry of a table.
    Table(StageId),
}

impl Nearest {
    pub(super) fn at(&self, dag: &ComputeDag, index: &PrimExpr) -> PrimExpr {
        match *self {
            Nearest::Quotient { factor, offset, divisor, last } => {
                (index.clone() * factor + offset).floordiv(divisor).min(last)
            }
            Nearest::Table(table) => dag.at(table, std::slice::from_ref(index)),
        }
    }
}

/// One axis of an image that is resized.
pub(super) struct Axis<'a> {
    pub(super) attrs: &'a Resize2dAttrs,
    pub(super) op: &'static str,
    /// The factor by which places are computed.
    pub(super) scale: f64,
    /// 0 for rows, 1 for columns.
    pub(super) number: usize,
    /// Elements of the argument.
    pub(super) extent: i64,
    /// Elements of the result.
    pub(super) size: i64,
    /// Whether one of the two may be another number in a run.
    pub(super) is_open: bool,
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

    /// A number of elements as a float.
    fn number_of(&self, elements: i64) -> PrimExpr {
        extent_of(elements, self.is_open).cast(DType::F64)
    }

    /// Where in the argument a place of the result is.
    fn coordinate(&self, index: &PrimExpr) -> PrimExpr {
        let index = index.clone().cast(DType::F64);
        let f64 = |value: f64| PrimExpr::float(value, DType::F64);
        let (extent, size) = (self.number_of(self.extent), self.number_of(self.size));
        let factor = self.attrs.scale.map(|scale| f64(scale[self.number]));
        let scale = factor.clone().unwrap_or_else(|| size.clone() / extent.clone());
        let scaled = factor.map_or_else(|| size.clone(), |factor| extent.clone() * factor);
        let last = extent.clone() - f64(1.0);
        let half_pixel = |index: PrimExpr| (index + f64(0.5)) / scale.clone() - f64(0.5);
        match self.attrs.coordinate_transformation_mode {
            CoordinateTransformation::HalfPixel => half_pixel(index),
            CoordinateTransformation::PytorchHalfPixel => {
                PrimExpr::select(size.less_equal(f64(1.0)), f64(0.0), half_pixel(index))
            }
            CoordinateTransformation::AlignCorners => {
                let at = index * last / (scaled.clone() - f64(1.0));
                PrimExpr::select(scaled.less_equal(f64(1.0)), f64(0.0), at)
            }
            CoordinateTransformation::Asymmetric => index / scale,
            CoordinateTransformation::HalfPixelSymmetric => {
                extent / f64(2.0) * (f64(1.0) - size / scaled) + half_pixel(index)
            }
            CoordinateTransformation::TfHalfPixelForNn => (index + f64(0.5)) / scale,
            CoordinateTransformation::TfCropAndResize => {
                let [start, end] = self.attrs.region(self.number);
                let first = f64(start) * last.clone();
                let more = index * f64(end - start) * last.clone() / (size.clone() - f64(1.0));
                let middle = f64(0.5 * (start + end)) * last;
                PrimExpr::select(f64(1.0).less(size), first + more, middle)
            }
        }
    }

    /// Whether a place of the result is inside of the image.
    pub(super) fn is_inside(&self, index: &PrimExpr) -> PrimExpr {
        let at = self.coordinate(index);
        let [first, one] = [0.0, 1.0].map(|value| PrimExpr::float(value, DType::F64));
        let last = self.number_of(self.extent) - one;
        first.less_equal(at.clone()).and(at.less_equal(last))
    }

    /// Whether each place of the result is that of the argument.
    fn is_unchanged(&self) -> bool {
        !self.is_open
            && self.extent == self.size
            && (self.scale - 1.0).abs() <= 0.0
            && self.attrs.region(self.number) == [0.0, 1.0]
    }

    /// A tensor resized along this axis.
    pub(super) fn resized(
        &self,
        dag: &mut ComputeDag,
        x: StageId,
        shape: &[i64],
        dtype: DType,
    ) -> StageId {
        let axis = self.number + 2;
        if self.is_unchanged() {
            return x;
        }
        if let Some(filter) = self.attrs.filter(self.scale) {
            return self.filtered(dag, filter, x, shape, dtype);
        }
        let taps = self.taps(dag, dtype);
        dag.compute(self.op, shape, dtype, |dag, index| weighted(dag, &taps, x, index, axis))
    }

    /// A tensor resized along this axis by a filter against aliasing, which may be long.
    fn filtered(
        &self,
        dag: &mut ComputeDag,
        filter: Filter,
        x: StageId,
        shape: &[i64],
        dtype: DType,
    ) -> StageId {
        let f64 = |value: f64| PrimExpr::float(value, DType::F64);
        let first = self.table(dag, DType::I64, |_, index| {
            let at = self.coordinate(&index[0]);
            PrimExpr::call(Intrinsic::Floor, at).cast(DType::I64) + filter.first
        });
        let weights = dag.compute(self.op, &[self.size, filter.taps], DType::F64, |dag, index| {
            let place = dag.at(first, &index[..1]) + index[1].clone();
            let distance = place.clone().cast(DType::F64) - self.coordinate(&index[0]);
            let t = PrimExpr::call(Intrinsic::Abs, distance * f64(filter.scale));
            let weight = self.weight(&t);
            if !self.attrs.cubic_exclude {
                return weight;
            }
            PrimExpr::select(within(&place, 0, self.extent), weight, f64(0.0))
        });
        dag.set_stored(weights);
        let over = [filter.taps];
        let total = dag.reduce(
            self.op,
            &[self.size],
            DType::F64,
            BinaryOp::Add,
            &over,
            |dag, index, by| dag.at(weights, &[index[0].clone(), by[0].clone()]),
        );
        let shares = dag.compute(self.op, &[self.size, filter.taps], dtype, |dag, index| {
            (dag.at(weights, index) / dag.at(total, &index[..1])).cast(dtype)
        });
        dag.set_stored(shares);
        let axis = self.number + 2;
        let wide = dtype.accumulator();
        let sum = dag.reduce(self.op, shape, wide, BinaryOp::Add, &over, |dag, index, by| {
            let weight = dag.at(shares, &[index[axis].clone(), by[0].clone()]);
            let mut at = index.to_vec();
            at[axis] = self.clamp(dag.at(first, &index[axis..=axis]) + by[0].clone());
            let counts = weight.clone().not_equal(PrimExpr::zero(dtype));
            let element = PrimExpr::select(counts, dag.at(x, &at), PrimExpr::zero(dtype));
            weight.cast(wide) * element.cast(wide)
        });
        if wide == dtype {
            return sum;
        }
        dag.compute(self.op, shape, dtype, |dag, index| dag.at(sum, index).cast(dtype))
    }

    /// The weight of an element at that distance, which is not negative.
    fn weight(&self, t: &PrimExpr) -> PrimExpr {
        let f64 = |value: f64| PrimExpr::float(value, DType::F64);
        if self.attrs.method != ResizeMethod::Cubic {
            return f64(0.0).max(f64(1.0) - t.clone());
        }
        let a = self.attrs.cubic_alpha;
        let near = (t.clone() * f64(a + 2.0) - f64(a + 3.0)) * t.clone() * t.clone() + f64(1.0);
        let far = ((t.clone() * f64(a) - f64(5.0 * a)) * t.clone() + f64(8.0 * a)) * t.clone()
            - f64(4.0 * a);
        let beyond = PrimExpr::select(t.clone().less(f64(2.0)), far, f64(0.0));
        PrimExpr::select(t.clone().less_equal(f64(1.0)), near, beyond)
    }

    pub(super) fn nearest(&self, dag: &mut ComputeDag) -> Nearest {
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
        let by_scale = self.attrs.scale.and_then(|scale| fraction(scale[self.number]));
        let by_sizes = [(self.extent, self.size), (last, self.size - 1)];
        // What fits the sizes need not fit those of another run.
        let by_sizes = by_sizes.into_iter().filter(|_| !self.is_open);
        let inverse = by_scale.map(|(numerator, denominator)| (denominator, numerator));
        for (numerator, denominator) in inverse.into_iter().chain(by_sizes) {
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
        let steps = if is_cubic { 4 } else { 2 };
        let excludes = self.attrs.cubic_exclude;
        let place = |dag: &ComputeDag, index: &[PrimExpr], step: i64| {
            dag.at(floor, index).cast(DType::I64) + (first + step)
        };
        let weights: Vec<StageId> = (0..steps)
            .map(|step| {
                self.table(dag, DType::F64, |dag, index| {
                    let part = dag.at(part, index);
                    let weight = match first + step {
                        step @ ..=0 => self.weight(&(part - f64(step as f64))),
                        1 if !is_cubic => part,
                        step => self.weight(&(f64(step as f64) - part)),
                    };
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
                // Tables that are the same for all sizes are computed while compiling.
                place: self.table(dag, DType::I64, |dag, index| {
                    let place = place(dag, index, step);
                    if self.is_open { place } else { self.clamp(place) }
                }),
                last: self.is_open.then_some(self.extent - 1),
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

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs().max(1) } else { gcd(b, a % b) }
}
