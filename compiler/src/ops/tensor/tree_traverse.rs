//! `tree_traverse`: where binary trees of comparisons lead each row of a matrix.
//!
//! All trees are one flat array of nodes. Every tree takes the same number of steps, and a node where
//! it ends leads to itself, so that a step is the same few loads for all of them, and no branch depends
//! on what a node compares. A row goes through several trees side by side, until all of them have
//! ended.

use serde::{Deserialize, Serialize};

use super::nearest;
use super::scatter::in_loop;
use crate::graph::TypeError;
use crate::graph::interp::{Elements, Tensor};
use crate::ir::{DType, Type};
use crate::ops::compute::{Compute, Stages};
use crate::ops::eval::EvalCx;
use crate::ops::relation::DTypes;
use crate::ops::{EvalError, InferCx, Input, OpDef};
use crate::te::{ComputeDag, StageId};
use crate::tir::{BinaryOp, BufferId, ForKind, PrimExpr, Stmt, VarId};

/// Most steps: a tree of a chain of so many comparisons is none that anyone trained.
const MAX_DEPTH: i64 = 1 << 16;

/// Trees that a row goes through side by side, whose places are in registers. Their nodes stay in the
/// processor's cache for all rows.
const BLOCK: i64 = 8;

/// Steps after which it is looked whether all trees of a block have ended.
const RUN: i64 = 4;

/// Attributes of `tree_traverse`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TreeTraverseAttrs {
    /// Steps that each tree takes.
    pub depth: i64,
}

/// For each row of `x` and each tree the node that the tree's root leads to. At a node, element
/// `feature` of the row that is at most `threshold` leads to the second of the node's two children,
/// any other, NaN included, to the first. Indices outside count as the nearest.
pub static TREE_TRAVERSE: OpDef = OpDef::new(
    "tree_traverse",
    "where trees of comparisons lead each row",
    &[
        Input::required("x"),
        Input::required("feature"),
        Input::required("threshold"),
        Input::required("children"),
        Input::required("roots"),
    ],
    infer,
    eval,
    compute,
)
.attributes::<TreeTraverseAttrs>();

fn infer(cx: &InferCx<'_>) -> Result<Type, TypeError> {
    let attrs: TreeTraverseAttrs = cx.attrs()?;
    ensure!(
        (0..=MAX_DEPTH).contains(&attrs.depth),
        "attribute `depth` must be from 0 to {MAX_DEPTH}, but it is {}",
        attrs.depth
    );
    let x = cx.tensor_of(0, DTypes::Float)?;
    let feature = cx.tensor_of(1, DTypes::Int)?;
    let (threshold, children) = (cx.tensor(2)?, cx.tensor_of(3, DTypes::Int)?);
    let roots = cx.tensor_of(4, DTypes::Int)?;
    cx.same_dtype(0, 2)?;
    let ([rows, columns], [nodes], [thresholds], [sources, two], [trees]) = (
        &x.shape[..],
        &feature.shape[..],
        &threshold.shape[..],
        &children.shape[..],
        &roots.shape[..],
    ) else {
        return Err(TypeError::new(format!(
            "a matrix `x`, vectors `feature`, `threshold` and `roots` and a matrix `children` are \
             expected, but they are {x}, {feature}, {threshold}, {roots} and {children}"
        )));
    };
    ensure!(
        cx.same(nodes, thresholds) && cx.same(nodes, sources) && two.as_const() == Some(2),
        "`feature`, `threshold` and `children` must have one number, one number and two for each \
         node, but they are {feature}, {threshold} and {children}"
    );
    ensure!(
        columns.as_const() != Some(0) && nodes.as_const() != Some(0),
        "there must be a column and a node, but `x` is {x} and `feature` is {feature}"
    );
    cx.result([rows.clone(), trees.clone()], DType::I32)
}

fn eval(cx: &EvalCx<'_>) -> Result<Vec<Tensor>, EvalError> {
    let attrs: TreeTraverseAttrs = cx.attrs()?;
    let (x, threshold) = (cx.floats(0)?, cx.floats(2)?);
    let (feature, children, roots) = (cx.ints(1)?, cx.ints(3)?, cx.ints(4)?);
    let columns = cx.arg(0)?.shape()[1];
    let nearest = |index: i128, count: usize| index.clamp(0, count as i128 - 1) as usize;
    let mut leaves = Vec::with_capacity(cx.len());
    for row in x.chunks(columns) {
        for &root in roots {
            let mut node = nearest(root, feature.len());
            for _ in 0..attrs.depth {
                let value = row[nearest(feature[node], columns)];
                let second = usize::from(value <= threshold[node]);
                let next = nearest(children[2 * node + second], feature.len());
                if next == node {
                    break;
                }
                node = next;
            }
            leaves.push(node as i128);
        }
    }
    cx.result(Elements::Int(leaves))
}

/// The arguments.
struct Trees {
    x: StageId,
    feature: StageId,
    threshold: StageId,
    children: StageId,
    roots: StageId,
    rows: i64,
    columns: i64,
    nodes: i64,
    depth: i64,
}

