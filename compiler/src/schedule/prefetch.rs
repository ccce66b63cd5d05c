//! Primitives that prefetch memory.

use std::collections::BTreeMap;

use super::error::Rewrite;
use super::layout::accessed;
use super::layout::constant_extents;
use super::tree::{LoopInfo, Tree, blocks, is_loop, loop_info, outside_of, path};
use super::{BlockRv, BufferAccess, LoopRv, Result, Schedule};
use crate::tir::region::{Access, region, var as var_expr};
use crate::tir::{Buffer, BufferId, BufferScope, ForKind, PrimExpr, PrimFuncData, Stmt, VarId};

/// Bytes of a cache line. Where lines are longer, some are prefetched twice.
const LINE: i64 = 64;

/// Maximum number of prefetches in one iteration: processors have no more buffers for pending
/// lines.
const MOST: i64 = 16;

impl Schedule {
    /// Prefetches, at the beginning of each iteration of a loop, the elements of a block's buffer
    /// that the iteration `distance` later reads. For `locality`, see [`Stmt::Prefetch`].
    ///
    /// Schedule the loops first: the prefetch becomes a statement between them.
    ///
    /// # Errors
    ///
    /// The buffer is in registers or not read in the loop, or an iteration reads more than 16
    /// lines of it.
    pub fn prefetch(
        &mut self,
        block: BlockRv,
        access: BufferAccess,
        loop_: LoopRv,
        distance: i64,
        locality: u8,
    ) -> Result<()> {
        self.apply("prefetch", |this, func| {
            let buffer = accessed(func, &this.block_name(block)?, access)?;
            prefetch(func, buffer, this.loop_var(loop_)?, distance, locality)
        })?;
        let args = vec![
            block.into(),
            access.word().into(),
            access.index().into(),
            loop_.into(),
            distance.into(),
            i64::from(locality).into(),
        ];
        self.record("prefetch", args, Vec::new());
        Ok(())
    }

    /// Prefetches the elements of a block's buffer that the next iteration of `outer` reads, spread
    /// evenly over the iterations of `inner` within one of `outer`: the next panel of weights while
    /// this one is multiplied. After the last iteration, the prefetched memory is beyond the
    /// buffer.
    ///
    /// # Errors
    ///
    /// As for [`prefetch`](Self::prefetch), or `inner` is not in `outer`.
    pub fn prefetch_next(
        &mut self,
        block: BlockRv,
        access: BufferAccess,
        outer: LoopRv,
        inner: LoopRv,
        locality: u8,
    ) -> Result<()> {
        self.apply("prefetch_next", |this, func| {
            let buffer = accessed(func, &this.block_name(block)?, access)?;
            let (outer, inner) = (this.loop_var(outer)?, this.loop_var(inner)?);
            prefetch_next(func, buffer, outer, inner, locality)
        })?;
        let args = vec![
            block.into(),
            access.word().into(),
            access.index().into(),
            outer.into(),
            inner.into(),
            i64::from(locality).into(),
        ];
        self.record("prefetch_next", args, Vec::new());
        Ok(())
    }
}

/// The elements of a buffer that an iteration of a loop reads, in the order of memory.
struct Span {
    /// The first index along each axis, in terms of the variables of the loop and of the loops
    /// around.
    first: Vec<PrimExpr>,
    /// The axis, the step and the number of indices of each physical dimension, outermost first.
    digits: Vec<(usize, i64, i64)>,
    /// The number of elements that are contiguous in memory.
    run: i64,
}

impl Span {
    fn of(func: &PrimFuncData, buffer: BufferId, target: VarId) -> Rewrite<Span> {
        constant_extents(func, buffer, "the number of lines to be asked for")?;
        let decl = &func.buffers[buffer];
        let what = &decl.name;
        if decl.scope == BufferScope::Register {
            return Err(format!("`{what}` is in registers"));
        }
        let mut loops = func.loops_around(&|stmt| is_loop(stmt, target));
        let stmt = func.loop_stmt(target)?;
        loops.extend(loop_info(stmt));
        let Stmt::For { body, .. } = stmt else { return Err("the loop is gone".to_owned()) };
        let outside = outside_of(func, &loops);
        let used = region(body, buffer, Access::Load, decl.shape(), &outside);
        let used = used
            .ok_or_else(|| format!("loop `{}` reads nothing of `{what}`", func.var_name(target)))?;
        let lens: Vec<i64> = used.axes.iter().map(|axis| axis.len()).collect();
        let digits = digits(decl, &lens);
        let strides = decl.spec.strides();
        let mut run = 1;
        for (&(_, _, count), stride) in digits.iter().zip(strides).rev() {
            if count > 1 && stride != run {
                break;
            }
            run *= count;
        }
        Ok(Span { first: used.axes.iter().map(|axis| axis.min()).collect(), digits, run })
    }

    fn elements(&self) -> i64 {
        self.digits.iter().map(|digit| digit.2).product()
    }

