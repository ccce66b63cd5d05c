//! Primitives that change loops: the grouping, order and kind of iterations.

use std::collections::BTreeMap;

use super::error::Rewrite;
use super::tree::{
    LoopInfo, Tree, all, blocks, conjuncts, find_mut, for_each_block_mut, is_loop, loop_info,
    outside_of, path,
};
use crate::tir::print::expr_text;
use crate::tir::region::{var as var_expr, vars_of, within};
use crate::tir::stmt::ROLLING_BUFFER;
use crate::tir::transform::INDEPENDENT_LOOP;
use crate::tir::{Analyzer, Annotations, ForKind, IterKind, PrimExpr, PrimFuncData, Stmt, VarId};

/// Marks a loop that `LoopPartition` divides where conditions on it become constant.
pub(super) const PARTITION_HINT: &str = "pragma_loop_partition_hint";

/// The extent of a serial loop from 0, the only kind that can be divided and moved.
fn plain(func: &PrimFuncData, var: VarId) -> Rewrite<PrimExpr> {
    let name = func.var_name(var);
    match func.loop_stmt(var)? {
        Stmt::For { min, extent, kind, annotations, .. } => {
            independent(name, annotations)?;
            if *kind != ForKind::Serial {
                return Err(format!(
                    "loop `{name}` is {} already; change its kind last",
                    kind.name()
                ));
            }
            if min.as_int() != Some(0) {
                return Err(format!("loop `{name}` does not begin at 0"));
            }
            Ok(extent.clone())
        }
        _ => Err(format!("there is no loop `{name}` any more")),
    }
}

/// The number of iterations of a [plain](plain) loop, if it is known.
fn constant(func: &PrimFuncData, var: VarId, why: &str) -> Rewrite<i64> {
    let extent = plain(func, var)?;
    extent.as_int().ok_or_else(|| {
        format!(
            "loop `{}` has the extent {}, which is not constant: {why}",
            func.var_name(var),
            expr_text(func, &extent)
        )
    })
}

/// Fails if an iteration of a loop depends on an earlier one.
fn independent(name: &str, annotations: &Annotations) -> Rewrite<()> {
    match annotations.get(ROLLING_BUFFER) {
        None => Ok(()),
        Some(buffer) => Err(format!(
            "the iterations of loop `{name}` depend on each other by the rolling buffer \
             `{buffer}`; change the loop before rolling_buffer"
        )),
    }
}

/// Replaces a loop by loops whose variables give its value.
///
/// `loops` are the new variables with their extents, outermost first; conditions are added to the
/// predicate of each block inside.
fn replace_loop(
    func: &mut PrimFuncData,
    old: VarId,
    loops: &[(VarId, PrimExpr)],
    value: PrimExpr,
    conditions: &[PrimExpr],
) -> Rewrite<()> {
    let stmt = func.loop_stmt_mut(old)?;
    let Stmt::For { body, annotations, .. } = std::mem::replace(stmt, Stmt::nop()) else {
        return Err("the loop is gone".to_owned());
    };
    let mut body = body.substitute(&BTreeMap::from([(old, value)]));
    for_each_block_mut(&mut body, &mut |block| {
        let known = conjuncts(&block.predicate);
        block.predicate = all(known.into_iter().chain(conditions.iter().cloned()));
    });
    for (position, (var, extent)) in loops.iter().enumerate().rev() {
        // Annotations are about the loop as a whole, which the outermost loop now is.
        let annotations = if position == 0 { annotations.clone() } else { Annotations::new() };
        body = Stmt::For {
            var: *var,
            min: PrimExpr::index(0),
            extent: extent.clone(),
            kind: ForKind::Serial,
            annotations,
            body: Box::new(body),
        };
    }
    *stmt = body;
    Ok(())
}

fn new_vars(func: &mut PrimFuncData, old: VarId, count: usize) -> Vec<VarId> {
    let name = func.var_name(old).to_owned();
    (0..count).map(|part| func.index_var(format!("{name}_{part}"))).collect()
}

