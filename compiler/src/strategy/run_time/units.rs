//! Units of a size: whether each could be a run of its own.

use std::collections::{BTreeMap, BTreeSet};

use super::samples::{Known, samples};
use crate::executor::RunTimeSizes;
use crate::graph::Function;
use crate::ir::IRModule;
use crate::strategy::primitive::{Extents, primitive};
use crate::te::{ComputeDag, StageId, StageKind};
use crate::tir::{Analyzer, BufferId, PrimExpr, PrimFuncData, Stmt, VarId};

/// Whether each unit of the only size could be a run of its own: no element depends on one of another
/// unit. The module's computations are all calls of primitive functions.
pub fn units_are_independent(module: &IRModule, sizes: &RunTimeSizes) -> bool {
    let Some(max) = sizes.iter().next().and_then(|size| i64::try_from(size.max).ok()) else {
        return false;
    };
    // What other code generators make of a function is not known.
    let is_ours = |function: &Function| function.attrs().str("Compiler").is_none();
    let mut primitives = module.functions().filter(|(_, f)| f.attrs().flag("Primitive"));
    sizes.iter().all(|size| !size.counted)
        && sizes.len() == 1
        && module.functions().all(|(_, function)| is_ours(function))
        && primitives.all(|(global, function)| {
            let made = |extents: &Extents<'_>| primitive(global.name(), function, extents, false);
            let Some(samples) = samples(function, sizes) else { return false };
            let dags: Result<Vec<ComputeDag>, _> = (samples.iter())
                .map(|sample| made(&|dim| sizes.value(dim, sample)).map(|made| made.dag))
                .collect();
            let Ok(dags) = dags else { return false };
            let Some((greatest, others)) = dags.split_first() else { return false };
            let Some(other) = others.first() else { return true };
            let mut named = greatest.clone();
            let known = Known::new(function, sizes, &samples, &[], &sizes.declare(&mut named.func));
            let limits = known.limits(&named, others, &[]);
            limits.is_ok_and(|limits| limits.are_outermost(&named))
                && Units { dag: greatest, other, max }.are_independent()
        })
}

/// The elements of a dag by the unit of the only size that they belong to.
struct Units<'a> {
    dag: &'a ComputeDag,
    /// The same for another size.
    other: &'a ComputeDag,
    max: i64,
}

