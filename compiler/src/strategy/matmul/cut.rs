//! How matrix products are cut into tiles.

use super::{MatMul, Matrices, RowCount};
use crate::ir::{BufferSpec, DType};
use crate::strategy::emit::Emitter;
use crate::strategy::fetch::{Fetch, RUN_TIME_SHARERS};
use crate::strategy::machine::{MAX_TILE_ROWS, Machine};
use crate::strategy::tile::{ColumnRun, FOUR, MOST_MATRIX_ROWS, Sums, divisor_of_steps, steps};
use crate::strategy::tiling::{IN_FLIGHT, MIN_FETCHED_WEIGHTS, Order, Tiling, Work};
use crate::tir::MATRIX_GRID;

/// Fewest rows of a product whose sums are in matrices: of fewer, reading the weights is what takes time.
const LEAST_MATRIX_ROWS: i64 = 8;

/// How a product is cut into tiles.
#[derive(Clone)]
pub(in crate::strategy) struct Cut {
    pub(super) tiling: Tiling,
    /// Columns of a panel.
    panel: i64,
    pub(super) panels: Vec<ColumnRun>,
    /// Where the sums of a tile are.
    pub(super) sums: Sums,
    /// Most rows of a tile.
    pub(super) rows: i64,
}

impl Cut {
    /// Most registers of a row of a tile.
    fn vectors(&self) -> i64 {
        self.panels.iter().map(|run| run.columns.vectors).max().unwrap_or(1)
    }

    /// Whether a tile has all columns.
    pub(super) fn is_one_tile(&self) -> bool {
        let tiles = |run: &ColumnRun| run.loops.iter().map(|of| of.0).product::<i64>();
        self.panels.iter().map(tiles).sum::<i64>() == 1
    }

    /// Most tiles of so many rows.
    pub(super) fn tiles(&self, rows: &RowCount) -> i64 {
        (rows.most + self.rows - 1) / self.rows
    }

    /// How many tiles ask for the next panel, each for a part of it.
    pub(super) fn fetching_tiles(&self, rows: &RowCount) -> i64 {
        match rows.of_run {
            Some(_) => RUN_TIME_SHARERS,
            None => self.tiles(rows),
        }
    }

    /// What is asked for while `tiles` tiles go over each panel of a run.
    pub(super) fn fetch(&self, p: &MatMul, run: &ColumnRun, tiles: i64) -> Fetch {
        let panel = [p.ty.steps(p.k) / p.rhs.share(), self.panel];
        Fetch::new(&self.tiling, p.rhs.buffer, p.ty, panel, run, tiles)
    }
}

impl MatMul {
    /// The product in words, where `rows` rows are computed at a time, `times` times in all.
    fn described(&self, rows: i64, times: i64) -> String {
        let MatMul { k, n, ty, .. } = self;
        let matrix = match &self.rhs {
            Matrices { copied_from: Some(_), .. } => "copied",
            Matrices { in_panels: false, .. } => "read where it is",
            Matrices { widened: Some(_), .. } => "widened",
            Matrices { .. } => "packed",
        };
        format!("matmul {times}x{rows}x{k} by {k}x{n}, {ty}, {matrix}")
    }
}

impl Emitter {
    /// How a product is cut where `rows` rows are computed at a time, `times` times in all.
    pub(in crate::strategy) fn cut_product(&mut self, p: &MatMul, rows: i64, times: i64) -> Cut {
        let mut work = Work::product(rows, p.n, p.ty.steps(p.k), p.k * p.ty.bytes());
        (work.sum, work.fours) = (p.ty.sum, p.ty.fours);
        work.weights = self.facts.weight_bytes;
        if p.transpose_a {
            work.stride = None;
        }
        let packing = if p.rhs.in_panels { self.packing } else { self.machine };
        // A copy is in a cache; what comes next in memory where the matrix is read is no panel.
        let may_fetch = p.rhs.copied_from.is_none() && p.rhs.in_panels;
        let tiling = match p.rows.of_run {
            Some(_) => self.tiling_of_runs(&work, packing, may_fetch),
            None if p.rhs.widened.is_some() && rows > MAX_TILE_ROWS => {
                // Panels are widened one by one.
                let tiling = Tiling::choose(packing, self.machine, &work);
                let order = match tiling.order {
                    Order::Rows => Order::Panels { blocks: 1 },
                    Order::Panels { .. } => tiling.order,
                };
                Tiling { order, ahead: 0, next: tiling.next && may_fetch, ..tiling }
            }
            None => self.tiling(&p.described(rows, times), &work, packing, may_fetch),
        };
        let sums = self.sums_of_product(p, rows);
        // The cost is that of sums in vectors.
        let cycles = tiling.cycles.saturating_mul(times.unsigned_abs());
        let cycles = (sums == Sums::Vectors).then_some(cycles);
        let rule = match sums {
            Sums::Matrices => "matrix product by products of matrices of bytes",
            Sums::Vectors if p.ty.fours => "matrix product by dot products",
            Sums::Vectors => "matrix product",
        };
        self.note(p.inner, rule, tiling.to_string(), cycles, None);
        let panel = tiling.vectors * packing.sums(p.ty.sum);
        let lanes = self.machine.sums(p.ty.sum);
        let width = match sums {
            Sums::Vectors => self.machine.tile_columns(panel, rows, p.ty.sum),
            Sums::Matrices => self.machine.columns_of_at_most(panel, MATRIX_GRID, p.ty.sum),
        };
        let panels = if p.rhs.in_panels {
            let shape = self.func.buffers[p.rhs.buffer].shape().to_vec();
            let first = p.rhs.batch.len();
            let (columns, depth) = if p.transpose_b { (0, 1) } else { (1, 0) };
            let (columns, depth) = (first + columns, first + depth);
            let dims: &[(usize, i64)] = match p.ty.fours {
                false => &[(columns, panel), (depth, 1), (columns, 1)],
                true => &[(columns, panel), (depth, FOUR), (columns, 1), (depth, 1)],
            };
            let batch = (0..first).map(|axis| (axis, 1));
            let dims: Vec<(usize, i64)> = batch.chain(dims.iter().copied()).collect();
            self.func.buffers[p.rhs.buffer].spec = BufferSpec::packed(&shape, &dims);
            for &scale in p.rhs.widened.iter().flat_map(|widened| &widened.scales) {
                let shape = self.func.buffers[scale].shape().to_vec();
                self.func.buffers[scale].spec = BufferSpec::packed(&shape, &dims);
            }
            ColumnRun::cover(p.n, &steps(&[panel, width]), lanes)
        } else {
            ColumnRun::within(p.n, width, lanes)
        };
        let most = match sums {
            Sums::Vectors => work.rows_in_ways(p.ty.rows(self.machine, width / lanes)),
            Sums::Matrices => MOST_MATRIX_ROWS,
        };
        Cut { tiling, panel, panels, sums, rows: most.min(rows) }
    }

