//! Reductions without a register tile: across vectors of the result, or along the reduced axis.
//!
//! *Across*: the lanes are neighbouring elements of the result, each of which is summed up in order.
//! *Along*: the lanes are neighbouring elements of what is reduced; several vectors of partial sums
//! hide the latency of an addition and are combined at the end. How many partial sums there are, and
//! which element goes to which, depends on the shape and the data type alone, never on the width of
//! the target's vectors, so that all CPU levels round alike but for fused multiply-adds.
//!
//! Some functions are never inlined: optimised builds would make one function of all that is below
//! `Emitter::rows_beside`, of hundreds of thousands of registers, which takes LLVM ten minutes.

use std::collections::BTreeMap;

use super::emit::{Emitter, adjacent};
use super::nest::{Nest, in_run};
use crate::ir::{BufferSpec, DType};
use crate::te::{ReduceAxis, StageId, StageKind, combined, identity};
use crate::tir::{BinaryOp, BufferId, BufferScope, ForKind, PrimExpr, PrimFuncData, Stmt, VarId};

/// Bits of the widest vector of any target: partial sums come in groups of as many.
const GROUP_BITS: u32 = 512;

/// Groups of partial sums: enough additions at a time to hide the latency of each.
const GROUPS: i64 = 4;

/// The same where computing a value takes longer than adding it.
const GROUPS_OF_CALLS: i64 = 2;

/// Elements of the result that are summed up at a time where the lanes are those of the result.
const ACROSS: i64 = 64;

/// Fewest steps of a reduction that is split into partial sums across the result.
const MIN_SPLIT_STEPS: i64 = 16;

/// Lanes that are combined one by one: compilers take a vector of two through memory.
const LANES_IN_A_VECTOR: u32 = 4;

/// A reduction.
pub(super) struct Reduction {
    pub(super) stage: StageId,
    combiner: BinaryOp,
    axes: Vec<ReduceAxis>,
    value: PrimExpr,
    dtype: DType,
    /// Whether `value` is a product of floats, which is added in one rounding.
    sums_products: bool,
    /// Whether NaNs may be passed over.
    ignores_nan: bool,
    /// How far each axis goes, if each run says that itself.
    limits: Vec<Option<PrimExpr>>,
}

/// What a loop over lanes of a reduction does.
#[derive(Clone, Copy)]
struct Step {
    /// Where the values go.
    into: BufferId,
    /// The first of these places.
    at: i64,
    /// Whether they are combined with what is there.
    combine: bool,
}

/// A row that is reduced along its last axis.
struct Row<'a> {
    reduction: &'a Reduction,
    /// The index of the result.
    index: &'a [PrimExpr],
    /// The axes that are reduced.
    vars: &'a [ReduceAxis],
    /// A stage that is what the reduction reads, and is stored on the way.
    kept: Option<StageId>,
}

/// The partial sums of a row.
struct Sums {
    /// `wide` of them.
    acc: BufferId,
    /// Room for a group of values.
    tail: BufferId,
    /// Elements of the row, of a group, and of a chunk of groups.
    extent: i64,
    group: i64,
    wide: i64,
    /// Elements of a vector.
    lanes: i64,
}

/// A vector of a group: its first element and its length.
#[derive(Clone, Copy)]
struct Part {
    first: i64,
    lanes: i64,
}

impl Reduction {
    pub(super) fn of(emitter: &Emitter, stage: StageId) -> Option<Reduction> {
        match emitter.dag.stages[stage].kind.clone() {
            StageKind::Reduce { combiner, init: _, axes, value } => {
                let dtype = emitter.dag.dtype(stage);
                let limit = |axis: &ReduceAxis| emitter.dag.reduce_limit(axis).cloned();
                let limits = axes.iter().map(limit).collect();
                // A product that comes into `value` by inlining is another operator's: it is rounded
                // before it is added, as it is if that operator is a kernel of its own.
                let is_product = matches!(value, PrimExpr::Binary { op: BinaryOp::Mul, .. });
                let sums_products = is_product && matches!(dtype, DType::F32 | DType::F64);
                let ignores_nan = emitter.dag.stages[stage].ignores_nan;
                Some(Reduction {
                    stage,
                    combiner,
                    axes,
                    value,
                    dtype,
                    sums_products,
                    ignores_nan,
                    limits,
                })
            }
            StageKind::Placeholder
            | StageKind::Compute(_)
            | StageKind::Concat { .. }
            | StageKind::Joint { .. }
            | StageKind::Extern { .. } => None,
        }
    }

