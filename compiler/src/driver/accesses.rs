//! Memory safety of calls: which functions access nothing outside of their buffers, whatever the
//! arrays hold.

use crate::pass::{PassContext, PassRef, Result};
use crate::target::Target;
use crate::tir::transform::{
    INSTRUMENT_BOUND_CHECKERS, InstrumentBoundCheckers, LowerBlocks, PlanBufferAllocation,
    Simplify, is_bound_check,
};
use crate::tir::{self, PrimFunc, Stmt};

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

/// Whether all indices are inside their buffers for any dimensions and any contents of the arrays.
///
/// That is looked at before lowering, where there is an index for each axis and an extent for each
/// index; with flat indices, products of dimensions would be in the way.
pub(crate) fn are_proved(func: &PrimFunc) -> Result<bool> {
    let cx = PassContext::builder().config(&INSTRUMENT_BOUND_CHECKERS, true).build()?;
    let passes: [PassRef; 4] = [
        PlanBufferAllocation.into(),
        LowerBlocks.into(),
        InstrumentBoundCheckers.into(),
        Simplify.into(),
    ];
    let mut checked = func.clone();
    for pass in passes {
        checked = pass.run_on_prim_func(checked, &cx)?;
    }
    // What was proved is gone; the function's own assertions say something else.
    let mut proved = true;
    checked.body.walk(&mut |stmt| {
        proved &= !matches!(stmt, Stmt::Assert { message, .. } if is_bound_check(message));
    });
    Ok(proved)
}
