//! Register tiles: the outer product of a column of one operand with vectors of packed weights.

mod matrix;
mod spilled;

use std::fmt;
use std::ops::Range;

use super::conv2d::around;
use super::cover::adjacent;
use super::emit::Emitter;
use super::machine::Machine;
use crate::ir::{BufferSpec, DType};
use crate::ops::nn::is_narrow;
use crate::te::StageId;
use crate::tir::{BufferId, ForKind, MATRIX_SUMS, PrimExpr, Stmt};
pub(super) use matrix::{MOST_MATRIX_ROWS, divisor_of_steps, matrix_step};
pub(super) use spilled::Spilled;

/// Bytes that are multiplied with as many others and added to one sum by an instruction.
pub(super) const FOUR: i64 = 4;

/// Registers that values of rows need where sums are of `float16`.
const HALVES_IN_ROWS: i64 = 4;

/// The data types of a tile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TileType {
    /// Of what is broadcast: pixels, rows of a matrix.
    pub(super) lhs: DType,
    /// Of what is read in vectors: weights, columns of a matrix.
    pub(super) rhs: DType,
    /// Of the sums.
    pub(super) sum: DType,
    /// Whether four steps of a sum are one instruction: [`PrimExpr::DotAdd`].
    pub(super) fours: bool,
}

impl fmt::Display for TileType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TileType { lhs, rhs, sum: _, fours } = self;
        write!(f, "{lhs} x {rhs}{}", if *fours { " by fours" } else { "" })
    }
}

impl TileType {
    /// The types of sums of products of `lhs` and `rhs`; `None` if there are no tiles of them. Unsigned
    /// bytes and signed ones are taken by fours where a vector holds some. Weights of fewer bits than the sums are widened
    /// where they are read.
    pub(super) fn of(lhs: DType, rhs: DType, sum: DType, packing: Machine) -> Option<TileType> {
        let is_byte = |dtype| matches!(dtype, DType::I8 | DType::U8);
        match sum {
            DType::F32 if lhs == sum && (rhs == sum || is_narrow(rhs)) => {
                Some(TileType { lhs, rhs, sum, fours: false })
            }
            DType::F16 | DType::F64 if lhs == sum && rhs == sum => {
                Some(TileType { lhs, rhs, sum, fours: false })
            }
            DType::I32 if is_byte(lhs) && is_byte(rhs) => {
                let fours = lhs != rhs && packing.vector_bits > 0;
                Some(TileType { lhs, rhs, sum, fours })
            }
            _ => None,
        }
    }

    /// Elements of the operands along a sum that one step takes.
    pub(super) fn depth(self) -> i64 {
        if self.fours { FOUR } else { 1 }
    }

    /// Steps of a sum of so many terms.
    pub(super) fn steps(self, terms: i64) -> i64 {
        (terms + self.depth() - 1) / self.depth()
    }

    /// Bytes of an element of the left operand.
    pub(super) fn bytes(self) -> i64 {
        i64::from(self.lhs.bits() / 8)
    }

    /// Rows of a tile whose rows take `vectors` registers each.
    pub(super) fn rows(self, machine: Machine, vectors: i64) -> i64 {
        let rows = machine.tile_rows(vectors);
        if self.sum == DType::F16 && machine.halves {
            // Instructions take a row's value from half of the registers alone.
            let free = i64::from(machine.registers) - vectors - HALVES_IN_ROWS;
            return rows.min((free / vectors.max(1)).max(1));
        }
        if !self.fours {
            return rows;
        }
        // An instruction broadcasts its second operand alone, which the weights are: the row's four
        // bytes take a register, beside one for each vector of weights.
        // AArch64, which has 32 registers of 128 bits, corrects sums or widens bytes besides, and compilers
        // read the bytes of all rows first.
        let is_aarch64 = (machine.registers, machine.vector_bits) == (32, 128);
        // Words are twice as many registers as bytes, and products of them have one of their own.
        let (others, each) = match is_aarch64 {
            true => (2, vectors + 1),
            false if machine.words => (3 + vectors, vectors.max(1)),
            false => (1, vectors.max(1)),
        };
        let free = (i64::from(machine.registers) - vectors - others) / each;
        rows.min(free.max(1))
    }
}

/// The place of an element of the left operand of a tile's product.
pub(super) type Place = (BufferId, Vec<PrimExpr>);

/// The weight of a column in the tile and a term in a step.
pub(super) type Weight<'a> = dyn Fn(&mut Emitter, PrimExpr, PrimExpr) -> PrimExpr + 'a;