    /// How far an axis goes.
    fn extent(&self, axis: usize) -> PrimExpr {
        self.limits[axis].clone().unwrap_or(PrimExpr::index(self.axes[axis].extent))
    }

    /// The loops over all axes but the last.
    fn in_outer(&self, vars: &[ReduceAxis], body: Stmt) -> Stmt {
        let outer = vars.iter().enumerate().take(vars.len().saturating_sub(1)).rev();
        outer.fold(body, |body, (axis, over)| in_run(body, (over.var, self.extent(axis))))
    }

    fn init(&self) -> PrimExpr {
        identity(self.combiner, self.dtype)
    }

    #[inline(never)]
    fn combined(&self, sum: PrimExpr, value: PrimExpr) -> PrimExpr {
        if self.ignores_nan {
            return PrimExpr::binary(self.combiner, sum, value);
        }
        combine(self.combiner, sum, value, self.sums_products)
    }

    /// Whether what is reduced are the elements of a stage inside of the loops over rows, each once.
    pub(super) fn reads_each_once(&self, emitter: &Emitter, stage: StageId) -> bool {
        let PrimExpr::Load { buffer, indices, .. } = &self.value else { return false };
        if emitter.dag.stage_of(*buffer) != Some(stage) {
            return false;
        }
        let rows = emitter.rows.len();
        let own = &emitter.dag.stages[self.stage].axes;
        let rest: i64 = emitter.dag.shape(self.stage)[rows..].iter().product();
        let mut axes = self.axes.iter();
        let places = indices.iter().zip(emitter.dag.shape(stage)).enumerate().skip(rows);
        let covered = places.into_iter().all(|(_, (index, &extent))| match index {
            PrimExpr::Var { var, .. } => {
                axes.next().is_some_and(|axis| axis.var == *var && axis.extent == extent)
            }
            _ => extent == 1,
        });
        let in_row = indices
            .iter()
            .zip(own)
            .take(rows)
            .all(|(index, own)| matches!(index, PrimExpr::Var { var, .. } if var == own));
        rest == 1 && covered && in_row && axes.next().is_none()
    }

    /// Elements of a group of partial sums along an axis, if they are worth having: a power of two.
    fn group(&self) -> Option<(i64, i64)> {
        let extent = self.axes.last()?.extent;
        let known = self.dtype.is_int() || matches!(self.dtype, DType::F32 | DType::F64);
        if !known || self.dtype.bits() < 8 {
            return None;
        }
        let mut group = i64::from(GROUP_BITS / self.dtype.bits());
        while group > extent {
            group /= 2;
        }
        (group >= 4).then_some((extent, group))
    }
}

impl Emitter {
    /// A reduction without a schedule of its own.
    pub(super) fn emit_reduce(&mut self, root: StageId, inner: StageId) -> Stmt {
        let Some(reduction) = Reduction::of(self, inner) else { return Stmt::nop() };
        if let Some(stmt) = self.reduce_across(root, &reduction) {
            return stmt;
        }
        if let Some(stmt) = self.reduce_along(root, &reduction, None) {
            return stmt;
        }
        if let Some(stmt) = self.reduce_in_blocks(root, &reduction) {
            return stmt;
        }
        let build = &mut |emitter: &mut Emitter, nest: &Nest| {
            emitter.reduce_lanes(nest, root, &reduction, 1)
        };
        self.cover_in_scalars(root, build)
    }

    /// The lanes are elements of the result in the blocks of a tensor that is read, from where they
    /// are brought into the layout of the result.
    fn reduce_in_blocks(&mut self, root: StageId, reduction: &Reduction) -> Option<Stmt> {
        let to = self.materialised[&root];
        let shape = self.dag.shape(root).to_vec();
        if !self.rows.is_empty() || !self.func.buffers[to].spec.is_dense() {
            return None;
        }
        let dims = self.func.params.iter().find_map(|param| {
            let spec = &self.func.buffers[param.buffer].spec;
            let blocked = spec.shape().len() == shape.len() && !spec.blocking().is_empty();
            blocked.then(|| spec.dims().iter().map(|dim| (dim.axis, dim.step)).collect::<Vec<_>>())
        })?;
        let spec = BufferSpec::packed(&shape, &dims);
        let dtype = self.func.buffers[to].dtype;
        let blocks = self.func.buffer("blocks", dtype, spec, BufferScope::Local);
        self.materialised.insert(root, blocks);
        let computed = self.reduce_across(root, reduction);
        self.materialised.insert(root, to);
        let computed = computed?;
        self.scratch.push(blocks);
        Some(Stmt::seq([computed, self.copy(blocks, to)]))
    }

