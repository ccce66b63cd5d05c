//! Factors of channels, folded into weights in both directions.

#[cfg(test)]
mod tests;

use crate::ir::IRModule;
use crate::pass::{Pass, PassContext, PassRef, Result, Sequential, module_pass};
use crate::transform::{BackwardFoldScaleAxis, ForwardFoldScaleAxis, InferType};

/// Folds constant factors of channels into weights, backward and forward.
///
/// These are the passes `BackwardFoldScaleAxis` and `ForwardFoldScaleAxis`, in this order.
#[module_pass(opt_level = 3, required = [InferType])]
pub fn fold_scale_axis(module: IRModule, cx: &PassContext) -> Result<IRModule> {
    Sequential::new([PassRef::from(BackwardFoldScaleAxis), ForwardFoldScaleAxis.into()])
        .run(module, cx)
}
