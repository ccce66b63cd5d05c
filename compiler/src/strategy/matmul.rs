//! Matrix products in register tiles.
//!
//! The right operand is read in panels as wide as a tile. A constant is packed in them while the
//! model is compiled; of one that is computed, a copy is made in them for each matrix of a batch,
//! which takes a small part of the time of the products if there are many rows. With few, each
//! element is read once, where it is.

use super::conv2d::around;
use super::emit::Emitter;
use super::fetch::{Fetch, Step};
use super::machine::MAX_TILE_ROWS;
use super::nest::{block, in_run};
use super::tile::{Column, ColumnRun, Columns, FOUR, Rows, Tile, TileType, steps};
use super::tiling::{Order, Run, Tiling, Work};
use crate::ir::{BufferSpec, DType};
use crate::ops::broadcast;
use crate::te::{StageId, StageKind};
use crate::tir::border::fill_halo;
use crate::tir::transform::limit_fill;
use crate::tir::{BufferId, PrimExpr, Stmt, VarId};

/// Rows of a tile where the number of rows is known at run time alone: with as many columns as there
/// are registers for, few enough for runs of one row.
const RUN_TIME_ROWS: i64 = 4;

/// Most rows that read a matrix where it is if their number is known at run time alone: a run may have
/// one, as each step of a decoder, and a copy of the keys so far would take longer than the product.
const MAX_READ_ROWS: i64 = 32;

/// Fewest rows of products with a matrix of which a copy in panels is made, if it cannot be read
/// where it is.
const MIN_PACKED_ROWS: i64 = 4;

/// A product `[.., m, ..] x [k, n]`, where the last axis of the left operand has `k` elements, or the
/// last but one if it is transposed. Each of the others can be that of the rows, if the matrix is the
/// same for all: it is read once for each place of the rest.
pub(super) struct MatMul {
    pub(super) root: StageId,
    pub(super) inner: StageId,
    pub(super) lhs: BufferId,
    /// Extents of the left operand as if it were not transposed: of its first axes those of the
    /// result, or one element for all.
    lhs_shape: Vec<i64>,
    transpose_a: bool,
    rhs: Matrices,
    /// Extents of the axes beside rows and columns, and which axis the rows are.
    batch: Vec<i64>,
    row_axis: usize,
    m: i64,
    /// Most rows of a tile, which is the least that a run computes if their number is its own.
    pub(super) tile: i64,
    n: i64,
    k: i64,
    /// How many terms a sum has, if each run has its own number, and how many columns there are.
    terms: Option<PrimExpr>,
    columns: Option<PrimExpr>,
    transpose_b: bool,
    ty: TileType,
}

/// The right operand, of which a batch reads one matrix.
struct Matrices {
    buffer: BufferId,
    /// What each element is computed of where it is read, if it is not as the buffer holds it.
    widened: Option<Widened>,
    /// Extents of the axes before rows and columns: those of the batch, or one for all of it.
    batch: Vec<i64>,
    /// What each matrix of a batch is first copied from, if it is. Then there is one.
    copied_from: Option<StageId>,
    /// Whether they are in panels, not row by row.
    in_panels: bool,
}

/// A constant matrix that is computed, where it is read, of one of the same extents and of others that
/// have an element for several rows of it.
struct Widened {
    stage: StageId,
    /// The others.
    scales: Vec<BufferId>,
    /// Rows for which each of the others has an element.
    block: i64,
}

/// How a product is cut into tiles.
pub(super) struct Cut {
    tiling: Tiling,
    /// Columns of a panel.
    panel: i64,
    panels: Vec<ColumnRun>,
    /// Most rows of a tile.
    pub(super) rows: i64,
}

impl Cut {
    /// What is asked for while `tiles` tiles go over each panel of a run.
    fn fetch(&self, p: &MatMul, run: &ColumnRun, tiles: i64) -> Fetch {
        let panel = [p.ty.steps(p.k), self.panel];
        Fetch::new(&self.tiling, p.rhs.buffer, p.ty, panel, run, tiles)
    }
}

/// Where a tile is: the index of its batch, first row, columns, and its number among those that go
/// over a panel in turn.
#[derive(Clone, Copy)]
struct Place<'a> {
    batch: &'a [PrimExpr],
    row: &'a PrimExpr,
    column: &'a Column,
    number: &'a PrimExpr,
}

