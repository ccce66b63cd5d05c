//! Copies of tensors in other layouts.

use super::emit::{Emitter, is_vectorized};
use super::nest::block;
use super::turn::turns;
use crate::ir::BufferSpec;
use crate::target::CHANNEL_BLOCK;
use crate::te::{Stage, StageId, StageKind};
use crate::tir::border::{fill_behind, fill_halo};
use crate::tir::transform::limit_fill;
use crate::tir::{Buffer, BufferId, PrimExpr, Stmt};

/// Most elements that are copied for each one that is made of them.
const MOST_COPIED: i64 = 4;

/// Fewest channels of planes that are made in blocks: half a block.
const LEAST_CHANNELS: i64 = CHANNEL_BLOCK / 2;

impl Emitter {
    /// Copies a tensor into another layout.
    pub(super) fn copy(&mut self, from: BufferId, to: BufferId) -> Stmt {
        let (spec, dtype) = (self.func.buffers[to].spec.clone(), self.func.buffers[to].dtype);
        self.cover(&spec, dtype, true, &mut |emitter, index| {
            let value = emitter.func.load(from, index.iter().cloned());
            emitter.func.store(to, index.iter().cloned(), value)
        })
    }

    /// Whether some stage reads all channels of an image at pixels that a table or a run says, as where the
    /// image is sampled.
    pub(super) fn samples(&self) -> bool {
        let mut used = self.dag.ids().filter(|stage| self.uses.contains_key(stage));
        used.any(|stage| {
            let Stage { kind: StageKind::Compute(value), axes, .. } = &self.dag.stages[stage]
            else {
                return false;
            };
            let &[_, channel, ..] = axes.as_slice() else { return false };
            let is_sampled = |indices: &[PrimExpr]| match indices {
                [_, of_image, _, column] => {
                    let is_found = column.any(&mut |expr| matches!(expr, PrimExpr::Load { .. }));
                    *of_image == self.func.var_expr(channel) && is_found && !column.uses(channel)
                }
                _ => false,
            };
            self.dag.shape(stage)[1] >= LEAST_CHANNELS
                && value.any(&mut |expr| {
                    matches!(expr, PrimExpr::Load { indices, .. } if is_sampled(indices))
                })
        })
    }

    /// Planes that are in no vectors of what other planes have at the same pixels of all channels: in blocks
    /// of channels first, of copies in blocks.
    pub(super) fn planes_through_copies(&mut self, root: StageId) -> Option<Stmt> {
        let (planes, dtype) = (self.materialised[&root], self.dag.dtype(root));
        let shape = self.func.buffers[planes].shape();
        let is_image = shape.len() == 4 && shape[1] >= LEAST_CHANNELS;
        if !is_image || !self.func.buffers[planes].spec.is_dense() || !turns(dtype) {
            return None;
        }
        let spec = BufferSpec::nchwc(shape, CHANNEL_BLOCK, &[]);
        let blocks = self.func.local("blocks", dtype, spec);
        self.materialised.insert(root, blocks);
        let made = self.through_copies(root);
        self.materialised.insert(root, planes);
        let made = made?;
        self.scratch.push(blocks);
        self.note(root, "planes from blocks of channels", String::new(), None, None);
        Some(Stmt::seq([made, self.copy(blocks, planes)]))
    }

