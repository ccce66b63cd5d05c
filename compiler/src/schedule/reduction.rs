//! Primitives for reductions.

use std::collections::BTreeSet;

use super::error::Rewrite;
use super::inline::named;
use super::tree::{Tree, all, conjuncts, refresh, tidy};
use crate::tir::region::vars_of;
use crate::tir::{Annotations, BlockRealize, IterKind, PrimFuncData, Stmt, VarId};

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
