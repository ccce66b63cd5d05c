//! Tiles of bytes whose sums are in registers that are matrices.
//!
//! An instruction (AMX's `tdpbusd`) adds the product of up to 16 rows of 64 bytes and as many terms of 16
//! columns to 16 x 16 sums. Rows lie in memory at any distance, so that a row can be the channels of a
//! pixel or of the pixels of a line of taps; the columns are the panels that dot products read. With four
//! registers of sums, two of rows and two of columns, no operand is read twice in a step.

use super::{FOUR, Spilled, Tile};
use crate::tir::{
    ForKind, MATRIX_BYTES, MATRIX_GRID, MATRIX_ROWS, MATRIX_STEP, PrimExpr, Stmt, VarId,
};

/// Fewest steps of dot products that are worth one of matrices.
const LEAST_STEPS: i64 = 4;

impl Tile {
    /// The sums where the registers are stored.
    pub(super) fn in_memory(&self) -> Spilled {
        Spilled {
            memory: self.acc,
            rows: [self.rows.outer, self.rows.inner].map(PrimExpr::index),
            first: 0,
            valid: (self.columns.vectors - 1) * self.columns.lanes + self.columns.valid,
            widest: self.columns.lanes,
        }
    }
}

/// As many of a sum's steps of dot products as one of matrices takes, so that all take as many.
pub(in crate::strategy) fn divisor_of_steps(steps: i64) -> Option<i64> {
    (LEAST_STEPS..=MATRIX_BYTES / FOUR).rev().find(|divisor| steps % divisor == 0)
}

/// The outermost loop of a step.
pub(in crate::strategy) fn matrix_step(var: VarId, extent: i64, body: Stmt) -> Stmt {
    Stmt::For {
        var,
        min: PrimExpr::index(0),
        extent: PrimExpr::index(extent),
        kind: ForKind::Serial,
        annotations: [(MATRIX_STEP.to_owned(), "1".to_owned())].into(),
        body: Box::new(body),
    }
}

/// Most rows of a tile.
pub(in crate::strategy) const MOST_MATRIX_ROWS: i64 = MATRIX_GRID * MATRIX_ROWS;
