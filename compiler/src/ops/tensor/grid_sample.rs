//! `image.grid_sample`: elements between those of an image, at places that are data (ONNX
//! `GridSample`, and what `DeformConv` reads).

use serde::{Deserialize, Serialize};

use super::ResizeMethod;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, DType, Dim, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::{EvalCx, num_elements};
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef};
use crate::te::{ComputeDag, StageId};
use crate::tir::{BinaryOp, Intrinsic, PrimExpr};

/// What numbers of a grid mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GridCoordinates {
    /// -1 and 1 are the edges of the first and the last element.
    Edges,
    /// -1 and 1 are the middles of the first and the last element: ONNX `align_corners`.
    Corners,
    /// Indices of elements.
    Pixels,
}

/// What is outside of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GridPadding {
    /// Zeros.
    Zeros,
    /// The nearest element.
    Border,
    /// The elements mirrored at the edges, or at the middles of the outermost elements.
    Reflection,
}

/// Attributes of `image.grid_sample`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GridSampleAttrs {
    /// The interpolation.
    pub method: ResizeMethod,
    /// What is outside of the image.
    pub padding: GridPadding,
    /// What the numbers of the grid mean.
    pub coordinates: GridCoordinates,
}

/// The coefficient of cubic convolution.
const CUBIC_ALPHA: f64 = -0.75;

/// Greatest extent up to which floats have all places, as 32-bit integers have, which they become in vectors.
const MOST_EXACT: i64 = 1 << 24;

/// How far beyond an image places are told apart: farther than any neighbour is.
const BEYOND: f64 = 4.0;

impl GridSampleAttrs {
    /// The first and the last place along an axis.
    fn ends(&self, extent: f64) -> [f64; 2] {
        match self.coordinates {
            GridCoordinates::Edges => [-0.5, extent - 0.5],
            GridCoordinates::Corners | GridCoordinates::Pixels => [0.0, extent - 1.0],
        }
    }

    /// A place mirrored into the image.
    fn reflected(&self, at: f64, extent: f64, round: fn(f64) -> f64) -> f64 {
        let [first, last] = self.ends(extent);
        let range = last - first;
        if !(at < first || at > last) {
            return at;
        }
        if range <= 0.0 {
            return first;
        }
        let over = round(if at < first { first - at } else { at - last });
        let turns = round(over / range).trunc();
        let rest = round(over - round(turns * range));
        let from_first = (at < first) == (turns % 2.0 == 0.0);
        round(if from_first { first + rest } else { last - rest })
    }

    /// The place that a number of the grid means along an axis, in the arithmetic of its type.
    fn place(&self, number: f64, extent: f64, round: fn(f64) -> f64) -> f64 {
        let mut at = match self.coordinates {
            GridCoordinates::Edges => round(round(round(round(number + 1.0) * extent) - 1.0) / 2.0),
            GridCoordinates::Corners => round(round(round(number + 1.0) / 2.0) * (extent - 1.0)),
            GridCoordinates::Pixels => number,
        };
        if self.method == ResizeMethod::NearestNeighbor {
            at = at.round_ties_even();
        }
        let [first, last] = self.ends(extent);
        let outside = at < first || at > last;
        at = match self.padding {
            GridPadding::Border if outside => at.clamp(0.0, extent - 1.0),
            GridPadding::Reflection => self.reflected(at, extent, round),
            GridPadding::Zeros | GridPadding::Border => at,
        };
        // A NaN is outside too.
        if at > -BEYOND { at.min(extent + BEYOND) } else { -BEYOND }
    }

    /// The element at an index along an axis, if it is not a zero.
    fn element(&self, index: f64, extent: f64) -> Option<usize> {
        let inside = match self.padding {
            GridPadding::Zeros if !(0.0..extent).contains(&index) => return None,
            GridPadding::Zeros | GridPadding::Border => index,
            GridPadding::Reflection => self.reflected(index, extent, |value| value),
        };
        Some(inside.clamp(0.0, extent - 1.0) as usize)
    }

