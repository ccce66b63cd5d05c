//! Primitives for reductions.

use std::collections::{BTreeMap, BTreeSet};

use super::error::Rewrite;
use super::inline::named;
use super::tree::{LoopInfo, Tree, all, conjuncts, refresh, tidy};
use crate::tir::region::vars_of;
use crate::tir::{
    Analyzer, Annotations, BlockRealize, IterKind, PrimExpr, PrimFuncData, Stmt, VarId,
};

/// Moves the init of a reduction before a loop, into a block of its own; returns its name.
///
/// The loops inside that run along the result are then duplicated, with the same kinds.
pub(super) fn decompose_reduction(
    func: &mut PrimFuncData,
    name: &str,
    target: VarId,
) -> Rewrite<String> {
    let block = func.block(name)?.clone();
    let Some(init) = block.init.clone() else {
        return Err(format!("block `{name}` has no init to be moved"));
    };
    let loops = func.loops_around(&named(name));
    let at = func.var_name(target).to_owned();
    let Some(position) = loops.iter().position(|info| info.var == target) else {
        return Err(format!("block `{name}` is not in loop `{at}`"));
    };
    let used_by = |kind: IterKind| -> BTreeSet<VarId> {
        block.iters_of(kind).flat_map(|iter| vars_of(&iter.value)).collect()
    };
    let (spatial, reduced) = (used_by(IterKind::Spatial), used_by(IterKind::Reduce));
    if let Some(outer) = loops[..position].iter().find(|info| reduced.contains(&info.var)) {
        return Err(format!(
            "loop `{}` reduces and is around loop `{at}`: the init would run again in each of its \
             iterations",
            func.var_name(outer.var)
        ));
    }
    if let Some(var) = repeated(&block, &loops[position..], &spatial, &reduced) {
        return Err(format!(
            "loop `{}` is inside of loop `{at}` and computes elements of `{name}` again: without \
             the init, each would be added up twice",
            func.var_name(var)
        ));
    }
    let init_name = func.unique_block(&format!("{name}_init"));
    let outside: BTreeSet<VarId> = loops[..position].iter().map(|info| info.var).collect();
    let kept: BTreeSet<VarId> =
        loops[position..].iter().map(|info| info.var).filter(|var| spatial.contains(var)).collect();
    let conditions = conjuncts(&block.predicate).into_iter().filter(|condition| {
        let is_there =
            |var: &VarId| outside.contains(var) || kept.contains(var) || func.dims.contains(var);
        vars_of(condition).iter().all(is_there)
    });
    let copy = BlockRealize {
        name: init_name.clone(),
        iters: block.iters_of(IterKind::Spatial).cloned().collect(),
        predicate: all(conditions),
        annotations: Annotations::new(),
        init: None,
        body: init,
    };
    let mut nest = Stmt::BlockRealize(Box::new(copy));
    for info in loops[position..].iter().rev().filter(|info| kept.contains(&info.var)) {
        if let Stmt::For { var, min, extent, kind, annotations, body: _ } =
            func.loop_stmt(info.var)?
        {
            nest = Stmt::For {
                var: *var,
                min: min.clone(),
                extent: extent.clone(),
                kind: *kind,
                annotations: annotations.clone(),
                body: Box::new(nest),
            };
        }
    }
    let nest = refresh(func, nest);
    let update = func.block_mut(name)?;
    update.init = None;
    let stmt = func.loop_stmt_mut(target)?;
    let old = std::mem::replace(stmt, Stmt::nop());
    *stmt = Stmt::seq([nest, old]);
    tidy(&mut func.body);
    Ok(init_name)
}

/// A loop in whose iterations elements of the result are computed that other iterations compute as
/// well: one that the block does not depend on, or that moves a window by less than its extent.
fn repeated(
    block: &BlockRealize,
    loops: &[LoopInfo],
    spatial: &BTreeSet<VarId>,
    reduced: &BTreeSet<VarId>,
) -> Option<VarId> {
    let loops = loops.iter().filter(|info| !info.extent.is_const(1));
    let loops: Vec<&LoopInfo> = loops.collect();
    let unused = |info: &&&LoopInfo| !spatial.contains(&info.var) && !reduced.contains(&info.var);
    if let Some(info) = loops.iter().find(unused) {
        return Some(info.var);
    }
    let uses: Vec<BTreeSet<VarId>> =
        block.iters_of(IterKind::Spatial).map(|iter| vars_of(&iter.value)).collect();
    block.iters_of(IterKind::Spatial).zip(&uses).find_map(|(iter, used)| {
        // Another axis tells apart what a variable of both makes equal in one.
        let alone = |var| uses.iter().filter(|used| used.contains(&var)).count() == 1;
        let own: Vec<(VarId, i64)> = (loops.iter())
            .filter(|info| used.contains(&info.var))
            .map(|info| Some((info.var, info.extent.as_int()?)))
            .collect::<Option<_>>()?;
        overlapping(&iter.value, &own).filter(|&var| alone(var))
    })
}

/// A variable of a sum of multiples of variables, each from zero to its extent, some of whose steps
/// are no longer than what variables of smaller multiples cover.
fn overlapping(value: &PrimExpr, vars: &[(VarId, i64)]) -> Option<VarId> {
    let mut analyzer = Analyzer::new();
    let at = |chosen: Option<VarId>| {
        let values = vars.iter().map(|&(var, _)| (var, i64::from(chosen == Some(var))));
        let values: BTreeMap<_, _> =
            values.map(|(var, value)| (var, PrimExpr::index(value))).collect();
        value.clone().substitute(&values)
    };
    let mut sum = at(None);
    let mut steps = Vec::with_capacity(vars.len());
    for &(var, extent) in vars {
        let step = analyzer.simplify(&(at(Some(var)) - at(None))).as_int()?;
        sum = sum + PrimExpr::var(var, value.ty()) * step;
        steps.push((step.unsigned_abs(), extent, var));
    }
    if !analyzer.simplify(&(value.clone() - sum)).is_const(0) {
        return None;
    }
    steps.sort_unstable();
    let mut covered = 1u64;
    for (step, extent, var) in steps {
        if step < covered {
            return Some(var);
        }
        let last = u64::try_from(extent - 1).unwrap_or(0);
        covered = covered.saturating_add(step.saturating_mul(last));
    }
    None
}
