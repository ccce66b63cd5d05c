//! Winograd's convolution in blocks of tiles.

use crate::schedule::{BlockRv, LoopRv, Schedule, ScheduleError};
use crate::strategy::Machine;
use crate::target::Target;
use crate::te::topi::winograd::Winograd;
use crate::tir::BufferScope;

/// How a convolution is cut into blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WinogradTiles {
    /// Most tiles of a block: its transformed inputs and products stay in the second-level cache.
    pub tiles: i64,
    /// Most tiles of a register tile.
    pub rows: i64,
    /// Output channels of a register tile, a panel of the weights.
    pub panel: i64,
    /// Elements of a vector.
    pub lanes: i64,
}

impl WinogradTiles {
    /// Register tiles of two vectors of channels, and blocks of two register tiles.
    pub fn choose(target: &Target) -> WinogradTiles {
        let machine = Machine::of(target);
        let lanes = machine.lanes(crate::ir::DType::F32);
        let rows = machine.tile_rows(2);
        WinogradTiles { tiles: 2 * rows, rows, panel: 2 * lanes, lanes }
    }
}

/// Schedules the stages of [`conv2d`](crate::te::topi::winograd::conv2d).
///
/// Channels of input and output must be multiples of the panel, and height and width of tiles.
///
/// # Errors
///
/// The function does not have these stages, or a primitive does not fit their extents.
pub fn winograd(
    s: &mut Schedule,
    algorithm: Winograd,
    cut: WinogradTiles,
) -> Result<(), ScheduleError> {
    let m = algorithm.outputs();
    let [columns, tiles, products, rows, output] =
        ["columns", "tiles", "products", "rows", "output"].map(|name| s.get_block(name));
    let (columns, tiles, products, rows, output) = (columns?, tiles?, products?, rows?, output?);
    let stored = s.cache_write(products, 0, BufferScope::Register)?;

    // Output: blocks of tiles, panels of channels, tiles, and the elements of one tile.
    let [_, k, y, x] = s.get_loops(output)?[..] else { return Err(no_stages("output")) };
    let k = s.split(k, [None, Some(cut.panel / cut.lanes), Some(cut.lanes)])?;
    let (y, x) = (s.split(y, [None, Some(m)])?, s.split(x, [None, Some(m)])?);
    s.reorder(&[y[0], x[0], k[0], k[1], y[1], x[1], k[2]])?;
    let tile = s.fuse(&[y[0], x[0]])?;
    let [block, tile] = s.split_even(tile, cut.tiles)?;
    s.reorder(&[block, k[0], tile, k[1], y[1], x[1], k[2]])?;
    s.unroll(y[1])?;
    s.unroll(x[1])?;
    s.vectorize(k[2])?;

    s.compute_at(rows, k[1])?;
    let [row, column, _, lane] = own_loops(s, rows, k[1])?[..] else {
        return Err(no_stages("rows"));
    };
    s.reorder(&[column, row])?;
    s.unroll(row)?;
    s.unroll(column)?;
    s.vectorize(lane)?;

    // Products: a matrix product for each of the tile's elements, in register tiles.
    s.compute_at(stored, k[0])?;
    let [_, _, row, column] = own_loops(s, stored, k[0])?[..] else {
        return Err(no_stages("products"));
    };
    let [run, row] = s.split_even(row, cut.rows)?;
    unroll_and_vectorize(s, row, column, cut.lanes)?;
    s.compute_at(products, run)?;
    let [_, _, row, column, c] = own_loops(s, products, run)?[..] else {
        return Err(no_stages("products"));
    };
    s.reorder(&[c, row, column])?;
    unroll_and_vectorize(s, row, column, cut.lanes)?;
    s.decompose_reduction(products, c)?;

    // Inputs: each tile in vectors of channels.
    s.compute_at(tiles, block)?;
    let [i, j, tile, c] = own_loops(s, tiles, block)?[..] else { return Err(no_stages("tiles")) };
    let [outer_c, c] = s.split(c, [None, Some(cut.lanes)])?;
    s.reorder(&[tile, outer_c, i, j, c])?;
    s.unroll(i)?;
    s.unroll(j)?;
    s.vectorize(c)?;
    s.compute_at(columns, outer_c)?;
    let [i, b, _, c] = own_loops(s, columns, outer_c)?[..] else {
        return Err(no_stages("columns"));
    };
    s.reorder(&[b, i, c])?;
    s.unroll(i)?;
    s.unroll(b)?;
    s.vectorize(c)?;
    Ok(())
}

/// Rows and vectors of a register tile, written out.
fn unroll_and_vectorize(
    s: &mut Schedule,
    row: LoopRv,
    column: LoopRv,
    lanes: i64,
) -> Result<(), ScheduleError> {
    let [vector, lane] = s.split(column, [None, Some(lanes)])?;
    s.unroll(row)?;
    s.unroll(vector)?;
    s.vectorize(lane)
}

/// The loops of a block that are inside another of its loops.
fn own_loops(
    s: &mut Schedule,
    block: BlockRv,
    outer: LoopRv,
) -> Result<Vec<LoopRv>, ScheduleError> {
    let loops = s.get_loops(block)?;
    let place = loops.iter().position(|&inner| s.is_same_loop(inner, outer));
    Ok(loops[place.map_or(0, |place| place + 1)..].to_vec())
}

fn no_stages(stage: &str) -> ScheduleError {
    ScheduleError {
        primitive: "winograd",
        message: format!("the loops of stage `{stage}` are not those of a convolution"),
    }
}
