//! `tree_sum`: the sum of what complete binary trees of comparisons yield for each row of a matrix.
//!
//! Every tree has all nodes of its depth, level by level, so that no node says where it leads to: the
//! children of node `i` are `2 i + 1` and `2 i + 2`. There are several ways to compute it, between which
//! [`compile_trees`](crate::transform::compile_trees()) chooses by what they cost. All add in the same
//! order, and yield the same bits.

use serde::{Deserialize, Serialize};

use super::nearest;
use super::scatter::in_loop;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{Attrs, BufferSpec, DType, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::EvalCx;
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef};
use crate::te::{ComputeDag, StageId};
use crate::tir::{BufferId, ForKind, PrimExpr, Stmt, VarId};

/// Greatest depth of a tree: a complete one has two to the power of it leaves.
pub const MAX_TREE_DEPTH: u32 = 20;

/// Greatest depth of trees whose nodes are written out in code.
pub const MAX_WRITTEN_DEPTH: u32 = 6;

/// Pairs of a row and a tree that are led side by side. Each waits for two loads at every level; as
/// many as these fill the time, and the registers.
pub const CHAINS: i64 = 8;

/// Rows of one statement of whole levels: lanes of a vector register of the widest machines, or of a
/// few.
const LEVEL_ROWS: i64 = 16;

/// Most rows that go through all trees before others do, so that threads can share them; more would
/// not save much of the time in which trees come from the caches.
const PART_ROWS: i64 = 256;

/// Most bytes of the columns of such rows that lie side by side for whole levels.
const TURNED_BYTES: i64 = 1 << 18;

/// How trees lead rows to their leaves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TreeForm {
    /// One row and tree after the other, by branches: a processor that guesses right need not wait
    /// for what a node compares.
    Branches,
    /// Several rows and trees side by side, without branches.
    Chains,
}

/// Attributes of `tree_sum`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeSumAttrs {
    /// How it is computed: `branches` or `chains`.
    pub form: TreeForm,
    /// The first levels of which `chains` compute all nodes, for vectors of rows, to choose of the
    /// results; at each level below, a row takes its node from an array.
    pub levels: u32,
    /// Whether nodes ask for elements of at least their threshold, not for such of at most it.
    pub at_least: bool,
}

/// For each row of `x` the sum, tree by tree from the first one, of what `leaves` have where each
/// tree leads: a number, or a row of them. At node `i`, element `feature` of the row that is at most,
/// or at least, `threshold` leads to node `2 i + 2`, any other, NaN included, to node `2 i + 1`;
/// behind the last node are the leaves. A feature outside counts as the nearest.
pub static TREE_SUM: OpDef = OpDef::new(
    "tree_sum",
    "the sum of what complete trees of comparisons yield for each row",
    &[
        Input::required("x"),
        Input::required("feature"),
        Input::required("threshold"),
        Input::required("leaves"),
    ],
    infer,
    eval,
    compute,
)
.attributes::<TreeSumAttrs>()
.defaults(|| Attrs::new().with("form", "chains").with("levels", 0).with("at_least", false));

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: TreeSumAttrs = cx.attrs()?;
    let x = cx.tensor_of(0, DTypes::Float)?;
    let feature = cx.tensor_of(1, DTypes::Int)?;
    let (threshold, leaves) = (cx.tensor(2)?, cx.tensor(3)?);
    ensure!(
        matches!(x.dtype, DType::F32 | DType::F64),
        "input `x` must hold float32 or float64, but it is {x}; cast it first"
    );
    cx.same_dtype(0, 2)?;
    cx.same_dtype(0, 3)?;
    let ([rows, columns], [trees, nodes], [others, thresholds], [of_trees, ends, ..]) =
        (&x.shape[..], &feature.shape[..], &threshold.shape[..], &leaves.shape[..])
    else {
        return Err(TypeError::new(format!(
            "matrices `x`, `feature` and `threshold` and `leaves` of two or three dimensions are \
             expected, but they are {x}, {feature}, {threshold} and {leaves}"
        )));
    };
    ensure!(
        cx.same(trees, others) && cx.same(trees, of_trees) && cx.same(nodes, thresholds),
        "`feature`, `threshold` and `leaves` must be of the same trees, and the first two of the \
         same nodes, but they are {feature}, {threshold} and {leaves}"
    );
    let depth = nodes.as_const().and_then(depth_of);
    let Some(depth) = depth.filter(|_| ends.as_const() == nodes.as_const().map(|n| n + 1)) else {
        return Err(TypeError::new(format!(
            "a tree of depth d, from 1 to {MAX_TREE_DEPTH}, has 2^d - 1 nodes and 2^d leaves, but \
             `feature` is {feature} and `leaves` is {leaves}"
        )));
    };
    let written = match attrs.form {
        TreeForm::Branches => depth,
        TreeForm::Chains => attrs.levels,
    };
    ensure!(
        written <= MAX_WRITTEN_DEPTH.min(depth) && attrs.levels <= written,
        "with attributes `form` and `levels`, nodes of {written} levels are written out, but trees \
         have {depth} levels, and at most {MAX_WRITTEN_DEPTH} can be; `branches` are of all levels, \
         and `levels` is for `chains`"
    );
    ensure!(columns.as_const() != Some(0), "there must be a column, but `x` is {x}");
    let width = match &leaves.shape[2..] {
        [] => 1.into(),
        [width] => width.clone(),
        _ => {
            return Err(TypeError::new(format!(
                "input `leaves` must have two or three dimensions, but it is {leaves}"
            )));
        }
    };
    cx.result([rows.clone(), width], x.dtype)
}