/// The axis of a left operand, whose extents but the last are given, along which register tiles
/// have their rows: the last one, as its rows follow one another in memory, unless it is shorter
/// than a tile and another one is longer.
fn row_axis(extents: &[i64]) -> usize {
    let last = extents.len() - 1;
    let longest = (0..=last).max_by_key(|&axis| extents[axis]).unwrap_or(last);
    if extents[last] >= MAX_TILE_ROWS || extents[longest] == extents[last] { last } else { longest }
}

impl MatMul {
    /// Whether it is a product of floats with so many rows in each matrix of such a batch.
    pub(super) fn has_rows(&self, batch: &[i64], rows: i64) -> bool {
        let is_plain = self.batch == batch && self.row_axis == batch.len() && self.m == rows;
        is_plain && !self.ty.fours
    }
}

impl Emitter {
    /// The loops of a product of floats, or of bytes.
    ///
    /// # Errors
    ///
    /// What is different about others.
    pub(super) fn emit_matmul(
        &mut self,
        root: StageId,
        inner: StageId,
        operands: [StageId; 2],
        transposed: [bool; 2],
    ) -> Result<Stmt, String> {
        let product = self.matmul(root, inner, operands, transposed)?;
        let (rows, product) = self.whole_fours(product);
        Ok(Stmt::seq([rows, self.product(&product)]))
    }

    /// A product of floats, or of bytes.
    ///
    /// # Errors
    ///
    /// What is different about others.
    pub(super) fn matmul(
        &mut self,
        root: StageId,
        inner: StageId,
        [lhs, rhs]: [StageId; 2],
        [transpose_a, transpose_b]: [bool; 2],
    ) -> Result<MatMul, String> {
        let refused = |why: &str| Err(format!("matrix product {why}"));
        let Some(&lhs_buffer) = self.materialised.get(&lhs) else {
            return refused("of an operand that is computed in the same kernel");
        };
        let plain = block(&self.func.buffers[lhs_buffer].spec, 1).is_none();
        let [from, by, sum] = [lhs, rhs, inner].map(|stage| self.dag.dtype(stage));
        let (l, r, o) = (self.dag.shape(lhs), self.dag.shape(rhs), self.dag.shape(inner));
        let Some(ty) = TileType::of(from, by, sum, self.packing) else {
            return refused("of other types than float32 and integers of 8 bits");
        };
        let stored = self.materialised.get(&rhs).copied();
        let dense = stored.is_none_or(|buffer| self.func.buffers[buffer].spec.is_dense());
        if !dense || !plain || l.contains(&0) || r.contains(&0) {
            return refused("of other layouts than rows of elements");
        }
        let mut batch = o[..o.len() - 1].to_vec();
        let (matrices, matrix) = r.split_at(r.len() - 2);
        let one_matrix = matrices.iter().all(|&extent| extent == 1);
        let row_axis =
            if one_matrix && l.len() == o.len() { row_axis(&batch) } else { batch.len() - 1 };
        let end = |axis: usize| {
            let mut limits = self.dag.limits(inner).iter();
            limits.find(|limit| limit.axis == axis).map(|limit| limit.extent.clone())
        };
        let (rows, columns) = (end(row_axis), end(batch.len()));
        let m = batch.remove(row_axis);
        let matrix = if transpose_b { [matrix[1], matrix[0]] } else { [matrix[0], matrix[1]] };
        let [k, n] = matrix;
        let mut lhs_shape = l.to_vec();
        if transpose_a {
            let last = lhs_shape.len() - 1;
            lhs_shape.swap(last - 1, last);
        }
        if transpose_a && ty.fours {
            return refused("of bytes whose left operand is transposed");
        }
        let mut reduced = self.dag.stages[inner].kind.reduced().iter();
        let terms = reduced.find_map(|axis| self.dag.reduce_limit(axis)).cloned();
        if terms.is_some() && ty.fours {
            return refused("of bytes whose number of terms is known at run time alone");
        }
        let widened = self.widened(rhs);
        let by = widened.as_ref().map_or(by, |(buffer, _)| self.func.buffers[*buffer].dtype);
        let is_constant = |&buffer: &BufferId| self.is_constant(buffer);
        let most = if rows.is_some() { MAX_READ_ROWS } else { MAX_TILE_ROWS };
        let reads_rows = m <= most && !transpose_b && !ty.fours;
        let (stored, widened) = match widened {
            Some((buffer, widened)) => (Some(buffer), Some(widened)),
            None => (stored, None),
        };
        let rhs = match stored.filter(|buffer| reads_rows || is_constant(buffer)) {
            Some(buffer) => Matrices {
                buffer,
                widened,
                batch: matrices.to_vec(),
                copied_from: None,
                in_panels: is_constant(&buffer),
            },
            None if m < MIN_PACKED_ROWS => {
                return refused("of few rows with a matrix that is computed");
            }
            None => {
                let extents = BufferSpec::dense(&r[r.len() - 2..]);
                let buffer = self.func.local("panels", by, extents);
                Matrices {
                    buffer,
                    widened: None,
                    batch: Vec::new(),
                    copied_from: Some(rhs),
                    in_panels: true,
                }
            }
        };
        Ok(MatMul {
            root,
            inner,
            lhs: lhs_buffer,
            lhs_shape,
            transpose_a,
            rhs,
            m,
            tile: if rows.is_some() { m.min(RUN_TIME_ROWS) } else { m },
            batch,
            row_axis,
            n,
            k,
            terms,
            columns,
            transpose_b,
            ty,
        })
    }