/// Splits `for i in n` into nested loops of the given extents, one of which may be left to be
/// computed.
pub(super) fn split(
    func: &mut PrimFuncData,
    old: VarId,
    factors: &[Option<i64>],
) -> Rewrite<Vec<VarId>> {
    let extent = plain(func, old)?;
    if factors.is_empty() {
        return Err("a loop is split into at least one".to_owned());
    }
    if factors.iter().flatten().any(|factor| *factor <= 0) {
        return Err("a factor is not positive".to_owned());
    }
    let known = factors.iter().flatten().try_fold(1i64, |product, &f| product.checked_mul(f));
    let known = known.ok_or("the product of the factors exceeds 2^63")?;
    let open = factors.iter().filter(|factor| factor.is_none()).count();
    if open > 1 {
        return Err("more than one factor is left to be computed".to_owned());
    }
    if open == 0 && extent.as_int().is_none_or(|extent| known < extent) {
        let all = expr_text(func, &extent);
        return Err(format!(
            "{known} iterations do not cover the {all} of loop `{}`; leave a factor to be computed",
            func.var_name(old)
        ));
    }
    let computed = match extent.as_int() {
        Some(extent) => PrimExpr::index((extent.max(1) - 1) / known + 1),
        None => Analyzer::of(func).simplify(&(extent.clone() + (known - 1)).floordiv(known)),
    };
    let extents: Vec<PrimExpr> =
        factors.iter().map(|factor| factor.map_or(computed.clone(), PrimExpr::index)).collect();
    let vars = new_vars(func, old, factors.len());
    let mut value = PrimExpr::index(0);
    for (&var, extent) in vars.iter().zip(&extents) {
        value = value * extent + var_expr(var);
    }
    let loops: Vec<(VarId, PrimExpr)> = vars.iter().copied().zip(extents).collect();
    let inside: Vec<LoopInfo> = loops.iter().map(info).collect();
    let conditions = within(&value, &extent, &outside_of(func, &inside));
    replace_loop(func, old, &loops, value, &conditions)?;
    Ok(vars)
}

fn info((var, extent): &(VarId, PrimExpr)) -> LoopInfo {
    LoopInfo { var: *var, extent: extent.clone(), kind: ForKind::Serial }
}

/// Splits `for i in n` into runs of at most `most` iterations whose lengths differ by at most one.
pub(super) fn split_even(func: &mut PrimFuncData, old: VarId, most: i64) -> Rewrite<Vec<VarId>> {
    let extent = constant(func, old, "use split, or pin the dimension")?;
    if most <= 0 {
        return Err("a run has at least one iteration".to_owned());
    }
    let runs = (extent.max(1) - 1) / most + 1;
    let (size, longer) = (extent / runs, extent % runs);
    let vars = new_vars(func, old, 2);
    let (outer, inner) = (var_expr(vars[0]), var_expr(vars[1]));
    if longer == 0 {
        let value = outer * size + inner;
        replace_loop(func, old, &[(vars[0], runs.into()), (vars[1], size.into())], value, &[])?;
        return Ok(vars);
    }
    let value = outer.clone() * size + outer.clone().min(longer) + inner.clone();
    let in_run = outer.less(longer).or(inner.less(size));
    let loops = [(vars[0], runs.into()), (vars[1], (size + 1).into())];
    replace_loop(func, old, &loops, value, &[in_run])?;
    annotate_loop(func, vars[0], PARTITION_HINT, "1")?;
    Ok(vars)
}

