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

mod along;
mod neighbours;

use std::collections::BTreeMap;

use super::cover::adjacent;
use super::emit::Emitter;
use super::machine::Machine;
use super::nest::{Nest, Run, in_run, innermost};
use crate::ir::{BufferSpec, DType};
use crate::te::{Anchor, ReduceAxis, StageId, StageKind, combined, identity};
use crate::tir::{BinaryOp, BufferId, BufferScope, PrimExpr, PrimFuncData, Stmt, VarId};

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

/// Most vectors of sums at a time where each would wait for the one before it: rows of the result are
/// computed side by side.
const SIDE_BY_SIDE: i64 = 6;

/// Most taps of a column that have code of their own, for each of the rows that share lines.
const MOST_TAPS_DOWN: i64 = 11;

/// Lanes that are combined one by one: compilers take a vector of two through memory.
const LANES_IN_A_VECTOR: u32 = 4;

/// A reduction.
#[derive(Clone)]
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
    /// Whether an element of the result may be computed twice.
    repeats: bool,
    /// Of a convolution of planes, whose last axes are the taps: lines from one row of the result to the
    /// next, and from one tap to the next. Rows that are computed side by side share lines.
    lines: Option<[i64; 2]>,
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
    /// Where NaNs go, and the first of these places, if `into` has none: what waits for a step is then
    /// one instruction. All sums of a lane share one.
    nans: Option<(BufferId, i64)>,
}

