//! The primitive that makes the iterations of a reduction's loop independent.

use std::collections::{BTreeMap, BTreeSet};

use super::cache::allocate;
use super::error::Rewrite;
use super::inline::{must_be_sole_writer, named, output_of};
use super::tree::{Tree, blocks, conjuncts, is_loop};
use super::{BlockRv, LoopRv, Result, Schedule};
use crate::te::{combined, identity};
use crate::tir::region::{var as var_expr, vars_of};
use crate::tir::{
    Annotations, BinaryOp, BlockIter, BlockRealize, BufferId, BufferScope, ForKind, IterKind,
    PrimExpr, PrimFuncData, Stmt, VarId,
};

impl Schedule {
    /// Makes each iteration of a loop of a reduction combine its part in an element of its own, and
    /// combines these elements afterwards: so the iterations of the loop are independent, as vector
    /// lanes and threads must be. The buffer of these elements has the loop as an additional axis
    /// `factor_axis`. Returns the new block that computes the elements; the original block combines
    /// them.
    ///
    /// Sums of floats are added in another order, so they may be rounded differently.
    ///
    /// # Errors
    ///
    /// The loop is not along a reduction or is around several blocks, or a condition depends on it.
    pub fn rfactor(&mut self, loop_: LoopRv, factor_axis: usize) -> Result<BlockRv> {
        let name =
            self.apply("rfactor", |this, func| rfactor(func, this.loop_var(loop_)?, factor_axis))?;
        let partial = self.new_block(name);
        self.record("rfactor", vec![loop_.into(), factor_axis.into()], vec![partial.into()]);
        Ok(partial)
    }
}

/// `place = combiner(place, value)`.
struct Update {
    buffer: BufferId,
    place: Vec<PrimExpr>,
    combiner: BinaryOp,
}

fn update(block: &BlockRealize) -> Rewrite<Update> {
    let form = || format!("block `{}` does not combine one element with a value", block.name);
    let Stmt::Store { buffer, indices, value } = &block.body else { return Err(form()) };
    let is_place = |expr: &PrimExpr| match expr {
        PrimExpr::Load { buffer: read, indices: at, .. } => read == buffer && at == indices,
        _ => false,
    };
    let combiner = match value {
        PrimExpr::Binary {
            op: op @ (BinaryOp::Add | BinaryOp::Mul | BinaryOp::Min | BinaryOp::Max),
            lhs,
            ..
        } if is_place(lhs) => *op,
        PrimExpr::MulAdd { c, .. } | PrimExpr::DotAdd { c, .. } if is_place(c) => BinaryOp::Add,
        // The form of extremes of floats, which keep a NaN.
        PrimExpr::Select { otherwise, .. } => match otherwise.as_ref() {
            PrimExpr::Binary { op: op @ (BinaryOp::Min | BinaryOp::Max), lhs, rhs }
                if is_place(lhs)
                    && *value == combined(*op, lhs.as_ref().clone(), rhs.as_ref().clone()) =>
            {
                *op
            }
            _ => return Err(form()),
        },
        _ => return Err(form()),
    };
    Ok(Update { buffer: *buffer, place: indices.clone(), combiner })
}

