//! The ahead-of-time executor: the model as one function that calls its kernels in order.

mod entry;
mod kernels;
pub(crate) mod parallel;
mod weights;

pub use weights::PackedWeights;

use cranelift_entity::SecondaryMap;

use crate::codegen::c::{self, KernelSource, SourceFile};
use crate::diagnostics::{Problem, Report};
use crate::executor::{KernelId, Program};
use crate::memory::{MemoryPlan, Storage};
use crate::target::Target;

/// C text of kernels that makes a file full.
///
/// A process of the C compiler costs some 30 ms before it reads a line, and kernels of this much
/// text take it some 150 ms more: small models are one file, large ones keep every core busy. The
/// files do not depend on the number of cores, so that objects do not either.
const FILE_BYTES: usize = 48 << 10;

/// Writes the kernels of a lowered program as C, all symbols beginning with `symbol`; in the order
/// of the program's kernels.
///
/// # Errors
///
/// One problem for each kernel that has something that C, or C for this target, cannot say.
pub fn c_kernels(
    program: &Program,
    symbol: &str,
    target: &Target,
    jobs: usize,
) -> Result<Vec<KernelSource>, Report> {
    let names = kernels::symbols(program, symbol);
    let work: Vec<_> = program.kernels.values().zip(&names).collect();
    let results =
        parallel::map(&work, jobs, |(kernel, name)| c::generate(&kernel.func, name, target));
    let mut report = Report::new();
    let mut kernels = Vec::with_capacity(results.len());
    for result in results {
        match result {
            Ok(kernel) => kernels.push(kernel),
            Err(error) => report.push(Problem::new(error.to_string())),
        }
    }
    report.into_result(kernels)
}

/// Bytes of scratch memory that a call of each kernel needs, for `workers` workers.
pub fn scratch_bytes(
    program: &Program,
    kernels: &[KernelSource],
    workers: usize,
) -> SecondaryMap<KernelId, u64> {
    let mut bytes = SecondaryMap::new();
    for (id, kernel) in program.kernels.keys().zip(kernels) {
        bytes[id] = scratch_stride(kernel).saturating_mul(workers as u64);
    }
    bytes
}

/// Distance between the scratch memory of two workers.
fn scratch_stride(kernel: &KernelSource) -> u64 {
    kernel.scratch_bytes.next_multiple_of(64)
}

/// The C files of a model: kernels, then the function that calls them. Each can be compiled by
/// itself.
pub fn c_files(
    program: &Program,
    storage: &Storage,
    plan: &MemoryPlan,
    weights: &PackedWeights,
    symbol: &str,
    kernels: &[KernelSource],
) -> Vec<SourceFile> {
    let mut files = Vec::new();
    let mut first = 0;
    while first < kernels.len() {
        let mut bytes = 0;
        let full = kernels[first..].iter().position(|kernel| {
            bytes += kernel.text_bytes();
            bytes > FILE_BYTES
        });
        // At least one kernel, however large.
        let end = full.map_or(kernels.len(), |full| first + full.max(1));
        files.push(SourceFile {
            name: format!("{symbol}_{}", files.len()),
            text: c::translation_unit(&kernels[first..end]),
        });
        first = end;
    }
    let entry = entry::Entry { program, storage, plan, weights, kernels };
    files.push(SourceFile { name: symbol.to_owned(), text: entry.c_text(symbol) });
    files
}

#[cfg(test)]
mod tests;
