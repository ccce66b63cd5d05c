//! Loops over the elements of a layout: in vectors, turned, gathered, or one by one.

use super::emit::{Emitter, is_vectorized};
use super::nest::{Nest, Run, can_vectorize, can_vectorize_values, innermost};
use super::rows::row_of;
use crate::ir::{BufferSpec, DType};
use crate::tir::{ForKind, PrimExpr, Stmt, VarId};

/// Elements of the narrowest vectors of a result.
pub(super) const LEAST_LANES: i64 = 4;

impl Emitter {
    /// The widths of vectors that cover the innermost dimension of a layout, widest first, down to
    /// single elements; none if it has no room for a vector.
    pub(super) fn widths_for(&self, spec: &BufferSpec, dtype: DType) -> Vec<i64> {
        let inner = adjacent(spec);
        let mut widths = Vec::new();
        let mut lanes = self.machine.lanes(dtype);
        while lanes >= LEAST_LANES {
            if lanes <= inner {
                widths.push(lanes);
            }
            lanes /= 2;
        }
        if !widths.is_empty() {
            widths.push(1);
        }
        widths
    }

    /// The layout that loops go over: of a row only, inside the loops over rows.
    pub(super) fn extent_of(&self, spec: &BufferSpec) -> BufferSpec {
        if self.rows.is_empty() { spec.clone() } else { row_of(spec, self.rows.len()) }
    }

    /// Loops over a layout with a statement for each element: in vectors, if that can be, else in
    /// blocks that are turned, else element by element. With `overrun`, lanes beyond the shape may
    /// be written.
    pub(super) fn cover(
        &mut self,
        spec: &BufferSpec,
        dtype: DType,
        overrun: bool,
        element: &mut dyn FnMut(&mut Emitter, &[PrimExpr]) -> Stmt,
    ) -> Stmt {
        let widths = self.widths_for(&self.extent_of(spec), dtype);
        if !widths.is_empty() {
            let vectors = self.cover_in(spec, &widths, &mut |emitter, nest| {
                let fits = overrun || !nest.overruns;
                fits.then(|| emitter.lane_stmt(nest, |emitter, index, _| element(emitter, index)))?
            });
            if let Some(stmt) = vectors {
                return stmt;
            }
            let probe = self.element_of(spec, element);
            let in_pieces = self.cover_pieces(spec, &widths, &probe, &mut |emitter, nest| {
                emitter.lane_stmt(nest, |emitter, index, _| element(emitter, index))
            });
            if let Some(stmt) = in_pieces {
                return stmt;
            }
            if chooses(&probe.stmt)
                && let Some(stmt) = self.cover_masked(spec, dtype, element)
            {
                return stmt;
            }
            // A concatenation that is read through is not stored.
            if overrun
                && self.reads_concatenation(&probe.stmt)
                && let Some(stmt) = self.cover_gathered(spec, dtype, element)
            {
                return stmt;
            }
            if let Some(stmt) = self.cover_turned(spec, dtype, overrun, element) {
                return stmt;
            }
            if overrun && let Some(stmt) = self.cover_gathered(spec, dtype, element) {
                return stmt;
            }
            if let Some(stmt) = self.cover_picked(spec, dtype, element) {
                return stmt;
            }
            let mut cut = self.cover_cut(spec, dtype, overrun, &probe);
            if let Some(stmt) = cut.take_if(|stmt| is_vectorized(stmt)) {
                return stmt;
            }
            if overrun && let Some(stmt) = self.cover_known(spec, dtype, element) {
                return stmt;
            }
            if let Some(stmt) = cut {
                return stmt;
            }
        }
        if let Some(stmt) = self.cover_ragged(spec, dtype, element) {
            return stmt;
        }
        if let Some(stmt) = self.cover_apart(spec, dtype, element) {
            return stmt;
        }
        let scalars = self.cover_in(spec, &[], &mut |emitter, nest| {
            emitter.lane_stmt(nest, |emitter, index, _| element(emitter, index))
        });
        scalars.unwrap_or_else(Stmt::nop)
    }