/// The depth of a complete tree of so many nodes.
fn depth_of(nodes: i64) -> Option<u32> {
    let leaves = u64::try_from(nodes).ok()?.checked_add(1)?;
    let depth = leaves.trailing_zeros();
    (leaves.is_power_of_two() && (1..=MAX_TREE_DEPTH).contains(&depth)).then_some(depth)
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let TreeSumAttrs { form: _, levels: _, at_least } = cx.attrs()?;
    let (x, threshold, leaves) = (cx.floats(0)?, cx.floats(2)?, cx.floats(3)?);
    let feature = cx.ints(1)?;
    let (columns, dtype) = (cx.arg(0)?.shape()[1], cx.arg(0)?.dtype());
    let (nodes, width) = (cx.arg(1)?.shape()[1], cx.shape()[1]);
    let trees = cx.arg(1)?.shape()[0];
    let mut sums = Vec::with_capacity(cx.len());
    for row in x.chunks(columns) {
        let mut sum = vec![0.0; width];
        for tree in 0..trees {
            let mut node = 0;
            while node < nodes {
                let at = tree * nodes + node;
                let column = feature[at].clamp(0, columns as i128 - 1) as usize;
                let (value, threshold) = (row[column], threshold[at]);
                let second = if at_least { value >= threshold } else { value <= threshold };
                node = 2 * node + 1 + usize::from(second);
            }
            let leaf = (tree * (nodes + 1) + node - nodes) * width;
            for (sum, value) in sum.iter_mut().zip(&leaves[leaf..leaf + width]) {
                *sum += value;
                if dtype == DType::F32 {
                    *sum = f64::from(*sum as f32);
                }
            }
        }
        sums.extend(sum);
    }
    cx.result(Elements::Float(sums))
}

/// Rows of a part, from the first one behind `from` on, which is `row` of all, and trees, that go
/// side by side.
struct Block {
    from: PrimExpr,
    row: PrimExpr,
    rows: i64,
    tree: PrimExpr,
    trees: i64,
}

/// The arguments, and where the sums go.
struct Trees<'d> {
    dag: &'d mut ComputeDag,
    x: StageId,
    feature: StageId,
    threshold: StageId,
    leaves: StageId,
    result: BufferId,
    dtype: DType,
    rows: i64,
    columns: i64,
    trees: i64,
    depth: u32,
    width: i64,
    at_least: bool,
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: TreeSumAttrs = cx.attrs()?;
    let args = [cx.arg(0)?, cx.arg(1)?, cx.arg(2)?, cx.arg(3)?];
    let [x, feature, threshold, leaves] = args;
    let (shape, dtype) = cx.result();
    let (rows, width) = (shape[0], shape[1]);
    let columns = cx.dag.shape(x)[1];
    let (trees, nodes) = (cx.dag.shape(feature)[0], cx.dag.shape(feature)[1]);
    let Some(depth) = depth_of(nodes) else { return cx.unsupported("of trees that lack nodes") };
    let is_open = cx.open_axes.contains(&0);
    let sums = cx.dag.statement(cx.op.name, &shape, dtype, &args, |dag, result| {
        let (x, feature, threshold, leaves) = (x, feature, threshold, leaves);
        let mut all = Trees {
            dag,
            x,
            feature,
            threshold,
            leaves,
            result,
            dtype,
            rows,
            columns,
            trees,
            depth,
            width,
            at_least: attrs.at_least,
        };
        match attrs.form {
            TreeForm::Branches => all.branches(),
            TreeForm::Chains if is_open => all.row_by_row(),
            TreeForm::Chains if attrs.levels == 0 => all.chains(),
            TreeForm::Chains => all.levels(attrs.levels),
        }
    });
    Ok(vec![sums])
}