/// What becomes of a sum.
pub(super) struct Outcome<'a> {
    /// What is stored.
    pub(super) root: StageId,
    /// What is summed.
    pub(super) inner: StageId,
    /// The index in the result of a row, by its two indices, and a column of the tile.
    pub(super) index: &'a dyn Fn(&PrimExpr, &PrimExpr, PrimExpr) -> Vec<PrimExpr>,
}

impl Outcome<'_> {
    /// Stores what the root makes of the sum of a row and a column.
    fn store(
        &self,
        emitter: &mut Emitter,
        [outer, inner]: [&PrimExpr; 2],
        column: PrimExpr,
        sum: PrimExpr,
    ) -> Stmt {
        let at = (self.index)(outer, inner, column);
        emitter.store_element(self.root, Some((self.inner, sum)), &at)
    }
}

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

/// Tiles of one width, side by side in blocks, those in larger ones, up to panels of weights.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct ColumnRun {
    /// First column.
    pub(super) first: i64,
    /// Loops, outermost first: iterations, and columns from one to the next.
    pub(super) loops: Vec<(i64, i64)>,
    /// The columns of one tile.
    pub(super) columns: Columns,
}

impl ColumnRun {
    /// `total` columns in blocks of the largest of `steps`, those in blocks of the next and so on
    /// down to tiles. Each divides the one before it.
    ///
    /// A loop for each step keeps the place in a block apart from the block's number, so that no
    /// index is divided while the program runs.
    pub(super) fn cover(total: i64, steps: &[i64], lanes: i64) -> Vec<ColumnRun> {
        let mut runs = Vec::new();
        let mut first = 0;
        for (position, &step) in steps.iter().enumerate() {
            let count = (total - first) / step;
            if count == 0 {
                continue;
            }
            let mut loops = vec![(count, step)];
            let inner = steps[position..].windows(2).map(|pair| (pair[0] / pair[1], pair[1]));
            loops.extend(inner);
            let width = steps.last().copied().unwrap_or(step);
            runs.push(ColumnRun { first, loops, columns: Columns::new(width, lanes) });
            first += count * step;
        }
        if first < total {
            let columns = Columns::new(total - first, lanes);
            runs.push(ColumnRun { first, loops: Vec::new(), columns });
        }
        runs
    }

    /// `total` columns in tiles of `width` and narrower ones behind, of which no vector is beyond
    /// the last column.
    pub(super) fn within(total: i64, width: i64, lanes: i64) -> Vec<ColumnRun> {
        let mut first = total / lanes * lanes;
        let mut runs = ColumnRun::cover(first, &[width], lanes);
        let mut lanes = lanes;
        while first < total {
            lanes /= 2;
            if total - first >= lanes {
                let columns = Columns::new(lanes, lanes);
                runs.push(ColumnRun { first, loops: Vec::new(), columns });
                first += lanes;
            }
        }
        runs
    }
}

/// A tile among those of a run.
pub(super) struct Column {
    /// Its first column.
    pub(super) first: PrimExpr,
    /// The first column of the outermost of the blocks it is in.
    pub(super) panel: PrimExpr,
    /// Its number in that block.
    pub(super) number: PrimExpr,
}

/// Those of `sizes`, largest first, that are smaller than the ones before and divide them.
pub(super) fn steps(sizes: &[i64]) -> Vec<i64> {
    let mut steps: Vec<i64> = Vec::new();
    for &size in sizes {
        if steps.last().is_none_or(|&last| size < last && last % size == 0) {
            steps.push(size);
        }
    }
    steps
}

/// Where the accumulators of a tile are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sums {
    /// In vector registers, each of which has a part of a row.
    Vectors,
    /// In registers that are matrices, from where they come to memory: see
    /// [`MATRIX_SUMS`](crate::tir::MATRIX_SUMS).
    Matrices,
}

/// Accumulators in registers.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) rows: Rows,
    pub(super) columns: Columns,
    ty: TileType,
    sums: Sums,
    acc: BufferId,
}

impl Emitter {
    /// Loops over the tiles of a run; `body` is handed the first column.
    pub(super) fn over_columns(
        &mut self,
        run: &ColumnRun,
        body: &mut dyn FnMut(&mut Emitter, &Column) -> Stmt,
    ) -> Stmt {
        let counters: Vec<_> =
            run.loops.iter().map(|&(count, _)| self.counter("o", count)).collect();
        let mut first = PrimExpr::index(run.first);
        let mut panel = first.clone();
        let mut number = PrimExpr::index(0);
        for (position, ((index, _), (count, step))) in counters.iter().zip(&run.loops).enumerate() {
            first = first + index.clone() * *step;
            if position == 0 {
                panel = first.clone();
            } else {
                number = number * *count + index.clone();
            }
        }
        let stmt = body(self, &Column { first, panel, number });
        counters
            .into_iter()
            .zip(&run.loops)
            .rev()
            .fold(stmt, |stmt, ((_, var), &(count, _))| around(var, count, stmt))
    }
}

