//! Convolution by Winograd's minimal filtering (Lavin and Gray, "Fast Algorithms for Convolutional
//! Neural Networks", CVPR 2016): fewer multiplications, for transforms of small tiles.

use std::fmt;

use crate::te::{Builder, Tensor, Var, sum};
use crate::tir::PrimExpr;

/// Taps of the filter along one axis.
pub(crate) const TAPS: usize = 3;

/// Which algorithm: outputs of a tile along one axis, of a 3x3 filter with steps of 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Winograd {
    /// F(2x2, 3x3): 16 multiplications for 36.
    F2,
    /// F(4x4, 3x3): 36 multiplications for 144; errors are about ten times those of `F2`.
    F4,
}

const F2_DATA: [&[f64]; 4] =
    [&[1.0, 0.0, -1.0, 0.0], &[0.0, 1.0, 1.0, 0.0], &[0.0, -1.0, 1.0, 0.0], &[0.0, 1.0, 0.0, -1.0]];
const F2_FILTER: [[f64; TAPS]; 4] =
    [[1.0, 0.0, 0.0], [0.5, 0.5, 0.5], [0.5, -0.5, 0.5], [0.0, 0.0, 1.0]];
const F2_OUTPUT: [&[f64]; 2] = [&[1.0, 1.0, 1.0, 0.0], &[0.0, 1.0, -1.0, -1.0]];

const F4_DATA: [&[f64]; 6] = [
    &[4.0, 0.0, -5.0, 0.0, 1.0, 0.0],
    &[0.0, -4.0, -4.0, 1.0, 1.0, 0.0],
    &[0.0, 4.0, -4.0, -1.0, 1.0, 0.0],
    &[0.0, -2.0, -1.0, 2.0, 1.0, 0.0],
    &[0.0, 2.0, -1.0, -2.0, 1.0, 0.0],
    &[0.0, 4.0, 0.0, -5.0, 0.0, 1.0],
];
const F4_FILTER: [[f64; TAPS]; 6] = [
    [1.0 / 4.0, 0.0, 0.0],
    [-1.0 / 6.0, -1.0 / 6.0, -1.0 / 6.0],
    [-1.0 / 6.0, 1.0 / 6.0, -1.0 / 6.0],
    [1.0 / 24.0, 1.0 / 12.0, 1.0 / 6.0],
    [1.0 / 24.0, -1.0 / 12.0, 1.0 / 6.0],
    [0.0, 0.0, 1.0],
];
const F4_OUTPUT: [&[f64]; 4] = [
    &[1.0, 1.0, 1.0, 1.0, 1.0, 0.0],
    &[0.0, 1.0, -1.0, 2.0, -2.0, 0.0],
    &[0.0, 1.0, 1.0, 4.0, 4.0, 0.0],
    &[0.0, 1.0, -1.0, 8.0, -8.0, 1.0],
];

/// `F(2x2, 3x3)`.
impl fmt::Display for Winograd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let m = self.outputs();
        write!(f, "F({m}x{m}, 3x3)")
    }
}

impl Winograd {
    /// The algorithm whose tiles have that many outputs along an axis.
    pub fn of_outputs(outputs: i64) -> Option<Winograd> {
        [Winograd::F2, Winograd::F4].into_iter().find(|algorithm| algorithm.outputs() == outputs)
    }

    /// Outputs of a tile along one axis.
    pub fn outputs(self) -> i64 {
        match self {
            Winograd::F2 => 2,
            Winograd::F4 => 4,
        }
    }

    /// Inputs of a tile along one axis.
    pub fn inputs(self) -> i64 {
        self.outputs() + TAPS as i64 - 1
    }

