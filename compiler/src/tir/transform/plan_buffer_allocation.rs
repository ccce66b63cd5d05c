//! Placement of the allocations of buffers between blocks.

use std::collections::BTreeSet;

use crate::ir::IRModule;
use crate::pass::{PassContext, prim_func_pass};
use crate::tir::stmt::ROLLING_BUFFER;
use crate::tir::{BufferId, IterKind, PrimFunc, Stmt, VarId};

/// Moves each `Allocate` to the innermost place around all uses of its buffer.
///
/// TVM's `PlanAndUpdateBufferAllocationLocation`. A schedule allocates every tensor for the whole
/// function. What is allocated inside of a block stays there. Without blocks, nothing tells which
/// buffers a loop carries from one iteration to the next, so only functions with blocks are changed.
#[prim_func_pass(opt_level = 0, name = "tir.PlanBufferAllocation", crate = crate)]
pub fn plan_buffer_allocation(
    mut func: PrimFunc,
    _module: &IRModule,
    _cx: &PassContext,
) -> PrimFunc {
    let (mut has_blocks, mut buffers) = (false, Vec::new());
    // What the statement of a block allocates is of no use to other blocks.
    let mut within = BTreeSet::new();
    func.body.walk(&mut |stmt| match stmt {
        Stmt::BlockRealize(block) => {
            has_blocks = true;
            block.body.walk(&mut |stmt| {
                if let Stmt::Allocate { buffer, .. } = stmt {
                    within.insert(*buffer);
                }
            });
        }
        Stmt::Allocate { buffer, .. } => buffers.push(*buffer),
        _ => {}
    });
    buffers.retain(|buffer| !within.contains(buffer));
    if !has_blocks || buffers.is_empty() {
        return func;
    }
    let data = func.make_mut();
    for &buffer in buffers.iter().rev() {
        let body = std::mem::replace(&mut data.body, Stmt::nop());
        let name = data.buffers[buffer].name.clone();
        data.body = place(without_allocate(body, buffer), buffer, &name);
    }
    func
}

fn without_allocate(body: Stmt, wanted: BufferId) -> Stmt {
    body.rewrite(&mut |stmt| match stmt {
        Stmt::Allocate { buffer, body } if buffer == wanted => *body,
        Stmt::Seq(stmts) => Stmt::seq(stmts),
        other => other,
    })
}

/// Allocates a buffer of that name around all of its uses in a statement.
fn place(stmt: Stmt, buffer: BufferId, name: &str) -> Stmt {
    if !stmt.touches(buffer) {
        return stmt;
    }
    match stmt {
        Stmt::Seq(mut stmts) => {
            let uses = |stmt: &Stmt| stmt.touches(buffer);
            let first = stmts.iter().position(uses).unwrap_or(0);
            let last = stmts.iter().rposition(uses).unwrap_or(first);
            let inside: Vec<Stmt> = stmts.drain(first..=last).collect();
            let inside = match <[Stmt; 1]>::try_from(inside) {
                Ok([only]) => place(only, buffer, name),
                Err(several) => Stmt::allocate(buffer, Stmt::Seq(several)),
            };
            stmts.insert(first, inside);
            Stmt::seq(stmts)
        }
        Stmt::For { var, min, extent, kind, annotations, body }
            if !carries(&body, buffer, var)
                && annotations.get(ROLLING_BUFFER).is_none_or(|rolling| rolling != name) =>
        {
            let body = Box::new(place(*body, buffer, name));
            Stmt::For { var, min, extent, kind, annotations, body }
        }
        Stmt::Allocate { buffer: other, body } => Stmt::allocate(other, place(*body, buffer, name)),
        Stmt::Block { name: block, body } => Stmt::block(block, place(*body, buffer, name)),
        other => Stmt::allocate(buffer, other),
    }
}

/// Whether an iteration of a loop uses contents of the buffer from an earlier one: whether a block
/// reduces into the buffer along the loop.
fn carries(body: &Stmt, buffer: BufferId, var: VarId) -> bool {
    let mut carries = false;
    body.walk(&mut |stmt| {
        if let Stmt::BlockRealize(block) = stmt {
            let reduces = block.iters_of(IterKind::Reduce).any(|iter| iter.value.uses(var));
            carries |= reduces && stores_to(&block.body, buffer);
        }
    });
    carries
}

fn stores_to(stmt: &Stmt, wanted: BufferId) -> bool {
    let mut found = false;
    stmt.walk(&mut |stmt| {
        found |= matches!(stmt, Stmt::Store { buffer, .. } if *buffer == wanted);
    });
    found
}
