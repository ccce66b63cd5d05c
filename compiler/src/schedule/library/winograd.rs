//! The schedule for Winograd's convolution, in blocks of tiles.

use std::fmt;

use crate::ir::{BufferSpec, DType};
use crate::schedule::{BlockRv, BufferAccess, LoopRv, Schedule, ScheduleError};
use crate::strategy::Machine;
use crate::target::Target;
use crate::te::topi::winograd::Winograd;
use crate::tir::BufferScope;

/// The sizes of the blocks and register tiles of a convolution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WinogradTiles {
    /// Maximum number of tiles of a block: transformed inputs and products of one block stay in the
    /// second-level cache.
    pub tiles: i64,
    /// Maximum number of tiles of a register tile.
    pub rows: i64,
    /// Number of output channels of a register tile.
    pub panel: i64,
    /// Number of output channels that are adjacent in the weights' layout: a multiple of `panel`.
    pub packed: i64,
    /// Elements of a vector.
    pub lanes: i64,
    /// Whether weights are prefetched while the ones before them in memory are used.
    pub prefetch: bool,
}

/// Largest block of tiles that is read from beyond the second-level cache, as a multiple of what stays
/// there.
const LARGEST_BLOCK: i64 = 4;

/// How many times as many bytes smaller blocks have to move: larger ones take memory, and leave
/// fewer of them to threads.
const LARGER_GAIN: f64 = 1.2;

/// Register tiles of a block, where several are measured.
const MEASURED_BLOCKS: [i64; 6] = [1, 2, 3, 4, 6, 8];

impl WinogradTiles {
    /// Register tiles of two vectors of channels if that divides the channels, else of three or of
    /// one. If the weights stay in the second-level cache, blocks are small, so that they stay
    /// there too; else blocks are as large as fits, or larger where reading the weights for more
    /// blocks would move more bytes than reading a block again for each panel. Both are whole
    /// register tiles.
    ///
    /// `extents` are the convolution's input channels, output channels, height and width.
    pub fn choose(algorithm: Winograd, extents: [i64; 4], target: &Target) -> WinogradTiles {
        WinogradTiles::cheapest(algorithm, extents, Machine::of(target))
    }

    fn cheapest(algorithm: Winograd, extents: [i64; 4], machine: Machine) -> WinogradTiles {
        let [_, out, ..] = extents;
        let whole = |vectors: &i64| out % (vectors * machine.lanes(DType::F32)) == 0;
        let vectors = [2, 3].into_iter().find(whole).unwrap_or(1);
        WinogradTiles::of(algorithm, extents, machine, vectors)
    }

    /// Those of [`choose`](Self::choose), then others that are worth measuring: with other register
    /// tiles, with larger and smaller blocks, with weights prefetched or not.
    pub fn candidates(
        algorithm: Winograd,
        extents: [i64; 4],
        machine: Machine,
    ) -> Vec<WinogradTiles> {
        let [_, out, ..] = extents;
        let whole = |vectors: &i64| out % (vectors * machine.lanes(DType::F32)) == 0;
        let most = tile_count(algorithm, extents);
        let mut all = vec![WinogradTiles::cheapest(algorithm, extents, machine)];
        for vectors in (1..=3).filter(whole) {
            let own = WinogradTiles::of(algorithm, extents, machine, vectors);
            let blocks = MEASURED_BLOCKS.map(|times| times * own.rows);
            let blocks = blocks.into_iter().filter(|&tiles| tiles < most + own.rows);
            for tiles in std::iter::once(own.tiles).chain(blocks) {
                for prefetch in [own.prefetch, !own.prefetch] {
                    let other = WinogradTiles { tiles, prefetch, ..own };
                    if !all.contains(&other) {
                        all.push(other);
                    }
                }
            }
        }
        all
    }

    /// Register tiles of so many vectors of channels.
    fn of(algorithm: Winograd, extents: [i64; 4], machine: Machine, vectors: i64) -> WinogradTiles {
        let [channels, out, ..] = extents;
        let lanes = machine.lanes(DType::F32);
        let (rows, panel) = (machine.tile_rows(vectors), vectors * lanes);
        let count = tile_count(algorithm, extents);
        let bytes = |elements: i64| {
            let elements = elements.saturating_mul(algorithm.inputs().pow(2));
            elements.saturating_mul(4)
        };
        let prefetch = bytes(channels.saturating_mul(out)) > machine.middle_bytes();
        let tiles = if prefetch {
            let weights = bytes(channels.saturating_mul(out));
            let within = |bytes_of_cache: i64| {
                let fit = bytes_of_cache / bytes(channels.saturating_add(panel)).max(1);
                if fit < count { (fit - fit % rows).max(rows) } else { count.max(rows) }
            };
            let fit = within(machine.middle_bytes());
            let again = (out / panel).saturating_mul(bytes(channels).saturating_mul(count));
            let moved = |tiles: i64| {
                let blocks = (count + tiles - 1) / tiles;
                let again = if tiles > fit { again } else { 0 };
                blocks.saturating_mul(weights).saturating_add(again)
            };
            let larger = within(machine.middle_bytes().saturating_mul(LARGEST_BLOCK));
            if moved(larger) as f64 * LARGER_GAIN < moved(fit) as f64 { larger } else { fit }
        } else {
            // Register tiles are as high as they can be: lower ones wait for their sums. Then blocks
            // of one size, so that there is one copy of the code; else as few as possible.
            let heights = |tiles: i64| (tiles + rows - 1) / rows;
            let register_tiles =
                |tiles: i64| count / tiles * heights(tiles) + heights(count % tiles);
            let is_ragged = |tiles: i64| count % tiles != 0;
            (rows..=2 * rows)
                .min_by_key(|&tiles| {
                    let last = if is_ragged(tiles) { -tiles } else { tiles };
                    (register_tiles(tiles), is_ragged(tiles), last)
                })
                .unwrap_or(rows)
        };
        WinogradTiles { tiles, rows, panel, packed: panel, lanes, prefetch }
    }
}

