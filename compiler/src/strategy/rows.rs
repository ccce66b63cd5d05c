//! Stages of one row in one loop over rows: the mean of a row, its deviation and what is made of
//! them, while the row is in the cache.

use std::collections::BTreeMap;

use super::apart::is_function;
use super::emit::{Emitter, Root};
use super::inline::Inliner;
use super::nest::in_loop;
use super::reduce::Reduction;
use crate::ir::BufferSpec;
use crate::te::{Anchor, StageId, StageKind};
use crate::tir::{BufferId, ForKind, ParamKind, PrimExpr, Stmt};

/// Longest rows, in elements, of which two are computed side by side.
const LONGEST_OF_TWO: i64 = 256;

/// Smallest input, in bytes, of which rows are asked for before they are read: a smaller one is in
/// the second cache already.
const MIN_PREFETCHED_BYTES: i64 = 1 << 20;

/// Shortest row, in elements, that is asked for.
const MIN_PREFETCHED_ROW: i64 = 32;

/// The layout of a row of a dense tensor: one element along the first `axes`.
pub(super) fn row_of(spec: &BufferSpec, axes: usize) -> BufferSpec {
    let extents = spec.shape().iter().enumerate();
    let extents: Vec<i64> =
        extents.map(|(axis, &extent)| if axis < axes { 1 } else { extent }).collect();
    BufferSpec::dense(&extents)
}

/// For how many elements each one that a function of many steps makes is made anew.
const MOST_REPEATED: i64 = 2;

/// What the elements of a stage cost, where they are not read from memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Made {
    Nearby,
    Function,
    Reduction,
}

impl Emitter {
    /// Stages that are worth storing: made of a reduction once, and read for many elements, or by a function
    /// of many steps, and read for very many.
    pub(super) fn spread_stages(&self) -> Vec<StageId> {
        if self.dag.stages.values().any(|stage| stage.anchor != Anchor::None) {
            return Vec::new();
        }
        let elements = |stage: StageId| {
            self.dag.shape(stage).iter().fold(1i64, |n, &extent| n.saturating_mul(extent))
        };
        let mut made: BTreeMap<StageId, Made> = BTreeMap::new();
        let mut most_read: BTreeMap<StageId, [i64; 2]> = BTreeMap::new();
        for stage in self.dag.ids().filter(|stage| self.uses.contains_key(stage)) {
            let reads = self.dag.reads(stage);
            let (over, by) = match &self.dag.stages[stage].kind {
                StageKind::Reduce { axes, .. } => (
                    axes.iter().fold(1i64, |n, axis| n.saturating_mul(axis.extent)),
                    Made::Reduction,
                ),
                StageKind::Compute(value) => {
                    let own = if is_function(value) { Made::Function } else { Made::Nearby };
                    (1, reads.iter().map(|read| made[read]).fold(own, Made::max))
                }
                StageKind::Placeholder
                | StageKind::Concat { .. }
                | StageKind::Joint { .. }
                | StageKind::Extern { .. } => (1, Made::Nearby),
            };
            made.insert(stage, by);
            let count = elements(stage).saturating_mul(over);
            for read in reads {
                let moving = if self.reads_anew(stage, read) { count } else { 0 };
                let most = most_read.entry(read).or_default();
                *most = [most[0].max(count), most[1].max(moving)];
            }
        }
        let spreads = |&stage: &StageId| {
            let [most, moving] = most_read.get(&stage).copied().unwrap_or_default();
            let is_compute = matches!(self.dag.stages[stage].kind, StageKind::Compute(_));
            is_compute
                && match made[&stage] {
                    Made::Reduction => most > elements(stage),
                    Made::Function => moving > elements(stage).saturating_mul(MOST_REPEATED),
                    Made::Nearby => false,
                }
        };
        self.dag.ids().filter(|stage| made.contains_key(stage)).filter(spreads).collect()
    }

