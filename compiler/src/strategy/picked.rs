//! Loops over a dense tensor that read at places which are not adjacent, but known: along the columns of
//! an image that is resized, of a border that repeats elements, of rows in the opposite order, or of
//! images whose pixels are put between each other.
//!
//! For each vector it is known from which few vectors its elements are picked.

use std::collections::{BTreeMap, BTreeSet};

use super::emit::Emitter;
use super::gather::{MOST_SOURCES, Picked, PickedVector};
use super::nest::{MOST_APART, Nest, Run, coefficient, innermost, position};
use super::turn::lanes_of;
use crate::ir::{BufferSpec, DType};
use crate::te::{Stage, StageId, StageKind};
use crate::tir::{Analyzer, BufferId, PrimExpr, Stmt, VarId};

/// Most vectors along the last axis, on the widest level: each has code of its own.
const MOST_VECTORS: usize = 128;

/// Shortest rows that are picked.
const LEAST_EXTENT: i64 = 8;

/// A load, and what is picked from vectors in its place.
type Replaced = Vec<(PrimExpr, PrimExpr)>;

impl Emitter {
    /// Stages that are worth storing: computed, and read several times by a dense one at places that
    /// are picked.
    pub(super) fn picked_stages(&self) -> Vec<StageId> {
        let is_dense =
            |stage: &StageId| self.func.buffers[self.dag.stages[*stage].buffer].spec.is_dense();
        if !self.materialised.keys().all(is_dense) {
            return Vec::new();
        }
        let mut picked = Vec::new();
        for stage in self.dag.ids().filter(|stage| self.uses.contains_key(stage)) {
            let mut reads: BTreeMap<StageId, usize> = BTreeMap::new();
            self.walk_picked(stage, &mut |buffer| {
                if let Some(read) = self.dag.stage_of(buffer) {
                    *reads.entry(read).or_default() += 1;
                }
            });
            picked.extend(reads.into_iter().filter(|read| read.1 > 1).map(|read| read.0));
        }
        picked.retain(|&read| matches!(self.dag.stages[read].kind, StageKind::Compute(_)));
        picked
    }

    /// Whether some stage reads at places along its last axis that are not adjacent, but known.
    pub(super) fn picks(&self) -> bool {
        let mut picks = false;
        for stage in self.dag.ids().filter(|stage| self.uses.contains_key(stage)) {
            self.walk_picked(stage, &mut |_| picks = true);
        }
        picks
    }

    /// Shows the buffers that a stage reads at such places.
    fn walk_picked(&self, stage: StageId, show: &mut dyn FnMut(BufferId)) {
        let Stage { kind: StageKind::Compute(value), axes, .. } = &self.dag.stages[stage] else {
            return;
        };
        let (Some(&var), Some(&extent)) = (axes.last(), self.dag.shape(stage).last()) else {
            return;
        };
        // All versions of a kernel have the same parameters: what is picked on one level is on all.
        let most = self.packing.lanes(DType::F32) * MOST_VECTORS as i64;
        let is_open = self.dag.limits(stage).iter().any(|limit| limit.axis + 1 == axes.len());
        if is_open || !(LEAST_EXTENT..=most).contains(&extent) {
            return;
        }
        value.walk(&mut |expr| {
            let PrimExpr::Load { buffer, indices, .. } = expr else { return };
            let Some((last, others)) = indices.split_last() else { return };
            let is_last_alone = !others.iter().any(|index| index.uses(var))
                && last.uses(var)
                && !axes[..axes.len() - 1].iter().any(|&axis| last.uses(axis));
            let is_known = is_last_alone && self.place(last, var, 0).is_some();
            if is_known && !is_adjacent(last, var) {
                show(*buffer);
            }
        });
    }