/// Tiles of an image.
fn tile_count(algorithm: Winograd, [_, _, height, width]: [i64; 4]) -> i64 {
    let m = algorithm.outputs();
    ((height + m - 1) / m).saturating_mul((width + m - 1) / m).max(1)
}

/// `blocks of 28 tiles, register tiles of 14 x 32`.
impl fmt::Display for WinogradTiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WinogradTiles { tiles, rows, panel, packed: _, lanes: _, prefetch } = self;
        write!(f, "blocks of {tiles} tiles, register tiles of {rows} x {panel}")?;
        f.write_str(if *prefetch { ", weights prefetched" } else { "" })
    }
}

/// The loops of a scheduled convolution.
#[derive(Clone, Copy, Debug)]
pub struct WinogradLoops {
    /// Over blocks of tiles; iterations are independent.
    pub blocks: LoopRv,
    /// Over the tiles of a block while inputs are transformed.
    pub inputs: LoopRv,
    /// Over panels of output channels of a block, after its inputs are transformed.
    pub panels: LoopRv,
}

/// Schedules the stages of [`conv2d`](crate::te::topi::winograd::conv2d). The transformed weights
/// get the layout `[out / packed][n][n][in][packed]`, which is the order of their reads.
///
/// Transforms are loops over rows and over columns of a tile, not written out: that takes a third
/// of the code and of the C compiler's time, and is 1% slower.
///
/// # Errors
///
/// The function does not have these stages, the input channels are no multiple of a vector, or the
/// output channels none of a panel.
pub fn winograd(
    s: &mut Schedule,
    algorithm: Winograd,
    cut: WinogradTiles,
) -> Result<WinogradLoops, ScheduleError> {
    let (m, n) = (algorithm.outputs(), algorithm.inputs());
    let [columns, tiles, products, rows, output] =
        ["columns", "tiles", "products", "rows", "output"].map(|name| s.get_block(name));
    let (columns, tiles, products, rows, output) = (columns?, tiles?, products?, rows?, output?);
    let [.., out, c] = s.get_loops(products)?[..] else { return Err(no_stages("products")) };
    let (out, channels) = (s.get_extent(out)?, s.get_extent(c)?);
    must_divide("vector", cut.lanes, "input", channels)?;
    must_divide("panel", cut.packed, "output", out)?;
    let order = [(3, cut.packed), (0, 1), (1, 1), (2, 1), (3, 1)];
    let weights = BufferSpec::packed(&[n, n, channels, out], &order);
    s.transform_layout(products, BufferAccess::Read(1), &weights)?;
    let stored = s.cache_write(products, 0, BufferScope::Register)?;

    // Output: blocks of tiles, panels of channels, tiles, and the elements of one tile.
    let [_, k, y, x] = s.get_loops(output)?[..] else { return Err(no_stages("output")) };
    let k = s.split(k, [None, Some(cut.panel / cut.lanes), Some(cut.lanes)])?;
    let (y, x) = (s.split(y, [None, Some(m)])?, s.split(x, [None, Some(m)])?);
    s.reorder(&[y[0], x[0], k[0], k[1], y[1], x[1], k[2]])?;
    let tile = s.fuse(&[y[0], x[0]])?;
    let [block, tile] = s.split_even(tile, cut.tiles)?;
    s.reorder(&[block, k[0], tile, k[1], y[1], x[1], k[2]])?;
    s.unroll(x[1])?;
    s.vectorize(k[2])?;

    s.compute_at(rows, k[1])?;
    let [row, column, _, lane] = own_loops(s, rows, k[1])?[..] else {
        return Err(no_stages("rows"));
    };
    s.reorder(&[column, row])?;
    s.unroll(row)?;
    s.vectorize(lane)?;

    // Products: a matrix product for each of the tile's elements, in register tiles.
    s.compute_at(stored, k[0])?;
    let [_, point, row, column] = own_loops(s, stored, k[0])?[..] else {
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
    if cut.prefetch {
        // The weights of the tile's next element, which also follow in memory.
        s.prefetch_next(products, BufferAccess::Read(1), point, c, 2)?;
    }

    // Inputs: each tile in vectors of channels.
    s.compute_at(tiles, block)?;
    let [i, j, inputs, c] = own_loops(s, tiles, block)?[..] else { return Err(no_stages("tiles")) };
    let [outer_c, c] = s.split(c, [None, Some(cut.lanes)])?;
    s.reorder(&[inputs, outer_c, i, j, c])?;
    s.unroll(j)?;
    s.vectorize(c)?;
    s.compute_at(columns, outer_c)?;
    let [i, b, _, c] = own_loops(s, columns, outer_c)?[..] else {
        return Err(no_stages("columns"));
    };
    s.reorder(&[b, i, c])?;
    s.unroll(i)?;
    s.vectorize(c)?;
    s.independent(block)?;
    Ok(WinogradLoops { blocks: block, inputs, panels: k[0] })
}

fn must_divide(what: &str, by: i64, whose: &str, channels: i64) -> Result<(), ScheduleError> {
    if channels % by == 0 {
        return Ok(());
    }
    let message = format!(
        "the {whose} has {channels} channels, and a {what} takes {by}; pad the channels of the \
         {whose} to a multiple",
    );
    Err(ScheduleError { primitive: "winograd", message })
}

/// Vectorizes, and unrolls the rows and vectors of a register tile.
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
