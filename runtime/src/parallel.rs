//! Threads of a program's own that share the loops of a model.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::abi::{Body, ParallelFor};

/// Chunks of a loop for each worker: a worker that comes late or is slow leaves its share to the
/// others.
pub(crate) const CHUNKS_PER_WORKER: usize = 4;

/// Threads that share the loops of a model: what `run_with` of a model takes that was compiled for
/// more than one. [`ThreadPool`](crate::ThreadPool) is such threads; so can an executor be that the
/// program has already, or the other cores of a machine without an operating system:
///
/// ```
/// use niello_runtime::Parallel;
///
/// /// Starts threads for each loop, which is simple and slow.
/// struct Scoped(usize);
///
/// impl Parallel for Scoped {
///     fn workers(&self) -> usize {
///         self.0
///     }
///
///     fn run(&self, times: usize, task: &(dyn Fn() + Sync)) {
///         std::thread::scope(|scope| {
///             for _ in 1..times {
///                 scope.spawn(task);
///             }
///             task();
///         });
///     }
/// }
/// ```
///
/// However often and wherever tasks are called, results are the same, bit for bit.
pub trait Parallel {
    /// How many tasks can run at the same time, at least 1. A model uses no more of them than it
    /// was compiled for.
    fn workers(&self) -> usize;

    /// Calls `task` up to `times` times, which is at most [`workers`](Self::workers), on any
    /// threads, and returns when all calls have.
    ///
    /// The calls share a loop: each does what is left of it until nothing is. So calls at the same
    /// time are what makes it faster, but every number of calls, even none, gets it done: an
    /// executor that has other work to do should call once. A task neither panics nor blocks. As it
    /// is called by generated code, the program ends if this function panics. On the calling thread
    /// denormal numbers count as zeros meanwhile, unless the model was compiled to keep them; tasks
    /// see to that on other threads by themselves.
    fn run(&self, times: usize, task: &(dyn Fn() + Sync));

    /// Calls `inference`, once. All loops of a run of a model are within, which share up to
    /// `workers` workers: threads that sleep can be woken before, and go to sleep after.
    fn during(&self, workers: usize, inference: &mut dyn FnMut()) {
        let _ = workers;
        inference();
    }
}

/// The calling thread alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Serial;

impl Parallel for Serial {
    fn workers(&self) -> usize {
        1
    }

    fn run(&self, _times: usize, task: &(dyn Fn() + Sync)) {
        task();
    }
}

/// The workers of an executor that share the loops of one run.
pub(crate) struct Team<'a> {
    pub(crate) executor: &'a dyn Parallel,
    /// At least 1, and no more than there is memory for; 1 on a processor that cannot count for
    /// several.
    pub(crate) workers: usize,
}

impl Team<'_> {
    /// The fields `parallel_for` and `pool` of a [`Context`](crate::abi::Context), as long as this
    /// lives.
    pub(crate) fn as_abi(&self) -> (ParallelFor, *mut c_void) {
        (parallel_for, ptr::from_ref(self).cast_mut().cast())
    }
}

/// A loop that tasks share.
struct Shared {
    body: Body,
    argument: *mut c_void,
    count: i64,
    chunks: usize,
    /// The first chunk that nobody has claimed.
    next: AtomicUsize,
    /// Tasks that have begun: each is a worker of its own.
    begun: AtomicUsize,
    workers: usize,
}

// SAFETY: the argument goes to other threads only as the kernel promises that it may: see
// `parallel_for`.
unsafe impl Sync for Shared {}

impl Shared {
    /// Runs chunks until none is left.
    fn task(&self) {
        // What one task writes another one need not see: executors hand on all writes when a call
        // has returned.
        let worker = take(&self.begun);
        if worker >= self.workers {
            return;
        }
        loop {
            let chunk = take(&self.next);
            if chunk >= self.chunks {
                return;
            }
            let (begin, end) = chunk_of(self.count, self.chunks, chunk);
            // SAFETY: the kernel's promise; the chunk is this worker's, and the worker's number this
            // task's.
            unsafe { (self.body)(self.argument, begin, end, worker) };
        }
    }
}

/// Counts one further, and returns what the count was.
#[cfg(target_has_atomic = "ptr")]
fn take(counter: &AtomicUsize) -> usize {
    counter.fetch_add(1, Ordering::Relaxed)
}

