//! Reductions along the innermost reduced axis: the lanes are its elements.

use super::super::emit::Emitter;
use super::super::nest::{Nest, coefficient, in_run};
use super::{GROUPS, GROUPS_OF_CALLS, LANES_IN_A_VECTOR, Reduction, Step, last_nan};
use crate::ir::DType;
use crate::te::{ReduceAxis, StageId};
use crate::tir::{BufferId, ForKind, PrimExpr, PrimFuncData, Stmt, VarId};

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
    /// NaNs that were passed over, if they matter: one for each element of a group.
    nans: Option<BufferId>,
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

impl Emitter {
    /// Whether the reduction can go along its last axis in vectors.
    pub(in crate::strategy) fn goes_along(&mut self, reduction: &Reduction) -> bool {
        let index: Vec<PrimExpr> = (self.dag.stages[reduction.stage].axes.iter())
            .map(|&var| self.func.var_expr(var))
            .collect();
        let Some((_, group)) = reduction.group() else { return false };
        let into = self.func.register("acc", reduction.dtype, &[group]);
        let vars = self.fresh(&reduction.axes);
        let step = Step { into, at: 0, combine: true, nans: None };
        let row = Row { reduction, index: &index, vars: &vars, kept: None };
        self.step_along(&row, 0.into(), group, step).is_some()
    }

    /// The lanes are elements along the last reduced axis. A stage that is `kept` is stored on the
    /// way.
    pub(in crate::strategy) fn reduce_along(
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
        let set = Step { into: tail, at: 0, combine: false, nans: None };
        let from = PrimExpr::index(extent - group);
        let fill = self.step_along(&row, from, group, set)?;
        let mut groups = if has_call(&fill) { GROUPS_OF_CALLS } else { GROUPS };
        while groups * group > extent {
            groups /= 2;
        }
        let wide = groups * group;
        let acc = self.func.register("acc", reduction.dtype, &[wide]);
        let lanes = reduction.lanes(self.machine).min(group);
        let keeps_nan = reduction.keeps_nan();
        let nans = keeps_nan.then(|| self.func.register("nans", reduction.dtype, &[group]));
        let sums = Sums { acc, nans, tail, extent, group, wide, lanes };

        let zeros = nans.map(|nans| (nans, group, PrimExpr::zero(reduction.dtype)));
        let first = [(acc, wide, reduction.init())].into_iter().chain(zeros);
        let first: Vec<Stmt> = first
            .map(|(into, count, value)| {
                self.func.for_("l", count, ForKind::Vectorized, |func, lane| {
                    func.store(into, [lane], value)
                })
            })
            .collect();
        let limit = reduction.limits.last().cloned().flatten();
        let count = match &limit {
            None => PrimExpr::index(extent / wide),
            Some(limit) => limit.clone().floordiv(wide),
        };
        let (chunk, var) = self.counter("r", extent / wide);
        let part = if keeps_nan { group } else { wide };
        let body = (0..wide / part).map(|number| {
            let at = number * part;
            let step = Step { into: acc, at, combine: true, nans: nans.map(|nans| (nans, 0)) };
            self.step_along(&row, chunk.clone() * wide + at, part, step)
        });
        let body = Stmt::seq(body.collect::<Option<Vec<_>>>()?);
        let chunks = if count.is_const(1) { body } else { in_run(body, (var, count.clone())) };
        let rest = match limit {
            None => self.rest_of_row(&row, &sums, fill)?,
            Some(limit) => self.rest_of_run(&row, &sums, count * wide, limit)?,
        };
        let loops = reduction.in_outer(vars, Stmt::seq([chunks, rest]));
        let (names, value) = self.horizontal(reduction, &sums);
        let last = self.store_element(root, Some((reduction.stage, value)), index);
        let last =
            names.into_iter().rev().fold(last, |body, (var, value)| Stmt::let_(var, value, body));
        let stmt = Stmt::seq(first.into_iter().chain([loops, last]));
        Some(nans.into_iter().chain([acc]).fold(stmt, |stmt, sums| Stmt::allocate(sums, stmt)))
    }

    /// What is behind the whole chunks of a row. `fill` puts the last group of the row in `tail`.
    fn rest_of_row(&mut self, row: &Row<'_>, sums: &Sums, fill: Stmt) -> Option<Stmt> {
        let &Sums { acc, nans, tail, extent, group, wide, .. } = sums;
        let (full, rest) = (extent / wide * wide, extent % wide);
        let mut stmts = Vec::new();
        for part in 0..rest / group {
            let at = part * group;
            let step = Step { into: acc, at, combine: true, nans: nans.map(|nans| (nans, 0)) };
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
        let set = Step { into: tail, at: 0, combine: false, nans: None };
        let fill = self.step_along(row, start.clone(), group, set)?;
        let counter = DType::counter(row.reduction.dtype.bits());
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
        &Sums { acc, nans, group, wide, lanes, .. }: &Sums,
    ) -> (Vec<(VarId, PrimExpr)>, PrimExpr) {
        let mut names = Vec::new();
        let mut bind = |func: &mut PrimFuncData, value: PrimExpr| {
            let var = func.var("sum", value.ty());
            names.push((var, value));
            func.var_expr(var)
        };
        let mut parts = Vec::new();
        for part in 0..wide / lanes {
            let mut value = self.func.load(acc, [ramp(part * lanes, lanes)]);
            if let Some(nans) = nans.filter(|_| part * lanes < group) {
                value = last_nan(self.func.load(nans, [ramp(part * lanes, lanes)]), value);
            }
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
            // A cast of places that are equally far apart is one of the first.
            PrimExpr::Cast { value, dtype }
                if coefficient(value, lane).is_some_and(|by| by != 0) =>
            {
                *bits = (*bits).max(dtype.bits());
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
