//! Primitives that move a block into a loop of its consumer or of its producer.

use std::collections::BTreeMap;

use super::error::Rewrite;
use super::inline::{element, output_of};
use super::tree::{
    LoopInfo, Tree, all, blocks, conjuncts, is_loop, loop_info, outside_of, path, read, tidy,
    written,
};
use crate::tir::region::{
    Access, Extent, NO_BOUND, Region, most, region, var as var_expr, vars_of, within,
};
use crate::tir::{
    Affine, BlockRealize, Bounds, BufferId, BufferScope, ForKind, IterKind, PrimExpr, PrimFuncData,
    Range, Stmt, VarId,
};

/// The loops around a loop, outermost first, and that loop itself.
fn loops_to(func: &PrimFuncData, target: VarId) -> Rewrite<Vec<LoopInfo>> {
    let mut loops = func.loops_around(&|stmt| is_loop(stmt, target));
    loops.extend(loop_info(func.loop_stmt(target)?));
    Ok(loops)
}

/// The body of a loop.
fn body_of(func: &PrimFuncData, target: VarId) -> Rewrite<&Stmt> {
    match func.loop_stmt(target)? {
        Stmt::For { body, .. } => Ok(body),
        other => Ok(other),
    }
}

fn is_under(func: &PrimFuncData, target: VarId, block: &str) -> Rewrite<bool> {
    Ok(blocks(func.loop_stmt(target)?).iter().any(|inside| inside.name == block))
}

/// Computes, in each iteration of a loop, just the part of a block's result that the iteration
/// reads.
pub(super) fn compute_at(func: &mut PrimFuncData, name: &str, target: VarId) -> Rewrite<()> {
    let loops = loops_to(func, target)?;
    let at = func.var_name(target).to_owned();
    let block = func.block(name)?.clone();
    let buffer = output_of(func, name)?;
    let what = func.buffer_name(buffer).to_owned();
    let axes = axes_of(func, &block, buffer)?;
    if is_under(func, target, name)? {
        return Err(format!("block `{name}` is in loop `{at}` already"));
    }
    if func.buffers[buffer].scope == BufferScope::Param {
        return Err(format!("`{what}` is a parameter: all of it must be computed, once"));
    }
    if func.writers(buffer).len() > 1 {
        return Err(format!("more than one block stores to `{what}`"));
    }
    let readers: Vec<String> = func.readers(buffer).iter().map(|b| b.name.clone()).collect();
    if readers.is_empty() {
        return Err(format!("no block reads `{what}`"));
    }
    for reader in &readers {
        if !is_under(func, target, reader)? {
            return Err(format!("block `{reader}` reads `{what}` outside of loop `{at}`"));
        }
    }
    let shape = most(&func.buffers[buffer]);
    let outside = outside_of(func, &loops);
    let needed = region(body_of(func, target)?, buffer, Access::Load, &shape, &outside)
        .ok_or_else(|| format!("loop `{at}` reads nothing of `{what}`"))?;
    func.take_nest(name)?;
    let needed = clip(needed, &shape, &outside.bounds());
    let nest = rebuild(func, block, &axes, &needed, &loops, &[], Vec::new());
    insert(func, target, nest, buffer, true)
}

