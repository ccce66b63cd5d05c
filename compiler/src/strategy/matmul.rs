//! Matrix products in register tiles.
//!
//! The right operand is read in panels as wide as a tile. A constant is packed in them while the
//! model is compiled; of one that is computed, a copy is made in them for each matrix of a batch,
//! which takes a small part of the time of the products if there are many rows. With few, each
//! element is read once, where it is.

mod cut;
mod fours;
mod widen;

use super::conv2d::around;
use super::emit::Emitter;
use super::fetch::{Fetch, Step, Streamed, Turn};
use super::machine::{FEW_ROWS, MAX_TILE_ROWS};
use super::nest::{block, in_run};
use super::reduce::Reduction;
use super::tile::{
    Column, Columns, Outcome, Rows, Spilled, Sums, Tile, TileType, divisor_of_steps, matrix_step,
};
use super::tiling::{Order, Run};
use super::words::Words;
use crate::ir::BufferSpec;
use crate::ops::broadcast;
use crate::te::{AxisLimit, StageId};
use crate::tir::border::fill_halo;
use crate::tir::transform::{INDEPENDENT_LOOP, limit_fill};
use crate::tir::{BufferId, ForKind, PrimExpr, Stmt, VarId};
use cut::Cut;
use widen::{Widened, over_terms};

/// Most rows that read a matrix where it is if their number is known at run time alone: a run may have
/// one, as each step of a decoder, and a copy of the keys so far would take longer than the product.
const MAX_READ_ROWS: i64 = 32;

/// Fewest rows of products with a matrix of which a copy in panels is made, if it cannot be read
/// where it is, as a computed one of bytes.
pub(crate) const MIN_PACKED_ROWS: i64 = 4;

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
    pub(super) rows: RowCount,
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

impl Matrices {
    /// Rows that share an element of the buffer.
    fn share(&self) -> i64 {
        self.widened.as_ref().map_or(1, |widened| widened.share)
    }
}

/// How many rows a product has, or a block of them.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct RowCount {
    /// The most there are.
    pub(super) most: i64,
    /// How many, if each run has its own number.
    pub(super) of_run: Option<PrimExpr>,
}

impl RowCount {
    /// Those of a block of so many that begins with a row.
    pub(super) fn block(&self, most: i64, first: &PrimExpr) -> RowCount {
        let rest = |rows: &PrimExpr| (rows.clone() - first.clone()).min(PrimExpr::index(most));
        RowCount { most, of_run: self.of_run.as_ref().map(rest) }
    }
}

/// Where a tile is.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// The index of its batch.
    batch: &'a [PrimExpr],
    tile: &'a TileRows,
    column: &'a Column,
    /// The tile's columns of the matrix as the sums' numbers, or as words, if they are there.
    wide: Option<BufferId>,
    /// Where its sums are.
    sums: Sums,
    /// Whether its rows are read for it alone, from beyond the caches that are near.
    streamed: bool,
}

impl Place<'_> {
    /// The index of an element in a row of the tile.
    fn index(&self, p: &MatMul, row: &PrimExpr, last: PrimExpr) -> Vec<PrimExpr> {
        let mut at = self.batch.to_vec();
        at.insert(p.row_axis, self.tile.first.clone() + row.clone());
        at.push(last);
        at
    }
}

/// The rows of a tile.
#[derive(Clone)]
struct TileRows {
    size: Size,
    first: PrimExpr,
    turn: Turn,
}

impl TileRows {
    /// The same behind a row.
    fn behind(&self, row: &PrimExpr) -> TileRows {
        TileRows { first: row.clone() + self.first.clone(), ..self.clone() }
    }
}

/// How many rows a tile has.
#[derive(Clone)]
enum Size {
    Known(i64),
    /// That number of at most so many, 1 or more.
    OfRun {
        size: PrimExpr,
        most: i64,
    },
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
    /// The index of an element of the matrix of a place of the batch, by its place along the sums and
    /// its column.
    fn matrix_index(&self, batch: &[PrimExpr], [k, n]: [PrimExpr; 2]) -> Vec<PrimExpr> {
        let last = if self.transpose_b { [n, k] } else { [k, n] };
        broadcast(&self.rhs.batch, &self.batch, batch).into_iter().chain(last).collect()
    }