    /// Whether a stage reads another element for each place along its last axis: one that is the same for all
    /// of them is computed before these.
    fn reads_anew(&self, stage: StageId, read: StageId) -> bool {
        let StageKind::Compute(value) = &self.dag.stages[stage].kind else { return true };
        let Some(&last) = self.dag.stages[stage].axes.last() else { return false };
        value.any(&mut |expr| match expr {
            PrimExpr::Load { buffer, indices, .. } => {
                self.dag.stage_of(*buffer) == Some(read)
                    && indices.iter().any(|index| index.uses(last))
            }
            _ => false,
        })
    }

    /// How many leading axes all roots share, if they can be computed row by row: each reads what
    /// another one stores in its own row only.
    pub(super) fn row_axes(&mut self, roots: &[Root]) -> Option<usize> {
        let [first, .., _] = roots else { return None };
        // Images that are sampled are made in blocks of channels.
        if self.samples() {
            return None;
        }
        // What is moved is not read again: loops over memory as it lies have no ends of rows. All
        // versions of a kernel answer alike, as their parameters are the same.
        let moves_in_parts = |root: &Root| {
            let lanes = self.packing.lanes(self.dag.dtype(root.stage)).max(1);
            let is_whole = self.dag.shape(root.stage).last().is_some_and(|row| row % lanes == 0);
            let kind = &self.dag.stages[root.stage].kind;
            !is_whole && matches!(kind, StageKind::Compute(PrimExpr::Load { .. }))
        };
        if roots.iter().all(moves_in_parts) {
            return None;
        }
        let shape = self.dag.shape(first.stage).to_vec();
        let mut most = shape.len();
        for root in roots {
            let inner = root.fused.unwrap_or(root.stage);
            let is_loop = match self.dag.stages[inner].kind {
                StageKind::Compute(_) => true,
                StageKind::Reduce { .. } => self.dag.stages[inner].anchor == Anchor::None,
                StageKind::Placeholder
                | StageKind::Concat { .. }
                | StageKind::Joint { .. }
                | StageKind::Extern { .. } => false,
            };
            let dense = self.func.buffers[self.materialised[&root.stage]].spec.is_dense();
            if !is_loop || !dense {
                return None;
            }
            let other = self.dag.shape(root.stage);
            let shared = shape.iter().zip(other).take_while(|(a, b)| a == b).count();
            most = most.min(shared);
        }
        most = most.min(self.own_rows(roots));
        (1..=most).rev().find(|&axes| {
            let rows: i64 = shape[..axes].iter().product();
            rows > 1 && self.rows_are_loops(roots, axes)
        })
    }

    /// How many leading indices of all that roots read of each other are their own.
    pub(super) fn own_rows(&self, roots: &[Root]) -> usize {
        let stored = self.stored_stages(roots);
        let stages: Vec<StageId> = roots.iter().map(|root| root.stage).collect();
        let own = roots.iter().flat_map(|root| {
            let read_by = [Some(root.stage), root.fused].into_iter().flatten();
            read_by.map(|stage| self.own_row(stage, root.fused, &stages, &stored))
        });
        own.min().unwrap_or(0)
    }

