//! Primitives that insert a new buffer between a block and one that it reads or writes.

use super::error::Rewrite;
use super::layout::uses_padding;
use super::tree::{Tree, blocks, path, read, written};
use crate::tir::{
    Annotations, BlockIter, BlockRealize, BufferId, BufferScope, ForKind, IterKind, PrimExpr,
    PrimFuncData, Stmt,
};

/// The word for a scope in names of blocks and buffers.
fn scope_name(scope: BufferScope) -> Rewrite<&'static str> {
    match scope {
        BufferScope::Local => Ok("local"),
        BufferScope::Register => Ok("register"),
        BufferScope::Param => Err("a cache cannot be a parameter".to_owned()),
    }
}

pub(super) fn nth(
    buffers: &[BufferId],
    index: usize,
    what: &str,
    block: &str,
) -> Rewrite<BufferId> {
    buffers.get(index).copied().ok_or_else(|| {
        format!("block `{block}` {what} {} buffers; there is no number {index}", buffers.len())
    })
}

/// Makes a block write to a new buffer, and adds a block that copies the new buffer to the old one.
pub(super) fn cache_write(
    func: &mut PrimFuncData,
    name: &str,
    index: usize,
    scope: BufferScope,
) -> Rewrite<String> {
    let suffix = scope_name(scope)?;
    let buffer = nth(&written(func.block(name)?), index, "writes", name)?;
    if let Some(other) = func.writers(buffer).iter().find(|writer| writer.name != name) {
        let what = func.buffer_name(buffer);
        return Err(format!("block `{}` stores to `{what}` as well", other.name));
    }
    // The copy comes after the loops around the block.
    let what = func.buffer_name(buffer).to_owned();
    if let Some(reader) =
        beside(func, name)?.iter().find(|b| b.name != name && read(b).contains(&buffer))
    {
        return Err(format!(
            "block `{}` reads `{what}` in the same loops; make the cache before it is moved there",
            reader.name
        ));
    }
    let cache = cached(func, buffer, suffix, scope);
    let block = func.block_mut(name)?;
    for stmt in block.init.iter_mut().chain([&mut block.body]) {
        replace_buffer(stmt, buffer, cache, true, true);
    }
    let (copy_name, copy) = copy(func, cache, buffer, suffix);
    beside_nest(func, name, copy, false)?;
    allocate(func, cache);
    Ok(copy_name)
}

/// Adds a block that copies a buffer to a new one, and makes a block read the new one.
pub(super) fn cache_read(
    func: &mut PrimFuncData,
    name: &str,
    index: usize,
    scope: BufferScope,
) -> Rewrite<String> {
    let suffix = scope_name(scope)?;
    let block = func.block(name)?;
    let own = written(block);
    let inputs: Vec<BufferId> =
        read(block).into_iter().filter(|buffer| !own.contains(buffer)).collect();
    let buffer = nth(&inputs, index, "reads", name)?;
    if uses_padding(func, block, buffer) {
        let what = func.buffer_name(buffer);
        return Err(format!(
            "block `{name}` reads padding of `{what}`, which a copy would not have; use cache_read \
             before pad_einsum, and transform_layout on the copy"
        ));
    }
    // The copy comes before the loops around the block.
    let what = func.buffer_name(buffer).to_owned();
    if let Some(writer) = beside(func, name)?.iter().find(|b| written(b).contains(&buffer)) {
        return Err(format!(
            "block `{}` computes `{what}` in the same loops; make the cache before it is moved \
             there",
            writer.name
        ));
    }
    let cache = cached(func, buffer, suffix, scope);
    let block = func.block_mut(name)?;
    for stmt in block.init.iter_mut().chain([&mut block.body]) {
        replace_buffer(stmt, buffer, cache, true, false);
    }
    let (copy_name, copy) = copy(func, buffer, cache, suffix);
    beside_nest(func, name, copy, true)?;
    allocate(func, cache);
    Ok(copy_name)
}

/// A dense buffer with the extents of another.
fn cached(func: &mut PrimFuncData, of: BufferId, suffix: &str, scope: BufferScope) -> BufferId {
    let decl = &func.buffers[of];
    let (name, dtype) = (format!("{}_{suffix}", decl.name), decl.dtype);
    let extents = decl.extents();
    func.dense_buffer(name, dtype, extents, scope)
}