/// A loop over runs of `size` and, behind it, the rest: `body` is handed the first element of a run
/// and how many there are.
fn in_runs<'d>(
    trees: &mut Trees<'d>,
    name: &str,
    count: i64,
    size: i64,
    mut body: impl FnMut(&mut Trees<'d>, &PrimExpr, i64) -> Stmt,
) -> Stmt {
    let (runs, rest) = (count / size, count % size);
    let mut stmts = Vec::new();
    if runs > 0 {
        let var = trees.dag.func.index_var(name);
        let first = trees.dag.func.var_expr(var) * size;
        let whole = body(trees, &first, size);
        stmts.push(in_loop(var, runs, ForKind::Serial, whole));
    }
    if rest > 0 {
        stmts.push(body(trees, &PrimExpr::index(runs * size), rest));
    }
    Stmt::seq(stmts)
}

impl<'d> Trees<'d> {
    fn nodes(&self) -> i64 {
        (1 << self.depth) - 1
    }

    fn new_loop(&mut self, name: &str) -> (VarId, PrimExpr) {
        let var = self.dag.func.index_var(name);
        (var, self.dag.func.var_expr(var))
    }

    /// The column that a node compares.
    fn column(&self, tree: &PrimExpr, node: &PrimExpr) -> PrimExpr {
        nearest(self.dag.at(self.feature, &[tree.clone(), node.clone()]), self.columns)
    }

    /// Whether a value leads from a node to its second child.
    fn is_second(&self, value: PrimExpr, tree: &PrimExpr, node: &PrimExpr) -> PrimExpr {
        let threshold = self.dag.at(self.threshold, &[tree.clone(), node.clone()]);
        if self.at_least { value.greater_equal(threshold) } else { value.less_equal(threshold) }
    }

    /// What a leaf of a tree has.
    fn leaf(&self, tree: &PrimExpr, leaf: PrimExpr, column: i64) -> PrimExpr {
        let index = [tree.clone(), leaf, column.into()];
        let rank = self.dag.shape(self.leaves).len();
        self.dag.at(self.leaves, &index[..rank])
    }

    /// Sums of no trees.
    fn zeros(&mut self) -> Stmt {
        let [(row, at), (lane, column)] = ["row", "column"].map(|name| self.new_loop(name));
        let store = self.dag.func.store(self.result, [at, column], PrimExpr::zero(self.dtype));
        let store = in_loop(lane, self.width, ForKind::Serial, store);
        in_loop(row, self.rows, ForKind::Serial, store)
    }

    fn branches(&mut self) -> Stmt {
        let zeros = self.zeros();
        let [(row, at), (tree, of)] = ["row", "tree"].map(|name| self.new_loop(name));
        let body = self.branch(&at, &of, 0);
        let trees = in_loop(tree, self.trees, ForKind::Serial, body);
        Stmt::seq([zeros, in_loop(row, self.rows, ForKind::Serial, trees)])
    }

    /// What becomes of a row that is at a node.
    fn branch(&mut self, row: &PrimExpr, tree: &PrimExpr, node: i64) -> Stmt {
        if node >= self.nodes() {
            let leaf = PrimExpr::index(node - self.nodes());
            return Stmt::seq((0..self.width).map(|column| {
                let at = [row.clone(), column.into()];
                let sum = self.dag.func.load(self.result, at.clone());
                let sum = sum + self.leaf(tree, leaf.clone(), column);
                self.dag.func.store(self.result, at, sum)
            }));
        }
        let at = PrimExpr::index(node);
        let value = self.dag.at(self.x, &[row.clone(), self.column(tree, &at)]);
        let cond = self.is_second(value, tree, &at);
        let [first, second] = [1, 2].map(|child| self.branch(row, tree, 2 * node + child));
        Stmt::if_then_else(cond, second, first)
    }