    fn cover_in_scalars(
        &mut self,
        root: StageId,
        build: &mut dyn FnMut(&mut Emitter, &Nest) -> Option<Stmt>,
    ) -> Stmt {
        let spec = self.func.buffers[self.materialised[&root]].spec.clone();
        self.cover_in(&spec, &[], build).unwrap_or_else(Stmt::nop)
    }

    /// The lanes are elements of the result.
    fn reduce_across(&mut self, root: StageId, reduction: &Reduction) -> Option<Stmt> {
        let buffer = &self.func.buffers[self.materialised[&root]];
        let (spec, dtype) = (buffer.spec.clone(), buffer.dtype);
        let extent = self.extent_of(&spec);
        let widths = self.widths_for(&extent, dtype);
        if widths.is_empty() {
            return None;
        }
        let inner = adjacent(&extent);
        let steps = reduction.axes.iter().fold(1i64, |n, axis| n.saturating_mul(axis.extent));
        let last = reduction.axes.last().map_or(1, |axis| axis.extent);
        // Long rows of the result are sums enough; of short ones, each element has several.
        if inner >= ACROSS && steps > 1 && reduction.dtype.bits() == 32 {
            let narrower = widths.iter().copied().filter(|&width| width < ACROSS);
            let wide: Vec<i64> = std::iter::once(ACROSS).chain(narrower).collect();
            let build = &mut |emitter: &mut Emitter, nest: &Nest| {
                emitter.reduce_lanes(nest, root, reduction, 1)
            };
            if let Some(stmt) = self.cover_in(&spec, &wide, build) {
                return Some(stmt);
            }
        }
        let split = if steps >= MIN_SPLIT_STEPS && last >= GROUPS { GROUPS } else { 1 };
        let build = &mut |emitter: &mut Emitter, nest: &Nest| {
            emitter.reduce_lanes(nest, root, reduction, split)
        };
        if let Some(stmt) = self.cover_in(&spec, &widths, build) {
            return Some(stmt);
        }
        let probe = self.element_of(&extent, &mut |emitter, index| {
            let vars = emitter.fresh(&reduction.axes);
            let by: Vec<PrimExpr> =
                vars.iter().map(|axis| emitter.func.var_expr(axis.var)).collect();
            let acc = emitter.func.register("acc", reduction.dtype, &[1]);
            let step = Step { into: acc, at: 0, combine: false };
            emitter.reduction_step(reduction, index, &by, &0.into(), step, None)
        });
        self.cover_pieces(&spec, &widths, &probe, build)
    }