    /// The table that a load is of, and the place in it.
    fn table_of<'a>(&self, expr: &'a PrimExpr) -> Option<(&[i64], &'a PrimExpr)> {
        let PrimExpr::Load { buffer, indices, .. } = expr else { return None };
        let [at] = indices.as_slice() else { return None };
        Some((self.dag.known(self.dag.stage_of(*buffer)?)?, at))
    }

    /// Loops over a dense layout whose vectors are picked: see the module's documentation.
    pub(super) fn cover_picked(
        &mut self,
        spec: &BufferSpec,
        dtype: DType,
        element: &mut dyn FnMut(&mut Emitter, &[PrimExpr]) -> Stmt,
    ) -> Option<Stmt> {
        if !self.picks() {
            return None;
        }
        self.cover_known(spec, dtype, element)
    }

    /// The same wherever places turn out to be known.
    pub(super) fn cover_known(
        &mut self,
        spec: &BufferSpec,
        dtype: DType,
        element: &mut dyn FnMut(&mut Emitter, &[PrimExpr]) -> Stmt,
    ) -> Option<Stmt> {
        let spec = self.extent_of(spec);
        if !spec.is_dense() || dtype == DType::Bool || Nest::inner(&spec) < LEAST_EXTENT {
            return None;
        }
        // Floats of 16 bits are `float32` in registers.
        let widths = self.widths_for(&spec, dtype.accumulator());
        let axis = spec.dims().get(innermost(&spec)?)?.axis;
        // Narrower vectors where rows that are read are shorter than the widest.
        (0..widths.len().saturating_sub(1)).find_map(|first| {
            let runs: Vec<Run> = Nest::runs(&[(0, Nest::inner(&spec))], &widths[first..])
                .into_iter()
                .flat_map(|Run { start, count, lanes }| {
                    (0..count).map(move |n| Run { start: start + n * lanes, count: 1, lanes })
                })
                .collect();
            if runs.len() > MOST_VECTORS {
                return None;
            }
            self.cover_runs(&spec, &runs, &mut |emitter, nest| {
                emitter.lane_stmt(nest, |emitter, index, _| element(emitter, index)).or_else(|| {
                    let (along, lanes) = nest.lane?;
                    let (lane, var) = emitter.counter("l", lanes);
                    let body = element(emitter, &nest.index_at(&lane));
                    (along == axis).then(|| emitter.picked_lanes(body, lane, var, lanes))?
                })
            })
        })
    }

    /// A statement of vectors for a lane's, in which places along the last axis are picked.
    fn picked_lanes(&mut self, body: Stmt, lane: PrimExpr, var: VarId, lanes: i64) -> Option<Stmt> {
        let body = self.decided(body);
        let mut loads: Vec<PrimExpr> = Vec::new();
        let mut is_guarded = false;
        body.walk(&mut |stmt| is_guarded |= matches!(stmt, Stmt::If { .. }));
        body.walk_exprs(&mut |expr| match expr {
            PrimExpr::Load { indices, .. } => {
                let is_vector = indices.iter().all(|index| is_adjacent(index, var));
                if !is_vector && !loads.contains(expr) {
                    loads.push(expr.clone());
                }
            }
            // What a condition on indices guards must not be read ahead.
            PrimExpr::Select { cond, .. } => {
                is_guarded |= cond.any(&mut |e| match e {
                    PrimExpr::Compare { lhs, .. } => lhs.dtype() == DType::I64,
                    _ => false,
                });
            }
            _ => {}
        });
        if is_guarded {
            return None;
        }
        let mut stmts = Vec::new();
        let mut vectors: Vec<PickedVector> = Vec::new();
        let mut replaced: Replaced = Vec::new();
        for load in loads {
            let dtype = load.dtype();
            // What is stored may be narrower than what is picked, which is in whole registers.
            if dtype == DType::Bool || lanes > self.machine.lanes(dtype) {
                return None;
            }
            let picked = self.picked(&load, var, lanes)?;
            let (vector, read) = self.pick_lanes(&picked, lanes, dtype)?;
            stmts.extend(read);
            replaced.push((load, self.func.load(vector.result, [lane.clone()])));
            vectors.push(vector);
        }
        let body = body.map_exprs(&mut |expr| {
            expr.rewrite(&mut |expr| {
                let found = replaced.iter().find(|(load, _)| *load == expr);
                found.map_or(expr, |(_, picked)| picked.clone())
            })
        });
        if !self.can_vectorize(&body, var, lanes, false) {
            return None;
        }
        stmts.push(lanes_of(var, lanes, body));
        Some(vectors.iter().rev().fold(Stmt::seq(stmts), |body, vector| vector.around(body)))
    }

    /// The vectors that the lanes of a load are in, and which.
    fn picked(&self, load: &PrimExpr, lane: VarId, lanes: i64) -> Option<Picked> {
        let PrimExpr::Load { buffer, dtype, indices } = load else { return None };
        let spec = &self.func.buffers[*buffer].spec;
        let axis = spec.dims().get(innermost(spec)?)?.axis;
        let varies = |at: usize| indices[at].uses(lane);
        if !spec.is_dense() || !(0..indices.len()).any(varies) {
            return None;
        }
        // Along the innermost axis if that is all, else along all memory, of which each run must have the
        // same.
        let in_rows = (0..indices.len()).all(|at| varies(at) == (at == axis));
        if (!in_rows || indices.len() == 1) && self.is_open(*buffer) {
            return None;
        }
        let (mut index, extent) = match in_rows {
            true => (indices.clone(), spec.shape()[axis]),
            false => (vec![0.into(); indices.len()], spec.num_elements()?),
        };
        if index != *indices {
            index[axis] = position(spec.shape(), indices.clone());
        }
        // Places as distances from that of the first lane, which depends on the loops around.
        let mut analyzer = self.knowing_loops(&index[axis..=axis]);
        let first = self.known(&index[axis], lane, 0);
        let away: Vec<i64> = (0..lanes)
            .map(|at| {
                let place = self.known(&index[axis], lane, at);
                analyzer.simplify(&(place - first.clone())).as_int()
            })
            .collect::<Option<_>>()?;
        // Vectors from the lowest place on that is in none yet, which must not go beyond the buffer.
        let (least, most) = analyzer.const_int_bound(&first);
        // Of a place that data say, nothing is known.
        if least < 0 || most >= extent {
            return None;
        }
        let last_start = extent - lanes - most;
        let mut starts: Vec<i64> = Vec::new();
        for &place in &BTreeSet::from_iter(away.iter().copied()) {
            if starts.last().is_none_or(|start| place - start >= lanes) {
                starts.push(place.min(last_start));
            }
        }
        let is_inside = starts.first().is_some_and(|&start| least + start >= 0);
        if !is_inside || starts.len() > MOST_SOURCES {
            return None;
        }
        let picks = away.iter().map(|place| {
            let source = starts.iter().rposition(|start| start <= place)?;
            let from = place - starts[source];
            (from < lanes).then_some((source, from))
        });
        let picks = picks.collect::<Option<_>>()?;
        let sources = starts.iter().map(|&start| {
            let mut indices = index.clone();
            indices[axis] = first.clone() + start + self.func.var_expr(lane);
            PrimExpr::Load { buffer: *buffer, dtype: *dtype, indices }
        });
        Some(Picked { sources: sources.collect(), lane, picks })
    }

    /// An index where a variable has a value, if that and tables say it.
    fn place(&self, index: &PrimExpr, lane: VarId, at: i64) -> Option<i64> {
        Analyzer::new().simplify(&self.known(index, lane, at)).as_int()
    }

    /// An index where a variable has a value, with what tables say about it.
    fn known(&self, index: &PrimExpr, lane: VarId, at: i64) -> PrimExpr {
        let index = index.clone().substitute(&[(lane, PrimExpr::index(at))].into());
        index.rewrite(&mut |expr| {
            let entry = self.table_of(&expr).and_then(|(table, at)| {
                let at = Analyzer::new().simplify(at).as_int()?;
                table.get(usize::try_from(at).ok()?).copied()
            });
            entry.map_or(expr, PrimExpr::index)
        })
    }
}

/// Whether elements at an index that grows with a variable are those of a vector.
fn is_adjacent(index: &PrimExpr, var: VarId) -> bool {
    coefficient(index, var).is_some_and(|step| (0..=MOST_APART).contains(&step))
}