    /// How many leading indices of all that a stage reads of others are the stage's own.
    fn own_row(
        &self,
        stage: StageId,
        fused: Option<StageId>,
        others: &[StageId],
        stored: &BTreeMap<StageId, BufferId>,
    ) -> usize {
        let mut func = self.func.clone();
        let index = self.index_of(stage);
        // What it is made of: all that is inlined, up to what is stored.
        let kept = stored.iter().filter(|(other, _)| **other != stage);
        let mut kept: BTreeMap<StageId, BufferId> = kept.map(|(&s, &b)| (s, b)).collect();
        if let Some(fused) = fused.filter(|fused| *fused != stage) {
            kept.insert(fused, self.dag.stages[fused].buffer);
        }
        let mut inliner = Inliner::new(&self.dag, &kept, &self.uses);
        let value = match &self.dag.stages[stage].kind {
            StageKind::Reduce { value, .. } => inliner.expression(&mut func, value.clone()),
            StageKind::Compute(_) => inliner.computed(&mut func, stage, &index),
            StageKind::Placeholder
            | StageKind::Concat { .. }
            | StageKind::Joint { .. }
            | StageKind::Extern { .. } => return 0,
        };
        let stmt = inliner.wrap(func.store(self.dag.stages[stage].buffer, index.clone(), value));
        let mut own = index.len();
        stmt.walk_exprs(&mut |expr| {
            if let PrimExpr::Load { buffer, indices, .. } = expr
                && others.iter().any(|&other| self.dag.stages[other].buffer == *buffer)
            {
                own = own.min(indices.iter().zip(&index).take_while(|(a, b)| a == b).count());
            }
        });
        own
    }

    /// Whether an output may be the memory of an input of its layout: no element of the input is read
    /// after the output's is stored. By rows, the input is read in its own row only.
    pub(super) fn may_overwrite(
        &self,
        roots: &[Root],
        axes: Option<usize>,
        input: StageId,
        output: BufferId,
    ) -> bool {
        // The first root that stores to the output's memory, and those behind it.
        let writes = |root: &Root| self.materialised[&root.stage] == output;
        let Some(first) = roots.iter().position(writes) else { return false };
        let (writer, behind) = (&roots[first], &roots[first + 1..]);
        let stored = self.stored_stages(roots);
        let reads = |root: &Root| {
            let stages = [Some(root.stage), root.fused];
            stages.into_iter().flatten().any(|stage| self.reads_stored(stage, input, &stored))
        };
        if behind.iter().any(reads) {
            return false;
        }
        if reads(writer) {
            let fused_reads =
                writer.fused.is_some_and(|fused| self.reads_stored(fused, input, &stored));
            let kept: Vec<StageId> = stored.keys().copied().chain(writer.fused).collect();
            let at_its_index = matches!(self.dag.stages[writer.stage].kind, StageKind::Compute(_))
                && !fused_reads
                && self.reads_in_place(writer.stage, input, &kept);
            if !at_its_index {
                return false;
            }
        }
        let Some(axes) = axes else { return true };
        let stays_in_row = |root: &Root| {
            let mut stages = [Some(root.stage), root.fused].into_iter().flatten();
            stages.all(|stage| self.own_row(stage, root.fused, &[input], &stored) >= axes)
        };
        if !roots.iter().all(stays_in_row) {
            return false;
        }
        // What is added up on the way is computed in groups, the last of which begins among what
        // others have stored unless all are whole.
        let next = behind.first().map(|next| next.fused.unwrap_or(next.stage));
        let reduction = next.and_then(|next| Reduction::of(self, next));
        reduction.is_none_or(|reduction| reduction.has_whole_groups())
    }

    /// The stages that are stored, and their buffers.
    fn stored_stages(&self, roots: &[Root]) -> BTreeMap<StageId, BufferId> {
        (roots.iter().map(|root| root.stage))
            .chain(self.materialised.keys().copied())
            .map(|stage| (stage, self.dag.stages[stage].buffer))
            .collect()
    }

    /// Whether computing a stage of what is stored reads `wanted`, which is stored.
    pub(super) fn reads_stored(
        &self,
        stage: StageId,
        wanted: StageId,
        stored: &BTreeMap<StageId, BufferId>,
    ) -> bool {
        let mut pending = self.dag.reads(stage);
        while let Some(read) = pending.pop() {
            if read == wanted {
                return true;
            }
            if !stored.contains_key(&read) {
                pending.extend(self.dag.reads(read));
            }
        }
        false
    }