    /// All lanes of a nest, each with `split` partial sums along the last reduced axis.
    #[inline(never)]
    fn reduce_lanes(
        &mut self,
        nest: &Nest,
        root: StageId,
        reduction: &Reduction,
        split: i64,
    ) -> Option<Stmt> {
        let lanes = nest.lane.map_or(1, |lane| lane.1);
        let acc = self.func.register("acc", reduction.dtype, &[split * lanes]);
        let mut first = Vec::new();
        for part in 0..split {
            first.push(self.lane_stmt(nest, |emitter, _, lane| {
                emitter.func.store(acc, [lane + part * lanes], reduction.init())
            })?);
        }
        let vars = self.fresh(&reduction.axes);
        let step = |emitter: &mut Emitter, last: Option<PrimExpr>, part: i64| {
            emitter.lane_stmt(nest, |emitter, index, lane| {
                let mut by: Vec<PrimExpr> =
                    vars.iter().map(|axis| emitter.func.var_expr(axis.var)).collect();
                if let (Some(last), Some(place)) = (last, by.last_mut()) {
                    *place = last;
                }
                let step = Step { into: acc, at: part * lanes, combine: true };
                emitter.reduction_step(reduction, index, &by, &lane, step, None)
            })
        };
        let outermost = vars.len().saturating_sub(1);
        let loops = match vars.last() {
            Some(last) if split > 1 => {
                let (full, rest) = (last.extent / split, last.extent % split);
                let (chunk_index, chunk) = self.counter("r", full);
                let base = chunk_index * split;
                let mut parts = Vec::new();
                for part in 0..split {
                    parts.push(step(self, Some(base.clone() + part), part)?);
                }
                let limit = &reduction.limits[outermost];
                let count = limit.clone().map_or(full.into(), |limit| limit.floordiv(split));
                let mut stmts = vec![in_run(Stmt::seq(parts), (chunk, count.clone()))];
                for part in 0..if limit.is_some() { split - 1 } else { rest } {
                    let place = count.clone() * split + part;
                    let one = step(self, Some(place.clone()), part)?;
                    stmts.push(match limit {
                        Some(limit) => Stmt::if_then(place.less(limit.clone()), one),
                        None => one,
                    });
                }
                Stmt::seq(stmts)
            }
            Some(last) => in_run(step(self, None, 0)?, (last.var, reduction.extent(outermost))),
            None => step(self, None, 0)?,
        };
        let loops = reduction.in_outer(&vars, loops);
        let mut fold = Vec::new();
        let mut parts = split;
        while parts > 1 {
            parts /= 2;
            for part in 0..parts {
                fold.push(self.lane_stmt(nest, |emitter, _, lane| {
                    let at = lane.clone() + part * lanes;
                    let low = emitter.func.load(acc, [at.clone()]);
                    let high = emitter.func.load(acc, [lane + (part + parts) * lanes]);
                    emitter.func.store(acc, [at], reduction.combined(low, high))
                })?);
            }
        }
        let last = self.lane_stmt(nest, |emitter, index, lane| {
            let value = emitter.func.load(acc, [lane]);
            emitter.store_element(root, Some((reduction.stage, value)), index)
        })?;
        let stmts = first.into_iter().chain([loops]).chain(fold).chain([last]);
        Some(Stmt::allocate(acc, Stmt::seq(stmts)))
    }

    fn fresh(&mut self, axes: &[ReduceAxis]) -> Vec<ReduceAxis> {
        axes.iter()
            .map(|axis| {
                let (_, var) = self.counter("r", axis.extent);
                ReduceAxis { var, extent: axis.extent }
            })
            .collect()
    }

    /// What one place of the reduced axes, `by`, adds to a lane. A stage that is `kept` is what the
    /// reduction reads, and is stored on the way.
    #[inline(never)]
    fn reduction_step(
        &mut self,
        reduction: &Reduction,
        index: &[PrimExpr],
        by: &[PrimExpr],
        lane: &PrimExpr,
        step: Step,
        kept: Option<StageId>,
    ) -> Stmt {
        let axes = &self.dag.stages[reduction.stage].axes;
        let mut values: BTreeMap<VarId, PrimExpr> =
            axes.iter().copied().zip(index.iter().cloned()).collect();
        values.extend(reduction.axes.iter().map(|axis| axis.var).zip(by.iter().cloned()));
        let value = reduction.value.clone().substitute(&values);
        let kept = kept.zip(match &value {
            PrimExpr::Load { indices, .. } => Some(indices.clone()),
            _ => None,
        });
        let buffer = kept.as_ref().map(|(stage, _)| self.materialised[stage]);
        let (mut inliner, func) = self.inliner();
        let at = lane.clone() + step.at;
        let put = |func: &PrimFuncData, value: PrimExpr| {
            if !step.combine {
                return func.store(step.into, [at.clone()], value);
            }
            let sum = func.load(step.into, [at.clone()]);
            func.store(step.into, [at.clone()], reduction.combined(sum, value))
        };
        let stmt = match (kept, buffer) {
            (Some((stage, place)), Some(buffer)) => {
                let value = inliner.computed(func, stage, &place);
                func.let_stmt("value", value, |func, value| {
                    Stmt::seq([func.store(buffer, place, value.clone()), put(func, value)])
                })
            }
            _ => {
                let value = inliner.expression(func, value);
                put(func, value)
            }
        };
        inliner.wrap(stmt)
    }

    /// Whether the reduction can go along its last axis in vectors.
    pub(super) fn goes_along(&mut self, reduction: &Reduction) -> bool {
        let index: Vec<PrimExpr> = (self.dag.stages[reduction.stage].axes.iter())
            .map(|&var| self.func.var_expr(var))
            .collect();
        let Some((_, group)) = reduction.group() else { return false };
        let into = self.func.register("acc", reduction.dtype, &[group]);
        let vars = self.fresh(&reduction.axes);
        let step = Step { into, at: 0, combine: true };
        let row = Row { reduction, index: &index, vars: &vars, kept: None };
        self.step_along(&row, 0.into(), group, step).is_some()
    }