    /// The index of an element of the left operand, by its row's place in the result and its place
    /// along the sums.
    fn lhs_index(&self, place: Vec<PrimExpr>) -> Vec<PrimExpr> {
        let mut extents = self.batch.clone();
        extents.insert(self.row_axis, self.rows.most);
        extents.push(self.k);
        let mut at = broadcast(&self.lhs_shape, &extents, &place);
        if self.transpose_a {
            let last = at.len() - 1;
            at.swap(last - 1, last);
        }
        at
    }

    /// Whether it is a product of floats with so many rows in each matrix of such a batch.
    pub(super) fn has_rows(&self, batch: &[i64], rows: i64) -> bool {
        let is_plain =
            self.batch == batch && self.row_axis == batch.len() && self.rows.most == rows;
        is_plain && !self.ty.fours
    }
}

impl Emitter {
    /// Whether a product of floats has one column, whose terms lie side by side in both operands.
    pub(super) fn has_one_column(&mut self, inner: StageId) -> bool {
        let is_column = self.dag.shape(inner).last() == Some(&1);
        is_column && Reduction::of(self, inner).is_some_and(|reduction| self.goes_along(&reduction))
    }

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
            return refused("of other types than float16, float32, float64 and integers of 8 bits");
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
        let widened = self.widened(rhs, transpose_b);
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
            rows: RowCount { most: m, of_run: rows },
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
        let cut = self.cut_product(p, p.rows.most, p.batch.iter().product());
        let batch = self.counters(&p.batch);
        let index: Vec<PrimExpr> = batch.iter().map(|(index, ..)| index.clone()).collect();
        let blocks = match cut.tiling.order {
            Order::Panels { blocks } => blocks,
            Order::Rows => 1,
        };
        let blocks = Run::cover(p.rows.most, (p.rows.most + blocks - 1) / blocks);
        let blocks = blocks.into_iter().map(|block| {
            let (i, i_var) = self.counter("ib", block.count);
            let first = &(i * block.size + block.first);
            let rows = p.rows.block(block.size, first);
            let stmt = self.block(p, &cut, &rows, (&index, first));
            around(i_var, block.count, stmt)
        });
        let body = Stmt::seq(blocks.collect::<Vec<_>>());
        let body = self.with_panels(p, &index, body);
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
        if let Some(copy) = self.pack_fours(p, matrices, first.clone()) {
            return Stmt::block("panels", copy);
        }
        let axes = if p.transpose_b { [1, 0] } else { [0, 1] };
        let ends = axes.into_iter().zip([p.terms.clone(), p.columns.clone()]);
        let ends: Vec<AxisLimit> =
            ends.filter_map(|(axis, end)| Some(AxisLimit { axis, extent: end? })).collect();
        self.ends.insert(p.rhs.buffer, ends.clone());
        let copy = self
            .fill(p.rhs.buffer, matrices, &|index| first.iter().chain(index).cloned().collect());
        let ends = ends.into_iter().map(|end| (p.rhs.buffer, end.axis, end.extent));
        Stmt::block("panels", limit_fill(&self.func, copy, ends))
    }

    /// A block of rows that begins with a row: those of a batch.
    ///
    /// If each run has its own number of rows, there may be a version for each number of few rows
    /// beside that for any number. All sums are those of a known number.
    pub(super) fn block(
        &mut self,
        p: &MatMul,
        cut: &Cut,
        rows: &RowCount,
        place: (&[PrimExpr], &PrimExpr),
    ) -> Stmt {
        let Some(count) = &rows.of_run else { return self.tiles(p, cut, rows, place) };
        let any = self.tiles(p, cut, rows, place);
        (1..=self.few_rows(p, cut)).rev().fold(any, |more, number| {
            let cut = self.cut_few(p, cut, number);
            let rows = RowCount { most: number, of_run: None };
            let stmt = self.tiles(p, &cut, &rows, place);
            Stmt::if_then_else(count.clone().equal(number), stmt, more)
        })
    }

    /// Rows that begin with a row, in tiles: each panel goes over its tiles, or each tile over panels.
    fn tiles(
        &mut self,
        p: &MatMul,
        cut: &Cut,
        rows: &RowCount,
        (batch, first): (&[PrimExpr], &PrimExpr),
    ) -> Stmt {
        if cut.tiling.order == Order::Rows {
            let streamed = cut.is_one_tile() && self.streams_rows(p);
            return self.over_rows(rows, cut, &mut |emitter, tile| {
                let tile = &tile.behind(first);
                let panels = cut.panels.iter().map(|run| {
                    let fetch = cut.fetch(p, run, 1);
                    emitter.over_columns(run, &mut |emitter, column| {
                        let sums = cut.sums;
                        let place = Place { batch, tile, column, wide: None, sums, streamed };
                        emitter.product_tile(p, run.columns, &fetch, &place)
                    })
                });
                Stmt::seq(panels.collect::<Vec<_>>())
            });
        }
        let panels = cut.panels.iter().map(|run| {
            let fetch = cut.fetch(p, run, cut.fetching_tiles(rows));
            self.over_columns(run, &mut |emitter, column| {
                let wide = emitter.widen(p, cut, rows, run.columns, (batch, column));
                let tiles = emitter.over_rows(rows, cut, &mut |emitter, tile| {
                    let (tile, wide) = (&tile.behind(first), wide.as_ref().map(|wide| wide.0));
                    let sums = cut.sums;
                    let place = Place { batch, tile, column, wide, sums, streamed: false };
                    emitter.product_tile(p, run.columns, &fetch, &place)
                });
                match wide {
                    Some((buffer, fill)) => Stmt::allocate(buffer, Stmt::seq([fill, tiles])),
                    None => tiles,
                }
            })
        });
        Stmt::seq(panels.collect::<Vec<_>>())
    }

    /// Whether rows lie one behind the other, each step of a sum reads one term of them, and they are so
    /// many that, with what is made of them, they come from beyond the second cache level.
    fn streams_rows(&self, p: &MatMul) -> bool {
        let terms =
            p.lhs_shape.iter().fold(1, |product: i64, &extent| product.saturating_mul(extent));
        let bytes = terms.saturating_mul(p.ty.bytes());
        let is_plain = !p.transpose_a
            && p.row_axis == p.batch.len()
            && p.rhs.share() == 1
            && self.func.buffers[p.lhs].spec.is_dense();
        is_plain && p.rows.of_run.is_none() && bytes >= self.machine.caches[1] / 2
    }

    /// Loops over tiles of rows.
    fn over_rows(
        &mut self,
        rows: &RowCount,
        cut: &Cut,
        body: &mut dyn FnMut(&mut Emitter, TileRows) -> Stmt,
    ) -> Stmt {
        let Some(count) = &rows.of_run else {
            let mut before = 0;
            let tiles = Run::cover(rows.most, cut.rows).into_iter().map(|run| {
                let (i, i_var) = self.counter("i", run.count);
                let number = i.clone() + before;
                before += run.count;
                let (size, first) = (Size::Known(run.size), i * run.size + run.first);
                let turn = Turn::known(number);
                around(i_var, run.count, body(self, TileRows { size, first, turn }))
            });
            return Stmt::seq(tiles.collect::<Vec<_>>());
        };
        // Whole tiles but for the last two, which share what is left: none is short.
        let (most, tiles) = (cut.rows, cut.tiles(rows));
        let used = (count.clone() + (most - 1)).floordiv(most);
        let missing = used.clone() * most - count.clone();
        let (number, number_var) = self.counter("i", tiles);
        let behind = used.clone() - number.clone();
        let is_last = behind.clone().equal(1);
        let is_only = count.clone().less_equal(most);
        let of_last = PrimExpr::select(is_only, missing.clone(), (missing.clone() + 1).floordiv(2));
        let of_other = PrimExpr::select(behind.equal(2), missing.floordiv(2), PrimExpr::index(0));
        let size_of = PrimExpr::index(most) - PrimExpr::select(is_last.clone(), of_last, of_other);
        let [size_var, first_var] = ["rows", "row"].map(|name| self.func.index_var(name));
        let [size, first] = [size_var, first_var].map(|var| self.func.var_expr(var));
        let first_of =
            PrimExpr::select(is_last, count.clone() - size.clone(), number.clone() * most);
        self.extents.insert(first_var, rows.most);
        let size = Size::OfRun { size, most };
        let turn = Turn::of_run(number.clone(), &used);
        let tile = body(self, TileRows { size, first, turn });
        let tile = Stmt::let_(size_var, size_of, Stmt::let_(first_var, first_of, tile));
        // Loops that threads share have constant bounds. No two tiles have a row in common.
        let (min, extent) = (PrimExpr::index(0), PrimExpr::index(tiles));
        let annotations = [(INDEPENDENT_LOOP.to_owned(), "1".to_owned())].into();
        let body = Box::new(Stmt::if_then(number.less(used), tile));
        Stmt::For { var: number_var, min, extent, kind: ForKind::Serial, annotations, body }
    }

    /// A tile of the result. One whose rows are known at run time alone has its sums for each number
    /// of rows, and one way to store them.
    fn product_tile(
        &mut self,
        p: &MatMul,
        columns: Columns,
        fetch: &Fetch,
        place: &Place<'_>,
    ) -> Stmt {
        let index = |_: &PrimExpr, i: &PrimExpr, offset: PrimExpr| {
            place.index(p, i, place.column.first.clone() + offset)
        };
        let outcome = Outcome { root: p.root, inner: p.inner, index: &index };
        let (size, most) = match &place.tile.size {
            Size::Known(rows) => {
                let (tile, sums) = self.product_sums(p, *rows, columns, Some(fetch), place);
                let store = tile.store(self, &outcome);
                return tile.wrap(Stmt::seq([sums, store]));
            }
            Size::OfRun { size, most } => (size, *most),
        };
        let spec = BufferSpec::dense(&[most, columns.vectors * columns.lanes]);
        let memory = self.func.local("tile", p.ty.sum, spec);
        let sums = (1..=most).fold(Stmt::nop(), |other, rows| {
            // Where there are more tiles than one, each has more rows. To ask for what is near takes
            // longer than few rows take.
            let few = self.weights_are_far().then(|| fetch.of_one_tile());
            let fetch = if rows > FEW_ROWS { Some(fetch) } else { few.as_ref() };
            let (tile, sums) = self.product_sums(p, rows, columns, fetch, place);
            let spill = tile.spill(self, memory);
            let stmt = tile.wrap(Stmt::seq([sums, spill]));
            Stmt::if_then_else(size.clone().equal(rows), stmt, other)
        });
        let spilled = Spilled {
            memory,
            rows: [PrimExpr::index(1), size.clone()],
            first: 0,
            valid: (columns.vectors - 1) * columns.lanes + columns.valid,
            widest: columns.lanes,
        };
        let store = spilled.store(self, &outcome);
        Stmt::allocate(memory, Stmt::seq([sums, store]))
    }

    /// The accumulators of a tile of so many rows, and how they become its sums.
    fn product_sums(
        &mut self,
        p: &MatMul,
        size: i64,
        columns: Columns,
        fetch: Option<&Fetch>,
        place: &Place<'_>,
    ) -> (Tile, Stmt) {
        let Place { batch, tile: rows, column: tile_column, wide, sums, streamed } = *place;
        let column = &tile_column.first;
        let tile = Tile::new(self, Rows { outer: 1, inner: size }, columns, p.ty, sums);
        if sums == Sums::Matrices {
            let terms = self.matrix_terms(p, &tile, fetch, place);
            return (tile, tile.sum(self, terms));
        }
        let steps = p.ty.steps(p.k);
        let (number, loops) = match wide {
            Some(_) => self.whole_terms(steps),
            None => self.blocks_of_terms(p),
        };
        let k = number.clone() * p.ty.depth();
        let at = |n: PrimExpr, k: PrimExpr| p.matrix_index(batch, [k, n]);
        let weights = |emitter: &mut Emitter, offset: PrimExpr, depth: PrimExpr| match wide {
            Some(wide) => emitter.func.load(wide, [k.clone() + depth, offset]),
            None => emitter.weight(p, at(column.clone() + offset, k.clone() + depth)),
        };
        let value = |[_, i]: [&PrimExpr; 2], _: PrimExpr, depth: PrimExpr| {
            (p.lhs, p.lhs_index(place.index(p, i, k.clone() + depth)))
        };
        let stored = |term: &PrimExpr| match p.rhs.share() {
            1 => term.clone(),
            share => term.clone().floordiv(share),
        };
        let step = Step {
            index: at(column.clone(), stored(&k)),
            panel: at(tile_column.panel.clone(), PrimExpr::index(0)),
            number: &stored(&number),
            steps: 1,
            turn: &rows.turn,
            column: tile_column,
            rows: streamed.then(|| Streamed {
                buffer: p.lhs,
                first: p.lhs_index(place.index(p, &PrimExpr::index(0), PrimExpr::index(0))),
                rows: size,
                length: p.k,
            }),
        };
        let mut stmts = fetch.map_or_else(Vec::new, |fetch| fetch.step(self, columns, step));
        stmts.push(match wide {
            Some(buffer) if p.ty.fours => {
                tile.add_words(self, Words { buffer, step: &number }, &value)
            }
            _ => tile.multiply_add(self, &weights, &value),
        });
        let sum = match (&p.terms, loops.as_slice()) {
            (Some(terms), &[(k_var, ..)]) => in_run(Stmt::seq(stmts), (k_var, terms.clone())),
            _ => over_terms(loops, Stmt::seq(stmts)),
        };
        (tile, tile.sum(self, sum))
    }

    /// The terms of sums in matrices, as many at a time as divide them.
    fn matrix_terms(
        &mut self,
        p: &MatMul,
        tile: &Tile,
        fetch: Option<&Fetch>,
        place: &Place<'_>,
    ) -> Stmt {
        let steps = p.ty.steps(p.k);
        let at_once = divisor_of_steps(steps).unwrap_or(steps);
        let (first, first_var) = self.counter("kb", steps / at_once);
        let (inner, inner_var) = self.counter("k", at_once);
        let number = first * at_once;
        let k = (number.clone() + inner) * p.ty.depth();
        let weights = |emitter: &mut Emitter, offset: PrimExpr, depth: PrimExpr| {
            let at = [k.clone() + depth, place.column.first.clone() + offset];
            emitter.weight(p, p.matrix_index(place.batch, at))
        };
        let value = |[_, i]: [&PrimExpr; 2], _: PrimExpr, depth: PrimExpr| {
            (p.lhs, p.lhs_index(place.index(p, i, k.clone() + depth)))
        };
        let at = |n: &PrimExpr, k: PrimExpr| p.matrix_index(place.batch, [k, n.clone()]);
        let asked = Step {
            index: at(&place.column.first, number.clone() * p.ty.depth()),
            panel: at(&place.column.panel, PrimExpr::index(0)),
            number: &number,
            steps: at_once,
            turn: &place.tile.turn,
            column: place.column,
            rows: None,
        };
        let mut stmts = fetch.map_or_else(Vec::new, |fetch| fetch.step(self, tile.columns, asked));
        let step = tile.multiply_add(self, &weights, &value);
        stmts.push(matrix_step(inner_var, at_once, step));
        around(first_var, steps / at_once, Stmt::seq(stmts))
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
