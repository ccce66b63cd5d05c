//! Matrices whose elements are computed of several constants of fewer bits.
//!
//! Few rows compute what they multiply where they read it: that is what such matrices are for, as
//! there are fewer bytes to be read. For many, a panel is widened once, before its tiles go over it.
//! Where an element has only to be converted, as one of 16 bits, that is no gain: the tiles' loads
//! from the second cache level take as long as their conversions.

use super::{Cut, MatMul, RowCount};
use crate::ir::BufferSpec;
use crate::strategy::emit::Emitter;
use crate::strategy::tile::{Column, Columns, FOUR};
use crate::strategy::words::Words;
use crate::te::{StageId, StageKind};
use crate::tir::{BufferId, ForKind, PrimExpr, Stmt, VarId};

/// Fewest tiles for which a panel is widened before.
const MIN_TILES: i64 = 2;

/// Most rows of a matrix that share a byte.
const MAX_SHARE: i64 = 2;

/// A loop over terms of a sum.
pub(super) type TermLoop = (VarId, i64, ForKind);

/// A constant matrix that is computed, where it is read, of one that has an element for each of its own,
/// or for two rows, and of others that have an element for several rows of it.
pub(super) struct Widened {
    pub(super) stage: StageId,
    /// The others.
    pub(super) scales: Vec<BufferId>,
    /// Rows for which the first one has an element.
    pub(super) share: i64,
    /// Rows for which each of the others has an element.
    pub(super) block: i64,
}

impl Emitter {
    /// The constant matrix that a stage is computed of by element, if it is one. Rows are along sums, or
    /// columns if the stage is transposed.
    pub(super) fn widened(&self, stage: StageId, transposed: bool) -> Option<(BufferId, Widened)> {
        let is_compute = matches!(self.dag.stages[stage].kind, StageKind::Compute(_));
        if !is_compute || self.materialised.contains_key(&stage) || self.uses[&stage] != 1 {
            return None;
        }
        let extents = |stage: StageId| match *self.dag.shape(stage) {
            [columns, rows] if transposed => Some([rows, columns]),
            [rows, columns] => Some([rows, columns]),
            _ => None,
        };
        let [rows, columns] = extents(stage)?;
        let mut parts = Vec::new();
        for read in self.dag.reads(stage) {
            let buffer =
                self.materialised.get(&read).filter(|buffer| self.is_constant(**buffer))?;
            let [r, c] = extents(read)?;
            if r <= 0 || r > rows || c <= 0 || c > columns {
                return None;
            }
            // Rows, or columns if that is more, for which it has an element.
            let shared = ((rows + r - 1) / r).max((columns + c - 1) / c);
            parts.push((*buffer, shared, c == columns));
        }
        let at = parts.iter().enumerate().min_by_key(|(_, part)| part.1).map(|(at, _)| at)?;
        let (matrix, share, has_columns) = parts.remove(at);
        let block = parts.iter().map(|part| part.1).max().unwrap_or(1);
        let scales = parts.into_iter().map(|(buffer, ..)| buffer).collect();
        let is_matrix = share <= MAX_SHARE && has_columns;
        is_matrix.then_some((matrix, Widened { stage, scales, share, block }))
    }

    /// An element of the matrix, in the matrix's own type or widened.
    pub(super) fn weight(&mut self, p: &MatMul, at: Vec<PrimExpr>) -> PrimExpr {
        match &p.rhs.widened {
            None => self.func.load(p.rhs.buffer, at),
            Some(Widened { stage, .. }) => {
                let (mut inliner, func) = self.inliner();
                inliner.element(func, *stage, &at)
            }
        }
    }

    /// The number of a step of a sum, and the loop over so many.
    pub(super) fn whole_terms(&mut self, steps: i64) -> (PrimExpr, Vec<TermLoop>) {
        let (number, var) = self.counter("k", steps);
        (number, vec![(var, steps, ForKind::Serial)])
    }

