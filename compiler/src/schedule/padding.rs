//! Primitives that remove the condition from a block that pads.

use super::error::Rewrite;
use super::inline::{element, must_be_sole_writer, named};
use super::tree::{Tree, all, conjuncts, refresh, tidy};
use super::{BlockRv, LoopRv, Result, Schedule};
use crate::tir::print::expr_text;
use crate::tir::region::{var as var_expr, vars_of};
use crate::tir::{
    Affine, Annotations, BlockRealize, BufferScope, CompareOp, ForKind, PrimExpr, PrimFuncData,
    Stmt, VarId,
};

impl Schedule {
    /// Divides a block that stores an element inside of some bounds and a constant outside: a new
    /// block before the loop fills everything with the constant, and the block itself copies only
    /// the inside. Returns the new block.
    ///
    /// # Errors
    ///
    /// The block does not choose between an element and a constant, by bounds of its variables.
    pub fn decompose_padding(&mut self, block: BlockRv, loop_: LoopRv) -> Result<BlockRv> {
        let name = self.apply("decompose_padding", |this, func| {
            decompose_padding(func, &this.block_name(block)?, this.loop_var(loop_)?)
        })?;
        let fill = self.new_block(name);
        self.record("decompose_padding", vec![block.into(), loop_.into()], vec![fill.into()]);
        Ok(fill)
    }

    /// Has a block that pads a parameter with zeros read the border of zeros that the parameter's layout
    /// has, without a condition.
    ///
    /// # Errors
    ///
    /// The block does not choose between an element of a parameter and zero, by whether its index,
    /// one variable and a constant along each axis, is inside; or the layout's halo is smaller.
    pub fn read_halo(&mut self, block: BlockRv) -> Result<()> {
        self.apply("read_halo", |this, func| read_halo(func, &this.block_name(block)?))?;
        self.record("read_halo", vec![block.into()], Vec::new());
        Ok(())
    }
}

/// The values of a variable for which the condition holds: from `low`, below `high`.
struct Inside {
    var: VarId,
    low: i64,
    high: i64,
}

