//! How sums of products are cut into register tiles: their shape, their order, and what is asked
//! for before it is read.
//!
//! A tile reads rows of the left operand (pixels of an image, rows of a matrix) and a panel of
//! packed weights. Its shape and order are those of least cost: the cycles of its multiply-adds,
//! and a share of the cycles it takes to move what it reads between the levels of the cache. The
//! figures are those of experiments on a server of 2023 (Emerald Rapids) with kernels written by
//! hand; what counts is their ratio, which changes little from machine to machine.

use std::fmt;
use std::ops::RangeInclusive;

use super::machine::{FEW_ROWS, MIDDLE_RATE, Machine, PER_CYCLE, split_even};
use super::words::MIN_TILES;
use crate::ir::DType;

/// Cycles until a sum can be added to again.
const LATENCY: i64 = 4;

/// Sums that are added to before the first of them can be again.
pub(super) const IN_FLIGHT: i64 = LATENCY * PER_CYCLE;

/// Bytes in a cycle from the third level.
const FAR_RATE: f64 = 10.0;

/// Shares of the time of moving bytes that multiply-adds do not hide: from the second level; from
/// the third; from there if they have been asked for.
const MIDDLE_SHARE: f64 = 0.2;
const FAR_SHARE: f64 = 0.7;
const FETCHED_SHARE: f64 = 0.2;

/// Cycles of storing to a line of the cache alone. Lines that follow one another cost less than a
/// tile's sums hide.
const SCATTERED_STORE: f64 = 3.0;

/// Fewest rows with which a panel is worked on for long enough to fetch the next one meanwhile.
/// With fewer, reading the weights is all that takes time, and asking for them takes more of it,
/// unless they come from afar.
const MIN_FETCHING_ROWS: i64 = 16;

/// Whether the next panel is asked for though there are but few rows: the weights of a model have so
/// many bytes that none are in a near cache when their turn comes, and more of them are on their way
/// then.
pub(super) fn comes_from_afar(machine: Machine, weights: i64) -> bool {
    weights > machine.caches[1]
}

/// Bytes of weights from which panels are fetched ahead. Fewer stay in the cache from one inference
/// to the next, or take no time to speak of.
pub(super) const MIN_FETCHED_WEIGHTS: i64 = 128 << 10;

/// Steps of a sum after which what is asked for is read: as many cycles as the second level takes.
const STEPS_AHEAD: i64 = 8;

/// Bytes of a line of the cache, those of a way of the first level, which no page is smaller than, and
/// fewest ways that there are.
const LINE: i64 = 64;
const WAY_BYTES: i64 = 4096;
const WAYS: i64 = 8;

/// Share of the cycles that a second width of panels costs: its tiles are another piece of code.
const OTHER_WIDTH: f64 = 0.01;

/// Share of the second cache level for a block of rows that is worked on with all panels before the
/// next one, in sixteenths.
const BLOCK_SIXTEENTHS: i64 = 5;

/// A sum of products, for one group and one image of a convolution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Work {
    /// Rows and pixels of the result, or 1 and the rows of a matrix.
    pub(super) rows: [i64; 2],
    /// Columns of the result: output channels.
    pub(super) columns: i64,
    /// Terms of each sum.
    pub(super) depth: i64,
    /// What the sums are of.
    pub(super) sum: DType,
    /// Whether four terms of a sum are one step: [`TileType::fours`](super::tile::TileType::fours).
    pub(super) fours: bool,
    /// What one element of `rows` reads of the left operand.
    pub(super) window: Window,
    /// Whether one row of the result does not follow the other in memory.
    pub(super) scattered: bool,
    /// Bytes from one row of the left operand to the next, if one does not follow the other.
    pub(super) stride: Option<i64>,
    /// Bytes of all weights that are read between one run and the next, as far as they are known: at
    /// least its own.
    pub(super) weights: i64,
}

/// What is read for one pixel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Window {
    /// Pixels from one window to the next.
    pub(super) strides: [i64; 2],
    /// Pixels of a window.
    pub(super) extents: [i64; 2],
    /// Bytes of a pixel: all its channels.
    pub(super) pixel: i64,
}

impl Window {
    /// Bytes that some rows and pixels of the result read.
    fn bytes(&self, rows: [i64; 2]) -> i64 {
        let axis = |axis: usize| {
            let (stride, extent) = (self.strides[axis], self.extents[axis]);
            (rows[axis] - 1) * stride.min(extent) + extent
        };
        axis(0) * axis(1) * self.pixel
    }
}

/// What is in the outer loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Order {
    /// Tiles of rows, each of which goes over all panels.
    Rows,
    /// Panels of weights, each of which goes over all tiles of a block of rows; and as many of
    /// those around them.
    Panels { blocks: i64 },
}

