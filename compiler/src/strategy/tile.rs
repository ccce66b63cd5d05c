//! Register tiles: the outer product of a column of one operand with vectors of packed weights.

use super::conv2d::around;
use super::emit::Emitter;
use crate::ir::{BufferSpec, DType};
use crate::te::StageId;
use crate::tir::{BufferId, ForKind, PrimExpr, Stmt};

/// Rows of a tile: up to two unrolled dimensions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Rows {
    /// Extent of the outer one.
    pub(super) outer: i64,
    /// Extent of the inner one.
    pub(super) inner: i64,
}

/// Columns of a tile: consecutive vectors, the last one possibly not all valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Columns {
    /// Number of vectors.
    pub(super) vectors: i64,
    /// Elements of a vector.
    pub(super) lanes: i64,
    /// Elements of the last vector that belong to the result.
    pub(super) valid: i64,
}

impl Columns {
    /// `count` columns in vectors of `lanes`.
    pub(super) fn new(count: i64, lanes: i64) -> Columns {
        let vectors = (count + lanes - 1) / lanes;
        Columns { vectors, lanes, valid: count - (vectors - 1) * lanes }
    }
}

/// Tiles of one width, side by side in panels of weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ColumnRun {
    /// First column.
    pub(super) first: i64,
    /// Number of panels, and columns of each.
    pub(super) panels: (i64, i64),
    /// Number of tiles in each panel, and columns of each.
    pub(super) tiles: (i64, i64),
    /// The columns of one tile.
    pub(super) columns: Columns,
}

impl ColumnRun {
    /// `total` columns in panels of `panel`, those in tiles of `width`, which divides a panel.
    pub(super) fn cover(total: i64, panel: i64, width: i64, lanes: i64) -> Vec<ColumnRun> {
        let (full, rest) = (total / panel, total % panel);
        let run = |first, panels, tiles, width: i64| ColumnRun {
            first,
            panels: (panels, panel),
            tiles: (tiles, width),
            columns: Columns::new(width.max(1), lanes),
        };
        let last = full * panel;
        let mut runs = vec![
            run(0, full, panel / width, width),
            run(last, 1, rest / width, width),
            run(last + rest / width * width, 1, 1, rest % width),
        ];
        runs.retain(|run| run.panels.0 > 0 && run.tiles.0 > 0 && run.tiles.1 > 0);
        runs
    }
}

/// Accumulators in registers.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) rows: Rows,
    pub(super) columns: Columns,
    acc: BufferId,
}

impl Emitter {
    /// Loops over the tiles of a run; `body` is handed the first column.
    pub(super) fn over_columns(
        &mut self,
        run: ColumnRun,
        body: &mut dyn FnMut(&mut Emitter, &PrimExpr) -> Stmt,
    ) -> Stmt {
        let (panel, panel_var) = self.counter("o", run.panels.0);
        let (tile, tile_var) = self.counter("t", run.tiles.0);
        let column = panel * run.panels.1 + tile * run.tiles.1 + run.first;
        let stmt = around(tile_var, run.tiles.0, body(self, &column));
        around(panel_var, run.panels.0, stmt)
    }
}

impl Tile {
    pub(super) fn new(emitter: &mut Emitter, rows: Rows, columns: Columns, dtype: DType) -> Tile {
        let elements = rows.outer * rows.inner * columns.vectors * columns.lanes;
        let acc = emitter.func.register("acc", dtype, &[elements]);
        Tile { rows, columns, acc }
    }

    fn at(&self, outer: &PrimExpr, inner: &PrimExpr, vector: i64, lane: &PrimExpr) -> PrimExpr {
        let row = outer.clone() * self.rows.inner + inner.clone();
        row * (self.columns.vectors * self.columns.lanes)
            + vector * self.columns.lanes
            + lane.clone()
    }

