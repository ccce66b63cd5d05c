//! Trees as a flat array of nodes that all ask the same question: whether an element is at most a
//! threshold.

use super::{floats, indices};
use crate::graph::ExprId;
use crate::ir::{DType, Dim};
use crate::onnx::import::NodeError;
use crate::ops::OpDef;
use crate::ops::elementwise::NEGATIVE;
use crate::ops::tensor::{TAKE, TREE_TRAVERSE, TakeAttrs, TakeMode, TreeTraverseAttrs};

type Import<'a, 'b> = crate::onnx::import::Node<'a, 'b>;

/// Fewer trees than these are not divided by their depth.
const FEW_TREES: usize = 32;

/// Most numbers of a table of leaves.
const MAX_TABLE: usize = 1 << 28;

/// Targets and what a leaf adds to them.
pub(super) type Leaf = Vec<(i64, f64)>;

/// What a branch asks of an element.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Test {
    LessEqual,
    Less,
    GreaterEqual,
    Greater,
    Equal,
    NotEqual,
    /// Whether it is one of a set.
    Member(Vec<f64>),
}

/// A node of a tree.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Node {
    Leaf(Leaf),
    Branch {
        test: Test,
        feature: i64,
        value: f64,
        /// Where a test leads that fails, and one that holds.
        children: [usize; 2],
        /// Whether NaN counts as if the test held.
        nan_is_true: bool,
    },
}

/// All trees, as a model has them.
pub(super) struct Forest {
    pub(super) nodes: Vec<Node>,
    pub(super) roots: Vec<usize>,
}

/// The trees as arguments of `tree_traverse`. The first nodes are the leaves, in their order.
pub(super) struct Compiled {
    x: ExprId,
    feature: ExprId,
    threshold: ExprId,
    children: ExprId,
    /// Number of the first node of each tree, and its steps.
    pub(super) roots: Vec<(i32, i64)>,
    /// What each leaf holds.
    leaves: Vec<Leaf>,
    dtype: DType,
}

impl Forest {
    fn leaves(&self) -> impl Iterator<Item = &Leaf> {
        self.nodes.iter().filter_map(|node| match node {
            Node::Leaf(leaf) => Some(leaf),
            Node::Branch { .. } => None,
        })
    }

    /// The targets that leaves have values of, ascending.
    pub(super) fn targets(&self) -> Vec<i64> {
        let mut targets: Vec<i64> = self.leaves().flatten().map(|&(target, _)| target).collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    }

    /// Makes all values those of one target.
    pub(super) fn retarget(&mut self, to: i64) {
        for node in &mut self.nodes {
            if let Node::Leaf(leaf) = node {
                leaf.iter_mut().for_each(|(target, _)| *target = to);
            }
        }
    }

    pub(super) fn weights_are_positive(&self) -> bool {
        self.leaves().flatten().all(|&(_, weight)| weight >= 0.0)
    }

    /// For each tree the one target that its leaves have values of, if that is so.
    pub(super) fn target_of_trees(&self, count: usize) -> Result<Option<Vec<usize>>, NodeError> {
        for &(target, _) in self.leaves().flatten() {
            if usize::try_from(target).is_ok_and(|target| target < count) {
                continue;
            }
            return Err(NodeError::new(format!(
                "a leaf has a value of target {target}, but there are {count}"
            )));
        }
        let mut by_tree = Vec::with_capacity(self.roots.len());
        // The last tree that each node was met in.
        let mut met = vec![usize::MAX; self.nodes.len()];
        for (tree, &root) in self.roots.iter().enumerate() {
            let mut target = None;
            let mut open = vec![root];
            while let Some(index) = open.pop() {
                if std::mem::replace(&mut met[index], tree) == tree {
                    continue;
                }
                match &self.nodes[index] {
                    Node::Branch { children, .. } => open.extend(children),
                    Node::Leaf(leaf) => {
                        for &(own, _) in leaf {
                            if target.is_some_and(|target| target != own) {
                                return Ok(None);
                            }
                            target = Some(own);
                        }
                    }
                }
            }
            by_tree.push(target.unwrap_or(0) as usize);
        }
        Ok(Some(by_tree))
    }

    /// The trees for rows of `x`.
    pub(super) fn compile(
        &self,
        node: &mut Import<'_, '_>,
        x: ExprId,
    ) -> Result<Compiled, NodeError> {
        let columns = node.known_extent(x, 1)?;
        let dtype = node.tensor(x)?.dtype;
        let mut flat = Flat::new(self, columns, dtype);
        let mut roots = Vec::with_capacity(self.roots.len());
        for &root in &self.roots {
            roots.push(flat.tree(root)?);
        }
        let mut x = x;
        if flat.is_negated {
            let negated = node.call(&NEGATIVE, &[x])?;
            x = node.concatenate(&[x, negated], 1)?;
        }
        let count = flat.feature.len() as i64;
        Ok(Compiled {
            x,
            feature: indices(node, &[count], &flat.feature)?,
            threshold: floats(node, &[count], &flat.threshold, dtype)?,
            children: indices(node, &[count, 2], flat.children.as_flattened())?,
            roots,
            leaves: self.leaves().cloned().collect(),
            dtype,
        })
    }
}

