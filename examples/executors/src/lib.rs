//! Cores as the threads of a model, without an operating system, a heap or `std`.
//!
//! [`Cores`] is a `static` that all cores know. Each core but the one that runs the model
//! [serves](Cores::serve) it for good. On a microcontroller with two Arm cores, that is
//!
//! ```text
//! static CORES: Cores = Cores::new(cortex_m::asm::sev);
//!
//! /// What the second core does.
//! fn core1() -> ! {
//!     CORES.serve(|| {
//!         cortex_m::asm::wfe();
//!         true
//!     });
//!     unreachable!("it serves for good")
//! }
//!
//! // The first core.
//! let outputs = model.run_with(&CORES, &digits::Inputs { image: &image });
//! ```
//!
//! The processor needs instructions that compare and swap a word (`target_has_atomic = "32"`).

#![no_std]

use core::cell::UnsafeCell;
use core::mem::transmute;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use niello_runtime::Parallel;

/// What cores call.
type Task = dyn Fn() + Sync;

/// A call that is being made, in [`Cores::calls`].
const RUNNING: u32 = 1;
/// A call that nobody has begun, in [`Cores::calls`].
const LEFT: u32 = 1 << 16;

/// The cores of a machine as an executor: the one that runs a model, and those that serve it.
pub struct Cores {
    /// Cores that serve.
    serving: AtomicUsize,
    /// Whether a core runs a loop.
    busy: AtomicBool,
    /// Calls that nobody has begun (the upper 16 bits), and those that serving cores are at.
    calls: AtomicU32,
    /// Written by the core that is busy, while no call is left or running; read by cores that have
    /// begun a call, until it is done.
    task: UnsafeCell<&'static Task>,
    /// Wakes the cores that serve.
    wake: fn(),
}

// SAFETY: `task` is guarded by `busy` and `calls`, as written there; all else is atomic. Tasks are
// `Sync`, so every core may call them.
unsafe impl Sync for Cores {}

impl Cores {
    /// An executor that no core serves yet. `wake` is called when there is something to do: the
    /// instruction `sev` on Arm, nothing if serving cores never wait.
    #[must_use]
    pub const fn new(wake: fn()) -> Self {
        Cores {
            serving: AtomicUsize::new(0),
            busy: AtomicBool::new(false),
            calls: AtomicU32::new(0),
            task: UnsafeCell::new(&|| {}),
            wake,
        }
    }

    /// Lends this core to the loops of models, as long as `idle` returns true. It is called whenever
    /// there is nothing to do: it may wait for an event, which `wake` has to be.
    pub fn serve(&self, mut idle: impl FnMut() -> bool) {
        let _serving = Serving::begin(self);
        loop {
            while self.begin_call() {
                let _end = EndOfCall(self);
                // SAFETY: nobody writes to the task while a call runs, and beginning it made visible
                // what was written before.
                let task = unsafe { *self.task.get() };
                task();
            }
            if !idle() {
                return;
            }
        }
    }

    /// Makes a call that is left one that runs; whether there was one.
    fn begin_call(&self) -> bool {
        let begin = |calls: u32| (calls >= LEFT).then(|| calls - LEFT + RUNNING);
        // Acquire: it reads what the core stored that runs the loop, or what another begin or end of
        // a call made of that, so what that core wrote before is visible.
        self.calls.fetch_update(Ordering::Acquire, Ordering::Relaxed, begin).is_ok()
    }
}

impl Parallel for Cores {
    fn workers(&self) -> usize {
        1 + self.serving.load(Ordering::Relaxed)
    }

    fn run(&self, times: usize, task: &(dyn Fn() + Sync)) {
        // The runtime does with one call what other cores leave, so a busy executor makes a loop
        // slower and no more.
        let others = times.min(self.workers()).saturating_sub(1).min(usize::from(u16::MAX));
        if others == 0 || self.busy.swap(true, Ordering::Acquire) {
            return task();
        }
        // SAFETY: the reference is used for calls alone, and `EndOfLoop` waits for all of them before
        // this function returns or unwinds.
        let forever = unsafe { transmute::<&(dyn Fn() + Sync), &'static Task>(task) };
        // SAFETY: this core is the busy one, and no call is left or running.
        unsafe { *self.task.get() = forever };
        let _end = EndOfLoop(self);
        // Release: who begins a call sees the task.
        self.calls.store(others as u32 * LEFT, Ordering::Release);
        (self.wake)();
        task();
    }
}

/// A core that serves.
struct Serving<'a>(&'a Cores);

impl<'a> Serving<'a> {
    fn begin(cores: &'a Cores) -> Self {
        cores.serving.fetch_add(1, Ordering::Relaxed);
        Serving(cores)
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        self.0.serving.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The end of a call on a core that serves, also if the task panics where that unwinds.
struct EndOfCall<'a>(&'a Cores);

impl Drop for EndOfCall<'_> {
    fn drop(&mut self) {
        // Release: what the task wrote is visible to the core that sees the call ended.
        self.0.calls.fetch_sub(RUNNING, Ordering::Release);
    }
}

/// The end of a loop: no call is left, and none runs.
struct EndOfLoop<'a>(&'a Cores);

impl Drop for EndOfLoop<'_> {
    fn drop(&mut self) {
        self.0.calls.fetch_and(LEFT - 1, Ordering::Relaxed);
        // Acquire: what the tasks wrote is visible from here on.
        while self.0.calls.load(Ordering::Acquire) > 0 {
            core::hint::spin_loop();
        }
        self.0.busy.store(false, Ordering::Release);
    }
}
