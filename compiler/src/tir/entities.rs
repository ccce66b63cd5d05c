//! What a loop function declares: buffers and variables.

use cranelift_entity::entity_impl;

use super::PrimType;
use crate::ir::{BufferSpec, DType};

/// A buffer of one function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(u32);
entity_impl!(BufferId, "b");

/// A variable of one function: a dimension, a loop variable or a `Let`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VarId(u32);
entity_impl!(VarId, "v");

/// Where a buffer lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BufferScope {
    /// A parameter of the function.
    Param,
    /// Scratch memory, valid inside its `Allocate`; undefined until stored to.
    Local,
    /// Registers, valid inside its `Allocate`. After unrolling, every index is constant and every
    /// access to one buffer has the same number of lanes, aligned to it.
    Register,
}

/// A tensor in memory or in registers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Buffer {
    /// For people; unique only after printing.
    pub name: String,
    /// Type of the elements.
    pub dtype: DType,
    /// Logical extents and physical layout.
    pub spec: BufferSpec,
    /// Where it lives.
    pub scope: BufferScope,
}

impl Buffer {
    /// Logical extents.
    pub fn shape(&self) -> &[i64] {
        self.spec.shape()
    }
}

/// A variable. Scalar loop variables and dimensions are `int64`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct VarDecl {
    /// For people; unique only after printing.
    pub name: String,
    /// Its type.
    pub ty: PrimType,
}

/// What a parameter is to the caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ParamKind {
    /// A tensor computed before the call; only read.
    Input,
    /// A tensor known at build time and stored in the buffer's layout; only read.
    Constant,
    /// A tensor the function computes: written, and read only after it was written.
    Output,
}

/// A parameter of a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Param {
    /// Its buffer, of scope [`BufferScope::Param`].
    pub buffer: BufferId,
    /// What it is to the caller.
    pub kind: ParamKind,
}