/// The arrays while they are made.
struct Flat<'f> {
    forest: &'f Forest,
    columns: i64,
    dtype: DType,
    feature: Vec<i32>,
    threshold: Vec<f64>,
    children: Vec<[i32; 2]>,
    /// Number and depth of the nodes that are done.
    done: Vec<Option<(i32, i64)>>,
    /// Whether a question is about the negative of an element, which is a column of its own.
    is_negated: bool,
}

/// A question: whether an element, or its negative, is at most a number. NaN never is.
struct Question {
    is_negated: bool,
    threshold: f64,
}

impl<'f> Flat<'f> {
    fn new(forest: &'f Forest, columns: i64, dtype: DType) -> Flat<'f> {
        let mut flat = Flat {
            forest,
            columns,
            dtype,
            feature: Vec::new(),
            threshold: Vec::new(),
            children: Vec::new(),
            done: vec![None; forest.nodes.len()],
            is_negated: false,
        };
        for (index, node) in forest.nodes.iter().enumerate() {
            if let Node::Leaf(_) = node {
                // It leads to itself.
                let own = flat.feature.len() as i32;
                flat.done[index] = Some((own, 0));
                flat.push(0, f64::NAN, [own, own]);
            }
        }
        flat
    }

    fn push(&mut self, feature: i64, threshold: f64, children: [i32; 2]) -> i32 {
        self.feature.push(feature as i32);
        self.threshold.push(threshold);
        self.children.push(children);
        self.feature.len() as i32 - 1
    }

    /// Number and depth of a node and, before it, of all that it leads to.
    fn tree(&mut self, root: usize) -> Result<(i32, i64), NodeError> {
        let mut open = vec![root];
        // Nodes that wait for their children: to wait twice is to be led back.
        let mut waits = vec![false; self.forest.nodes.len()];
        while let Some(&index) = open.last() {
            if self.done[index].is_some() {
                open.pop();
                continue;
            }
            let Node::Branch { children, .. } = &self.forest.nodes[index] else { continue };
            match children.map(|child| self.done[child]) {
                [Some(no), Some(yes)] => {
                    self.done[index] = Some(self.branch(index, no, yes)?);
                    open.pop();
                }
                _ if std::mem::replace(&mut waits[index], true) => {
                    return Err(NodeError::new("a tree leads back to one of its nodes"));
                }
                _ => open.extend(children.iter().filter(|&&child| self.done[child].is_none())),
            }
        }
        self.done[root].ok_or_else(|| NodeError::new("a tree has no root"))
    }

    /// The nodes that a branch becomes.
    fn branch(
        &mut self,
        index: usize,
        (no, no_depth): (i32, i64),
        (yes, yes_depth): (i32, i64),
    ) -> Result<(i32, i64), NodeError> {
        let Node::Branch { test, feature, value, nan_is_true, .. } = &self.forest.nodes[index]
        else {
            return Err(NodeError::new("a leaf is no branch"));
        };
        let (feature, value, nan_is_true) = (*feature, *value, *nan_is_true);
        if !(0..self.columns).contains(&feature) {
            return Err(NodeError::new(format!(
                "a tree asks for feature {feature}, but input 0 has {}",
                self.columns
            )));
        }
        let depth = no_depth.max(yes_depth);
        let at_most = |value| Question { is_negated: false, threshold: value };
        let below = |value| Question { is_negated: false, threshold: self.below(value) };
        let at_least = |value: f64| Question { is_negated: true, threshold: -value };
        let above = |value: f64| Question { is_negated: true, threshold: self.below(-value) };
        let (holds, fails) = match test {
            Test::LessEqual => (at_most(value), above(value)),
            Test::Less => (below(value), at_least(value)),
            Test::GreaterEqual => (at_least(value), below(value)),
            Test::Greater => (above(value), at_most(value)),
            Test::Equal => return Ok(self.member(feature, &[value], no, yes, nan_is_true, depth)),
            // NaN differs from every number.
            Test::NotEqual => return Ok(self.member(feature, &[value], yes, no, false, depth)),
            Test::Member(set) => {
                let set = set.clone();
                return Ok(self.member(feature, &set, no, yes, nan_is_true, depth));
            }
        };
        // Where NaN goes is the first child.
        let node = if nan_is_true {
            self.ask(feature, fails, [yes, no])
        } else {
            self.ask(feature, holds, [no, yes])
        };
        Ok((node, depth + 1))
    }

    fn ask(&mut self, feature: i64, question: Question, children: [i32; 2]) -> i32 {
        self.is_negated |= question.is_negated;
        let column = if question.is_negated { self.columns + feature } else { feature };
        self.push(column, question.threshold, children)
    }

    /// Whether an element is one of a set: two questions for each number.
    fn member(
        &mut self,
        feature: i64,
        set: &[f64],
        no: i32,
        yes: i32,
        nan_is_true: bool,
        depth: i64,
    ) -> (i32, i64) {
        let mut next = no;
        for &value in set {
            let at_least = Question { is_negated: true, threshold: -value };
            let at_most = Question { is_negated: false, threshold: value };
            let inner = self.ask(feature, at_least, [next, yes]);
            next = self.ask(feature, at_most, [next, inner]);
        }
        let mut steps = 2 * set.len() as i64;
        if nan_is_true {
            let any = Question { is_negated: false, threshold: f64::INFINITY };
            next = self.ask(feature, any, [yes, next]);
            steps += 1;
        }
        (next, depth + steps)
    }

    /// The greatest number below one, of numbers that no denormal is: as a run counts these as zero,
    /// they are not told from it.
    fn below(&self, value: f64) -> f64 {
        if value == f64::NEG_INFINITY {
            // Nothing is at most this.
            return f64::NAN;
        }
        let (below, least) = match self.dtype {
            DType::F64 => (value.next_down(), f64::MIN_POSITIVE),
            _ => (f64::from((value as f32).next_down()), f64::from(f32::MIN_POSITIVE)),
        };
        match below {
            below if below > 0.0 && below < least => 0.0,
            below if below < 0.0 && below > -least => -least,
            below => below,
        }
    }
}

impl Compiled {
    /// What each leaf holds: a number, or a row of that width.
    pub(super) fn table(
        &self,
        node: &mut Import<'_, '_>,
        width: Option<usize>,
    ) -> Result<ExprId, NodeError> {
        let width_of = width.unwrap_or(1);
        let count = self.leaves.len().saturating_mul(width_of);
        if count > MAX_TABLE {
            return Err(NodeError::new(format!(
                "{} leaves of {width_of} targets are more than {MAX_TABLE} numbers",
                self.leaves.len()
            )));
        }
        let mut table = vec![0.0; count];
        for (index, leaf) in self.leaves.iter().enumerate() {
            for &(target, weight) in leaf {
                let column = if width.is_some() { target as usize } else { 0 };
                table[index * width_of + column] += weight;
            }
        }
        let rows = self.leaves.len() as i64;
        let dims = [rows, width_of as i64];
        let dims = if width.is_some() { &dims[..] } else { &dims[..1] };
        floats(node, dims, &table, self.dtype)
    }