    /// The neighbours of a place along an axis, and their weights.
    fn taps(&self, at: f64, extent: f64) -> Vec<(Option<usize>, f64)> {
        let (low, part) = (at.floor(), at - at.floor());
        let taps = |first: f64, weights: &[f64]| {
            let places = (0..).map(|step| first + f64::from(step));
            places.zip(weights).map(|(place, &w)| (self.element(place, extent), w)).collect()
        };
        match self.method {
            ResizeMethod::NearestNeighbor => vec![(self.element(at.trunc(), extent), 1.0)],
            ResizeMethod::Linear => taps(low, &[1.0 - part, part]),
            ResizeMethod::Cubic => {
                let a = CUBIC_ALPHA;
                let near = |t: f64| ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0;
                let far = |t: f64| ((a * t - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a;
                taps(low - 1.0, &[far(part + 1.0), near(part), near(1.0 - part), far(2.0 - part)])
            }
        }
    }
}

/// Images `(N, C, spatial…)` at the places that a grid `(N, places…, axes)` names. A place has its
/// number for the innermost axis first.
pub static GRID_SAMPLE: OpDef = OpDef::new(
    "image.grid_sample",
    "elements between those of an image, at places of a grid",
    &[Input::required("x"), Input::required("grid")],
    infer,
    eval,
    compute,
)
.attributes::<GridSampleAttrs>()
.defaults(|| {
    Attrs::new().with("method", "linear").with("padding", "zeros").with("coordinates", "edges")
});

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: GridSampleAttrs = cx.attrs()?;
    let x = cx.tensor_of(0, DTypes::NumericOrBool)?;
    let grid = cx.tensor_of(1, DTypes::Float)?;
    let rank = x.shape.rank();
    ensure!(
        (3..=5).contains(&rank),
        "input `x` must have dimensions (N, C, spatial…), up to three spatial ones, but it is {x}"
    );
    ensure!(
        attrs.method == ResizeMethod::NearestNeighbor || x.dtype.is_float(),
        "input `x` is {x}; only floats can be interpolated, so cast it first"
    );
    ensure!(
        attrs.method != ResizeMethod::Cubic || rank <= 4,
        "cubic interpolation is supported along up to 2 axes, but input `x` is {x}"
    );
    ensure!(
        grid.shape.rank() == rank
            && grid.shape[rank - 1].as_const() == Some(rank as i64 - 2)
            && cx.same(&grid.shape[0], &x.shape[0]),
        "input `grid` must have dimensions ({}, places…, {}), with {} of places, as input `x` is \
         {x}, but it is {grid}",
        x.shape[0],
        rank - 2,
        rank - 2
    );
    ensure!(
        x.shape[2..].iter().all(|extent| extent.as_const() != Some(0)),
        "input `x`, which is {x}, has no elements to interpolate"
    );
    let dims: Vec<Dim> = x.shape[..2].iter().chain(&grid.shape[1..rank - 1]).cloned().collect();
    cx.result(dims, x.dtype)
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: GridSampleAttrs = cx.attrs()?;
    let (x, grid) = (cx.arg(0)?, cx.arg(1)?);
    let (channels, extents) = (x.shape()[1], &x.shape()[2..]);
    let places = num_elements(&cx.shape()[2..]);
    let plane = num_elements(extents);
    let round: fn(f64) -> f64 = match grid.dtype().accumulator() {
        DType::F64 => |value| value,
        _ => |value| f64::from(value as f32),
    };
    let numbers = cx.floats(1)?;
    // For each place the offsets of its neighbours within a plane, with their weights.
    let neighbours = |place: usize| {
        let mut found = vec![(0usize, 1.0)];
        for (axis, &extent) in extents.iter().enumerate() {
            let number = numbers[place * extents.len() + extents.len() - 1 - axis];
            let at = attrs.place(number, extent as f64, round);
            let taps = attrs.taps(at, extent as f64);
            found = found
                .iter()
                .flat_map(|&(offset, weight)| {
                    taps.iter().filter_map(move |&(tap, share)| {
                        Some((offset * extent + tap?, weight * share))
                    })
                })
                .collect();
        }
        found
    };
    let mut floats = vec![0.0; if x.floats().is_some() { cx.len() } else { 0 }];
    let mut ints = vec![0; if x.floats().is_some() { 0 } else { cx.len() }];
    if cx.len() == 0 {
        return cx.result(x.elements().clone());
    }
    for batch in 0..x.shape()[0] {
        for place in 0..places {
            let found = neighbours(batch * places + place);
            for channel in 0..channels {
                let image = batch * channels + channel;
                let (from, to) = (image * plane, image * places + place);
                match x.elements() {
                    Elements::Float(values) => {
                        floats[to] =
                            found.iter().map(|&(at, weight)| weight * values[from + at]).sum();
                    }
                    Elements::Int(values) => {
                        ints[to] = found.first().map_or(0, |&(at, _)| values[from + at]);
                    }
                }
            }
        }
    }
    cx.result(if x.floats().is_some() { Elements::Float(floats) } else { Elements::Int(ints) })
}

/// One axis of an image, in the arithmetic of the grid.
struct Axis<'a> {
    attrs: &'a GridSampleAttrs,
    extent: i64,
    dtype: DType,
}

