//! Types of tir values: a data type and a number of lanes.

use std::fmt;

use crate::ir::DType;

/// A scalar (one lane) or vector type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PrimType {
    /// Type of each lane.
    pub dtype: DType,
    /// Number of lanes, at least 1.
    pub lanes: u32,
}

impl PrimType {
    /// The type of dimensions and blocks' variables, and of indices and loop variables unless
    /// `NarrowDataType` has made them `int32`.
    pub const INDEX: PrimType = PrimType::scalar(DType::I64);
    /// The type of scalar conditions.
    pub const BOOL: PrimType = PrimType::scalar(DType::Bool);

    /// One value of `dtype`.
    pub const fn scalar(dtype: DType) -> Self {
        PrimType { dtype, lanes: 1 }
    }

    /// `lanes` values of `dtype`.
    pub const fn vector(dtype: DType, lanes: u32) -> Self {
        PrimType { dtype, lanes }
    }

    /// Whether there is one lane.
    pub fn is_scalar(self) -> bool {
        self.lanes == 1
    }

    /// Whether indices and loop variables may be of this type: scalar `int64` or `int32`.
    pub fn is_index(self) -> bool {
        self.is_scalar() && matches!(self.dtype, DType::I64 | DType::I32)
    }

    /// The same lanes of another data type.
    pub fn with_dtype(self, dtype: DType) -> Self {
        PrimType { dtype, ..self }
    }

    /// The same data type with another number of lanes.
    pub fn with_lanes(self, lanes: u32) -> Self {
        PrimType { lanes, ..self }
    }

    /// Width of the whole value in bits.
    pub fn bits(self) -> u64 {
        u64::from(self.dtype.bits()) * u64::from(self.lanes)
    }
}

impl From<DType> for PrimType {
    fn from(dtype: DType) -> Self {
        PrimType::scalar(dtype)
    }
}

/// `float32`, `float32x16`.
impl fmt::Display for PrimType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lanes {
            1 => write!(f, "{}", self.dtype),
            lanes => write!(f, "{}x{lanes}", self.dtype),
        }
    }
}