    /// The elements of a stage that are in no vectors as what they are made of lies, of copies of that: in
    /// planes, as where channels become neighbours of pixels, or in blocks of channels, whose places are the
    /// same for all lanes.
    pub(super) fn through_copies(&mut self, root: StageId) -> Option<Stmt> {
        let to = &self.func.buffers[self.materialised[&root]];
        let (spec, dtype) = (to.spec.clone(), to.dtype);
        let in_blocks = !spec.is_dense();
        if !self.rows.is_empty() || in_blocks && block(&spec, 1) != Some(CHANNEL_BLOCK) {
            return None;
        }
        let element = &mut |emitter: &mut Emitter, index: &[PrimExpr]| {
            emitter.store_element(root, None, index)
        };
        let probe = self.element_of(&spec, element);
        let lies_otherwise = |buffer: BufferId| {
            let Buffer { spec: read, dtype, .. } = &self.func.buffers[buffer];
            if !in_blocks {
                return !read.blocking().is_empty();
            }
            let is_image = read.shape().len() == 4 && read.shape()[1] == spec.shape()[1];
            is_image && read.is_dense() && turns(*dtype) && !self.is_constant(buffer)
        };
        let is_read = |&(stage, buffer): &(StageId, BufferId)| {
            let is_whole = stage != root && self.dag.limits(stage).is_empty();
            is_whole && lies_otherwise(buffer) && probe.stmt.touches(buffer)
        };
        let read = self.materialised.iter().map(|(&stage, &buffer)| (stage, buffer));
        let read: Vec<(StageId, BufferId)> = read.filter(is_read).collect();
        let elements = |shape: &[i64]| shape.iter().copied().fold(1, i64::saturating_mul);
        let copied: i64 = read.iter().map(|&(stage, _)| elements(self.dag.shape(stage))).sum();
        let is_small = copied <= elements(spec.shape()).saturating_mul(MOST_COPIED);
        if read.is_empty() || !is_small {
            return None;
        }
        let (mut stmts, mut copies) = (Vec::new(), Vec::new());
        for &(stage, from) in &read {
            let shape = self.dag.shape(stage);
            let (name, spec) = match in_blocks {
                true => ("blocks", BufferSpec::nchwc(shape, CHANNEL_BLOCK, &[])),
                false => ("planes", BufferSpec::dense(shape)),
            };
            let copy = self.func.local(name, self.func.buffers[from].dtype, spec);
            stmts.push(self.copy(from, copy));
            copies.push(copy);
            self.materialised.insert(stage, copy);
        }
        stmts.push(self.cover(&spec, dtype, true, element));
        self.materialised.extend(read);
        if !stmts.iter().all(is_vectorized) {
            return None;
        }
        self.scratch.extend(copies);
        Some(Stmt::seq(stmts))
    }

    /// Fills a buffer of any layout with elements of a stage; `from` says which, by the buffer's
    /// index.
    pub(super) fn fill(
        &mut self,
        to: BufferId,
        stage: StageId,
        from: &dyn Fn(&[PrimExpr]) -> Vec<PrimExpr>,
    ) -> Stmt {
        let (spec, dtype) = (self.func.buffers[to].spec.clone(), self.func.buffers[to].dtype);
        self.cover(&spec, dtype, true, &mut |emitter, index| {
            let (mut inliner, func) = emitter.inliner();
            let value = inliner.element(func, stage, &from(index));
            inliner.wrap(func.store(to, index.iter().cloned(), value))
        })
    }

    /// A copy of a tensor in a layout with a border, and the statements that fill it: the border with
    /// a value, which is also behind the end of an axis that ends earlier in a run.
    pub(super) fn copy_with_border(
        &mut self,
        from: BufferId,
        spec: BufferSpec,
        outside: &PrimExpr,
    ) -> (BufferId, Stmt) {
        let copy = self.func.local("image", self.func.buffers[from].dtype, spec);
        self.scratch.push(copy);
        let border = fill_halo(&mut self.func, copy, outside);
        let fill = self.copy(from, copy);
        let stage = self.dag.stage_of(from);
        let limits = stage.map_or(Vec::new(), |stage| self.dag.limits(stage).to_vec());
        let ends: Vec<_> = limits.into_iter().map(|limit| (limit.axis, limit.extent)).collect();
        let behind = fill_behind(&mut self.func, copy, outside, &ends);
        let halo = self.func.buffers[copy].spec.halo();
        let read = ends.into_iter().map(|(axis, end)| (copy, axis, end + halo[axis].after));
        let fill = limit_fill(&self.func, Stmt::seq([border, Stmt::block("image", fill)]), read);
        (copy, Stmt::seq([fill, behind]))
    }
}