    /// `body` for each row, written out; it is handed the row's two indices.
    fn each_row(
        &self,
        emitter: &mut Emitter,
        kind: ForKind,
        body: impl FnOnce(&mut Emitter, &PrimExpr, &PrimExpr) -> Stmt,
    ) -> Stmt {
        let outer = emitter.func.index_var("y");
        let inner = emitter.func.index_var("x");
        let stmt = {
            let (outer, inner) = (emitter.func.var_expr(outer), emitter.func.var_expr(inner));
            let outer = if self.rows.outer == 1 { PrimExpr::index(0) } else { outer };
            let inner = if self.rows.inner == 1 { PrimExpr::index(0) } else { inner };
            body(emitter, &outer, &inner)
        };
        let around = |var, extent: i64, stmt| match extent {
            1 => stmt,
            _ => Stmt::for_loop(var, PrimExpr::index(0), PrimExpr::index(extent), kind, stmt),
        };
        around(outer, self.rows.outer, around(inner, self.rows.inner, stmt))
    }

    /// `body` for all lanes of one vector.
    fn each_lane(
        &self,
        emitter: &mut Emitter,
        body: impl FnOnce(&mut Emitter, &PrimExpr) -> Stmt,
    ) -> Stmt {
        let var = emitter.func.index_var("l");
        let lane = emitter.func.var_expr(var);
        let stmt = body(emitter, &lane);
        let extent = PrimExpr::index(self.columns.lanes);
        Stmt::for_loop(var, PrimExpr::index(0), extent, ForKind::Vectorized, stmt)
    }

    /// Sets every accumulator to zero.
    pub(super) fn clear(&self, emitter: &mut Emitter) -> Stmt {
        let stmts: Vec<Stmt> = (0..self.columns.vectors)
            .map(|vector| {
                self.each_lane(emitter, |emitter, lane| {
                    self.each_row(emitter, ForKind::Unrolled, |emitter, outer, inner| {
                        let dtype = emitter.func.buffers[self.acc].dtype;
                        let at = self.at(outer, inner, vector, lane);
                        emitter.func.store(self.acc, [at], PrimExpr::zero(dtype))
                    })
                })
            })
            .collect();
        Stmt::seq(stmts)
    }

    /// Adds `column(row) * weights(columns)` to each accumulator; `weight` is handed the column,
    /// `scalar` the row's indices.
    pub(super) fn multiply_add(
        &self,
        emitter: &mut Emitter,
        weight: &dyn Fn(&Emitter, PrimExpr) -> PrimExpr,
        value: &dyn Fn(&Emitter, &PrimExpr, &PrimExpr, PrimExpr) -> PrimExpr,
    ) -> Stmt {
        let fma = emitter.machine.fma;
        // Row by row: a broadcast then lives for one row only. Vector by vector, compilers would
        // keep the broadcasts of all rows and move accumulators to memory.
        self.each_row(emitter, ForKind::Unrolled, |emitter, outer, inner| {
            let stmts: Vec<Stmt> = (0..self.columns.vectors)
                .map(|vector| {
                    self.each_lane(emitter, |emitter, lane| {
                        let column = lane.clone() + vector * self.columns.lanes;
                        let w = weight(emitter, column.clone());
                        let at = self.at(outer, inner, vector, lane);
                        let sum = emitter.func.load(self.acc, [at.clone()]);
                        let a = value(emitter, outer, inner, column);
                        let sum = if fma { PrimExpr::mul_add(a, w, sum) } else { a * w + sum };
                        emitter.func.store(self.acc, [at], sum)
                    })
                })
                .collect();
            Stmt::seq(stmts)
        })
    }

    /// Stores what the root makes of each accumulator. `index` is handed the row's indices and the
    /// column.
    pub(super) fn store(
        &self,
        emitter: &mut Emitter,
        root: StageId,
        inner_stage: StageId,
        index: &dyn Fn(&PrimExpr, &PrimExpr, PrimExpr) -> Vec<PrimExpr>,
    ) -> Stmt {
        let stmts: Vec<Stmt> = (0..self.columns.vectors)
            .map(|vector| {
                self.store_vector(emitter, vector, root, inner_stage, index)
                    .unwrap_or_else(|| self.store_lanes(emitter, vector, root, inner_stage, index))
            })
            .collect();
        Stmt::seq(stmts)
    }

