//! Positions, which kernels that compare or add them compute where they need them.

use super::graph::Graph;
use super::is_reshape;
use super::partition::Groups;
use crate::graph::{ExprId, Function};
use crate::ops::OpPattern;
use crate::ops::tensor::ARANGE;
use crate::transform::calls::op_of;

/// Has integers at equal distances, under any shape, computed in the kernel that uses them, if it is
/// one: a mask of a triangle behind a pool or a product.
///
/// TVM's algorithm takes nothing into the epilogue of a convolution that moves elements. These move
/// none, as there are no tensors that they are made of.
pub(super) fn join(groups: &mut Groups, function: &Function, graph: &Graph) {
    for id in graph.ids().rev() {
        if !are_positions(function, id) || graph.is_used_outside(id) || groups.root(id) != id {
            continue;
        }
        let uses = graph.uses(id);
        let Some(user) = uses.first().map(|of| groups.root(of.user)) else { continue };
        let fits = |other: ExprId| {
            groups.root(other) == user && graph.pattern(other) <= OpPattern::Injective
        };
        if uses.iter().all(|of| fits(of.user)) {
            groups.merge(id, user);
        }
    }
}

/// Whether a value is positions alone.
fn are_positions(function: &Function, mut id: ExprId) -> bool {
    while let Some((op, call)) = op_of(function.expr(id)) {
        match call.args.as_slice() {
            [] => return op.is(&ARANGE),
            &[Some(arg)] if is_reshape(op) => id = arg,
            _ => return false,
        }
    }
    false
}
