//! The choice of loops that several threads share.

mod cost;
mod independence;
mod rows;

use std::collections::{BTreeMap, BTreeSet};

use crate::ir::IRModule;
use crate::pass::{PassContext, prim_func_pass};
use crate::strategy::Machine;
use crate::tir::{
    Bounds, BufferId, BufferScope, ForKind, PrimExpr, PrimFunc, PrimFuncData, Range, Stmt, VarId,
};
use cost::{Costs, Site};
use independence::{conflicts, is_written_first};
use rows::Rows;

crate::register_pass_config_option! {
    /// Most threads that share the loops of a kernel; with one, no loop becomes parallel.
    pub PARALLEL_THREADS: u64 = "tir.parallel_threads", default = 1;
}

crate::register_pass_config_option! {
    /// Fewest cycles of the share of a thread for which a loop becomes parallel.
    ///
    /// The default is about 2 µs: to hand over a loop and to wait for its end take up to half of
    /// that when the threads are awake.
    pub PARALLEL_MIN_SHARE: u64 = "tir.parallel_min_share", default = 6000;
}

/// Annotates a loop whose iterations may run at the same time, as whoever made it knows: what
/// [`Schedule::independent`](crate::schedule::Schedule::independent) leaves.
pub const INDEPENDENT_LOOP: &str = "pragma_loop_independent";

/// Says why no loop of a function is parallel although sharing its work would pay.
pub const PARALLEL_MISSED_ATTR: &str = "tir.parallel_missed";

/// The part of the least share that it takes to begin a parallel loop and to wait for its end.
const FORK: f64 = 1.0 / 3.0;

/// The part of the least share that one iteration should be, if shares are of several: a pool
/// divides a share in four.
const ITERATION: f64 = 1.0 / 4.0;

/// How much faster a plan with several parallel loops has to be than one with a single loop around
/// them: what one of them has stored the next one reads from the caches of other cores.
const SEVERAL_GAIN: f64 = 1.2;

/// How much faster it has to be to make more of a nest one loop.
const FUSED_GAIN: f64 = 1.05;

/// How much slower a loop may be that is divided by rows.
const ROWS_LOSS: f64 = 1.05;

/// Makes loops parallel whose iterations are independent, where sharing their work pays.
///
/// `tir.parallel_threads` says among how many threads, `tir.parallel_min_share` what pays. That
/// iterations are independent is proved, or the loop is annotated with [`INDEPENDENT_LOOP`].
/// A loop that is chosen has no parallel loop around it. One over channels is divided by rows of their
/// image, if the image is what it mostly reads and stores. Loops that are perfectly nested become one
/// if that divides the work better. A local buffer that each iteration fills before it reads it
/// becomes each thread's own. Reductions are never divided: the results are the same for any
/// number of threads.
#[prim_func_pass(opt_level = 0, name = "tir.ParallelizeLoops", crate = crate)]
pub fn parallelize_loops(mut func: PrimFunc, _module: &IRModule, cx: &PassContext) -> PrimFunc {
    let threads = cx.get(&PARALLEL_THREADS);
    // What a schedule has chosen stands.
    if threads <= 1 || func.has_parallel_loops() {
        return func;
    }
    let threads = i64::try_from(threads).unwrap_or(i64::MAX);
    let min_share = cx.get(&PARALLEL_MIN_SHARE).max(1) as f64;
    let costs = Costs::of(&func, Machine::of(cx.target()));
    let planner = Planner { func: &func, costs, threads, min_share };
    let plan = planner.stmt(&func.body, &Bounds::new(), &Site::default());
    let chosen: BTreeMap<usize, Chosen> = (plan.loops.into_iter())
        .map(|chosen| (std::ptr::from_ref(chosen.head).addr(), chosen))
        .collect();
    let mut data = PrimFuncData::clone(&func);
    match plan.missed {
        Some(why) if chosen.is_empty() => {
            data.attrs.insert(PARALLEL_MISSED_ATTR.to_owned(), why);
        }
        _ if chosen.is_empty() => return func,
        _ => {
            let body = Rewrite { func: &mut data, chosen: &chosen }.stmt(&func.body);
            data.body = without_unused(body);
        }
    }
    func = PrimFunc::new(data);
    func
}

/// A loop that becomes parallel.
struct Chosen<'a> {
    head: &'a Stmt,
    /// How many loops become one: the head and those perfectly nested in it.
    depth: usize,
    /// How many iterations make one of the parallel loop; a divisor of their number.
    grain: i64,
    /// Buffers that each iteration gets for itself.
    private: BTreeSet<BufferId>,
    /// Loops in the head whose iterations are divided instead of its own.
    rows: Option<Rows>,
}