/// Runs a block, in each iteration of a loop, on just the part of its input that the iteration
/// computes.
pub(super) fn reverse_compute_at(
    func: &mut PrimFuncData,
    name: &str,
    target: VarId,
) -> Rewrite<()> {
    let loops = loops_to(func, target)?;
    let at = func.var_name(target).to_owned();
    let block = func.block(name)?.clone();
    if is_under(func, target, name)? {
        return Err(format!("block `{name}` is in loop `{at}` already"));
    }
    if block.is_reduction() {
        return Err(format!("block `{name}` is a reduction, so it cannot run on parts"));
    }
    let inputs: Vec<BufferId> = read(&block);
    // The block's other inputs must have been computed before the loop runs.
    let order = blocks(&func.body);
    let last = order.iter().rposition(|block| is_under(func, target, &block.name) == Ok(true));
    let late = order[last.map_or(0, |last| last + 1)..].iter().find_map(|writer| {
        let buffer = inputs.iter().find(|buffer| written(writer).contains(buffer))?;
        (writer.name != name).then_some((writer, *buffer))
    });
    if let Some((writer, buffer)) = late {
        return Err(format!(
            "block `{}`, which computes `{}` for it, comes after loop `{at}`",
            writer.name,
            func.buffer_name(buffer)
        ));
    }
    let outside = outside_of(func, &loops);
    let mut found = None;
    for buffer in inputs {
        let writers = func.writers(buffer);
        let mut inside = Vec::new();
        for writer in &writers {
            inside.push(is_under(func, target, &writer.name)?);
        }
        if !inside.contains(&true) {
            continue;
        }
        let what = func.buffer_name(buffer);
        if inside.contains(&false) {
            return Err(format!("`{what}` is computed partly outside of loop `{at}`"));
        }
        for writer in writers {
            // A sum must be complete at the end of the iteration.
            let reduced = writer.iters_of(IterKind::Reduce).find_map(|iter| {
                let value = full_value(func, &writer.name, &iter.value);
                loops.iter().map(|info| info.var).find(|&var| value.uses(var))
            });
            if let Some(outer) = reduced {
                return Err(format!(
                    "an iteration of loop `{at}` does not complete `{what}`: block `{}` reduces \
                     along loop `{}`, which must be inside",
                    writer.name,
                    func.var_name(outer)
                ));
            }
        }
        let axes = read_axes(&block, buffer).ok_or_else(|| {
            format!("block `{name}` does not read `{what}` at an index of distinct variables")
        })?;
        let shape = most(&func.buffers[buffer]);
        let made = region(body_of(func, target)?, buffer, Access::Store, &shape, &outside);
        if let Some(made) = made {
            found = Some((buffer, axes, made));
        }
        if found.is_some() {
            break;
        }
    }
    let Some((buffer, axes, made)) = found else {
        return Err(format!("block `{name}` reads nothing that loop `{at}` computes"));
    };
    let (guards, conditions) = guards_of(func, target, buffer)?;
    func.take_nest(name)?;
    let nest = rebuild(func, block, &axes, &made, &loops, &guards, conditions);
    insert(func, target, nest, buffer, false)
}

/// The block variable along each axis of its output; an error if an axis has none.
fn axes_of(
    func: &PrimFuncData,
    block: &BlockRealize,
    buffer: BufferId,
) -> Rewrite<Vec<Option<VarId>>> {
    if !block.is_reduction()
        && let Ok(element) = element(block)
    {
        return Ok(element.axes.into_iter().map(Some).collect());
    }
    let mut places: Vec<Vec<PrimExpr>> = Vec::new();
    for stmt in block.init.iter().chain([&block.body]) {
        stmt.walk(&mut |stmt| {
            if let Stmt::Store { buffer: stored, indices, .. } = stmt
                && *stored == buffer
                && !places.contains(indices)
            {
                places.push(indices.clone());
            }
        });
    }
    let what = func.buffer_name(buffer);
    let [place] = places.as_slice() else {
        return Err(format!("block `{}` stores to `{what}` at more than one index", block.name));
    };
    distinct_vars(place).ok_or_else(|| {
        format!("block `{}` does not store to `{what}` at an index of variables", block.name)
    })
}

/// The variable of each index, or `None` for a constant. No result if an index is anything else.
fn distinct_vars(indices: &[PrimExpr]) -> Option<Vec<Option<VarId>>> {
    let mut vars: Vec<Option<VarId>> = Vec::with_capacity(indices.len());
    for index in indices {
        match index {
            PrimExpr::Var { var, .. } if !vars.contains(&Some(*var)) => vars.push(Some(*var)),
            PrimExpr::Int { .. } => vars.push(None),
            _ => return None,
        }
    }
    Some(vars)
}

