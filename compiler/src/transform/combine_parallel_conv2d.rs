//! Convolutions of one image, as one convolution.

use super::calls::op_of;
use super::combine::{Root, combine};
use crate::graph::{Call, ExprId, Function};
use crate::ir::IRModule;
use crate::ops::Op;
use crate::ops::nn::{CONV2D, ConvAttrs};
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

crate::register_pass_config_option! {
    /// Fewest convolutions of one image that are combined.
    pub MIN_CONV2D_BRANCHES: usize = "relay.CombineParallelConv2D.min_num_branches", default = 3;
}

/// Combines convolutions that read the same image into one with the kernels of all.
///
/// They must have the same attributes, one group, and kernels of one size. Each result is a slice of
/// the whole; what follows element by element in all branches alike is done before the slices are
/// taken. Branches of Inception are such.
#[function_pass(opt_level = 4, required = [InferType])]
pub fn combine_parallel_conv2d(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    combine(function, cx, cx.get(&MIN_CONV2D_BRANCHES), root)
}

fn root(function: &Function, id: ExprId) -> Result<Option<Root>> {
    let plain = |(op, call): &(Op, &Call)| op.is(&CONV2D) && op.is_plain(&call.attrs);
    let Some((_, call)) = op_of(function.expr(id)).filter(plain) else { return Ok(None) };
    let ConvAttrs { groups, .. } = call.attrs.parse()?;
    let mut joined = vec![(1, 0)];
    joined.extend(call.args.get(2).copied().flatten().map(|_| (2, 0)));
    Ok((groups == 1).then_some(Root { joined, axis: 1 }))
}
