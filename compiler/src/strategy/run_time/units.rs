//! Units of a size: whether each could be a run of its own.

use std::collections::{BTreeMap, BTreeSet};

use super::samples::{Known, samples};
use crate::executor::RunTimeSizes;
use crate::graph::Function;
use crate::ir::{DType, IRModule};
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

    /// Whether all axes that go over units go as far with each, and are the only ones of a tensor.
    fn are_whole(&self) -> bool {
        let is_whole = |(shape, other): (&[i64], &[i64])| {
            let differ = shape.iter().zip(other).filter(|(a, b)| a != b);
            let extents: Vec<(i64, i64)> = differ.map(|(&a, &b)| (a, b)).collect();
            match extents.as_slice() {
                [] => true,
                &[(extent, other)] => {
                    let factor = extent / self.max;
                    factor > 0 && factor * self.max == extent && other % factor == 0
                }
                _ => false,
            }
        };
        let [buffers, others] = [self.dag, self.other].map(|dag| &dag.func.buffers);
        buffers.len() == others.len()
            && buffers.values().zip(others.values()).all(|(buffer, other)| {
                let shapes = (buffer.shape(), other.shape());
                shapes.0.len() == shapes.1.len() && is_whole(shapes)
            })
    }

    fn are_independent(&self) -> bool {
        if !self.are_whole() {
            return false;
        }
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

    /// Whether an element is made of elements of its own unit, and of such that belong to none, whichever unit
    /// that is: its number may be in places of elements of units alone.
    fn reads_own(&self, stage: StageId, value: &PrimExpr) -> bool {
        let data = &self.dag.stages[stage];
        let mut analyzer = Analyzer::new();
        for (&var, &extent) in data.axes.iter().zip(self.dag.shape(stage)) {
            analyzer.bind(var, 0, extent);
        }
        for axis in data.kind.reduced() {
            analyzer.bind(axis.var, 0, axis.extent);
        }
        let own = self.axis(stage).map(|(axis, factor)| (data.axes[axis], factor));
        let mut first = First { func: &self.dag.func, own: own.into_iter().collect(), analyzer };
        let is_own = |index: &PrimExpr, factor: i64| self.is_own(stage, index, factor);
        self.is_of_any_unit(value, &mut first, &is_own)
    }

    /// Whether an expression is the same of the first unit, but for which elements of units it reads.
    fn is_of_any_unit(
        &self,
        expr: &PrimExpr,
        first: &mut First<'_>,
        is_own: &dyn Fn(&PrimExpr, i64) -> bool,
    ) -> bool {
        match expr {
            PrimExpr::Load { buffer, indices, .. } => {
                self.are_of_any_unit(*buffer, indices, first, is_own)
            }
            PrimExpr::Var { var, .. } => !first.own.contains_key(var),
            _ if first.is_same(expr) => true,
            _ => {
                let mut all = true;
                expr.for_each_child(&mut |child| {
                    all = all && self.is_of_any_unit(child, first, is_own);
                });
                all
            }
        }
    }

    /// The same of the place of an element.
    fn are_of_any_unit(
        &self,
        buffer: BufferId,
        indices: &[PrimExpr],
        first: &mut First<'_>,
        is_own: &dyn Fn(&PrimExpr, i64) -> bool,
    ) -> bool {
        let over_units = self.axis_of(buffer);
        indices.iter().enumerate().all(|(at, index)| match over_units {
            Some((axis, factor)) if axis == at => {
                is_own(index, factor) && first.is_same(&index.clone().floormod(factor))
            }
            _ => self.is_of_any_unit(index, first, is_own),
        })
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
        is_own && self.numbers_are_places(stmt, &over_units)
    }

    /// Whether the variables of loops over units are in places of elements of units alone.
    fn numbers_are_places(&self, stmt: &Stmt, over_units: &BTreeSet<VarId>) -> bool {
        let own = over_units.iter().map(|&var| (var, 1)).collect();
        let mut first = First { func: &self.dag.func, own, analyzer: Analyzer::new() };
        let mut all = true;
        stmt.walk(&mut |stmt| match stmt {
            Stmt::Store { buffer, indices, value } => {
                all = all
                    && self.are_of_any_unit(*buffer, indices, &mut first, &|_, _| true)
                    && self.is_of_any_unit(value, &mut first, &|_, _| true);
            }
            _ => stmt.for_each_expr(&mut |expr| {
                all = all && self.is_of_any_unit(expr, &mut first, &|_, _| true);
            }),
        });
        all
    }

    /// The axis of a buffer that goes over units, and how far it goes with each.
    fn axis_of(&self, buffer: BufferId) -> Option<(usize, i64)> {
        let other = self.other.func.buffers.get(buffer)?;
        self.axis_among(self.dag.func.buffers[buffer].shape(), other.shape())
    }
}

/// The first unit, as another one sees it.
struct First<'a> {
    func: &'a PrimFuncData,
    /// Variables, and how many of their values belong to each unit.
    own: BTreeMap<VarId, i64>,
    analyzer: Analyzer,
}

impl First<'_> {
    /// Whether an index that reads nothing is the same for the first unit.
    fn is_same(&mut self, index: &PrimExpr) -> bool {
        let reads = index.any(&mut |expr| matches!(expr, PrimExpr::Load { .. }));
        if reads || index.dtype() != DType::I64 {
            return false;
        }
        let of_first =
            self.own.iter().map(|(&var, &factor)| (var, self.func.var_expr(var).floormod(factor)));
        let of_first = index.clone().substitute(&of_first.collect());
        of_first == *index || self.analyzer.can_prove_equal(index, &of_first)
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
