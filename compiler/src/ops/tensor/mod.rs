//! Operators that move elements, or tell about a tensor, with at most the plainest arithmetic on its
//! elements.

mod append;
mod arange;
mod broadcast_to;
mod concatenate;
mod cumulative;
mod device;
mod full;
mod gather;
mod grid_sample;
mod layout_transform;
mod one_hot;
mod reshape;
mod resize2d;
mod scatter;
mod shape_of;
mod split;
mod stop_fusion;
mod strided_slice;
mod take;
mod topk;
mod transpose;
mod tree_sum;
mod tree_traverse;
mod truncate;

pub use append::{APPEND, AppendAttrs};
pub use arange::{ARANGE, ArangeAttrs};
pub use broadcast_to::{BROADCAST_TO, BroadcastToAttrs};
pub use concatenate::{CONCATENATE, ConcatenateAttrs};
pub use cumulative::{CUMPROD, CUMSUM, CumulativeAttrs};
pub use device::{DEVICE_COPY, DeviceCopyAttrs, ON_DEVICE, OnDeviceAttrs};
pub use full::{FULL, FullAttrs};
pub use gather::{GATHER, GATHER_ND, GatherAttrs, GatherNdAttrs};
pub use grid_sample::{GRID_SAMPLE, GridCoordinates, GridPadding, GridSampleAttrs};
pub(super) use layout_transform::index_before;
pub use layout_transform::{LAYOUT_TRANSFORM, LayoutTransformAttrs};
pub use one_hot::{ONE_HOT, OneHotAttrs};
pub use reshape::{EXPAND_DIMS, ExpandDimsAttrs, RESHAPE, ReshapeAttrs, SQUEEZE, SqueezeAttrs};
pub(crate) use resize2d::fraction;
pub use resize2d::{
    CoordinateTransformation, NearestRounding, RESIZE2D, Resize2dAttrs, ResizeMethod,
};
pub use scatter::{
    SCATTER_ELEMENTS, SCATTER_ND, ScatterElementsAttrs, ScatterNdAttrs, ScatterReduction,
};
pub use shape_of::{NDARRAY_SIZE, SHAPE_OF, ShapeOfAttrs};
pub use split::{SPLIT, SplitAttrs};
pub use stop_fusion::STOP_FUSION;
pub use strided_slice::{STRIDED_SLICE, StridedSliceAttrs};
pub use take::{TAKE, TakeAttrs, TakeMode};
pub use topk::{TOPK, TopkAttrs};
pub use transpose::{TRANSPOSE, TransposeAttrs};
pub use tree_sum::{CHAINS, MAX_TREE_DEPTH, MAX_WRITTEN_DEPTH, TREE_SUM, TreeForm, TreeSumAttrs};
pub use tree_traverse::{TREE_TRAVERSE, TreeTraverseAttrs};
pub(super) use truncate::size_of;
pub use truncate::{TRUNCATE, TruncateAttrs};

use super::{Input, Op};
use crate::ir::DType;
use crate::tir::PrimExpr;

/// The inputs of an operator of one argument.
const X: &[Input] = &[Input::required("x")];

/// Whether an operator changes some elements of its first argument:
/// [`Compute::in_place`](super::Compute::in_place) is for these.
pub(crate) fn is_update(op: Op) -> bool {
    [&SCATTER_ELEMENTS, &SCATTER_ND, &APPEND].iter().any(|def| op.is(def))
}

/// A position that is data, such that it does not lead outside of the tensor.
fn clamped(which: PrimExpr, extent: i64) -> PrimExpr {
    PrimExpr::index(0).max(which).min(extent - 1)
}

/// The nearest position of a tensor to an index that is data.
fn nearest(index: PrimExpr, extent: i64) -> PrimExpr {
    let is_positive = !index.dtype().is_signed_int() && index.dtype().bits() < 64;
    let index = index.cast(DType::I64);
    if is_positive { index.min(extent - 1) } else { clamped(index, extent) }
}

/// An index that is data, as a position; a negative one counts from the end.
fn from_either_end(which: PrimExpr, extent: impl Into<PrimExpr>) -> PrimExpr {
    let is_signed = which.dtype().is_signed_int();
    let which = which.cast(DType::I64);
    if !is_signed {
        return which;
    }
    let from_end = which.clone() + extent.into();
    PrimExpr::select(which.clone().less(0), from_end, which)
}