    /// Whether loops are left inside of those over the first `axes`, at least one of them over
    /// adjacent elements.
    fn rows_are_loops(&mut self, roots: &[Root], axes: usize) -> bool {
        let mut any = false;
        for root in roots {
            let rest: i64 = self.dag.shape(root.stage)[axes..].iter().product();
            if rest != 1 {
                any = true;
                continue;
            }
            let inner = root.fused.unwrap_or(root.stage);
            if let Some(reduction) = Reduction::of(self, inner) {
                if !self.goes_along(&reduction) {
                    return false;
                }
                any = true;
            }
        }
        any
    }

    /// All roots, row by row. What is not handed over is stored for some rows only.
    ///
    /// Two short rows are computed side by side, stage by stage: what follows a reduction waits for
    /// its last steps, in which there is nothing else to do in the same row.
    pub(super) fn emit_rows(&mut self, roots: &[Root], axes: usize) -> Stmt {
        self.store_in_output(roots);
        let last = roots[roots.len() - 1].stage;
        self.note(last, "rows", format!("{} passes over each row", roots.len()), None, None);
        let scratch = std::mem::take(&mut self.scratch);
        let extents = self.dag.shape(roots[0].stage)[..axes].to_vec();
        let Some((&count, outer)) = extents.split_last() else { return Stmt::nop() };
        let beside = self.rows_at_a_time(roots, axes).min(count);
        for &buffer in &scratch {
            let mut shape = row_of(&self.func.buffers[buffer].spec, axes).shape().to_vec();
            shape[axes - 1] = beside;
            self.func.buffers[buffer].spec = BufferSpec::dense(&shape);
        }
        let loops: Vec<_> = outer.iter().map(|&extent| self.counter("row", extent)).collect();
        self.rows = loops.iter().map(|(index, _)| index.clone()).collect();
        let mut body = self.rows_from(roots, &scratch, &PrimExpr::index(0), count);
        self.rows.clear();
        for buffer in scratch {
            body = Stmt::allocate(buffer, body);
        }
        (loops.into_iter().zip(outer).rev())
            .fold(body, |body, ((_, var), &extent)| in_loop(body, (var, extent)))
    }

    /// How many rows are computed side by side.
    fn rows_at_a_time(&self, roots: &[Root], axes: usize) -> i64 {
        let longest = roots.iter().map(|root| self.row_elements(root, axes)).max().unwrap_or(1);
        if longest <= LONGEST_OF_TWO { 2 } else { 1 }
    }

    /// `count` rows from `first` on, in a loop. `scratch` has as many as are computed side by side.
    pub(super) fn rows_from(
        &mut self,
        roots: &[Root],
        scratch: &[BufferId],
        first: &PrimExpr,
        count: i64,
    ) -> Stmt {
        let beside = self.rows_at_a_time(roots, self.rows.len() + 1).min(count);
        let (full, rest) = (count / beside, count % beside);
        let (chunk, var) = self.counter("row", full);
        let place = first.clone() + chunk * beside;
        let body = in_loop(self.rows_beside(roots, scratch, &place, beside), (var, full));
        if rest == 0 {
            return body;
        }
        let place = first.clone() + full * beside;
        Stmt::seq([body, self.rows_beside(roots, scratch, &place, rest)])
    }

    /// Stores each stage of scratch memory where one is that it reads at its own index alone, and that
    /// nothing reads any more.
    pub(super) fn store_in_place(&mut self, roots: &[Root], axes: usize) {
        for (position, root) in roots.iter().enumerate() {
            let buffer = self.materialised[&root.stage];
            if !self.scratch.contains(&buffer) {
                continue;
            }
            let mut earlier = roots[..position].iter().map(|root| self.materialised[&root.stage]);
            let earlier = earlier.find(|&other| {
                let (from, to) = (&self.func.buffers[other], &self.func.buffers[buffer]);
                let alike = from.dtype == to.dtype && from.spec == to.spec;
                // All that have been stored there.
                let mut stored = roots[..position]
                    .iter()
                    .map(|root| root.stage)
                    .filter(|stage| self.materialised[stage] == other);
                alike
                    && self.scratch.contains(&other)
                    && stored.all(|stage| self.may_overwrite(roots, Some(axes), stage, buffer))
            });
            if let Some(other) = earlier {
                self.scratch.retain(|&scratch| scratch != buffer);
                self.materialised.insert(root.stage, other);
            }
        }
    }