/// How a sum of products is cut into tiles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Tiling {
    /// Registers of a row of a panel, on the machine that weights are packed for.
    pub(crate) vectors: i64,
    /// What is in the outer loop.
    pub(crate) order: Order,
    /// Steps of the sum after which what is asked for is read; 0 to ask for nothing.
    pub(crate) ahead: i64,
    /// Whether the next panel is asked for while one is worked on.
    pub(crate) next: bool,
    /// What it costs.
    pub(crate) cycles: u64,
}

impl Tiling {
    /// The tiling of least cost on a machine, whose weights are packed for `packing`: that, or one with
    /// wider registers.
    pub(crate) fn choose(packing: Machine, machine: Machine, work: &Work) -> Tiling {
        let packed = Tiling::ranked(packing, packing, work, work.widths(packing))[0];
        if machine == packing {
            return packed;
        }
        Tiling::ranked(packing, machine, work, packed.vectors..=packed.vectors)[0]
    }

    /// Tilings with panels of so many registers of `packing`, those of least cost first.
    fn ranked(
        packing: Machine,
        machine: Machine,
        work: &Work,
        widths: RangeInclusive<i64>,
    ) -> Vec<Tiling> {
        let mut all = Vec::new();
        for vectors in widths {
            let cuts = Cuts::of(machine, work, vectors * packing.sums(work.sum));
            let mut orders = vec![Order::Panels { blocks: 1 }, work.blocked_order(machine)];
            // Panels are widened one by one.
            if !work.is_widened(machine) {
                orders.push(Order::Rows);
            }
            all.extend(orders.into_iter().map(|order| cuts.tiling(work, order, vectors)));
        }
        // Of equal ones the first.
        all.sort_by(|a, b| a.0.total_cmp(&b.0));
        all.into_iter().map(|(_, tiling)| tiling).collect()
    }

    /// The tilings that are worth measuring, with panels as wide as these, and with what else may be
    /// fetched ahead if anything may. The first one is that of least cost.
    pub(crate) fn candidates(
        packing: Machine,
        machine: Machine,
        work: &Work,
        widths: Option<i64>,
        may_fetch: bool,
    ) -> Vec<Tiling> {
        let widths = widths.map_or_else(|| work.widths(packing), |vectors| vectors..=vectors);
        let ranked = Tiling::ranked(packing, machine, work, widths);
        let mut all: Vec<Tiling> = Vec::new();
        let fetching = |tiling: &Tiling| {
            let aheads = if work.depth > STEPS_AHEAD { vec![0, STEPS_AHEAD] } else { vec![0] };
            let nexts: &[bool] =
                if tiling.order == Order::Rows { &[false] } else { &[false, true] };
            let pairs = aheads.into_iter().flat_map(|ahead| nexts.iter().map(move |&n| (ahead, n)));
            let tiling = *tiling;
            pairs.map(move |(ahead, next)| Tiling { ahead, next, ..tiling }).collect::<Vec<_>>()
        };
        let others = ranked.iter().flat_map(fetching);
        for tiling in ranked.iter().copied().chain(others) {
            let tiling =
                if may_fetch { tiling } else { Tiling { ahead: 0, next: false, ..tiling } };
            let key = |t: &Tiling| (t.vectors, t.order, t.ahead, t.next);
            if !all.iter().any(|former| key(former) == key(&tiling)) {
                all.push(tiling);
            }
        }
        all
    }
}

/// For reports: the width of panels, the loop outside, what is fetched ahead.
impl fmt::Display for Tiling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "panels of {} vectors, ", self.vectors)?;
        match self.order {
            Order::Rows => f.write_str("rows outside"),
            Order::Panels { blocks: 1 } => f.write_str("panels outside"),
            Order::Panels { blocks } => write!(f, "panels outside in {blocks} blocks of rows"),
        }?;
        f.write_str(if self.ahead > 0 { ", prefetched" } else { "" })?;
        f.write_str(if self.next { ", next panel prefetched" } else { "" })
    }
}

impl Work {
    /// The product of a matrix of `m` rows, of so many bytes each, with one of `n` columns, in sums of
    /// `depth` terms.
    pub(crate) fn product(m: i64, n: i64, depth: i64, row_bytes: i64) -> Work {
        Work {
            rows: [1, m],
            columns: n,
            depth,
            sum: DType::F32,
            fours: false,
            window: Window { strides: [1, 1], extents: [1, 1], pixel: row_bytes },
            scattered: true,
            stride: Some(row_bytes),
            weights: 0,
        }
    }