/// Fuses nested loops into one.
pub(super) fn fuse(func: &mut PrimFuncData, vars: &[VarId]) -> Rewrite<VarId> {
    let (&first, rest) = vars.split_first().ok_or("there is no loop to fuse")?;
    let mut extents = vec![plain(func, first)?];
    let mut outer = first;
    for &inner in rest {
        extents.push(plain(func, inner)?);
        let nested = match func.loop_stmt(outer)? {
            Stmt::For { body, .. } => is_loop(body, inner),
            _ => false,
        };
        if !nested {
            return Err(format!(
                "loop `{}` is not all there is in loop `{}`",
                func.var_name(inner),
                func.var_name(outer)
            ));
        }
        outer = inner;
    }
    // A part of the fused loop that begins within a sum would initialize it again.
    for block in blocks(func.loop_stmt(first)?).into_iter().filter(|block| block.init.is_some()) {
        let along = |kind: IterKind| {
            let uses = |var: &VarId| block.iters_of(kind).any(|iter| iter.value.uses(*var));
            vars.iter().copied().find(uses)
        };
        if let (Some(spatial), Some(reduced)) = (along(IterKind::Spatial), along(IterKind::Reduce))
        {
            return Err(format!(
                "block `{}` begins its sums itself, along loop `{}` but not along loop `{}`; \
                 decompose the reduction first",
                block.name,
                func.var_name(reduced),
                func.var_name(spatial)
            ));
        }
    }
    let mut constants = extents.iter().filter_map(PrimExpr::as_int);
    let product = constants.try_fold(1i64, |product, extent| product.checked_mul(extent));
    product.ok_or("the fused loop has more than 2^63 iterations")?;
    let name: Vec<&str> = vars.iter().map(|&var| func.var_name(var)).collect();
    let fused = func.index_var(format!("{}_fused", name.join("_")));
    let mut values = BTreeMap::new();
    let mut inside = PrimExpr::index(1);
    for (position, (&var, extent)) in vars.iter().zip(&extents).enumerate().rev() {
        let digit = var_expr(fused).floordiv(inside.clone());
        values.insert(var, if position == 0 { digit } else { digit.floormod(extent) });
        inside = extent.clone() * inside;
    }
    let stmt = func.loop_stmt_mut(first)?;
    let mut body = std::mem::replace(stmt, Stmt::nop());
    for _ in vars {
        if let Stmt::For { body: inner, .. } = body {
            body = *inner;
        }
    }
    let body = body.substitute(&values);
    *stmt = Stmt::for_loop(fused, PrimExpr::index(0), inside, ForKind::Serial, body);
    Ok(fused)
}

/// Puts loops of one nest in the given order, in the places they have now.
pub(super) fn reorder(func: &mut PrimFuncData, order: &[VarId]) -> Rewrite<()> {
    let mut distinct = order.to_vec();
    distinct.sort();
    distinct.dedup();
    if distinct.len() != order.len() {
        return Err("a loop is named twice".to_owned());
    }
    let Some(&any) = order.first() else { return Ok(()) };
    for &var in order {
        func.loop_stmt(var)?;
    }
    let is_named = |stmt: &Stmt| loop_info(stmt).is_some_and(|info| order.contains(&info.var));
    let missing = || format!("the loops are not in one nest with `{}`", func.var_name(any));
    let top = path(&func.body, &is_named).and_then(|p| p.last().copied()).ok_or_else(missing)?;
    // Down through loops that contain one loop only.
    let mut nest = Vec::new();
    let mut left = order.len();
    let mut stmt = top;
    while left > 0 {
        let Stmt::For { var, min, extent, annotations, body, .. } = stmt else {
            return Err(format!(
                "between the loops there is something else than loops; the loops must be a nest \
                 that begins at `{}`",
                loop_info(top).map_or("?", |info| func.var_name(info.var))
            ));
        };
        let bounds = vars_of(min).into_iter().chain(vars_of(extent));
        if let Some(outer) = bounds.into_iter().find(|var| nest.contains(var)) {
            return Err(format!(
                "the bounds of loop `{}` depend on loop `{}`",
                func.var_name(*var),
                func.var_name(outer)
            ));
        }
        independent(func.var_name(*var), annotations)?;
        nest.push(*var);
        left -= usize::from(order.contains(var));
        stmt = body;
    }
    let first = nest[0];
    let mut next = order.iter();
    let wanted: Vec<VarId> = nest
        .iter()
        .map(|var| if order.contains(var) { next.next().unwrap_or(var) } else { var })
        .copied()
        .collect();
    let slot = func.loop_stmt_mut(first)?;
    let mut body = std::mem::replace(slot, Stmt::nop());
    let mut heads: BTreeMap<VarId, (PrimExpr, PrimExpr, ForKind, Annotations)> = BTreeMap::new();
    for _ in &nest {
        if let Stmt::For { var, min, extent, kind, annotations, body: inner } = body {
            heads.insert(var, (min, extent, kind, annotations));
            body = *inner;
        }
    }
    for var in wanted.into_iter().rev() {
        if let Some((min, extent, kind, annotations)) = heads.remove(&var) {
            body = Stmt::For { var, min, extent, kind, annotations, body: Box::new(body) };
        }
    }
    *slot = body;
    Ok(())
}

