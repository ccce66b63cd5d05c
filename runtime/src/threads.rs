//! Threads for the parallel loops of kernels.
//!
//! Waking a thread takes longer than most loops do, so a pool's threads spin as long as somebody
//! [uses](ThreadPool::activate) the pool and a little longer, and sleep otherwise. A loop is cut
//! into chunks; whoever is awake claims one after the other, the caller among them. Nobody waits
//! for a thread that has claimed nothing, so a sleeping or delayed thread makes a loop slower but
//! never holds it up.

#[cfg(all(loom, test))]
mod models;
mod sync;
#[cfg(all(not(loom), test))]
mod tests;

use core::any::Any;
use core::ffi::c_void;
use core::fmt;
use core::mem;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::boxed::Box;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::available_parallelism;
use std::time::Instant;
use std::vec::Vec;

use crate::abi::{Body, ParallelFor};
use crate::parallel::{Numbered, Parallel, Team, chunk_of, chunks};
use sync::{
    AtomicBool, AtomicU32, AtomicUsize, Builder, Cell, JoinHandle, park, spin_loop, yield_now,
};

/// How long threads spin when nobody uses the pool any more: about what a wake costs, so that this
/// at most doubles the price of a pause, and inferences that follow one another find them awake.
const LINGER: Duration = Duration::from_micros(if cfg!(all(loom, test)) { 0 } else { 500 });

/// Most workers of a pool, so that a loop's [`State`] fits 32 bits.
const MAX_WORKERS: usize = 1023;

/// How often a worker looks for work before it looks at anything else, and how often a caller looks
/// for the end of a chunk before it lets other threads run: a few microseconds.
const SPINS: usize = if cfg!(all(loom, test)) { 1 } else { 256 };

/// How far a loop is: chunks that others than the caller are at (10 bits), chunks that nobody has
/// claimed (12 bits), and below which number a worker may claim one (10 bits).
#[derive(Clone, Copy)]
struct State(u32);

impl State {
    const RUNNING: u32 = 1;
    const LEFT: u32 = 1 << 10;
    const LIMIT: u32 = 1 << 22;

    fn new(workers: usize, left: usize) -> Self {
        State(workers as u32 * Self::LIMIT + left as u32 * Self::LEFT)
    }

    fn running(self) -> u32 {
        self.0 % Self::LEFT
    }

    fn left(self) -> usize {
        (self.0 % Self::LIMIT / Self::LEFT) as usize
    }

    fn workers(self) -> usize {
        (self.0 / Self::LIMIT) as usize
    }
}

/// A loop that is being run.
struct Loop {
    body: Body,
    argument: *mut c_void,
    count: i64,
    chunks: usize,
}

impl Loop {
    /// Runs one chunk.
    ///
    /// # Safety
    ///
    /// The body may be called with the argument, by this worker.
    unsafe fn run(&self, chunk: usize, worker: usize) {
        let (begin, end) = chunk_of(self.count, self.chunks, chunk);
        // SAFETY: the caller's promise.
        unsafe { (self.body)(self.argument, begin, end, worker) }
    }
}

/// The loop that all workers share. It has cache lines of its own, which processors fetch in pairs:
/// to begin a loop, one line has to travel.
#[repr(align(128))]
struct Current {
    /// A [`State`].
    state: AtomicU32,
    /// Written by the caller who is [`busy`](Shared::busy), while no chunk is claimed or left; read
    /// by who has claimed a chunk, until it is done.
    what: Cell<Loop>,
}

/// What a thread sleeps on.
#[derive(Default)]
struct Slot {
    /// How many users of the pool want this thread awake.
    wanted: AtomicUsize,
    asleep: AtomicBool,
}

/// What threads and callers share.
struct Shared {
    current: Current,
    /// Whether a caller has a loop run.
    busy: AtomicBool,
    stop: AtomicBool,
    /// Of each worker but the caller, who is worker 0.
    slots: Box<[Slot]>,
}