    /// Most of so many rows whose lines stay in the first cache level while a tile goes over them: those
    /// whose distance is a multiple of that within a way of the cache compete for one set of lines.
    pub(super) fn rows_in_ways(&self, rows: i64) -> i64 {
        let Some(stride) = self.stride else { return rows };
        let apart = 1i64 << stride.trailing_zeros().min(WAY_BYTES.trailing_zeros());
        // The panel passes through as well.
        rows.min((WAYS - 1) * (WAY_BYTES / apart))
    }

    /// Bytes that a step of the sums of a tile of so many rows would bring from the second level though
    /// it was in the first. Tiles are lower instead, and wider ones lose less by that.
    fn evicted_bytes(&self, rows: i64) -> i64 {
        if self.rows_in_ways(rows) == rows { 0 } else { rows * LINE }
    }

    fn left_bytes(&self) -> i64 {
        self.window.bytes(self.rows)
    }

    /// Whether panels of its weights are widened to words before tiles go over them.
    fn is_widened(&self, machine: Machine) -> bool {
        let most = MIN_TILES * machine.tile_rows(2);
        machine.words && self.fours && self.rows[0] * self.rows[1] >= most
    }

    /// How many registers of a machine the rows of a panel may have.
    fn widths(&self, machine: Machine) -> RangeInclusive<i64> {
        let lanes = machine.sums(self.sum);
        let needed = (self.columns + lanes - 1) / lanes;
        let (least, most) = match self.rows[0] * self.rows[1] {
            1 if machine.registers < 32 => (6, 6),
            few @ 1..=FEW_ROWS => (machine.vectors_of_few(few), machine.vectors_of_few(few)),
            _ if machine.registers >= 32 => (2, 4),
            _ if self.is_widened(machine) => (2, 2),
            _ => (2, 3),
        };
        least.min(needed)..=most.min(needed)
    }

    /// Panels outside, in blocks of lines of an image, or rows of a matrix, that stay in the second
    /// level.
    pub(super) fn blocked_order(&self, machine: Machine) -> Order {
        let rows = if self.scattered { self.rows[1] } else { self.rows[0] };
        let room = machine.caches[1] * BLOCK_SIXTEENTHS / 16;
        let wanted = ((self.left_bytes() + room - 1) / room).clamp(1, rows.max(1));
        // Equal blocks have equal tiles.
        let blocks = (wanted..2 * wanted).find(|blocks| rows % blocks == 0);
        Order::Panels { blocks: blocks.unwrap_or(wanted) }
    }
}

/// The tiles of a work.
struct Cuts {
    machine: Machine,
    /// Runs of tiles of one size: how many, and rows and pixels of each.
    tiles: Vec<(i64, [i64; 2])>,
    /// Runs of panels of one size, or of the tiles' parts of them: how many, and registers of each.
    panels: [(i64, i64); 2],
    /// Bytes of a whole one.
    panel_bytes: i64,
    weight_bytes: i64,
}

impl Cuts {
    /// Of panels of so many columns.
    fn of(machine: Machine, work: &Work, panel: i64) -> Cuts {
        let lanes = machine.sums(work.sum);
        let pixels = work.rows[0] * work.rows[1];
        let vectors = machine.tile_columns(panel, pixels, work.sum) / lanes;
        let most = machine.tile_rows(vectors);
        let needed = (work.columns + lanes - 1) / lanes;
        let tiles = tile_runs(work.rows, most)
            .into_iter()
            .map(|[y, x]| (y.count * x.count, [y.size, x.size]))
            .collect();
        let row = work.depth * lanes * 4;
        Cuts {
            machine,
            tiles,
            panels: [
                (needed / vectors, vectors),
                (i64::from(needed % vectors > 0), needed % vectors),
            ],
            panel_bytes: vectors * row,
            weight_bytes: needed * row,
        }
    }

    /// The tiling in an order, with its cost.
    fn tiling(&self, work: &Work, order: Order, vectors: i64) -> (f64, Tiling) {
        let next = order != Order::Rows && self.fetches_next(work);
        let cost = self.cost(work, order, next);
        let ahead = if self.streams(work, order) { STEPS_AHEAD } else { 0 };
        (cost, Tiling { vectors, order, ahead, next, cycles: cost as u64 })
    }

    fn tile_count(&self) -> i64 {
        self.tiles.iter().map(|run| run.0).sum()
    }

    fn panel_count(&self) -> i64 {
        self.panels.iter().map(|run| run.0).sum()
    }