/// What a statement takes, and the parallel loops in it.
struct Plan<'a> {
    /// Cycles on one thread.
    serial: f64,
    /// Cycles with the parallel loops.
    best: f64,
    loops: Vec<Chosen<'a>>,
    /// Why a loop whose work is worth it cannot be divided.
    missed: Option<String>,
}

struct Planner<'a> {
    func: &'a PrimFuncData,
    costs: Costs<'a>,
    threads: i64,
    /// Fewest cycles of a thread's share.
    min_share: f64,
}

/// A loop of a nest.
#[derive(Clone, Copy)]
struct Level<'a> {
    /// Variable, first value and number of iterations.
    own: (VarId, i64, i64),
    body: &'a Stmt,
    /// Whether its iterations are known to be independent.
    independent: bool,
}

/// The loops that are perfectly nested in a loop, itself first.
fn nest(mut stmt: &Stmt) -> Vec<Level<'_>> {
    let mut loops = Vec::new();
    loop {
        while let Stmt::Block { body, .. } = stmt {
            stmt = body;
        }
        let Stmt::For { var, min, extent, kind: ForKind::Serial, annotations, body } = stmt else {
            return loops;
        };
        let (Some(min), Some(count)) = (min.as_int(), extent.as_int().filter(|count| *count > 0))
        else {
            return loops;
        };
        let independent = annotations.contains_key(INDEPENDENT_LOOP);
        if annotations.len() > usize::from(independent) {
            return loops;
        }
        loops.push(Level { own: (*var, min, count), body, independent });
        stmt = body;
    }
}

