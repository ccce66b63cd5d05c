//! The ahead-of-time executor: the model as one function that calls its kernels in order.

mod cache;
mod code;
mod entry;
mod kernels;
mod lowering;
mod sharing;
mod weights;

pub use cache::{
    CACHE_DIR_VARIABLE, CACHE_SIZE_VARIABLE, CacheContents, DEFAULT_CACHE_BYTES, KernelCache,
};
pub use code::{CacheUse, Code, Generator, Listing};
pub(crate) use entry::call_symbol;
pub use entry::{CALLS_PER_FUNCTION, Call, Copy, Entry, Pointer, SizeCount};
pub use kernels::{KernelFunction, KernelFunctions};
pub use sharing::{SharedWeights, StoredConstants, UsedWeights};
pub use weights::{PackedWeights, Weights};

use cranelift_entity::SecondaryMap;

use crate::codegen::{self, ScratchBytes};
use crate::diagnostics::Report;
use crate::executor::{KernelId, Program};

/// The scratch memory that a model's kernels need.
#[derive(Clone, Debug)]
pub struct Scratch {
    /// Bytes from one worker's memory to the next one's, for each kernel.
    pub strides: SecondaryMap<KernelId, u64>,
    /// Bytes that a call of each kernel needs, for all workers.
    pub bytes: SecondaryMap<KernelId, u64>,
    /// How many workers there is memory for.
    pub workers: usize,
}

impl Scratch {
    /// What the greediest function of each kernel needs. Workers share what lives around a parallel
    /// loop.
    ///
    /// # Errors
    ///
    /// One problem for each function with a local buffer whose size cannot be computed.
    pub fn of(
        program: &Program,
        functions: &KernelFunctions,
        workers: usize,
    ) -> Result<Scratch, Report> {
        let mut report = Report::new();
        let needs: Vec<ScratchBytes> = (functions.versions(program))
            .map(|(_, version)| match codegen::scratch_bytes(version) {
                Ok(need) => need,
                Err(error) => {
                    report.push(error.into());
                    ScratchBytes::default()
                }
            })
            .collect();
        let mut strides: SecondaryMap<KernelId, u64> = SecondaryMap::new();
        let mut bytes: SecondaryMap<KernelId, u64> = SecondaryMap::new();
        for kernel in program.kernels.keys() {
            let own = || functions.by_level[kernel].iter().filter_map(|&at| needs.get(at));
            let serial = own().map(|need| need.serial).max().unwrap_or(0).next_multiple_of(64);
            let worker = own().map(|need| need.worker).max().unwrap_or(0);
            strides[kernel] = if worker == 0 { serial } else { worker };
            bytes[kernel] =
                worker.saturating_mul((workers as u64).saturating_sub(1)).saturating_add(serial);
        }
        report.into_result(Scratch { strides, bytes, workers })
    }
}

#[cfg(test)]
mod tests;
