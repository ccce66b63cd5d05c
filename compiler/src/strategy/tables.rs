//! Tables: what depends on nothing but its index, computed while the model is compiled.

use std::collections::BTreeSet;

use super::primitive::Primitive;
use crate::ir::{Constant, DType, SharedBytes, TensorType};
use crate::te::{ComputeDag, Stage, StageId, StageKind, lower_to_blocks};
use crate::tir::{CompareOp, ParamKind, PrimExpr, interpret};

/// Most elements of a table that becomes a constant: a larger one would make the program larger than
/// computing it makes a run longer.
const MOST_ELEMENTS: i64 = 1 << 13;

impl Primitive {
    /// Makes constants of stored stages that read no parameter, as the places and weights of a resized
    /// image are, if `is_known` says so of them. Weights that are not zero need no test.
    pub(super) fn fold_tables(&mut self, is_known: &dyn Fn(&Stage, StageId) -> bool) {
        let closed = closed(&self.dag, is_known);
        let open = || self.dag.ids().filter(|stage| !closed.contains(stage));
        let read: BTreeSet<StageId> = open().flat_map(|stage| self.dag.reads(stage)).collect();
        let tables: Vec<(StageId, Constant)> = (closed.intersection(&read))
            .filter(|stage| self.dag.stages[**stage].is_stored && !self.results.contains(stage))
            .filter_map(|&stage| Some((stage, table(&self.dag, stage)?)))
            .collect();
        let mut nonzero = BTreeSet::new();
        for (stage, table) in tables {
            let is_list = self.dag.shape(stage).len() == 1 && !table.ty().dtype.is_float();
            self.dag.set_constant(stage, table.to_i64_vec().filter(|_| is_list));
            if table.to_f64_vec().is_some_and(|values| values.iter().all(|v| v.abs() > 0.0)) {
                nonzero.insert(self.dag.stages[stage].buffer);
            }
            self.constants.push((stage, table));
        }
        if nonzero.is_empty() {
            return;
        }
        let is_test = |expr: &PrimExpr| match expr {
            PrimExpr::Compare { op: CompareOp::Ne, lhs, rhs } => {
                let is_zero = rhs.as_float().is_some_and(|value| value == 0.0);
                is_zero
                    && matches!(&**lhs, PrimExpr::Load { buffer, .. } if nonzero.contains(buffer))
            }
            _ => false,
        };
        for stage in self.dag.ids().filter(|stage| !closed.contains(stage)) {
            let kind = std::mem::replace(&mut self.dag.stages[stage].kind, StageKind::Placeholder);
            let values = kind.values().into_iter().cloned();
            let decided = values.map(|value| {
                value.rewrite(&mut |expr| match expr {
                    PrimExpr::Select { cond, then, .. } if is_test(&cond) => *then,
                    other => other,
                })
            });
            let decided = decided.collect();
            self.dag.stages[stage].kind = kind.with_values(decided);
        }
    }
}

/// Stages that depend on their index alone.
fn closed(dag: &ComputeDag, is_known: &dyn Fn(&Stage, StageId) -> bool) -> BTreeSet<StageId> {
    let mut closed = BTreeSet::new();
    for stage in dag.ids() {
        let data = &dag.stages[stage];
        let is_function = matches!(data.kind, StageKind::Compute(_) | StageKind::Reduce { .. });
        if is_function
            && is_known(data, stage)
            && dag.reads(stage).iter().all(|read| closed.contains(read))
        {
            closed.insert(stage);
        }
    }
    closed
}

/// The elements of a stage that depends on its index alone; `None` if there are too many.
fn table(dag: &ComputeDag, stage: StageId) -> Option<Constant> {
    let (shape, dtype) = (dag.shape(stage), dag.dtype(stage));
    let elements = shape.iter().fold(1i64, |n, &extent| n.saturating_mul(extent));
    if dtype == DType::Bool || !(1..=MOST_ELEMENTS).contains(&elements) {
        return None;
    }
    let ty = TensorType::from_consts(shape, dtype);
    let func = lower_to_blocks(dag, &[(stage, ParamKind::Output)]).ok()?;
    let mut results = [vec![0; usize::try_from(ty.bytes()?).ok()?]];
    // Nothing depends on the dimensions.
    interpret(&func, &mut results, &vec![0; func.dims.len()]).ok()?;
    let [bytes] = results;
    Constant::new(ty, SharedBytes::new(bytes)).ok()
}