fn compute(cx: &mut Compute<'_>) -> Stages {
    let attrs: TreeTraverseAttrs = cx.attrs()?;
    let args = [cx.arg(0)?, cx.arg(1)?, cx.arg(2)?, cx.arg(3)?, cx.arg(4)?];
    let [x, feature, threshold, children, roots] = args;
    let (shape, dtype) = cx.result();
    let (rows, columns) = (shape[0], cx.dag.shape(x)[1]);
    let nodes = cx.dag.shape(feature)[0];
    let depth = attrs.depth;
    let trees = Trees { x, feature, threshold, children, roots, rows, columns, nodes, depth };
    let op = cx.op.name;
    let leaves = cx.dag.statement(op, &shape, dtype, &args, |dag, result| {
        let (blocks, rest) = (shape[1] / BLOCK, shape[1] % BLOCK);
        let block = dag.func.index_var("block");
        let first = dag.func.var_expr(block) * BLOCK;
        let whole = trees.lead(dag, result, &first, BLOCK);
        let whole = in_loop(block, blocks, ForKind::Serial, whole);
        let rest = trees.lead(dag, result, &PrimExpr::index(blocks * BLOCK), rest);
        Stmt::seq([whole, rest])
    });
    Ok(vec![leaves])
}

impl Trees {
    /// Leads all rows through so many trees.
    fn lead(&self, dag: &mut ComputeDag, result: BufferId, first: &PrimExpr, count: i64) -> Stmt {
        if count == 0 {
            return Stmt::nop();
        }
        let row = dag.func.index_var("row");
        let node = dag.func.register("node", DType::I64, &[count]);
        let moved = dag.func.register("moved", DType::I64, &[1]);
        let mut start = Vec::new();
        let mut end = Vec::new();
        for of in 0..count {
            let root = dag.at(self.roots, &[first.clone() + of]);
            start.push(dag.func.store(node, [of], nearest(root, self.nodes)));
            let leaf = dag.func.load(node, [of]).cast(DType::I32);
            end.push(dag.func.store(result, [dag.func.var_expr(row), first.clone() + of], leaf));
        }
        start.push(dag.func.store(moved, [0], PrimExpr::index(1)));

        // Where none of a row's trees has moved in the last step of a run, none moves any more.
        let (runs, rest) = (self.depth / RUN, self.depth % RUN);
        let step = dag.func.index_var("step");
        let all_but_one = self.step(dag, row, node, count);
        let last = self.step_that_tells(dag, row, node, count, moved);
        let body = Stmt::seq([in_loop(step, RUN - 1, ForKind::Serial, all_but_one), last]);
        let has_moved = dag.func.load(moved, [0]).not_equal(PrimExpr::index(0));
        let run = dag.func.index_var("run");
        let body = in_loop(run, runs, ForKind::Serial, Stmt::if_then(has_moved, body));
        let step = dag.func.index_var("step");
        let remaining = self.step(dag, row, node, count);
        let remaining = in_loop(step, rest, ForKind::Serial, remaining);

        let stmts = start.into_iter().chain([body, remaining]).chain(end);
        let body = Stmt::allocate(node, Stmt::allocate(moved, Stmt::seq(stmts)));
        in_loop(row, self.rows, ForKind::Serial, body)
    }

    /// A step of a row in each of some trees, one after the other: each waits for loads that depend on
    /// one another, meanwhile there is something to do in the others.
    fn step(&self, dag: &ComputeDag, row: VarId, node: BufferId, count: i64) -> Stmt {
        Stmt::seq((0..count).map(|of| {
            let next = self.next(dag, row, dag.func.load(node, [of]));
            dag.func.store(node, [of], next)
        }))
    }

    /// The same, with whether it has led any of them elsewhere.
    fn step_that_tells(
        &self,
        dag: &mut ComputeDag,
        row: VarId,
        node: BufferId,
        count: i64,
        moved: BufferId,
    ) -> Stmt {
        let next = dag.func.register("next", DType::I64, &[count]);
        let mut stmts = Vec::new();
        let mut any = PrimExpr::index(0);
        for of in 0..count {
            let to = self.next(dag, row, dag.func.load(node, [of]));
            stmts.push(dag.func.store(next, [of], to));
        }
        for of in 0..count {
            let [from, to] = [node, next].map(|buffer| dag.func.load(buffer, [of]));
            any = any.or(PrimExpr::binary(BinaryOp::Xor, from, to));
        }
        stmts.push(dag.func.store(moved, [0], any));
        for of in 0..count {
            let to = dag.func.load(next, [of]);
            stmts.push(dag.func.store(node, [of], to));
        }
        Stmt::allocate(next, Stmt::seq(stmts))
    }

    /// The node that a row gets to from one, which lies within.
    fn next(&self, dag: &ComputeDag, row: VarId, node: PrimExpr) -> PrimExpr {
        let feature = dag.at(self.feature, std::slice::from_ref(&node));
        let value = dag.at(self.x, &[dag.func.var_expr(row), nearest(feature, self.columns)]);
        let is_second = value.less_equal(dag.at(self.threshold, std::slice::from_ref(&node)));
        nearest(dag.at(self.children, &[node, is_second.cast(DType::I64)]), self.nodes)
    }
}
