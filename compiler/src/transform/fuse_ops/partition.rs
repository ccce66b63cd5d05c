//! The partition of operators into kernels.

use std::cell::Cell;

use cranelift_entity::SecondaryMap;

use super::graph::{Graph, PostDominator};
use crate::graph::ExprId;
use crate::ops::OpPattern;

/// A node of a group; the groups' trees lead to the node that represents the group.
#[derive(Clone)]
struct Group {
    /// The next node towards the representative; the node itself if it is the representative.
    parent: Cell<u32>,
    pattern: OpPattern,
    /// Whether the group contains a convolution or the like; it contains at most one.
    has_anchor: bool,
    size: usize,
}

impl Default for Group {
    fn default() -> Group {
        Group {
            parent: Cell::new(u32::MAX),
            pattern: OpPattern::Opaque,
            has_anchor: false,
            size: 1,
        }
    }
}

/// The groups of a graph. Each is named by its result, the last of its nodes.
pub(super) struct Groups {
    groups: SecondaryMap<ExprId, Group>,
}

/// The three sweeps of the algorithm.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Convolutions and the like take their epilogues; element-wise operators join each other.
    Anchors,
    /// Injective operators go into element-wise ones, and into tuples.
    Injective,
    /// Operands of a tuple within a group join that group.
    Tuples,
}

impl Groups {
    /// Groups the operators of a graph; at level 0 each operator is a group.
    pub(super) fn new(graph: &Graph, opt_level: u8, max_depth: usize) -> Groups {
        let mut groups = SecondaryMap::new();
        for id in graph.ids() {
            let pattern = graph.pattern(id);
            groups[id] = Group {
                parent: Cell::new(id.as_u32()),
                pattern,
                has_anchor: pattern == OpPattern::OutElemWiseFusable,
                size: 1,
            };
        }
        let mut partition = Partition {
            graph,
            groups: Groups { groups },
            max_depth,
            visited: SecondaryMap::new(),
            visit: 0,
        };
        if opt_level > 0 {
            let dominators = graph.post_dominators();
            for phase in [Phase::Anchors, Phase::Injective, Phase::Tuples] {
                partition.run(&dominators, phase);
            }
        }
        partition.groups
    }

    /// The node that represents the group of `id`: its result. A node without a group represents
    /// itself.
    pub(super) fn root(&self, id: ExprId) -> ExprId {
        let parent = |id: ExprId| match self.groups[id].parent.get() {
            u32::MAX => id,
            parent => ExprId::from_u32(parent),
        };
        let mut root = id;
        while parent(root) != root {
            root = parent(root);
        }
        // Shortens the path for the next look-up.
        let mut current = id;
        while current != root {
            let next = parent(current);
            self.groups[current].parent.set(root.as_u32());
            current = next;
        }
        root
    }

    /// The nodes of each group, in order, by its result.
    pub(super) fn members(&self, graph: &Graph) -> SecondaryMap<ExprId, Vec<ExprId>> {
        let mut members: SecondaryMap<ExprId, Vec<ExprId>> = SecondaryMap::new();
        for id in graph.ids() {
            members[self.root(id)].push(id);
        }
        members
    }

    fn group(&self, id: ExprId) -> &Group {
        &self.groups[self.root(id)]
    }

    pub(super) fn merge(&mut self, child: ExprId, target: ExprId) {
        let (child, target) = (self.root(child), self.root(target));
        if child == target {
            return;
        }
        let Group { parent: _, pattern, has_anchor, size } = self.groups[child].clone();
        self.groups[child].parent.set(target.as_u32());
        let group = &mut self.groups[target];
        group.size += size;
        if has_anchor {
            group.has_anchor = true;
            group.pattern = group.pattern.max(pattern);
        }
    }
}

struct Partition<'a> {
    graph: &'a Graph,
    groups: Groups,
    max_depth: usize,
    /// The walk in which each node was last visited.
    visited: SecondaryMap<ExprId, u32>,
    visit: u32,
}