    /// The lanes are elements along the last reduced axis. A stage that is `kept` is stored on the
    /// way.
    pub(super) fn reduce_along(
        &mut self,
        root: StageId,
        reduction: &Reduction,
        kept: Option<StageId>,
    ) -> Option<Stmt> {
        reduction.group()?;
        let spec = self.func.buffers[self.materialised[&root]].spec.clone();
        self.cover_in(&spec, &[], &mut |emitter, nest| {
            emitter.reduce_row(nest, root, reduction, kept)
        })
    }

    /// One element of the result.
    #[inline(never)]
    fn reduce_row(
        &mut self,
        nest: &Nest,
        root: StageId,
        reduction: &Reduction,
        kept: Option<StageId>,
    ) -> Option<Stmt> {
        let (extent, group) = reduction.group()?;
        let index = &nest.index_at(&PrimExpr::index(0));
        let vars = &self.fresh(&reduction.axes);
        let row = Row { reduction, index, vars, kept };
        let tail = self.func.register("tail", reduction.dtype, &[group]);
        let set = Step { into: tail, at: 0, combine: false };
        let from = PrimExpr::index(extent - group);
        let fill = self.step_along(&row, from, group, set)?;
        let mut groups = if has_call(&fill) { GROUPS_OF_CALLS } else { GROUPS };
        while groups * group > extent {
            groups /= 2;
        }
        let wide = groups * group;
        let acc = self.func.register("acc", reduction.dtype, &[wide]);
        let lanes = self.machine.lanes(reduction.dtype).min(group);
        let sums = Sums { acc, tail, extent, group, wide, lanes };

        let first = self.func.for_("l", wide, ForKind::Vectorized, |func, lane| {
            func.store(acc, [lane], reduction.init())
        });
        let limit = reduction.limits.last().cloned().flatten();
        let count = match &limit {
            None => PrimExpr::index(extent / wide),
            Some(limit) => limit.clone().floordiv(wide),
        };
        let (chunk, var) = self.counter("r", extent / wide);
        let step = Step { into: acc, at: 0, combine: true };
        let body = self.step_along(&row, chunk * wide, wide, step)?;
        let chunks = if count.is_const(1) { body } else { in_run(body, (var, count.clone())) };
        let rest = match limit {
            None => self.rest_of_row(&row, &sums, fill)?,
            Some(limit) => self.rest_of_run(&row, &sums, count * wide, limit)?,
        };
        let loops = reduction.in_outer(vars, Stmt::seq([chunks, rest]));
        let (names, value) = self.horizontal(reduction, acc, wide, lanes);
        let last = self.store_element(root, Some((reduction.stage, value)), index);
        let last =
            names.into_iter().rev().fold(last, |body, (var, value)| Stmt::let_(var, value, body));
        Some(Stmt::allocate(acc, Stmt::seq([first, loops, last])))
    }

    /// What is behind the whole chunks of a row. `fill` puts the last group of the row in `tail`.
    fn rest_of_row(&mut self, row: &Row<'_>, sums: &Sums, fill: Stmt) -> Option<Stmt> {
        let &Sums { acc, tail, extent, group, wide, .. } = sums;
        let (full, rest) = (extent / wide * wide, extent % wide);
        let mut stmts = Vec::new();
        for part in 0..rest / group {
            let at = part * group;
            let step = Step { into: acc, at, combine: true };
            stmts.push(self.step_along(row, PrimExpr::index(full + at), group, step)?);
        }
        let valid = rest % group;
        if valid > 0 {
            // A whole group up to the end of the row; what others had already counts as nothing.
            let skipped = group - valid;
            let masked =
                self.add_masked(row.reduction, sums, rest / group * group, |value, part| {
                    behind(
                        row.reduction.init(),
                        value,
                        (skipped - part.first).clamp(0, part.lanes),
                        part,
                    )
                });
            stmts.push(Stmt::allocate(tail, Stmt::seq([fill, masked])));
        }
        Some(Stmt::seq(stmts))
    }