fn rfactor(func: &mut PrimFuncData, target: VarId, factor_axis: usize) -> Rewrite<String> {
    let at = func.var_name(target).to_owned();
    let block = match blocks(func.loop_stmt(target)?)[..] {
        [block] => block.clone(),
        _ => return Err(format!("loop `{at}` is not around one block")),
    };
    let name = block.name.clone();
    let loops = func.loops_around(&named(&name));
    if let Some(outer) = loops.first()
        && blocks(func.loop_stmt(outer.var)?).len() > 1
    {
        return Err(format!(
            "loop `{}` is around other blocks than `{name}`; use rfactor before compute_at",
            func.var_name(outer.var)
        ));
    }
    if let Some(info) = loops.iter().find(|info| info.kind != ForKind::Serial) {
        let (var, kind) = (func.var_name(info.var), info.kind.name());
        return Err(format!("loop `{var}` is {kind} already; change its kind last"));
    }
    let extent = loops.iter().find(|info| info.var == target).map(|info| info.extent.clone());
    let extent = extent.ok_or_else(|| format!("block `{name}` is not in loop `{at}`"))?;
    let used_by = |kind: IterKind| -> BTreeSet<VarId> {
        block.iters_of(kind).flat_map(|iter| vars_of(&iter.value)).collect()
    };
    let (spatial, reduced) = (used_by(IterKind::Spatial), used_by(IterKind::Reduce));
    if !reduced.contains(&target) || spatial.contains(&target) {
        return Err(format!("block `{name}` does not reduce along loop `{at}` alone"));
    }
    if let Some(condition) = conjuncts(&block.predicate)
        .iter()
        .find(|condition| vars_of(condition).iter().any(|var| reduced.contains(var)))
    {
        let var = vars_of(condition).into_iter().find(|var| reduced.contains(var));
        return Err(format!(
            "block `{name}` runs under a condition on loop `{}`; split the reduction by a divisor",
            func.var_name(var.unwrap_or(target))
        ));
    }
    let Update { buffer, place, combiner } = update(&block)?;
    output_of(func, &name)?;
    must_be_sole_writer(func, buffer, &name)?;
    let dtype = func.buffers[buffer].dtype;
    let neutral = identity(combiner, dtype);
    match &block.init {
        Some(Stmt::Store { value, .. }) if *value == neutral => {}
        _ => {
            return Err(format!(
                "block `{name}` does not begin with the neutral element; use rfactor before \
                 decompose_reduction"
            ));
        }
    }
    let mut extents = func.buffers[buffer].extents();
    if factor_axis > extents.len() {
        return Err(format!("there is no place {factor_axis} among {} axes", extents.len()));
    }
    extents.insert(factor_axis, extent.clone());
    let partial_name = func.unique_block(&format!("{name}_rf"));
    let what = format!("{}_rf", func.buffer_name(buffer));
    let partial = func.dense_buffer(what, dtype, extents, BufferScope::Local);

    // The partial results: the block gets a variable for each loop of the reduction.
    let mut values: BTreeMap<VarId, PrimExpr> = BTreeMap::new();
    let mut iters: Vec<BlockIter> = block.iters_of(IterKind::Spatial).cloned().collect();
    let mut lane = PrimExpr::index(0);
    for info in loops.iter().filter(|info| reduced.contains(&info.var)) {
        let var = func.index_var(format!("v{}", func.var_name(info.var)));
        values.insert(info.var, var_expr(var));
        let kind = if info.var == target { IterKind::Spatial } else { IterKind::Reduce };
        if info.var == target {
            lane = var_expr(var);
        }
        let (extent, value) = (info.extent.clone(), var_expr(info.var));
        iters.push(BlockIter { var, extent, kind, value });
    }
    let terms: BTreeMap<VarId, PrimExpr> = block
        .iters_of(IterKind::Reduce)
        .map(|iter| (iter.var, iter.value.clone().substitute(&values)))
        .collect();
    let is_reduction = iters.iter().any(|iter| iter.kind == IterKind::Reduce);
    let at_lane =
        |stmt: Stmt| redirect(stmt.substitute(&terms), buffer, partial, factor_axis, &lane);
    let body = at_lane(block.body.clone());
    let made = BlockRealize {
        name: partial_name.clone(),
        iters,
        predicate: block.predicate.clone(),
        annotations: block.annotations.clone(),
        init: block.init.clone().filter(|_| is_reduction).map(at_lane),
        // Without another loop, each part has one term only.
        body: if is_reduction { body } else { only_term(body, partial, &neutral) },
    };
    *func.block_mut(&name)? = made;

    // The combination of the partial results.
    let mut around = Vec::new();
    let mut renamed = BTreeMap::new();
    let mut iters = Vec::new();
    let spatial: Vec<BlockIter> = block.iters_of(IterKind::Spatial).cloned().collect();
    for BlockIter { var, extent, kind, .. } in spatial {
        let name = func.var_name(var).to_owned();
        let (own, loop_) = (func.index_var(&name), func.index_var(name.trim_start_matches('v')));
        renamed.insert(var, var_expr(own));
        iters.push(BlockIter { var: own, extent: extent.clone(), kind, value: var_expr(loop_) });
        around.push((loop_, extent));
    }
    let (own, loop_) = (func.index_var(format!("v{at}")), func.index_var(&at));
    let kind = IterKind::Reduce;
    iters.push(BlockIter { var: own, extent: extent.clone(), kind, value: var_expr(loop_) });
    around.push((loop_, extent));
    let place: Vec<PrimExpr> = place.into_iter().map(|index| index.substitute(&renamed)).collect();
    let mut from = place.clone();
    from.insert(factor_axis, var_expr(own));
    let next = combined(combiner, func.load(buffer, &place), func.load(partial, &from));
    let combine = BlockRealize {
        name,
        iters,
        predicate: PrimExpr::bool(true),
        annotations: Annotations::new(),
        init: Some(func.store(buffer, &place, neutral)),
        body: func.store(buffer, &place, next),
    };
    let nest = around.into_iter().rev().fold(
        Stmt::BlockRealize(Box::new(combine)),
        |body, (var, extent)| {
            Stmt::for_loop(var, PrimExpr::index(0), extent, ForKind::Serial, body)
        },
    );
    let first = loops.first().map_or(target, |info| info.var);
    let is = |stmt: &Stmt| is_loop(stmt, first);
    if let Some(stmt) = super::tree::find_mut(&mut func.body, &is) {
        let old = std::mem::replace(stmt, Stmt::nop());
        *stmt = Stmt::seq([old, nest]);
    }
    super::tree::tidy(&mut func.body);
    allocate(func, partial);
    Ok(partial_name)
}

/// Replaces a buffer by another, whose additional axis is indexed by a lane.
fn redirect(stmt: Stmt, old: BufferId, new: BufferId, axis: usize, lane: &PrimExpr) -> Stmt {
    let stmt = stmt.map_exprs(&mut |expr| {
        expr.rewrite(&mut |mut expr| {
            if let PrimExpr::Load { buffer, indices, .. } = &mut expr
                && *buffer == old
            {
                *buffer = new;
                indices.insert(axis, lane.clone());
            }
            expr
        })
    });
    stmt.rewrite(&mut |mut stmt| {
        if let Stmt::Store { buffer, indices, .. } = &mut stmt
            && *buffer == old
        {
            *buffer = new;
            indices.insert(axis, lane.clone());
        }
        stmt
    })
}

/// The stored value for a part with one term, where the old contents are the neutral element.
fn only_term(stmt: Stmt, buffer: BufferId, neutral: &PrimExpr) -> Stmt {
    stmt.map_exprs(&mut |expr| {
        expr.rewrite(&mut |expr| match expr {
            PrimExpr::Load { buffer: read, .. } if read == buffer => neutral.clone(),
            other => other,
        })
    })
}

#[cfg(test)]
mod tests;
