//! Reductions over axes that lie one behind the other in memory, as over a single one.

use super::super::emit::Emitter;
use super::Reduction;
use crate::ir::BufferSpec;
use crate::te::ReduceAxis;
use crate::tir::{BufferId, PrimExpr, VarId};

/// An element that a reduction reads.
type Read = (BufferId, Vec<PrimExpr>);

impl Emitter {
    /// The reduction with one axis in place of several whose elements follow one another in all dense
    /// tensors that it alone reads; none if there are no such axes. These tensors then have as many
    /// axes fewer.
    pub(super) fn join_reduced(&mut self, reduction: &Reduction) -> Option<Reduction> {
        let mut joined = None;
        while let Some(next) = self.join_two(joined.as_ref().unwrap_or(reduction)) {
            joined = Some(next);
        }
        joined
    }

    /// The same for the first two such axes.
    fn join_two(&mut self, reduction: &Reduction) -> Option<Reduction> {
        let reads = reads(&reduction.value)?;
        let at = (1..reduction.axes.len()).find(|&at| self.follow(reduction, at, &reads))?;
        let [outer, inner] = [&reduction.axes[at - 1], &reduction.axes[at]];
        let (index, var) = self.counter("r", outer.extent * inner.extent);
        let place =
            |indices: &[PrimExpr]| indices.iter().position(|index| is_var(index, outer.var));
        for (buffer, indices) in &reads {
            if let Some(place) = place(indices) {
                let mut shape = self.func.buffers[*buffer].shape().to_vec();
                let extent = shape.remove(place + 1);
                shape[place] *= extent;
                self.func.buffers[*buffer].spec = BufferSpec::dense(&shape);
            }
        }
        let value = reduction.value.clone().rewrite(&mut |expr| match expr {
            PrimExpr::Load { buffer, dtype, mut indices } => {
                if let Some(place) = place(&indices) {
                    indices.remove(place + 1);
                    indices[place] = index.clone();
                }
                PrimExpr::Load { buffer, dtype, indices }
            }
            other => other,
        });
        let mut joined = Reduction { value, ..reduction.clone() };
        joined.axes[at - 1] = ReduceAxis { var, extent: outer.extent * inner.extent };
        joined.axes.remove(at);
        joined.limits.remove(at);
        Some(joined)
    }

    /// Whether an axis that is reduced follows the one before it wherever that is an index.
    fn follow(&self, reduction: &Reduction, at: usize, reads: &[Read]) -> bool {
        let [outer, inner] = [&reduction.axes[at - 1], &reduction.axes[at]];
        let uses = |index: &PrimExpr| index.uses(outer.var) || index.uses(inner.var);
        let mut pairs = reads.iter().filter(|(_, indices)| indices.iter().any(uses)).peekable();
        let is_read = pairs.peek().is_some();
        let is_pair = |(buffer, indices): &Read| {
            let spec = &self.func.buffers[*buffer].spec;
            let place = indices.iter().position(|index| is_var(index, outer.var));
            let fits = place.is_some_and(|place| {
                let behind = indices.get(place + 1).is_some_and(|index| is_var(index, inner.var));
                let uses = indices.iter().filter(|index| uses(index)).count();
                behind && uses == 2 && spec.shape()[place + 1] == inner.extent
            });
            fits && spec.is_dense() && self.is_read_by(*buffer, reduction)
        };
        // Outside of what is read, a place is a number.
        let outside = reduction.value.clone().rewrite(&mut |expr| match expr {
            PrimExpr::Load { dtype, .. } => PrimExpr::zero(dtype),
            other => other,
        });
        let are_whole = reduction.limits[at - 1..=at].iter().all(Option::is_none);
        is_read && are_whole && !uses(&outside) && pairs.all(is_pair)
    }

    /// Whether no stage but the reduction reads a tensor, and that where it is.
    fn is_read_by(&self, buffer: BufferId, reduction: &Reduction) -> bool {
        let Some(tensor) = self.dag.stage_of(buffer) else { return false };
        let mut used = self.dag.ids().filter(|stage| self.uses.contains_key(stage));
        self.materialised.get(&tensor) == Some(&buffer)
            && used
                .all(|stage| stage == reduction.stage || !self.dag.reads(stage).contains(&tensor))
    }
}

/// The elements that an expression reads; none if it reads several of a tensor.
fn reads(value: &PrimExpr) -> Option<Vec<Read>> {
    let mut reads: Vec<Read> = Vec::new();
    let mut fits = true;
    value.walk(&mut |expr| {
        let PrimExpr::Load { buffer, indices, .. } = expr else { return };
        match reads.iter().find(|read| read.0 == *buffer) {
            Some(known) => fits &= known.1 == *indices,
            None => reads.push((*buffer, indices.clone())),
        }
    });
    fits.then_some(reads)
}

fn is_var(index: &PrimExpr, wanted: VarId) -> bool {
    matches!(index, PrimExpr::Var { var, .. } if *var == wanted)
}