    /// Loops over the whole blocks of a layout whose last one is not, and loops over that one.
    fn cover_ragged(
        &mut self,
        spec: &BufferSpec,
        dtype: DType,
        element: &mut dyn FnMut(&mut Emitter, &[PrimExpr]) -> Stmt,
    ) -> Option<Stmt> {
        let dims: Vec<(usize, i64)> = spec.dims().iter().map(|dim| (dim.axis, dim.step)).collect();
        let (axis, _) = dims[innermost(spec)?];
        let levels: Vec<i64> = dims.iter().filter(|dim| dim.0 == axis).map(|dim| dim.1).collect();
        let &[block, 1] = levels.as_slice() else { return None };
        let rest = spec.shape()[axis] % block;
        if rest == 0 || axis < self.rows.len() {
            return None;
        }
        let whole = spec.shape()[axis] - rest;
        let parts = [(0, whole, block), (whole, rest, rest)].into_iter().filter(|part| part.1 > 0);
        let parts: Vec<Stmt> = parts
            .map(|(first, extent, block)| {
                let mut shape = spec.shape().to_vec();
                shape[axis] = extent;
                let mut dims = dims.clone();
                if let Some(outer) = dims.iter_mut().find(|dim| dim.0 == axis) {
                    outer.1 = block;
                }
                let part = BufferSpec::packed(&shape, &dims);
                self.cover(&part, dtype, false, &mut |emitter, index| {
                    let mut index = index.to_vec();
                    index[axis] = index[axis].clone() + first;
                    element(emitter, &index)
                })
            })
            .collect();
        Some(Stmt::seq(parts))
    }

    /// Nests that cover a layout in vectors of some widths, or element by element without any, if
    /// `build` can.
    pub(super) fn cover_in(
        &mut self,
        spec: &BufferSpec,
        widths: &[i64],
        build: &mut dyn FnMut(&mut Emitter, &Nest) -> Option<Stmt>,
    ) -> Option<Stmt> {
        let spec = self.extent_of(spec);
        let runs = Nest::runs(&[(0, Nest::inner(&spec))], widths);
        self.cover_runs(&spec, &runs, build)
    }

    /// Nests for these runs of the innermost dimension.
    pub(super) fn cover_runs(
        &mut self,
        spec: &BufferSpec,
        runs: &[Run],
        build: &mut dyn FnMut(&mut Emitter, &Nest) -> Option<Stmt>,
    ) -> Option<Stmt> {
        let nests = Nest::cover(&mut self.func, spec, runs, &self.rows);
        let mut bodies = Vec::with_capacity(nests.len());
        for nest in nests {
            self.extents.extend(nest.loops());
            let body = build(self, &nest)?;
            bodies.push((nest, body));
        }
        Some(Nest::wrap(bodies))
    }

    /// One statement for all lanes of a nest, if it can be one of vectors.
    pub(super) fn lane_stmt(
        &mut self,
        nest: &Nest,
        build: impl FnOnce(&mut Emitter, &[PrimExpr], PrimExpr) -> Stmt,
    ) -> Option<Stmt> {
        let Some((_, lanes)) = nest.lane else {
            let index = nest.index_at(&PrimExpr::index(0));
            let body = build(self, &index, PrimExpr::index(0));
            return Some(self.decided(body));
        };
        let (lane, var) = self.counter("l", lanes);
        let body = build(self, &nest.index_at(&lane), lane);
        let body = self.decided(body);
        self.can_vectorize(&body, var, lanes, nest.overruns).then(|| {
            let (min, extent) = (PrimExpr::index(0), PrimExpr::index(lanes));
            Stmt::for_loop(var, min, extent, ForKind::Vectorized, body)
        })
    }

    /// Whether a loop over lanes can be one of vectors: [`nest::can_vectorize`](can_vectorize).
    pub(super) fn can_vectorize(
        &mut self,
        body: &Stmt,
        lane: VarId,
        lanes: i64,
        overruns: bool,
    ) -> bool {
        let Emitter { func, padding, extents, .. } = self;
        can_vectorize(func, padding, extents, body, lane, lanes, overruns)
    }

    /// The same for a body that may use the lane as a value:
    /// [`nest::can_vectorize_values`](can_vectorize_values).
    pub(super) fn can_vectorize_values(&self, body: &Stmt, lane: VarId, lanes: i64) -> bool {
        can_vectorize_values(&self.func, body, lane, lanes)
    }
}

/// Whether a statement has a choice by places.
fn chooses(stmt: &Stmt) -> bool {
    let mut found = false;
    stmt.walk_exprs(&mut |expr| {
        let PrimExpr::Select { cond, .. } = expr else { return };
        found |= cond.any(&mut |cond| match cond {
            PrimExpr::Compare { lhs, .. } => lhs.dtype() == DType::I64,
            _ => false,
        });
    });
    found
}

/// Adjacent elements of a layout: along its innermost dimension, without the border.
pub(super) fn adjacent(spec: &BufferSpec) -> i64 {
    let Some(innermost) = innermost(spec) else { return 1 };
    let halo = spec.halo()[spec.dims()[innermost].axis];
    spec.physical_shape()[innermost] - halo.before - halo.after
}
