//! The passes of lowering, phase by phase as in TVM. The order is here and nowhere else.
//!
//! Some passes are in no phase; `tir.add_lower_pass` adds them. Measured on convolutions, a matrix
//! product and a layer normalisation, as C by GCC 12 for AVX-512:
//!
//! - `NarrowDataType`: machine code grows by 8% to 120%, as each narrow index is extended where an
//!   address is made of it.
//! - `CommonSubexprElimTIR`: the C text shrinks by up to a quarter, the machine code by 9% at most
//!   and not always, as compilers share subexpressions themselves.
//! - `StorageRewrite`, `HoistIfThenElse`, `RewriteUnsafeSelect` and `RenormalizeSplitPattern`:
//!   nothing changes, as strategies leave nothing for them to do.
//! - `ConvertSSA`: nothing changes but names; it is for passes that need it.
//! - `VerifyMemory`: it finds nothing in what the strategies make, and is for tests and for
//!   schedules made by hand.

use crate::diagnostics::{Problem, Report};
use crate::pass::{PassContext, PassInfo, PassKind, PassRef, Result, Sequential};
use crate::tir::transform::{
    AnnotateDenormals, AnnotateNoAlias, CompactBufferAllocation, FlattenBuffer, InjectDoubleBuffer,
    InstrumentBoundCheckers, LoopPartition, LowerBlocks, LowerIntrin, LowerMulAdd,
    PlanBufferAllocation, RemoveNoOp, Simplify, UnrollLoop, UnsupportedDtypeLegalize,
    VectorizeLoop,
};

crate::register_pass_config_option! {
    /// Passes of the user's own, `[[phase, "name"], ..]`: each runs at the end of its phase.
    ///
    /// Phase 0 comes before all other passes, and 3 is the last one: a number beyond is phase 3. A
    /// pass of loop functions runs on each kernel by itself, any other on modules.
    pub ADD_LOWER_PASS: Vec<(u64, String)> = "tir.add_lower_pass";
}

/// Name of the whole list as a pass.
const NAME: &str = "tir.Lower";

/// What a schedule has made: loops around blocks, and indices for each axis.
fn phase_0() -> Vec<PassRef> {
    vec![]
}

/// Blocks become loops, and tensors one-dimensional buffers of types that can be computed in.
fn phase_1() -> Vec<PassRef> {
    vec![
        PlanBufferAllocation.into(),
        LowerBlocks.into(),
        CompactBufferAllocation.into(),
        FlattenBuffer.into(),
        UnsupportedDtypeLegalize.into(),
        Simplify.into(),
    ]
}

/// Loops become what they are marked to become.
fn phase_2() -> Vec<PassRef> {
    vec![
        LoopPartition.into(),
        Simplify.into(),
        VectorizeLoop.into(),
        InjectDoubleBuffer.into(),
        UnrollLoop.into(),
    ]
}

/// What the passes on loops have left behind is cleaned up.
fn phase_3() -> Vec<PassRef> {
    vec![Simplify.into(), RemoveNoOp.into()]
}

/// Indices are checked if the context asks, and operations become those that the target has: after all
/// phases.
fn for_target() -> Vec<PassRef> {
    vec![
        InstrumentBoundCheckers.into(),
        LowerMulAdd.into(),
        LowerIntrin.into(),
        AnnotateNoAlias.into(),
        AnnotateDenormals.into(),
    ]
}

/// Everything between a scheduled function and code, with the passes that the context adds.
///
/// # Errors
///
/// Each pass that [`ADD_LOWER_PASS`] names and that is not registered, or works on functions of the
/// graph.
pub fn pipeline(cx: &PassContext) -> Result<Sequential> {
    let mut phases = [phase_0(), phase_1(), phase_2(), phase_3()];
    let mut report = Report::new();
    for (phase, name) in cx.get(&ADD_LOWER_PASS) {
        let mut refuse =
            |why: String| report.push(Problem::new(format!("{}: {why}", ADD_LOWER_PASS.name())));
        match cx.registry().get(&name) {
            Err(error) => refuse(error.to_string()),
            Ok(pass) if pass.info().kind() == PassKind::Function => {
                let name = pass.info().name();
                refuse(format!("`{name}` works on functions of the graph, not on loops"));
            }
            Ok(pass) => {
                let last = phases.len() - 1;
                phases[usize::try_from(phase).unwrap_or(last).min(last)].push(pass);
            }
        }
    }
    report.into_result(())?;
    let info = PassInfo::new(NAME, 0)?.describing("Everything between a schedule and code.");
    Ok(Sequential::with_info(info, phases.into_iter().flatten().chain(for_target())))
}
