//! Products of one stack of matrices with others, as one product.

use super::calls::op_of;
use super::combine::combine;
use super::combine_parallel_dense::matrix_product;
use crate::graph::{ExprId, Function};
use crate::ir::IRModule;
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

crate::register_pass_config_option! {
    /// Fewest products of one stack of matrices that are combined.
    pub MIN_BATCH_MATMUL_BRANCHES: usize = "relay.CombineParallelBatchMatmul.min_num_branches",
        default = 3;
}

/// Combines products of the same stack of matrices into one with the columns of all.
///
/// Each result is a slice of the whole; what follows element by element in all branches alike is done
/// before the slices are taken.
#[function_pass(opt_level = 4, required = [InferType])]
pub fn combine_parallel_batch_matmul(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    combine(function, cx, cx.get(&MIN_BATCH_MATMUL_BRANCHES), |function, id: ExprId| {
        let Some((op, call)) = op_of(function.expr(id)) else { return Ok(None) };
        let rank = function.ty(id).as_tensor().map_or(0, |ty| ty.shape.rank());
        match rank.checked_sub(1) {
            Some(axis) => matrix_product(function, op, call, axis, |rank| rank > 2),
            None => Ok(None),
        }
    })
}
