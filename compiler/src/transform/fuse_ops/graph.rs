//! The uses of values, and the nodes to which all uses lead.

use cranelift_entity::SecondaryMap;
use cranelift_entity::packed_option::PackedOption;

use crate::analysis::kernel_scopes;
use crate::graph::{Callee, Expr, ExprId, Function, Scope};
use crate::ir::Type;
use crate::ops::OpPattern;
use crate::ops::tensor::STOP_FUSION;

/// One use: the user, and the dependence of its elements on those of the value.
#[derive(Clone, Copy)]
pub(super) struct Use {
    pub(super) user: ExprId,
    pub(super) pattern: OpPattern,
}

#[derive(Clone)]
struct Node {
    pattern: OpPattern,
    uses: Vec<Use>,
    /// Whether anything other than an operator of the same scope uses the value.
    external: bool,
    is_call: bool,
}

impl Default for Node {
    fn default() -> Node {
        Node { pattern: OpPattern::Opaque, uses: Vec::new(), external: false, is_call: false }
    }
}

/// The node to which all uses of another one lead, with the most general pattern of the paths.
#[derive(Clone, Copy)]
pub(super) struct PostDominator {
    pub(super) node: ExprId,
    pub(super) pattern: OpPattern,
}

/// The operators of a function, without those in kernels and in another code generator's closures.
pub(super) struct Graph {
    nodes: SecondaryMap<ExprId, Node>,
    /// Live operators, tuples and fields, in order.
    ids: Vec<ExprId>,
    contains: SecondaryMap<ExprId, bool>,
}

impl Graph {
    pub(super) fn new(function: &Function, live: &SecondaryMap<ExprId, bool>) -> Graph {
        let mut graph = Graph {
            nodes: SecondaryMap::with_capacity(function.len()),
            ids: Vec::new(),
            contains: SecondaryMap::with_capacity(function.len()),
        };
        let closed = kernel_scopes(function);
        graph.need_scope(function.scope(function.body()));
        for (id, data) in function.iter().filter(|(id, _)| live[*id]) {
            if closed[data.scope] {
                continue;
            }
            for scope in data.expr.scopes() {
                graph.need_scope(function.scope(scope));
            }
            let pattern = match &data.expr {
                Expr::Call(call) => match call.callee {
                    Callee::Op(op) if !op.is(&STOP_FUSION) => Some(op.pattern),
                    Callee::Op(_) | Callee::Expr(_) => None,
                },
                Expr::Tuple(_) => Some(OpPattern::Tuple),
                Expr::TupleGet { tuple, index: _ } => {
                    // A kernel's arguments are tensors, or tuples of tensors.
                    let of_tensors = function
                        .ty(*tuple)
                        .as_tuple()
                        .is_some_and(|fields| fields.iter().all(|f| f.as_tensor().is_some()));
                    of_tensors.then_some(OpPattern::Injective)
                }
                Expr::Var(_)
                | Expr::GlobalVar(_)
                | Expr::Constant(_)
                | Expr::If(_)
                | Expr::While(_)
                | Expr::Func(_) => None,
            };
            let Some(pattern) = pattern else {
                for operand in data.expr.operands() {
                    graph.nodes[operand].external = true;
                }
                continue;
            };
            graph.nodes[id].pattern = pattern;
            graph.nodes[id].is_call = data.expr.as_call().is_some();
            graph.ids.push(id);
            graph.contains[id] = true;
            for operand in data.expr.operands() {
                graph.add_use(function, operand, id, pattern);
            }
        }
        graph
    }

    fn need_scope(&mut self, scope: &Scope) {
        self.nodes[scope.result].external = true;
        for binding in &scope.bindings {
            self.nodes[binding.value].external = true;
        }
    }

