//! The times at which the contents of local buffers are needed.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::tir::affine::Affine;
use crate::tir::{BufferId, BufferScope, ForKind, PrimExpr, PrimFuncData, Stmt, VarId};

/// Moments are counted in the order of the text.
type Moments = RangeInclusive<usize>;

/// A loop with its moments.
struct Loop {
    var: VarId,
    /// The extent, if it is constant.
    extent: Option<i64>,
    kind: ForKind,
    moments: Moments,
    /// The loop around it.
    outer: Option<usize>,
}

/// An access of a local buffer.
struct Access<'a> {
    /// The same for all accesses of one statement.
    moment: usize,
    /// The loop around it.
    within: Option<usize>,
    is_store: bool,
    indices: &'a [PrimExpr],
}

/// The `Allocate` of a buffer, with the accesses of the buffer.
struct Lifetime<'a> {
    scope: Moments,
    within: Option<usize>,
    accesses: Vec<Access<'a>>,
}

/// The lifetimes of all local buffers that are allocated in one place.
pub(super) struct Lifetimes<'a> {
    loops: Vec<Loop>,
    lifetimes: BTreeMap<BufferId, Lifetime<'a>>,
    /// In the order of their `Allocate`s.
    order: Vec<BufferId>,
}

impl<'a> Lifetimes<'a> {
    pub(super) fn of(func: &'a PrimFuncData) -> Self {
        let lifetimes =
            Lifetimes { loops: Vec::new(), lifetimes: BTreeMap::new(), order: Vec::new() };
        let mut walk = Walk { func, moment: 0, within: None, twice: Vec::new(), lifetimes };
        walk.stmt(&func.body);
        let mut lifetimes = walk.lifetimes;
        for buffer in walk.twice {
            lifetimes.lifetimes.remove(&buffer);
            lifetimes.order.retain(|other| *other != buffer);
        }
        lifetimes
    }

    /// The buffers in the order of their `Allocate`s.
    pub(super) fn buffers(&self) -> &[BufferId] {
        &self.order
    }

    /// Whether a buffer can be part of another one: the other one exists wherever it does, and both
    /// are shared by all workers or by none.
    pub(super) fn is_within(&self, inner: BufferId, outer: BufferId) -> bool {
        let (inner, outer) = (&self.lifetimes[&inner], &self.lifetimes[&outer]);
        outer.scope.start() < inner.scope.start()
            && inner.scope.end() <= outer.scope.end()
            && !self.loops_inside(inner.within, outer).any(|it| it.kind == ForKind::Parallel)
    }

    /// Whether two buffers are never needed at the same time while `owner` exists.
    pub(super) fn are_apart(&self, a: BufferId, b: BufferId, owner: BufferId) -> bool {
        match (self.needed(a, owner), self.needed(b, owner)) {
            (Some(a), Some(b)) => a.end() < b.start() || b.end() < a.start(),
            // One buffer is never accessed.
            _ => true,
        }
    }

    /// Whether `to` is first needed where `from` is last needed, by a statement that computes each
    /// element of `to` from the element of `from` at the same index.
    pub(super) fn is_elementwise(&self, from: BufferId, to: BufferId, owner: BufferId) -> bool {
        let (Some(first), Some(second)) = (self.needed(from, owner), self.needed(to, owner)) else {
            return false;
        };
        if first.start() >= second.start() || first.end() >= second.end() {
            return false;
        }
        let both = *second.start()..=*first.end();
        let of = |buffer: BufferId| {
            let accesses = &self.lifetimes[&buffer].accesses;
            accesses.iter().filter(|access| both.contains(&access.moment))
        };
        let mut stores = of(to);
        let (Some(store), None) = (stores.next(), stores.next()) else { return false };
        store.is_store
            && of(from).all(|load| {
                !load.is_store && load.moment == store.moment && load.indices == store.indices
            })
            && self.visits_once(store, &self.lifetimes[&owner])
    }