    /// Stores what the last root reads at its own index alone where its result will be: the cache
    /// lines come while there is something to compute, and no others are taken.
    fn store_in_output(&mut self, roots: &[Root]) {
        let Some((last, before)) = roots.split_last() else { return };
        let output = self.materialised[&last.stage];
        let stored: Vec<StageId> = roots.iter().map(|root| root.stage).collect();
        for root in before.iter().rev() {
            let buffer = self.materialised[&root.stage];
            let (from, to) = (&self.func.buffers[buffer], &self.func.buffers[output]);
            let alike = from.dtype == to.dtype && from.spec == to.spec;
            let is_scratch = self.scratch.contains(&buffer);
            let computed = last.fused.is_none()
                && matches!(self.dag.stages[last.stage].kind, StageKind::Compute(_));
            if alike
                && is_scratch
                && computed
                && self.reads_in_place(last.stage, root.stage, &stored)
            {
                self.scratch.retain(|&other| other != buffer);
                self.materialised.insert(root.stage, output);
                return;
            }
        }
    }

    /// Elements that a root goes over in a row.
    fn row_elements(&self, root: &Root, axes: usize) -> i64 {
        let inner = root.fused.unwrap_or(root.stage);
        let rest = self.dag.shape(root.stage)[axes..].iter().copied();
        let over = match &self.dag.stages[inner].kind {
            StageKind::Reduce { axes, .. } => axes.iter().map(|axis| axis.extent).collect(),
            StageKind::Placeholder
            | StageKind::Compute(_)
            | StageKind::Concat { .. }
            | StageKind::Joint { .. }
            | StageKind::Extern { .. } => Vec::new(),
        };
        rest.chain(over).fold(1, i64::saturating_mul)
    }

    /// `count` rows from `first` on, stage by stage.
    fn rows_beside(
        &mut self,
        roots: &[Root],
        scratch: &[BufferId],
        first: &PrimExpr,
        count: i64,
    ) -> Stmt {
        let axes = self.rows.len() + 1;
        let mut stmts = Vec::new();
        let mut position = 0;
        while let Some(root) = roots.get(position) {
            let next = roots.get(position + 1);
            let mut taken = 1;
            for row in 0..count {
                let place = first.clone() + row;
                self.rows.push(place.clone());
                let both = next.and_then(|next| self.reduce_and_keep(root, next));
                taken = if both.is_some() { 2 } else { 1 };
                let stmt = both.unwrap_or_else(|| self.emit_block(root, false));
                let stmt = in_rows(stmt, scratch, axes, &|_| PrimExpr::index(row));
                stmts.push((stmt, place));
                self.rows.pop();
            }
            position += taken;
        }
        self.prefetch_rows(&mut stmts, axes, count);
        Stmt::seq(stmts.into_iter().map(|(stmt, _)| stmt))
    }

    /// Asks for the rows of large inputs that come next where the present ones are read last: what
    /// a processor asks for by itself stops at the end of what is read.
    fn prefetch_rows(&self, stmts: &mut [(Stmt, PrimExpr)], axes: usize, ahead: i64) {
        for param in &self.func.params {
            let data = &self.func.buffers[param.buffer];
            let bytes = data.spec.num_elements().unwrap_or(0) * i64::from(data.dtype.bits()) / 8;
            let row: i64 = data.shape().iter().skip(axes).product();
            if param.kind != ParamKind::Input
                || bytes < MIN_PREFETCHED_BYTES
                || row < MIN_PREFETCHED_ROW
            {
                continue;
            }
            let last = stmts.iter().rposition(|(stmt, _)| stmt.touches(param.buffer));
            let first = last.map_or(0, |last| last + 1 - (ahead as usize).min(last + 1));
            for (stmt, place) in stmts[first..].iter_mut() {
                let body = std::mem::replace(stmt, Stmt::nop());
                *stmt = prefetching(body, param.buffer, axes, place, ahead);
            }
        }
    }

