//! Attention: two products with a softmax, or other stages of rows, between them.

use cranelift_entity::SecondaryMap;

use super::graph::Graph;
use super::partition::Groups;
use super::rows::{MIN_ROW, rows_of};
use crate::graph::{ExprId, Function};
use crate::ir::{DType, TensorType};
use crate::ops::nn::{MATMUL, MatmulAttrs};
use crate::ops::tensor::{EXPAND_DIMS, RESHAPE, SQUEEZE, TRANSPOSE};
use crate::ops::{OpDef, OpPattern};
use crate::transform::calls::op_of;

/// Fewest rows of which the products are one kernel: of fewer, matrices are read where they are.
const MIN_ROWS: i64 = 4;

/// Largest matrix that all of a batch share: a larger one is read once only by kernels of their own.
const MAX_SHARED_BYTES: u64 = 256 << 10;

/// Joins groups that compute `softmax(q · k) · v`, or another product of rows that are made of the
/// rows of a product, where nothing else reads what is on the way.
pub(super) fn join(groups: &mut Groups, function: &Function, graph: &Graph) {
    let members = groups.members(graph);
    let mut joined: SecondaryMap<ExprId, bool> = SecondaryMap::new();
    for id in graph.ids() {
        let finder = Finder { groups, function, graph, members: &members };
        // Two products in a kernel, not three.
        if let Some([scores, weights]) = finder.attention(id).filter(|found| !joined[found[0]]) {
            let moved = finder.moved_matrices([scores, id]);
            for group in moved.into_iter().chain([scores, weights]) {
                groups.merge(group, id);
            }
            joined[groups.root(id)] = true;
        }
    }
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
        let readers = self.members[weights].as_slice();
        let is_of_rows = rows_of(self.function, self.graph, readers).is_some_and(|r| r.reduces);
        // As the matrix, too, all rows would be needed for each.
        let is_read_once = self.graph.uses(weights).len() == 1;
        if !is_of_rows || !is_read_once || !self.is_read_by(weights, &[product]) {
            return None;
        }
        let of_weights = self.tensor(weights)?;
        let operands = readers.iter().flat_map(|&id| self.function.expr(id).operands());
        // What is computed of the scores by element may be in either group.
        let scores = operands.into_iter().find(|&id| {
            id != weights
                && self.tensor(id).is_some_and(|ty| ty.shape == of_weights.shape)
                && self.is_read_by(id, readers)
                && self.is_product_by_element(id)
        })?;
        let rank = of_weights.shape.rank();
        let result = self.tensor(product)?;
        let is_one_batch = result.shape.rank() == rank
            && (0..rank - 1).all(|axis| result.shape[axis] == of_weights.shape[axis]);
        let at_least = |axis: usize, least: i64| {
            of_weights.shape[axis].as_const().is_none_or(|extent| extent >= least)
        };
        let pays = at_least(rank - 2, MIN_ROWS) && at_least(rank - 1, MIN_ROW);
        (is_one_batch && pays).then_some([scores, weights])
    }

    /// The groups of right operands of products, given by their groups, that do nothing but change the order
    /// of elements: they are packed anyway, in any order.
    fn moved_matrices(&self, products: [ExprId; 2]) -> Vec<ExprId> {
        let is = |id: ExprId, defs: &[&OpDef]| {
            op_of(self.function.expr(id)).is_some_and(|(op, _)| defs.iter().any(|def| op.is(def)))
        };
        let matrix = |&product: &ExprId| {
            let product = self.members[product].iter().find(|&&id| is(id, &[&MATMUL]))?;
            let matrix = self.function.expr(*product).operands().nth(1)?;
            let members = self.members[matrix].as_slice();
            let moves =
                members.iter().all(|&id| is(id, &[&TRANSPOSE, &RESHAPE, &EXPAND_DIMS, &SQUEEZE]));
            // A group of reshapes alone is no kernel.
            let copies = moves && members.iter().any(|&id| is(id, &[&TRANSPOSE]));
            let is_own = self.graph.uses(matrix).len() == 1 && self.is_read_by(matrix, &[*product]);
            (copies && is_own).then_some(matrix)
        };
        products.iter().filter_map(matrix).collect()
    }

    fn tensor(&self, id: ExprId) -> Option<&TensorType> {
        self.function.ty(id).as_tensor()
    }

    /// The left operand of a product of matrices of `float32` that may be one of two in a kernel.
    fn left_operand(&self, id: ExprId) -> Option<ExprId> {
        let (op, call) = op_of(self.function.expr(id))?;
        let attrs: MatmulAttrs = op.is(&MATMUL).then(|| call.attrs.parse().ok())??;
        let &[Some(lhs), Some(rhs)] = call.args.as_slice() else { return None };
        let is_float =
            |id| self.tensor(id).is_some_and(|ty| ty.dtype == DType::F32 && ty.shape.rank() >= 2);
        let fits = !attrs.transpose_a && is_float(lhs) && is_float(rhs);
        (fits && self.stays_in_cache(rhs)).then_some(lhs)
    }

    /// Whether a right operand can be read again for each block of rows: a matrix of a batch's own, or a
    /// small one.
    fn stays_in_cache(&self, id: ExprId) -> bool {
        let Some(ty) = self.tensor(id) else { return false };
        let outer = &ty.shape[..ty.shape.rank().saturating_sub(2)];
        let is_own = outer.iter().any(|dim| dim.as_const() != Some(1));
        is_own || ty.bytes().is_some_and(|bytes| bytes <= MAX_SHARED_BYTES)
    }

    /// Whether a value is the result of its group, and read by these alone.
    fn is_read_by(&self, id: ExprId, readers: &[ExprId]) -> bool {
        self.graph.contains(id)
            && self.groups.root(id) == id
            && !self.graph.is_used_outside(id)
            && self.graph.uses(id).iter().all(|used| readers.contains(&used.user))
    }

    /// Whether a group is a product, and what is computed of its elements.
    fn is_product_by_element(&self, id: ExprId) -> bool {
        let is_anchor = |id: &&ExprId| self.graph.pattern(**id) > OpPattern::Broadcast;
        let mut anchors = self.members[id].iter().filter(is_anchor);
        match (anchors.next(), anchors.next()) {
            (Some(&anchor), None) => {
                let shape = |id| self.tensor(id).map(|ty| &ty.shape);
                self.left_operand(anchor).is_some() && shape(anchor) == shape(id)
            }
            _ => false,
        }
    }
}