/// A neighbour along an axis.
struct Tap {
    place: PrimExpr,
    /// Whether it is no zero, if it may be one.
    inside: Option<PrimExpr>,
    weight: Option<PrimExpr>,
}

impl Axis<'_> {
    fn float(&self, value: f64) -> PrimExpr {
        PrimExpr::float(value, self.dtype)
    }

    fn reflected(&self, at: PrimExpr) -> PrimExpr {
        let [first, last] = self.attrs.ends(self.extent as f64);
        let range = last - first;
        let (first, last) = (self.float(first), self.float(last));
        let below = at.clone().less(first.clone());
        let outside = below.clone().or(at.clone().greater(last.clone()));
        if range <= 0.0 {
            return PrimExpr::select(outside, first, at);
        }
        let over =
            PrimExpr::select(below.clone(), first.clone() - at.clone(), at.clone() - last.clone());
        let turns = PrimExpr::call(Intrinsic::Trunc, over.clone() / self.float(range));
        let half = PrimExpr::call(Intrinsic::Floor, turns.clone() * self.float(0.5));
        let even = (half * self.float(2.0)).equal(turns.clone());
        let rest = over - turns * self.float(range);
        let (from_first, from_last) = (first + rest.clone(), last - rest);
        let mirrored = PrimExpr::select(
            below,
            PrimExpr::select(even.clone(), from_first.clone(), from_last.clone()),
            PrimExpr::select(even, from_last, from_first),
        );
        PrimExpr::select(outside, mirrored, at)
    }

    fn place(&self, number: PrimExpr) -> PrimExpr {
        let extent = self.extent as f64;
        let mut at = match self.attrs.coordinates {
            GridCoordinates::Edges => {
                ((number + self.float(1.0)) * self.float(extent) - self.float(1.0))
                    / self.float(2.0)
            }
            GridCoordinates::Corners => {
                let part = (number + self.float(1.0)) / self.float(2.0);
                // Of the same form for two elements as for more, as a run may have.
                let (lhs, rhs) = (Box::new(part), Box::new(self.float(extent - 1.0)));
                PrimExpr::Binary { op: BinaryOp::Mul, lhs, rhs }
            }
            GridCoordinates::Pixels => number,
        };
        if self.attrs.method == ResizeMethod::NearestNeighbor {
            at = PrimExpr::call(Intrinsic::Round, at);
        }
        let [first, last] = self.attrs.ends(extent).map(|end| self.float(end));
        at = match self.attrs.padding {
            GridPadding::Zeros => at,
            GridPadding::Border => {
                let outside = at.clone().less(first).or(at.clone().greater(last));
                let nearest = at.clone().max(self.float(0.0)).min(self.float(extent - 1.0));
                PrimExpr::select(outside, nearest, at)
            }
            GridPadding::Reflection => self.reflected(at),
        };
        let known = at.clone().greater(self.float(-BEYOND));
        PrimExpr::select(known, at.min(self.float(extent + BEYOND)), self.float(-BEYOND))
    }

    /// The element that is read at a place, which is whole: -1 for a zero.
    fn element(&self, place: PrimExpr) -> PrimExpr {
        let last = self.float(self.extent as f64 - 1.0);
        let place = match self.attrs.padding {
            GridPadding::Reflection => self.reflected(place),
            GridPadding::Zeros | GridPadding::Border => place,
        };
        let clamped = place.clone().max(self.float(0.0)).min(last.clone());
        match self.attrs.padding {
            GridPadding::Zeros => {
                PrimExpr::select(place.equal(clamped.clone()), clamped, self.float(-1.0))
            }
            GridPadding::Reflection | GridPadding::Border => clamped,
        }
    }

    /// How many neighbours a place has.
    fn count(&self) -> usize {
        match self.attrs.method {
            ResizeMethod::NearestNeighbor => 1,
            ResizeMethod::Linear => 2,
            ResizeMethod::Cubic => 4,
        }
    }

    /// The elements around a place, in order, and their weights.
    fn taps(&self, at: &PrimExpr) -> Vec<(PrimExpr, Option<PrimExpr>)> {
        let low = PrimExpr::call(Intrinsic::Floor, at.clone());
        let part = at.clone() - low.clone();
        let one = || self.float(1.0);
        match self.attrs.method {
            ResizeMethod::NearestNeighbor => vec![(self.element(at.clone()), None)],
            ResizeMethod::Linear => vec![
                (self.element(low.clone()), Some(one() - part.clone())),
                (self.element(low + one()), Some(part)),
            ],
            ResizeMethod::Cubic => {
                let a = CUBIC_ALPHA;
                let near = |t: PrimExpr| {
                    (t.clone() * self.float(a + 2.0) - self.float(a + 3.0)) * t.clone() * t + one()
                };
                let far = |t: PrimExpr| {
                    ((t.clone() * self.float(a) - self.float(5.0 * a)) * t.clone()
                        + self.float(8.0 * a))
                        * t
                        - self.float(4.0 * a)
                };
                let weights = [
                    far(part.clone() + one()),
                    near(part.clone()),
                    near(one() - part.clone()),
                    far(self.float(2.0) - part),
                ];
                (-1..)
                    .zip(weights)
                    .map(|(step, weight)| {
                        (self.element(low.clone() + self.float(f64::from(step))), Some(weight))
                    })
                    .collect()
            }
        }
    }
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: GridSampleAttrs = cx.attrs()?;
    let (x, grid) = (cx.arg(0)?, cx.arg(1)?);
    let (shape, dtype) = cx.result();
    let op = cx.op.name;
    let extents = cx.dag.shape(x)[2..].to_vec();
    let in_grid = cx.dag.dtype(grid).accumulator();
    let axes: Vec<Axis<'_>> =
        extents.iter().map(|&extent| Axis { attrs: &attrs, extent, dtype: in_grid }).collect();
    // A place is the same for all channels.
    let of_places = [&shape[..1], &shape[2..]].concat();
    let places: Vec<StageId> = axes
        .iter()
        .enumerate()
        .map(|(axis, of_axis)| {
            let number = (axes.len() - 1 - axis) as i64;
            let stage = cx.dag.compute(op, &of_places, in_grid, |dag, index| {
                let mut at = index.to_vec();
                at.push(PrimExpr::index(number));
                of_axis.place(dag.at(grid, &at).cast(in_grid))
            });
            cx.dag.set_stored(stage);
            stage
        })
        .collect();
    // So are its neighbours, and their weights.
    let mut taps: Vec<Vec<StoredTap>> = Vec::with_capacity(axes.len());
    for (axis, &at) in axes.iter().zip(&places) {
        let stored = (0..axis.count()).map(|number| {
            let tap = |dag: &ComputeDag, index: &[PrimExpr]| {
                axis.taps(&dag.at(at, index)).swap_remove(number)
            };
            let dtype = if axis.extent <= MOST_EXACT { DType::I32 } else { DType::I64 };
            let element = cx.dag.compute(op, &of_places, dtype, |dag, index| {
                let element = tap(dag, index).0;
                // The last element may be none that the floats have.
                if dtype == DType::I32 {
                    element.cast(dtype)
                } else {
                    element.cast(dtype).min(axis.extent - 1)
                }
            });
            cx.dag.set_stored(element);
            let weight = (axis.count() > 1).then(|| {
                let one = || PrimExpr::float(1.0, in_grid);
                let weight = cx.dag.compute(op, &of_places, in_grid, |dag, index| {
                    tap(dag, index).1.unwrap_or_else(one)
                });
                cx.dag.set_stored(weight);
                weight
            });
            StoredTap { element, weight }
        });
        taps.push(stored.collect());
    }
    let wide = if dtype.is_float() { dtype.accumulator() } else { dtype };
    cx.element(|dag, index| {
        let at = [&index[..1], &index[2..]].concat();
        let tap = |stored: &StoredTap| {
            let place = dag.at(stored.element, &at).cast(DType::I64);
            let may_miss = attrs.padding == GridPadding::Zeros;
            let inside = may_miss.then(|| place.clone().greater_equal(0));
            let place = if may_miss { place.max(PrimExpr::index(0)) } else { place };
            Tap { place, inside, weight: stored.weight.map(|weight| dag.at(weight, &at)) }
        };
        let taps: Vec<Vec<Tap>> = taps.iter().map(|taps| taps.iter().map(tap).collect()).collect();
        sampled(dag, x, &index[..2], &taps, wide).cast(dtype)
    })
}

