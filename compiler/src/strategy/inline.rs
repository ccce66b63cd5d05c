//! Inlining: the element of a stage as one expression over materialised buffers.

use std::collections::BTreeMap;

use crate::te::{ComputeDag, StageId, StageKind};
use crate::tir::{BufferId, PrimExpr, PrimFuncData, Stmt, VarId};

/// Deepest expression that inlining makes; a deeper chain of stages is cut by a buffer.
///
/// Well below `tir::MAX_DEPTH`: lowering an intrinsic makes an expression deeper.
pub(super) const MAX_INLINE_DEPTH: usize = 48;

/// Reads elements of stages: those that are not materialised become expressions, and one that is
/// used several times becomes a `Let`.
pub(super) struct Inliner<'a> {
    dag: &'a ComputeDag,
    /// Where the elements of materialised stages are. A layout of its own is the buffer's.
    materialised: &'a BTreeMap<StageId, BufferId>,
    /// A stage whose element at the index of the surrounding loops is at hand: an accumulator.
    at_hand: Option<(StageId, PrimExpr)>,
    uses: &'a BTreeMap<StageId, usize>,
    lets: Vec<Memo>,
}

struct Memo {
    stage: StageId,
    index: Vec<PrimExpr>,
    var: VarId,
    value: PrimExpr,
}

impl<'a> Inliner<'a> {
    pub(super) fn new(
        dag: &'a ComputeDag,
        materialised: &'a BTreeMap<StageId, BufferId>,
        uses: &'a BTreeMap<StageId, usize>,
    ) -> Inliner<'a> {
        Inliner { dag, materialised, at_hand: None, uses, lets: Vec::new() }
    }

    /// Makes every element of `stage` that is read stand for `value`.
    pub(super) fn put_at_hand(&mut self, stage: StageId, value: PrimExpr) {
        self.at_hand = Some((stage, value));
    }

    /// The element of a stage at an index.
    pub(super) fn element(
        &mut self,
        func: &mut PrimFuncData,
        stage: StageId,
        index: &[PrimExpr],
    ) -> PrimExpr {
        if let Some((at_hand, value)) = &self.at_hand
            && *at_hand == stage
        {
            return value.clone();
        }
        if let Some(&buffer) = self.materialised.get(&stage) {
            return func.load(buffer, index.iter().cloned());
        }
        self.computed(func, stage, index)
    }

    /// The element of a stage that is computed here, even if it is materialised later.
    pub(super) fn computed(
        &mut self,
        func: &mut PrimFuncData,
        stage: StageId,
        index: &[PrimExpr],
    ) -> PrimExpr {
        let shared = self.uses.get(&stage).copied().unwrap_or(0) > 1;
        if shared
            && let Some(memo) = self.lets.iter().find(|m| m.stage == stage && m.index == index)
        {
            return func.var_expr(memo.var);
        }
        let data = &self.dag.stages[stage];
        let StageKind::Compute(body) = &data.kind else {
            unreachable!("reductions, concatenations and placeholders are materialised or at hand")
        };
        let axes = data.axes.iter().copied().zip(index.iter().cloned()).collect();
        let value = self.expression(func, body.clone().substitute(&axes));
        if !shared || value.is_leaf() {
            return value;
        }
        let var = func.var(data.op.replace('.', "_"), value.ty());
        self.lets.push(Memo { stage, index: index.to_vec(), var, value });
        func.var_expr(var)
    }

    /// An expression of the dag with the elements it reads put in.
    pub(super) fn expression(&mut self, func: &mut PrimFuncData, expr: PrimExpr) -> PrimExpr {
        match expr {
            PrimExpr::Load { buffer, dtype, indices } => {
                let indices: Vec<PrimExpr> =
                    indices.into_iter().map(|index| self.expression(func, index)).collect();
                match self.dag.stage_of(buffer) {
                    Some(stage) => self.element(func, stage, &indices),
                    None => PrimExpr::Load { buffer, dtype, indices },
                }
            }
            PrimExpr::Select { cond, then, otherwise } => {
                let cond = self.expression(func, *cond);
                // What a condition guards must not be evaluated before it: it may be out of range.
                let then = self.guarded(func, *then);
                let otherwise = self.guarded(func, *otherwise);
                PrimExpr::select(cond, then, otherwise)
            }
            other => other.map_children(&mut |child| self.expression(func, child)),
        }
    }

    fn guarded(&mut self, func: &mut PrimFuncData, expr: PrimExpr) -> PrimExpr {
        let outer = self.lets.len();
        let mut value = self.expression(func, expr);
        for memo in self.lets.drain(outer..).rev() {
            value =
                PrimExpr::Let { var: memo.var, value: Box::new(memo.value), body: Box::new(value) };
        }
        value
    }

    /// The values that several expressions share, around the statement that uses them.
    pub(super) fn wrap(self, mut stmt: Stmt) -> Stmt {
        for memo in self.lets.into_iter().rev() {
            stmt = Stmt::let_(memo.var, memo.value, stmt);
        }
        stmt
    }
}

/// How often each stage is read by stages that are needed, and once more for each output.
pub(super) fn use_counts(dag: &ComputeDag, outputs: &[StageId]) -> BTreeMap<StageId, usize> {
    let mut uses: BTreeMap<StageId, usize> = BTreeMap::new();
    for &output in outputs {
        *uses.entry(output).or_default() += 1;
    }
    for stage in dag.ids().rev() {
        if !uses.contains_key(&stage) {
            continue;
        }
        let mut count = |expr: &PrimExpr| {
            expr.walk(&mut |e| {
                if let PrimExpr::Load { buffer, .. } = e
                    && let Some(read) = dag.stage_of(*buffer)
                {
                    *uses.entry(read).or_default() += 1;
                }
            });
        };
        match &dag.stages[stage].kind {
            StageKind::Placeholder => {}
            StageKind::Compute(body) => count(body),
            StageKind::Reduce { combiner: _, init, axes: _, value } => {
                count(init);
                count(value);
            }
            StageKind::Concat { axis: _, parts } => {
                for part in parts {
                    *uses.entry(part.stage).or_default() += 1;
                }
            }
            StageKind::Joint { .. } | StageKind::Extern { .. } => {
                for read in dag.reads(stage).into_iter().chain(dag.computed_with(stage)) {
                    *uses.entry(read).or_default() += 1;
                }
            }
        }
    }
    uses
}
