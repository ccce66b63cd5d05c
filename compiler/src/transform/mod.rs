//! Graph passes, one file each; the file's name is the pass's name.

mod apply_winograd;
mod channels;
mod conv1d_to_conv2d;
mod dead_code_elimination;
mod eliminate_common_subexpr;
mod fold_constant;
mod fold_scale_axis;
mod fuse_ops;
mod infer_type;
mod outline_primitives;
pub mod pipeline;
mod promote_low_precision;
mod remove_unused_functions;
mod simplify_inference;

pub use apply_winograd::{ApplyWinograd, MAX_TILE, apply_winograd};
pub use conv1d_to_conv2d::{Conv1dToConv2d, conv1d_to_conv2d};
pub use dead_code_elimination::{DeadCodeElimination, INLINE_ONCE, dead_code_elimination};
pub use eliminate_common_subexpr::{
    EliminateCommonSubexpr, eliminate_common_subexpr, eliminate_common_subexpr_except,
};
pub use fold_constant::{FoldConstant, MAX_GROWN_BYTES, fold_constant};
pub use fold_scale_axis::{FoldScaleAxis, fold_scale_axis};
pub use fuse_ops::{FuseOps, LINK_PARAMS, MAX_DEPTH, fuse_ops};
pub use infer_type::{InferType, infer_type};
pub use outline_primitives::{OutlinePrimitives, outline_primitives};
pub use promote_low_precision::{PromoteLowPrecision, promote_low_precision};
pub use remove_unused_functions::{
    ENTRY_FUNCTIONS, RemoveUnusedFunctions, remove_unused_functions,
};
pub use simplify_inference::{SimplifyInference, simplify_inference};

#[cfg(test)]
pub(crate) mod tests;
