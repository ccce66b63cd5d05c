//! The ahead-of-time executor: the model as one function that calls its kernels in order.

mod entry;
mod kernels;
mod parallel;
mod weights;

pub use weights::PackedWeights;

use crate::codegen::c::{self, SourceFile};
use crate::diagnostics::{Problem, Report};
use crate::executor::Program;
use crate::memory::MemoryPlan;
use crate::target::Target;

/// C text of kernels that makes a file full.
///
/// A process of the C compiler costs some 20 ms before it reads a line, and kernels of this much
/// text take it about half a second: small models are one file, large ones keep every core busy.
/// The files do not depend on the number of cores, so that objects do not either.
const FILE_BYTES: usize = 48 << 10;

/// The C text of a model and what its caller must provide.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CSources {
    /// Kernels, then the function that calls them; each can be compiled by itself.
    pub files: Vec<SourceFile>,
    /// Bytes of scratch memory that a worker needs, a multiple of 64.
    pub scratch_stride: u64,
    /// Most bytes of local buffers that a kernel has on the stack.
    pub stack_bytes: u64,
}

/// Writes a lowered program as C, all symbols beginning with `symbol`.
///
/// # Errors
///
/// A kernel has something that C, or C for this target, cannot say.
pub fn c_sources(
    program: &Program,
    plan: &MemoryPlan,
    weights: &PackedWeights,
    symbol: &str,
    target: &Target,
    jobs: usize,
) -> Result<CSources, Report> {
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
    if !report.is_empty() {
        return Err(report);
    }

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
    files.push(SourceFile {
        name: symbol.to_owned(),
        text: entry::c_text(program, plan, weights, symbol, &kernels),
    });
    let scratch = kernels.iter().map(|kernel| kernel.scratch_bytes).max().unwrap_or(0);
    Ok(CSources {
        files,
        scratch_stride: scratch.next_multiple_of(64),
        stack_bytes: kernels.iter().map(|kernel| kernel.stack_bytes).max().unwrap_or(0),
    })
}

#[cfg(test)]
mod tests;
