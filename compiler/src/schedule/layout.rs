//! Primitives that choose the layout of a buffer in memory.

use std::fmt;

use super::cache::nth;
use super::error::Rewrite;
use super::tree::{Tree, blocks, read, written};
use super::{BlockRv, Result, Schedule};
use crate::ir::BufferSpec;
use crate::tir::{
    Affine, BlockRealize, Bounds, Buffer, BufferId, BufferScope, PrimExpr, PrimFuncData, Range,
    Stmt,
};

/// A buffer, named by its use in a block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum BufferAccess {
    /// The n-th buffer that the block reads and does not write, in order of first use, from 0.
    Read(usize),
    /// The n-th buffer that the block writes, in order of first use, from 0.
    Write(usize),
}

impl BufferAccess {
    /// The word for the use in a trace.
    pub(super) fn word(self) -> &'static str {
        match self {
            BufferAccess::Read(_) => "read",
            BufferAccess::Write(_) => "write",
        }
    }

    /// The position among the buffers of that use.
    pub(super) fn index(self) -> usize {
        match self {
            BufferAccess::Read(index) | BufferAccess::Write(index) => index,
        }
    }
}

impl fmt::Display for BufferAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.word(), self.index())
    }
}

impl Schedule {
    /// Gives a buffer of a block another physical layout: blocks, an order of dimensions, padding
    /// lanes, strides. Indices, and so all other code, stay the same.
    ///
    /// The buffer may be a parameter: the caller then passes it in that layout; constants are
    /// packed by [`BufferSpec::pack`]. For example, `BufferSpec::packed(&[k, n], &[(1, 64), (0, 1),
    /// (1, 1)])` lays a matrix `[k, n]` out in panels of 64 columns.
    ///
    /// # Errors
    ///
    /// The layout is malformed or of another shape, lacks padding that is read, or gives local
    /// memory a halo, which nothing sets to zero.
    pub fn transform_layout(
        &mut self,
        block: BlockRv,
        access: BufferAccess,
        spec: &BufferSpec,
    ) -> Result<()> {
        self.apply("transform_layout", |this, func| {
            let buffer = accessed(func, &this.block_name(block)?, access)?;
            transform_layout(func, buffer, spec)
        })?;
        let layout = spec.to_string();
        let args =
            vec![block.into(), access.word().into(), access.index().into(), layout.as_str().into()];
        self.record("transform_layout", args, Vec::new());
        Ok(())
    }
}

impl Schedule {
    /// Sets the stride of `axis` of a local buffer that a block writes to the least number of
    /// elements that is `offset` more than a multiple of `factor`: so that vectors begin at
    /// addresses where loads are fast, or rows fall on different sets of a cache.
    ///
    /// # Errors
    ///
    /// The buffer is a parameter or in registers, or the axis has blocks.
    pub fn storage_align(
        &mut self,
        block: BlockRv,
        index: usize,
        axis: usize,
        factor: i64,
        offset: i64,
    ) -> Result<()> {
        self.apply("storage_align", |this, func| {
            let name = this.block_name(block)?;
            let buffer = accessed(func, &name, BufferAccess::Write(index))?;
            storage_align(func, buffer, axis, factor, offset)
        })?;
        let args = vec![block.into(), index.into(), axis.into(), factor.into(), offset.into()];
        self.record("storage_align", args, Vec::new());
        Ok(())
    }
}

fn storage_align(
    func: &mut PrimFuncData,
    buffer: BufferId,
    axis: usize,
    factor: i64,
    offset: i64,
) -> Rewrite<()> {
    constant_extents(func, buffer, "a stride")?;
    let decl = &mut func.buffers[buffer];
    let name = &decl.name;
    match decl.scope {
        BufferScope::Local => {}
        BufferScope::Param => {
            return Err(format!("`{name}` is a parameter; transform_layout gives it strides"));
        }
        BufferScope::Register => return Err(format!("`{name}` is in registers, without strides")),
    }
    if factor < 1 || !(0..factor).contains(&offset) {
        return Err(format!("{offset} is not a remainder of a division by {factor}"));
    }
    let dims = decl.spec.dims();
    if dims.iter().filter(|dim| dim.axis == axis).count() != 1 {
        return Err(format!("axis {axis} of `{name}` is missing or has blocks"));
    }
    let too_large = || format!("`{name}` would have more than 2^63 elements");
    let shape = decl.spec.physical_shape();
    let mut strides = decl.spec.strides();
    let mut least = 1i64;
    for ((dim, extent), stride) in dims.iter().zip(shape).zip(&mut strides).rev() {
        *stride = least.max(*stride);
        if dim.axis == axis {
            let short = (offset - *stride).rem_euclid(factor);
            *stride = stride.checked_add(short).ok_or_else(too_large)?;
        }
        least = stride.checked_mul(extent.max(1)).ok_or_else(too_large)?;
    }
    decl.spec = decl.spec.clone().with_strides(&strides);
    Ok(())
}

/// The buffer of a block that an access names.
pub(super) fn accessed(func: &PrimFuncData, name: &str, access: BufferAccess) -> Rewrite<BufferId> {
    let block = func.block(name)?;
    let own = written(block);
    match access {
        BufferAccess::Read(index) => {
            let inputs: Vec<BufferId> =
                read(block).into_iter().filter(|buffer| !own.contains(buffer)).collect();
            nth(&inputs, index, "reads", name)
        }
        BufferAccess::Write(index) => nth(&own, index, "writes", name),
    }
}