    /// What is behind the whole chunks of a row that ends where a run says: group by group, the last
    /// ones in part behind the run or, at the end of the row, among what others had already.
    fn rest_of_run(
        &mut self,
        row: &Row<'_>,
        sums: &Sums,
        done: PrimExpr,
        limit: PrimExpr,
    ) -> Option<Stmt> {
        let &Sums { tail, extent, group, .. } = sums;
        let number = self.func.index_var("g");
        let first = done.clone() + self.func.var_expr(number) * group;
        let start = first.clone().min(extent - group);
        let set = Step { into: tail, at: 0, combine: false };
        let fill = self.step_along(row, start.clone(), group, set)?;
        let counter = lane_number(row.reduction.dtype);
        let bound = |place: PrimExpr| (place - start.clone()).min(group).cast(counter);
        let (from, to) = (bound(first), bound(limit.clone()));
        let masked = self.add_masked(row.reduction, sums, 0, |value, part| {
            let lanes = part.lanes as u32;
            let lane = PrimExpr::ramp(
                PrimExpr::int(part.first, counter),
                PrimExpr::int(1, counter),
                lanes,
            );
            let [from, to] = [&from, &to].map(|place| place.clone().broadcast_to(lanes));
            let is_new = lane.clone().greater_equal(from).and(lane.less(to));
            let neutral = row.reduction.init().broadcast_to(lanes);
            PrimExpr::select(is_new, value, neutral)
        });
        let groups = (limit - done + (group - 1)).floordiv(group);
        let body = Stmt::allocate(tail, Stmt::seq([fill, masked]));
        Some(in_run(body, (number, groups)))
    }

    /// Combines the group in `tail` with the sums from a place on, vector by vector: what `mask`
    /// makes of it.
    fn add_masked(
        &mut self,
        reduction: &Reduction,
        sums: &Sums,
        at: i64,
        mask: impl Fn(PrimExpr, Part) -> PrimExpr,
    ) -> Stmt {
        let &Sums { acc, tail, group, lanes, .. } = sums;
        let parts = (0..group / lanes).map(|part| {
            let part = Part { first: part * lanes, lanes };
            let place = |first: i64| ramp(first + part.first, lanes);
            let value = mask(self.func.load(tail, [place(0)]), part);
            let sum = self.func.load(acc, [place(at)]);
            self.func.store(acc, [place(at)], reduction.combined(sum, value))
        });
        Stmt::seq(parts.collect::<Vec<_>>())
    }

    /// A loop over `lanes` elements of the last reduced axis from `first` on, if it can be one of
    /// vectors.
    fn step_along(
        &mut self,
        row: &Row<'_>,
        first: PrimExpr,
        lanes: i64,
        step: Step,
    ) -> Option<Stmt> {
        let &Row { reduction, index, vars, kept } = row;
        let var = self.func.index_var("l");
        let lane = self.func.var_expr(var);
        let (_, outer) = vars.split_last()?;
        let by: Vec<PrimExpr> = outer
            .iter()
            .map(|axis| self.func.var_expr(axis.var))
            .chain([first + lane.clone()])
            .collect();
        let body = self.reduction_step(reduction, index, &by, &lane, step, kept);
        // Where types of several widths meet, the widest decides how many lanes a vector has, and
        // the partial sums are held in vectors of one size.
        let fits = widest_value(&body, var) <= reduction.dtype.bits()
            && self.can_vectorize_values(&body, var, lanes);
        fits.then(|| {
            let (min, extent) = (PrimExpr::index(0), PrimExpr::index(lanes));
            Stmt::for_loop(var, min, extent, ForKind::Vectorized, body)
        })
    }