/// The variable along each axis of a buffer that a block reads at one index only.
fn read_axes(block: &BlockRealize, wanted: BufferId) -> Option<Vec<Option<VarId>>> {
    let mut places: Vec<Vec<PrimExpr>> = Vec::new();
    block.body.walk_exprs(&mut |expr| {
        if let PrimExpr::Load { buffer, indices, .. } = expr
            && *buffer == wanted
            && !places.contains(indices)
        {
            places.push(indices.clone());
        }
    });
    match places.as_slice() {
        [place] => distinct_vars(place),
        _ => None,
    }
}

/// The value of a block's variable in terms of the variables of all loops around.
fn full_value(func: &PrimFuncData, block: &str, value: &PrimExpr) -> PrimExpr {
    let path = path(&func.body, &|stmt| super::tree::is_block(stmt, block)).unwrap_or_default();
    let mut values: BTreeMap<VarId, PrimExpr> = BTreeMap::new();
    for stmt in path {
        if let Stmt::BlockRealize(around) = stmt
            && around.name != block
        {
            for iter in &around.iters {
                values.insert(iter.var, iter.value.clone().substitute(&values));
            }
        }
    }
    value.clone().substitute(&values)
}

/// A region without the parts that are certain to be outside of the buffer.
fn clip(mut region: Region, shape: &[i64], outside: &Bounds) -> Region {
    for (extent, &size) in region.axes.iter_mut().zip(shape) {
        let whole = Range { min: 0, max: size.max(1) - 1 };
        let range = extent.base.range(outside);
        let reaches = range.map(|base| Range {
            min: base.min.saturating_add(extent.offsets.min),
            max: base.max.saturating_add(extent.offsets.max),
        });
        if extent.base.as_const().is_some() || extent.len() >= size {
            let known = reaches.unwrap_or(whole);
            let min = known.min.clamp(0, whole.max);
            *extent = Extent {
                base: Affine::default(),
                offsets: Range { min, max: known.max.clamp(min, whole.max) },
            };
        }
    }
    region
}

/// A condition on the part that a loop's iteration computes: the axis, the loop that counts along
/// it, and the condition.
type Guard = (usize, VarId, PrimExpr);

/// The conditions of the blocks that compute `buffer` in a loop, except bounds: an element that an
/// iteration does not compute must not be read there.
///
/// The second list is the conditions that depend on the loops around alone.
fn guards_of(
    func: &PrimFuncData,
    target: VarId,
    buffer: BufferId,
) -> Rewrite<(Vec<Guard>, Vec<PrimExpr>)> {
    let around: Vec<VarId> = loops_to(func, target)?.iter().map(|info| info.var).collect();
    let (mut guards, mut outer): (Vec<Guard>, Vec<PrimExpr>) = (Vec::new(), Vec::new());
    for writer in func.writers(buffer) {
        let axes = axes_of(func, writer, buffer)?;
        for condition in conjuncts(&writer.predicate) {
            let inner: Vec<VarId> = vars_of(&condition)
                .into_iter()
                .filter(|var| !around.contains(var) && !func.dims.contains(var))
                .collect();
            let is_bound = writer.iters.iter().any(|iter| {
                condition == iter.value.clone().less(&iter.extent)
                    || condition == iter.value.clone().greater_equal(0)
            });
            // A condition on the reduction: the sum is complete when the loop's iteration ends.
            let reduces = writer
                .iters_of(IterKind::Reduce)
                .any(|iter| inner.iter().any(|&var| iter.value.uses(var)));
            // An iteration that computes nothing has nothing to read.
            if inner.is_empty() {
                outer.push(condition);
                continue;
            }
            if is_bound || reduces {
                continue;
            }
            let place = axes.iter().enumerate().find_map(|(axis, var)| {
                let iter = writer.iters.iter().find(|iter| Some(iter.var) == *var)?;
                let [counter] = inner.as_slice() else { return None };
                let counts = Affine::of(&iter.value).terms.iter().all(|(atom, factor)| {
                    match vars_of(atom).contains(counter) {
                        true => *factor == 1 && *atom == var_expr(*counter),
                        false => vars_of(atom)
                            .iter()
                            .all(|var| around.contains(var) || func.dims.contains(var)),
                    }
                });
                (iter.value.uses(*counter) && counts).then_some((axis, *counter))
            });
            let (axis, counter) = place.ok_or_else(|| {
                format!(
                    "block `{}` runs under a condition that cannot be carried over; split the \
                     loops afterwards",
                    writer.name
                )
            })?;
            let guard = (axis, counter, condition);
            if !guards.contains(&guard) {
                guards.push(guard);
            }
        }
    }
    Ok((guards, outer))
}

