//! An allocator with counters, for programs that measure the allocations of passes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Whether to count. Until then an allocation costs no more than the system's.
static COUNTING: AtomicBool = AtomicBool::new(false);
/// Whether the program uses this allocator: set by the first allocation that is counted.
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// Allocations since counting began.
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
/// Bytes of these allocations.
static ALLOCATED: AtomicU64 = AtomicU64::new(0);
/// Bytes in use now, less the bytes in use when counting began: may be negative.
static LIVE: AtomicI64 = AtomicI64::new(0);
/// The most that `LIVE` has been since the last [`reset_peak`].
static PEAK: AtomicI64 = AtomicI64::new(0);

/// The system's allocator with counters, for [`PassMemory`](super::PassMemory).
///
/// A library cannot choose a program's allocator, so the program does; the `niello` command uses
/// this one.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: niello::pass::instruments::CountingAllocator =
///     niello::pass::instruments::CountingAllocator;
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Default, Debug)]
pub struct CountingAllocator;

/// The counters at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Reading {
    pub(super) allocations: u64,
    pub(super) allocated: u64,
    pub(super) live: i64,
    pub(super) peak: i64,
}

/// Begins to count. Returns whether the program uses this allocator.
pub(super) fn start() -> bool {
    COUNTING.store(true, Ordering::Relaxed);
    // An allocation that is not optimised away shows whether this allocator serves it.
    drop(std::hint::black_box(Box::new(0u64)));
    INSTALLED.load(Ordering::Relaxed)
}

/// The counters.
pub(super) fn read() -> Reading {
    Reading {
        allocations: ALLOCATIONS.load(Ordering::Relaxed),
        allocated: ALLOCATED.load(Ordering::Relaxed),
        live: LIVE.load(Ordering::Relaxed),
        peak: PEAK.load(Ordering::Relaxed),
    }
}

/// Starts a new peak at the bytes in use now; returns the peak so far.
pub(super) fn reset_peak() -> i64 {
    PEAK.swap(LIVE.load(Ordering::Relaxed), Ordering::Relaxed)
}

/// Takes an earlier peak into account again, after a part has been measured alone.
pub(super) fn restore_peak(earlier: i64) {
    PEAK.fetch_max(earlier, Ordering::Relaxed);
}

fn grown(bytes: usize) {
    if COUNTING.load(Ordering::Relaxed) {
        INSTALLED.store(true, Ordering::Relaxed);
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        ALLOCATED.fetch_add(bytes as u64, Ordering::Relaxed);
        let live = LIVE.fetch_add(bytes as i64, Ordering::Relaxed) + bytes as i64;
        PEAK.fetch_max(live, Ordering::Relaxed);
    }
}

fn shrunk(bytes: usize) {
    if COUNTING.load(Ordering::Relaxed) {
        LIVE.fetch_sub(bytes as i64, Ordering::Relaxed);
    }
}

// SAFETY: every method hands its arguments to the system's allocator unchanged and returns its
// result; the counters are atomics, which allocate nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc`, which is the same.
        let pointer = unsafe { System.alloc(layout) };
        if !pointer.is_null() {
            grown(layout.size());
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        shrunk(layout.size());
        // SAFETY: the caller got `pointer` from this allocator, and so from the system's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `GlobalAlloc::alloc_zeroed`, which is the same.
        let pointer = unsafe { System.alloc_zeroed(layout) };
        if !pointer.is_null() {
            grown(layout.size());
        }
        pointer
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller got `pointer` from this allocator, and so from the system's, and keeps
        // the contract of `GlobalAlloc::realloc`, which is the same.
        let moved = unsafe { System.realloc(pointer, layout, new_size) };
        if !moved.is_null() {
            shrunk(layout.size());
            grown(new_size);
        }
        moved
    }
}
