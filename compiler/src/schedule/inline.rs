//! Primitives that move a block's computation to the uses of its result.

use std::collections::BTreeMap;

use super::error::Rewrite;
use super::tree::{Tree, blocks, find_mut, for_each_block_mut, is_block, tidy, written};
use crate::tir::{BlockRealize, BufferId, BufferScope, PrimExpr, PrimFuncData, Stmt, VarId};

/// The single store of a block that computes each element of one buffer at its own index.
pub(super) struct Element {
    pub(super) buffer: BufferId,
    /// The variable along each axis of the buffer.
    pub(super) axes: Vec<VarId>,
    pub(super) value: PrimExpr,
}

/// A block as one store at an index of distinct block variables, or the reason why it is none.
pub(super) fn element(block: &BlockRealize) -> Rewrite<Element> {
    let name = &block.name;
    let Stmt::Store { buffer, indices, value } = &block.body else {
        return Err(format!("block `{name}` does more than to store one value"));
    };
    let mut axes = Vec::with_capacity(indices.len());
    for index in indices {
        match index {
            PrimExpr::Var { var, .. } if !axes.contains(var) => axes.push(*var),
            _ => {
                return Err(format!(
                    "block `{name}` does not store at an index of distinct variables"
                ));
            }
        }
    }
    Ok(Element { buffer: *buffer, axes, value: value.clone() })
}

/// Fails if a buffer is a parameter, which must be stored.
fn must_be_internal(func: &PrimFuncData, buffer: BufferId) -> Rewrite<()> {
    if func.buffers[buffer].scope == BufferScope::Param {
        let name = func.buffer_name(buffer);
        return Err(format!("`{name}` is a parameter, so it must be stored"));
    }
    Ok(())
}

/// Fails unless one block alone stores to a buffer.
pub(super) fn must_be_sole_writer(
    func: &PrimFuncData,
    buffer: BufferId,
    block: &str,
) -> Rewrite<()> {
    match func.writers(buffer).iter().find(|writer| writer.name != block) {
        None => Ok(()),
        Some(other) => {
            Err(format!("block `{}` stores to `{}` as well", other.name, func.buffer_name(buffer)))
        }
    }
}

/// Computes a block's element wherever it is read, and removes the block.
pub(super) fn compute_inline(func: &mut PrimFuncData, name: &str) -> Rewrite<()> {
    let block = func.block(name)?;
    if block.is_reduction() {
        return Err(format!("block `{name}` is a reduction: its sum is not one expression"));
    }
    let Element { buffer, axes, value } = element(block)?;
    if block.iters.iter().any(|iter| iter.extent.as_int() != Some(1) && !axes.contains(&iter.var)) {
        return Err(format!("block `{name}` computes each element more than once"));
    }
    must_be_internal(func, buffer)?;
    must_be_sole_writer(func, buffer, name)?;
    func.take_nest(name)?;
    for_each_block_mut(&mut func.body, &mut |block| {
        for stmt in block.init.iter_mut().chain([&mut block.body]) {
            let taken = std::mem::replace(stmt, Stmt::nop());
            *stmt = taken.map_exprs(&mut |expr| replace_loads(expr, buffer, &axes, &value));
        }
    });
    drop_allocate(func, buffer);
    Ok(())
}

fn replace_loads(expr: PrimExpr, wanted: BufferId, axes: &[VarId], value: &PrimExpr) -> PrimExpr {
    expr.rewrite(&mut |expr| match expr {
        PrimExpr::Load { buffer, indices, .. } if buffer == wanted => {
            value.clone().substitute(&axes.iter().copied().zip(indices).collect())
        }
        other => other,
    })
}

/// Removes the allocation of an unused buffer.
pub(super) fn drop_allocate(func: &mut PrimFuncData, unused: BufferId) {
    let is = |stmt: &Stmt| matches!(stmt, Stmt::Allocate { buffer, .. } if *buffer == unused);
    if let Some(stmt) = find_mut(&mut func.body, &is)
        && let Stmt::Allocate { body, .. } = std::mem::replace(stmt, Stmt::nop())
    {
        *stmt = *body;
        tidy(&mut func.body);
    }
}

