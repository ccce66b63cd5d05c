//! The primitive that rounds a block's extents up, so that no tile is partial.

use super::error::Rewrite;
use super::inline::{must_be_sole_writer, output_of};
use super::layout::{accesses, bounds, constant_extents, ranges, reaches};
use super::tree::{Tree, all, blocks, conjuncts, is_block, outside_of, read};
use super::{BlockRv, Result, Schedule};
use crate::ir::BufferSpec;
use crate::tir::print::expr_text;
use crate::tir::region::vars_of;
use crate::tir::{
    Affine, BinaryOp, BlockRealize, BufferId, BufferScope, CompareOp, IterKind, PrimExpr,
    PrimFuncData, Stmt, VarId,
};

impl Schedule {
    /// Rounds the extent of each variable of a block up to a multiple: `padding` has one number for
    /// each variable, 1 to leave it unchanged. The block's output, which must be local, grows as
    /// much, and conditions on the variables are dropped. The block's inputs must have padding
    /// lanes or a halo for the additional indices. Blocks that read the result still read the same
    /// elements, under their conditions.
    ///
    /// An additional step of a reduction must add zero: its operands must be in the halo of a
    /// parameter there, at least one of them if they are integers.
    ///
    /// # Errors
    ///
    /// The result is a parameter, an additional index is outside of an input's layout, or a loop
    /// that would have to grow is around other blocks.
    pub fn pad_einsum(&mut self, block: BlockRv, padding: &[i64]) -> Result<()> {
        self.apply("pad_einsum", |this, func| pad_einsum(func, &this.block_name(block)?, padding))?;
        self.record("pad_einsum", vec![block.into(), padding.into()], Vec::new());
        Ok(())
    }
}

/// A variable of the block, with its extent before and after padding.
#[derive(Clone, Copy)]
struct Padded {
    var: VarId,
    old: i64,
    new: i64,
}

fn pad_einsum(func: &mut PrimFuncData, name: &str, padding: &[i64]) -> Rewrite<()> {
    let block = func.block(name)?.clone();
    let output = output_of(func, name)?;
    let what = func.buffer_name(output).to_owned();
    if padding.len() != block.iters.len() {
        return Err(format!(
            "block `{name}` has {} variables; there are {} multiples",
            block.iters.len(),
            padding.len()
        ));
    }
    if padding.iter().any(|&multiple| multiple < 1) {
        return Err("a multiple is not positive".to_owned());
    }
    let mut padded = Vec::new();
    for (iter, &multiple) in block.iters.iter().zip(padding) {
        let var = func.var_name(iter.var);
        let old = iter.extent.as_int();
        let old = old.ok_or_else(|| {
            format!(
                "`{var}` has the extent {}, which is not constant: pin the dimension",
                expr_text(func, &iter.extent)
            )
        })?;
        let new = (old - 1).div_euclid(multiple).checked_add(1);
        let new = new.and_then(|count| count.checked_mul(multiple));
        let new = new.ok_or_else(|| format!("`{var}` would exceed 2^63"))?;
        if new != old {
            padded.push(Padded { var: iter.var, old, new });
        }
    }
    if padded.is_empty() {
        return Ok(());
    }
    if func.buffers[output].scope == BufferScope::Param {
        return Err(format!(
            "`{what}` is a parameter, whose size is the caller's; use cache_write first: the copy \
             keeps the condition"
        ));
    }
    for buffer in read(&block).into_iter().chain([output]) {
        constant_extents(func, buffer, "padding")?;
    }
    must_be_sole_writer(func, output, name)?;
    if !func.buffers[output].spec.is_dense() {
        return Err(format!("`{what}` has a layout for its size; use transform_layout afterwards"));
    }
    for padded in &padded {
        grow_loops(func, &block, *padded)?;
    }
    let block = func.block_mut(name)?;
    for iter in &mut block.iters {
        if let Some(padded) = padded.iter().find(|padded| padded.var == iter.var) {
            iter.extent = PrimExpr::index(padded.new);
        }
    }
    let block = block.clone();
    for padded in &padded {
        grow_output(func, &block, output, *padded)?;
        let kind = block.iters.iter().find(|iter| iter.var == padded.var).map(|iter| iter.kind);
        if kind == Some(IterKind::Reduce) && !adds_zero(func, &block, output, *padded) {
            let var = func.var_name(padded.var);
            return Err(format!(
                "block `{name}` must add zero where `{var}` is {} or more: give what it \
                 multiplies a halo of {} after that axis (padding lanes may hold anything)",
                padded.old,
                padded.new - padded.old
            ));
        }
    }
    let within = bounds(&block);
    for buffer in read(&block) {
        let reach = reaches(&func.buffers[buffer]);
        for indices in accesses(&block, buffer) {
            let ranges = ranges(indices, &within);
            for (axis, ((index, range), reach)) in
                indices.iter().zip(ranges).zip(&reach).enumerate()
            {
                let used = vars_of(index);
                if !padded.iter().any(|padded| used.contains(&padded.var)) {
                    continue;
                }
                let inside = range.is_some_and(|r| r.min >= reach.min && r.max <= reach.max);
                if !inside {
                    let last = range.map_or("an unknown index".to_owned(), |r| r.max.to_string());
                    return Err(format!(
                        "block `{name}` would read `{}` up to {last} along axis {axis}, which has \
                         elements and padding up to {}; give it padding lanes by \
                         transform_layout",
                        func.buffer_name(buffer),
                        reach.max
                    ));
                }
            }
        }
    }
    Ok(())
}

