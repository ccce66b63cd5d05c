//! Weights of bytes that are widened to words before tiles go over them.
//!
//! Where instructions multiply words ([`Machine::words`](super::machine::Machine)), each step of a tile
//! has to widen its weights and the bytes that it broadcasts. The weights are the same for all tiles that
//! go over a panel, so that these read words, which are in the nearest cache.

use super::emit::Emitter;
use super::tile::{Columns, FOUR, Place, Tile, TileType, Weight};
use crate::ir::{BufferSpec, DType};
use crate::tir::{BufferId, PrimExpr, Stmt};

/// Fewest tiles for which a panel is widened before: to store the words takes longer than to widen them
/// once or twice.
pub(super) const MIN_TILES: i64 = 4;

/// Even bytes of each four and odd ones.
const HALVES: [u32; 2] = [0, 1];

/// A step's weights of a tile's columns.
#[derive(Clone, Copy)]
pub(super) struct Words<'a> {
    /// By step, half, column and one of two.
    pub(super) buffer: BufferId,
    pub(super) step: &'a PrimExpr,
}

impl Words<'_> {
    /// A half of a vector's words.
    fn index(&self, half: u32, vector: i64, lanes: i64) -> [PrimExpr; 3] {
        let first = PrimExpr::index(vector * lanes * 2);
        let words = PrimExpr::ramp(first, 1, lanes as u32 * 2);
        [self.step.clone(), PrimExpr::index(i64::from(half)), words]
    }
}

impl Emitter {
    /// Memory for the words of a tile's columns in so many steps, if it is worth it for so many tiles.
    pub(super) fn words(
        &mut self,
        ty: TileType,
        columns: Columns,
        [steps, tiles]: [i64; 2],
    ) -> Option<BufferId> {
        let width = columns.vectors * columns.lanes;
        let bytes = steps.saturating_mul(width).saturating_mul(FOUR * 2);
        let is_worth = ty.fours && self.machine.words && tiles >= MIN_TILES;
        (is_worth && bytes <= self.machine.middle_bytes())
            .then(|| self.func.local("wide", DType::I16, BufferSpec::dense(&[steps, 2, width * 2])))
    }

    /// Widens a step's weights.
    pub(super) fn widen_step(
        &mut self,
        words: Words<'_>,
        columns: Columns,
        weight: &Weight<'_>,
    ) -> Stmt {
        let lanes = columns.lanes;
        let mut stmts = Vec::new();
        for vector in 0..columns.vectors {
            let bytes = PrimExpr::ramp(PrimExpr::index(0), 1, (lanes * FOUR) as u32);
            let column = bytes.clone().floordiv(FOUR) + vector * lanes;
            let bytes = weight(self, column, bytes.floormod(FOUR));
            stmts.extend(HALVES.map(|half| {
                let at = words.index(half, vector, lanes);
                self.func.store(words.buffer, at, bytes.clone().alternate_words(half))
            }));
        }
        Stmt::seq(stmts)
    }
}

impl Tile {
    /// Adds a step's products to each accumulator, as [`multiply_add`](Tile::multiply_add), by weights
    /// that are widened.
    pub(super) fn add_words(
        &self,
        emitter: &mut Emitter,
        words: Words<'_>,
        value: &dyn Fn([&PrimExpr; 2], PrimExpr, PrimExpr) -> Place,
    ) -> Stmt {
        let Columns { vectors, lanes, .. } = self.columns;
        self.each_row(emitter, |emitter, outer, inner| {
            let rows = [outer, inner];
            let bytes = self.fours(emitter, value, rows, 0);
            let stmts = HALVES.iter().flat_map(|&half| {
                let row = bytes.clone().alternate_words(half);
                let (emitter, row) = (&*emitter, row);
                (0..vectors).map(move |vector| {
                    let weights = emitter.func.load(words.buffer, words.index(half, vector, lanes));
                    self.add_dot(emitter, rows, vector, (row.clone(), weights))
                })
            });
            Stmt::seq(stmts.collect::<Vec<_>>())
        })
    }
}