/// Moves an element-wise consumer into the block that computes its input, and removes the consumer.
pub(super) fn reverse_compute_inline(func: &mut PrimFuncData, name: &str) -> Rewrite<()> {
    let consumer = func.block(name)?.clone();
    if consumer.is_reduction() {
        return Err(format!("block `{name}` is a reduction: it needs more than one element"));
    }
    let store = element(&consumer)?;
    // The one local buffer that the consumer reads at its own index.
    let mut reads: Vec<(BufferId, Vec<PrimExpr>)> = Vec::new();
    store.value.walk(&mut |expr| {
        if let PrimExpr::Load { buffer, indices, .. } = expr
            && func.buffers[*buffer].scope != BufferScope::Param
        {
            reads.push((*buffer, indices.clone()));
        }
    });
    let candidate = reads.iter().find(|(buffer, _)| {
        matches!(func.writers(*buffer).as_slice(), [writer] if !writer.is_reduction())
    });
    let Some((buffer, indices)) = candidate.cloned() else {
        return Err(format!(
            "block `{name}` reads nothing that one block without a reduction computes"
        ));
    };
    let what = func.buffer_name(buffer).to_owned();
    if reads.iter().any(|(other, at)| *other == buffer && *at != indices) {
        return Err(format!("block `{name}` reads `{what}` at more than one index"));
    }
    let producer = func.writers(buffer)[0].name.clone();
    if func.readers(buffer).iter().any(|reader| reader.name != name) {
        return Err(format!("other blocks than `{name}` read `{what}`"));
    }
    let order = blocks(&func.body);
    let place = order.iter().position(|block| block.name == producer).unwrap_or(0);
    let late = order[place..].iter().find(|block| {
        block.name != producer
            && block.name != name
            && written(block).iter().any(|other| reads.iter().any(|(read, _)| read == other))
    });
    if let Some(late) = late {
        return Err(format!(
            "block `{}`, which block `{name}` needs, comes after block `{producer}`",
            late.name
        ));
    }
    let made = element(func.block(&producer)?)?;
    let mut values: BTreeMap<VarId, PrimExpr> = BTreeMap::new();
    for ((index, &axis), extent) in
        indices.iter().zip(&made.axes).zip(&func.buffers[buffer].extents())
    {
        let iter = consumer
            .iters
            .iter()
            .find(|iter| matches!(index, PrimExpr::Var { var, .. } if *var == iter.var));
        match iter {
            Some(iter) if iter.extent == *extent => {
                values.insert(iter.var, func.var_expr(axis));
            }
            _ => return Err(format!("block `{name}` does not read all of `{what}` in its order")),
        }
    }
    if consumer.iters.iter().any(|iter| !values.contains_key(&iter.var)) {
        return Err(format!("block `{name}` reads elements of `{what}` more than once"));
    }
    func.take_nest(name)?;
    // What is read several times is computed once.
    let uses = reads.iter().filter(|(other, _)| *other == buffer).count();
    let var = (uses > 1 && !made.value.is_leaf())
        .then(|| func.var(format!("{what}_value"), made.value.ty()));
    let element = match var {
        Some(var) => func.var_expr(var),
        None => made.value.clone(),
    };
    let value = store.value.rewrite(&mut |expr| match expr {
        PrimExpr::Load { buffer: read, .. } if read == buffer => element.clone(),
        other => other,
    });
    let value = match var {
        Some(var) => PrimExpr::Let { var, value: Box::new(made.value), body: Box::new(value) },
        None => value,
    };
    let place: Vec<PrimExpr> =
        store.axes.iter().map(|&axis| func.var_expr(axis).substitute(&values)).collect();
    // The producer's own variables are not among the consumer's, so one substitution does.
    let body = func.store(store.buffer, place, value.substitute(&values));
    func.block_mut(&producer)?.body = body;
    drop_allocate(func, buffer);
    Ok(())
}

/// The single buffer that a block stores to.
pub(super) fn output_of(func: &PrimFuncData, name: &str) -> Rewrite<BufferId> {
    match written(func.block(name)?).as_slice() {
        [buffer] => Ok(*buffer),
        buffers => Err(format!("block `{name}` stores to {} buffers, not one", buffers.len())),
    }
}

/// Whether a statement is the block of this name.
pub(super) fn named(name: &str) -> impl Fn(&Stmt) -> bool {
    move |stmt| is_block(stmt, name)
}
