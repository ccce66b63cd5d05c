//! Dense layers of one tensor, as one dense layer.

use super::calls::op_of;
use super::combine::{Root, combine};
use crate::graph::{Call, ExprId, Function};
use crate::ir::IRModule;
use crate::ops::Op;
use crate::ops::nn::{DENSE, MATMUL, MatmulAttrs};
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

crate::register_pass_config_option! {
    /// Fewest dense layers of one tensor that are combined.
    pub MIN_DENSE_BRANCHES: usize = "relay.CombineParallelDense.min_num_branches", default = 3;
}

/// Combines dense layers that read the same tensor into one with the weights of all.
///
/// So too products with matrices on the right. Each result is a slice of the whole; what follows
/// element by element in all branches alike, such as a bias, is done before the slices are taken.
/// Queries, keys and values of attention are such.
#[function_pass(opt_level = 4, required = [InferType])]
pub fn combine_parallel_dense(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    combine(function, cx, cx.get(&MIN_DENSE_BRANCHES), |function, id| {
        let Some((op, call)) = op_of(function.expr(id)) else { return Ok(None) };
        let rank = |id: ExprId| function.ty(id).as_tensor().map_or(0, |ty| ty.shape.rank());
        let Some(result_axis) = rank(id).checked_sub(1) else { return Ok(None) };
        if op.is(&DENSE) {
            return Ok(Some(Root { joined: vec![(1, 0)], axis: result_axis }));
        }
        matrix_product(function, op, call, result_axis, |rank| rank == 2)
    })
}

/// A product of matrices, if the number of axes of the one on the right is right, and its columns can
/// be put together.
pub(super) fn matrix_product(
    function: &Function,
    op: Op,
    call: &Call,
    result_axis: usize,
    takes: impl Fn(usize) -> bool,
) -> Result<Option<Root>> {
    if !op.is(&MATMUL) {
        return Ok(None);
    }
    let MatmulAttrs { transpose_b, .. } = call.attrs.parse()?;
    let rank = |index: usize| {
        let arg = call.args.get(index).copied().flatten()?;
        Some(function.ty(arg).as_tensor()?.shape.rank())
    };
    let (Some(of_b), Some(of_a)) = (rank(1), rank(0)) else { return Ok(None) };
    if !takes(of_b) || of_a < 2 {
        return Ok(None);
    }
    let axis = if transpose_b { of_b - 2 } else { of_b - 1 };
    Ok(Some(Root { joined: vec![(1, axis)], axis: result_axis }))
}