/// The last value if it is a NaN, else what was there.
fn last_nan(value: PrimExpr, before: PrimExpr) -> PrimExpr {
    PrimExpr::select(value.clone().not_equal(value.clone()), value, before)
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
                    repeats: false,
                    lines: None,
                })
            }
            StageKind::Placeholder
            | StageKind::Compute(_)
            | StageKind::Concat { .. }
            | StageKind::Joint { .. }
            | StageKind::Extern { .. } => None,
        }
    }

    /// The same where an element of the result may be computed twice, if `repeats`: the last vector of a
    /// row may begin before the one before it ends.
    pub(super) fn repeating(self, repeats: bool) -> Reduction {
        Reduction { repeats, ..self }
    }

    /// The same of windows whose rows, side by side, share lines of planes.
    pub(super) fn sharing_lines(self, anchor: &Anchor) -> Reduction {
        let lines = match anchor {
            Anchor::Conv2d { strides, dilation, .. } => Some([strides[0], dilation[0]]),
            Anchor::Window { .. }
            | Anchor::MatMul { .. }
            | Anchor::Winograd { .. }
            | Anchor::None => None,
        };
        let is_known = self.limits.iter().all(Option::is_none);
        let has_few = matches!(&self.axes[..], [_, down, _] if down.extent <= MOST_TAPS_DOWN);
        let lines = lines.filter(|_| is_known && has_few && self.sums_products);
        Reduction { lines, ..self }
    }

    /// What each element of a window is multiplied with, if it is.
    pub(super) fn factor(&self) -> Option<BufferId> {
        let PrimExpr::Binary { op: BinaryOp::Mul, rhs, .. } = &self.value else { return None };
        match **rhs {
            PrimExpr::Load { buffer, .. } => Some(buffer),
            _ => None,
        }
    }

    /// The same of a window over a tensor that has a border, where nothing is tested.
    pub(super) fn with_border(self) -> Reduction {
        let inside = |value| match value {
            PrimExpr::Select { then, .. } => *then,
            other => other,
        };
        let value = match self.value {
            PrimExpr::Binary { op, lhs, rhs } => PrimExpr::binary(op, inside(*lhs), *rhs),
            value => inside(value),
        };
        Reduction { value, ..self }
    }

    /// The same with the places in a block of a tensor that is read as the last axis: neighbours in
    /// memory, where those along an axis in blocks are none. Blocks that are not whole are cut.
    fn by_blocks(&self, emitter: &mut Emitter) -> Option<Reduction> {
        let blocking = |rank: usize| {
            let buffers =
                emitter.materialised.values().map(|&buffer| &emitter.func.buffers[buffer]);
            let specs =
                buffers.map(|buffer| &buffer.spec).filter(move |spec| spec.shape().len() == rank);
            specs.flat_map(BufferSpec::blocking)
        };
        let mut found = None;
        self.value.walk(&mut |expr| {
            let PrimExpr::Load { indices, .. } = expr else { return };
            for (axis, block) in blocking(indices.len()) {
                let is_index = |over: &ReduceAxis| {
                    matches!(&indices[axis], PrimExpr::Var { var, .. } if *var == over.var)
                };
                found = found.or(self.axes.iter().position(is_index).map(|at| (at, block)));
            }
        });
        let (at, mut block) = found.filter(|(at, _)| self.limits[*at].is_none())?;
        let ReduceAxis { var, extent } = self.axes[at];
        while extent % block != 0 {
            block /= 2;
        }
        let mut by_blocks = self.clone();
        let (outer, outer_var) = emitter.counter("r", extent / block);
        let (inner, inner_var) = emitter.counter("r", block);
        by_blocks.value = self.value.clone().substitute(&[(var, outer * block + inner)].into());
        by_blocks.axes[at] = ReduceAxis { var: outer_var, extent: extent / block };
        by_blocks.axes.push(ReduceAxis { var: inner_var, extent: block });
        by_blocks.limits.push(None);
        Some(by_blocks)
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

    pub(super) fn init(&self) -> PrimExpr {
        identity(self.combiner, self.dtype)
    }

    #[inline(never)]
    fn combined(&self, sum: PrimExpr, value: PrimExpr) -> PrimExpr {
        if self.ignores_nan {
            return PrimExpr::binary(self.combiner, sum, value);
        }
        combine(self.combiner, sum, value, self.sums_products)
    }

    /// Whether the extreme of a NaN and a number is a NaN.
    fn keeps_nan(&self) -> bool {
        let is_extreme = matches!(self.combiner, BinaryOp::Min | BinaryOp::Max);
        is_extreme && self.dtype.is_float() && !self.ignores_nan
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

    fn is_half(&self) -> bool {
        matches!(self.dtype, DType::F16 | DType::BF16)
    }

    /// Elements of one register: halves are widened where there is no arithmetic of them.
    fn lanes(&self, machine: Machine) -> i64 {
        if self.is_half() { machine.sums(self.dtype) } else { machine.lanes(self.dtype) }
    }

    /// Elements of a group of partial sums along an axis, if they are worth having: a power of two.
    fn group(&self) -> Option<(i64, i64)> {
        let extent = self.axes.last()?.extent;
        let is_half = self.is_half();
        let known = self.dtype.is_int()
            || matches!(self.dtype, DType::F32 | DType::F64)
            // To widen them changes nothing about which is the greatest.
            || (is_half && matches!(self.combiner, BinaryOp::Max | BinaryOp::Min));
        if !known || self.dtype.bits() < 8 {
            return None;
        }
        let bits = if is_half { DType::F32.bits() } else { self.dtype.bits() };
        let mut group = i64::from(GROUP_BITS / bits);
        while group > extent {
            group /= 2;
        }
        (group >= 4).then_some((extent, group))
    }

    /// Whether all groups are whole, in every run.
    pub(super) fn has_whole_groups(&self) -> bool {
        let is_whole = self.group().is_none_or(|(extent, group)| extent % group == 0);
        is_whole && self.limits.iter().all(Option::is_none)
    }
}

impl Emitter {
    /// A reduction without a schedule of its own.
    pub(super) fn emit_reduce(&mut self, root: StageId, inner: StageId) -> Stmt {
        let Some(reduction) = Reduction::of(self, inner) else { return Stmt::nop() };
        self.emit_reduction(root, &reduction)
    }

    pub(super) fn emit_reduction(&mut self, root: StageId, reduction: &Reduction) -> Stmt {
        if let Some(stmt) = self.reduce_neighbours(root, reduction) {
            return stmt;
        }
        if let Some(stmt) = self.reduce_across(root, reduction) {
            return stmt;
        }
        if let Some(stmt) = self.reduce_along(root, reduction, None) {
            return stmt;
        }
        if let Some(by_blocks) = reduction.by_blocks(self)
            && let Some(stmt) = self.reduce_along(root, &by_blocks, None)
        {
            return stmt;
        }
        if let Some(stmt) = self.reduce_in_blocks(root, reduction) {
            return stmt;
        }
        if let Some(stmt) = self.reduce_first(root, reduction) {
            return stmt;
        }
        let build = &mut |emitter: &mut Emitter, nest: &Nest| {
            emitter.reduce_lanes(std::slice::from_ref(nest), root, reduction, 1)
        };
        self.cover_in_scalars(root, build)
    }

    /// The reduction is stored in vectors, and what is made of it, which has other loops, reads it.
    fn reduce_first(&mut self, root: StageId, reduction: &Reduction) -> Option<Stmt> {
        let stage = reduction.stage;
        if root == stage || !self.rows.is_empty() || self.dag.shape(root) != self.dag.shape(stage) {
            return None;
        }
        let spec = self.func.buffers[self.materialised[&root]].spec.clone();
        let buffer = self.func.buffer("reduced", reduction.dtype, spec, BufferScope::Local);
        self.materialised.insert(stage, buffer);
        let Some(first) = self.reduce_across(stage, reduction) else {
            self.materialised.remove(&stage);
            return None;
        };
        self.scratch.push(buffer);
        Some(Stmt::seq([first, self.emit_compute(root, false)]))
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
        // Long rows of the result are sums enough; of short ones, each element has several. Two parts of
        // a row are many if they may overlap.
        let least = if reduction.repeats { ACROSS / 2 } else { ACROSS };
        let is_long = inner >= least && steps > 1 && reduction.dtype.bits() == 32;
        // NaNs take as many registers again.
        let has_few = reduction.keeps_nan() && self.machine.registers < 32;
        let mut across = if has_few || inner < ACROSS { ACROSS / 2 } else { ACROSS };
        if reduction.lines.is_some() {
            // As many vectors as rows, or a few less.
            let vectors = i64::from(self.machine.registers / 8);
            across = across.min(vectors * reduction.lanes(self.machine));
        }
        let wide: Vec<i64> = match is_long {
            true => {
                let halves = [across, across / 2].into_iter().filter(|&width| width > widths[0]);
                halves.chain(widths.iter().copied()).collect()
            }
            false => widths.clone(),
        };
        let split = if steps >= MIN_SPLIT_STEPS && last >= GROUPS { GROUPS } else { 1 };
        for (widths, split) in
            [(&wide, 1), (&widths, split)].into_iter().skip(usize::from(!is_long))
        {
            let runs = match reduction.repeats {
                true => Nest::overlapping(inner, widths),
                false => Nest::runs(&[(0, inner)], widths),
            };
            if let Some(stmt) = self.reduce_runs(root, reduction, &extent, &runs, split) {
                return Some(stmt);
            }
        }
        let probe = self.element_of(&extent, &mut |emitter, index| {
            let vars = emitter.fresh(&reduction.axes);
            let by: Vec<PrimExpr> =
                vars.iter().map(|axis| emitter.func.var_expr(axis.var)).collect();
            let acc = emitter.func.register("acc", reduction.dtype, &[1]);
            let step = Step { into: acc, at: 0, combine: false, nans: None };
            let value = emitter.func.load(acc, [PrimExpr::index(0)]);
            let store = emitter.store_element(root, Some((reduction.stage, value)), index);
            Stmt::seq([emitter.reduction_step(reduction, index, &by, &0.into(), step, None), store])
        });
        let split = if is_long { 1 } else { split };
        self.cover_pieces(&spec, &wide, &probe, &mut |emitter, nest| {
            emitter.reduce_lanes(std::slice::from_ref(nest), root, reduction, split)
        })
    }

    /// Nests for runs of the innermost dimension, which several rows of the result share if sums would
    /// wait for one another.
    fn reduce_runs(
        &mut self,
        root: StageId,
        reduction: &Reduction,
        spec: &BufferSpec,
        runs: &[Run],
        split: i64,
    ) -> Option<Stmt> {
        let inner = innermost(spec)?;
        let lanes = runs.iter().map(|run| run.lanes).max()?;
        let vectors = (lanes / reduction.lanes(self.machine)).max(1) * split;
        let side_by_side = match reduction.lines {
            Some(_) => self.sums_of_lines(reduction, vectors),
            None => SIDE_BY_SIDE,
        };
        let most = side_by_side / vectors / if reduction.keeps_nan() { 2 } else { 1 };
        let physical = spec.physical_shape();
        let outer = (0..inner).rev().find(|&position| physical[position] > 1);
        let outer = outer.map(|position| spec.dims()[position]).filter(|dim| {
            let is_open = self.dag.limits(root).iter().any(|limit| limit.axis == dim.axis);
            let is_whole = spec.dims().iter().all(|other| other.axis != dim.axis || other == dim);
            dim.step == 1 && is_whole && !is_open && most > 1
        });
        let Some(axis) = outer.map(|dim| dim.axis) else {
            return self.cover_runs(spec, runs, &mut |emitter, nest| {
                emitter.reduce_lanes(std::slice::from_ref(nest), root, reduction, split)
            });
        };
        let extent = spec.shape()[axis];
        let rows = (extent + most - 1) / most;
        let rows = (extent + rows - 1) / rows;
        let (whole, rest) = (extent / rows, extent % rows);
        let dims: Vec<(usize, i64)> = spec.dims().iter().map(|dim| (dim.axis, dim.step)).collect();
        let mut parts = Vec::new();
        for (first, count, rows) in [(0, whole, rows), (whole * rows, 1, rest)] {
            if rows == 0 {
                continue;
            }
            let mut shape = spec.shape().to_vec();
            shape[axis] = count;
            let part = BufferSpec::packed(&shape, &dims);
            parts.push(self.cover_runs(&part, runs, &mut |emitter, nest| {
                let row = |row| nest.with_index(axis, |index| index * rows + (first + row));
                let nests: Vec<Nest> = (0..rows).map(row).collect();
                emitter.reduce_lanes(&nests, root, reduction, split)
            })?);
        }
        Some(Stmt::seq(parts))
    }

    /// How many vectors of sums stay in registers where rows share lines of `vectors` vectors: a factor of
    /// each line of the kernel stays as well.
    fn sums_of_lines(&self, reduction: &Reduction, vectors: i64) -> i64 {
        let registers = i64::from(self.machine.registers);
        let factors = match reduction.axes.as_slice() {
            [_, down, _] => down.extent,
            _ => 1,
        };
        (registers - factors - vectors).clamp(registers / 2, registers * 3 / 4)
    }

    /// All lanes of nests, each with `split` partial sums along the last reduced axis.
    #[inline(never)]
    fn reduce_lanes(
        &mut self,
        nests: &[Nest],
        root: StageId,
        reduction: &Reduction,
        split: i64,
    ) -> Option<Stmt> {
        let lanes = nests.first()?.lane.map_or(1, |lane| lane.1);
        let places = |count: i64| count * lanes * nests.len() as i64;
        let acc = self.func.register("acc", reduction.dtype, &[places(split)]);
        let nans = reduction
            .keeps_nan()
            .then(|| self.func.register("nans", reduction.dtype, &[places(1)]));
        // Each row has its sums side by side.
        let rows: Vec<(&Nest, i64)> = nests.iter().zip(0..).collect();
        let sum = |row: i64, part: i64| (row * split + part) * lanes;
        let mut first = Vec::new();
        for &(nest, row) in &rows {
            let sums = (0..split).map(|part| (acc, sum(row, part), reduction.init()));
            let zeros = nans.map(|nans| (nans, row * lanes, PrimExpr::zero(reduction.dtype)));
            for (into, at, value) in sums.chain(zeros) {
                first.push(self.lane_stmt(nest, |emitter, _, lane| {
                    emitter.func.store(into, [lane + at], value)
                })?);
            }
        }
        let vars = self.fresh(&reduction.axes);
        let places: Vec<PrimExpr> = vars.iter().map(|axis| self.func.var_expr(axis.var)).collect();
        let step_of = |emitter: &mut Emitter, row: i64, by: &[PrimExpr], part: i64| {
            emitter.lane_stmt(&nests[row as usize], |emitter, index, lane| {
                let nans = nans.map(|nans| (nans, row * lanes));
                let step = Step { into: acc, at: sum(row, part), combine: true, nans };
                emitter.reduction_step(reduction, index, by, &lane, step, None)
            })
        };
        let step = |emitter: &mut Emitter, last: Option<PrimExpr>, part: i64| {
            let mut by = places.clone();
            if let (Some(last), Some(place)) = (last, by.last_mut()) {
                *place = last;
            }
            let steps = rows.iter().map(|&(_, row)| step_of(emitter, row, &by, part));
            Some(Stmt::seq(steps.collect::<Option<Vec<_>>>()?))
        };
        let outermost = vars.len().saturating_sub(1);
        let by_lines = reduction.lines.is_some() && split == 1;
        let loops = match vars.last() {
            Some(along)
                if let Some([stride, dilation]) = reduction.lines
                    && split == 1 =>
            {
                // A line of the image for all rows that read it, at one tap after the other.
                let taps = (0..vars[outermost - 1].extent)
                    .flat_map(|tap| rows.iter().map(move |&(_, row)| (tap, row)));
                let mut taps: Vec<(i64, i64)> = taps.collect();
                taps.sort_by_key(|&(tap, row)| row * stride + tap * dilation);
                let mut by = places.clone();
                let steps = taps.into_iter().map(|(tap, row)| {
                    by[outermost - 1] = tap.into();
                    step_of(self, row, &by, 0)
                });
                let steps = Stmt::seq(steps.collect::<Option<Vec<_>>>()?);
                in_run(steps, (along.var, reduction.extent(outermost)))
            }
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
        let around = if by_lines { &vars[..outermost] } else { &vars };
        let loops = reduction.in_outer(around, loops);
        let mut fold = Vec::new();
        for &(nest, row) in &rows {
            let mut parts = split;
            while parts > 1 {
                parts /= 2;
                for part in 0..parts {
                    fold.push(self.lane_stmt(nest, |emitter, _, lane| {
                        let at = lane.clone() + sum(row, part);
                        let low = emitter.func.load(acc, [at.clone()]);
                        let high = emitter.func.load(acc, [lane + sum(row, part + parts)]);
                        emitter.func.store(acc, [at], reduction.combined(low, high))
                    })?);
                }
            }
            fold.push(self.lane_stmt(nest, |emitter, index, lane| {
                let mut value = emitter.func.load(acc, [lane.clone() + sum(row, 0)]);
                if let Some(nans) = nans {
                    value = last_nan(emitter.func.load(nans, [lane + row * lanes]), value);
                }
                emitter.store_element(root, Some((reduction.stage, value)), index)
            })?);
        }
        let stmts = first.into_iter().chain([loops]).chain(fold);
        let stmt = Stmt::allocate(acc, Stmt::seq(stmts));
        Some(nans.into_iter().fold(stmt, |stmt, nans| Stmt::allocate(nans, stmt)))
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
        let put = |func: &mut PrimFuncData, value: PrimExpr| {
            if !step.combine {
                return func.store(step.into, [at.clone()], value);
            }
            let sum = func.load(step.into, [at.clone()]);
            if let Some((nans, first)) = step.nans {
                let nan_at = lane.clone() + first;
                // Of a NaN and a number, the right operand is the extreme.
                return func.let_stmt("value", value, |func, value| {
                    let nan = last_nan(value.clone(), func.load(nans, [nan_at.clone()]));
                    let extreme = PrimExpr::binary(reduction.combiner, value, sum);
                    Stmt::seq([
                        func.store(nans, [nan_at], nan),
                        func.store(step.into, [at.clone()], extreme),
                    ])
                });
            }
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
