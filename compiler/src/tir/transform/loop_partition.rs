//! Partitioning of loops.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::simplify::simplify_stmt;
use crate::ir::IRModule;
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::{
    Analyzer, Annotations, BinaryOp, CompareOp, ForKind, PrimExpr, PrimFunc, PrimType, Stmt,
    UnaryOp, VarId,
};

/// The annotation that requests the partition of a loop; its value has no meaning.
const HINT: &str = "pragma_loop_partition_hint";

/// Maximum number of loops into which one loop is divided at once. More points come from conditions
/// on single iterations; then the longest interval between two points is separated.
const MAX_PARTS: usize = 5;

/// Maximum number of loops that are partitioned in one function: each partition copies a body.
const MAX_PARTITIONS: usize = 64;

/// Number of times that the parts of a loop are partitioned again: minima of the loop variable have
/// become linear in the parts.
const MAX_ROUNDS: u32 = 3;

/// Options of the pass.
#[derive(Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
#[serde(default, deny_unknown_fields)]
pub struct LoopPartitionConfig {
    /// Whether loops of constant extent are partitioned without a hint.
    pub partition_const_loop: bool,
    /// Whether a part of one iteration stays a loop.
    pub no_unroll_loop_with_extent_one: bool,
    /// Whether a loop of constant extent with a hint that cannot be partitioned is unrolled.
    pub unroll_loop_with_partition_hint_no_interval: bool,
}

crate::register_pass_config_option! {
    /// Which loops are partitioned, and how.
    pub LOOP_PARTITION: LoopPartitionConfig = "tir.LoopPartition";
}

/// Splits loops where conditions on them become constant, so that main parts have none.
///
/// Loops annotated `pragma_loop_partition_hint` and loops of symbolic extent are split, others only
/// on request. Parts are simplified, and parts that do nothing are removed: a vectorized loop is
/// never split in two, but reduced to the lanes that do something.
#[prim_func_pass(opt_level = 0, name = "tir.LoopPartition", crate = crate)]
pub fn loop_partition(mut func: PrimFunc, _module: &IRModule, cx: &PassContext) -> PrimFunc {
    let config = cx.get(&LOOP_PARTITION);
    let mut any = false;
    func.body.walk(&mut |stmt| any |= is_candidate(stmt, &config));
    if !any {
        return func;
    }
    let data = func.make_mut();
    let mut partitioner =
        Partitioner { analyzer: Analyzer::of(data), config, left: MAX_PARTITIONS };
    let body = std::mem::replace(&mut data.body, Stmt::nop());
    data.body = partitioner.stmt(body);
    func
}

fn is_candidate(stmt: &Stmt, config: &LoopPartitionConfig) -> bool {
    match stmt {
        Stmt::For { min, extent, annotations, .. } => {
            let constant = min.as_int().is_some() && extent.as_int().is_some();
            !constant || config.partition_const_loop || annotations.contains_key(HINT)
        }
        Stmt::Seq(_)
        | Stmt::BlockRealize(_)
        | Stmt::Block { .. }
        | Stmt::Store { .. }
        | Stmt::Let { .. }
        | Stmt::If { .. }
        | Stmt::Allocate { .. }
        | Stmt::Prefetch { .. }
        | Stmt::Assert { .. } => false,
    }
}

struct Partitioner {
    analyzer: Analyzer,
    config: LoopPartitionConfig,
    /// The number of loops that may still be partitioned.
    left: usize,
}

/// A loop without its body.
struct Head {
    var: VarId,
    min: PrimExpr,
    extent: PrimExpr,
    kind: ForKind,
    annotations: Annotations,
    /// The number of partitions that this loop is the result of.
    rounds: u32,
}

/// Some of the iterations of a loop.
enum Part {
    /// One, without a loop.
    Once(Stmt),
    Loop(Head, Stmt),
}

/// How often a statement decides something.
fn conditions(stmt: &Stmt) -> usize {
    let mut count = 0;
    stmt.walk(&mut |stmt| count += usize::from(matches!(stmt, Stmt::If { .. })));
    stmt.walk_exprs(&mut |expr| {
        count += usize::from(match expr {
            PrimExpr::Select { .. } | PrimExpr::Compare { .. } => true,
            PrimExpr::Binary { op, .. } => matches!(op, BinaryOp::Min | BinaryOp::Max),
            _ => false,
        });
    });
    count
}

