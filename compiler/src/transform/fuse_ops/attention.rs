//! Attention: two products with the softmax of rows between them.

use cranelift_entity::SecondaryMap;

use super::graph::Graph;
use super::partition::Groups;
use crate::graph::{Call, ExprId, Function};
use crate::ir::{DType, TensorType};
use crate::ops::nn::{MATMUL, MatmulAttrs, SOFTMAX, SoftmaxAttrs};
use crate::transform::calls::op_of;

/// Fewest rows of which the products are one kernel: of fewer, matrices are read where they are.
const MIN_ROWS: i64 = 4;

/// Fewest scores in a row: shorter ones are no work beside what a kernel costs.
const MIN_SCORES: i64 = 8;

/// Joins groups that compute `softmax(q · k) · v`, with what else is computed of the scores, where
/// nothing else reads the scores.
pub(super) fn join(groups: &mut Groups, function: &Function, graph: &Graph) {
    let is_softmax = |id| call_of(function, id).is_some_and(|(op, _)| op.is(&SOFTMAX));
    if !graph.ids().any(is_softmax) {
        return;
    }
    let mut members: SecondaryMap<ExprId, Vec<ExprId>> = SecondaryMap::new();
    for id in graph.ids() {
        members[groups.root(id)].push(id);
    }
    for id in graph.ids() {
        let finder = Finder { groups, function, graph, members: &members };
        if let Some([scores, weights]) = finder.attention(id) {
            groups.merge(scores, id);
            groups.merge(weights, id);
        }
    }
}

fn call_of(function: &Function, id: ExprId) -> Option<(crate::ops::Op, &Call)> {
    op_of(function.expr(id))
}

struct Finder<'a> {
    groups: &'a Groups,
    function: &'a Function,
    graph: &'a Graph,
    /// Of the groups before any are joined.
    members: &'a SecondaryMap<ExprId, Vec<ExprId>>,
}

impl Finder<'_> {
    /// The groups of scores and of weights, if a product is that of the weights with a matrix.
    fn attention(&self, product: ExprId) -> Option<[ExprId; 2]> {
        let weights = self.left_operand(product)?;
        let softmax = self.alone(weights, &[product], |id| {
            let (op, call) = call_of(self.function, id)?;
            let attrs: SoftmaxAttrs = op.is(&SOFTMAX).then(|| call.attrs.parse().ok())??;
            let scores = self.tensor(id)?;
            (scores.shape.axis(attrs.axis) == Some(scores.shape.rank() - 1)).then_some(id)
        })?;
        // What is computed of the scores may be in either group.
        let readers = &self.members[weights];
        let reads = |&id: &ExprId| self.function.expr(id).operands().collect::<Vec<_>>();
        let of_weights = self.tensor(softmax)?;
        let mut operands = readers.iter().flat_map(reads);
        let scores = operands.find(|&id| {
            let is_product = |id| self.left_operand(id).map(|_| id);
            self.graph.contains(id)
                && self.groups.root(id) == id
                && id != weights
                && self.tensor(id) == Some(of_weights)
                && self.alone(id, readers, is_product).is_some()
        })?;
        let rank = of_weights.shape.rank();
        let result = self.tensor(product)?;
        let is_one_batch = result.shape.rank() == rank
            && (0..rank - 1).all(|axis| result.shape[axis] == of_weights.shape[axis]);
        let at_least = |axis: usize, least: i64| {
            of_weights.shape[axis].as_const().is_none_or(|extent| extent >= least)
        };
        let pays = at_least(rank - 2, MIN_ROWS) && at_least(rank - 1, MIN_SCORES);
        (is_one_batch && pays).then_some([scores, weights])
    }

    fn tensor(&self, id: ExprId) -> Option<&TensorType> {
        self.function.ty(id).as_tensor()
    }

    /// The left operand of a product of matrices of `float32`.
    fn left_operand(&self, id: ExprId) -> Option<ExprId> {
        let (op, call) = call_of(self.function, id)?;
        let attrs: MatmulAttrs = op.is(&MATMUL).then(|| call.attrs.parse().ok())??;
        let &[Some(lhs), Some(rhs)] = call.args.as_slice() else { return None };
        let is_float =
            |id| self.tensor(id).is_some_and(|ty| ty.dtype == DType::F32 && ty.shape.rank() >= 2);
        (!attrs.transpose_a && is_float(lhs) && is_float(rhs)).then_some(lhs)
    }

    /// What `of` finds of the only member of the group of `id` that has an elements' order of its own, if
    /// `id` is the group's result and only `readers` read it.
    fn alone<T>(
        &self,
        id: ExprId,
        readers: &[ExprId],
        of: impl Fn(ExprId) -> Option<T>,
    ) -> Option<T> {
        let is_result = self.graph.contains(id) && self.groups.root(id) == id;
        let mut uses = self.graph.uses(id).iter();
        if !is_result
            || self.graph.is_used_outside(id)
            || !uses.all(|used| readers.contains(&used.user))
        {
            return None;
        }
        let is_anchor = |id: &&ExprId| self.graph.pattern(**id) > crate::ops::OpPattern::Broadcast;
        let mut anchors = self.members[id].iter().filter(is_anchor);
        match (anchors.next(), anchors.next()) {
            (Some(&anchor), None) => of(anchor),
            _ => None,
        }
    }
}