/// A neighbour along an axis of every place: element -1 is outside of the image, a zero.
struct StoredTap {
    element: StageId,
    weight: Option<StageId>,
}

/// The sum of the elements at all combinations of neighbours, the innermost axis first.
fn sampled(
    dag: &ComputeDag,
    x: StageId,
    outer: &[PrimExpr],
    taps: &[Vec<Tap>],
    wide: DType,
) -> PrimExpr {
    let mut combinations: Vec<Vec<&Tap>> = vec![Vec::new()];
    for axis in taps {
        let starts = std::mem::take(&mut combinations);
        for start in &starts {
            combinations.extend(axis.iter().map(|tap| [&start[..], &[tap]].concat()));
        }
    }
    let mut values: Vec<PrimExpr> = combinations
        .iter()
        .map(|taps| {
            let at: Vec<PrimExpr> =
                outer.iter().cloned().chain(taps.iter().map(|tap| tap.place.clone())).collect();
            let value = dag.at(x, &at).cast(wide);
            let inside = taps.iter().filter_map(|tap| tap.inside.clone()).reduce(PrimExpr::and);
            match inside {
                Some(inside) => PrimExpr::select(inside, value, PrimExpr::zero(wide)),
                None => value,
            }
        })
        .collect();
    for axis in taps.iter().rev() {
        let sum = |values: &[PrimExpr]| {
            let products = axis.iter().zip(values).map(|(tap, value)| match &tap.weight {
                Some(weight) => weight.clone().cast(wide) * value.clone(),
                None => value.clone(),
            });
            products.reduce(|sum, product| sum + product).unwrap_or(PrimExpr::zero(wide))
        };
        values = values.chunks(axis.len()).map(sum).collect();
    }
    values.into_iter().next().unwrap_or(PrimExpr::zero(wide))
}