/// Notes that the iterations of a loop may run at the same time.
pub(super) fn set_independent(func: &mut PrimFuncData, var: VarId) -> Rewrite<()> {
    // One iteration is apart from no other.
    if plain(func, var)?.as_int() != Some(1) {
        write_apart(func, var)?;
    }
    annotate_loop(func, var, INDEPENDENT_LOOP, "1")
}

/// An error if iterations of a loop write the same elements.
fn write_apart(func: &PrimFuncData, var: VarId) -> Rewrite<()> {
    let name = func.var_name(var);
    for block in blocks(func.loop_stmt(var)?) {
        let uses = |kind: IterKind| {
            // Variables of enclosing blocks are already replaced by their values.
            block.iters_of(kind).find(|iter| iter.value.uses(var)).map(|iter| iter.var)
        };
        if let Some(reduced) = uses(IterKind::Reduce) {
            return Err(format!(
                "loop `{name}` runs over `{}`, along which block `{}` reduces: its iterations \
                 would write the same elements; use rfactor",
                func.var_name(reduced),
                block.name
            ));
        }
        if uses(IterKind::Spatial).is_none() {
            return Err(format!(
                "block `{}` writes the same elements in each iteration of loop `{name}`",
                block.name
            ));
        }
    }
    Ok(())
}

/// Sets the kind of a loop.
pub(super) fn set_kind(func: &mut PrimFuncData, var: VarId, kind: ForKind) -> Rewrite<()> {
    let extent = match kind {
        ForKind::Serial | ForKind::Parallel => plain(func, var)?,
        ForKind::Unrolled | ForKind::Vectorized => {
            constant(func, var, "split it, and use the loop inside, or pin the dimension")?.into()
        }
    };
    if matches!(kind, ForKind::Parallel | ForKind::Vectorized) {
        write_apart(func, var)?;
    }
    let name = func.var_name(var).to_owned();
    let stmt = func.loop_stmt(var)?;
    let is_parallel = |info: &LoopInfo| info.kind == ForKind::Parallel;
    if kind == ForKind::Parallel {
        let around = func.loops_around(&|stmt| is_loop(stmt, var));
        if let Some(outer) = around.iter().find(|info| is_parallel(info)) {
            let outer = func.var_name(outer.var);
            return Err(format!("loop `{name}` is in loop `{outer}`, which is parallel"));
        }
        let mut inner = None;
        stmt.walk(&mut |stmt| inner = inner.take().or(loop_info(stmt).filter(is_parallel)));
        if let Some(inner) = inner {
            let inner = func.var_name(inner.var);
            return Err(format!("loop `{inner}` in loop `{name}` is parallel already"));
        }
    }
    if kind == ForKind::Vectorized {
        if extent.as_int().is_some_and(|extent| extent < 1) {
            return Err(format!("loop `{name}` has no iterations"));
        }
        let mut serial = None;
        stmt.walk(&mut |stmt| {
            if let Some(info) = loop_info(stmt)
                && info.var != var
                && info.kind == ForKind::Vectorized
            {
                serial = serial.or(Some(info.var));
            }
        });
        if let Some(inner) = serial {
            let inner = func.var_name(inner);
            return Err(format!("loop `{inner}` in loop `{name}` is vectorized already"));
        }
    }
    if let Stmt::For { kind: current, .. } = func.loop_stmt_mut(var)? {
        *current = kind;
    }
    Ok(())
}

/// Annotates a loop.
pub(super) fn annotate_loop(
    func: &mut PrimFuncData,
    loop_var: VarId,
    key: &str,
    value: &str,
) -> Rewrite<()> {
    if let Stmt::For { annotations, .. } = func.loop_stmt_mut(loop_var)? {
        annotations.insert(key.to_owned(), value.to_owned());
    }
    Ok(())
}

/// Puts a loop of one iteration around a block, or around the loop given.
pub(super) fn add_unit_loop(func: &mut PrimFuncData, is: &dyn Fn(&Stmt) -> bool) -> Rewrite<VarId> {
    let unit = func.index_var("u");
    let stmt = find_mut(&mut func.body, is).ok_or("what it would be around is gone")?;
    let body = std::mem::replace(stmt, Stmt::nop());
    let (min, extent) = (PrimExpr::index(0), PrimExpr::index(1));
    *stmt = Stmt::for_loop(unit, min, extent, ForKind::Serial, body);
    Ok(unit)
}
