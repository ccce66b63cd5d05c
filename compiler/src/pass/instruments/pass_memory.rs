//! Measures how much passes allocate.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use super::counting_allocator::{Reading, read, reset_peak, restore_peak, start};
use super::per_thread::PerThread;
use crate::ir::IRModule;
use crate::pass::{HookResult, InstrumentOutput, PassError, PassInfo, PassInstrument};

/// Measures for each pass the number of allocations, their bytes, the growth of the memory in use,
/// and the peak above the memory in use at the start of the pass.
///
/// It reads the program's [`CountingAllocator`](super::CountingAllocator); in a program without one
/// there is nothing to measure, and the report says so. All threads count, so what other threads of
/// the program allocate meanwhile counts too, and the numbers of two runs may differ slightly.
///
/// Its file is `memory.txt`.
#[derive(Debug)]
pub struct PassMemory {
    counts: bool,
    threads: PerThread<Vec<Open>>,
    passes: Mutex<Vec<Usage>>,
}

/// A pass that is running.
#[derive(Debug)]
struct Open {
    /// The pass's place in the report, which lists passes in the order in which they began.
    index: usize,
    start: Reading,
    /// The peak of the pass around it so far.
    outer_peak: i64,
}

/// The measurements of one pass.
#[derive(Debug)]
struct Usage {
    pass: String,
    depth: usize,
    allocations: u64,
    allocated: u64,
    /// Bytes in use at the end, less those at the start.
    kept: i64,
    /// Bytes in use at most, less those at the start.
    peak: i64,
}

impl Default for PassMemory {
    fn default() -> PassMemory {
        PassMemory { counts: start(), threads: PerThread::default(), passes: Mutex::default() }
    }
}

impl PassMemory {
    /// Begins to count.
    pub fn new() -> PassMemory {
        PassMemory::default()
    }

    /// A table with one line a pass, indented by tabs under the pass it ran in. Bytes of a pass
    /// include those of the passes within it.
    pub fn render(&self) -> String {
        if !self.counts {
            return "allocations are not counted: the program does not use `niello::pass::instruments::CountingAllocator`\n"
                .to_owned();
        }
        let passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        for Usage { pass, depth, allocations, allocated, kept, peak } in passes.iter() {
            let indent = "\t".repeat(*depth);
            let _ = writeln!(
                text,
                "{indent}{pass}: {allocations} allocations, {allocated} bytes, kept {kept:+}, peak {peak:+}"
            );
        }
        text
    }

    fn close(&self) {
        let Some(Open { index, start, outer_peak }) = self.threads.with(Vec::pop) else { return };
        let end = read();
        restore_peak(outer_peak);
        let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(usage) = passes.get_mut(index) else { return };
        usage.allocations = end.allocations - start.allocations;
        usage.allocated = end.allocated - start.allocated;
        usage.kept = end.live - start.live;
        usage.peak = end.peak - start.live;
    }
}

impl PassInstrument for PassMemory {
    fn run_before_pass(&self, _: &IRModule, info: &PassInfo) -> HookResult {
        let depth = self.threads.with(|open| open.len());
        let usage =
            Usage { pass: info.text(), depth, allocations: 0, allocated: 0, kept: 0, peak: 0 };
        let index = {
            let mut passes = self.passes.lock().unwrap_or_else(PoisonError::into_inner);
            passes.push(usage);
            passes.len() - 1
        };
        // Measured last, to leave out allocations of the instrument itself.
        self.threads.with(|open| {
            open.reserve(1);
            let outer_peak = reset_peak();
            open.push(Open { index, start: read(), outer_peak });
        });
        Ok(())
    }

    fn run_after_pass(&self, _: &IRModule, _: &PassInfo) -> HookResult {
        self.close();
        Ok(())
    }

    fn after_pass_failed(&self, _: &PassInfo, _: &PassError) -> HookResult {
        self.close();
        Ok(())
    }

    fn exit_pass_ctx(&self) -> HookResult {
        self.threads.take();
        Ok(())
    }

    fn outputs(&self) -> Vec<InstrumentOutput> {
        vec![InstrumentOutput::new("memory.txt", self.render())]
    }
}