    /// Where the sums of a product of so many rows are: in matrices if they are of bytes whose sums divide
    /// into equal steps, and so many that a register of rows is not mostly empty.
    fn sums_of_product(&self, p: &MatMul, rows: i64) -> Sums {
        let is_known = p.rows.of_run.is_none() && p.columns.is_none() && p.rhs.widened.is_none();
        let divides = divisor_of_steps(p.ty.steps(p.k)).is_some();
        let is_unsigned = p.ty.fours && p.ty.lhs == DType::U8;
        match self.machine.matrix && is_unsigned && is_known && divides {
            true if rows >= LEAST_MATRIX_ROWS => Sums::Matrices,
            _ => Sums::Vectors,
        }
    }

    /// The tiling of a product of which each run has its own number of rows.
    fn tiling_of_runs(&self, work: &Work, packing: Machine, may_fetch: bool) -> Tiling {
        let mut tiling = Tiling::choose(packing, self.machine, work);
        if tiling.order == Order::Rows {
            // Of few tiles, each would read all weights for itself.
            let rows = work.rows[1].min(2 * MAX_TILE_ROWS);
            let few = Work { rows: [1, rows], ..*work };
            tiling.next = Tiling::choose(packing, self.machine, &few).next;
            tiling.order = work.blocked_order(self.machine);
        }
        if may_fetch { tiling } else { Tiling { ahead: 0, next: false, ..tiling } }
    }

    /// Up to how many rows the sums of a tile wait for one another: they have tiles of their own.
    pub(super) fn few_rows(&self, p: &MatMul, cut: &Cut) -> i64 {
        ((IN_FLIGHT - 1) / cut.vectors()).min(p.rows.most)
    }

    /// How few rows are cut where panels are as wide as is good for more: tiles go over several,
    /// unless the matrix comes from memory, where one panel behind the other is faster.
    pub(super) fn cut_few(&self, p: &MatMul, cut: &Cut, rows: i64) -> Cut {
        let lanes = self.machine.sums(p.ty.sum);
        let bytes = p.k.saturating_mul(p.n).saturating_mul(i64::from(p.ty.rhs.bits() / 8));
        let bytes = bytes / p.rhs.share();
        let wide = match bytes < MIN_FETCHED_WEIGHTS {
            true => self.machine.vectors_of_few(rows) * lanes,
            false => cut.panel,
        };
        let panels = if !p.rhs.in_panels {
            ColumnRun::within(p.n, wide, lanes)
        } else if wide >= cut.panel {
            ColumnRun::cover(p.n, &[wide / cut.panel * cut.panel], lanes)
        } else {
            let width = self.machine.tile_columns(cut.panel, rows, p.ty.sum);
            ColumnRun::cover(p.n, &steps(&[cut.panel, width]), lanes)
        };
        let is_stored = p.rhs.copied_from.is_none() && p.rhs.in_panels;
        let next = is_stored && self.weights_are_far();
        let order = if next { Order::Panels { blocks: 1 } } else { Order::Rows };
        let tiling = Tiling { order, ahead: 0, next, ..cut.tiling };
        let mut few = Cut { tiling, panel: cut.panel, panels, sums: Sums::Vectors, rows };
        few.rows = p.ty.rows(self.machine, few.vectors()).min(rows);
        few
    }
}
