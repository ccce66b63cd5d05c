//! `tree_sum`: the sum of what complete binary trees of comparisons yield for each row of a matrix.
//!
//! Every tree has all nodes of its depth, level by level, so that no node says where it leads to: the
//! children of node `i` are `2 i + 1` and `2 i + 2`. There are three ways to compute it, between which
//! [`compile_trees`](crate::transform::compile_trees()) chooses by what they cost. All add in the same
//! order, and yield the same bits.

use serde::{Deserialize, Serialize};

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

/// Rows that whole levels are computed of at a time: their columns lie side by side.
const LEVEL_ROWS: i64 = 64;

/// Lanes of one statement of whole levels: a vector register of the widest machines, or a few.
const LEVEL_LANES: i64 = 16;

/// How trees lead rows to their leaves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TreeForm {
    /// One row and tree after the other, by branches: a processor that guesses right need not wait
    /// for what a node compares.
    Branches,
    /// Several rows and trees side by side, level by level, without branches: each takes the node of
    /// the next level from an array.
    Chains,
    /// All nodes of a tree for vectors of rows, of whose results those that count are chosen.
    Levels,
}

/// Attributes of `tree_sum`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeSumAttrs {
    /// How it is computed: `branches`, `chains` or `levels`.
    pub form: TreeForm,
}

