//! The ahead-of-time executor: the model as one function that calls its kernels in order.

mod code;
mod entry;
mod kernels;
mod lowering;
pub(crate) mod parallel;
mod weights;

pub use code::{Code, KernelCode, Listing};
pub use entry::{CALLS_PER_FUNCTION, Call, Copy, Entry, Pointer};
pub use kernels::{KernelFunction, KernelFunctions};
pub use weights::PackedWeights;

use cranelift_entity::SecondaryMap;

use crate::codegen::c::{self, KernelSource, SourceFile};
use crate::diagnostics::Report;
use crate::executor::{KernelId, Program};
use crate::target::Target;

/// C text of kernels that makes a file full.
///
/// A process of the C compiler costs some 30 ms before it reads a line, and kernels of this much
/// text take it some 150 ms more: small models are one file, large ones keep every core busy. The
/// files do not depend on the number of cores, so that objects do not either.
const FILE_BYTES: usize = 48 << 10;

/// Writes the functions of a lowered program as C, in their order.
///
/// # Errors
///
/// One problem for each kernel that has something that C, or C for one of the levels, cannot say.
pub fn c_kernels(
    program: &Program,
    functions: &KernelFunctions,
    levels: &[Target],
    jobs: usize,
) -> Result<Vec<KernelSource>, Report> {
    let work: Vec<_> = functions.versions(program).collect();
    let results = parallel::map(&work, jobs, |(function, version)| {
        c::generate(version, &function.symbol, &levels[function.level])
    });
    let mut report = Report::new();
    let mut kernels = Vec::with_capacity(results.len());
    for result in results {
        match result {
            Ok(kernel) => kernels.push(kernel),
            Err(error) => report.push(error.into()),
        }
    }
    report.into_result(kernels)
}

/// The scratch memory that a model's kernels need.
#[derive(Clone, Debug)]
pub struct Scratch {
    /// Bytes from one worker's memory to the next one's, for each kernel.
    pub strides: SecondaryMap<KernelId, u64>,
    /// How many workers there is memory for.
    pub workers: usize,
}

impl Scratch {
    /// What the greediest of each kernel's functions needs. `bytes` is what each function needs for
    /// a worker, in their order.
    pub fn of(
        functions: &KernelFunctions,
        bytes: impl IntoIterator<Item = u64>,
        workers: usize,
    ) -> Scratch {
        let mut strides: SecondaryMap<KernelId, u64> = SecondaryMap::new();
        for (function, bytes) in functions.functions.iter().zip(bytes) {
            let stride = &mut strides[function.kernel];
            *stride = (*stride).max(bytes.next_multiple_of(64));
        }
        Scratch { strides, workers }
    }

    /// Bytes that a call of each kernel needs, for all workers.
    pub fn bytes(&self) -> SecondaryMap<KernelId, u64> {
        let mut bytes = SecondaryMap::new();
        for (id, &stride) in self.strides.iter() {
            bytes[id] = stride.saturating_mul(self.workers as u64);
        }
        bytes
    }
}

/// The C files of a model: kernels, level by level, then the function that calls them. Each can be
/// compiled by itself. `kernels` are the functions in their order.
pub fn c_files(
    entry: &Entry,
    functions: &KernelFunctions,
    levels: &[Target],
    kernels: &[KernelSource],
) -> Vec<SourceFile> {
    let symbol = &entry.symbol;
    let mut files = Vec::new();
    for (level, target) in levels.iter().enumerate() {
        let of_level = functions.functions.iter().zip(kernels);
        let own: Vec<&KernelSource> =
            of_level.filter(|(f, _)| f.level == level).map(|(_, kernel)| kernel).collect();
        let prefix = level_prefix(symbol, level, target);
        let mut first = 0;
        for number in 0.. {
            let Some(rest) = own.get(first..).filter(|rest| !rest.is_empty()) else { break };
            let mut bytes = 0;
            let full = rest.iter().position(|kernel| {
                bytes += kernel.text_bytes();
                bytes > FILE_BYTES
            });
            // At least one kernel, however large.
            let count = full.map_or(rest.len(), |full| full.max(1));
            let text = c::translation_unit(rest[..count].iter().copied(), &[]);
            files.push(SourceFile { name: format!("{prefix}_{number}"), text, level });
            first += count;
        }
    }
    let prototypes = kernels.iter().map(|kernel| kernel.prototype.as_str());
    files.push(SourceFile { name: symbol.clone(), text: entry.c_text(prototypes), level: 0 });
    files
}

/// What the names of a level's files begin with.
fn level_prefix(symbol: &str, level: usize, target: &Target) -> String {
    match level {
        0 => symbol.to_owned(),
        _ => format!("{symbol}_{}", kernels::word(target.cpu_level().name())),
    }
}

#[cfg(test)]
mod tests;