    /// Whether an access within `owner` never has the same index in two iterations.
    fn visits_once(&self, access: &Access<'_>, owner: &Lifetime<'_>) -> bool {
        let [index] = access.indices else { return false };
        // Pairs of distance between iterations and number of iterations: a mixed-radix number has
        // no value twice.
        let mut digits: Vec<(u64, u64)> = Vec::new();
        let base = match index {
            PrimExpr::Ramp { base, stride, lanes } => {
                let Some(stride) = stride.as_int() else { return false };
                digits.push((stride.unsigned_abs(), u64::from(*lanes)));
                base
            }
            index => index,
        };
        let affine = Affine::of(base);
        let factor_of = |var: VarId| {
            let is_it = |atom: &PrimExpr| matches!(atom, PrimExpr::Var { var: v, .. } if *v == var);
            affine.terms.iter().find(|(atom, _)| is_it(atom)).map(|term| term.1)
        };
        let mut known = 0;
        for it in self.loops_inside(access.within, owner) {
            let Some(extent) = it.extent else { return false };
            let factor = factor_of(it.var);
            known += usize::from(factor.is_some());
            let distance = factor.unwrap_or(0).unsigned_abs();
            digits.push((distance, u64::try_from(extent).unwrap_or(0)));
        }
        // Other terms may depend on these loops.
        if known != affine.terms.len() {
            return false;
        }
        digits.retain(|(_, count)| *count > 1);
        digits.sort_unstable();
        let mut reach: u64 = 0;
        digits.into_iter().all(|(distance, count)| {
            let apart = distance > reach;
            reach = reach.saturating_add(distance.saturating_mul(count - 1));
            apart
        })
    }

    /// The loops around an access that are inside the `Allocate` of `owner`, innermost first.
    fn loops_inside(
        &self,
        within: Option<usize>,
        owner: &Lifetime<'_>,
    ) -> impl Iterator<Item = &Loop> {
        let start = *owner.scope.start();
        std::iter::successors(within.map(|id| &self.loops[id]), |it| {
            it.outer.map(|id| &self.loops[id])
        })
        .take_while(move |it| *it.moments.start() > start)
    }

    /// From the first access to the last one while `owner` exists. An access in a loop may be
    /// repeated in the next iteration, so the buffer is needed for as long as the loop runs.
    fn needed(&self, buffer: BufferId, owner: BufferId) -> Option<Moments> {
        let owner = &self.lifetimes[&owner];
        let spans = self.lifetimes[&buffer].accesses.iter().map(|access| {
            let outermost = self.loops_inside(access.within, owner).last();
            outermost.map_or(access.moment..=access.moment, |it| it.moments.clone())
        });
        spans.reduce(|a, b| *a.start().min(b.start())..=*a.end().max(b.end()))
    }
}

struct Walk<'a> {
    func: &'a PrimFuncData,
    moment: usize,
    within: Option<usize>,
    /// Buffers that are allocated in several places.
    twice: Vec<BufferId>,
    lifetimes: Lifetimes<'a>,
}

impl<'a> Walk<'a> {
    fn stmt(&mut self, stmt: &'a Stmt) {
        self.moment += 1;
        let moment = self.moment;
        stmt.for_each_expr(&mut |expr| {
            expr.walk(&mut |node| {
                if let PrimExpr::Load { buffer, indices, .. } = node {
                    self.access(*buffer, indices, false);
                }
            });
        });
        match stmt {
            Stmt::Store { buffer, indices, .. } => self.access(*buffer, indices, true),
            Stmt::Prefetch { buffer, indices, .. } => self.access(*buffer, indices, false),
            Stmt::For { var, extent, kind, body, min: _, annotations: _ } => {
                let id = self.lifetimes.loops.len();
                self.lifetimes.loops.push(Loop {
                    var: *var,
                    extent: extent.as_int(),
                    kind: *kind,
                    moments: moment..=moment,
                    outer: self.within,
                });
                let outer = self.within.replace(id);
                self.stmt(body);
                self.within = outer;
                self.moment += 1;
                self.lifetimes.loops[id].moments = moment..=self.moment;
            }
            Stmt::Allocate { buffer, body } => {
                let is_local = self.func.buffers[*buffer].scope == BufferScope::Local;
                if is_local {
                    let scope = moment..=moment;
                    let lifetime = Lifetime { scope, within: self.within, accesses: Vec::new() };
                    if self.lifetimes.lifetimes.insert(*buffer, lifetime).is_some() {
                        self.twice.push(*buffer);
                    } else {
                        self.lifetimes.order.push(*buffer);
                    }
                }
                self.stmt(body);
                if let (true, Some(lifetime)) = (is_local, self.lifetimes.lifetimes.get_mut(buffer))
                {
                    lifetime.scope = moment..=self.moment;
                }
            }
            Stmt::Seq(_)
            | Stmt::BlockRealize(_)
            | Stmt::Block { .. }
            | Stmt::Let { .. }
            | Stmt::If { .. }
            | Stmt::Assert { .. } => stmt.for_each_child(&mut |child| self.stmt(child)),
        }
    }

    fn access(&mut self, buffer: BufferId, indices: &'a [PrimExpr], is_store: bool) {
        let (moment, within) = (self.moment, self.within);
        if let Some(lifetime) = self.lifetimes.lifetimes.get_mut(&buffer) {
            lifetime.accesses.push(Access { moment, within, is_store, indices });
        }
    }
}
