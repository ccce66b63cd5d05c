//! What the tensor expressions of operators are given, and share.

use std::fmt;

use serde::de::DeserializeOwned;

use super::Op;
use crate::graph::TypeError;
use crate::ir::{Attrs, DType, Dim};
use crate::te::{ComputeDag, StageId};
use crate::tir::{BinaryOp, PrimExpr};

/// Why an operator has no tensor expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ComputeError(pub String);

impl fmt::Display for ComputeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ComputeError {}

impl From<TypeError> for ComputeError {
    fn from(error: TypeError) -> ComputeError {
        ComputeError(error.to_string())
    }
}

/// A call whose result is being described.
pub struct Compute<'a> {
    /// Where its stages go.
    pub dag: &'a mut ComputeDag,
    /// The operator.
    pub op: Op,
    /// Its attributes.
    pub attrs: &'a Attrs,
    /// Its arguments.
    pub args: &'a [Option<StageId>],
    /// Extents and data types of the results, as inferred.
    pub results: &'a [(Vec<i64>, DType)],
    /// Axes of the first result whose extents a run says: those are the greatest, or others that it may say,
    /// and what an element is made of must not depend on them.
    pub open_axes: &'a [usize],
    /// Such axes of each argument.
    pub open_args: &'a [Vec<usize>],
    /// The number that an expression of sizes is; `None` if nothing is known of one.
    pub sizes: &'a dyn Fn(&Dim) -> Option<i64>,
    /// Whether the result is in the memory of the first argument: a statement stores what differs.
    pub in_place: bool,
}

/// The stage of each result of a call.
pub type Stages = Result<Vec<StageId>, ComputeError>;

impl Compute<'_> {
    /// The attributes as the operator's struct.
    ///
    /// # Errors
    ///
    /// If they do not fit.
    pub fn attrs<T: DeserializeOwned>(&self) -> Result<T, ComputeError> {
        self.attrs.parse().map_err(|error| ComputeError(format!("`{}`: {error}", self.op)))
    }

    /// An argument that the type relation requires.
    ///
    /// # Errors
    ///
    /// If it is absent.
    pub fn arg(&self, index: usize) -> Result<StageId, ComputeError> {
        self.optional(index)
            .ok_or_else(|| ComputeError(format!("input {index} of `{}` is missing", self.op)))
    }

    /// An argument that may be absent.
    pub fn optional(&self, index: usize) -> Option<StageId> {
        self.args.get(index).copied().flatten()
    }

    /// Extents and data type of the first result.
    pub fn result(&self) -> (Vec<i64>, DType) {
        self.results[0].clone()
    }

    /// The error of a call for which there is no tensor expression yet.
    ///
    /// # Errors
    ///
    /// Always.
    pub fn unsupported<T>(&self, what: impl fmt::Display) -> Result<T, ComputeError> {
        Err(ComputeError(format!("no code can be generated for `{}` {what} yet", self.op)))
    }

    /// What an attribute says in terms of sizes, as an operand: if a run says it, nothing is folded with it,
    /// so that expressions have the same form for all sizes.
    ///
    /// # Errors
    ///
    /// If nothing is known of one of the sizes.
    pub fn size(&self, dim: &Dim) -> Result<PrimExpr, ComputeError> {
        match (self.sizes)(dim) {
            Some(size) => Ok(extent_of(size, !dim.is_const())),
            None => self.unsupported(format!("with the unknown size {dim}")),
        }
    }

    /// An index into one of `rank` dimensions, counted from either end.
    ///
    /// # Errors
    ///
    /// If it is out of range.
    pub fn axis(&self, axis: i64, rank: usize) -> Result<usize, ComputeError> {
        crate::ir::normalize_axis(axis, rank)
            .ok_or_else(|| ComputeError(format!("axis {axis} of `{}` is out of range", self.op)))
    }

    /// A result computed element by element: `body` is given the element's index.
    ///
    /// # Errors
    ///
    /// None.
    pub fn element(
        &mut self,
        body: impl FnOnce(&mut ComputeDag, &[PrimExpr]) -> PrimExpr,
    ) -> Stages {
        let (shape, dtype) = self.result();
        Ok(vec![self.dag.compute(self.op.name, &shape, dtype, body)])
    }
}

/// `a * b + c` of one operator, in one rounding where floats of that type are computed in.
///
/// This is how an operator's own definition asks for a fused multiply-add. Products and sums of
/// different operators are never contracted: `sqrt(mean(x * x) - mean(x) * mean(x))` has to see both
/// products rounded alike.
pub(super) fn multiply_add(a: PrimExpr, b: PrimExpr, c: PrimExpr) -> PrimExpr {
    match a.dtype() {
        DType::F32 | DType::F64 => PrimExpr::mul_add(a, b, c),
        _ => a * b + c,
    }
}

/// The index into a tensor that is broadcast, in numpy's manner, to a result of those extents and
/// that index. An axis that is not repeated keeps its index, even if it has one element.
pub(crate) fn broadcast(shape: &[i64], result: &[i64], index: &[PrimExpr]) -> Vec<PrimExpr> {
    let skip = index.len() - shape.len().min(index.len());
    shape
        .iter()
        .zip(&result[skip..])
        .zip(&index[skip..])
        .map(|((&extent, &to), i)| if extent == to { i.clone() } else { PrimExpr::index(0) })
        .collect()
}

/// Whether `low <= index < high`.
pub(super) fn within(index: &PrimExpr, low: i64, high: i64) -> PrimExpr {
    index.clone().greater_equal(low).and(index.clone().less(high))
}

/// The extent of an axis as an operand. If a run may say another one (see [`Compute::open_axes`]),
/// nothing is folded with it, so that expressions of it have the same form for all extents.
pub(super) fn extent_of(extent: i64, is_open: bool) -> PrimExpr {
    let (extent, zero) = (PrimExpr::index(extent), PrimExpr::index(0));
    match is_open {
        true => PrimExpr::Binary { op: BinaryOp::Add, lhs: Box::new(extent), rhs: Box::new(zero) },
        false => extent,
    }
}