/// Extends the loops to the additional values of a variable, and drops its condition.
fn grow_loops(func: &mut PrimFuncData, block: &BlockRealize, padded: Padded) -> Rewrite<()> {
    let Padded { var, old, new } = padded;
    let name = func.var_name(var).to_owned();
    let Some(iter) = block.iters.iter().find(|iter| iter.var == var) else { return Ok(()) };
    let loops = func.loops_around(&|stmt| is_block(stmt, &block.name));
    let lone = loops.iter().find(|info| iter.value == func.var_expr(info.var));
    if let Some(info) = lone.filter(|info| info.extent.as_int() == Some(old)) {
        let other = blocks(func.loop_stmt(info.var)?).into_iter().find(|b| b.name != block.name);
        if let Some(other) = other {
            return Err(format!(
                "loop `{}` would have to grow, and block `{}` is in it; split the loop by the \
                 multiple first",
                func.var_name(info.var),
                other.name
            ));
        }
        if let Stmt::For { extent, .. } = func.loop_stmt_mut(info.var)? {
            *extent = PrimExpr::index(new);
        }
        return Ok(());
    }
    let range = Affine::of(&iter.value).range(&outside_of(func, &loops).bounds());
    if range.is_none_or(|range| range.min != 0 || range.max != new - 1) {
        let last = range.map_or("an unknown value".to_owned(), |range| range.max.to_string());
        return Err(format!(
            "the loops give `{name}` values up to {last}, and not up to {}; split its loop by a \
             divisor of the multiple",
            new - 1
        ));
    }
    let value = Affine::of(&iter.value);
    let is_bound = |condition: &PrimExpr| match condition {
        PrimExpr::Compare { op: CompareOp::Lt, lhs, rhs } => {
            rhs.as_int() == Some(old)
                && Affine::of(lhs).plus(&value, -1).and_then(|rest| rest.as_const()) == Some(0)
        }
        _ => false,
    };
    let block = func.block_mut(&block.name)?;
    let conditions = conjuncts(&block.predicate);
    block.predicate = all(conditions.into_iter().filter(|condition| !is_bound(condition)));
    Ok(())
}

/// Enlarges the output for the additional values of a variable.
fn grow_output(
    func: &mut PrimFuncData,
    block: &BlockRealize,
    output: BufferId,
    padded: Padded,
) -> Rewrite<()> {
    let what = func.buffer_name(output).to_owned();
    let mut shape = func.buffers[output].shape().to_vec();
    for indices in accesses(block, output) {
        for (axis, index) in indices.iter().enumerate().filter(|(_, index)| index.uses(padded.var))
        {
            if *index != func.var_expr(padded.var) {
                return Err(format!(
                    "axis {axis} of `{what}` is not indexed by `{}` alone, so it cannot grow \
                     with it",
                    func.var_name(padded.var)
                ));
            }
            shape[axis] = padded.new;
        }
    }
    func.buffers[output].spec = BufferSpec::dense(&shape);
    Ok(())
}

/// Whether a block adds zero for the additional values of a variable.
fn adds_zero(func: &PrimFuncData, block: &BlockRealize, output: BufferId, padded: Padded) -> bool {
    let is_sum =
        |expr: &PrimExpr| matches!(expr, PrimExpr::Load { buffer, .. } if *buffer == output);
    match &block.body {
        Stmt::Store { value: PrimExpr::Binary { op: BinaryOp::Add, lhs, rhs }, .. } => {
            is_sum(lhs) && is_zero(func, rhs, padded) || is_sum(rhs) && is_zero(func, lhs, padded)
        }
        Stmt::Store { value: PrimExpr::MulAdd { a, b, c }, .. } => {
            is_sum(c) && is_zero(func, a, padded) && is_zero(func, b, padded)
        }
        _ => false,
    }
}

fn is_zero(func: &PrimFuncData, expr: &PrimExpr, padded: Padded) -> bool {
    match expr {
        PrimExpr::Load { buffer, indices, .. } => {
            let (decl, var) = (&func.buffers[*buffer], func.var_expr(padded.var));
            let spec = &decl.spec;
            let axes = indices.iter().zip(spec.shape()).zip(spec.halo());
            decl.scope == BufferScope::Param
                && axes.into_iter().any(|((index, &extent), halo)| {
                    *index == var && extent <= padded.old && padded.new <= extent + halo.after
                })
        }
        PrimExpr::Cast { value, .. } => is_zero(func, value, padded),
        PrimExpr::Binary { op: BinaryOp::Mul, lhs, rhs } => {
            let (left, right) = (is_zero(func, lhs, padded), is_zero(func, rhs, padded));
            // Zero times infinity or NaN is not zero.
            if expr.dtype().is_float() { left && right } else { left || right }
        }
        _ => expr.is_const(0),
    }
}

#[cfg(test)]
mod tests;
