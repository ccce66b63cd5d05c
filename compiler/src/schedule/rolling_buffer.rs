//! The primitive that reuses elements of the previous iteration.

use super::error::Rewrite;
use super::inline::{must_be_sole_writer, named};
use super::layout::constant_extents;
use super::layout::{BufferAccess, accessed};
use super::tree::{Tree, all, blocks, conjuncts, is_loop, loop_info, outside_of, written};
use super::{BlockRv, Result, Schedule};
use crate::ir::BufferSpec;
use crate::tir::region::{Access, region, var as var_expr};
use crate::tir::stmt::ROLLING_BUFFER;
use crate::tir::{BufferId, BufferScope, ForKind, IterKind, PrimExpr, PrimFuncData, Stmt, VarId};

impl Schedule {
    /// Makes a block that was computed at a loop compute, in each iteration but the first, only the
    /// elements that the previous iteration did not: rows of a stencil that are read again stay in
    /// the buffer, in which row `r` is at `r` modulo the number of rows of one iteration.
    ///
    /// Schedule the loop first: afterwards its iterations depend on each other.
    ///
    /// # Errors
    /// The block and the readers of its `index`-th output are in no common loop, or iterations do
    /// not overlap along one axis.
    /// overlap along one axis.
    pub fn rolling_buffer(&mut self, block: BlockRv, index: usize) -> Result<()> {
        self.apply("rolling_buffer", |this, func| {
            let name = this.block_name(block)?;
            let buffer = accessed(func, &name, BufferAccess::Write(index))?;
            rolling_buffer(func, &name, buffer)
        })?;
        self.record("rolling_buffer", vec![block.into(), index.into()], Vec::new());
        Ok(())
    }
}

/// The innermost loop around a block and around all readers of a buffer.
fn shared_loop(func: &PrimFuncData, name: &str, buffer: BufferId) -> Rewrite<VarId> {
    let readers: Vec<&str> = func.readers(buffer).iter().map(|b| b.name.as_str()).collect();
    let what = func.buffer_name(buffer);
    if readers.is_empty() {
        return Err(format!("no block reads `{what}`"));
    }
    for info in func.loops_around(&named(name)).into_iter().rev() {
        let inside = blocks(func.loop_stmt(info.var)?);
        if readers.iter().all(|reader| inside.iter().any(|block| block.name == *reader)) {
            return Ok(info.var);
        }
    }
    Err(format!("block `{name}` is in no loop with all that reads `{what}`; use compute_at before"))
}

fn rolling_buffer(func: &mut PrimFuncData, name: &str, buffer: BufferId) -> Rewrite<()> {
    constant_extents(func, buffer, "a rolling buffer")?;
    let decl = &func.buffers[buffer];
    let (what, shape) = (decl.name.clone(), decl.shape().to_vec());
    if decl.scope != BufferScope::Local || !decl.spec.is_dense() {
        return Err(format!("`{what}` is not dense local memory"));
    }
    must_be_sole_writer(func, buffer, name)?;
    let target = shared_loop(func, name, buffer)?;
    let at = func.var_name(target).to_owned();
    let mut loops = func.loops_around(&|stmt| is_loop(stmt, target));
    let stmt = func.loop_stmt(target)?;
    loops.extend(loop_info(stmt));
    let body = match stmt {
        Stmt::For { body, min, kind: ForKind::Serial, .. } if min.as_int() == Some(0) => body,
        _ => return Err(format!("loop `{at}` is not serial from 0")),
    };
    let used = region(body, buffer, Access::Load, &shape, &outside_of(func, &loops))
        .ok_or_else(|| format!("loop `{at}` reads nothing of `{what}`"))?;
    let moving: Vec<usize> =
        (0..shape.len()).filter(|&axis| used.axes[axis].min().uses(target)).collect();
    let [axis] = moving[..] else {
        return Err(format!(
            "iterations of loop `{at}` do not overlap along one axis of `{what}`, but move along {}",
            moving.len()
        ));
    };
    let (first, rows) = (used.axes[axis].min(), used.axes[axis].len());
    let var = var_expr(target);
    let step = used.axes[axis].base.terms.iter().find(|(atom, _)| *atom == var);
    let step = step.map_or(0, |(_, factor)| *factor);
    if step < 1 || step >= rows || rows >= shape[axis] {
        return Err(format!(
            "an iteration of loop `{at}` reads {rows} of {} along axis {axis} of `{what}` and the \
             next one begins {step} further: nothing would be kept",
            shape[axis]
        ));
    }
    let block = func.block(name)?;
    let place = |stmt: &Stmt| match stmt {
        Stmt::Store { buffer: stored, indices, .. } if *stored == buffer => {
            indices.get(axis).cloned()
        }
        _ => None,
    };
    let row = place(&block.body).and_then(|index| {
        block.iters_of(IterKind::Spatial).find(|iter| index == var_expr(iter.var))
    });
    let Some(row) = row.filter(|_| written(block).len() == 1) else {
        return Err(format!(
            "block `{name}` does not store to `{what}` alone, at a variable along axis {axis}"
        ));
    };
    let is_new = row.value.clone().greater_equal(first + (rows - step));
    let needed = var.equal(0).or(is_new);
    let block = func.block_mut(name)?;
    block.predicate = all(conjuncts(&block.predicate).into_iter().chain([needed]));

    let wrap = |indices: &mut Vec<PrimExpr>| {
        if let Some(index) = indices.get_mut(axis) {
            *index = std::mem::replace(index, PrimExpr::index(0)).floormod(rows);
        }
    };
    let body = std::mem::replace(&mut func.body, Stmt::nop());
    let body = body.rewrite(&mut |mut stmt| {
        if let Stmt::Store { buffer: used, indices, .. }
        | Stmt::Prefetch { buffer: used, indices, .. } = &mut stmt
            && *used == buffer
        {
            wrap(indices);
        }
        stmt
    });
    func.body = body.map_exprs(&mut |expr| {
        expr.rewrite(&mut |mut expr| {
            if let PrimExpr::Load { buffer: used, indices, .. } = &mut expr
                && *used == buffer
            {
                wrap(indices);
            }
            expr
        })
    });
    let mut shape = shape;
    shape[axis] = rows;
    func.buffers[buffer].spec = BufferSpec::dense(&shape);
    super::loops::annotate_loop(func, target, ROLLING_BUFFER, &what)
}

#[cfg(test)]
mod tests;
