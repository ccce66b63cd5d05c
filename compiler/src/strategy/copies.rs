//! Copies of tensors in other layouts.

use super::emit::Emitter;
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