impl Tile {
    pub(super) fn new(
        emitter: &mut Emitter,
        rows: Rows,
        columns: Columns,
        ty: TileType,
        sums: Sums,
    ) -> Tile {
        let (count, width) = (rows.outer * rows.inner, columns.vectors * columns.lanes);
        let acc = match sums {
            Sums::Vectors => emitter.func.register("acc", ty.sum, &[count * width]),
            Sums::Matrices => {
                emitter.func.local("sums", ty.sum, BufferSpec::dense(&[count, width]))
            }
        };
        Tile { rows, columns, ty, sums, acc }
    }

    fn at(
        &self,
        outer: &PrimExpr,
        inner: &PrimExpr,
        vector: i64,
        lane: &PrimExpr,
    ) -> Vec<PrimExpr> {
        let row = outer.clone() * self.rows.inner + inner.clone();
        let width = self.columns.vectors * self.columns.lanes;
        let column = |first: PrimExpr| first + vector * self.columns.lanes + lane.clone();
        match self.sums {
            Sums::Vectors => vec![column(row * width)],
            Sums::Matrices => vec![row, column(PrimExpr::index(0))],
        }
    }

    /// `body` for each row, written out if it is in vectors; it is handed the row's two indices.
    pub(super) fn each_row(
        &self,
        emitter: &mut Emitter,
        body: impl FnOnce(&mut Emitter, &PrimExpr, &PrimExpr) -> Stmt,
    ) -> Stmt {
        let (y, outer) = emitter.counter("y", self.rows.outer);
        let (x, inner) = emitter.counter("x", self.rows.inner);
        let stmt = body(emitter, &y, &x);
        let kind = match self.sums {
            Sums::Vectors => ForKind::Unrolled,
            Sums::Matrices => ForKind::Serial,
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

    /// The sums: every accumulator is zero, then `terms` are added.
    pub(super) fn sum(&self, emitter: &mut Emitter, terms: Stmt) -> Stmt {
        let clear = self.clear(emitter);
        match self.sums {
            Sums::Vectors => Stmt::seq([clear, terms]),
            Sums::Matrices => Stmt::block(MATRIX_SUMS, Stmt::Seq(vec![clear, terms])),
        }
    }

    /// Sets every accumulator to zero.
    fn clear(&self, emitter: &mut Emitter) -> Stmt {
        let stmts: Vec<Stmt> = (0..self.columns.vectors)
            .map(|vector| {
                self.each_lane(emitter, |emitter, lane| {
                    self.each_row(emitter, |emitter, outer, inner| {
                        let dtype = emitter.func.buffers[self.acc].dtype;
                        let at = self.at(outer, inner, vector, lane);
                        emitter.func.store(self.acc, at, PrimExpr::zero(dtype))
                    })
                })
            })
            .collect();
        Stmt::seq(stmts)
    }

    /// Adds a step's products to each accumulator: `weight` is that of a column and a term of the
    /// step, `value` where that of a row, a column and a term is.
    pub(super) fn multiply_add(
        &self,
        emitter: &mut Emitter,
        weight: &Weight<'_>,
        value: &dyn Fn([&PrimExpr; 2], PrimExpr, PrimExpr) -> Place,
    ) -> Stmt {
        // Row by row: a broadcast then lives for one row only. Vector by vector, compilers would
        // keep the broadcasts of all rows and move accumulators to memory.
        self.each_row(emitter, |emitter, outer, inner| {
            let stmts: Vec<Stmt> = (0..self.columns.vectors)
                .map(|vector| {
                    if self.ty.fours {
                        return self.dot_add(emitter, weight, value, [outer, inner], vector);
                    }
                    self.each_lane(emitter, |emitter, lane| {
                        let column = lane.clone() + vector * self.columns.lanes;
                        let at = self.at(outer, inner, vector, lane);
                        let sum = emitter.func.load(self.acc, at.clone());
                        let first = PrimExpr::index(0);
                        let w = weight(emitter, column.clone(), first.clone()).cast(self.ty.sum);
                        let (buffer, place) = value([outer, inner], column, first);
                        let a = emitter.func.load(buffer, place).cast(self.ty.sum);
                        let sum = match self.ty.sum.is_float() {
                            true => PrimExpr::mul_add(a, w, sum),
                            false => sum + a * w,
                        };
                        emitter.func.store(self.acc, at, sum)
                    })
                })
                .collect();
            Stmt::seq(stmts)
        })
    }

    /// One instruction for all columns of a vector, four terms of each.
    fn dot_add(
        &self,
        emitter: &mut Emitter,
        weight: &Weight<'_>,
        value: &dyn Fn([&PrimExpr; 2], PrimExpr, PrimExpr) -> Place,
        [outer, inner]: [&PrimExpr; 2],
        vector: i64,
    ) -> Stmt {
        let first = vector * self.columns.lanes;
        let bytes = PrimExpr::ramp(PrimExpr::index(0), 1, (self.columns.lanes * FOUR) as u32);
        let w = weight(emitter, bytes.clone().floordiv(FOUR) + first, bytes.floormod(FOUR));
        let a = self.fours(emitter, value, [outer, inner], first);
        self.add_dot(emitter, [outer, inner], vector, (a, w))
    }

    /// The four bytes of a row that a step takes, once for each column of a vector.
    pub(super) fn fours(
        &self,
        emitter: &Emitter,
        value: &dyn Fn([&PrimExpr; 2], PrimExpr, PrimExpr) -> Place,
        rows: [&PrimExpr; 2],
        first: i64,
    ) -> PrimExpr {
        let (lanes, four) = (self.columns.lanes as u32, FOUR as u32);
        let terms = PrimExpr::ramp(PrimExpr::index(0), 1, four);
        let (lhs, at) = value(rows, PrimExpr::index(first), terms);
        let repeated = (0..lanes * four).map(|lane| lane % four).collect();
        emitter.func.load(lhs, at).shuffle(repeated)
    }

    /// Adds the products of fours of bytes to the sums of a row.
    pub(super) fn add_dot(
        &self,
        emitter: &Emitter,
        rows: [&PrimExpr; 2],
        vector: i64,
        (bytes, weights): (PrimExpr, PrimExpr),
    ) -> Stmt {
        // Unsigned bytes are the first operand.
        let (a, b) = match self.ty.lhs {
            DType::I8 => (weights, bytes),
            _ => (bytes, weights),
        };
        self.add(emitter, rows, vector, |sum| PrimExpr::dot_add(a, b, sum))
    }

    /// Adds the products of two vectors of floats to the sums of a row.
    pub(super) fn add_product(
        &self,
        emitter: &Emitter,
        rows: [&PrimExpr; 2],
        vector: i64,
        (a, b): (PrimExpr, PrimExpr),
    ) -> Stmt {
        self.add(emitter, rows, vector, |sum| PrimExpr::mul_add(a, b, sum))
    }

    /// Makes a vector of sums of a row another.
    fn add(
        &self,
        emitter: &Emitter,
        [outer, inner]: [&PrimExpr; 2],
        vector: i64,
        added: impl FnOnce(PrimExpr) -> PrimExpr,
    ) -> Stmt {
        let lanes = PrimExpr::ramp(PrimExpr::index(0), 1, self.columns.lanes as u32);
        let at = self.at(outer, inner, vector, &lanes);
        let sum = emitter.func.load(self.acc, at.clone());
        emitter.func.store(self.acc, at, added(sum))
    }

    /// Stores what becomes of each accumulator.
    ///
    /// Rows whose columns lie side by side are stored one behind the other, in the order of memory: a
    /// line of the cache that some stores share is asked for once, and the next ones are foreseen.
    pub(super) fn store(&self, emitter: &mut Emitter, outcome: &Outcome<'_>) -> Stmt {
        if self.sums == Sums::Matrices {
            return self.in_memory().store(emitter, outcome);
        }
        let Columns { vectors, lanes, .. } = self.columns;
        let result = emitter.materialised[&outcome.root];
        let by_rows = adjacent(&emitter.func.buffers[result].spec) > lanes;
        let together = if by_rows { vectors } else { 1 };
        let groups = (0..vectors / together).map(|group| group * together..(group + 1) * together);
        let stmts = groups.map(|group| self.store_vectors(emitter, group, outcome));
        Stmt::seq(stmts.collect::<Vec<_>>())
    }

    /// Stores vectors of the result, row by row: at once if all that is read and written lies in
    /// vectors, too, and from memory otherwise.
    fn store_vectors(
        &self,
        emitter: &mut Emitter,
        vectors: Range<i64>,
        outcome: &Outcome<'_>,
    ) -> Stmt {
        let is_alone = vectors.end - vectors.start == 1;
        let mut spilled = Vec::new();
        let rows = self.each_row(emitter, |emitter, outer, inner| {
            let parts = vectors.map(|vector| {
                let part = self.store_vector(emitter, vector, [outer, inner], outcome);
                part.unwrap_or_else(|| {
                    let memory = self.spilled(emitter, vector);
                    let part = memory.store_row(emitter, [outer, inner], outcome);
                    spilled.push((vector, memory));
                    part
                })
            });
            Stmt::seq(parts.collect::<Vec<_>>())
        });
        spilled.into_iter().fold(rows, |rows, (vector, spilled)| {
            // With nothing stored between, rows need not be written out.
            let rows = if is_alone { spilled.store(emitter, outcome) } else { rows };
            let spill = self.spill_vector(emitter, spilled.memory, vector, 0);
            Stmt::allocate(spilled.memory, Stmt::seq([spill, rows]))
        })
    }

    /// A row's vector of the result, if all that is read and written lies in vectors, too.
    fn store_vector(
        &self,
        emitter: &mut Emitter,
        vector: i64,
        [outer, inner]: [&PrimExpr; 2],
        outcome: &Outcome<'_>,
    ) -> Option<Stmt> {
        let lanes = self.columns.lanes;
        let last = vector + 1 == self.columns.vectors;
        let overruns = last && self.columns.valid < lanes;
        let stmt = self.each_lane(emitter, |emitter, lane| {
            let value = emitter.func.load(self.acc, self.at(outer, inner, vector, lane));
            outcome.store(emitter, [outer, inner], lane.clone() + vector * lanes, value)
        });
        let Stmt::For { var, body, .. } = &stmt else { unreachable!("a loop over lanes") };
        let fits = emitter.can_vectorize(body, *var, lanes, overruns);
        fits.then_some(stmt)
    }

    /// The accumulators of a vector in memory, from where the valid ones are stored in narrower
    /// vectors, or each on its own.
    fn spilled(&self, emitter: &mut Emitter, vector: i64) -> Spilled {
        let (lanes, rows) = (self.columns.lanes, self.rows);
        let dtype = emitter.func.buffers[self.acc].dtype;
        let spec = BufferSpec::dense(&[rows.outer * rows.inner, lanes]);
        let last = vector + 1 == self.columns.vectors;
        Spilled {
            memory: emitter.func.local("tile", dtype, spec),
            rows: [rows.outer, rows.inner].map(PrimExpr::index),
            first: vector * lanes,
            valid: if last { self.columns.valid } else { lanes },
            widest: lanes / 2,
        }
    }

    /// Stores the accumulators of a vector to rows in memory, at a column of them.
    fn spill_vector(
        &self,
        emitter: &mut Emitter,
        memory: BufferId,
        vector: i64,
        column: i64,
    ) -> Stmt {
        self.each_lane(emitter, |emitter, lane| {
            self.each_row(emitter, |emitter, outer, inner| {
                let value = emitter.func.load(self.acc, self.at(outer, inner, vector, lane));
                let row = outer.clone() * self.rows.inner + inner.clone();
                emitter.func.store(memory, [row, lane.clone() + column], value)
            })
        })
    }

    /// Stores all accumulators to rows in memory.
    pub(super) fn spill(&self, emitter: &mut Emitter, memory: BufferId) -> Stmt {
        let vectors = 0..self.columns.vectors;
        let stmts = vectors.map(|v| self.spill_vector(emitter, memory, v, v * self.columns.lanes));
        Stmt::seq(stmts.collect::<Vec<_>>())
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
    fn runs_cover_each_column_once_and_no_tile_leaves_its_block() {
        let cases: [(&[i64], i64); 5] =
            [(&[32], 16), (&[32, 16], 8), (&[48, 16, 8], 4), (&[48, 12], 4), (&[16, 4], 4)];
        for total in 1..150 {
            for (steps, lanes) in cases {
                let mut columns = Vec::new();
                for run in ColumnRun::cover(total, steps, lanes) {
                    let valid = (run.columns.vectors - 1) * lanes + run.columns.valid;
                    let mut starts = vec![run.first];
                    for (count, step) in run.loops {
                        let inner = |start: i64| (0..count).map(move |i| start + i * step);
                        starts = starts.into_iter().flat_map(inner).collect();
                    }
                    for first in starts {
                        for step in steps {
                            assert_eq!(first / step, (first + valid - 1) / step);
                        }
                        columns.extend(first..first + valid);
                    }
                }
                assert_eq!(columns, (0..total).collect::<Vec<_>>(), "{total} in {steps:?}");
            }
        }
    }
}
