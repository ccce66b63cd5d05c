//! Convolution by Winograd's minimal filtering (Lavin and Gray, "Fast Algorithms for Convolutional
//! Neural Networks", CVPR 2016): fewer multiplications, for transforms of small tiles.

pub use crate::ops::nn::Winograd;
use crate::te::{Builder, Tensor, Var, sum};
use crate::tir::PrimExpr;

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