impl Partitioner {
    fn stmt(&mut self, mut stmt: Stmt) -> Stmt {
        let candidate = is_candidate(&stmt, &self.config);
        match stmt {
            Stmt::For { var, min, extent, kind, annotations, body } => {
                let head = Head { var, min, extent, kind, annotations, rounds: 0 };
                if candidate {
                    return self.partition(head, *body);
                }
                self.inside(head, *body)
            }
            Stmt::Let { var, value, body } => {
                let scope = self.analyzer.enter();
                self.analyzer.define(var, &value);
                let body = Box::new(self.stmt(*body));
                self.analyzer.leave(scope);
                Stmt::Let { var, value, body }
            }
            Stmt::If { cond, then, otherwise } => {
                let scope = self.analyzer.enter();
                self.analyzer.assume(&cond);
                let then = Box::new(self.stmt(*then));
                self.analyzer.leave(scope);
                let otherwise = otherwise.map(|stmt| {
                    let scope = self.analyzer.enter();
                    self.analyzer.assume_not(&cond);
                    let stmt = Box::new(self.stmt(*stmt));
                    self.analyzer.leave(scope);
                    stmt
                });
                Stmt::If { cond, then, otherwise }
            }
            // A block's body depends on the block's variables alone.
            Stmt::BlockRealize(_) => stmt,
            Stmt::Seq(_)
            | Stmt::Block { .. }
            | Stmt::Store { .. }
            | Stmt::Allocate { .. }
            | Stmt::Prefetch { .. }
            | Stmt::Assert { .. } => {
                stmt.for_each_child_mut(&mut |child| {
                    let taken = std::mem::replace(child, Stmt::nop());
                    *child = self.stmt(taken);
                });
                stmt
            }
        }
    }

    /// A loop that is not partitioned.
    fn inside(&mut self, head: Head, body: Stmt) -> Stmt {
        let Head { var, min, extent, kind, annotations, rounds: _ } = head;
        let scope = self.analyzer.enter();
        self.analyzer.bind_loop(var, &min, &extent);
        let body = self.stmt(body);
        self.analyzer.leave(scope);
        Stmt::For { var, min, extent, kind, annotations, body: Box::new(body) }
    }

    fn partition(&mut self, mut head: Head, body: Stmt) -> Stmt {
        let go_on = self.left > 0 && head.rounds < MAX_ROUNDS;
        let points = if go_on { self.points(&head, &body) } else { Vec::new() };
        let constant = points.iter().all(|point| point.as_int().is_some())
            && head.min.as_int().is_some()
            && head.extent.as_int().is_some();
        // Numbers of lanes and of copies must be constant.
        let countable = constant || matches!(head.kind, ForKind::Serial | ForKind::Parallel);
        if points.is_empty() || !countable {
            if head.annotations.remove(HINT).is_some()
                && self.config.unroll_loop_with_partition_hint_no_interval
                && head.extent.as_int().is_some()
            {
                head.kind = ForKind::Unrolled;
            }
            return self.inside(head, body);
        }
        let end = self.analyzer.simplify(&(head.min.clone() + head.extent.clone()));
        let mut parts = Vec::new();
        let mut start = head.min.clone();
        for next in points.into_iter().chain([end]) {
            parts.extend(self.part(&head, start, &next, &body));
            start = next;
        }
        // What is known of symbolic parts may be too little to decide anything in them.
        let is_simpler = |part: &Part| match part {
            Part::Once(_) => true,
            Part::Loop(_, simplified) => conditions(simplified) < conditions(&body),
        };
        let is_of_use = constant || parts.len() == 1 || parts.iter().any(is_simpler);
        if !is_of_use || (head.kind == ForKind::Vectorized && parts.len() > 1) {
            head.annotations.remove(HINT);
            return self.inside(head, body);
        }
        self.left = self.left.saturating_sub(1);
        Stmt::seq(parts.into_iter().map(|part| match part {
            Part::Once(stmt) => stmt,
            // Conditions that are linear now may have points of their own.
            Part::Loop(head, body) => self.partition(head, body),
        }))
    }

    /// The iterations from `start` to `end`, unless they do nothing.
    fn part(&mut self, head: &Head, start: PrimExpr, end: &PrimExpr, body: &Stmt) -> Option<Part> {
        let var = head.var;
        let extent = self.analyzer.simplify(&(end.clone() - start.clone()));
        if self.analyzer.const_int_bound(&extent).1 <= 0 {
            return None;
        }
        let scope = self.analyzer.enter();
        let replaced = self.analyzer.bind_loop(var, &start, &extent);
        let mut body = simplify_stmt(&mut self.analyzer, body.clone());
        if replaced {
            body = self.stmt(body);
        }
        self.analyzer.leave(scope);
        if body.is_nop() {
            return None;
        }
        if replaced && !self.config.no_unroll_loop_with_extent_one {
            return Some(Part::Once(body));
        }
        let mut annotations = head.annotations.clone();
        annotations.remove(HINT);
        let rounds = head.rounds + 1;
        let head = Head { var, min: start, extent, kind: head.kind, annotations, rounds };
        Some(Part::Loop(head, body))
    }

    /// The points at which to split a loop, in order: where conditions in its body change.
    fn points(&mut self, head: &Head, body: &Stmt) -> Vec<PrimExpr> {
        let scope = self.analyzer.enter();
        let mut search =
            Search { var: head.var, ty: head.min.ty(), inner: BTreeSet::new(), groups: Vec::new() };
        if !self.analyzer.bind_loop(head.var, &head.min, &head.extent) {
            search.stmt(&mut self.analyzer, body);
        }
        // Points are compared outside of the loop, because the loop may have no iteration.
        self.analyzer.leave(scope);
        self.choose(head, search.groups)
    }