    /// The number of a step of a sum, and the loops over all: what all rows of a block share is read
    /// before them, and the rows of a byte are written out, as each is another part of it.
    pub(super) fn blocks_of_terms(&mut self, p: &MatMul) -> (PrimExpr, Vec<TermLoop>) {
        let steps = p.ty.steps(p.k);
        let (block, share) = p.rhs.widened.as_ref().map_or((1, 1), |w| (w.block, w.share));
        if block == 1 || steps % block != 0 || block % share != 0 || p.terms.is_some() {
            return self.whole_terms(steps);
        }
        let (first, first_var) = self.counter("kb", steps / block);
        let (inner, k_var) = self.counter("k", block / share);
        let (of_byte, byte_var) = self.counter("kh", share);
        let loops = vec![
            (first_var, steps / block, ForKind::Serial),
            (k_var, block / share, ForKind::Serial),
            (byte_var, share, ForKind::Unrolled),
        ];
        (first * block + inner * share + of_byte, loops)
    }

    /// The columns of a tile in the type of the sums, if several tiles of rows go over them: where they
    /// are, and what fills it.
    pub(super) fn widen(
        &mut self,
        p: &MatMul,
        cut: &Cut,
        rows: &RowCount,
        columns: Columns,
        (batch, column): (&[PrimExpr], &Column),
    ) -> Option<(BufferId, Stmt)> {
        if p.ty.fours {
            return self.widen_bytes(p, columns, cut.tiles(rows), (batch, column));
        }
        let (width, dtype) = (columns.vectors * columns.lanes, p.ty.sum);
        let bytes = p.k.saturating_mul(width).saturating_mul(i64::from(dtype.bits()) / 8);
        let is_worth = p.rhs.widened.is_some() && cut.tiles(rows) >= MIN_TILES;
        if !is_worth || bytes > self.machine.middle_bytes() {
            return None;
        }
        let wide = self.func.local("wide", dtype, BufferSpec::dense(&[p.k, width]));
        let (k, loops) = self.blocks_of_terms(p);
        let mut stmts = Vec::new();
        for vector in 0..columns.vectors {
            let (lane, var) = self.counter("l", columns.lanes);
            let offset = lane + vector * columns.lanes;
            let at = p.matrix_index(batch, [k.clone(), column.first.clone() + offset.clone()]);
            let element = self.weight(p, at).cast(dtype);
            let store = self.func.store(wide, [k.clone(), offset], element);
            let lanes = PrimExpr::index(columns.lanes);
            stmts.push(Stmt::for_loop(var, 0.into(), lanes, ForKind::Vectorized, store));
        }
        Some((wide, Stmt::block("wide", over_terms(loops, Stmt::seq(stmts)))))
    }

    /// The columns of a tile as words.
    fn widen_bytes(
        &mut self,
        p: &MatMul,
        columns: Columns,
        tiles: i64,
        (batch, column): (&[PrimExpr], &Column),
    ) -> Option<(BufferId, Stmt)> {
        let steps = p.ty.steps(p.k);
        let buffer = self.words(p.ty, columns, [steps, tiles])?;
        let (step, loops) = self.whole_terms(steps);
        let weights = |emitter: &mut Emitter, offset: PrimExpr, term: PrimExpr| {
            let at = [step.clone() * FOUR + term, column.first.clone() + offset];
            emitter.weight(p, p.matrix_index(batch, at))
        };
        let fill = self.widen_step(Words { buffer, step: &step }, columns, &weights);
        Some((buffer, Stmt::block("wide", over_terms(loops, fill))))
    }
}

/// Loops around what is done for each term of a sum, outermost first.
pub(super) fn over_terms(loops: Vec<TermLoop>, body: Stmt) -> Stmt {
    loops.into_iter().rev().fold(body, |body, (var, extent, kind)| match extent {
        1 => body,
        _ => Stmt::for_loop(var, 0.into(), extent.into(), kind, body),
    })
}
