//! Declarations of a loop function: buffers and variables.

use cranelift_entity::entity_impl;

use super::print::expr_text;
use super::{PrimExpr, PrimFuncData, PrimType};
use crate::ir::{BufferSpec, DType};

/// A buffer of one function.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(u32);
entity_impl!(BufferId, "b");

/// A variable of one function: a dimension, a loop variable or a `Let`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VarId(u32);
entity_impl!(VarId, "v");

/// The kind of memory of a buffer.
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
    /// The name, for people; made unique when printed.
    pub name: String,
    /// Type of the elements.
    pub dtype: DType,
    /// Logical extents and physical layout. An extent that is not constant is
    /// [`SYMBOLIC`](Self::SYMBOLIC) here.
    pub spec: BufferSpec,
    /// All extents, if one of them is not constant: sums, products, quotients and minima of the
    /// function's dimensions. Such a buffer is row-major without gaps.
    pub symbolic: Option<Vec<PrimExpr>>,
    /// The kind of memory.
    pub scope: BufferScope,
}

impl Buffer {
    /// Stands for a symbolic extent in a layout. No layout has negative extents, so code that needs
    /// constant extents fails on such a buffer or skips it.
    pub const SYMBOLIC: i64 = -1;

    /// A row-major buffer without gaps; extents may be expressions over dimensions.
    pub fn dense(
        name: impl Into<String>,
        dtype: DType,
        extents: Vec<PrimExpr>,
        scope: BufferScope,
    ) -> Self {
        let spec = BufferSpec::dense(&[]);
        let mut buffer = Buffer { name: name.into(), dtype, spec, symbolic: None, scope };
        buffer.set_extents(extents);
        buffer
    }

    /// Logical extents; [`SYMBOLIC`](Self::SYMBOLIC) where one is not constant.
    pub fn shape(&self) -> &[i64] {
        self.spec.shape()
    }

    /// Logical extents.
    pub fn extents(&self) -> Vec<PrimExpr> {
        let constant = || self.shape().iter().copied().map(PrimExpr::index).collect();
        self.symbolic.clone().unwrap_or_else(constant)
    }

    /// Makes the buffer row-major, without gaps, and of other extents.
    pub fn set_extents(&mut self, extents: Vec<PrimExpr>) {
        self.spec = BufferSpec::dense(&constants(&extents));
        self.symbolic = self.shape().contains(&Self::SYMBOLIC).then_some(extents);
    }

    /// The extents that are not constant, as text for people: `m, 2 * n`.
    pub(crate) fn symbolic_text(&self, func: &PrimFuncData) -> String {
        let unknown = |extent: &&PrimExpr| extent.as_int().is_none();
        let extents = self.symbolic.iter().flatten().filter(unknown);
        extents.map(|extent| expr_text(func, extent)).collect::<Vec<_>>().join(", ")
    }
}

/// Extents in the form of a layout, with [`SYMBOLIC`](Buffer::SYMBOLIC) for those that are not
/// constant.
fn constants(extents: &[PrimExpr]) -> Vec<i64> {
    extents.iter().map(|extent| extent.as_int().unwrap_or(Buffer::SYMBOLIC)).collect()
}

/// A variable. Scalar loop variables and dimensions are `int64`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct VarDecl {
    /// The name, for people; made unique when printed.
    pub name: String,
    /// Its type.
    pub ty: PrimType,
}

/// The role of a parameter.
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
    /// Its role.
    pub kind: ParamKind,
}
