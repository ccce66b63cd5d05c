//! The passes of lowering, phase by phase as in TVM, and their order.
//!
//! Some passes are in no phase; `tir.add_lower_pass` adds them. Measured on convolutions, a matrix
//! product and a layer normalisation, as C by GCC 12 for AVX-512:
//!
//! - `NarrowDataType`: machine code grows by 8% to 120%, as each narrow index is extended where an
//!   address is made of it.
//! - `CommonSubexprElimTIR`: the C text shrinks by up to a quarter, the machine code by 9% at most
//!   and not always, as compilers share subexpressions themselves.
//! - `StorageRewrite`, `HoistIfThenElse`, `RewriteUnsafeSelect` and `RenormalizeSplitPattern`: no
//!   change, because functions scheduled by strategies offer no opportunity.
//! - `ConvertSSA`: nothing changes but names; it is for passes that need it.
//! - `VerifyMemory`: no errors in functions scheduled by strategies; it is for tests and for
//!   handwritten schedules.

use crate::diagnostics::{Problem, Report};
use crate::pass::{PassContext, PassInfo, PassKind, PassRef, Result, Sequential};
use crate::tir::transform::{
    AnnotateDenormals, AnnotateNoAlias, CompactBufferAllocation, FlattenBuffer, InjectDoubleBuffer,
    InstrumentBoundCheckers, LegalizeRegisterAccess, LimitLoops, LoopPartition, LowerBlocks,
    LowerIntrin, LowerMulAdd, ParallelizeLoops, PlanBufferAllocation, RemoveNoOp, Simplify,
    SpecializeBuckets, UnrollLoop, UnsupportedDtypeLegalize, VectorizeLoop,
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

/// Scheduled functions: loops around blocks, and one index for each axis.
fn phase_0() -> Vec<PassRef> {
    vec![]
}

/// Turns blocks into loops, and tensors into one-dimensional buffers of supported types.
fn phase_1() -> Vec<PassRef> {
    vec![
        PlanBufferAllocation.into(),
        LowerBlocks.into(),
        CompactBufferAllocation.into(),
        LimitLoops.into(),
        SpecializeBuckets.into(),
        FlattenBuffer.into(),
        UnsupportedDtypeLegalize.into(),
        Simplify.into(),
    ]
}

/// Replaces loops according to their kind and annotations.
fn phase_2() -> Vec<PassRef> {
    vec![
        LoopPartition.into(),
        Simplify.into(),
        ParallelizeLoops.into(),
        VectorizeLoop.into(),
        InjectDoubleBuffer.into(),
        UnrollLoop.into(),
    ]
}

/// Cleans up after the passes on loops.
fn phase_3() -> Vec<PassRef> {
    vec![Simplify.into(), RemoveNoOp.into()]
}

/// After all phases: index checks if the context asks for them, and the operations and accesses that
/// the target has.
fn for_target() -> Vec<PassRef> {
    vec![
        LegalizeRegisterAccess.into(),
        InstrumentBoundCheckers.into(),
        LowerMulAdd.into(),
        LowerIntrin.into(),
        AnnotateNoAlias.into(),
        AnnotateDenormals.into(),
    ]
}

/// The passes from a scheduled function to code generation, with those that the context adds.
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
