//! Memory safety of calls: which functions access nothing outside of their buffers, whatever the
//! arrays hold.

use crate::pass::{PassContext, PassRef, Result};
use crate::target::Target;
use crate::tir::transform::{
    INSTRUMENT_BOUND_CHECKERS, InstrumentBoundCheckers, LowerBlocks, PlanBufferAllocation,
    Simplify, is_bound_check,
};
use crate::tir::{self, BinaryOp, BlockRealize, ForKind, PrimExpr, PrimFunc, Stmt};

/// Lowers a function such that its code accesses nothing outside of its buffers.
///
/// A function whose indices can all be proved to be inside is lowered as it is. Otherwise the code
/// checks its indices, and traps at the first one outside.
pub(super) fn lower(func: &PrimFunc, machine: &Target) -> Result<PrimFunc> {
    if are_proved(func)? {
        return tir::lower(func.clone(), machine);
    }
    let cx = PassContext::inherit().target(machine.clone());
    let cx = cx.config(&INSTRUMENT_BOUND_CHECKERS, true).build()?;
    tir::Lowering::new(&cx)?.run(func.clone(), &cx)
}

/// Says of a variable of a block that its value may be outside of its domain.
const OUT_OF_DOMAIN: &str = "a variable of a block is outside of its domain";

/// Most alternatives that a condition is looked at in.
const MAX_ALTERNATIVES: usize = 16;

/// Whether all indices are inside their buffers for any dimensions and any contents of the arrays.
///
/// The proof is made before lowering, where there is an index for each axis and an extent for each
/// index; with flat indices, products of dimensions would be in the way. First the indices are taken
/// as they are by the loops around them, then as they are by the variables of their blocks: these go
/// along whole tensors, and the loops have to keep each in its domain.
pub(crate) fn are_proved(func: &PrimFunc) -> Result<bool> {
    let cx = PassContext::builder().config(&INSTRUMENT_BOUND_CHECKERS, true).build()?;
    let run = |func: PrimFunc, passes: &[PassRef]| {
        passes.iter().try_fold(func, |func, pass| pass.run_on_prim_func(func, &cx))
    };
    let func = run(func.clone(), &[PlanBufferAllocation.into()])?;
    let by_domains = func.clone().map_body(|body| body.rewrite(&mut by_domain));
    for func in [func, by_domains] {
        let func = run(func, &[LowerBlocks.into(), InstrumentBoundCheckers.into()])?;
        let func = func.map_body(|body| body.rewrite(&mut by_alternative));
        let func = run(func, &[Simplify.into()])?;
        // What was proved is gone; the function's own assertions say something else.
        let mut proved = true;
        func.body.walk(&mut |stmt| {
            proved &= !matches!(stmt, Stmt::Assert { message, .. }
                if is_bound_check(message) || message == OUT_OF_DOMAIN);
        });
        if proved {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A block as loops over the domains of its variables, behind assertions that their values are in
/// these. Such a statement accesses all that the block does.
fn by_domain(stmt: Stmt) -> Stmt {
    let Stmt::BlockRealize(block) = stmt else { return stmt };
    let BlockRealize { name: _, iters, predicate, annotations: _, init, body } = *block;
    let is_inside = iters.iter().flat_map(|iter| {
        let low = iter.value.clone().greater_equal(0);
        [low, iter.value.clone().less(iter.extent.clone())]
    });
    let asserted = is_inside.map(|cond| Stmt::Assert { cond, message: OUT_OF_DOMAIN.to_owned() });
    let asserted = Stmt::if_then(predicate, Stmt::seq(asserted));
    let accesses = Stmt::seq(init.into_iter().chain([body]));
    let accesses = iters.into_iter().rev().fold(accesses, |body, iter| {
        Stmt::for_loop(iter.var, PrimExpr::index(0), iter.extent, ForKind::Serial, body)
    });
    Stmt::seq([asserted, accesses])
}

/// A statement under alternatives, `a | b`, as one under each, which says more to the analyser.
fn by_alternative(stmt: Stmt) -> Stmt {
    let Stmt::If { cond, then, otherwise: None } = stmt else { return stmt };
    let conditions = alternatives(&cond);
    if conditions.len() < 2 || conditions.len() > MAX_ALTERNATIVES {
        return Stmt::If { cond, then, otherwise: None };
    }
    Stmt::seq(conditions.into_iter().map(|cond| Stmt::if_then(cond, (*then).clone())))
}

/// Conditions of which one holds if `cond` does.
fn alternatives(cond: &PrimExpr) -> Vec<PrimExpr> {
    match cond {
        PrimExpr::Binary { op: BinaryOp::Or, lhs, rhs } => {
            [alternatives(lhs), alternatives(rhs)].concat()
        }
        PrimExpr::Binary { op: BinaryOp::And, lhs, rhs } => {
            let (lhs, rhs) = (alternatives(lhs), alternatives(rhs));
            let both =
                |a: &PrimExpr| rhs.iter().map(|b| a.clone().and(b.clone())).collect::<Vec<_>>();
            lhs.iter().flat_map(both).take(MAX_ALTERNATIVES + 1).collect()
        }
        other => vec![other.clone()],
    }
}
