//! Loops over pixels of few channels, of which something is read for each channel: what images in `NHWC` are
//! scaled by, as their means.
//!
//! Vectors go over several pixels. What is read for each channel stands as many times on the stack as
//! there are pixels until a vector begins with the first channel again.

use std::collections::BTreeMap;

use super::cover::LEAST_LANES;
use super::emit::Emitter;
use super::nest::{coefficient, guards_loads, in_loop};
use super::turn::lanes_of;
use crate::ir::{BufferSpec, DType};
use crate::tir::{BufferId, PrimExpr, Stmt, VarId};

/// The two innermost loops, as one.
struct Pixels {
    outer: VarId,
    inner: VarId,
    channels: i64,
    /// The place in both, and that from where a vector began with the first channel.
    place: VarId,
    within: VarId,
    /// What is read for each channel, and where it is put.
    tiles: Vec<(PrimExpr, BufferId)>,
}

impl Emitter {
    /// Loops over a statement whose stores and loads take the two innermost loops for one, but for loads
    /// that are the same for each iteration of the outer one.
    pub(super) fn cover_periodic(
        &mut self,
        loops: &[(VarId, i64)],
        stmt: &Stmt,
        dtype: DType,
    ) -> Option<Stmt> {
        let [around @ .., (outer, count), (inner, channels)] = loops else { return None };
        let (outer, count, inner, channels) = (*outer, *count, *inner, *channels);
        let lanes = self.machine.lanes(dtype.accumulator());
        // As many pixels as lanes are put side by side, one channel after the other. From few channels on,
        // those of each pixel are vectors, too.
        let least = if channels < LEAST_LANES { 2 } else { 8 };
        let suits = channels % lanes != 0 && channels < 2 * lanes && count >= least * lanes;
        if lanes < LEAST_LANES || !suits {
            return None;
        }
        let [place, within] = ["place", "within"].map(|name| self.func.index_var(name));
        let mut pixels = Pixels { outer, inner, channels, place, within, tiles: Vec::new() };
        let body = pixels.joined(self, stmt.clone(), lanes)?;

        let period = lanes * channels;
        let mut values = BTreeMap::new();
        let mut nest = Vec::new();
        for &(var, extent) in around {
            let (at, counter) = self.counter("b", extent);
            values.insert(var, at);
            nest.push((counter, extent));
        }
        let fills = pixels.tiles.iter().map(|(load, tile)| {
            let (at, var) = self.counter("t", period);
            let mut values = values.clone();
            values.insert(inner, at.clone().floormod(channels));
            let store = self.func.store(*tile, [at], load.clone().substitute(&values));
            in_loop(store, (var, period))
        });
        let mut stmts: Vec<Stmt> = fills.collect();
        let mut at_places = |emitter: &mut Emitter, first: PrimExpr, within: PrimExpr| {
            values.insert(pixels.place, first + within.clone());
            values.insert(pixels.within, within);
            emitter.func.copy_of(&body, &values)
        };
        // Whole periods, whole vectors of the last one, and its last places.
        let (periods, rest) = (count / lanes, count % lanes * channels);
        for (repeats, vectors, first) in [(periods, channels, 0), (1, rest / lanes, periods)] {
            if repeats == 0 || vectors == 0 {
                continue;
            }
            let (number, number_var) = self.counter("p", repeats);
            let (vector, vector_var) = self.counter("v", vectors);
            let (lane, lane_var) = self.counter("l", lanes);
            let stmt = at_places(self, (number + first) * period, vector * lanes + lane);
            if !self.can_vectorize(&stmt, lane_var, lanes, false) {
                return None;
            }
            let stmt = in_loop(lanes_of(lane_var, lanes, stmt), (vector_var, vectors));
            stmts.push(in_loop(stmt, (number_var, repeats)));
        }
        if rest % lanes > 0 {
            let (at, var) = self.counter("l", rest % lanes);
            let stmt = at_places(self, (periods * period).into(), at + rest / lanes * lanes);
            stmts.push(in_loop(stmt, (var, rest % lanes)));
        }
        let tiles = pixels.tiles.iter().map(|(_, tile)| *tile);
        let stmt = tiles.fold(Stmt::seq(stmts), |body, tile| Stmt::allocate(tile, body));
        Some(nest.into_iter().rev().fold(stmt, in_loop))
    }
}

impl Pixels {
    /// The statement at a place; `None` if it needs the two loops for themselves.
    fn joined(&mut self, emitter: &mut Emitter, stmt: Stmt, lanes: i64) -> Option<Stmt> {
        let mut fits = true;
        let stmt = stmt.map_exprs(&mut |expr| {
            expr.rewrite(&mut |expr| match expr {
                PrimExpr::Load { buffer, dtype, indices } => {
                    let is_periodic = indices.iter().any(|index| index.uses(self.inner))
                        && !indices.iter().any(|index| index.uses(self.outer));
                    // What was replaced within an index is of no channel any more.
                    fits &= !indices.iter().any(|index| index.uses(self.within));
                    if is_periodic {
                        let load = PrimExpr::Load { buffer, dtype, indices };
                        return self.tile(emitter, load, lanes);
                    }
                    let indices = indices.into_iter().map(|index| self.position(emitter, index));
                    let indices: Option<Vec<PrimExpr>> = indices.collect();
                    fits &= indices.is_some();
                    PrimExpr::Load { buffer, dtype, indices: indices.unwrap_or_default() }
                }
                // What a condition on indices guards must not be read ahead.
                PrimExpr::Select { cond, then, otherwise } => {
                    fits &= !guards_loads(&cond, &then, &otherwise);
                    PrimExpr::Select { cond, then, otherwise }
                }
                other => other,
            })
        });
        let stmt = stmt.rewrite(&mut |stmt| match stmt {
            Stmt::Store { buffer, indices, value } => {
                let indices = indices.into_iter().map(|index| self.position(emitter, index));
                let indices: Option<Vec<PrimExpr>> = indices.collect();
                fits &= indices.is_some();
                Stmt::Store { buffer, indices: indices.unwrap_or_default(), value }
            }
            other => other,
        });
        stmt.walk_exprs(&mut |expr| {
            if let PrimExpr::Var { var, .. } = expr {
                fits &= ![self.outer, self.inner].contains(var);
            }
        });
        (fits && !self.tiles.is_empty()).then_some(stmt)
    }

    /// Where what is read for each channel is put.
    fn tile(&mut self, emitter: &mut Emitter, load: PrimExpr, lanes: i64) -> PrimExpr {
        let within = emitter.func.var_expr(self.within);
        if let Some((_, tile)) = self.tiles.iter().find(|(other, _)| *other == load) {
            return emitter.func.load(*tile, [within]);
        }
        let spec = BufferSpec::dense(&[self.channels * lanes]);
        let tile = emitter.func.local("tile", load.dtype(), spec);
        self.tiles.push((load, tile));
        emitter.func.load(tile, [within])
    }

    /// An index that takes both loops for one, of the place.
    fn position(&self, emitter: &Emitter, index: PrimExpr) -> Option<PrimExpr> {
        let (far, near) = (coefficient(&index, self.outer)?, coefficient(&index, self.inner)?);
        let place = emitter.func.var_expr(self.place);
        let values = [(self.outer, PrimExpr::index(0)), (self.inner, place)].into();
        (near.checked_mul(self.channels) == Some(far)).then(|| index.substitute(&values))
    }
}