impl<'a> Planner<'a> {
    /// The best plan for a statement.
    fn stmt(&self, stmt: &'a Stmt, bounds: &Bounds, site: &Site) -> Plan<'a> {
        let own = self.costs.of_own(stmt, site);
        let mut plan = Plan { serial: own, best: own, loops: Vec::new(), missed: None };
        let Stmt::For { var, min, extent, kind, annotations: _, body } = stmt else {
            let inside = match stmt {
                Stmt::Let { var, value, .. } => Some(site.with(*var, value)),
                _ => None,
            };
            stmt.for_each_child(&mut |child| {
                let inner = self.stmt(child, bounds, inside.as_ref().unwrap_or(site));
                plan.serial += inner.serial;
                plan.best += inner.best;
                plan.loops.extend(inner.loops);
                plan.missed = plan.missed.take().or(inner.missed);
            });
            return plan;
        };
        let count = extent.as_int().unwrap_or(1).max(0);
        let mut inside = bounds.clone();
        inside.remove(var);
        if let Some(min) = min.as_int().filter(|_| count > 0) {
            inside.insert(*var, Range { min, max: min.saturating_add(count - 1) });
        }
        let inner = self.stmt(body, &inside, &site.inside(*var, *kind, count));
        if *kind == ForKind::Vectorized {
            return Plan { best: inner.serial, loops: Vec::new(), ..inner };
        }
        let counter = if *kind == ForKind::Unrolled { 0.0 } else { cost::PER_ITERATION };
        plan.serial = count as f64 * (inner.serial + counter);
        plan.best = count as f64 * (inner.best + counter);
        plan.loops = inner.loops;
        plan.missed = inner.missed;
        if plan.serial < 2.0 * self.min_share {
            return plan;
        }
        match self.divided(stmt, plan.serial, bounds) {
            Some((time, chosen)) if time < plan.best * SEVERAL_GAIN => {
                plan.best = time;
                plan.loops = vec![chosen];
            }
            Some(_) => {}
            None => plan.missed = Some(self.why_not(stmt, bounds)),
        }
        plan
    }

    /// The best way to make a loop parallel, with those perfectly nested in it, and the cycles.
    fn divided(&self, head: &'a Stmt, serial: f64, bounds: &Bounds) -> Option<(f64, Chosen<'a>)> {
        // Blocks are around loops, not the heads of nests.
        matches!(head, Stmt::For { .. }).then_some(())?;
        let workers = ((serial / self.min_share) as i64).clamp(2, self.threads);
        let mut best: Option<(f64, Chosen<'a>)> = None;
        let mut inside = bounds.clone();
        let mut shared: BTreeSet<BufferId> = BTreeSet::new();
        let mut iterations = 1i64;
        for (depth, Level { own, body, independent }) in nest(head).into_iter().enumerate() {
            let (var, min, count) = own;
            if count > 1 && !independent {
                let Some(found) = conflicts(self.func, own, body, &inside) else { break };
                shared.extend(found);
            }
            inside.insert(var, Range { min, max: min.saturating_add(count - 1) });
            iterations = iterations.saturating_mul(count);
            if iterations == 1
                || !shared.iter().all(|&b| self.may_be_private(b, head, body, &inside))
            {
                continue;
            }
            let each = serial / iterations as f64;
            let rounds = (iterations + workers - 1) / workers;
            let time = FORK * self.min_share + rounds as f64 * each;
            if best.as_ref().is_none_or(|(least, _)| time * FUSED_GAIN < *least) {
                let private = shared.clone();
                let grain = self.grain(iterations, each, workers);
                best = Some((time, Chosen { head, depth: depth + 1, grain, private, rows: None }));
            }
        }
        let by_rows = self.by_rows(head, serial, bounds);
        by_rows
            .filter(|(time, _)| best.as_ref().is_none_or(|(least, _)| *time < least * ROWS_LOSS))
            .or(best)
    }

    /// A loop over channels that is divided by rows of their image, and the cycles.
    fn by_rows(&self, head: &'a Stmt, serial: f64, bounds: &Bounds) -> Option<(f64, Chosen<'a>)> {
        let rows = Rows::of(head, self.threads)?;
        rows.are_of_channels(self.func, head, self.threads).then_some(())?;
        let (row, body) = rows.of_one(self.func, head)?;
        let private = conflicts(self.func, (row, rows.min, rows.count), &body, bounds)?;
        let mut inside = bounds.clone();
        let max = rows.min.saturating_add(rows.count - 1);
        inside.insert(row, Range { min: rows.min, max });
        if !private.iter().all(|&buffer| self.may_be_private(buffer, head, &body, &inside)) {
            return None;
        }
        let workers = ((serial / self.min_share) as i64).clamp(2, self.threads);
        let share = rows.of_thread(workers) as f64 / rows.count as f64;
        let time = FORK * self.min_share + serial * share;
        Some((time, Chosen { head, depth: 1, grain: 1, private, rows: Some(rows) }))
    }

    /// How many iterations should be done at once: threads beyond those that the work is enough for
    /// find none.
    fn grain(&self, iterations: i64, each: f64, workers: i64) -> i64 {
        if workers == self.threads {
            return 1;
        }
        let most = ((ITERATION * self.min_share / each) as i64).min(iterations / (4 * workers));
        (1..=most).rev().find(|grain| iterations % grain == 0).unwrap_or(1)
    }

    /// Whether each run of a loop's body can have a buffer of its own.
    fn may_be_private(&self, buffer: BufferId, head: &Stmt, body: &Stmt, inside: &Bounds) -> bool {
        if self.func.buffers[buffer].scope != BufferScope::Local {
            return false;
        }
        // Whoever reads the buffer elsewhere does not read what the loop has stored.
        is_written_first(body, buffer, inside, None)
            && is_written_first(&self.func.body, buffer, &Bounds::new(), Some(head))
    }

    /// Why a loop cannot be divided.
    fn why_not(&self, head: &Stmt, bounds: &Bounds) -> String {
        let Some(&Level { own, body, .. }) = nest(head).first() else {
            return "a loop has no constant bounds".to_owned();
        };
        let name = &self.func.vars[own.0].name;
        let shared = conflicts(self.func, own, body, bounds);
        match shared.as_ref().map(BTreeSet::first) {
            None => format!("iterations over `{name}` share registers"),
            Some(None) => format!("there is one iteration over `{name}`"),
            Some(Some(&buffer)) => {
                let buffer = &self.func.buffers[buffer].name;
                format!("iterations over `{name}` may share elements of `{buffer}`")
            }
        }
    }
}

struct Rewrite<'a> {
    func: &'a mut PrimFuncData,
    /// By the address of the loop.
    chosen: &'a BTreeMap<usize, Chosen<'a>>,
}

impl Rewrite<'_> {
    fn stmt(&mut self, stmt: &Stmt) -> Stmt {
        if let Some(chosen) = self.chosen.get(&std::ptr::from_ref(stmt).addr()) {
            return self.parallel(chosen);
        }
        match stmt {
            Stmt::Store { .. } | Stmt::Prefetch { .. } | Stmt::Assert { .. } => stmt.clone(),
            Stmt::Seq(stmts) => Stmt::Seq(stmts.iter().map(|stmt| self.stmt(stmt)).collect()),
            Stmt::Block { name, body } => Stmt::block(name.clone(), self.stmt(body)),
            Stmt::For { var, min, extent, kind, annotations, body } => Stmt::For {
                var: *var,
                min: min.clone(),
                extent: extent.clone(),
                kind: *kind,
                annotations: annotations.clone(),
                body: Box::new(self.stmt(body)),
            },
            Stmt::Let { var, value, body } => Stmt::let_(*var, value.clone(), self.stmt(body)),
            Stmt::If { cond, then, otherwise } => Stmt::If {
                cond: cond.clone(),
                then: Box::new(self.stmt(then)),
                otherwise: otherwise.as_ref().map(|stmt| Box::new(self.stmt(stmt))),
            },
            Stmt::Allocate { buffer, body } => Stmt::allocate(*buffer, self.stmt(body)),
            // None is chosen in what is not lowered.
            Stmt::BlockRealize(_) => stmt.clone(),
        }
    }