    fn add_use(&mut self, function: &Function, used: ExprId, user: ExprId, pattern: OpPattern) {
        let (used_data, user_data) = (function.data_of(used), function.data_of(user));
        let tuple_of_other = pattern == OpPattern::Tuple && used_data.ty.as_tensor().is_none();
        if used_data.scope != user_data.scope || tuple_of_other {
            self.nodes[used].external = true;
            return;
        }
        let pattern = match pattern {
            OpPattern::Broadcast if same_shape(&used_data.ty, &user_data.ty) => OpPattern::ElemWise,
            OpPattern::Tuple => OpPattern::Injective,
            other => other,
        };
        self.nodes[used].uses.push(Use { user, pattern });
    }

    /// The nodes, in topological order.
    pub(super) fn ids(&self) -> impl DoubleEndedIterator<Item = ExprId> + '_ {
        self.ids.iter().copied()
    }

    pub(super) fn contains(&self, id: ExprId) -> bool {
        self.contains[id]
    }

    pub(super) fn is_call(&self, id: ExprId) -> bool {
        self.nodes[id].is_call
    }

    pub(super) fn pattern(&self, id: ExprId) -> OpPattern {
        self.nodes[id].pattern
    }

    /// Whether anything but operators of the same scope uses the value.
    pub(super) fn is_used_outside(&self, id: ExprId) -> bool {
        self.nodes[id].external
    }

    pub(super) fn uses(&self, id: ExprId) -> &[Use] {
        &self.nodes[id].uses
    }

    /// For each node, the first node to which all paths from it lead; none if the value is used
    /// outside of the graph.
    pub(super) fn post_dominators(&self) -> SecondaryMap<ExprId, Option<PostDominator>> {
        let mut tree = Tree { nodes: SecondaryMap::new() };
        let mut dominators = SecondaryMap::new();
        for id in self.ids().rev() {
            let node = &self.nodes[id];
            let parent = if node.external { None } else { tree.common_ancestor(&node.uses) };
            let depth = parent.map_or(1, |parent| tree.nodes[parent.node].depth + 1);
            let pattern = parent.map_or(OpPattern::Opaque, |parent| parent.pattern);
            let parent_node = parent.map(|parent| parent.node).into();
            tree.nodes[id] = TreeNode { parent: parent_node, pattern, depth };
            dominators[id] = parent;
        }
        dominators
    }
}

fn same_shape(a: &Type, b: &Type) -> bool {
    match (a.as_tensor(), b.as_tensor()) {
        (Some(a), Some(b)) => a.shape == b.shape,
        _ => false,
    }
}

#[derive(Clone, Copy)]
struct TreeNode {
    parent: PackedOption<ExprId>,
    /// The most general pattern of the paths to the parent.
    pattern: OpPattern,
    depth: u32,
}

impl Default for TreeNode {
    fn default() -> TreeNode {
        TreeNode { parent: None.into(), pattern: OpPattern::Opaque, depth: 1 }
    }
}

/// The tree of post-dominators, from the results down.
struct Tree {
    nodes: SecondaryMap<ExprId, TreeNode>,
}

impl Tree {
    /// The lowest node above all users, and the most general pattern of the paths to it.
    fn common_ancestor(&self, uses: &[Use]) -> Option<PostDominator> {
        let (first, rest) = uses.split_first()?;
        let mut node = first.user;
        let mut pattern = first.pattern;
        for other in rest {
            node = self.common_of_two(node, other.user, &mut pattern)?;
            pattern = pattern.max(other.pattern);
        }
        Some(PostDominator { node, pattern })
    }

    fn common_of_two(
        &self,
        mut a: ExprId,
        mut b: ExprId,
        pattern: &mut OpPattern,
    ) -> Option<ExprId> {
        while a != b {
            let (node_a, node_b) = (self.nodes[a], self.nodes[b]);
            if node_a.depth >= node_b.depth {
                *pattern = (*pattern).max(node_a.pattern);
                a = node_a.parent.expand()?;
            }
            if node_b.depth >= node_a.depth {
                *pattern = (*pattern).max(node_b.pattern);
                b = node_b.parent.expand()?;
            }
        }
        Some(a)
    }
}
