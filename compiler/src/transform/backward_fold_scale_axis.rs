//! Factors and summands of what layers compute, folded into the layers.

mod fold;
mod sink;

use crate::graph::Function;
use crate::ir::IRModule;
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

/// Folds constant factors and summands of channels into the layers before them.
///
/// Into the weights and biases of convolutions, dense layers and products with a constant matrix: `conv(x, w, b) · s + t`
/// becomes `conv(x, w · s, b · s + t)`, and `(dense(x, w) + b) · s` becomes
/// `dense(x, w · s) + b · s`, where `s` and `t` have one element for each channel. Factors go through
/// rectifiers and maxima, if they are positive, through means, pads of zeros, and to both operands of
/// a sum: `relu(conv(x, w) + b) · s` becomes `relu(conv(x, w · s) + b · s)`. What lies between must
/// have no other use.
#[function_pass(opt_level = 3, required = [InferType])]
pub fn backward_fold_scale_axis(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    if function.attrs().flag("Primitive") {
        return Ok(function);
    }
    let function = sink::sink(function, cx)?;
    fold::fold(function, cx)
}
