//! Graph passes, one file each; the file's name is the pass's name.

mod channels;
mod dead_code_elimination;
mod eliminate_common_subexpr;
mod fold_constant;
mod infer_type;
mod remove_unused_functions;
mod simplify_inference;

pub use dead_code_elimination::{DeadCodeElimination, INLINE_ONCE, dead_code_elimination};
pub use eliminate_common_subexpr::{
    EliminateCommonSubexpr, eliminate_common_subexpr, eliminate_common_subexpr_except,
};
pub use fold_constant::{FoldConstant, MAX_GROWN_BYTES, fold_constant};
pub use infer_type::{InferType, infer_type, types_hold};
pub use remove_unused_functions::{
    ENTRY_FUNCTIONS, RemoveUnusedFunctions, remove_unused_functions,
};
pub use simplify_inference::{SimplifyInference, simplify_inference};

#[cfg(test)]
mod tests;
