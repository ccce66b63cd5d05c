//! Statements that fill the border of a buffer.

use super::transform::limit_fill;
use super::{BufferId, ForKind, PrimExpr, PrimFuncData, Stmt};
use crate::ir::{BufferSpec, DType};

/// Stores a value to the halo of a buffer.
pub(crate) fn fill_halo(func: &mut PrimFuncData, buffer: BufferId, value: &PrimExpr) -> Stmt {
    let spec = func.buffers[buffer].spec.clone();
    let mut stmts = Vec::new();
    // One slab for each side of each axis; later axes leave out what earlier ones covered.
    let mut ranges: Vec<(i64, i64)> = spec
        .shape()
        .iter()
        .zip(spec.halo())
        .map(|(&extent, halo)| (-halo.before, extent + halo.before + halo.after))
        .collect();
    for (axis, halo) in spec.halo().iter().enumerate() {
        let extent = spec.shape()[axis];
        for (start, count) in [(-halo.before, halo.before), (extent, halo.after)] {
            if count == 0 {
                continue;
            }
            let mut slab: Vec<(PrimExpr, i64)> =
                ranges.iter().map(|&(start, count)| (start.into(), count)).collect();
            slab[axis] = (start.into(), count);
            stmts.push(fill_box(func, buffer, &spec, value, &slab));
        }
        ranges[axis] = (0, extent);
    }
    Stmt::seq(stmts)
}

/// The same to as many places behind the end of some axes as the halo has there, where the axes end
/// before their extents do.
pub(crate) fn fill_behind(
    func: &mut PrimFuncData,
    buffer: BufferId,
    value: &PrimExpr,
    ends: &[(usize, PrimExpr)],
) -> Stmt {
    let spec = func.buffers[buffer].spec.clone();
    let whole: Vec<(PrimExpr, i64)> = (spec.shape().iter().zip(spec.halo()))
        .map(|(&extent, halo)| ((-halo.before).into(), extent + halo.before + halo.after))
        .collect();
    let mut stmts = Vec::new();
    for (axis, end) in ends {
        let count = spec.halo()[*axis].after;
        if count > 0 {
            let mut slab = whole.clone();
            slab[*axis] = (end.clone(), count);
            let slab = fill_box(func, buffer, &spec, value, &slab);
            let others = ends.iter().filter(|(other, _)| other != axis);
            let others = others
                .map(|(other, end)| (buffer, *other, end.clone() + spec.halo()[*other].after));
            stmts.push(limit_fill(func, slab, others));
        }
    }
    Stmt::seq(stmts)
}

/// What padding of that number reads as; zero, if elements are floats.
pub(crate) fn padding(dtype: DType, value: i64) -> PrimExpr {
    if dtype.is_int() { PrimExpr::int(value, dtype) } else { PrimExpr::zero(dtype) }
}

/// Stores a value to a box of logical indices: start and extent for each axis.
pub(crate) fn fill_box(
    func: &mut PrimFuncData,
    buffer: BufferId,
    spec: &BufferSpec,
    value: &PrimExpr,
    ranges: &[(PrimExpr, i64)],
) -> Stmt {
    let mut loops = Vec::new();
    let mut index = vec![PrimExpr::index(0); ranges.len()];
    // In the order of memory, a blocked axis as (blocks, lanes).
    for (position, dim) in spec.dims().iter().enumerate() {
        let (start, extent) = ranges[dim.axis].clone();
        let outer = spec.dims()[..position].iter().rev().find(|outer| outer.axis == dim.axis);
        let count = match outer {
            None => (extent + dim.step - 1) / dim.step,
            Some(outer) => outer.step / dim.step,
        };
        let start = if outer.is_none() { start } else { PrimExpr::index(0) };
        let vector = position + 1 == spec.dims().len() && outer.is_some() && count > 1;
        let var = func.index_var(format!("h{}", dim.axis));
        let digit = func.var_expr(var) * dim.step + start;
        let so_far = std::mem::replace(&mut index[dim.axis], PrimExpr::index(0));
        index[dim.axis] = so_far + digit;
        loops.push((var, count, if vector { ForKind::Vectorized } else { ForKind::Serial }));
    }
    let mut body = func.store(buffer, index, value.clone());
    for (var, count, kind) in loops.into_iter().rev() {
        body = Stmt::for_loop(var, PrimExpr::index(0), PrimExpr::index(count), kind, body);
    }
    body
}
