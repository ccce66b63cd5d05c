//! How each kind of computation is scheduled on each family of targets.
//!
//! A kernel is one dag of tensor expressions. Reductions that strategies know as a whole
//! (convolution, matrix product) become register tiles; every other stage is inlined into the
//! loops of the stage that is stored, in vectors where all it reads lies in vectors.

mod apart;
mod attention;
mod conv2d;
mod copies;
mod cover;
mod emit;
mod fetch;
mod flat;
mod gather;
mod inline;
mod join;
mod machine;
mod masked;
mod matmul;
mod moves;
mod nest;
mod periodic;
mod picked;
mod pieces;
mod primitive;
mod program;
mod reduce;
mod rows;
mod rules;
mod run_time;
mod tables;
mod tile;
mod tiling;
mod turn;
mod window;
mod winograd;
mod words;

#[cfg(test)]
mod tests;

pub use crate::target::CHANNEL_BLOCK;
pub use conv2d::MIN_BLOCKED_CHANNELS;
pub(crate) use conv2d::{goes_along_rows, goes_by_lanes, reads_blocks};
pub(crate) use matmul::MIN_PACKED_ROWS;
pub(crate) use program::copy_value;
pub use program::{BLOCKED_LAYOUT, DENSE_LAYOUT, LAYOUTS, can_be_blocked, program};
pub(crate) use rules::{Request, kernel_by_rule};
pub(crate) use run_time::tensor_types;
pub use run_time::units_are_independent;
pub use window::halo_needed;
#[cfg(feature = "cli")]
pub(crate) use winograd::is_algorithm;
pub(crate) use winograd::{algorithm_workload, measured_algorithms};

pub use machine::Machine;
pub(crate) use machine::{PER_CYCLE, Products};
use nest::Padding;
pub(crate) use tiling::{Order, Tiling, Work};

use crate::executor::Kernel;
use crate::ir::{BufferSpec, DType};
use crate::target::Target;
use crate::te::{ComputeDag, StageId};
use crate::tir::{ParamKind, PrimFunc};
use crate::tuned::Tuned;

/// A parameter of a kernel: a placeholder of its dag, what it is to the caller, and its layout. A
/// constant's layout must be dense; the strategy chooses the one it is packed in.
pub type KernelParam = (StageId, ParamKind, BufferSpec);

/// What the schedule of a kernel has to know of the model it belongs to.
#[derive(Clone, Default, Debug)]
pub struct ModelFacts {
    /// Choices that were measured: where there are several ways, they decide as far as they go.
    pub tuned: Tuned,
    /// Bytes of all constants of the model.
    pub weight_bytes: i64,
}

/// Schedules a dag as one kernel, with `params` and then `outputs` as its parameters: once for each
/// of `levels`, narrowest first.
///
/// Weights are packed for the registers of the last level. The others read the same panels in
/// narrower tiles, so all versions have the same parameters.
///
/// # Panics
///
/// If a stage that is read is neither computed in the dag nor among `params`, or there is no level.
pub fn schedule(
    dag: ComputeDag,
    params: &[KernelParam],
    outputs: &[(StageId, BufferSpec)],
    levels: &[Target],
    facts: &ModelFacts,
) -> Kernel {
    let packing = Machine::of(levels.last().expect("a program has at least one CPU level"));
    let request = Request { dag: &dag, params, outputs, levels, tuned: &facts.tuned };
    let problems = match rules::kernel(&request) {
        Ok(mut kernel) => {
            kernel.tunables.splice(..0, winograd::algorithm_of(&dag, packing));
            return kernel;
        }
        Err(problems) => problems,
    };
    let mut padding = Padding::default();
    loop {
        let mut kernel = Kernel::new(Vec::with_capacity(levels.len()));
        let before = padding.clone();
        // The widest first: what is padded for it is padded for all.
        for level in levels.iter().rev() {
            let (mut emitter, stages) = emit::Emitter::new(
                dag.clone(),
                params,
                outputs,
                [Machine::of(level), packing],
                padding,
                facts,
            );
            let body = emitter.emit(&stages);
            if kernel.versions.is_empty() {
                (kernel.loops, kernel.tunables) = (emitter.loops, emitter.tunables);
            }
            let mut func = emitter.func;
            func.body = body;
            kernel.versions.push(PrimFunc::new(func));
            kernel.macs = emitter.macs;
            padding = emitter.padding;
        }
        kernel.versions.reverse();
        // A version that was made before another one asked for padding lanes does not know of them.
        // Each round pads one constant more, or is the last.
        if levels.len() == 1 || padding == before || versions_agree(&kernel) {
            if let Some(loops) = kernel.loops.first_mut() {
                let missed = problems.into_iter().chain(loops.missed.take());
                loops.missed = missed.reduce(|all, other| format!("{all}; {other}"));
            }
            return kernel;
        }
    }
}

/// A kernel that copies a tensor from one layout to another.
pub(crate) fn copy(
    name: &str,
    [from, to]: [&BufferSpec; 2],
    dtype: DType,
    levels: &[Target],
) -> Kernel {
    let mut dag = ComputeDag::new(name);
    let x = dag.placeholder("x", to.shape(), dtype);
    let y = dag.compute("copy", to.shape(), dtype, |dag, index| dag.at(x, index));
    schedule(
        dag,
        &[(x, ParamKind::Input, from.clone())],
        &[(y, to.clone())],
        levels,
        &ModelFacts::default(),
    )
}

/// Whether constants have the same layout in all versions.
fn versions_agree(kernel: &Kernel) -> bool {
    let specs = |func: &PrimFunc| -> Vec<BufferSpec> {
        func.params.iter().map(|param| func.buffers[param.buffer].spec.clone()).collect()
    };
    kernel.versions.windows(2).all(|pair| specs(&pair[0]) == specs(&pair[1]))
}
