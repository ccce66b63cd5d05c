//! How each kind of computation is scheduled on each family of targets.
//!
//! A kernel is one dag of tensor expressions. Reductions that strategies know as a whole
//! (convolution, matrix product) become register tiles; every other stage is inlined into the
//! loops of the stage that is stored, in vectors where all it reads lies in vectors.

mod conv2d;
mod emit;
mod inline;
mod machine;
mod matmul;
mod nest;
mod primitive;
mod program;
mod tile;

#[cfg(test)]
mod tests;

pub use conv2d::{CHANNEL_BLOCK, MIN_BLOCKED_CHANNELS, halo_needed};
pub use program::program;

use crate::executor::Kernel;
use crate::ir::BufferSpec;
use crate::target::Target;
use crate::te::{ComputeDag, StageId};
use crate::tir::{ParamKind, PrimFunc};

/// A parameter of a kernel: a placeholder of its dag, what it is to the caller, and its layout. A
/// constant's layout must be dense; the strategy chooses the one it is packed in.
pub type KernelParam = (StageId, ParamKind, BufferSpec);

/// Schedules a dag as one kernel, with `params` and then `outputs` as its parameters.
///
/// # Panics
///
/// If a stage that is read is neither computed in the dag nor among `params`.
pub fn schedule(
    dag: ComputeDag,
    params: &[KernelParam],
    outputs: &[(StageId, BufferSpec)],
    target: &Target,
) -> Kernel {
    let machine = machine::Machine::of(target);
    let (mut emitter, stages) = emit::Emitter::new(dag, params, outputs, machine);
    let body = emitter.emit(&stages);
    let mut func = emitter.func;
    func.body = body;
    Kernel { func: PrimFunc::new(func), macs: emitter.macs }
}
