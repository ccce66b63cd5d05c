//! Vectors of elements that lie apart: of a function that costs more than to read its arguments, or to
//! store its results, one at a time.
//!
//! The arguments of some vectors are put side by side on the stack, results are computed of them there,
//! and stored from there.

use std::collections::{BTreeMap, BTreeSet};

use super::emit::Emitter;
use super::gather::stored;
use super::nest::{Nest, guards_loads, in_loop};
use super::turn::lanes_of;
use crate::ir::{BufferSpec, DType};
use crate::te::{StageId, StageKind};
use crate::tir::region::vars_of;
use crate::tir::{BufferId, Intrinsic, PrimExpr, Stmt, VarId};

/// Vectors whose elements are put side by side at once: to read what has just been stored in parts waits
/// for the stores.
const VECTORS: i64 = 4;

/// Lanes for which something is computed.
struct Lanes {
    var: VarId,
    count: i64,
    /// Lanes of a vector.
    width: i64,
    /// What is read one at a time, and where it is put.
    fetched: Vec<(PrimExpr, BufferId)>,
    /// Names of values, which mean nothing where elements are read.
    names: BTreeSet<VarId>,
}

/// Vectors from which on what is left of a run does not count.
const LONG_RUN: i64 = 4;

impl Emitter {
    /// Stages that are worth storing: made by functions of many steps, and copied in another order in runs
    /// that are no whole vectors. As they are made, runs are longer.
    pub(super) fn moved_stages(&self) -> Vec<StageId> {
        let mut is_made: BTreeMap<StageId, bool> = BTreeMap::new();
        let mut moved = Vec::new();
        for stage in self.dag.ids().filter(|stage| self.uses.contains_key(stage)) {
            let made = match &self.dag.stages[stage].kind {
                StageKind::Placeholder => false,
                StageKind::Compute(value) => {
                    let reads = self.dag.reads(stage);
                    moved.extend(self.moved_by(stage).filter(|moved| is_made[moved]));
                    is_function(value) || reads.iter().any(|read| is_made[read])
                }
                StageKind::Reduce { .. }
                | StageKind::Concat { .. }
                | StageKind::Joint { .. }
                | StageKind::Extern { .. } => return Vec::new(),
            };
            is_made.insert(stage, made);
        }
        moved
    }

    /// The stage that another one is a copy of in another order, in short runs.
    fn moved_by(&self, stage: StageId) -> Option<StageId> {
        let StageKind::Compute(PrimExpr::Load { buffer, indices, .. }) =
            &self.dag.stages[stage].kind
        else {
            return None;
        };
        let (shape, axes) = (self.dag.shape(stage), &self.dag.stages[stage].axes);
        let is_axis = |index: &PrimExpr, axis: &VarId| match index {
            PrimExpr::Var { var, .. } => var == axis,
            _ => false,
        };
        let is_in_order = indices.len() == axes.len()
            && indices.iter().all(|i| axes.iter().any(|a| is_axis(i, a)));
        if !is_in_order || !self.dag.limits(stage).is_empty() {
            return None;
        }
        let own = indices.iter().zip(axes).rev().take_while(|(index, axis)| is_axis(index, axis));
        let run: i64 = own.zip(shape.iter().rev()).map(|(_, extent)| extent).product();
        // All versions of a kernel answer alike, as their results are the same.
        let lanes = self.packing.lanes(DType::F32).max(1);
        // A copy in the same order is one run.
        let is_moved = run > 1 && run < shape.iter().product();
        let is_ragged = is_moved && run < LONG_RUN * lanes && run % lanes != 0;
        self.dag.stage_of(*buffer).filter(|_| is_ragged)
    }

    /// Loops over a layout whose elements are computed in vectors, though they do not lie in such.
    pub(super) fn cover_apart(
        &mut self,
        spec: &BufferSpec,
        dtype: DType,
        element: &mut dyn FnMut(&mut Emitter, &[PrimExpr]) -> Stmt,
    ) -> Option<Stmt> {
        let extent = self.extent_of(spec);
        let mut widths = self.widths_for(&extent, dtype.accumulator());
        let several = widths.first()? * VECTORS;
        widths.insert(0, several);
        let runs = Nest::runs(&[(0, Nest::inner(&extent))], &widths);
        self.cover_runs(&extent, &runs, &mut |emitter, nest| {
            let Some((_, lanes)) = nest.lane else {
                return emitter.lane_stmt(nest, |emitter, index, _| element(emitter, index));
            };
            let (lane, var) = emitter.counter("l", lanes);
            let body = element(emitter, &nest.index_at(&lane));
            let body = emitter.decided(body);
            (!nest.overruns).then(|| emitter.apart(body, var, lanes))?
        })
    }