/// For each row of `x` the sum, tree by tree from the first one, of what `leaves` have where each
/// tree leads: a number, or a row of them. At node `i`, element `feature` of the row that is at most
/// `threshold` leads to node `2 i + 2`, any other, NaN included, to node `2 i + 1`; behind the last
/// node are the leaves. A feature outside counts as the nearest.
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
.defaults(|| Attrs::new().with("form", "chains"));

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
    ensure!(
        attrs.form == TreeForm::Chains || depth <= MAX_WRITTEN_DEPTH,
        "the trees are of depth {depth}, but attribute `form` must be `chains` for more than \
         {MAX_WRITTEN_DEPTH}"
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
                node = 2 * node + 1 + usize::from(row[column] <= threshold[at]);
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
        };
        match attrs.form {
            TreeForm::Branches => all.branches(),
            TreeForm::Chains => all.chains(),
            TreeForm::Levels => all.levels(),
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
        let feature = self.dag.at(self.feature, &[tree.clone(), node.clone()]);
        let is_signed = feature.dtype().is_signed_int();
        let column = feature.cast(DType::I64);
        let column = if is_signed { column.max(PrimExpr::index(0)) } else { column };
        column.min(self.columns - 1)
    }

    fn threshold(&self, tree: &PrimExpr, node: &PrimExpr) -> PrimExpr {
        self.dag.at(self.threshold, &[tree.clone(), node.clone()])
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
        let cond = value.less_equal(self.threshold(tree, &at));
        let [first, second] = [1, 2].map(|child| self.branch(row, tree, 2 * node + child));
        Stmt::if_then_else(cond, second, first)
    }

    fn chains(&mut self) -> Stmt {
        let zeros = self.zeros();
        let trees = self.trees.clamp(1, CHAINS);
        let rows = (CHAINS / trees).clamp(1, self.rows.max(1));
        let body = in_runs(self, "block", self.trees, trees, |all, tree, trees| {
            in_runs(all, "row", all.rows, rows, |all, row, rows| {
                all.chain(&|at| row.clone() + at, rows, &|at| tree.clone() + at, trees)
            })
        });
        Stmt::seq([zeros, body])
    }

    /// Leads some rows through some trees, and adds what these yield.
    fn chain(
        &mut self,
        row: &dyn Fn(i64) -> PrimExpr,
        rows: i64,
        tree: &dyn Fn(i64) -> PrimExpr,
        trees: i64,
    ) -> Stmt {
        let nodes = self.nodes();
        let node = self.dag.func.register("node", DType::I64, &[rows * trees]);
        let chain = |at: i64, of: i64| PrimExpr::index(at * trees + of);
        let pairs = || (0..rows).flat_map(move |at| (0..trees).map(move |of| (at, of)));
        let start: Vec<Stmt> = pairs()
            .map(|(at, of)| self.dag.func.store(node, [chain(at, of)], PrimExpr::index(0)))
            .collect();
        let step: Vec<Stmt> = pairs()
            .map(|(at, of)| {
                let here = self.dag.func.load(node, [chain(at, of)]);
                let value = self.dag.at(self.x, &[row(at), self.column(&tree(of), &here)]);
                let second = value.less_equal(self.threshold(&tree(of), &here));
                let next = here * 2 + 1 + second.cast(DType::I64);
                self.dag.func.store(node, [chain(at, of)], next)
            })
            .collect();
        let level = self.dag.func.index_var("level");
        let steps = in_loop(level, self.depth.into(), ForKind::Serial, Stmt::seq(step));
        let mut sums = Vec::new();
        for at in 0..rows {
            for column in 0..self.width {
                let place = [row(at), column.into()];
                let mut sum = self.dag.func.load(self.result, place.clone());
                for of in 0..trees {
                    let leaf = self.dag.func.load(node, [chain(at, of)]) - nodes;
                    sum = sum + self.leaf(&tree(of), leaf, column);
                }
                sums.push(self.dag.func.store(self.result, place, sum));
            }
        }
        let all = start.into_iter().chain([steps]).chain(sums);
        Stmt::allocate(node, Stmt::seq(all))
    }

    fn levels(&mut self) -> Stmt {
        let size = LEVEL_ROWS.min(self.rows.max(1));
        in_runs(self, "block", self.rows, size, |all, first, rows| all.level_rows(first, rows))
    }

    /// Some rows by whole levels.
    fn level_rows(&mut self, first: &PrimExpr, rows: i64) -> Stmt {
        let mut local = |name: &str, lines: i64| {
            self.dag.func.local(name, self.dtype, BufferSpec::dense(&[lines, rows]))
        };
        let (turned, sums) = (local("turned", self.columns), local("sums", self.width));
        let [(line, row), (lane, column)] = ["row", "column"].map(|name| self.new_loop(name));
        let value = self.dag.at(self.x, &[first.clone() + row.clone(), column.clone()]);
        let turn = self.dag.func.store(turned, [column, row], value);
        let turn = in_loop(lane, self.columns, ForKind::Serial, turn);
        let turn = in_loop(line, rows, ForKind::Serial, turn);

        let [(line, column), (lane, row)] = ["column", "row"].map(|name| self.new_loop(name));
        let zero = self.dag.func.store(sums, [column, row], PrimExpr::zero(self.dtype));
        let zero = in_loop(lane, rows, ForKind::Vectorized, zero);
        let zero = in_loop(line, self.width, ForKind::Serial, zero);

        let (tree, of) = self.new_loop("tree");
        let add = in_runs(self, "lanes", rows, LEVEL_LANES, |all, from, lanes| {
            Stmt::seq((0..all.width).map(|column| {
                let (lane, by) = all.new_loop("lane");
                let at = [column.into(), from.clone() + by];
                let value = all.chosen(turned, &of, &at[1], 0, column);
                let sum = all.dag.func.load(sums, at.clone()) + value;
                in_loop(lane, lanes, ForKind::Vectorized, all.dag.func.store(sums, at, sum))
            }))
        });
        let add = in_loop(tree, self.trees, ForKind::Serial, add);

        let [(line, row), (lane, column)] = ["row", "column"].map(|name| self.new_loop(name));
        let sum = self.dag.func.load(sums, [column.clone(), row.clone()]);
        let store = self.dag.func.store(self.result, [first.clone() + row, column], sum);
        let store = in_loop(lane, self.width, ForKind::Serial, store);
        let store = in_loop(line, rows, ForKind::Serial, store);
        let body = Stmt::seq([turn, zero, add, store]);
        Stmt::allocate(turned, Stmt::allocate(sums, body))
    }

    /// What a tree yields for a row that is at a node, of columns that lie side by side.
    fn chosen(
        &self,
        turned: BufferId,
        tree: &PrimExpr,
        row: &PrimExpr,
        node: i64,
        column: i64,
    ) -> PrimExpr {
        if node >= self.nodes() {
            return self.leaf(tree, PrimExpr::index(node - self.nodes()), column);
        }
        let at = PrimExpr::index(node);
        let value = self.dag.func.load(turned, [self.column(tree, &at), row.clone()]);
        let cond = value.less_equal(self.threshold(tree, &at));
        let [first, second] =
            [1, 2].map(|child| self.chosen(turned, tree, row, 2 * node + child, column));
        PrimExpr::select(cond, second, first)
    }
}