fn transform_layout(func: &mut PrimFuncData, buffer: BufferId, spec: &BufferSpec) -> Rewrite<()> {
    constant_extents(func, buffer, "a layout")?;
    let decl = &func.buffers[buffer];
    let name = decl.name.clone();
    spec.physical_len().map_err(|problem| problem.to_string())?;
    if spec.shape() != decl.shape() {
        return Err(format!(
            "the layout is one of shape {:?}, and `{name}` has {:?}; a layout does not change \
             indices",
            spec.shape(),
            decl.shape()
        ));
    }
    if decl.scope != BufferScope::Param && spec.has_halo() {
        return Err(format!(
            "nothing sets a halo of `{name}` to zero, as it is no parameter; let a block write \
             the zeros, as decompose_padding does"
        ));
    }
    if let Some(param) = func.params.iter().position(|param| param.buffer == buffer)
        && func.inplace.iter().any(|&(output, input)| output == param || input == param)
    {
        return Err(format!("`{name}` may be the memory of another parameter, of the same layout"));
    }
    let (old, new) = (reaches(decl), reaches_of(spec));
    for block in blocks(&func.body) {
        for indices in accesses(block, buffer) {
            for (axis, range) in ranges(indices, &bounds(block)).into_iter().enumerate() {
                let (Some(old), Some(new)) = (old.get(axis), new.get(axis)) else { continue };
                // An access outside the old layout is under a condition.
                let range = range.unwrap_or(*old);
                let (min, max) = (range.min.max(old.min), range.max.min(old.max));
                if min < new.min || max > new.max {
                    return Err(format!(
                        "block `{}` reads `{name}` from {min} to {max} along axis {axis}, and the \
                         layout has {} to {}: it needs the halo or padding lanes that were there",
                        block.name, new.min, new.max
                    ));
                }
            }
        }
    }
    func.buffers[buffer].spec = spec.clone();
    Ok(())
}

/// Whether a block reads padding of a buffer, which a copy of the elements alone would not have.
pub(super) fn uses_padding(func: &PrimFuncData, block: &BlockRealize, buffer: BufferId) -> bool {
    let decl = &func.buffers[buffer];
    if decl.symbolic.is_some() {
        // Such a buffer has no padding.
        return false;
    }
    let (reach, bounds) = (reaches(decl), bounds(block));
    accesses(block, buffer).into_iter().any(|indices| {
        let axes = ranges(indices, &bounds).into_iter().zip(&reach).zip(decl.shape());
        axes.into_iter().any(|((range, reach), &extent)| {
            // An access outside the layout is under a condition.
            let range = range.unwrap_or(Range { min: 0, max: extent - 1 });
            range.min.max(reach.min) < 0 || range.max.min(reach.max) >= extent.max(1)
        })
    })
}

/// Fails if an extent of a buffer is not constant: `what` cannot be derived from it.
pub(super) fn constant_extents(func: &PrimFuncData, buffer: BufferId, what: &str) -> Rewrite<()> {
    let decl = &func.buffers[buffer];
    match decl.symbolic {
        None => Ok(()),
        Some(_) => Err(format!(
            "the extents {} of `{}` are not constant, and {what} needs constants; pin the \
             dimensions",
            decl.symbolic_text(func),
            decl.name
        )),
    }
}

/// The indices along each axis of elements, halo and padding lanes.
pub(super) fn reaches(buffer: &Buffer) -> Vec<Range> {
    reaches_of(&buffer.spec)
}

fn reaches_of(spec: &BufferSpec) -> Vec<Range> {
    let axes = spec.shape().iter().zip(spec.halo()).enumerate();
    axes.map(|(axis, (&extent, halo))| {
        let outermost = spec.dims().iter().find(|dim| dim.axis == axis);
        let step = outermost.map_or(1, |dim| dim.step.max(1));
        let range = extent.saturating_add(halo.before).saturating_add(halo.after);
        let whole = range.saturating_add(step - 1) / step * step;
        Range { min: -halo.before, max: whole.saturating_sub(halo.before).saturating_sub(1) }
    })
    .collect()
}

/// The ranges of a block's variables.
pub(super) fn bounds(block: &BlockRealize) -> Bounds {
    let known = |extent: &PrimExpr| Some(Range { min: 0, max: extent.as_int()?.max(1) - 1 });
    block.iters.iter().filter_map(|iter| Some((iter.var, known(&iter.extent)?))).collect()
}

/// The range of each index; `None` if unknown.
pub(super) fn ranges(indices: &[PrimExpr], bounds: &Bounds) -> Vec<Option<Range>> {
    indices.iter().map(|index| Affine::of(index).range(bounds)).collect()
}

/// The indices at which a block loads or stores elements of a buffer.
pub(super) fn accesses(block: &BlockRealize, wanted: BufferId) -> Vec<&[PrimExpr]> {
    let mut places: Vec<&[PrimExpr]> = Vec::new();
    for stmt in block.init.iter().chain([&block.body]) {
        stmt.walk(&mut |stmt| {
            if let Stmt::Store { buffer, indices, .. } = stmt
                && *buffer == wanted
            {
                places.push(indices);
            }
        });
        stmt.walk_exprs(&mut |expr| {
            if let PrimExpr::Load { buffer, indices, .. } = expr
                && *buffer == wanted
            {
                places.push(indices);
            }
        });
    }
    places
}

#[cfg(test)]
mod tests;