    /// The matrix that transforms a tile of inputs, row by row.
    pub fn data(self) -> &'static [&'static [f64]] {
        match self {
            Winograd::F2 => &F2_DATA,
            Winograd::F4 => &F4_DATA,
        }
    }

    fn filter(self) -> &'static [[f64; TAPS]] {
        match self {
            Winograd::F2 => &F2_FILTER,
            Winograd::F4 => &F4_FILTER,
        }
    }

    /// The matrix that makes a tile of outputs of products, row by row.
    pub fn output(self) -> &'static [&'static [f64]] {
        match self {
            Winograd::F2 => &F2_OUTPUT,
            Winograd::F4 => &F4_OUTPUT,
        }
    }

    /// The transformed weights `[n, n, in, out]`, n being the inputs of a tile, of weights
    /// `[out, in, 3, 3]`; computed in `f64` and rounded once. Fewer weights than the extents say are
    /// taken as zero.
    ///
    /// Weights are the bulk of a model, and build scripts run unoptimised: plain loops, and a thread
    /// for each row of the tiles.
    pub fn transform_weights(self, weights: &[f32], [out, input]: [usize; 2]) -> Vec<f32> {
        let filter = self.filter();
        let n = filter.len();
        let mut transformed = vec![0.0f32; n * n * input * out];
        let row_len = n * input * out;
        if row_len == 0 {
            return transformed;
        }
        std::thread::scope(|scope| {
            for (row, by_row) in transformed.chunks_exact_mut(row_len).zip(filter) {
                scope.spawn(move || transform_row(row, *by_row, filter, weights, [out, input]));
            }
        });
        transformed
    }
}

/// One row of all transformed filters: `[n, in, out]`.
fn transform_row(
    row: &mut [f32],
    by_row: [f64; TAPS],
    filter: &[[f64; TAPS]],
    weights: &[f32],
    [out, input]: [usize; 2],
) {
    for (index, taps) in weights.chunks_exact(TAPS * TAPS).take(out * input).enumerate() {
        let (o, c) = (index / input, index % input);
        let mut sums = [0.0f64; TAPS];
        let mut x = 0;
        while x < TAPS {
            sums[x] = by_row[0] * f64::from(taps[x])
                + by_row[1] * f64::from(taps[TAPS + x])
                + by_row[2] * f64::from(taps[2 * TAPS + x]);
            x += 1;
        }
        let mut place = c * out + o;
        for column in filter {
            row[place] = (sums[0] * column[0] + sums[1] * column[1] + sums[2] * column[2]) as f32;
            place += input * out;
        }
    }
}

/// A row of a matrix times a vector: only what is not zero, in order, but with an element of factor
/// one first if there is one, which takes no multiplication.
fn combine(row: &[f64], element: &dyn Fn(i64) -> PrimExpr) -> PrimExpr {
    let mut total: Option<PrimExpr> = None;
    let first = row.iter().position(|factor| *factor == 1.0);
    let rest = (0..row.len()).filter(|position| Some(*position) != first);
    for position in first.into_iter().chain(rest) {
        let factor = row[position];
        if factor == 0.0 {
            continue;
        }
        let value = element(position as i64);
        let scale = PrimExpr::float(factor, value.dtype());
        total = Some(match total {
            None if factor == 1.0 => value,
            None => value * scale,
            Some(total) if factor == 1.0 => total + value,
            Some(total) if factor == -1.0 => total - value,
            Some(total) => PrimExpr::mul_add(scale, value, total),
        });
    }
    total.unwrap_or_else(|| element(0) * PrimExpr::f32(0.0))
}

/// The row of a matrix that `index` names times a vector. Schedules unroll the index, so one row is
/// left of each choice.
fn choose(
    index: impl Into<PrimExpr>,
    rows: &[&[f64]],
    element: &dyn Fn(i64) -> PrimExpr,
) -> PrimExpr {
    let index = index.into();
    let mut chosen: Option<PrimExpr> = None;
    for (position, row) in rows.iter().enumerate().rev() {
        let value = combine(row, element);
        chosen = Some(match chosen {
            None => value,
            Some(rest) => PrimExpr::select(index.clone().equal(position as i64), value, rest),
        });
    }
    chosen.unwrap_or(PrimExpr::f32(0.0))
}

