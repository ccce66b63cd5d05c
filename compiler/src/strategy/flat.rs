//! Kernels of one element-wise computation, whose loop goes over memory as it lies.

use super::emit::Emitter;
use crate::ir::BufferSpec;
use crate::te::StageId;
use crate::tir::{BufferId, ForKind, PrimExpr, Stmt};

/// Smallest tensor, in bytes, of which a loop over all elements asks for some ahead: a smaller one
/// is in the first cache, or nearly.
const MIN_PREFETCHED_BYTES: i64 = 128 << 10;

/// How far ahead, in bytes.
const PREFETCHED_AHEAD: i64 = 2 << 10;

impl Emitter {
    /// A kernel whose tensors are all read and written at one index, in one layout: the loop goes
    /// over memory as it lies.
    pub(super) fn emit_flat(&mut self, root: StageId) -> Option<Stmt> {
        let buffer = self.materialised[&root];
        let spec = self.func.buffers[buffer].spec.clone();
        let elements = spec.num_elements()?;
        if !spec.is_dense() || spec.shape().len() == 1 {
            return None;
        }
        let index = self.index_of(root);
        let stmt = self.store_element(root, None, &index);
        let (mut flat, mut fixed) = (vec![buffer], Vec::new());
        let mut same = true;
        stmt.walk_exprs(&mut |expr| match expr {
            PrimExpr::Load { buffer, indices, .. } if *indices == index => {
                same &= self.func.buffers[*buffer].spec == spec;
                flat.push(*buffer);
            }
            PrimExpr::Load { buffer, indices, .. } => {
                same &= indices.iter().all(|i| i.as_int().is_some());
                fixed.push(*buffer);
            }
            _ => {}
        });
        // One element of a tensor that is also read whole: the tensor keeps its axes.
        same &= !fixed.iter().any(|buffer| flat.contains(buffer));
        // Besides the loads' indices, no axis may be used.
        let mut axis_uses = 0;
        stmt.walk_exprs(&mut |expr| {
            if let PrimExpr::Var { var, .. } = expr {
                axis_uses += usize::from(self.dag.stages[root].axes.contains(var));
            }
        });
        if !same || axis_uses != flat.len() * index.len() {
            return None;
        }
        let one_dimensional = BufferSpec::dense(&[elements]);
        let dtype = self.func.buffers[buffer].dtype;
        for buffer in flat {
            self.func.buffers[buffer].spec = one_dimensional.clone();
        }
        let loops = self.cover(&one_dimensional, dtype, true, &mut |_, flat| {
            reindex(stmt.clone(), &index, flat)
        });
        Some(self.prefetch_flat(loops))
    }

    /// Asks for what is read of large tensors ahead of time, as long as loops go over memory as it
    /// lies: what a processor asks for by itself stops at the end of a page.
    fn prefetch_flat(&self, loops: Stmt) -> Stmt {
        loops.rewrite(&mut |stmt| match stmt {
            Stmt::For { var, min, extent, kind: ForKind::Vectorized, annotations, body } => {
                let mut asked: Vec<(BufferId, Vec<PrimExpr>)> = Vec::new();
                body.walk_exprs(&mut |expr| {
                    let PrimExpr::Load { buffer, dtype, indices } = expr else { return };
                    let spec = &self.func.buffers[*buffer].spec;
                    let bytes = i64::from(dtype.bits().div_ceil(8));
                    let size = spec.num_elements().unwrap_or(0).saturating_mul(bytes);
                    let known = asked.iter().any(|(asked, _)| asked == buffer);
                    if let [index] = indices.as_slice()
                        && size >= MIN_PREFETCHED_BYTES
                        && !known
                    {
                        asked.push((*buffer, vec![index.clone() + PREFETCHED_AHEAD / bytes]));
                    }
                });
                let stmts = asked.into_iter().map(|(buffer, indices)| {
                    let (locality, write) = (3, false);
                    Stmt::Prefetch { buffer, indices, offset: 0.into(), locality, write }
                });
                let body = Box::new(Stmt::seq(stmts.chain([*body])));
                Stmt::For { var, min, extent, kind: ForKind::Vectorized, annotations, body }
            }
            other => other,
        })
    }
}

/// Replaces one index by another in loads and stores.
fn reindex(stmt: Stmt, from: &[PrimExpr], to: &[PrimExpr]) -> Stmt {
    let stmt = stmt.map_exprs(&mut |expr| {
        expr.rewrite(&mut |e| match e {
            PrimExpr::Load { buffer, dtype, indices } if indices == from => {
                PrimExpr::Load { buffer, dtype, indices: to.to_vec() }
            }
            other => other,
        })
    });
    stmt.rewrite(&mut |s| match s {
        Stmt::Store { buffer, indices, value } if indices == from => {
            Stmt::Store { buffer, indices: to.to_vec(), value }
        }
        other => other,
    })
}