/// A block in new loops, one for each of its variables, over a region of one of its buffers, whose
/// axes are `axes`.
fn rebuild(
    func: &mut PrimFuncData,
    mut block: BlockRealize,
    axes: &[Option<VarId>],
    region: &Region,
    outer: &[LoopInfo],
    guards: &[Guard],
    mut conditions: Vec<PrimExpr>,
) -> Stmt {
    let mut loops: Vec<LoopInfo> = Vec::new();
    let mut counters: BTreeMap<usize, PrimExpr> = BTreeMap::new();
    for iter in &mut block.iters {
        let axis = axes.iter().position(|axis| *axis == Some(iter.var));
        let (base, count) = match axis.and_then(|axis| region.axes.get(axis)) {
            Some(extent) if extent.len() != NO_BOUND => (extent.min(), extent.len().into()),
            Some(_) | None => (PrimExpr::index(0), iter.extent.clone()),
        };
        let name = func.vars[iter.var].name.trim_start_matches('v').to_owned();
        let var = func.index_var(if name.is_empty() { "i".to_owned() } else { name });
        loops.push(LoopInfo { var, extent: count, kind: ForKind::Serial });
        let counter = var_expr(var);
        if let Some(axis) = axis {
            counters.insert(axis, counter.clone());
        }
        iter.value = base + counter;
        let outside = outside_of(func, outer.iter().chain(&loops));
        conditions.extend(within(&iter.value, &iter.extent, &outside));
    }
    for (axis, counter, condition) in guards {
        // The region begins where the counter is 0.
        if let Some(place) = counters.get(axis) {
            let place = BTreeMap::from([(*counter, place.clone())]);
            conditions.push(condition.clone().substitute(&place));
        }
    }
    block.predicate = all(conditions);
    loops.into_iter().rev().fold(Stmt::BlockRealize(Box::new(block)), |body, info| {
        Stmt::for_loop(info.var, PrimExpr::index(0), info.extent, ForKind::Serial, body)
    })
}

/// Inserts a nest into a loop: before the first statement that touches the buffer, or after the
/// last.
fn insert(
    func: &mut PrimFuncData,
    target: VarId,
    nest: Stmt,
    buffer: BufferId,
    before: bool,
) -> Rewrite<()> {
    let Stmt::For { body, .. } = func.loop_stmt_mut(target)? else {
        return Err("the loop is gone".to_owned());
    };
    let mut stmts = match std::mem::replace(&mut **body, Stmt::nop()) {
        Stmt::Seq(stmts) => stmts,
        single => vec![single],
    };
    let place = if before {
        stmts.iter().position(|stmt| stmt.touches(buffer)).unwrap_or(0)
    } else {
        stmts.iter().rposition(|stmt| stmt.touches(buffer)).map_or(stmts.len(), |at| at + 1)
    };
    stmts.insert(place, nest);
    **body = Stmt::seq(stmts);
    tidy(&mut func.body);
    Ok(())
}