// SAFETY: `what` is guarded by `state` and `busy`, as written there; all else is atomic. The argument
// of a loop goes to other threads only as the caller of `run` promises that it may.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    /// Takes a chunk of the current loop for a worker, which adds `running` to its state; returns
    /// how many there were to take.
    fn claim(&self, worker: usize, running: u32) -> Option<usize> {
        let mut state = State(self.current.state.load(Ordering::Relaxed));
        while state.left() > 0 && worker < state.workers() {
            // Acquire: this reads what the caller stored, or what a claim or the end of a chunk made
            // of it, which hand on the store's release. So what the caller wrote before is visible.
            // Whether the state was another loop's when it was first read does not matter: it is the
            // current loop that loses a chunk.
            let claimed = self.current.state.compare_exchange_weak(
                state.0,
                state.0 - State::LEFT + running,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            match claimed {
                Ok(_) => return Some(state.left()),
                Err(found) => state = State(found),
            }
        }
        None
    }

    /// Runs a chunk of the current loop, if there is one left.
    fn help(&self, worker: usize) -> bool {
        let Some(left) = self.claim(worker, State::RUNNING) else { return false };
        // SAFETY: nobody writes to the loop while a chunk is claimed, and the claim made visible what
        // was written before. The caller of `run` promised that the body may be called by any worker
        // below the limit.
        self.current.what.with(|current| unsafe {
            let current = &*current;
            current.run(current.chunks - left, worker);
        });
        // Release: what the body wrote is visible to the caller that sees the chunk done.
        self.current.state.fetch_sub(State::RUNNING, Ordering::Release);
        true
    }

    /// Runs a loop with up to `workers` workers, or alone if the threads have another one.
    ///
    /// # Safety
    ///
    /// The body may be called with the argument on any thread, for disjoint ranges below `count` at
    /// the same time, as any worker below `workers`.
    unsafe fn run(&self, workers: usize, body: Body, argument: *mut c_void, count: i64) {
        if count <= 0 {
            return;
        }
        let chunks = chunks(count, workers);
        // Acquire, and release at the end: what one caller does here is over when the next begins.
        let is_busy = || {
            self.busy.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err()
        };
        if workers == 1 || chunks == 1 || is_busy() {
            // SAFETY: the caller's promise.
            return unsafe { body(argument, 0, count, 0) };
        }
        // SAFETY: the former loop has ended with no chunk left or claimed, and no other caller is
        // here. Others read this only after they claimed one of the chunks stored below.
        self.current
            .what
            .with_mut(|what| unsafe { *what = Loop { body, argument, count, chunks } });
        let others = State::new(workers, chunks - 1);
        self.current.state.store(others.0, Ordering::Release);
        // The first chunk is the caller's own.
        let mut left = Some(chunks);
        while let Some(chunk) = left.map(|left| chunks - left) {
            // SAFETY: the caller's promise; nobody else has claimed this chunk, and nobody writes to
            // the loop.
            self.current.what.with(|current| unsafe { (*current).run(chunk, 0) });
            left = self.claim(0, 0);
        }
        let mut spins = 0;
        // Acquire: this reads the last of the subtractions, which hand on each other's release, so
        // all that the bodies wrote is visible.
        while State(self.current.state.load(Ordering::Acquire)).running() > 0 {
            spins += 1;
            if spins % SPINS == 0 {
                // The system may have taken a worker off its processor in the middle of a chunk.
                yield_now();
            } else {
                spin_loop();
            }
        }
        self.busy.store(false, Ordering::Release);
    }

    /// What the thread of a worker does.
    fn work(&self, worker: usize) {
        let Some(slot) = self.slots.get(worker - 1) else { return };
        let mut idle_since: Option<Instant> = None;
        loop {
            for _ in 0..SPINS {
                if self.help(worker) {
                    idle_since = None;
                }
                spin_loop();
            }
            if self.stop.load(Ordering::Relaxed) {
                return;
            }
            if slot.wanted.load(Ordering::Relaxed) > 0 {
                idle_since = None;
            } else if idle_since.get_or_insert_with(Instant::now).elapsed() >= LINGER {
                self.sleep(slot);
                idle_since = None;
            }
        }
    }

    fn sleep(&self, slot: &Slot) {
        slot.asleep.store(true, Ordering::Relaxed);
        // `wanted` is read and written in one, here and in `activate`, so that one comes before the
        // other: either this sees that it is wanted, or who wants it sees that it sleeps and unparks
        // it, be it before or after the park. The pool's `drop` unparks in any case.
        while slot.wanted.fetch_add(0, Ordering::AcqRel) == 0 && !self.stop.load(Ordering::Relaxed)
        {
            park();
        }
        slot.asleep.store(false, Ordering::Relaxed);
    }
}

