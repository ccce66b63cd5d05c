//! Reduction of buffers to the elements in use.

use crate::ir::{DType, IRModule};
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::region::{Access, Extent, NO_BOUND, Outside, Region, most, region};
use crate::tir::{Affine, BufferId, PrimExpr, PrimFunc, PrimFuncData, Stmt};

/// Shrinks dense local buffers to the elements that are used while they are alive.
///
/// A schedule that computes a tensor tile by tile leaves the tensor at its full size; this pass
/// reduces it to one tile. It runs after blocks are lowered, because the place of a tile depends on
/// the loops around it.
#[prim_func_pass(opt_level = 0, name = "tir.CompactBufferAllocation", crate = crate)]
pub fn compact_buffer_allocation(
    mut func: PrimFunc,
    _module: &IRModule,
    _cx: &PassContext,
) -> PrimFunc {
    let mut any = false;
    func.body
        .walk(&mut |stmt| any |= matches!(stmt, Stmt::Allocate { .. } | Stmt::BlockRealize(_)));
    if !any {
        return func;
    }
    let data = func.make_mut();
    let body = std::mem::replace(&mut data.body, Stmt::nop());
    let mut outside = Outside::of(data);
    data.body = compact(data, body, &mut outside);
    func
}

fn compact(func: &mut PrimFuncData, mut stmt: Stmt, outside: &mut Outside) -> Stmt {
    let depth = outside.depth();
    if let Stmt::For { var, min, extent, .. } = &stmt {
        outside.push(*var, min.clone(), extent.clone());
    }
    if let Stmt::Allocate { buffer, body } = &mut stmt {
        let taken = std::mem::replace(&mut **body, Stmt::nop());
        **body = shrink(func, taken, *buffer, outside);
    }
    stmt.for_each_child_mut(&mut |child| {
        let taken = std::mem::replace(child, Stmt::nop());
        *child = compact(func, taken, outside);
    });
    outside.truncate(depth);
    stmt
}

/// Reduces a buffer that is allocated in a statement to the elements used there.
fn shrink(func: &mut PrimFuncData, stmt: Stmt, buffer: BufferId, outside: &Outside) -> Stmt {
    let decl = &func.buffers[buffer];
    let shape = most(decl);
    let is_dense = decl.spec.is_dense() || decl.symbolic.is_some();
    if !is_dense || shape.is_empty() || has_narrow_index(&stmt, buffer) {
        return stmt;
    }
    let Some(mut used) = region(&stmt, buffer, Access::Any, &shape, outside) else {
        return stmt;
    };
    // A box larger than its axis says no more than the axis's extent.
    for (axis, &extent) in used.axes.iter_mut().zip(&shape) {
        if axis.len() > extent {
            *axis = Extent::whole(extent);
        }
    }
    let lens: Vec<i64> = used.axes.iter().map(|axis| axis.len()).collect();
    if lens == shape {
        return stmt;
    }
    let extents = lens.iter().zip(decl.extents());
    let extents = extents.map(|(&len, extent)| if len == NO_BOUND { extent } else { len.into() });
    let extents = extents.collect();
    func.buffers[buffer].set_extents(extents);
    shift(stmt, buffer, &used)
}

/// Whether a buffer has an index of `int32`, which regions do not support.
fn has_narrow_index(stmt: &Stmt, wanted: BufferId) -> bool {
    let is_narrow = |index: &PrimExpr| index.dtype() == DType::I32;
    let mut found = false;
    stmt.walk(&mut |stmt| {
        if let Stmt::Store { buffer, indices, .. } | Stmt::Prefetch { buffer, indices, .. } = stmt {
            found |= *buffer == wanted && indices.iter().any(is_narrow);
        }
        stmt.for_each_expr(&mut |expr| {
            expr.walk(&mut |node| {
                if let PrimExpr::Load { buffer, indices, .. } = node {
                    found |= *buffer == wanted && indices.iter().any(is_narrow);
                }
            });
        });
    });
    found
}

/// Makes indices of a buffer relative to the beginning of its region.
fn shift(stmt: Stmt, shifted: BufferId, used: &Region) -> Stmt {
    let mins: Vec<PrimExpr> = used.axes.iter().map(|axis| axis.min()).collect();
    let shift = |indices: &mut Vec<PrimExpr>| {
        for (index, min) in indices.iter_mut().zip(&mins) {
            let place = match index {
                PrimExpr::Ramp { base, .. } => &mut **base,
                index => index,
            };
            *place = Affine::of(&(place.clone() - min.clone())).into_expr();
        }
    };
    let stmt = stmt.rewrite(&mut |mut stmt| {
        if let Stmt::Store { buffer, indices, .. } | Stmt::Prefetch { buffer, indices, .. } =
            &mut stmt
            && *buffer == shifted
        {
            shift(indices);
        }
        stmt
    });
    stmt.map_exprs(&mut |expr| {
        expr.rewrite(&mut |mut expr| {
            if let PrimExpr::Load { buffer, indices, .. } = &mut expr
                && *buffer == shifted
            {
                shift(indices);
            }
            expr
        })
    })
}
