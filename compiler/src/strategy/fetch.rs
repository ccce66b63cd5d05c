//! Requests for weights, and for rows that stream by, before they are read.

use super::emit::Emitter;
use super::tile::{Column, ColumnRun, Columns, TileType};
use super::tiling::{Order, Tiling};
use crate::tir::{BufferId, PrimExpr, Stmt};

/// Bytes of a line of the cache.
const LINE: i64 = 64;

/// Bytes from what a single tile reads of weights that come from memory to what it asks for: some pages,
/// behind whose end processors look for nothing themselves, and less than the first cache level.
const ONE_BY_ONE: i64 = 16 << 10;

/// How many tiles share in asking for the next panel if their number is known at run time alone: as
/// many as runs of more than a few rows have, or more, a quarter of the share each.
pub(super) const RUN_TIME_SHARERS: i64 = 2;
const QUARTERS: i64 = 4;

/// What the steps of a tile's sum ask for, besides what they read. What lies behind the weights may
/// be asked for, too: it is those of the next kernel, or nothing comes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fetch {
    weights: BufferId,
    /// Elements of a column in a step, and of a line of the cache.
    group: i64,
    line: i64,
    /// Elements of a panel in a step.
    panel: i64,
    /// Steps of the sum: rows of a panel.
    depth: i64,
    /// Steps after which what is asked for is read; 0 to ask for nothing.
    ahead: i64,
    /// Tiles of rows that go over a panel, and tiles of each within the panel, if they ask for the
    /// next one meanwhile.
    sharers: Option<[i64; 2]>,
}

/// A step of a tile's sum.
pub(super) struct Step<'a> {
    /// The index of its weights of the tile's first column.
    pub(super) index: Vec<PrimExpr>,
    /// The index of the first element of the panel.
    pub(super) panel: Vec<PrimExpr>,
    /// Its number, and how many it is of those that dot products have.
    pub(super) number: &'a PrimExpr,
    pub(super) steps: i64,
    /// The turn of the tile's rows.
    pub(super) turn: &'a Turn,
    /// The tile's columns.
    pub(super) column: &'a Column,
    /// The tile's rows, if those behind them are asked for.
    pub(super) rows: Option<Streamed>,
}

/// The turn of a tile of rows among those that go over a panel and ask for the next one.
#[derive(Clone)]
pub(super) struct Turn {
    /// Its number.
    pub(super) number: PrimExpr,
    /// If how many there are is known at run time alone: how many ask, and what this one asks for, in
    /// quarters of the share of each if they are the fewest.
    pub(super) of_run: Option<[PrimExpr; 2]>,
}

impl Turn {
    /// The turn of a tile among a known number of them.
    pub(super) fn known(number: PrimExpr) -> Turn {
        Turn { number, of_run: None }
    }

    /// The turn of a tile among so many of a run. Those behind the ones that ask for the panel ask for
    /// its first line, which is near by then.
    pub(super) fn of_run(number: PrimExpr, tiles: &PrimExpr) -> Turn {
        let many = PrimExpr::index(QUARTERS * RUN_TIME_SHARERS);
        let few = PrimExpr::index(RUN_TIME_SHARERS);
        let is_many = many.clone().less_equal(tiles.clone());
        let quarters =
            PrimExpr::select(is_many.clone(), PrimExpr::index(1), PrimExpr::index(QUARTERS));
        let sharers = PrimExpr::select(is_many, many, few);
        let asks = number.clone().less(sharers.clone());
        let quarters = PrimExpr::select(asks, quarters, PrimExpr::index(0));
        Turn { number, of_run: Some([sharers, quarters]) }
    }
}

/// Rows of a tile that are read once.
pub(super) struct Streamed {
    pub(super) buffer: BufferId,
    /// The index of the first element.
    pub(super) first: Vec<PrimExpr>,
    /// Number of rows, and elements of each.
    pub(super) rows: i64,
    pub(super) length: i64,
}

impl Fetch {
    /// What tiles of a run of columns ask for, if `tiles` tiles of rows go over a panel of so many
    /// steps and columns.
    pub(super) fn new(
        tiling: &Tiling,
        weights: BufferId,
        ty: TileType,
        [depth, panel]: [i64; 2],
        run: &ColumnRun,
        tiles: i64,
    ) -> Fetch {
        let whole = run.loops.first().is_some_and(|&(_, step)| step == panel);
        let inside: i64 = run.loops.iter().skip(1).map(|&(count, _)| count).product();
        let next = tiling.next && whole && tiling.order != Order::Rows;
        let sharers = next.then_some([tiles, inside]);
        // A single vector of columns takes a load for each multiply-add: there is no time for more.
        let ahead = if run.columns.vectors > 1 { tiling.ahead } else { 0 };
        let (group, line) = (ty.depth(), LINE / i64::from(ty.rhs.bits() / 8));
        Fetch { weights, group, line, panel: panel * group, depth, ahead, sharers }
    }

    /// The same of a tile whose rows are all that there are, and few: it asks for all of the next panel.
    pub(super) fn of_one_tile(&self) -> Fetch {
        let sharers = self.sharers.map(|[_, inside]| [1, inside]);
        Fetch { sharers, ahead: 0, ..*self }
    }

    /// The requests of one step.
    pub(super) fn step(&self, emitter: &Emitter, columns: Columns, step: Step<'_>) -> Vec<Stmt> {
        let mut stmts = Vec::new();
        if let Some(Streamed { buffer, first, rows, length }) = step.rows {
            // As many elements as the step reads, of as many rows behind the tile's.
            let share = rows * self.group;
            let line = LINE / i64::from(emitter.func.buffers[buffer].dtype.bits() / 8);
            for part in (0..share).step_by(line as usize) {
                let place = step.number.clone() * share + (rows * length + part);
                stmts.push(emitter.func.prefetch_behind(buffer, first.clone(), place, 3));
            }
        }
        let mut ask = |index: &[PrimExpr], offset: PrimExpr, locality| {
            let indices = index.to_vec();
            stmts.push(emitter.func.prefetch_behind(self.weights, indices, offset, locality));
        };
        if self.ahead > 0 && step.steps == 1 {
            let width = columns.vectors * columns.lanes * self.group;
            for element in (0..width).step_by(self.line as usize) {
                ask(&step.index, PrimExpr::index(self.ahead * self.panel + element), 3);
            }
        }
        if let Some([tiles, inside]) = self.sharers {
            // A power of two or whole lines, so that no line is asked for twice but in a row.
            let share = (self.panel - 1) / (tiles * inside) + 1;
            let share = match share {
                _ if share < self.line => share.unsigned_abs().next_power_of_two() as i64,
                _ => (share + self.line - 1) / self.line * self.line,
            };
            // Of a single tile, all weights are read in the order of memory.
            let (behind, locality) = match tiles * inside {
                1 => (ONE_BY_ONE / LINE * self.line, 3),
                _ => (self.panel * self.depth, 2),
            };
            let (tiles, share_of_turn) = match &step.turn.of_run {
                None => (PrimExpr::index(tiles), PrimExpr::index(share)),
                Some([tiles, quarters]) => (tiles.clone(), quarters.clone() * (share / QUARTERS)),
            };
            let tile = step.column.number.clone() * tiles + step.turn.number.clone();
            let place = (tile * self.depth + step.number.clone()) * share_of_turn;
            for part in (0..share * step.steps).step_by(self.line as usize) {
                ask(&step.panel, place.clone() + (behind + part), locality);
            }
        }
        stmts
    }
}
