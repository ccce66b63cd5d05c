//! Two products with stages of rows between them, by blocks of rows: attention.
//!
//! The scores of a block of rows, what is made of them (a softmax) and their product with the second
//! matrix follow one another while the block is in the cache; there is no matrix of all scores. Each
//! element is computed as by kernels of its own, so that results are the same to the bit.

use super::conv2d::around;
use super::emit::{Emitter, Root};
use super::machine::MAX_TILE_ROWS;
use super::matmul::MatMul;
use super::rows::in_rows;
use super::tiling::Run;
use crate::ir::BufferSpec;
use crate::te::{Anchor, StageId, StageKind};
use crate::tir::transform::limit_fill;
use crate::tir::{PrimExpr, Stmt};

/// Bytes between rows of which some take each other's place in the first cache level.
const CONFLICTING: i64 = 1 << 10;

/// Elements between such rows: those of a line of the cache.
const APART: i64 = 16;

impl Emitter {
    /// Stages that are stored where rows of one product are made of those of another one: what tiles
    /// read, and what becomes of a sum before several read it.
    pub(super) fn stages_of_attention(&self) -> Vec<StageId> {
        let lhs = |stage: StageId| match self.dag.stages[stage].anchor {
            Anchor::MatMul { lhs, .. } => Some(lhs),
            _ => None,
        };
        let is_computed = |stage: &StageId| self.dag.stages[*stage].kind != StageKind::Placeholder;
        let rows: Vec<StageId> = self.dag.ids().filter_map(lhs).filter(is_computed).collect();
        if rows.is_empty() {
            return rows;
        }
        let sums = self.dag.ids().filter(|&stage| lhs(stage).is_some());
        let results = sums.map(|sum| {
            let reads = |at: StageId| move |&id: &StageId| self.dag.reads(id).contains(&at);
            let mut at = sum;
            while self.uses.get(&at) == Some(&1)
                && let Some(user) = self.dag.ids().find(reads(at))
                && matches!(self.dag.stages[user].kind, StageKind::Compute(_))
                && self.dag.shape(user) == self.dag.shape(sum)
            {
                at = user;
            }
            at
        });
        results.filter(is_computed).chain(rows.iter().copied()).collect()
    }

    /// The loops of attention: of a product, stages of its rows, and a product whose rows are theirs; with how many
    /// leading axes they share. `None` if the roots are anything else.
    pub(super) fn emit_attention(&mut self, roots: &[Root]) -> Option<(Stmt, usize)> {
        let [first, between @ .., last] = roots else { return None };
        let [_, lhs] = [self.left_operand(first)?, self.left_operand(last)?];
        let shape = self.dag.shape(first.stage);
        let &[ref batch @ .., rows, _] = shape else { return None };
        let (batch, axes) = (batch.to_vec(), batch.len() + 1);
        let is_between = |root: &Root| {
            let inner = &self.dag.stages[root.fused.unwrap_or(root.stage)];
            let is_loop = match inner.kind {
                StageKind::Compute(_) => true,
                StageKind::Reduce { .. } => inner.anchor == Anchor::None,
                StageKind::Placeholder
                | StageKind::Concat { .. }
                | StageKind::Joint { .. }
                | StageKind::Extern { .. } => false,
            };
            is_loop
                && self.scratch.contains(&self.materialised[&root.stage])
                && self.dag.shape(root.stage).len() == shape.len()
                && self.dag.shape(root.stage).starts_with(&shape[..axes])
        };
        let is_scratch = self.scratch.contains(&self.materialised[&first.stage]);
        let reads_between = between.iter().any(|root| root.stage == lhs);
        if !(is_scratch && reads_between && between.iter().all(is_between))
            || self.own_rows(roots) < axes
        {
            return None;
        }
        let has_rows = |p: &MatMul| p.has_rows(&batch, rows);
        let scores = self.product_of(first).filter(has_rows)?;
        let mut product = self.product_of(last).filter(has_rows)?;
        self.store_in_place(roots, axes);
        product.lhs = self.materialised[&lhs];
        Some((self.by_blocks([&scores, &product], between, &batch, rows), axes))
    }

