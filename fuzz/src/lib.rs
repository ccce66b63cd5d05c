//! What the fuzz targets share: the bounds that a run on one input must keep.
#![cfg(feature = "libfuzzer")]

use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Most processor time of one input. The inputs are at most some kilobytes long.
const MOST_TIME: Duration = Duration::from_secs(1);

/// Most address space of the process: an allocation beyond it fails, and so ends the process.
const MOST_MEMORY: u64 = 1 << 30;

/// Bounds the memory of the process. Called once, before the first input.
pub fn limit_memory() {
    let limit = Rlimit { current: Some(MOST_MEMORY), maximum: Some(MOST_MEMORY) };
    setrlimit(Resource::As, limit).expect("a process may lower its limits");
}

/// Runs a target on one input.
///
/// # Panics
///
/// The input took more than [`MOST_TIME`]. Processor time is compared, so that other programs on a
/// busy machine make no difference; what never ends is stopped by libFuzzer's own timeout.
pub fn run<T>(target: impl FnOnce() -> T) -> T {
    let start = processor_time();
    let result = target();
    let taken = processor_time().saturating_sub(start);
    assert!(taken <= MOST_TIME, "the input took {taken:?}, more than {MOST_TIME:?}");
    result
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).expect("the clock starts at zero");
    let nanoseconds = u32::try_from(time.tv_nsec).expect("less than a second");
    Duration::new(seconds, nanoseconds)
}