/// A block that copies one buffer to another, in loops over all of it.
fn copy(func: &mut PrimFuncData, from: BufferId, to: BufferId, suffix: &str) -> (String, Stmt) {
    let extents = func.buffers[to].extents();
    // Named after the original buffer.
    let named = if func.buffers[from].name.ends_with(suffix) { to } else { from };
    let name = func.unique_block(&format!("{}_{suffix}", func.buffer_name(named)));
    let (mut loops, mut iters) = (Vec::new(), Vec::new());
    for (axis, extent) in extents.into_iter().enumerate() {
        let around = func.index_var(format!("ax{axis}"));
        let var = func.index_var(format!("v{axis}"));
        let value = func.var_expr(around);
        iters.push(BlockIter { var, extent: extent.clone(), kind: IterKind::Spatial, value });
        loops.push((around, extent));
    }
    let index: Vec<PrimExpr> = iters.iter().map(|iter| func.var_expr(iter.var)).collect();
    let body = func.store(to, &index, func.load(from, &index));
    let block = BlockRealize {
        name: name.clone(),
        iters,
        predicate: PrimExpr::bool(true),
        annotations: Annotations::new(),
        init: None,
        body,
    };
    let nest =
        loops.into_iter().rev().fold(Stmt::BlockRealize(Box::new(block)), |body, (var, extent)| {
            Stmt::for_loop(var, PrimExpr::index(0), extent, ForKind::Serial, body)
        });
    (name, nest)
}

/// Replaces a buffer by another in loads, in stores, or in both.
pub(super) fn replace_buffer(
    stmt: &mut Stmt,
    old: BufferId,
    new: BufferId,
    loads: bool,
    stores: bool,
) {
    let taken = std::mem::replace(stmt, Stmt::nop());
    let replaced = taken.rewrite(&mut |mut stmt| {
        if let Stmt::Store { buffer, .. } | Stmt::Prefetch { buffer, .. } = &mut stmt
            && *buffer == old
            && stores
        {
            *buffer = new;
        }
        stmt
    });
    *stmt = replaced.map_exprs(&mut |expr| {
        expr.rewrite(&mut |mut expr| {
            if let PrimExpr::Load { buffer, .. } = &mut expr
                && *buffer == old
                && loads
            {
                *buffer = new;
            }
            expr
        })
    });
}

/// Puts a statement before or after the outermost statement of a sequence, or the loop, that
/// contains the block.
fn beside_nest(func: &mut PrimFuncData, name: &str, nest: Stmt, before: bool) -> Rewrite<()> {
    let around = outermost(&mut func.body, name)
        .ok_or_else(|| format!("there is no block `{name}` any more"))?;
    let old = std::mem::replace(around, Stmt::nop());
    *around = if before { Stmt::seq([nest, old]) } else { Stmt::seq([old, nest]) };
    super::tree::tidy(&mut func.body);
    Ok(())
}

/// The blocks in the outermost loop, or block, that contains a block.
fn beside<'a>(func: &'a PrimFuncData, name: &str) -> Rewrite<Vec<&'a BlockRealize>> {
    let holds = |stmt: &Stmt| {
        matches!(stmt, Stmt::For { .. } | Stmt::BlockRealize(_))
            && blocks(stmt).iter().any(|block| block.name == name)
    };
    let path = path(&func.body, &holds).and_then(|path| path.last().copied());
    path.map(blocks).ok_or_else(|| format!("there is no block `{name}` any more"))
}

/// The outermost loop or block with the block in it.
fn outermost<'a>(stmt: &'a mut Stmt, name: &str) -> Option<&'a mut Stmt> {
    if !blocks(stmt).iter().any(|block| block.name == name) {
        return None;
    }
    if matches!(stmt, Stmt::For { .. } | Stmt::BlockRealize(_)) {
        return Some(stmt);
    }
    let mut found = None;
    stmt.for_each_child_mut(&mut |child| {
        if found.is_none() {
            found = outermost(child, name);
        }
    });
    found
}

/// Allocates a buffer for the whole function; lowering narrows the allocation.
pub(super) fn allocate(func: &mut PrimFuncData, buffer: BufferId) {
    let body = std::mem::replace(&mut func.body, Stmt::nop());
    func.body = Stmt::allocate(buffer, body);
}

/// Moves a block's output to memory of another scope.
pub(super) fn set_scope(
    func: &mut PrimFuncData,
    name: &str,
    index: usize,
    scope: BufferScope,
) -> Rewrite<()> {
    scope_name(scope)?;
    let buffer = nth(&written(func.block(name)?), index, "writes", name)?;
    let decl = &mut func.buffers[buffer];
    if decl.scope == BufferScope::Param {
        return Err(format!("`{}` is a parameter: its memory is the caller's", decl.name));
    }
    decl.scope = scope;
    Ok(())
}