    /// The index of the n-th element, `ahead` iterations of a loop later.
    fn index(&self, number: &PrimExpr, target: VarId, ahead: i64) -> Vec<PrimExpr> {
        let later = BTreeMap::from([(target, var_expr(target) + ahead)]);
        let mut index: Vec<PrimExpr> =
            self.first.iter().map(|first| first.clone().substitute(&later)).collect();
        let mut inside = 1;
        for (position, &(axis, step, count)) in self.digits.iter().enumerate().rev() {
            let digit = number.clone().floordiv(inside);
            let outermost = self.digits[..position].iter().all(|digit| digit.2 == 1);
            let digit = if outermost { digit } else { digit.floormod(count) };
            if count > 1
                && let Some(index) = index.get_mut(axis)
            {
                *index = index.clone() + digit * step;
            }
            inside *= count;
        }
        index
    }
}

/// The number of indices of each physical dimension in a box of the given lengths.
fn digits(decl: &Buffer, lens: &[i64]) -> Vec<(usize, i64, i64)> {
    let mut inside: Vec<i64> = lens.to_vec();
    let mut digits = Vec::new();
    for dim in decl.spec.dims() {
        let Some(range) = inside.get_mut(dim.axis) else { continue };
        digits.push((dim.axis, dim.step, (*range - 1) / dim.step + 1));
        *range = (*range).min(dim.step);
    }
    digits
}

/// The number of elements in a cache line.
fn line(decl: &Buffer) -> i64 {
    let bytes = decl.dtype.bytes().and_then(|bytes| i64::try_from(bytes).ok());
    LINE / bytes.unwrap_or(1).max(1)
}

fn prefetch(
    func: &mut PrimFuncData,
    buffer: BufferId,
    target: VarId,
    distance: i64,
    locality: u8,
) -> Rewrite<()> {
    let span = Span::of(func, buffer, target)?;
    let decl = &func.buffers[buffer];
    let (line, elements) = (line(decl), span.elements());
    let runs = elements / span.run;
    let in_run = (span.run - 1) / line + 1;
    if runs.saturating_mul(in_run) > MOST {
        return Err(format!(
            "an iteration of loop `{}` reads {} lines of `{}`, more than {MOST}; prefetch in a \
             loop inside, or use prefetch_next",
            func.var_name(target),
            runs.saturating_mul(in_run),
            decl.name
        ));
    }
    let mut stmts = Vec::new();
    for run in 0..runs {
        for part in 0..in_run {
            let number = PrimExpr::index(run * span.run + part * line);
            stmts.push(func.prefetch(buffer, span.index(&number, target, distance), locality));
        }
    }
    at_begin(func, target, stmts)
}

fn prefetch_next(
    func: &mut PrimFuncData,
    buffer: BufferId,
    outer: VarId,
    inner: VarId,
    locality: u8,
) -> Rewrite<()> {
    let span = Span::of(func, buffer, outer)?;
    let inside = path(func.loop_stmt(outer)?, &|stmt| is_loop(stmt, inner)).unwrap_or_default();
    let loops: Vec<LoopInfo> = inside.iter().skip(1).filter_map(|stmt| loop_info(stmt)).collect();
    if loops.is_empty() {
        let (inner, outer) = (func.var_name(inner), func.var_name(outer));
        return Err(format!("loop `{inner}` is not in loop `{outer}`"));
    }
    // The number of the current iteration among all.
    let (mut number, mut count) = (PrimExpr::index(0), 1i64);
    for info in &loops {
        let Some(extent) = info.extent.as_int() else {
            return Err(format!(
                "loop `{}` has no constant extent, by which lines could be shared out; choose a \
                 loop around it, or pin the dimension",
                func.var_name(info.var)
            ));
        };
        number = number * extent + var_expr(info.var);
        count = count.saturating_mul(extent.max(1));
    }
    let decl = &func.buffers[buffer];
    let (line, elements) = (line(decl), span.elements());
    let share = (elements - 1) / count + 1;
    let lines = (share - 1) / line + 1;
    if lines > MOST {
        return Err(format!(
            "an iteration of loop `{}` would ask for {lines} lines of `{}`, more than {MOST}; \
             spread them over a loop inside",
            func.var_name(inner),
            decl.name
        ));
    }
    // Powers of two, so that the gaps between prefetched lines are those of the loop.
    let share =
        if share <= line { share.unsigned_abs().next_power_of_two() as i64 } else { lines * line };
    let stmts = (0..lines)
        .map(|part| {
            let number = number.clone() * share + part * line;
            func.prefetch(buffer, span.index(&number, outer, 1), locality)
        })
        .collect();
    at_begin(func, inner, stmts)
}

/// Inserts statements at the beginning of a loop's body.
fn at_begin(func: &mut PrimFuncData, target: VarId, stmts: Vec<Stmt>) -> Rewrite<()> {
    let name = func.var_name(target).to_owned();
    let Stmt::For { kind, body, .. } = func.loop_stmt_mut(target)? else {
        return Err("the loop is gone".to_owned());
    };
    if *kind == ForKind::Vectorized {
        return Err(format!("loop `{name}` is vectorized: its iterations run at the same time"));
    }
    if blocks(body).is_empty() {
        return Err(format!("loop `{name}` has no block"));
    }
    let old = std::mem::replace(&mut **body, Stmt::nop());
    **body = Stmt::seq(stmts.into_iter().chain([old]));
    Ok(())
}

#[cfg(test)]
mod tests;