/// The stages of a 3x3 convolution with steps of 1.
#[derive(Clone, Copy, Debug)]
pub struct WinogradStages {
    /// Columns of each input tile transformed: `[i, b, tile, channel]`.
    pub columns: Tensor,
    /// Tiles transformed: `[i, j, tile, channel]`.
    pub tiles: Tensor,
    /// Products with the transformed weights: `[i, j, tile, out]`.
    pub products: Tensor,
    /// Columns of each output tile: `[y, j, tile, out]`.
    pub rows: Tensor,
    /// The result `[batch, out, height, width]`.
    pub output: Tensor,
}

/// A 3x3 convolution of `[batch, in, height, width]`, whose layout has a border of zeros of
/// `padding` before, at the top and at the left, and of what the last tile needs after, with
/// transformed weights `[n, n, in, out]`. The result has the height and width `size`.
///
/// `finish` makes the result's element at an index `[b, channel, y, x]` of the sum: bias,
/// activation, residual.
pub fn conv2d(
    te: &mut Builder,
    algorithm: Winograd,
    x: Tensor,
    weights: Tensor,
    padding: [i64; 2],
    size: [i64; 2],
    finish: impl FnOnce(PrimExpr, [Var; 4]) -> PrimExpr,
) -> WinogradStages {
    te.need_constants(x);
    te.need_constants(weights);
    let shape = |tensor, axis| te.shape(tensor).get(axis).copied().unwrap_or(1);
    let (batch, channels, out) = (shape(x, 0), shape(x, 1), shape(weights, 3));
    let (m, n) = (algorithm.outputs(), algorithm.inputs());
    let [down, across] = size.map(|extent| (extent + m - 1) / m);
    let count = batch * down * across;
    let (data, output) = (algorithm.data(), algorithm.output());
    // With one image, nothing is left of its number in the indices.
    let image_of = |tile: &PrimExpr| match batch {
        1 => PrimExpr::index(0),
        _ => tile.clone().floordiv(down * across),
    };
    let columns = te.compute("columns", [n, n, count, channels], |[i, b, t, c]| {
        let tile = PrimExpr::from(t);
        let row = match batch {
            1 => tile.clone(),
            _ => tile.clone().floormod(down * across),
        };
        let place = |a: i64| {
            let y = row.clone().floordiv(across) * m + (a - padding[0]);
            let x_ = tile.clone().floormod(across) * m + (b - padding[1]);
            x.at([image_of(&tile), c.into(), y, x_])
        };
        choose(i, data, &place)
    });
    let tiles = te.compute("tiles", [n, n, count, channels], |[i, j, t, c]| {
        choose(j, data, &|b| columns.at([i.into(), PrimExpr::index(b), t.into(), c.into()]))
    });
    let c = te.reduce_axis("c", channels);
    let products = te.compute("products", [n, n, count, out], |[i, j, t, k]| {
        sum(tiles.at([i, j, t, c]) * weights.at([i, j, c, k]), [c])
    });
    let rows = te.compute("rows", [m, n, count, out], |[y, j, t, k]| {
        choose(y, output, &|i| products.at([PrimExpr::index(i), j.into(), t.into(), k.into()]))
    });
    let result = te.compute("output", [batch, out, size[0], size[1]], |[b, k, y, x]| {
        let first = match batch {
            1 => PrimExpr::index(0),
            _ => b * (down * across),
        };
        let tile = first + PrimExpr::from(y).floordiv(m) * across + PrimExpr::from(x).floordiv(m);
        let row = PrimExpr::from(y).floormod(m);
        let sum = choose(PrimExpr::from(x).floormod(m), output, &|j| {
            rows.at([row.clone(), PrimExpr::index(j), tile.clone(), k.into()])
        });
        finish(sum, [b, k, y, x])
    });
    WinogradStages { columns, tiles, products, rows, output: result }
}
