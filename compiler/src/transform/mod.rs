//! Graph passes, one file each; the file's name is the pass's name.

mod alter_op_layout;
mod annotate_target;
mod apply_winograd;
mod backward_fold_scale_axis;
mod calls;
mod canonicalize_cast;
mod canonicalize_ops;
mod channels;
mod combine;
mod combine_parallel_batch_matmul;
mod combine_parallel_conv2d;
mod combine_parallel_dense;
mod compile_trees;
mod conv1d_to_conv2d;
mod conv3d_to_conv2d;
mod convert_layout;
mod dead_code_elimination;
mod defuse_ops;
mod div_to_mul;
mod eliminate_common_subexpr;
mod eta_expand;
mod external;
mod fake_quantization_to_integer;
mod flatten_atrous_conv;
mod flatten_rows;
mod fold_constant;
mod fold_explicit_padding;
mod fold_scale_axis;
mod fold_space_to_depth;
mod forward_fold_scale_axis;
mod fuse_ops;
mod group_conv2d_to_matmul;
mod infer_type;
mod inline;
mod lambda_lift;
mod layers;
mod legalize;
mod merge_compiler_regions;
mod merge_composite;
mod outline_primitives;
mod partition_graph;
pub mod pipeline;
mod plan_devices;
mod plan_layouts;
mod promote_low_precision;
mod relayout;
mod remove_unused_functions;
mod simplify_expr;
mod simplify_inference;
mod strides_optimization;
mod to_a_normal_form;
mod to_basic_block_normal_form;
mod to_graph_normal_form;
mod to_mixed_precision;

pub use alter_op_layout::{AlterOpLayout, CHANNEL_BLOCK, alter_op_layout};
pub use annotate_target::{AnnotateTarget, EXTERNAL_DEVICES, EXTERNAL_TARGETS, annotate_target};
pub use apply_winograd::{ApplyWinograd, MAX_TILE, MEASURED_ALGORITHMS, apply_winograd};
pub use backward_fold_scale_axis::{BackwardFoldScaleAxis, backward_fold_scale_axis};
pub use canonicalize_cast::{CanonicalizeCast, canonicalize_cast};
pub use canonicalize_ops::{CanonicalizeOps, canonicalize_ops};
pub use combine_parallel_batch_matmul::{
    CombineParallelBatchMatmul, MIN_BATCH_MATMUL_BRANCHES, combine_parallel_batch_matmul,
};
pub use combine_parallel_conv2d::{
    CombineParallelConv2d, MIN_CONV2D_BRANCHES, combine_parallel_conv2d,
};
pub use combine_parallel_dense::{
    CombineParallelDense, MIN_DENSE_BRANCHES, combine_parallel_dense,
};
pub use compile_trees::{CompileTrees, compile_trees};
pub use conv1d_to_conv2d::{Conv1dToConv2d, conv1d_to_conv2d};
pub use conv3d_to_conv2d::{Conv3dToConv2d, conv3d_to_conv2d};
pub use convert_layout::{ConvertLayout, DESIRED_LAYOUTS, convert_layout};
pub use dead_code_elimination::{DeadCodeElimination, INLINE_ONCE, dead_code_elimination};
pub use defuse_ops::{DefuseOps, defuse_ops};
pub use div_to_mul::{DivToMul, div_to_mul};
pub use eliminate_common_subexpr::{
    EliminateCommonSubexpr, FSKIP, eliminate_common_subexpr, eliminate_common_subexpr_except,
};
pub use eta_expand::{EtaExpand, eta_expand};
pub use fake_quantization_to_integer::{FakeQuantizationToInteger, fake_quantization_to_integer};
pub use flatten_atrous_conv::{FlattenAtrousConv, flatten_atrous_conv};
pub use flatten_rows::{FlattenRows, flatten_rows};
pub use fold_constant::{FoldConstant, MAX_GROWN_BYTES, fold_constant};
pub use fold_explicit_padding::{FoldExplicitPadding, fold_explicit_padding};
pub use fold_scale_axis::{FoldScaleAxis, fold_scale_axis};
pub use fold_space_to_depth::{FoldSpaceToDepth, fold_space_to_depth};
pub use forward_fold_scale_axis::{ForwardFoldScaleAxis, forward_fold_scale_axis};
pub use fuse_ops::{FuseOps, LINK_PARAMS, MAX_DEPTH, fuse_ops};
pub use group_conv2d_to_matmul::{GroupConv2dToMatmul, group_conv2d_to_matmul};
pub use infer_type::{InferType, infer_type};
pub use inline::{Inline, inline};
pub use lambda_lift::{LambdaLift, lambda_lift};
pub use legalize::{LACKING, Legalize, legalize};
pub use merge_compiler_regions::{APART, MergeCompilerRegions, merge_compiler_regions};
pub use merge_composite::{COMPOSITE_PATTERNS, MergeComposite, merge_composite};
pub use outline_primitives::{OutlinePrimitives, outline_primitives};
pub use partition_graph::{PartitionGraph, partition_graph};
pub use plan_devices::{FALLBACK_DEVICE, PlanDevices, plan_devices};
pub use plan_layouts::{PlanLayouts, VECTOR_BITS, plan_layouts};
pub use promote_low_precision::{PromoteLowPrecision, promote_low_precision};
pub use remove_unused_functions::{
    ENTRY_FUNCTIONS, RemoveUnusedFunctions, remove_unused_functions,
};
pub use simplify_expr::{SimplifyExpr, simplify_expr};
pub use simplify_inference::{SimplifyInference, UNPACK_LAYER_NORM, simplify_inference};
pub use strides_optimization::{StridesOptimization, strides_optimization};
pub use to_a_normal_form::{ToANormalForm, to_a_normal_form};
pub use to_basic_block_normal_form::{ToBasicBlockNormalForm, to_basic_block_normal_form};
pub use to_graph_normal_form::{ToGraphNormalForm, to_graph_normal_form};
pub use to_mixed_precision::{
    Conversion, KEEP_ORIG_OUTPUT_DTYPE, MIXED_PRECISION_OPS, MIXED_PRECISION_TYPE,
    ToMixedPrecision, to_mixed_precision,
};

#[cfg(test)]
pub(crate) mod tests;
