//! Operators of neural networks, under Relay's `nn.`.

mod batch_norm;
mod bias_add;
mod conv;
mod dense;
mod dropout;
mod global_pool;
mod group_norm;
mod layer_norm;
mod lrn;
mod matmul;
mod max_pool_indices;
mod non_max_suppression;
mod pad;
mod pool;
mod rms_norm;
mod roi_align;
mod softmax;
mod space_to_batch;
mod window;
mod winograd;

pub use batch_norm::{BATCH_NORM, BatchNormAttrs};
pub use bias_add::{BIAS_ADD, BiasAddAttrs};
pub(crate) use conv::is_narrow;
pub use conv::{CONV1D, CONV2D, CONV3D, ConvAttrs, conv};
pub use dense::DENSE;
pub use dropout::{DROPOUT, DropoutAttrs};
pub use global_pool::{GLOBAL_AVG_POOL2D, GLOBAL_MAX_POOL2D};
pub use group_norm::{GROUP_NORM, GroupNormAttrs, INSTANCE_NORM, InstanceNormAttrs};
pub use layer_norm::{LAYER_NORM, LayerNormAttrs};
pub use lrn::{LRN, LrnAttrs};
pub use matmul::{MATMUL, MatmulAttrs};
pub use max_pool_indices::{MAX_POOL_INDICES, MaxPoolIndicesAttrs};
pub use non_max_suppression::{NON_MAX_SUPPRESSION, NonMaxSuppressionAttrs};
pub use pad::{PAD, PadAttrs, PadMode};
pub use pool::{
    AVG_POOL1D, AVG_POOL2D, AVG_POOL3D, AvgPoolAttrs, MAX_POOL1D, MAX_POOL2D, MAX_POOL3D,
    MaxPoolAttrs, avg_pool, max_pool,
};
pub use rms_norm::{L2_NORMALIZE, L2NormalizeAttrs, RMS_NORM, RmsNormAttrs};
pub use roi_align::{ROI_ALIGN, RoiAlignAttrs, RoiAlignMode};
pub use softmax::{LOG_SOFTMAX, SOFTMAX, SoftmaxAttrs};
pub use space_to_batch::{
    BATCH_TO_SPACE_ND, BatchToSpaceAttrs, SPACE_TO_BATCH_ND, SpaceToBatchAttrs,
};
pub use window::{AxisWindow, Window};
pub use winograd::{CONV2D_WINOGRAD, WinogradConv2dAttrs};

pub use crate::te::topi::winograd::Winograd;

use super::{Input, Op};

/// Whether an operator goes over its first argument, `(N, C, spatial…)`, in windows.
pub(crate) fn has_windows(op: Op) -> bool {
    let of_rank = |rank| [conv(rank), max_pool(rank), avg_pool(rank)].into_iter().flatten();
    (1..=3).flat_map(of_rank).chain([&MAX_POOL_INDICES]).any(|def| op.is(def))
}

/// The inputs of an operator of one argument.
const X: &[Input] = &[Input::required("x")];
