//! Matrix products with one constant matrix, in register tiles.

use super::conv2d::around;
use super::emit::Emitter;
use super::machine::split_even;
use super::nest::block;
use super::tile::{ColumnRun, Columns, Rows, Tile, steps};
use crate::ir::{BufferSpec, DType};
use crate::te::StageId;
use crate::tir::{BufferId, ParamKind, PrimExpr, Stmt};

/// Bytes of weights up to which all panels are swept for each tile of rows.
const MAX_RESIDENT_WEIGHTS: i64 = 512 << 10;

/// A product `[batch.., m, k] x [k, n]`.
struct MatMul {
    root: StageId,
    inner: StageId,
    lhs: BufferId,
    rhs: BufferId,
    batch: Vec<i64>,
    m: i64,
    n: i64,
    k: i64,
    transpose_b: bool,
}

impl Emitter {
    /// The loops of a product of floats with a constant matrix; `None` if it is not constant.
    pub(super) fn emit_matmul(
        &mut self,
        root: StageId,
        inner: StageId,
        lhs: StageId,
        rhs: StageId,
        transpose_b: bool,
    ) -> Option<Stmt> {
        let (lhs_buffer, rhs_buffer) =
            (*self.materialised.get(&lhs)?, *self.materialised.get(&rhs)?);
        let constant = self.func.param_of(rhs_buffer)?.kind == ParamKind::Constant;
        let spec = &self.func.buffers[rhs_buffer].spec;
        let plain = block(&self.func.buffers[lhs_buffer].spec, 1).is_none();
        let floats = [lhs, rhs, inner].iter().all(|&stage| self.dag.dtype(stage) == DType::F32);
        let (l, r, o) = (self.dag.shape(lhs), self.dag.shape(rhs), self.dag.shape(inner));
        if !constant || !spec.is_dense() || !plain || !floats || r.len() != 2 || l.len() < 2 {
            return None;
        }
        if l.contains(&0) || r.contains(&0) {
            return None;
        }
        let product = MatMul {
            root,
            inner,
            lhs: lhs_buffer,
            rhs: rhs_buffer,
            batch: o[..o.len() - 2].to_vec(),
            m: l[l.len() - 2],
            n: if transpose_b { r[0] } else { r[1] },
            k: l[l.len() - 1],
            transpose_b,
        };
        Some(self.product(&product))
    }

    fn product(&mut self, p: &MatMul) -> Stmt {
        let wide = self.packing.lanes(DType::F32);
        let vectors = (p.n + wide - 1) / wide;
        // Few rows: more columns keep enough sums in flight.
        let wanted = match p.m {
            1 => 8,
            2..=6 => 4,
            _ => 2,
        };
        let most = if self.packing.registers >= 32 { 8 } else { 6 };
        let panel = vectors.min(wanted).min(most) * wide;
        let lanes = self.machine.lanes(DType::F32);
        let width = self.machine.columns_of_at_most(panel, wanted, DType::F32);
        let shape = self.func.buffers[p.rhs].shape().to_vec();
        let dims: &[(usize, i64)] = if p.transpose_b {
            &[(0, panel), (1, 1), (0, 1)]
        } else {
            &[(1, panel), (0, 1), (1, 1)]
        };
        self.func.buffers[p.rhs].spec = BufferSpec::packed(&shape, dims);

        let rows = split_even(p.m, self.machine.tile_rows(width / lanes));
        let panels = ColumnRun::cover(p.n, &steps(&[panel, width]), lanes);

        let batch: Vec<(PrimExpr, crate::tir::VarId, i64)> = p
            .batch
            .iter()
            .map(|&extent| {
                let (index, var) = self.counter("b", extent);
                (index, var, extent)
            })
            .collect();
        let index: Vec<PrimExpr> = batch.iter().map(|(index, ..)| index.clone()).collect();
        let rows_inside = p.n * p.k * 4 > MAX_RESIDENT_WEIGHTS;
        let mut stmts = Vec::new();
        let mut m0 = 0;
        let mut row_runs = Vec::new();
        for (count, size) in rows {
            row_runs.push((m0, count, size));
            m0 += count * size;
        }
        if rows_inside {
            for run in &panels {
                stmts.push(self.over_columns(run, &mut |emitter, column| {
                    let tiles = row_runs
                        .iter()
                        .map(|&rows| emitter.rows(p, rows, run.columns, &index, column));
                    Stmt::seq(tiles.collect::<Vec<_>>())
                }));
            }
        } else {
            for &(m0, rows, size) in &row_runs {
                let (i, i_var) = self.counter("i", rows);
                let row = i * size + m0;
                let tiles: Vec<Stmt> = panels
                    .iter()
                    .map(|run| {
                        self.over_columns(run, &mut |emitter, column| {
                            emitter.product_tile(p, size, run.columns, &index, &row, column)
                        })
                    })
                    .collect();
                stmts.push(around(i_var, rows, Stmt::seq(tiles)));
            }
        }
        let mut body = Stmt::seq(stmts);
        for (_, var, extent) in batch.into_iter().rev() {
            body = around(var, extent, body);
        }
        body
    }

    /// The tiles of one size in a panel.
    fn rows(
        &mut self,
        p: &MatMul,
        (m0, count, size): (i64, i64, i64),
        columns: Columns,
        batch: &[PrimExpr],
        column: &PrimExpr,
    ) -> Stmt {
        let (i, i_var) = self.counter("i", count);
        let row = i * size + m0;
        let tile = self.product_tile(p, size, columns, batch, &row, column);
        around(i_var, count, tile)
    }

    fn product_tile(
        &mut self,
        p: &MatMul,
        size: i64,
        columns: Columns,
        batch: &[PrimExpr],
        row: &PrimExpr,
        column: &PrimExpr,
    ) -> Stmt {
        let tile = Tile::new(self, Rows { outer: 1, inner: size }, columns, DType::F32);
        let clear = tile.clear(self);
        let (k, k_var) = self.counter("k", p.k);
        let weights = |emitter: &Emitter, offset: PrimExpr| {
            let n = column.clone() + offset;
            let at = if p.transpose_b { [n, k.clone()] } else { [k.clone(), n] };
            emitter.func.load(p.rhs, at)
        };
        let value = |emitter: &Emitter, _: &PrimExpr, i: &PrimExpr, _: PrimExpr| {
            let mut at = batch.to_vec();
            at.push(row.clone() + i.clone());
            at.push(k.clone());
            emitter.func.load(p.lhs, at)
        };
        let sum = around(k_var, p.k, tile.multiply_add(self, &weights, &value));
        let index = |_: &PrimExpr, i: &PrimExpr, offset: PrimExpr| {
            let mut at = batch.to_vec();
            at.push(row.clone() + i.clone());
            at.push(column.clone() + offset);
            at
        };
        let store = tile.store(self, p.root, p.inner, &index);
        tile.wrap(Stmt::seq([clear, sum, store]))
    }
}
