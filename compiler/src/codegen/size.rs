//! Integers that a wrapper computes of its arguments: dimensions of its kernel, and extents.

use std::collections::BTreeMap;

use crate::tir::{BinaryOp, PrimExpr, VarId};

/// An integer made of what a call is given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Size {
    /// The same in each call.
    Constant(i64),
    /// The extent of a tensor along an axis; the positions of both.
    Extent(usize, usize),
    /// An integer that is passed after the tensors; its number among them.
    Argument(usize),
    /// Two integers combined.
    Binary(SizeOp, Box<Size>, Box<Size>),
}

/// How two integers are combined. There is no result if it exceeds `int64`, or if a divisor is not
/// positive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SizeOp {
    /// The sum.
    Add,
    /// The difference.
    Sub,
    /// The product.
    Mul,
    /// The quotient, rounded down.
    FloorDiv,
    /// The remainder of that.
    FloorMod,
    /// The smaller one.
    Min,
    /// The larger one.
    Max,
}

impl Size {
    /// An extent, by what its variables are; `None` if it is none that the verifier accepts.
    pub fn of(extent: &PrimExpr, dims: &BTreeMap<VarId, Size>) -> Option<Size> {
        match extent {
            PrimExpr::Int { value, .. } => Some(Size::Constant(*value)),
            PrimExpr::Var { var, .. } => dims.get(var).cloned(),
            PrimExpr::Binary { op, lhs, rhs } => {
                let op = match op {
                    BinaryOp::Add => SizeOp::Add,
                    BinaryOp::Sub => SizeOp::Sub,
                    BinaryOp::Mul => SizeOp::Mul,
                    BinaryOp::FloorDiv => SizeOp::FloorDiv,
                    BinaryOp::FloorMod => SizeOp::FloorMod,
                    BinaryOp::Min => SizeOp::Min,
                    BinaryOp::Max => SizeOp::Max,
                    BinaryOp::Div
                    | BinaryOp::Rem
                    | BinaryOp::And
                    | BinaryOp::Or
                    | BinaryOp::Xor
                    | BinaryOp::Shl
                    | BinaryOp::Shr => return None,
                };
                let (lhs, rhs) = (Size::of(lhs, dims)?, Size::of(rhs, dims)?);
                Some(Size::Binary(op, Box::new(lhs), Box::new(rhs)))
            }
            _ => None,
        }
    }
}
