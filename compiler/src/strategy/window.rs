//! Windows that slide over planes, with a border around these, so that no element is tested.

use super::conv2d::halo_needed;
use super::cover::{LEAST_LANES, adjacent};
use super::emit::Emitter;
use super::reduce::Reduction;
use crate::ir::BufferSpec;
use crate::te::{Anchor, StageId};
use crate::tir::{BufferId, ParamKind, Stmt};

/// Fewest neighbours in a row of the result for which its planes get a border.
const MIN_ROW: i64 = LEAST_LANES;

impl Emitter {
    /// The loops of windows over a tensor in planes, if the result lies in such, too.
    pub(super) fn emit_window(
        &mut self,
        root: StageId,
        inner: StageId,
        anchor: &Anchor,
    ) -> Option<Stmt> {
        let Anchor::Window { data, taps, strides, padding, dilation } = anchor else { return None };
        let data = *data;
        let from = *self.materialised.get(&data)?;
        let outside = Reduction::of(self, inner)?.init();
        let [read, written] = [from, self.materialised[&root]].map(|b| &self.func.buffers[b].spec);
        let is_planar = read.is_dense() && written.is_dense() && adjacent(written) >= MIN_ROW;
        if !self.rows.is_empty() || !is_planar || self.dag.dtype(data) != self.dag.dtype(inner) {
            return None;
        }
        let (extents, windows) = (self.dag.shape(data), self.dag.shape(inner));
        let mut spec = BufferSpec::dense(extents);
        for (axis, at) in (0..taps.len()).zip(2..) {
            let is_open = self.dag.limits(data).iter().any(|limit| limit.axis == at);
            let input = (extents[at], is_open);
            let [taps, stride] = [taps[axis], strides[axis]];
            let [before, apart] = [padding[axis], dilation[axis]];
            let (before, after) = halo_needed(input, windows[at], taps, stride, before, apart);
            spec = spec.with_halo(at, before, after);
        }
        let (copy, fill) = self.copy_with_border(from, spec, &outside);
        self.note(inner, "windows over planes with a border", String::new(), None, None);
        Some(Stmt::seq([fill, self.reduce_with_border(root, inner, from, copy)]))
    }

    /// A reduction of windows over a copy that has the border they need.
    pub(super) fn reduce_with_border(
        &mut self,
        root: StageId,
        inner: StageId,
        data: BufferId,
        copy: BufferId,
    ) -> Stmt {
        let Some(reduction) = Reduction::of(self, inner) else { return Stmt::nop() };
        let image = self.dag.stage_of(data);
        let before = image.and_then(|image| self.materialised.insert(image, copy));
        // What reads nothing but the copy may be computed twice.
        let inputs = self.func.params.iter().filter(|param| param.kind == ParamKind::Input);
        let mut inputs = inputs.filter_map(|param| self.dag.stage_of(param.buffer));
        let reads = |input| self.reads_stored(root, input, &self.materialised);
        let reads_others = inputs.any(|input| Some(input) != image && reads(input));
        let is_alone = !reads_others && self.dag.limits(root).is_empty();
        let loops = self.emit_reduction(root, &reduction.with_border().repeating(is_alone));
        if let Some((image, buffer)) = image.zip(before) {
            self.materialised.insert(image, buffer);
        }
        loops
    }
}