/// Workers that share the iterations of loops: the thread that calls, and threads of the pool.
///
/// The pool's threads keep processors busy while the pool is [active](ThreadPool::activate) and
/// about half a millisecond longer; then they sleep. If a thread cannot be started, the pool has
/// fewer workers.
///
/// In the child of a fork, a pool has none of its threads any more: callers run all loops by
/// themselves, and dropping the pool leaves its memory behind.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// let pool = niello_runtime::ThreadPool::new(2);
/// let sum = AtomicU64::new(0);
/// pool.parallel_for(100, |range, _worker| {
///     sum.fetch_add(range.map(|i| i as u64).sum(), Ordering::Relaxed);
/// });
/// assert_eq!(sum.into_inner(), 4950);
/// ```
pub struct ThreadPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// The [`process`] that has the threads.
    process: u32,
}

/// The number of this process: a fork has another one. Systems other than Unix have no forks.
fn process() -> u32 {
    if cfg!(unix) { std::process::id() } else { 0 }
}

impl ThreadPool {
    /// Starts a pool of so many workers (at least 1, at most 1023), of which the calling thread is
    /// one. More workers than processors make loops slower.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        let others = workers.clamp(1, MAX_WORKERS) - 1;
        let nothing = Loop { body: no_body, argument: ptr::null_mut(), count: 0, chunks: 0 };
        let shared = Arc::new(Shared {
            current: Current { state: AtomicU32::new(0), what: Cell::new(nothing) },
            busy: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            slots: (0..others).map(|_| Slot::default()).collect(),
        });
        let start = |worker: usize| {
            let shared = Arc::clone(&shared);
            let name = std::format!("niello-{worker}");
            Builder::new().name(name).spawn(move || shared.work(worker)).ok()
        };
        let threads = (1..=others).map_while(start).collect();
        ThreadPool { shared, threads, process: process() }
    }

    /// The pool of the process, started at the first call: as many workers as the process may use
    /// processors.
    pub fn global() -> &'static ThreadPool {
        static GLOBAL: OnceLock<ThreadPool> = OnceLock::new();
        GLOBAL.get_or_init(|| {
            ThreadPool::new(available_parallelism().map_or(1, core::num::NonZero::get))
        })
    }

    /// Number of workers, at least 1.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.threads.len() + 1
    }

    /// Wakes up to `workers` workers, the caller among them, and keeps them awake until the result
    /// is dropped. Worth it around anything that runs several loops.
    pub fn activate(&self, workers: usize) -> Active<'_> {
        let workers = workers.clamp(1, self.workers());
        for (slot, thread) in self.others(workers) {
            slot.wanted.fetch_add(1, Ordering::AcqRel);
            if slot.asleep.load(Ordering::Relaxed) {
                thread.thread().unpark();
            }
        }
        Active { pool: self, workers }
    }

    /// As [`Active::parallel_for`], with all workers, which are woken for it.
    pub fn parallel_for(&self, count: usize, body: impl Fn(Range<usize>, usize) + Sync) {
        self.activate(self.workers()).parallel_for(count, body);
    }

    /// The threads of the first `workers` workers.
    fn others(&self, workers: usize) -> impl Iterator<Item = (&Slot, &JoinHandle<()>)> {
        self.shared.slots.iter().zip(&self.threads).take(workers - 1)
    }
}

/// The pool shares the loops of a model's run, during which its threads are awake.
///
/// A pool that is running another loop leaves a loop to its caller, so several threads can run
/// models on one pool. In the child of a fork, pools have no threads any more, and callers run all
/// loops by themselves.
impl Parallel for ThreadPool {
    fn workers(&self) -> usize {
        ThreadPool::workers(self)
    }