    /// One vector of the result at a time, if all that is read and written lies in vectors, too.
    fn store_vector(
        &self,
        emitter: &mut Emitter,
        vector: i64,
        root: StageId,
        inner_stage: StageId,
        index: &dyn Fn(&PrimExpr, &PrimExpr, PrimExpr) -> Vec<PrimExpr>,
    ) -> Option<Stmt> {
        let lanes = self.columns.lanes;
        let last = vector + 1 == self.columns.vectors;
        let overruns = last && self.columns.valid < lanes;
        let stmt = self.each_lane(emitter, |emitter, lane| {
            self.each_row(emitter, ForKind::Unrolled, |emitter, outer, inner| {
                let value = emitter.func.load(self.acc, [self.at(outer, inner, vector, lane)]);
                let at = index(outer, inner, lane.clone() + vector * lanes);
                emitter.store_element(root, Some((inner_stage, value)), &at)
            })
        });
        let Stmt::For { var, body, .. } = &stmt else { unreachable!("a loop over lanes") };
        let fits = emitter.can_vectorize(body, *var, lanes, overruns);
        fits.then_some(stmt)
    }

    /// The accumulators go through memory, and each valid element is stored on its own.
    fn store_lanes(
        &self,
        emitter: &mut Emitter,
        vector: i64,
        root: StageId,
        inner_stage: StageId,
        index: &dyn Fn(&PrimExpr, &PrimExpr, PrimExpr) -> Vec<PrimExpr>,
    ) -> Stmt {
        let lanes = self.columns.lanes;
        let rows = self.rows.outer * self.rows.inner;
        let dtype = emitter.func.buffers[self.acc].dtype;
        let spill = emitter.func.local("tile", dtype, BufferSpec::dense(&[rows, lanes]));
        let fill = self.each_lane(emitter, |emitter, lane| {
            self.each_row(emitter, ForKind::Unrolled, |emitter, outer, inner| {
                let value = emitter.func.load(self.acc, [self.at(outer, inner, vector, lane)]);
                let row = outer.clone() * self.rows.inner + inner.clone();
                emitter.func.store(spill, [row, lane.clone()], value)
            })
        });
        let last = vector + 1 == self.columns.vectors;
        let valid = if last { self.columns.valid } else { lanes };
        let lane_var = emitter.func.index_var("l");
        let lane = emitter.func.var_expr(lane_var);
        let drain = self.each_row(emitter, ForKind::Serial, |emitter, outer, inner| {
            let row = outer.clone() * self.rows.inner + inner.clone();
            let value = emitter.func.load(spill, [row, lane.clone()]);
            let at = index(outer, inner, lane + vector * lanes);
            emitter.store_element(root, Some((inner_stage, value)), &at)
        });
        let (min, extent) = (PrimExpr::index(0), PrimExpr::index(valid));
        let drain = Stmt::for_loop(lane_var, min, extent, ForKind::Serial, drain);
        Stmt::allocate(spill, Stmt::seq([fill, drain]))
    }

    /// The lifetime of the accumulators.
    pub(super) fn wrap(&self, body: Stmt) -> Stmt {
        Stmt::allocate(self.acc, body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_each_column_once_and_no_tile_leaves_its_panel() {
        for total in 1..150 {
            for (panel, width, lanes) in [(32, 32, 16), (32, 16, 8), (48, 12, 4), (16, 4, 4)] {
                let mut columns = Vec::new();
                for run in ColumnRun::cover(total, panel, width, lanes) {
                    let valid = (run.columns.vectors - 1) * lanes + run.columns.valid;
                    for p in 0..run.panels.0 {
                        for t in 0..run.tiles.0 {
                            let first = run.first + p * panel + t * run.tiles.1;
                            assert_eq!(first / panel, (first + valid - 1) / panel);
                            columns.extend(first..first + valid);
                        }
                    }
                }
                assert_eq!(columns, (0..total).collect::<Vec<_>>(), "{total} in {panel}/{width}");
            }
        }
    }
}