    /// The statements of some lanes for that of one, if it computes something that is worth it.
    pub(super) fn apart(&mut self, body: Stmt, var: VarId, count: i64) -> Option<Stmt> {
        let (to, indices, value) = stored(body)?;
        if !is_function(&value) {
            return None;
        }
        let dtype = value.dtype();
        let width = self.machine.lanes(DType::F32).min(count);
        let mut lanes = Lanes { var, count, width, fetched: Vec::new(), names: BTreeSet::new() };
        let value = self.side_by_side(value, &mut lanes)?;
        let fetches = lanes.fetched.iter().map(|(argument, buffer)| {
            let at = self.func.var_expr(var);
            self.func.store(*buffer, [at], argument.clone())
        });
        let fetch = in_loop(Stmt::seq(fetches.collect::<Vec<_>>()), (var, count));

        let made = self.func.local("made", dtype, BufferSpec::dense(&[count]));
        let (vector, vector_var) = self.counter("v", count / width);
        let (within, within_var) = self.counter("l", width);
        let at = vector * width + within;
        let value = value.substitute(&[(var, at.clone())].into());
        let compute = self.func.store(made, [at], value);
        if !self.can_vectorize(&compute, within_var, width, false) {
            return None;
        }
        let compute = in_loop(lanes_of(within_var, width, compute), (vector_var, count / width));

        let (last, last_var) = self.counter("l", count);
        let indices = indices.into_iter().map(|at| at.substitute(&[(var, last.clone())].into()));
        let indices: Vec<PrimExpr> = indices.collect();
        let result = self.func.load(made, [last]);
        let store = in_loop(self.func.store(to, indices, result), (last_var, count));

        let buffers = lanes.fetched.iter().map(|fetched| fetched.1).chain([made]);
        let stmts = Stmt::seq([fetch, compute, store]);
        Some(buffers.fold(stmts, |body, buffer| Stmt::allocate(buffer, body)))
    }

    /// A value of which all that is read lies side by side: itself, or where it is put.
    fn side_by_side(&mut self, value: PrimExpr, lanes: &mut Lanes) -> Option<PrimExpr> {
        if !value.uses(lanes.var) {
            return Some(value);
        }
        // There is no memory for conditions: what they compare is put there.
        let is_condition = value.dtype() == DType::Bool && !matches!(value, PrimExpr::Load { .. });
        let is_named = !lanes.names.is_disjoint(&vars_of(&value));
        if is_named && matches!(value, PrimExpr::Load { .. }) {
            return None;
        }
        if is_condition || is_named || is_function(&value) {
            if let PrimExpr::Let { var, .. } = &value {
                lanes.names.insert(*var);
            }
            // What a condition on indices guards must not be read ahead.
            if let PrimExpr::Select { cond, then, otherwise } = &value
                && guards_loads(cond, then, otherwise)
            {
                return None;
            }
            let mut all = true;
            let value = value.map_children(&mut |child| {
                let kept = child.clone();
                let child = self.side_by_side(child, lanes);
                all &= child.is_some();
                child.unwrap_or(kept)
            });
            return all.then_some(value);
        }
        let dtype = value.dtype();
        let at = self.func.var_expr(lanes.var);
        if let Some((_, buffer)) = lanes.fetched.iter().find(|(argument, _)| *argument == value) {
            return Some(self.func.load(*buffer, [at]));
        }
        let buffer = self.func.local("fetched", dtype, BufferSpec::dense(&[lanes.count]));
        let fetch = self.func.store(buffer, [at.clone()], value.clone());
        if dtype == DType::Bool || self.can_vectorize(&fetch, lanes.var, lanes.width, false) {
            return Some(value);
        }
        lanes.fetched.push((value, buffer));
        Some(self.func.load(buffer, [at]))
    }
}

/// Whether a value is made by a function of many steps, but for what its places are made by.
pub(super) fn is_function(value: &PrimExpr) -> bool {
    match value {
        PrimExpr::Load { .. } => false,
        PrimExpr::Call { intrinsic, .. } if has_many_steps(*intrinsic) => true,
        _ => {
            let mut found = false;
            value.for_each_child(&mut |child| found |= is_function(child));
            found
        }
    }
}

fn has_many_steps(intrinsic: Intrinsic) -> bool {
    use Intrinsic::{Abs, Ceil, Floor, FromFp16, Ldexp, Round, Sqrt, ToFp16, Trunc};
    !matches!(intrinsic, Sqrt | Floor | Ceil | Trunc | Round | Abs | Ldexp | FromFp16 | ToFp16)
}