    /// All partial sums as one: the upper half with the lower half, until one is left. Returns
    /// names for what is on the way, and the sum.
    fn horizontal(
        &mut self,
        reduction: &Reduction,
        acc: BufferId,
        count: i64,
        lanes: i64,
    ) -> (Vec<(VarId, PrimExpr)>, PrimExpr) {
        let mut names = Vec::new();
        let mut bind = |func: &mut PrimFuncData, value: PrimExpr| {
            let var = func.var("sum", value.ty());
            names.push((var, value));
            func.var_expr(var)
        };
        let mut parts = Vec::new();
        for part in 0..count / lanes {
            let value = self.func.load(acc, [ramp(part * lanes, lanes)]);
            parts.push(bind(&mut self.func, value));
        }
        while parts.len() > 1 {
            let high = parts.split_off(parts.len() / 2);
            parts = (parts.into_iter().zip(high))
                .map(|(low, high)| bind(&mut self.func, reduction.combined(low, high)))
                .collect();
        }
        let mut sum = parts.pop().unwrap_or_else(|| reduction.init());
        let mut lanes = sum.ty().lanes;
        while lanes > LANES_IN_A_VECTOR {
            lanes /= 2;
            let low = bind(&mut self.func, sum.clone().shuffle((0..lanes).collect()));
            let high = bind(&mut self.func, sum.shuffle((lanes..2 * lanes).collect()));
            sum = bind(&mut self.func, reduction.combined(low, high));
        }
        let mut scalars: Vec<PrimExpr> =
            (0..lanes).map(|lane| bind(&mut self.func, sum.clone().lane(lane))).collect();
        while scalars.len() > 1 {
            let high = scalars.split_off(scalars.len() / 2);
            scalars = (scalars.into_iter().zip(high))
                .map(|(low, high)| bind(&mut self.func, reduction.combined(low, high)))
                .collect();
        }
        let sum = scalars.pop().unwrap_or(sum);
        (names, sum)
    }
}

/// `combiner(sum, value)`; with `sums_products`, a product is added in one rounding.
fn combine(combiner: BinaryOp, sum: PrimExpr, value: PrimExpr, sums_products: bool) -> PrimExpr {
    match (combiner, value) {
        (BinaryOp::Add, PrimExpr::Binary { op: BinaryOp::Mul, lhs, rhs }) if sums_products => {
            PrimExpr::mul_add(*lhs, *rhs, sum)
        }
        (combiner, value) => combined(combiner, sum, value),
    }
}

/// `lanes` positions from `first` on.
fn ramp(first: i64, lanes: i64) -> PrimExpr {
    PrimExpr::ramp(PrimExpr::index(first), 1, lanes as u32)
}

/// A vector with its first `skipped` lanes replaced.
fn behind(neutral: PrimExpr, value: PrimExpr, skipped: i64, Part { lanes, .. }: Part) -> PrimExpr {
    if skipped == 0 {
        return value;
    }
    let neutral = neutral.broadcast_to(lanes as u32);
    let picks = (0..lanes).map(|lane| if lane < skipped { lane } else { lanes + lane } as u32);
    PrimExpr::Shuffle { vectors: vec![neutral, value], lanes: picks.collect() }
}

/// Integers as wide as the elements of a vector, to count its lanes.
fn lane_number(dtype: DType) -> DType {
    match dtype.bits() {
        8 => DType::I8,
        16 => DType::I16,
        32 => DType::I32,
        _ => DType::I64,
    }
}

fn has_call(stmt: &Stmt) -> bool {
    let mut found = false;
    stmt.walk_exprs(&mut |expr| found |= matches!(expr, PrimExpr::Call { .. }));
    found
}

/// Bits of the widest value that a loop over lanes has vectors of, indices of loads aside.
fn widest_value(stmt: &Stmt, lane: VarId) -> u32 {
    fn of(expr: &PrimExpr, lane: VarId, bits: &mut u32) {
        match expr {
            PrimExpr::Load { dtype, .. } => *bits = (*bits).max(dtype.bits()),
            PrimExpr::Compare { lhs, rhs, .. } if !lhs.uses(lane) && !rhs.uses(lane) => {}
            PrimExpr::Var { var, ty } => {
                if *var == lane || ty.dtype != DType::I64 {
                    *bits = (*bits).max(ty.dtype.bits());
                }
            }
            other => {
                if matches!(other, PrimExpr::Cast { .. } | PrimExpr::Reinterpret { .. }) {
                    *bits = (*bits).max(other.dtype().bits());
                }
                other.for_each_child(&mut |child| of(child, lane, bits));
            }
        }
    }
    let mut bits = 8;
    stmt.walk(&mut |stmt| match stmt {
        Stmt::Store { value, .. } | Stmt::Let { value, .. } => of(value, lane, &mut bits),
        Stmt::Seq(_)
        | Stmt::For { .. }
        | Stmt::BlockRealize(_)
        | Stmt::Assert { .. }
        | Stmt::Block { .. }
        | Stmt::If { .. }
        | Stmt::Allocate { .. }
        | Stmt::Prefetch { .. } => {}
    });
    bits
}