    fn choose(&mut self, head: &Head, groups: Vec<Vec<PrimExpr>>) -> Vec<PrimExpr> {
        let analyzer = &mut self.analyzer;
        let start = analyzer.simplify(&head.min);
        let end = analyzer.simplify(&(head.min.clone() + head.extent.clone()));
        let mut constants = BTreeSet::new();
        let mut symbolic = Vec::new();
        for points in groups {
            let mut group = Vec::new();
            let mut last = start.clone();
            for point in points {
                let point = analyzer.simplify(&point.max(&last).min(&end));
                if point == last || point == end {
                    continue;
                }
                last = point.clone();
                constants.extend(point.as_int());
                group.push(point);
            }
            // The points of one comparison are in order; those of others are found in the parts.
            if symbolic.is_empty() {
                symbolic = group;
            }
        }
        let (Some(first), Some(last)) = (start.as_int(), end.as_int()) else { return symbolic };
        if constants.is_empty() {
            return symbolic;
        }
        let mut constants: Vec<i64> = constants.into_iter().collect();
        if constants.len() >= MAX_PARTS {
            let bounds: Vec<i64> = [first].into_iter().chain(constants).chain([last]).collect();
            let longest = bounds.windows(2).max_by_key(|pair| pair[1] - pair[0]);
            constants = longest.into_iter().flatten().copied().collect();
            constants.retain(|point| *point != first && *point != last);
        }
        let dtype = head.min.dtype();
        constants.into_iter().map(|point| PrimExpr::int(point, dtype)).collect()
    }
}

/// Looks for conditions on a loop variable.
struct Search {
    var: VarId,
    /// The loop variable's type, which points have too.
    ty: PrimType,
    /// Variables that are bound in the loop.
    inner: BTreeSet<VarId>,
    /// The points of each comparison, in order.
    groups: Vec<Vec<PrimExpr>>,
}

impl Search {
    fn stmt(&mut self, analyzer: &mut Analyzer, stmt: &Stmt) {
        stmt.for_each_expr(&mut |expr| self.expr(analyzer, expr));
        if let Stmt::If { cond, .. } = stmt {
            self.condition(analyzer, cond);
        }
        let scope = analyzer.enter();
        match stmt {
            Stmt::For { var, min, extent, .. } => {
                self.inner.insert(*var);
                analyzer.bind_loop(*var, min, extent);
            }
            Stmt::Let { var, value, .. } => {
                self.inner.insert(*var);
                analyzer.define(*var, value);
            }
            Stmt::Seq(_)
            | Stmt::BlockRealize(_)
            | Stmt::Block { .. }
            | Stmt::Store { .. }
            | Stmt::If { .. }
            | Stmt::Allocate { .. }
            | Stmt::Prefetch { .. }
            | Stmt::Assert { .. } => {}
        }
        stmt.for_each_child(&mut |child| self.stmt(analyzer, child));
        analyzer.leave(scope);
    }

    fn expr(&mut self, analyzer: &mut Analyzer, expr: &PrimExpr) {
        match expr {
            PrimExpr::Select { cond, .. } if cond.ty().is_scalar() => {
                self.condition(analyzer, cond);
            }
            PrimExpr::Binary { op: BinaryOp::Min | BinaryOp::Max, lhs, rhs }
                if lhs.ty().is_index() =>
            {
                self.comparison(analyzer, CompareOp::Lt, lhs, rhs);
            }
            _ => {}
        }
        expr.for_each_child(&mut |child| self.expr(analyzer, child));
    }

    fn condition(&mut self, analyzer: &mut Analyzer, cond: &PrimExpr) {
        match cond {
            PrimExpr::Binary { op: BinaryOp::And | BinaryOp::Or, lhs, rhs } => {
                self.condition(analyzer, lhs);
                self.condition(analyzer, rhs);
            }
            PrimExpr::Unary { op: UnaryOp::Not, value } => self.condition(analyzer, value),
            PrimExpr::Compare { op, lhs, rhs } => self.comparison(analyzer, *op, lhs, rhs),
            _ => {}
        }
    }

    fn comparison(
        &mut self,
        analyzer: &mut Analyzer,
        op: CompareOp,
        lhs: &PrimExpr,
        rhs: &PrimExpr,
    ) {
        // A comparison that does not depend on the loop is the same in every part.
        if lhs.ty() != self.ty || !(lhs.uses(self.var) || rhs.uses(self.var)) {
            return;
        }
        let points = analyzer.change_points(op, lhs, rhs, self.var, &self.inner);
        if !points.is_empty() {
            self.groups.push(points);
        }
    }
}

#[cfg(test)]
mod tests;
