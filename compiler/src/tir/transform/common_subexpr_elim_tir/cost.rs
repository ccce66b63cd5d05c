//! The cost of computing an expression, in additions.

use crate::ir::DType;
use crate::tir::{BinaryOp, PrimExpr};

/// The cost of dividing integers by an expression that is no constant.
const DIVISION: u32 = 16;
/// The cost of a mathematical function.
const CALL: u32 = 16;
/// The cost of a load; a repeated one hits the first-level cache.
const LOAD: u32 = 2;

/// Whether the value is worth a register: whether it costs more than what addresses do for free.
pub(super) fn is_worth_a_name(expr: &PrimExpr) -> bool {
    expr.ty().is_scalar()
        && cost(expr) > 1
        && !expr.any(&mut |node| {
            // Names within would have to be copied.
            matches!(node, PrimExpr::Let { .. })
        })
}

/// The cost of an expression with all its operands.
pub(super) fn cost(expr: &PrimExpr) -> u32 {
    let own = match expr {
        PrimExpr::Int { .. } | PrimExpr::Float { .. } | PrimExpr::Var { .. } => 0,
        PrimExpr::Binary { op, rhs, .. } => match op {
            // Part of an address.
            BinaryOp::Add | BinaryOp::Sub if rhs.as_int().is_some() => 0,
            BinaryOp::Div | BinaryOp::Rem | BinaryOp::FloorDiv | BinaryOp::FloorMod => {
                match rhs.as_int() {
                    Some(_) => DIVISION / 4,
                    None => DIVISION,
                }
            }
            BinaryOp::Add
            | BinaryOp::Sub
            | BinaryOp::Mul
            | BinaryOp::Min
            | BinaryOp::Max
            | BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor
            | BinaryOp::Shl
            | BinaryOp::Shr => 1,
        },
        PrimExpr::Unary { .. }
        | PrimExpr::Compare { .. }
        | PrimExpr::Select { .. }
        | PrimExpr::Reinterpret { .. }
        | PrimExpr::MulAdd { .. }
        | PrimExpr::DotAdd { .. } => 1,
        PrimExpr::Cast { dtype, value } => match (dtype, value.dtype()) {
            // Integers widen as they are loaded.
            (DType::I64, from) if from.is_int() => 0,
            _ => 1,
        },
        PrimExpr::Load { .. } => LOAD,
        PrimExpr::Call { .. } => CALL,
        PrimExpr::VectorReduce { .. } => CALL / 2,
        PrimExpr::Ramp { .. }
        | PrimExpr::Broadcast { .. }
        | PrimExpr::Shuffle { .. }
        | PrimExpr::Let { .. } => 1,
    };
    let mut sum = own;
    expr.for_each_child(&mut |child| sum = sum.saturating_add(cost(child)));
    sum
}