    /// The constant matrix that a stage is computed of by element, if it is one of `float32`.
    fn widened(&self, stage: StageId) -> Option<(BufferId, Widened)> {
        let is_compute = matches!(self.dag.stages[stage].kind, StageKind::Compute(_));
        if !is_compute || self.materialised.contains_key(&stage) || self.uses[&stage] != 1 {
            return None;
        }
        let &[rows, columns] = self.dag.shape(stage) else { return None };
        let (mut matrix, mut scales, mut block) = (None, Vec::new(), 1);
        for read in self.dag.reads(stage) {
            let buffer =
                self.materialised.get(&read).filter(|buffer| self.is_constant(**buffer))?;
            match *self.dag.shape(read) {
                [r, c] if [r, c] == [rows, columns] && matrix.is_none() => matrix = Some(*buffer),
                [r, c] if 0 < r && r <= rows && 0 < c && c <= columns => {
                    block = ((rows + r - 1) / r).max((columns + c - 1) / c);
                    scales.push(*buffer);
                }
                _ => return None,
            }
        }
        matrix.map(|buffer| (buffer, Widened { stage, scales, block }))
    }

    /// A product whose rows end with whole groups of four terms, if an instruction takes as many: of
    /// a copy with zeros behind each row where they do not.
    fn whole_fours(&mut self, p: MatMul) -> (Stmt, MatMul) {
        let missing = p.ty.steps(p.k) * p.ty.depth() - p.k;
        if missing == 0 {
            return (Stmt::nop(), p);
        }
        let shape = self.func.buffers[p.lhs].shape().to_vec();
        let spec = BufferSpec::dense(&shape).with_halo(shape.len() - 1, 0, missing);
        self.note(p.inner, "copy of rows with zeros behind", String::new(), None, None);
        let copy = self.func.local("rows", p.ty.lhs, spec);
        self.scratch.push(copy);
        let behind = fill_halo(&mut self.func, copy, &PrimExpr::zero(p.ty.lhs));
        let fill = Stmt::block("rows", self.copy(p.lhs, copy));
        (Stmt::seq([behind, fill]), MatMul { lhs: copy, ..p })
    }

    fn product(&mut self, p: &MatMul) -> Stmt {
        let cut = self.cut_product(p, p.tile, p.batch.iter().product());
        let batch = self.counters(&p.batch);
        let index: Vec<PrimExpr> = batch.iter().map(|(index, ..)| index.clone()).collect();
        let mut stmts = Vec::new();
        match cut.tiling.order {
            Order::Panels { blocks } => {
                for block in Run::cover(p.m, (p.m + blocks - 1) / blocks) {
                    let (i, i_var) = self.counter("ib", block.count);
                    let first = &(i * block.size + block.first);
                    let stmt = self.block(p, &cut, block.size, (&index, first));
                    stmts.push(around(i_var, block.count, stmt));
                }
            }
            Order::Rows => {
                for tiles in Run::cover(p.m, cut.rows) {
                    let (i, i_var) = self.counter("i", tiles.count);
                    let row = &(i * tiles.size + tiles.first);
                    let number = &PrimExpr::index(0);
                    let panels = cut.panels.iter().map(|run| {
                        let fetch = cut.fetch(p, run, 1);
                        self.over_columns(run, &mut |emitter, column| {
                            let place = Place { batch: &index, row, column, number };
                            emitter.product_tile(p, tiles.size, run.columns, &fetch, &place)
                        })
                    });
                    let stmt = Stmt::seq(panels.collect::<Vec<_>>());
                    stmts.push(around(i_var, tiles.count, stmt));
                }
            }
        }
        let body = self.with_panels(p, &index, Stmt::seq(stmts));
        batch.into_iter().rev().fold(body, |body, (_, var, extent)| around(var, extent, body))
    }