fn decompose_padding(func: &mut PrimFuncData, name: &str, target: VarId) -> Rewrite<String> {
    let block = func.block(name)?.clone();
    let at = func.var_name(target).to_owned();
    let loops = func.loops_around(&named(name));
    let Some(position) = loops.iter().position(|info| info.var == target) else {
        return Err(format!("block `{name}` is not in loop `{at}`"));
    };
    let stored = element(&block)?;
    let PrimExpr::Select { cond, then, otherwise } = stored.value else {
        return Err(format!("block `{name}` does not choose between an element and a constant"));
    };
    if !matches!(*otherwise, PrimExpr::Int { .. } | PrimExpr::Float { .. }) {
        return Err(format!("block `{name}` does not pad with a constant"));
    }
    must_be_sole_writer(func, stored.buffer, name)?;
    let inside = inside(func, &block, &cond)?;
    let fill_name = func.unique_block(&format!("{name}_pad"));

    let place: Vec<PrimExpr> = stored.axes.iter().map(|&axis| func.var_expr(axis)).collect();
    let fill = BlockRealize {
        name: fill_name.clone(),
        iters: block.iters.clone(),
        predicate: block.predicate.clone(),
        annotations: Annotations::new(),
        init: None,
        body: func.store(stored.buffer, &place, *otherwise),
    };
    let mut nest = Stmt::BlockRealize(Box::new(fill));
    for info in loops[position..].iter().rev() {
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

    // If its loops are those of the variables, the copy runs over the inside only.
    let mut conditions = conjuncts(&block.predicate);
    let body = func.store(stored.buffer, &place, *then);
    func.block_mut(name)?.body = body;
    for Inside { var, low, high } in inside {
        let Some(iter) = block.iters.iter().find(|iter| iter.var == var) else { continue };
        let own = loops[position..].iter().find(|info| {
            let only = block.iters.iter().filter(|iter| iter.value.uses(info.var)).count() == 1;
            let free = !block.predicate.uses(info.var) && info.kind == ForKind::Serial;
            iter.value == var_expr(info.var) && only && free
        });
        let Some(own) = own.cloned() else {
            let below = iter.extent.as_int().is_none_or(|extent| high < extent);
            conditions.extend((low > 0).then(|| iter.value.clone().greater_equal(low)));
            conditions.extend(below.then(|| iter.value.clone().less(high)));
            continue;
        };
        for iter in func.block_mut(name)?.iters.iter_mut().filter(|iter| iter.var == var) {
            iter.value = var_expr(own.var) + low;
        }
        if let Stmt::For { extent, .. } = func.loop_stmt_mut(own.var)? {
            *extent = PrimExpr::index((high - low).max(0));
        }
    }
    func.block_mut(name)?.predicate = all(conditions);
    let stmt = func.loop_stmt_mut(target)?;
    let old = std::mem::replace(stmt, Stmt::nop());
    *stmt = Stmt::seq([nest, old]);
    tidy(&mut func.body);
    Ok(fill_name)
}

fn read_halo(func: &mut PrimFuncData, name: &str) -> Rewrite<()> {
    let block = func.block(name)?.clone();
    let stored = element(&block)?;
    let PrimExpr::Select { cond, then, otherwise } = stored.value else {
        return Err(format!("block `{name}` does not choose between an element and zero"));
    };
    let is_zero = match &*otherwise {
        PrimExpr::Int { value, .. } => *value == 0,
        PrimExpr::Float { value, .. } => value.get().to_bits() == 0,
        _ => false,
    };
    let PrimExpr::Load { buffer, indices, .. } = &*then else {
        return Err(format!("block `{name}` does not read one element"));
    };
    let decl = &func.buffers[*buffer];
    if !is_zero || decl.scope != BufferScope::Param {
        return Err(format!("block `{name}` does not pad a parameter with zero"));
    }
    let mut inside = inside(func, &block, &cond)?;
    for (axis, index) in indices.iter().enumerate() {
        let whole = Affine::of(index);
        let [(PrimExpr::Var { var, .. }, 1)] = whole.terms[..] else {
            return Err(format!("an index of `{}` is no variable and a constant", decl.name));
        };
        let extent = block.iters.iter().find(|iter| iter.var == var);
        let Some(extent) = extent.and_then(|iter| iter.extent.as_int()) else {
            return Err(format!("the extent of `{}` is not known", func.var_name(var)));
        };
        // What is outside of the parameter, and nothing else, is where the condition is false.
        let (first, shape) = (whole.constant, decl.shape()[axis]);
        let within = ((-first).clamp(0, extent), (shape - first).clamp(0, extent));
        let known = inside.iter().position(|inside| inside.var == var);
        let known = known.map(|at| inside.swap_remove(at));
        if known.map_or((0, extent), |inside| (inside.low, inside.high)) != within {
            return Err(format!("what is zero along axis {axis} is not what is outside"));
        }
        let halo = decl.spec.halo()[axis];
        if halo.before < -first || halo.after < first + extent - shape {
            return Err(format!(
                "the layout of `{}` has {} and {} zeros around axis {axis}; {} and {} are read",
                decl.name,
                halo.before,
                halo.after,
                (-first).max(0),
                (first + extent - shape).max(0)
            ));
        }
    }
    if let Some(Inside { var, .. }) = inside.first() {
        let var = func.var_name(*var);
        return Err(format!("block `{name}` has a condition on `{var}`, which is no index"));
    }
    let place: Vec<PrimExpr> = stored.axes.iter().map(|&axis| func.var_expr(axis)).collect();
    let body = func.store(stored.buffer, &place, *then);
    func.block_mut(name)?.body = body;
    Ok(())
}

/// Splits a condition into bounds of single variables.
fn inside(func: &PrimFuncData, block: &BlockRealize, cond: &PrimExpr) -> Rewrite<Vec<Inside>> {
    let unclear = || {
        let vars: Vec<&str> = vars_of(cond).into_iter().map(|var| func.var_name(var)).collect();
        format!(
            "the condition of block `{}` on `{}` is not bounds of single variables",
            block.name,
            vars.join("`, `")
        )
    };
    let mut bounds: Vec<Inside> = Vec::new();
    for part in conjuncts(cond) {
        let PrimExpr::Compare { op, lhs, rhs } = &part else { return Err(unclear()) };
        let difference = Affine::of(lhs).plus(&Affine::of(rhs), -1).ok_or_else(unclear)?;
        let [(PrimExpr::Var { var, .. }, factor @ (1 | -1))] = difference.terms[..] else {
            return Err(unclear());
        };
        let iter = block.iters.iter().find(|iter| iter.var == var).ok_or_else(unclear)?;
        let extent = iter.extent.as_int().ok_or_else(|| {
            format!(
                "`{}` has the extent {}, which is not constant: pin the dimension",
                func.var_name(var),
                expr_text(func, &iter.extent)
            )
        })?;
        // var `op` limit.
        let limit = difference.constant.checked_mul(-factor).ok_or_else(unclear)?;
        let op = if factor == 1 { *op } else { op.swapped() };
        let after = limit.checked_add(1).ok_or_else(unclear)?;
        let (low, high) = match op {
            CompareOp::Lt => (0, limit),
            CompareOp::Le => (0, after),
            CompareOp::Gt => (after, extent),
            CompareOp::Ge => (limit, extent),
            CompareOp::Eq => (limit, after),
            CompareOp::Ne => return Err(unclear()),
        };
        let (low, high) = (low.clamp(0, extent), high.clamp(0, extent));
        match bounds.iter_mut().find(|known| known.var == var) {
            Some(known) => (known.low, known.high) = (known.low.max(low), known.high.min(high)),
            None => bounds.push(Inside { var, low, high }),
        }
    }
    Ok(bounds)
}

#[cfg(test)]
mod tests;