    fn left_operand(&self, root: &Root) -> Option<StageId> {
        match self.dag.stages[root.fused.unwrap_or(root.stage)].anchor {
            Anchor::MatMul { lhs, .. } => Some(lhs),
            _ => None,
        }
    }

    /// The product that a root computes, if it is one that is computed in tiles.
    fn product_of(&mut self, root: &Root) -> Option<MatMul> {
        let inner = root.fused.unwrap_or(root.stage);
        let Anchor::MatMul { lhs, rhs, transpose_a, transpose_b } = self.dag.stages[inner].anchor
        else {
            return None;
        };
        self.matmul(root.stage, inner, [lhs, rhs], [transpose_a, transpose_b]).ok()
    }

    /// Rows of whole tiles, about as many as the tallest tile has.
    fn rows_of_block(&self, products: [&MatMul; 2]) -> i64 {
        let tile = self.machine.tile_rows(2);
        let rows = (MAX_TILE_ROWS / tile).max(1) * tile;
        products.iter().fold(rows, |rows, p| rows.min(p.rows.most))
    }

    fn by_blocks(
        &mut self,
        products: [&MatMul; 2],
        between: &[Root],
        batch: &[i64],
        rows: i64,
    ) -> Stmt {
        let axes = batch.len() + 1;
        let most = self.rows_of_block(products);
        let runs = Run::cover(rows, most);
        let blocks: i64 = runs.iter().map(|run| run.count).sum();
        let times = batch.iter().product::<i64>().saturating_mul(blocks);
        for p in products {
            self.count_macs(p.inner);
        }
        let scores = self.cut_product(products[0], most, times);
        let knobs = format!("{most} rows at a time, {} passes over each", between.len());
        self.note(between[between.len() - 1].stage, "rows between products", knobs, None, None);
        let product = self.cut_product(products[1], most, times);

        let scratch = std::mem::take(&mut self.scratch);
        for &buffer in &scratch {
            let mut shape = self.func.buffers[buffer].shape().to_vec();
            shape[..axes].fill(1);
            shape[axes - 1] = most;
            let bytes = i64::from(self.func.buffers[buffer].dtype.bits() / 8) * shape[axes];
            // Rows that are a power of two apart take each other's place in the first cache.
            let apart = if bytes % CONFLICTING == 0 { APART } else { 0 };
            self.func.buffers[buffer].spec = BufferSpec::dense(&shape).with_halo(axes, 0, apart);
        }
        let loops = self.counters(batch);
        let index: Vec<PrimExpr> = loops.iter().map(|(index, ..)| index.clone()).collect();
        // What is in scratch memory is for the rows and columns of the run alone.
        let stages = between.iter().map(|root| root.stage).chain([products[0].root]);
        let stages: Vec<StageId> = stages.collect();
        let mut stmts = Vec::new();
        for run in runs {
            let (i, i_var) = self.counter("block", run.count);
            let first_var = self.func.index_var("first");
            let first = self.func.var_expr(first_var);
            let count = products[0].rows.block(run.size, &first);
            let before = self.block(products[0], &scores, &count, (&index, &first));
            self.rows.clone_from(&index);
            let made = self.rows_from(between, &[], &first, run.size);
            self.rows.clear();
            let ends = stages.iter().flat_map(|stage| {
                let limits = self.dag.limits(*stage).iter();
                limits.map(|limit| (self.materialised[stage], limit.axis, limit.extent.clone()))
            });
            let made = limit_fill(&self.func, Stmt::seq([before, made]), ends);
            let after = self.block(products[1], &product, &count, (&index, &first));
            // What is kept of a block begins with its first row.
            let in_block = |row: PrimExpr| row.substitute(&[(first_var, 0.into())].into());
            let body = in_rows(Stmt::seq([made, after]), &scratch, axes, &in_block);
            let first = &[(first_var, i * run.size + run.first)].into();
            let body = body.map_exprs(&mut |expr| expr.substitute(first));
            stmts.push(around(i_var, run.count, body));
        }
        let mut body = Stmt::seq(stmts);
        for buffer in scratch {
            body = Stmt::allocate(buffer, body);
        }
        for p in products.into_iter().rev() {
            body = self.with_panels(p, &index, body);
        }
        loops.into_iter().rev().fold(body, |body, (_, var, extent)| around(var, extent, body))
    }
}