    /// Loop variables for some extents.
    pub(super) fn counters(&mut self, extents: &[i64]) -> Vec<(PrimExpr, VarId, i64)> {
        let counter = |&extent: &i64| {
            let (index, var) = self.counter("b", extent);
            (index, var, extent)
        };
        extents.iter().map(counter).collect()
    }

    /// How a product is cut where `rows` rows are computed at a time, `times` times in all.
    pub(super) fn cut_product(&mut self, p: &MatMul, rows: i64, times: i64) -> Cut {
        let work = Work::product(rows, p.n, p.ty.steps(p.k), p.k * p.ty.bytes());
        let packing = if p.rhs.in_panels { self.packing } else { self.machine };
        let mut tiling = Tiling::choose(packing, self.machine, &work);
        if p.rhs.copied_from.is_some() || !p.rhs.in_panels {
            // The copy is in a cache; what comes next in memory is no panel.
            (tiling.ahead, tiling.next) = (0, false);
        }
        let cycles = tiling.cycles.saturating_mul(times.unsigned_abs());
        let rule = if p.ty.fours { "matrix product by dot products" } else { "matrix product" };
        self.note(p.inner, rule, tiling.to_string(), Some(cycles), None);
        let panel = tiling.vectors * packing.lanes(DType::F32);
        let lanes = self.machine.lanes(DType::F32);
        let width = self.machine.tile_columns(panel, rows, DType::F32);
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
        let rows = p.ty.rows(self.machine, width / lanes).min(rows);
        Cut { tiling, panel, panels, rows }
    }

    /// What reads the panels of a place of the batch, with the copy of the matrix in panels before it, if
    /// there is one.
    pub(super) fn with_panels(&mut self, p: &MatMul, batch: &[PrimExpr], body: Stmt) -> Stmt {
        let Some(matrices) = p.rhs.copied_from else { return body };
        let copy = self.pack(p, matrices, batch);
        Stmt::allocate(p.rhs.buffer, Stmt::seq([copy, body]))
    }

    /// Copies the matrix of a place of the batch into panels.
    fn pack(&mut self, p: &MatMul, matrices: StageId, batch: &[PrimExpr]) -> Stmt {
        let shape = self.dag.shape(matrices);
        let first = broadcast(&shape[..shape.len() - 2], &p.batch, batch);
        let copy = self
            .fill(p.rhs.buffer, matrices, &|index| first.iter().chain(index).cloned().collect());
        let axes = if p.transpose_b { [1, 0] } else { [0, 1] };
        let ends = axes.into_iter().zip([p.terms.clone(), p.columns.clone()]);
        let ends = ends.filter_map(|(axis, end)| Some((p.rhs.buffer, axis, end?)));
        Stmt::block("panels", limit_fill(&self.func, copy, ends))
    }

    /// A block of rows: each panel goes over its tiles.
    pub(super) fn block(
        &mut self,
        p: &MatMul,
        cut: &Cut,
        rows: i64,
        (batch, first): (&[PrimExpr], &PrimExpr),
    ) -> Stmt {
        let tiles = Run::cover(rows, cut.rows);
        let count = tiles.iter().map(|run| run.count).sum();
        let panels = cut.panels.iter().map(|run| {
            let fetch = cut.fetch(p, run, count);
            self.over_columns(run, &mut |emitter, column| {
                let mut before = 0;
                let tiles = tiles.iter().map(|tiles| {
                    let (i, i_var) = emitter.counter("i", tiles.count);
                    let number = &(i.clone() + before);
                    before += tiles.count;
                    let row = &(first.clone() + (i * tiles.size + tiles.first));
                    let place = Place { batch, row, column, number };
                    let tile = emitter.product_tile(p, tiles.size, run.columns, &fetch, &place);
                    around(i_var, tiles.count, tile)
                });
                Stmt::seq(tiles.collect::<Vec<_>>())
            })
        });
        Stmt::seq(panels.collect::<Vec<_>>())
    }