    /// All rows, in parts of at most so many.
    fn in_parts(
        &mut self,
        most: i64,
        body: impl FnMut(&mut Trees<'d>, &PrimExpr, i64) -> Stmt,
    ) -> Stmt {
        let parts = (self.rows + most - 1) / most;
        let zeros = self.zeros();
        let size = (self.rows / parts.max(1)).max(1);
        Stmt::seq([zeros, in_runs(self, "part", self.rows, size, body)])
    }

    /// One row after the other, of which there need not be another one to go beside it.
    fn row_by_row(&mut self) -> Stmt {
        let zeros = self.zeros();
        let (row, at) = self.new_loop("row");
        let trees = in_runs(self, "block", self.trees, CHAINS, |all, tree, trees| {
            all.chain(all.depth, &at, 1, tree, trees, &|_, _| PrimExpr::index(0))
        });
        Stmt::seq([zeros, in_loop(row, self.rows, ForKind::Serial, trees)])
    }

    fn chains(&mut self) -> Stmt {
        let trees = self.trees.clamp(1, CHAINS);
        self.in_parts(PART_ROWS, |all, first, lines| {
            let rows = (CHAINS / trees).clamp(1, lines);
            in_runs(all, "block", all.trees, trees, |all, tree, trees| {
                in_runs(all, "row", lines, rows, |all, row, rows| {
                    let root = |_, _| PrimExpr::index(0);
                    let row = first.clone() + row.clone();
                    all.chain(all.depth, &row, rows, tree, trees, &root)
                })
            })
        })
    }

    /// Leads some rows through so many levels of some trees, each from its `start`, and adds what
    /// these yield.
    fn chain(
        &mut self,
        levels: u32,
        row: &PrimExpr,
        rows: i64,
        tree: &PrimExpr,
        trees: i64,
        start: &dyn Fn(i64, i64) -> PrimExpr,
    ) -> Stmt {
        let nodes = self.nodes();
        let node = self.dag.func.register("node", DType::I64, &[rows * trees]);
        let chain = |at: i64, of: i64| PrimExpr::index(at * trees + of);
        let (row, tree) = (|at: i64| row.clone() + at, |of: i64| tree.clone() + of);
        let mut stmts = Vec::new();
        let mut step = Vec::new();
        for (at, of) in (0..rows).flat_map(|at| (0..trees).map(move |of| (at, of))) {
            stmts.push(self.dag.func.store(node, [chain(at, of)], start(at, of)));
            let here = self.dag.func.load(node, [chain(at, of)]);
            let value = self.dag.at(self.x, &[row(at), self.column(&tree(of), &here)]);
            let second = self.is_second(value, &tree(of), &here);
            let next = here * 2 + 1 + second.cast(DType::I64);
            step.push(self.dag.func.store(node, [chain(at, of)], next));
        }
        let level = self.dag.func.index_var("level");
        stmts.push(in_loop(level, levels.into(), ForKind::Serial, Stmt::seq(step)));
        for (at, column) in (0..rows).flat_map(|at| (0..self.width).map(move |c| (at, c))) {
            let place = [row(at), column.into()];
            let mut sum = self.dag.func.load(self.result, place.clone());
            for of in 0..trees {
                let leaf = self.dag.func.load(node, [chain(at, of)]) - nodes;
                sum = sum + self.leaf(&tree(of), leaf, column);
            }
            stmts.push(self.dag.func.store(self.result, place, sum));
        }
        Stmt::allocate(node, Stmt::seq(stmts))
    }

    /// The first levels whole, the rest by chains.
    fn levels(&mut self, levels: u32) -> Stmt {
        let line = self.columns * i64::from(self.dtype.bits() / 8);
        let most = (TURNED_BYTES / line).clamp(LEVEL_ROWS, PART_ROWS);
        self.in_parts(most, |all, first, rows| {
            let spec = BufferSpec::dense(&[all.columns, rows]);
            let turned = all.dag.func.local("turned", all.dtype, spec);
            let turn = all.turn(turned, first, rows);
            let blocks = in_runs(all, "block", all.trees, CHAINS, |all, tree, trees| {
                in_runs(all, "rows", rows, LEVEL_ROWS, |all, from, rows| {
                    let (from, tree) = (from.clone(), tree.clone());
                    let block =
                        Block { row: first.clone() + from.clone(), from, rows, tree, trees };
                    if levels == all.depth {
                        return all.whole(turned, &block);
                    }
                    all.begun(levels, turned, &block)
                })
            });
            Stmt::allocate(turned, Stmt::seq([turn, blocks]))
        })
    }

    /// Puts the columns of some rows side by side.
    fn turn(&mut self, turned: BufferId, first: &PrimExpr, rows: i64) -> Stmt {
        let [(line, row), (lane, column)] = ["row", "column"].map(|name| self.new_loop(name));
        let value = self.dag.at(self.x, &[first.clone() + row.clone(), column.clone()]);
        let store = self.dag.func.store(turned, [column, row], value);
        let store = in_loop(lane, self.columns, ForKind::Serial, store);
        in_loop(line, rows, ForKind::Serial, store)
    }

    /// Adds what trees all of whose levels are computed whole yield for some rows.
    fn whole(&mut self, turned: BufferId, block: &Block) -> Stmt {
        let (Block { from, row, tree, .. }, rows, trees) = (block, block.rows, block.trees);
        let (each, of) = self.new_loop("tree");
        let of = tree.clone() + of;
        let adds = Stmt::seq((0..self.width).map(|column| {
            let (lane, by) = self.new_loop("lane");
            let at = [row.clone() + by.clone(), column.into()];
            let leaf = |leaf: i64| self.leaf(&of, (leaf - self.nodes()).into(), column);
            let value = self.chosen(turned, &of, &(from.clone() + by), 0, self.nodes(), &leaf);
            let sum = self.dag.func.load(self.result, at.clone()) + value;
            in_loop(lane, rows, ForKind::Vectorized, self.dag.func.store(self.result, at, sum))
        }));
        in_loop(each, trees, ForKind::Serial, adds)
    }

    /// Leads some rows through some trees, whose first levels are computed whole.
    fn begun(&mut self, levels: u32, turned: BufferId, block: &Block) -> Stmt {
        let (Block { from, row, tree, .. }, rows, trees) = (block, block.rows, block.trees);
        let starts = self.dag.func.local("starts", DType::I32, BufferSpec::dense(&[trees, rows]));
        let [(each, of), (lane, by)] = ["tree", "lane"].map(|name| self.new_loop(name));
        let node = |node: i64| PrimExpr::int(node, DType::I32);
        let (at, nodes) = (tree.clone() + of.clone(), (1 << levels) - 1);
        let start = self.chosen(turned, &at, &(from.clone() + by.clone()), 0, nodes, &node);
        let start = self.dag.func.store(starts, [of, by], start);
        let start = in_loop(lane, rows, ForKind::Vectorized, start);
        let start = in_loop(each, trees, ForKind::Serial, start);

        let (line, by) = self.new_loop("row");
        let row = row.clone() + by.clone();
        let begin: Vec<PrimExpr> = (0..trees)
            .map(|of| self.dag.func.load(starts, [of.into(), by.clone()]).cast(DType::I64))
            .collect();
        let begin = |_, of: i64| begin[of as usize].clone();
        let rest = self.chain(self.depth - levels, &row, 1, tree, trees, &begin);
        let rest = in_loop(line, rows, ForKind::Serial, rest);
        Stmt::allocate(starts, Stmt::seq([start, rest]))
    }

    /// What `found` says of the node that a row gets to from one, behind the first `nodes`, of
    /// columns that lie side by side.
    fn chosen(
        &self,
        turned: BufferId,
        tree: &PrimExpr,
        row: &PrimExpr,
        node: i64,
        nodes: i64,
        found: &dyn Fn(i64) -> PrimExpr,
    ) -> PrimExpr {
        if node >= nodes {
            return found(node);
        }
        let at = PrimExpr::index(node);
        let value = self.dag.func.load(turned, [self.column(tree, &at), row.clone()]);
        let cond = self.is_second(value, tree, &at);
        let [first, second] =
            [1, 2].map(|child| self.chosen(turned, tree, row, 2 * node + child, nodes, found));
        PrimExpr::select(cond, second, first)
    }
}