    /// A statement that has buffers of its own in the place of some.
    fn with_own(&mut self, body: Stmt, private: &BTreeSet<BufferId>) -> Stmt {
        private.iter().fold(body, |body, &buffer| {
            let own = self.func.buffers.push(self.func.buffers[buffer].clone());
            Stmt::allocate(own, renamed(body, buffer, own))
        })
    }

    fn parallel(&mut self, chosen: &Chosen<'_>) -> Stmt {
        if let Some(rows) = &chosen.rows {
            let part = self.func.index_var("rows");
            let body = rows.of_part(chosen.head, &self.func.var_expr(part));
            let body = self.with_own(body, &chosen.private);
            let [first, parts] = [0, rows.parts()].map(PrimExpr::index);
            return Stmt::for_loop(part, first, parts, ForKind::Parallel, body);
        }
        let loops = &nest(chosen.head)[..chosen.depth];
        let body = loops.last().map_or_else(Stmt::nop, |level| level.body.clone());
        let mut body = self.with_own(body, &chosen.private);
        // Loops of one iteration are none.
        let (wide, narrow): (Vec<_>, Vec<_>) =
            loops.iter().map(|level| level.own).partition(|(_, _, count)| *count > 1);
        let count: i64 = wide.iter().map(|(_, _, count)| count).product();
        for (var, min, _) in narrow {
            body = Stmt::let_(var, PrimExpr::index(min), body);
        }
        let (var, min) = match wide[..] {
            [(var, min, _)] => (var, min),
            _ => {
                let names: Vec<&str> =
                    wide.iter().map(|(var, _, _)| self.func.vars[*var].name.as_str()).collect();
                let fused = self.func.index_var(names.join("_"));
                let mut rest = self.func.var_expr(fused);
                for (position, (var, min, count)) in wide.iter().enumerate().rev() {
                    let digit = match position {
                        0 => rest.clone(),
                        _ => rest.clone().floormod(*count),
                    };
                    rest = rest.floordiv(*count);
                    body = Stmt::let_(*var, digit + *min, body);
                }
                (fused, 0)
            }
        };
        let kind = ForKind::Parallel;
        let bound = PrimExpr::index;
        if chosen.grain == 1 {
            return Stmt::for_loop(var, bound(min), bound(count), kind, body);
        }
        let chunk = self.func.index_var(format!("{}_chunk", self.func.vars[var].name));
        let first = self.func.var_expr(chunk) * chosen.grain + min;
        let inner = Stmt::for_loop(var, first, bound(chosen.grain), ForKind::Serial, body);
        Stmt::for_loop(chunk, bound(0), bound(count / chosen.grain), kind, inner)
    }
}

/// A statement with one buffer in place of another.
fn renamed(stmt: Stmt, from: BufferId, to: BufferId) -> Stmt {
    let stmt = stmt.map_exprs(&mut |expr| {
        expr.rewrite(&mut |expr| match expr {
            PrimExpr::Load { buffer, dtype, indices } if buffer == from => {
                PrimExpr::Load { buffer: to, dtype, indices }
            }
            other => other,
        })
    });
    stmt.rewrite(&mut |mut stmt| {
        if let Stmt::Store { buffer, .. } | Stmt::Prefetch { buffer, .. } = &mut stmt
            && *buffer == from
        {
            *buffer = to;
        }
        stmt
    })
}

/// A statement without the buffers that nothing uses any more.
fn without_unused(stmt: Stmt) -> Stmt {
    stmt.rewrite(&mut |stmt| match stmt {
        Stmt::Allocate { buffer, body } if !body.touches(buffer) => *body,
        other => other,
    })
}

#[cfg(test)]
mod tests;