impl Units<'_> {
    /// The axis that goes over units, and how far it goes with each.
    fn axis(&self, stage: StageId) -> Option<(usize, i64)> {
        self.axis_among(self.dag.shape(stage), self.other.shape(stage))
    }

    fn axis_among(&self, shape: &[i64], other: &[i64]) -> Option<(usize, i64)> {
        let axis = shape.iter().zip(other).position(|(a, b)| a != b)?;
        Some((axis, shape[axis] / self.max))
    }

    fn are_independent(&self) -> bool {
        self.dag.stages.iter().all(|(stage, data)| match &data.kind {
            StageKind::Placeholder => true,
            StageKind::Compute(value) => self.reads_own(stage, value),
            StageKind::Reduce { value, .. } => self.reads_own(stage, value),
            StageKind::Joint { reduction, .. } => {
                reduction.values.iter().all(|value| self.reads_own(stage, value))
            }
            StageKind::Concat { axis, parts } => {
                let own = self.axis(stage);
                own.is_none_or(|own| own.0 != *axis)
                    && parts.iter().all(|part| self.axis(part.stage) == own)
            }
            StageKind::Extern { statement, .. } => self.does_own(&statement.body),
        })
    }

    /// Whether an element reads elements of its own unit, and such that belong to none.
    fn reads_own(&self, stage: StageId, value: &PrimExpr) -> bool {
        let mut own = true;
        value.walk(&mut |expr| {
            if let PrimExpr::Load { buffer, indices, .. } = expr
                && let Some(read) = self.dag.stage_of(*buffer)
                && let Some((axis, factor)) = self.axis(read)
            {
                own &= self.is_own(stage, &indices[axis], factor);
            }
        });
        own
    }

    fn is_own(&self, stage: StageId, index: &PrimExpr, factor: i64) -> bool {
        let Some((axis, own_factor)) = self.axis(stage) else { return false };
        let data = &self.dag.stages[stage];
        let own = self.dag.func.var_expr(data.axes[axis]);
        if factor == own_factor && *index == own {
            return true;
        }
        let mut analyzer = Analyzer::new();
        for (&var, &extent) in data.axes.iter().zip(self.dag.shape(stage)) {
            analyzer.bind(var, 0, extent);
        }
        let unit = |at: PrimExpr, factor: i64| at.floordiv(factor);
        analyzer.can_prove_equal(&unit(index.clone(), factor), &unit(own, own_factor))
    }

    /// Whether each unit has iterations of its own in a statement: every element of a unit is read or
    /// written in a loop over units, at the loop's variable, and what is in memory for no unit in
    /// particular is written outside of such loops alone, or lives in one iteration.
    fn does_own(&self, stmt: &Stmt) -> bool {
        let mut over_units = BTreeSet::new();
        let mut is_own = true;
        accesses(stmt, &mut Scope::default(), &mut |access, scope| {
            let Some((axis, factor)) = self.axis_of(access.buffer) else { return };
            match scope.loop_over_units(&self.dag.func, &access.indices[axis], factor) {
                Some(var) => drop(over_units.insert(var)),
                None => is_own = false,
            }
        });
        accesses(stmt, &mut Scope::default(), &mut |access, scope| {
            let around = scope.loops.iter().enumerate();
            let mut around = around.filter(|(_, (var, _))| over_units.contains(var));
            match (around.next(), around.next()) {
                (_, Some(_)) => is_own = false,
                (Some((depth, _)), None) if access.is_store => {
                    let lives_in_it =
                        scope.allocated.get(&access.buffer).is_some_and(|&inside| inside > depth);
                    is_own &= lives_in_it || self.axis_of(access.buffer).is_some();
                }
                _ => {}
            }
        });
        is_own
    }

    /// The axis of a buffer that goes over units, and how far it goes with each.
    fn axis_of(&self, buffer: BufferId) -> Option<(usize, i64)> {
        let other = self.other.func.buffers.get(buffer)?;
        self.axis_among(self.dag.func.buffers[buffer].shape(), other.shape())
    }
}

/// An access of an element of a buffer.
struct Access<'a> {
    buffer: BufferId,
    indices: &'a [PrimExpr],
    is_store: bool,
}

/// What is around a statement.
#[derive(Default)]
struct Scope {
    /// Variables of loops and the number of their iterations, outer ones first.
    loops: Vec<(VarId, Option<i64>)>,
    /// How many loops are around the lifetime of a buffer.
    allocated: BTreeMap<BufferId, usize>,
}

impl Scope {
    /// The variable of the loop of which an iteration has `factor` places along an axis, at an index.
    fn loop_over_units(&self, func: &PrimFuncData, index: &PrimExpr, factor: i64) -> Option<VarId> {
        let mut analyzer = Analyzer::new();
        for &(var, extent) in &self.loops {
            analyzer.bind(var, 0, extent?);
        }
        let unit = index.clone().floordiv(factor);
        let mut vars = self.loops.iter().map(|&(var, _)| var);
        vars.find(|&var| analyzer.can_prove_equal(&unit, &func.var_expr(var)))
    }
}

/// Calls `visit` with every access of a statement, and what is around it.
fn accesses(stmt: &Stmt, scope: &mut Scope, visit: &mut dyn FnMut(&Access<'_>, &Scope)) {
    stmt.for_each_expr(&mut |expr| {
        expr.walk(&mut |expr| {
            if let PrimExpr::Load { buffer, indices, .. } = expr {
                visit(&Access { buffer: *buffer, indices, is_store: false }, scope);
            }
        });
    });
    match stmt {
        Stmt::Store { buffer, indices, .. } => {
            visit(&Access { buffer: *buffer, indices, is_store: true }, scope);
        }
        Stmt::For { var, min, extent, .. } => {
            let from_zero = min.as_int() == Some(0);
            scope.loops.push((*var, extent.as_int().filter(|_| from_zero)));
        }
        Stmt::Allocate { buffer, .. } => {
            scope.allocated.insert(*buffer, scope.loops.len());
        }
        _ => {}
    }
    stmt.for_each_child(&mut |child| accesses(child, scope, visit));
    if let Stmt::For { .. } = stmt {
        scope.loops.pop();
    }
}