/// The same for one worker: processors without such an instruction have one core.
#[cfg(not(target_has_atomic = "ptr"))]
fn take(counter: &AtomicUsize) -> usize {
    let count = counter.load(Ordering::Relaxed);
    counter.store(count + 1, Ordering::Relaxed);
    count
}

/// The iterations of a chunk. The first chunks are longer by one if the division has a rest.
pub(crate) fn chunk_of(count: i64, chunks: usize, chunk: usize) -> (i64, i64) {
    let (chunks, chunk) = (chunks.max(1) as i64, chunk as i64);
    let (size, longer) = (count / chunks, count % chunks);
    let begin = chunk * size + chunk.min(longer);
    (begin, begin + size + i64::from(chunk < longer))
}

/// How many chunks a loop is cut into.
pub(crate) fn chunks(count: i64, workers: usize) -> usize {
    workers.saturating_mul(CHUNKS_PER_WORKER).min(usize::try_from(count).unwrap_or(0))
}

/// The `parallel_for` of a [`Context`](crate::abi::Context); see [`Team::as_abi`].
unsafe extern "C" fn parallel_for(
    pool: *mut c_void,
    body: Body,
    argument: *mut c_void,
    count: i64,
) {
    // SAFETY: kernels hand on what `as_abi` gave, which is still alive.
    let team = unsafe { &*pool.cast::<Team<'_>>() };
    let shared = Shared {
        body,
        argument,
        count,
        chunks: chunks(count, team.workers),
        next: AtomicUsize::new(0),
        begun: AtomicUsize::new(0),
        workers: team.workers,
    };
    if team.workers > 1 && shared.chunks > 1 {
        let shared = &shared;
        team.executor.run(team.workers.min(shared.chunks), &|| shared.task());
    }
    // Whatever the executor has left, or all of it.
    shared.task();
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::vec::Vec;

    use super::*;

    /// Calls tasks as often as it says, on threads of their own.
    struct Odd(usize);

    impl Parallel for Odd {
        fn workers(&self) -> usize {
            3
        }

        fn run(&self, times: usize, task: &(dyn Fn() + Sync)) {
            assert_eq!(times, 3);
            std::thread::scope(|scope| {
                for _ in 0..self.0 {
                    scope.spawn(task);
                }
            });
        }
    }

    struct Seen {
        counts: Vec<AtomicUsize>,
        busy: Vec<AtomicUsize>,
        workers: Mutex<Vec<usize>>,
    }

    unsafe extern "C" fn note(argument: *mut c_void, begin: i64, end: i64, worker: usize) {
        // SAFETY: the test hands over this type, and stays until the loop is done.
        let seen = unsafe { &*argument.cast::<Seen>() };
        assert_eq!(seen.busy[worker].fetch_add(1, Ordering::SeqCst), 0, "two calls of a worker");
        for index in begin..end {
            seen.counts[index as usize].fetch_add(1, Ordering::Relaxed);
        }
        seen.busy[worker].fetch_sub(1, Ordering::SeqCst);
        seen.workers.lock().unwrap().push(worker);
    }

    #[test]
    fn each_iteration_runs_once_however_often_an_executor_calls() {
        for (calls, count) in [(0, 50), (1, 50), (3, 50), (9, 50), (3, 3), (3, 13)] {
            let numbers = |count| (0..count).map(|_| AtomicUsize::new(0)).collect();
            let workers = Mutex::default();
            let seen = Seen { counts: numbers(count), busy: numbers(3), workers };
            let odd = Odd(calls);
            let team = Team { executor: &odd, workers: 3 };
            let (run, pool) = team.as_abi();
            let argument = (&raw const seen).cast_mut().cast();
            // SAFETY: `note` takes the argument on any thread.
            unsafe { run(pool, note, argument, count as i64) };
            assert!(seen.counts.iter().all(|count| count.load(Ordering::Relaxed) == 1));
        }
    }

    #[test]
    fn a_short_loop_does_not_leave_its_thread() {
        let seen = Seen {
            counts: std::vec![AtomicUsize::new(0)],
            busy: std::vec![AtomicUsize::new(0)],
            workers: Mutex::default(),
        };
        let odd = Odd(usize::MAX);
        let team = Team { executor: &odd, workers: 3 };
        let (run, pool) = team.as_abi();
        let argument = (&raw const seen).cast_mut().cast();
        // SAFETY: as above.
        unsafe { run(pool, note, argument, 1) };
        assert_eq!(*seen.workers.lock().unwrap(), [0]);
    }
}
