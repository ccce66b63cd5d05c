//! Copies of tensors in other layouts.

use super::emit::{Emitter, is_vectorized};
use crate::ir::BufferSpec;
use crate::te::StageId;
use crate::tir::border::{fill_behind, fill_halo};
use crate::tir::transform::limit_fill;
use crate::tir::{BufferId, PrimExpr, Stmt};

impl Emitter {
    /// Copies a tensor into another layout.
    pub(super) fn copy(&mut self, from: BufferId, to: BufferId) -> Stmt {
        let (spec, dtype) = (self.func.buffers[to].spec.clone(), self.func.buffers[to].dtype);
        self.cover(&spec, dtype, true, &mut |emitter, index| {
            let value = emitter.func.load(from, index.iter().cloned());
            emitter.func.store(to, index.iter().cloned(), value)
        })
    }

    /// The elements of a dense stage that are in no vectors as they lie in blocks of channels, as where
    /// channels become neighbours of pixels: of planes, which the blocks are copied to first.
    pub(super) fn through_planes(&mut self, root: StageId) -> Option<Stmt> {
        let to = &self.func.buffers[self.materialised[&root]];
        let (spec, dtype) = (to.spec.clone(), to.dtype);
        if !self.rows.is_empty() || !spec.is_dense() {
            return None;
        }
        let element = &mut |emitter: &mut Emitter, index: &[PrimExpr]| {
            emitter.store_element(root, None, index)
        };
        let probe = self.element_of(&spec, element);
        let is_in_blocks = |(stage, buffer): &(StageId, BufferId)| {
            let is_whole = self.dag.limits(*stage).is_empty();
            let spec = &self.func.buffers[*buffer].spec;
            is_whole && !spec.blocking().is_empty() && probe.stmt.touches(*buffer)
        };
        let read = self.materialised.iter().map(|(&stage, &buffer)| (stage, buffer));
        let blocks: Vec<(StageId, BufferId)> = read.filter(is_in_blocks).collect();
        if blocks.is_empty() {
            return None;
        }
        let (mut stmts, mut planes) = (Vec::new(), Vec::new());
        for &(stage, from) in &blocks {
            let spec = BufferSpec::dense(self.dag.shape(stage));
            let copy = self.func.local("planes", self.func.buffers[from].dtype, spec);
            stmts.push(self.copy(from, copy));
            planes.push(copy);
            self.materialised.insert(stage, copy);
        }
        stmts.push(self.cover(&spec, dtype, true, element));
        self.materialised.extend(blocks);
        if !stmts.iter().all(is_vectorized) {
            return None;
        }
        self.scratch.extend(planes);
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