    /// A stage whose elements the next root adds up, each of them once: both in one loop.
    fn reduce_and_keep(&mut self, root: &Root, next: &Root) -> Option<Stmt> {
        if root.fused.is_some()
            || !matches!(self.dag.stages[root.stage].kind, StageKind::Compute(_))
        {
            return None;
        }
        let reduction = Reduction::of(self, next.fused.unwrap_or(next.stage))?;
        if !reduction.reads_each_once(self, root.stage) {
            return None;
        }
        let body = self.reduce_along(next.stage, &reduction, Some(root.stage))?;
        Some(Stmt::block(self.dag.stages[next.stage].op.clone(), body))
    }
}

/// Adds to each loop over lanes that reads a row of a buffer a request for the same place of a
/// later row.
fn prefetching(stmt: Stmt, wanted: BufferId, axes: usize, row: &PrimExpr, ahead: i64) -> Stmt {
    stmt.rewrite(&mut |stmt| match stmt {
        Stmt::For { var, min, extent, kind: ForKind::Vectorized, annotations, body } => {
            let mut found: Option<Vec<PrimExpr>> = None;
            body.walk_exprs(&mut |expr| {
                if let PrimExpr::Load { buffer, indices, .. } = expr
                    && *buffer == wanted
                    && indices.get(axes - 1) == Some(row)
                {
                    found = Some(indices.clone());
                }
            });
            let body = match found {
                None => body,
                Some(mut indices) => {
                    indices[axes - 1] = row.clone() + ahead;
                    let (locality, write) = (3, false);
                    let offset = PrimExpr::index(0);
                    let next = Stmt::Prefetch { buffer: wanted, indices, offset, locality, write };
                    Box::new(Stmt::seq([next, *body]))
                }
            };
            let kind = ForKind::Vectorized;
            Stmt::For { var, min, extent, kind, annotations, body }
        }
        other => other,
    })
}

/// Makes all that is read and written of some buffers that of the rows they have: `place` is where
/// they have a row.
pub(super) fn in_rows(
    stmt: Stmt,
    buffers: &[BufferId],
    axes: usize,
    place: &dyn Fn(PrimExpr) -> PrimExpr,
) -> Stmt {
    with_indices(stmt, buffers, &|mut indices| {
        for (axis, index) in indices.iter_mut().enumerate().take(axes) {
            let row = std::mem::replace(index, PrimExpr::index(0));
            if axis + 1 == axes {
                *index = place(row);
            }
        }
        indices
    })
}

/// Gives all that is read and written of some buffers another index.
pub(super) fn with_indices(
    stmt: Stmt,
    buffers: &[BufferId],
    place: &dyn Fn(Vec<PrimExpr>) -> Vec<PrimExpr>,
) -> Stmt {
    let stmt = stmt.map_exprs(&mut |expr| {
        expr.rewrite(&mut |expr| match expr {
            PrimExpr::Load { buffer, dtype, indices } if buffers.contains(&buffer) => {
                PrimExpr::Load { buffer, dtype, indices: place(indices) }
            }
            other => other,
        })
    });
    stmt.rewrite(&mut |stmt| match stmt {
        Stmt::Store { buffer, indices, value } if buffers.contains(&buffer) => {
            Stmt::Store { buffer, indices: place(indices), value }
        }
        Stmt::Prefetch { buffer, indices, offset, locality, write }
            if buffers.contains(&buffer) =>
        {
            Stmt::Prefetch { buffer, indices: place(indices), offset, locality, write }
        }
        other => other,
    })
}
