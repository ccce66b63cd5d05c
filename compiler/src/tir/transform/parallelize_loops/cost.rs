//! How many cycles a statement takes, about.
//!
//! The rules of the strategies have cost models of their own loops; this one is for statements of
//! any origin, and knows no more than what they compute and move.

use std::collections::{BTreeMap, BTreeSet};

use super::rows::mentions;
use crate::strategy::{Machine, PER_CYCLE};
use crate::tir::{
    BinaryOp, Buffer, BufferId, BufferScope, ForKind, Intrinsic, ParamKind, PrimExpr, PrimFuncData,
    PrimType, Stmt, VarId,
};

/// Cycles of one iteration of a loop for its counter.
pub(super) const PER_ITERATION: f64 = 1.0;

/// Operations that a division or a square root is worth.
const DIVISION: f64 = 8.0;

/// Operations of a polynomial such as that of `exp`.
const POLYNOMIAL: f64 = 24.0;

/// Operations of a function that the C library may compute lane by lane.
const RARE: f64 = 200.0;

/// Bytes in a cycle of a function whose tensors fit the second cache, and of one whose tensors do not.
const RATES: [f64; 2] = [24.0, 12.0];

/// Bytes in a cycle where a function reads nothing: what it writes is in the cache of whoever read it
/// last, often another core's.
const FOREIGN_RATE: f64 = 4.0;

/// A loop around a statement that is not one of code: of its iterations, those that the statement does
/// not depend on are one.
#[derive(Clone)]
struct Lane {
    /// Its variable, and those that are computed from it.
    vars: BTreeSet<VarId>,
    extent: i64,
    is_vector: bool,
}

/// Where a statement is: the vectorized loops around it, and the unrolled ones since the last other one.
#[derive(Clone, Default)]
pub(super) struct Site(Vec<Lane>);

impl Site {
    /// The body of a loop.
    pub(super) fn inside(&self, var: VarId, kind: ForKind, extent: i64) -> Site {
        let mut site = self.clone();
        match kind {
            ForKind::Vectorized | ForKind::Unrolled => site.0.push(Lane {
                vars: BTreeSet::from([var]),
                extent: extent.max(1),
                is_vector: kind == ForKind::Vectorized,
            }),
            // What one iteration has in registers, the next one reads again.
            _ => site.0.retain(|lane| lane.is_vector),
        }
        site
    }

    /// Where a variable has a value.
    pub(super) fn with(&self, var: VarId, value: &PrimExpr) -> Site {
        let mut site = self.clone();
        for lane in &mut site.0 {
            if mentions(value, &lane.vars) {
                lane.vars.insert(var);
            }
        }
        site
    }

    /// Iterations of the vectorized loops, of all or of those that some indices depend on.
    fn lanes(&self, indices: Option<&[PrimExpr]>) -> i64 {
        let of_vectors = self.0.iter().filter(|lane| lane.is_vector && lane.counts(indices));
        of_vectors.fold(1, |lanes, lane| lanes.saturating_mul(lane.extent))
    }

    /// Iterations of the unrolled loops that indices do not depend on.
    fn same(&self, indices: &[PrimExpr]) -> f64 {
        let lanes = self.0.iter().filter(|lane| !lane.is_vector && !lane.counts(Some(indices)));
        lanes.fold(1.0, |all, lane| all * lane.extent as f64)
    }
}

impl Lane {
    fn counts(&self, indices: Option<&[PrimExpr]>) -> bool {
        indices.is_none_or(|indices| indices.iter().any(|index| mentions(index, &self.vars)))
    }
}

/// What the statements of a function take.
pub(super) struct Costs<'a> {
    func: &'a PrimFuncData,
    machine: Machine,
    /// Of the bytes that a buffer's accesses have, those that come from behind the first cache: each
    /// byte of the buffer does so once.
    far: BTreeMap<BufferId, f64>,
    /// Bytes in a cycle that do.
    rate: f64,
}

/// Operations, loads and bytes.
#[derive(Default)]
struct Work {
    operations: f64,
    loads: f64,
    bytes: BTreeMap<BufferId, f64>,
}

