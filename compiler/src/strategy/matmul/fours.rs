//! Copies of computed matrices of bytes in panels that hold four terms of each column side by side.

use super::MatMul;
use crate::ir::DType;
use crate::strategy::conv2d::around;
use crate::strategy::emit::Emitter;
use crate::strategy::nest::block;
use crate::strategy::tile::FOUR;
use crate::te::StageId;
use crate::tir::{BufferId, PrimExpr, Stmt};

/// The copy of one matrix.
struct Copy<'a> {
    p: &'a MatMul,
    from: BufferId,
    /// The index of the matrix in its batch.
    batch: Vec<PrimExpr>,
}

impl Emitter {
    /// Copies a matrix that is stored, of known extents, four terms of some columns at a time; `None` for
    /// others. The places of terms that there are not become 0.
    pub(super) fn pack_fours(
        &mut self,
        p: &MatMul,
        matrices: StageId,
        batch: Vec<PrimExpr>,
    ) -> Option<Stmt> {
        let from = self.materialised.get(&matrices).copied()?;
        let is_known = p.terms.is_none() && p.columns.is_none();
        if !p.ty.fours || !is_known || !self.func.buffers[from].spec.is_dense() {
            return None;
        }
        let axis = if p.transpose_b { 0 } else { 1 };
        let panel = block(&self.func.buffers[p.rhs.buffer].spec, axis)?;
        let most = match p.transpose_b {
            true => 1,
            false => i64::from(self.machine.vector_bits / DType::I32.bits()).min(panel),
        };
        let copy = Copy { p, from, batch };
        let whole = p.n / panel;
        let (number, number_var) = self.counter("o", whole);
        let mut parts = Vec::new();
        if whole > 0 {
            let columns = copy.panel(self, &(number * panel), panel, most);
            parts.push(around(number_var, whole, columns));
        }
        if p.n % panel > 0 {
            parts.push(copy.panel(self, &PrimExpr::index(whole * panel), p.n % panel, most));
        }
        Some(Stmt::seq(parts))
    }
}

impl Copy<'_> {
    /// Copies so many columns of a panel, up to `most` at a time.
    fn panel(&self, emitter: &mut Emitter, first: &PrimExpr, columns: i64, most: i64) -> Stmt {
        let (whole, rest) = (self.p.k / FOUR, self.p.k % FOUR);
        let (four, four_var) = emitter.counter("k", whole);
        let mut at = 0;
        let mut width = most;
        let mut places = Vec::new();
        while at < columns {
            if at + width <= columns {
                places.push((first.clone() + at, width));
                at += width;
            } else {
                width /= 2;
            }
        }
        let fours = |emitter: &mut Emitter, four: &PrimExpr, valid: i64| {
            let stmts =
                places.iter().map(|(n, width)| self.fours(emitter, [four, n], *width, valid));
            Stmt::seq(stmts.collect::<Vec<_>>())
        };
        let mut stmts = Vec::new();
        if whole > 0 {
            let fours = fours(emitter, &four, FOUR);
            stmts.push(around(four_var, whole, fours));
        }
        if rest > 0 {
            stmts.push(fours(emitter, &PrimExpr::index(whole), rest));
        }
        Stmt::seq(stmts)
    }

    /// Copies so many of four terms of each of some columns.
    fn fours(
        &self,
        emitter: &mut Emitter,
        [four, column]: [&PrimExpr; 2],
        width: i64,
        valid: i64,
    ) -> Stmt {
        let lanes = u32::try_from(width).unwrap_or(1);
        let ramp = |first: PrimExpr, lanes: u32| match lanes {
            1 => first,
            _ => PrimExpr::ramp(first, 1, lanes),
        };
        let term = four.clone() * FOUR;
        let load = |emitter: &Emitter, k: PrimExpr, n: PrimExpr| {
            let matrix = if self.p.transpose_b { [n, k] } else { [k, n] };
            emitter.func.load(self.from, self.batch.iter().cloned().chain(matrix))
        };
        let value = if self.p.transpose_b && valid == FOUR {
            load(emitter, ramp(term.clone(), FOUR as u32), column.clone())
        } else {
            let rows: Vec<PrimExpr> = (0..FOUR)
                .map(|row| match row < valid {
                    true => load(emitter, term.clone() + row, ramp(column.clone(), lanes)),
                    false => PrimExpr::zero(self.p.ty.rhs).broadcast_to(lanes),
                })
                .collect();
            let halves: Vec<PrimExpr> =
                rows.chunks(2).map(|pair| interleaved(pair.to_vec(), lanes, 1)).collect();
            interleaved(halves, lanes * 2, 2)
        };
        let all = PrimExpr::ramp(PrimExpr::index(0), 1, lanes * FOUR as u32);
        let k = term + all.clone().floormod(FOUR);
        let n = column.clone() + all.floordiv(FOUR);
        let at = if self.p.transpose_b { [n, k] } else { [k, n] };
        emitter.func.store(self.p.rhs.buffer, at, value)
    }
}

/// Two vectors of so many lanes, `group` lanes of one and of the other in turn.
fn interleaved(vectors: Vec<PrimExpr>, lanes: u32, group: u32) -> PrimExpr {
    let places = (0..lanes / group).flat_map(|at| {
        let of = move |first: u32| (0..group).map(move |lane| first + at * group + lane);
        of(0).chain(of(lanes))
    });
    PrimExpr::Shuffle { vectors, lanes: places.collect() }
}
