//! The binary interface between generated code and this crate.

use core::ffi::c_void;

/// What every kernel is handed first: `struct niello_context` in generated C.
#[repr(C)]
#[derive(Debug)]
pub struct Context {
    /// Start of the packed constants, aligned to 64.
    pub weights: *const u8,
    /// Start of the workspace, aligned to 64: the arena, then scratch.
    pub workspace: *mut u8,
    /// Start of the scratch area of worker 0.
    pub scratch: *mut u8,
    /// Distance in bytes between the scratch areas of two workers.
    pub scratch_stride: usize,
    /// Runs `body(argument, begin, end, worker)` over disjoint ranges that cover `0..count`; null
    /// means that kernels run serially.
    pub parallel_for: Option<ParallelFor>,
    /// Handed to `parallel_for` as it is.
    pub pool: *mut c_void,
    /// Number of workers, at least 1.
    pub workers: usize,
    /// Which of the model's CPU levels runs: 0 is the narrowest, which every machine has that the
    /// model was compiled for.
    pub level: usize,
}

/// A loop body over `begin..end`, run by `worker`.
pub type Body = unsafe extern "C" fn(argument: *mut c_void, begin: i64, end: i64, worker: usize);

/// Splits `0..count` among workers and returns when all of it is done.
pub type ParallelFor =
    unsafe extern "C" fn(pool: *mut c_void, body: Body, argument: *mut c_void, count: i64);