impl<'a> Costs<'a> {
    pub(super) fn of(func: &'a PrimFuncData, machine: Machine) -> Costs<'a> {
        let reads = func.params.iter().any(|param| param.kind != ParamKind::Output);
        let bytes: f64 =
            func.params.iter().map(|param| bytes_of(&func.buffers[param.buffer])).sum();
        let rate = match reads {
            false => FOREIGN_RATE,
            true => RATES[usize::from(bytes > machine.caches[1] as f64)],
        };
        let mut costs = Costs { func, machine, far: BTreeMap::new(), rate };
        let mut all: BTreeMap<BufferId, f64> = BTreeMap::new();
        costs.count(&func.body, &Site::default(), 1.0, &mut all);
        costs.far = (all.into_iter())
            .map(|(buffer, bytes)| (buffer, (bytes_of(&func.buffers[buffer]) / bytes).min(1.0)))
            .collect();
        costs
    }

    /// Adds the bytes of all accesses of a statement that runs so often.
    fn count(&self, stmt: &Stmt, site: &Site, times: f64, all: &mut BTreeMap<BufferId, f64>) {
        for (buffer, bytes) in self.work(stmt, site).bytes {
            *all.entry(buffer).or_default() += times * bytes;
        }
        match stmt {
            Stmt::For { var, extent, kind, body, .. } => {
                let extent = extent.as_int().unwrap_or(1).max(0);
                let is_vector = *kind == ForKind::Vectorized;
                let times = if is_vector { times } else { times * extent as f64 };
                self.count(body, &site.inside(*var, *kind, extent), times, all);
            }
            Stmt::Let { var, value, body } => self.count(body, &site.with(*var, value), times, all),
            _ => stmt.for_each_child(&mut |child| self.count(child, site, times, all)),
        }
    }

    /// Cycles of the expressions of a statement itself, each computed once in all iterations of the
    /// vectorized loops around.
    pub(super) fn of_own(&self, stmt: &Stmt, site: &Site) -> f64 {
        let work = self.work(stmt, site);
        let per_cycle = PER_CYCLE as f64;
        let far = |(buffer, bytes): (&BufferId, &f64)| bytes * self.far.get(buffer).unwrap_or(&1.0);
        let bytes: f64 = work.bytes.iter().map(far).sum();
        (work.operations / per_cycle).max(work.loads / per_cycle).max(bytes / self.rate)
    }

    fn work(&self, stmt: &Stmt, site: &Site) -> Work {
        let mut work = Work::default();
        match stmt {
            Stmt::Store { buffer, indices, value } => {
                self.expr(&mut work, value, site);
                self.access(&mut work, *buffer, indices, site);
            }
            Stmt::Let { value, .. } if value.ty() != PrimType::INDEX => {
                self.expr(&mut work, value, site);
            }
            Stmt::If { cond, .. } => self.expr(&mut work, cond, site),
            Stmt::Prefetch { .. } => work.loads += 1.0,
            _ => {}
        }
        work
    }
}

/// Bytes of the elements of a buffer; as many as can be where an extent is not known.
fn bytes_of(buffer: &Buffer) -> f64 {
    let elements = buffer.spec.num_elements().filter(|elements| *elements >= 0);
    let elements = elements.unwrap_or(i64::MAX);
    elements as f64 * f64::from(buffer.dtype.bits()) / 8.0
}

impl Costs<'_> {
    /// Registers that a value takes.
    fn registers(&self, ty: PrimType, lanes: i64) -> f64 {
        let elements = lanes.saturating_mul(i64::from(ty.lanes));
        ((elements as f64) / self.machine.lanes(ty.dtype) as f64).ceil()
    }

    fn expr(&self, work: &mut Work, expr: &PrimExpr, site: &Site) {
        let ty = expr.ty();
        let mut children = true;
        let operations = match expr {
            PrimExpr::Load { buffer, dtype: _, indices } => {
                children = false;
                self.access(work, *buffer, indices, site);
                0.0
            }
            PrimExpr::Binary { op: BinaryOp::Div | BinaryOp::Rem, .. } => DIVISION,
            PrimExpr::Binary { .. }
            | PrimExpr::Unary { .. }
            | PrimExpr::Compare { .. }
            | PrimExpr::Select { .. }
            | PrimExpr::MulAdd { .. }
            | PrimExpr::DotAdd { .. }
            | PrimExpr::Cast { .. }
            | PrimExpr::Shuffle { .. } => 1.0,
            PrimExpr::VectorReduce { .. } => 4.0,
            PrimExpr::Call { intrinsic, .. } => match intrinsic {
                Intrinsic::Floor
                | Intrinsic::Ceil
                | Intrinsic::Trunc
                | Intrinsic::Round
                | Intrinsic::Abs
                | Intrinsic::FromFp16
                | Intrinsic::ToFp16 => 1.0,
                Intrinsic::Sqrt => DIVISION,
                Intrinsic::Exp
                | Intrinsic::Log
                | Intrinsic::Tanh
                | Intrinsic::Erf
                | Intrinsic::Sigmoid
                | Intrinsic::Sinh
                | Intrinsic::Cosh
                | Intrinsic::Ldexp => POLYNOMIAL,
                Intrinsic::Asinh | Intrinsic::Acosh | Intrinsic::Atanh => 2.0 * POLYNOMIAL,
                _ => RARE,
            },
            _ => 0.0,
        };
        work.operations += operations * self.registers(ty, site.lanes(None));
        if children {
            expr.for_each_child(&mut |child| self.expr(work, child, site));
        }
    }

    /// Counts an access, once for the iterations of unrolled loops that it does not depend on, and of
    /// one element for those of vectorized loops.
    fn access(&self, work: &mut Work, buffer: BufferId, indices: &[PrimExpr], site: &Site) {
        let data = &self.func.buffers[buffer];
        if data.scope == BufferScope::Register {
            return;
        }
        let ty = PrimType::vector(data.dtype, indices.first().map_or(1, |it| it.ty().lanes));
        let lanes = site.lanes(Some(indices));
        let same = site.same(indices);
        work.loads += self.registers(ty, lanes) / same;
        let elements = lanes.saturating_mul(i64::from(ty.lanes)) as f64;
        let bytes = elements * f64::from(data.dtype.bits()) / 8.0;
        *work.bytes.entry(buffer).or_default() += bytes / same;
    }
}
