//! Sums of a tile that are stored from memory, as what is made of them lies in no vectors.

use super::Outcome;
use crate::strategy::conv2d::around;
use crate::strategy::cover::LEAST_LANES;
use crate::strategy::emit::Emitter;
use crate::strategy::nest::in_run;
use crate::strategy::turn::lanes_of;
use crate::tir::{BufferId, PrimExpr, Stmt};

/// Sums of a tile in memory, row by row.
pub(in crate::strategy) struct Spilled {
    pub(in crate::strategy) memory: BufferId,
    /// Extents of the two dimensions of rows.
    pub(in crate::strategy) rows: [PrimExpr; 2],
    /// The column of the tile that is the first one in memory.
    pub(in crate::strategy) first: i64,
    /// Columns that belong to the result.
    pub(in crate::strategy) valid: i64,
    /// Lanes of the widest vectors that it is stored in.
    pub(in crate::strategy) widest: i64,
}

impl Spilled {
    /// Stores what becomes of each sum: in vectors where that can be. Of the other columns, which mostly
    /// are planes of the result, one is stored behind the other.
    pub(in crate::strategy) fn store(&self, emitter: &mut Emitter, outcome: &Outcome<'_>) -> Stmt {
        let mut done = 0;
        let vectors = self.each_row(emitter, |emitter, outer, inner| {
            let (vectors, columns) = self.vectors_of_row(emitter, [outer, inner], outcome);
            done = columns;
            vectors
        });
        let rest = self.behind(emitter, done, |emitter, column| {
            self.each_row(emitter, |emitter, outer, inner| {
                self.element(emitter, [outer, inner], column, outcome)
            })
        });
        Stmt::seq([vectors, rest])
    }

    /// Stores a row.
    pub(super) fn store_row(
        &self,
        emitter: &mut Emitter,
        row: [&PrimExpr; 2],
        outcome: &Outcome<'_>,
    ) -> Stmt {
        let (vectors, done) = self.vectors_of_row(emitter, row, outcome);
        let rest = self
            .behind(emitter, done, |emitter, column| self.element(emitter, row, column, outcome));
        Stmt::seq([vectors, rest])
    }

    /// The columns behind so many, element by element.
    fn behind(
        &self,
        emitter: &mut Emitter,
        first: i64,
        element: impl FnOnce(&mut Emitter, PrimExpr) -> Stmt,
    ) -> Stmt {
        if first == self.valid {
            return Stmt::nop();
        }
        let (lane, var) = emitter.counter("l", self.valid - first);
        let body = element(emitter, lane + first);
        around(var, self.valid - first, body)
    }

    fn element(
        &self,
        emitter: &mut Emitter,
        [outer, inner]: [&PrimExpr; 2],
        column: PrimExpr,
        outcome: &Outcome<'_>,
    ) -> Stmt {
        let number = outer.clone() * self.rows[1].clone() + inner.clone();
        let value = emitter.func.load(self.memory, [number, column.clone()]);
        outcome.store(emitter, [outer, inner], column + self.first, value)
    }

    /// The first columns of a row as vectors, and how many these are.
    fn vectors_of_row(
        &self,
        emitter: &mut Emitter,
        row: [&PrimExpr; 2],
        outcome: &Outcome<'_>,
    ) -> (Stmt, i64) {
        let mut stmts = Vec::new();
        let mut first = 0;
        let mut width = self.widest;
        while width >= LEAST_LANES && first < self.valid {
            if self.valid - first < width {
                width /= 2;
                continue;
            }
            let (lane, var) = emitter.counter("l", width);
            let body = self.element(emitter, row, lane + first, outcome);
            let vectors = match emitter.can_vectorize(&body, var, width, false) {
                true => Some(lanes_of(var, width, body)),
                false => emitter.apart(body, var, width),
            };
            let Some(vectors) = vectors else { break };
            stmts.push(vectors);
            first += width;
        }
        (Stmt::seq(stmts), first)
    }

    /// `body` for each row, in loops.
    fn each_row(
        &self,
        emitter: &mut Emitter,
        body: impl FnOnce(&mut Emitter, &PrimExpr, &PrimExpr) -> Stmt,
    ) -> Stmt {
        let vars = ["y", "x"].map(|name| emitter.func.index_var(name));
        let index = |position: usize| match self.rows[position].as_int() {
            Some(1) => PrimExpr::index(0),
            _ => emitter.func.var_expr(vars[position]),
        };
        let (outer, inner) = (index(0), index(1));
        let stmt = body(emitter, &outer, &inner);
        let around = |position: usize, stmt| match self.rows[position].as_int() {
            Some(1) => stmt,
            _ => in_run(stmt, (vars[position], self.rows[position].clone())),
        };
        around(0, around(1, stmt))
    }
}
