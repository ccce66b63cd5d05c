//! Kernels that move elements and compute none: concatenations and slices.

use crate::executor::Moves;
use crate::te::{ComputeDag, StageId, StageKind};
use crate::tir::{Affine, PrimExpr};

/// What a dag does if all of it is one concatenation of its parameters, or slices of one of them.
pub(super) fn moves(dag: &ComputeDag, params: &[StageId], results: &[StageId]) -> Option<Moves> {
    let position = |stage: StageId| params.iter().position(|&param| param == stage);
    let kinds: Vec<&StageKind> = results.iter().map(|&stage| &dag.stages[stage].kind).collect();
    if let [StageKind::Concat { axis, parts }] = kinds[..] {
        let parts = parts.iter().map(|part| Some((position(part.stage)?, part.offset)));
        return Some(Moves::Concatenation { axis: *axis, parts: parts.collect::<Option<_>>()? });
    }
    let slices: Option<Vec<_>> = results.iter().map(|&result| slice(dag, result)).collect();
    let slices = slices?;
    let from = slices.first()?.0;
    let is_one = slices.iter().all(|slice| slice.0 == from);
    let parts = slices.into_iter().map(|(_, axis, start)| (axis, start)).collect();
    is_one.then_some(Moves::Slices { from: position(from)?, parts })
}

/// The stage that a stage is a part of along one axis, that axis, and where the part begins.
fn slice(dag: &ComputeDag, result: StageId) -> Option<(StageId, usize, i64)> {
    let stage = &dag.stages[result];
    let StageKind::Compute(PrimExpr::Load { buffer, indices, .. }) = &stage.kind else {
        return None;
    };
    let from = dag.stage_of(*buffer)?;
    let (whole, part) = (dag.shape(from), dag.shape(result));
    if whole.len() != part.len() {
        return None;
    }
    let axis = whole.iter().zip(part).position(|(whole, part)| whole != part)?;
    let mut start = 0;
    for (at, (index, &var)) in indices.iter().zip(&stage.axes).enumerate() {
        let Affine { terms, constant } = Affine::of(index);
        let is_index = matches!(&terms[..], [(PrimExpr::Var { var: own, .. }, 1)] if *own == var);
        // The only index of an axis of one element may be left out.
        let is_first = terms.is_empty() && part[at] == 1;
        if !is_index && !is_first {
            return None;
        }
        match at == axis {
            true => start = constant,
            false if constant == 0 && whole[at] == part[at] => {}
            false => return None,
        }
    }
    Some((from, axis, start))
}
