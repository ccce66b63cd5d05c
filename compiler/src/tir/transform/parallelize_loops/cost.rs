//! How many cycles a statement takes, about.
//!
//! The rules of the strategies have cost models of their own loops; this one is for statements of
//! any origin, and knows no more than what they compute and move.

use crate::strategy::{MIDDLE_RATE, Machine, PER_CYCLE};
use crate::tir::{
    BinaryOp, BufferScope, ForKind, Intrinsic, ParamKind, PrimExpr, PrimFuncData, PrimType, Stmt,
};

/// Cycles of one iteration of a loop for its counter.
pub(super) const PER_ITERATION: f64 = 1.0;

/// Operations that a division or a square root is worth.
const DIVISION: f64 = 8.0;

/// Operations of a polynomial such as that of `exp`.
const POLYNOMIAL: f64 = 24.0;

/// Operations of a function that the C library may compute lane by lane.
const RARE: f64 = 200.0;

/// Bytes in a cycle where a function reads nothing: what it writes is in the cache of whoever read it
/// last, often another core's.
const FOREIGN_RATE: f64 = 4.0;

/// Operations and bytes.
#[derive(Clone, Copy, Default)]
struct Work {
    operations: f64,
    loads: f64,
    bytes: f64,
}

/// Cycles of the expressions of a statement itself, each computed once in `lanes` iterations of the
/// vectorized loops around.
pub(super) fn of_own(func: &PrimFuncData, machine: Machine, stmt: &Stmt, lanes: i64) -> f64 {
    let mut work = Work::default();
    match stmt {
        Stmt::Store { buffer, indices, value } => {
            work.expr(func, machine, value, lanes);
            work.access(func, machine, *buffer, indices, lanes);
        }
        Stmt::Let { value, .. } if value.ty() != PrimType::INDEX => {
            work.expr(func, machine, value, lanes);
        }
        Stmt::If { cond, .. } => work.expr(func, machine, cond, lanes),
        Stmt::Prefetch { .. } => work.loads += 1.0,
        _ => {}
    }
    let per_cycle = PER_CYCLE as f64;
    let reads = func.params.iter().any(|param| param.kind != ParamKind::Output);
    let rate = if reads { MIDDLE_RATE } else { FOREIGN_RATE };
    (work.operations / per_cycle).max(work.loads / per_cycle).max(work.bytes / rate)
}

/// The lanes of a loop: of as many iterations statements are computed at once.
pub(super) fn lanes(kind: ForKind, extent: i64, lanes: i64) -> i64 {
    if kind == ForKind::Vectorized { lanes.saturating_mul(extent.max(1)) } else { lanes }
}

impl Work {
    /// Registers that a value takes.
    fn registers(machine: Machine, ty: PrimType, lanes: i64) -> f64 {
        let elements = lanes.saturating_mul(i64::from(ty.lanes));
        ((elements as f64) / machine.lanes(ty.dtype) as f64).ceil()
    }

    fn expr(&mut self, func: &PrimFuncData, machine: Machine, expr: &PrimExpr, lanes: i64) {
        let ty = expr.ty();
        let mut children = true;
        let operations = match expr {
            PrimExpr::Load { buffer, dtype: _, indices } => {
                children = false;
                self.access(func, machine, *buffer, indices, lanes);
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
        self.operations += operations * Work::registers(machine, ty, lanes);
        if children {
            expr.for_each_child(&mut |child| self.expr(func, machine, child, lanes));
        }
    }

    fn access(
        &mut self,
        func: &PrimFuncData,
        machine: Machine,
        buffer: crate::tir::BufferId,
        indices: &[PrimExpr],
        lanes: i64,
    ) {
        let buffer = &func.buffers[buffer];
        if buffer.scope == BufferScope::Register {
            return;
        }
        let ty = PrimType::vector(buffer.dtype, indices.first().map_or(1, |it| it.ty().lanes));
        let registers = Work::registers(machine, ty, lanes);
        self.loads += registers;
        let elements = lanes.saturating_mul(i64::from(ty.lanes)) as f64;
        self.bytes += elements * f64::from(buffer.dtype.bits()) / 8.0;
    }
}