impl Partition<'_> {
    fn run(&mut self, dominators: &SecondaryMap<ExprId, Option<PostDominator>>, phase: Phase) {
        for id in self.graph.ids() {
            // A node that has joined another group is judged by its own pattern, as in TVM.
            let pattern = self.groups.groups[id].pattern;
            let Some(sink) = dominators[id] else { continue };
            if pattern == OpPattern::Opaque || self.is_too_large(id, sink.node) {
                continue;
            }
            let injective = |pattern, _| pattern <= OpPattern::Injective;
            if phase == Phase::Tuples {
                let into_fused_tuple = pattern <= OpPattern::Injective
                    && self.groups.groups[sink.node].pattern == OpPattern::Tuple
                    && self.groups.group(sink.node).pattern <= OpPattern::Injective;
                if into_fused_tuple && self.all_on_the_way(id, sink.node, injective) {
                    self.fuse(id, sink.node);
                }
                continue;
            }
            if self.groups.root(id) == self.groups.root(sink.node)
                || self.groups.groups[sink.node].pattern == OpPattern::Tuple
            {
                continue;
            }
            let fits = match pattern {
                OpPattern::OutElemWiseFusable => {
                    phase == Phase::Anchors
                        && sink.pattern == OpPattern::ElemWise
                        && self.all_on_the_way(id, sink.node, |pattern, _| {
                            pattern <= OpPattern::Broadcast
                        })
                }
                OpPattern::ElemWise | OpPattern::Broadcast => {
                    // Reductions are beyond injective in the order of patterns.
                    sink.pattern <= OpPattern::CommReduce
                        && self.all_on_the_way(id, sink.node, |pattern, is_sink| {
                            pattern <= OpPattern::Injective
                                || (is_sink && pattern <= OpPattern::OutElemWiseFusable)
                        })
                }
                OpPattern::Injective | OpPattern::Tuple => {
                    phase == Phase::Injective && self.all_on_the_way(id, sink.node, injective)
                }
                OpPattern::CommReduce | OpPattern::Opaque => false,
            };
            if fits {
                self.fuse(id, sink.node);
            }
        }
    }

    /// Begins a walk, in which no node is visited yet.
    fn begin(&mut self) {
        self.visit += 1;
    }

    /// Whether this is the first visit in this walk.
    fn visit(&mut self, id: ExprId) -> bool {
        std::mem::replace(&mut self.visited[id], self.visit) != self.visit
    }

    /// Whether `fits` holds for the groups of all nodes on the paths from `from` to `sink`, and for
    /// the sink's.
    fn all_on_the_way(
        &mut self,
        from: ExprId,
        sink: ExprId,
        fits: impl Fn(OpPattern, bool) -> bool,
    ) -> bool {
        self.begin();
        let mut pending: Vec<ExprId> = vec![from];
        while let Some(id) = pending.pop() {
            for index in 0..self.graph.uses(id).len() {
                let user = self.graph.uses(id)[index].user;
                if !self.visit(user) {
                    continue;
                }
                if !fits(self.groups.group(user).pattern, user == sink) {
                    return false;
                }
                if user != sink {
                    pending.push(user);
                }
            }
        }
        true
    }

    /// Puts all nodes on the paths from `from` to `sink` into the group of `sink`.
    fn fuse(&mut self, from: ExprId, sink: ExprId) {
        self.begin();
        let mut pending = vec![from];
        while let Some(id) = pending.pop() {
            self.groups.merge(id, sink);
            for index in 0..self.graph.uses(id).len() {
                let user = self.graph.uses(id)[index].user;
                if user != sink && self.visit(user) {
                    pending.push(user);
                }
            }
        }
    }

    /// Whether the group of `sink` would exceed the maximum number of nodes.
    fn is_too_large(&mut self, from: ExprId, sink: ExprId) -> bool {
        self.begin();
        self.visit(from);
        let mut size = self.groups.group(sink).size;
        let mut pending = vec![from];
        while let Some(id) = pending.pop() {
            size += self.groups.groups[id].size;
            if size > self.max_depth {
                return true;
            }
            for index in 0..self.graph.uses(id).len() {
                let user = self.graph.uses(id)[index].user;
                if user != sink && self.visit(user) {
                    pending.push(user);
                }
            }
        }
        false
    }
}