    /// Whether panels are worth fetching while others are worked on.
    fn fetches_next(&self, work: &Work) -> bool {
        let rows = work.rows[0] * work.rows[1];
        let is_worked_on = rows >= MIN_FETCHING_ROWS && self.weight_bytes >= MIN_FETCHED_WEIGHTS;
        let is_far = comes_from_afar(self.machine, work.weights.max(self.weight_bytes));
        self.panel_count() > 1 && (is_worked_on || (rows < MIN_FETCHING_ROWS && is_far))
    }

    /// Whether tiles read weights from beyond the first cache level.
    fn streams(&self, work: &Work, order: Order) -> bool {
        let swept = match order {
            Order::Rows => self.weight_bytes,
            Order::Panels { .. } => self.panel_bytes,
        };
        // Of few rows, each step reads more lines than it multiplies rows.
        swept > self.machine.near_bytes()
            && work.depth > STEPS_AHEAD
            && work.rows[0] * work.rows[1] > FEW_ROWS
    }

    /// Cycles.
    fn cost(&self, work: &Work, order: Order, next: bool) -> f64 {
        let (tiles, panels) = (self.tile_count(), self.panel_count());
        let mut steps = 0.0;
        let (mut tile_bytes, mut largest, mut evicted) = (0, 0, 0.0);
        for &(count, rows) in &self.tiles {
            let sums = rows[0] * rows[1];
            for (panels, vectors) in self.panels {
                steps += (count * panels) as f64 * step_cycles(sums, vectors);
            }
            evicted += (count * panels) as f64 * work.evicted_bytes(sums) as f64;
            let bytes = work.window.bytes(rows);
            tile_bytes += count * bytes;
            largest = largest.max(bytes);
        }
        let left = work.left_bytes();
        let (near, stays) = (self.machine.near_bytes(), self.machine.middle_bytes());
        let again = |once: bool, times: i64| if once { 1 } else { times };
        let (middle, far) = match order {
            Order::Rows => {
                let weights = self.weight_bytes * again(self.weight_bytes <= near, tiles);
                let rows = tile_bytes * again(largest <= near, panels);
                let resident = self.weight_bytes <= stays;
                let weights_far = self.weight_bytes * again(resident, tiles);
                (weights + rows, FAR_SHARE * (left + weights_far) as f64)
            }
            Order::Panels { blocks } => {
                let weights = self.weight_bytes * again(self.panel_bytes <= near, tiles);
                let resident = left / blocks <= stays;
                let share = if next { FETCHED_SHARE } else { FAR_SHARE };
                let rows_far = left * again(resident, panels);
                let weights_far = self.weight_bytes * blocks;
                (
                    weights + tile_bytes * panels,
                    FAR_SHARE * rows_far as f64 + share * weights_far as f64,
                )
            }
        };
        let lines = work.rows[0] * work.rows[1] * work.columns * 4 / LINE;
        let stores = match order {
            Order::Panels { .. } if work.scattered => lines as f64 * SCATTERED_STORE,
            Order::Panels { .. } | Order::Rows => 0.0,
        };
        let widths = self.panels.iter().filter(|run| run.0 > 0).count().saturating_sub(1);
        steps * work.depth as f64 * (1.0 + widths as f64 * OTHER_WIDTH)
            + (middle as f64 + evicted * work.depth as f64) / MIDDLE_RATE * MIDDLE_SHARE
            + far / FAR_RATE
            + stores
    }
}

/// Cycles of one step of a tile's sums: as many as its multiply-adds, its loads or the latency of a
/// sum take.
fn step_cycles(rows: i64, vectors: i64) -> f64 {
    let most = (rows * vectors).max(rows + vectors).max(IN_FLIGHT);
    if vectors == 0 { 0.0 } else { most as f64 / PER_CYCLE as f64 }
}

/// Tiles of one size along an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    /// Where the first one begins.
    pub(super) first: i64,
    /// How many there are.
    pub(super) count: i64,
    /// The extent of each.
    pub(super) size: i64,
}

impl Run {
    /// An axis in runs of at most two sizes, as even as can be.
    pub(super) fn cover(extent: i64, most: i64) -> Vec<Run> {
        let mut first = 0;
        let mut runs = Vec::new();
        for (count, size) in split_even(extent, most) {
            runs.push(Run { first, count, size });
            first += count * size;
        }
        runs
    }
}

/// Tiles of at most `most` pixels that cover an image: as much of a line as fits, and as many lines
/// as fit then. Lines and pixels of each run.
pub(super) fn tile_runs([lines, pixels]: [i64; 2], most: i64) -> Vec<[Run; 2]> {
    Run::cover(pixels, most)
        .into_iter()
        .flat_map(|x| Run::cover(lines, (most / x.size).max(1)).into_iter().map(move |y| [y, x]))
        .collect()
}

#[cfg(test)]
mod tests;
