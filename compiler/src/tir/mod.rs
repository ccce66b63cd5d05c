//! The loop IR: statements and scalar or vector expressions over buffers.
//!
//! A [`PrimFunc`] is one kernel. Its body is an owned tree of [`Stmt`] and [`PrimExpr`]; buffers
//! and variables are declared in arenas of the function and named by [`BufferId`] and [`VarId`].
//! Indices are logical, one for each axis of the buffer, until `FlattenBuffer` makes them one
//! physical position.
//!
//! Numerics are defined here: [`scalar`] has the semantics of operators, which constant folding and
//! the interpreter share; code generators neither contract nor reassociate.

mod access;
mod address;
mod affine;
mod analyzer;
pub(crate) mod border;
mod build;
mod copy;
mod entities;
mod expr;
pub(crate) mod extent;
mod func;
mod interp;
mod lanes;
mod lower;
mod parse;
pub(crate) mod print;
pub(crate) mod region;
pub mod scalar;
pub(crate) mod stmt;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
pub mod transform;
mod ty;
mod verify;
mod visit;

pub(crate) use affine::{Affine, Bounds, Range};
pub use analyzer::Analyzer;
pub use entities::{Buffer, BufferId, BufferScope, Param, ParamKind, VarDecl, VarId};
pub use expr::{BinaryOp, CompareOp, FloatImm, Intrinsic, PrimExpr, UnaryOp};
pub use func::{EXTERNAL_SYMBOL_ATTR, PrimFunc, PrimFuncData};
pub use interp::{InterpError, interpret};
pub use lower::{ADD_LOWER_PASS, Lowering, lower, pipeline};
pub use parse::{ParseError, parse};
pub(crate) use parse::{ParsedFunc, parse_at};
pub(crate) use print::print_as;
pub use print::print_with_errors;
pub use stmt::{Annotations, BlockIter, BlockRealize, ForKind, IterKind, Stmt};
pub(crate) use stmt::{MATRIX_BYTES, MATRIX_GRID, MATRIX_ROWS, MATRIX_STEP, MATRIX_SUMS};
pub use ty::PrimType;
pub use verify::{VerifyError, verify};

/// Deepest nesting of statements and expressions together.
///
/// Owned trees are walked by recursion. An unoptimised frame takes up to a few KiB and build
/// scripts run on threads of 2 MiB. A fused chain of operators that would nest deeper (a `Let` is a
/// level, too) is cut by a store.
pub const MAX_DEPTH: usize = 200;