    fn run_numbered(&self, times: usize, task: &Numbered<'_>) -> bool {
        unsafe extern "C" fn call(task: *mut c_void, begin: i64, end: i64, worker: usize) {
            // SAFETY: `run_numbered` hands over a pointer to such a task, and stays until it is done.
            let task = unsafe { &*task.cast::<Numbered<'_>>() };
            (begin..end).for_each(|_| task.call(worker));
        }

        let workers = times.clamp(1, ThreadPool::workers(self));
        let argument = ptr::from_ref(task).cast_mut().cast();
        // SAFETY: `call` takes what `argument` points at, which is `Sync`, on any thread and for any
        // range. A task that panics ends the program.
        unsafe { self.shared.run(workers, call, argument, times as i64) };
        true
    }

    fn run(&self, times: usize, task: &(dyn Fn() + Sync)) {
        unsafe extern "C" fn call(task: *mut c_void, begin: i64, end: i64, _worker: usize) {
            // SAFETY: `run` below hands over a pointer to such a reference, and stays until the loop
            // is done. What is called is `Sync`.
            let task = unsafe { *task.cast::<&(dyn Fn() + Sync)>() };
            (begin..end).for_each(|_| task());
        }

        let workers = times.clamp(1, ThreadPool::workers(self));
        let argument = (&raw const task).cast_mut().cast();
        // SAFETY: `call` takes what `argument` points at, on any thread and for any range. A task
        // that panics ends the program.
        unsafe { self.shared.run(workers, call, argument, times as i64) };
    }

    fn during(&self, workers: usize, inference: &mut dyn FnMut()) {
        let _active = self.activate(workers);
        inference();
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        if self.process != process() {
            // Systems may wait for ever for the end of a thread that another process has.
            return mem::forget(mem::take(&mut self.threads));
        }
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in &self.threads {
            thread.thread().unpark();
        }
        for thread in self.threads.drain(..) {
            // The bodies of loops do not unwind into a thread, so there is no panic to hand on.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool").field("workers", &self.workers()).finish_non_exhaustive()
    }
}

/// Workers of a pool that are awake: what [`ThreadPool::activate`] gives.
#[derive(Debug)]
pub struct Active<'a> {
    pool: &'a ThreadPool,
    workers: usize,
}

impl Active<'_> {
    /// Number of workers that share loops, at least 1.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Calls `body` with disjoint ranges that cover `0..count`, each with the number of the worker
    /// that runs it, below [`workers`](Self::workers); returns when all calls have. No two calls of
    /// one worker overlap.
    ///
    /// If the pool is running another loop, which may be the one that this is called from, all of it
    /// runs here as worker 0.
    ///
    /// # Panics
    ///
    /// If `body` does, on any thread; the other ranges are run nevertheless.
    pub fn parallel_for<F: Fn(Range<usize>, usize) + Sync>(&self, count: usize, body: F) {
        struct Call<F> {
            body: F,
            panic: Mutex<Option<Box<dyn Any + Send>>>,
        }

        unsafe extern "C" fn call<F: Fn(Range<usize>, usize) + Sync>(
            argument: *mut c_void,
            begin: i64,
            end: i64,
            worker: usize,
        ) {
            // SAFETY: `parallel_for` below hands over a pointer to this type, and stays until the
            // loop is done. `F` is `Sync`, and `Mutex` is.
            let call = unsafe { &*argument.cast::<Call<F>>() };
            let range = begin as usize..end as usize;
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| (call.body)(range, worker))) {
                let mut first = call.panic.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert(payload);
            }
        }

        let call_of = Call { body, panic: Mutex::new(None) };
        let argument = (&raw const call_of).cast_mut().cast();
        // No range of this many elements can be run through.
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        // SAFETY: `call` takes what `argument` points at, on any thread and for any range.
        unsafe { self.pool.shared.run(self.workers, call::<F>, argument, count) };
        let panic = call_of.panic.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }

    /// The fields `parallel_for` and `pool` of a [`Context`](crate::abi::Context) whose kernels run on
    /// these workers, as long as this lives. Its `workers` is [`workers`](Self::workers).
    #[must_use]
    pub fn as_abi(&self) -> (ParallelFor, *mut c_void) {
        (parallel_for, ptr::from_ref(self).cast_mut().cast())
    }
}

impl Drop for Active<'_> {
    fn drop(&mut self) {
        for (slot, _) in self.pool.others(self.workers) {
            slot.wanted.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// The body of the loop before the first.
unsafe extern "C" fn no_body(_: *mut c_void, _: i64, _: i64, _: usize) {}

/// The `parallel_for` of a [`Context`](crate::abi::Context); see [`Active::as_abi`].
unsafe extern "C" fn parallel_for(
    pool: *mut c_void,
    body: Body,
    argument: *mut c_void,
    count: i64,
) {
    // SAFETY: kernels hand on what `as_abi` gave, which is still alive.
    let active = unsafe { &*pool.cast::<Active<'_>>() };
    let team = Team { executor: active.pool, workers: active.workers };
    // SAFETY: the bodies of generated loops may be called like this.
    unsafe { team.run(body, argument, count) }
}