    /// What some trees yield by a table of their leaves, reduced over trees of about the same depth:
    /// `(batch, 1)` each, or `(batch, width)` of leaves that hold a row.
    pub(super) fn values(
        &self,
        node: &mut Import<'_, '_>,
        trees: &[usize],
        table: ExprId,
        reduction: &'static OpDef,
    ) -> Result<Vec<ExprId>, NodeError> {
        let is_single = node.shape(table)?.rank() == 1;
        let mut results = Vec::new();
        for group in self.by_depth(trees) {
            let depth = group.iter().map(|&tree| self.roots[tree].1).max().unwrap_or(0);
            let roots: Vec<i32> = group.iter().map(|&tree| self.roots[tree].0).collect();
            let roots = indices(node, &[roots.len() as i64], &roots)?;
            let args = [self.x, self.feature, self.threshold, self.children, roots];
            let leaves = node.call_with(&TREE_TRAVERSE, &args, &TreeTraverseAttrs { depth })?;
            let attrs = TakeAttrs { axis: 0, mode: TakeMode::Clip };
            let values = node.call_with(&TAKE, &[table, leaves], &attrs)?;
            results.push(node.reduce(reduction, values, [1], is_single)?);
        }
        Ok(results)
    }

    /// The trees, those together that take about as many steps: a tree that has ended waits for the
    /// others.
    fn by_depth(&self, trees: &[usize]) -> Vec<Vec<usize>> {
        let mut sorted = trees.to_vec();
        sorted.sort_by_key(|&tree| std::cmp::Reverse(self.roots[tree].1));
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for tree in sorted {
            let depth = self.roots[tree].1;
            match groups.last_mut() {
                Some(group)
                    if trees.len() < FEW_TREES || 4 * depth + 4 >= 3 * self.roots[group[0]].1 =>
                {
                    group.push(tree);
                }
                _ => groups.push(vec![tree]),
            }
        }
        groups
    }

    /// Zeros where there are no trees.
    pub(super) fn zeros(
        &self,
        node: &mut Import<'_, '_>,
        width: usize,
    ) -> Result<ExprId, NodeError> {
        let batch = node.shape(self.x)?[0].clone();
        node.full(0.0, self.dtype, vec![batch, Dim::from(width as i64)])
    }
}