    fn product_tile(
        &mut self,
        p: &MatMul,
        size: i64,
        columns: Columns,
        fetch: &Fetch,
        place: &Place<'_>,
    ) -> Stmt {
        let Place { batch, row, column: tile_column, number: tile_number } = *place;
        let column = &tile_column.first;
        let tile = Tile::new(self, Rows { outer: 1, inner: size }, columns, p.ty);
        let clear = tile.clear(self);
        let steps = p.ty.steps(p.k);
        // What all rows of a block share is read before them.
        let block = p.rhs.widened.as_ref().map_or(1, |widened| widened.block);
        let (number, loops) = if block > 1 && steps % block == 0 && p.terms.is_none() {
            let (first, first_var) = self.counter("kb", steps / block);
            let (inner, k_var) = self.counter("k", block);
            (first * block + inner, vec![(first_var, steps / block), (k_var, block)])
        } else {
            let (number, k_var) = self.counter("k", steps);
            (number, vec![(k_var, steps)])
        };
        let k = number.clone() * p.ty.depth();
        let matrix = broadcast(&p.rhs.batch, &p.batch, batch);
        let at = |n: PrimExpr, k: PrimExpr| {
            let last = if p.transpose_b { [n, k] } else { [k, n] };
            matrix.iter().cloned().chain(last).collect::<Vec<_>>()
        };
        let weights = |emitter: &mut Emitter, offset: PrimExpr, depth: PrimExpr| {
            let at = at(column.clone() + offset, k.clone() + depth);
            match &p.rhs.widened {
                None => emitter.func.load(p.rhs.buffer, at),
                Some(Widened { stage, .. }) => {
                    let (mut inliner, func) = emitter.inliner();
                    inliner.element(func, *stage, &at)
                }
            }
        };
        let index = |i: &PrimExpr, last: PrimExpr| {
            let mut at = batch.to_vec();
            at.insert(p.row_axis, row.clone() + i.clone());
            at.push(last);
            at
        };
        let extents = {
            let mut extents = p.batch.clone();
            extents.insert(p.row_axis, p.m);
            extents.push(p.k);
            extents
        };
        let value = |[_, i]: [&PrimExpr; 2], _: PrimExpr, depth: PrimExpr| {
            let mut at = broadcast(&p.lhs_shape, &extents, &index(i, k.clone() + depth));
            if p.transpose_a {
                let last = at.len() - 1;
                at.swap(last - 1, last);
            }
            (p.lhs, at)
        };
        let step = Step {
            index: at(column.clone(), k.clone()),
            panel: at(tile_column.panel.clone(), PrimExpr::index(0)),
            number: &number,
            tile: tile_number,
            column: tile_column,
        };
        let mut stmts = fetch.step(self, columns, step);
        stmts.push(tile.multiply_add(self, &weights, &value));
        let sum = match (&p.terms, loops.as_slice()) {
            (Some(terms), &[(k_var, _)]) => in_run(Stmt::seq(stmts), (k_var, terms.clone())),
            (_, loops) => loops
                .iter()
                .rev()
                .fold(Stmt::seq(stmts), |stmt, &(var, extent)| around(var, extent, stmt)),
        };
        let index =
            |_: &PrimExpr, i: &PrimExpr, offset: PrimExpr| index(i, column.clone() + offset);
        let store = tile.store(self, p.root, p.inner, &index);
        tile.wrap(Stmt::seq([clear, sum, store]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_along_the_last_axis_unless_it_is_short_and_another_one_is_longer() {
        assert_eq!(row_axis(&[128]), 0);
        assert_eq!(row_axis(&[64, 1]), 0);
        assert_eq!(row_axis(&[2, 40, 3]), 1);
        assert_eq!(row_axis(&[4, 4]), 1);
        assert_eq!(row_axis(&[100, 14]), 1);
    }
}
