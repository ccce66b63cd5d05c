//! Threads of a program's own that share the loops of a model.

use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::abi::{Body, ParallelFor};

/// Chunks of a loop for each worker: a worker that comes late or is slow leaves its share to the
/// others.
pub(crate) const CHUNKS_PER_WORKER: usize = 4;

/// Most parts of a loop that workers begin at. With more workers, some begin at the same.
const MOST_PARTS: usize = 16;

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

    /// Calls `task` as [`run`](Self::run) does, with the number of a worker: below `times`, and no
    /// other one's at the same time. Says whether it did, and then all that the loop has is done.
    ///
    /// What has no numbers for its threads leaves it at that.
    #[doc(hidden)]
    fn run_numbered(&self, times: usize, task: &Numbered<'_>) -> bool {
        let _ = (times, task);
        false
    }
}

/// A loop that workers share who have numbers.
#[doc(hidden)]
#[cfg_attr(not(feature = "std"), expect(dead_code, reason = "only the pool has numbers"))]
pub struct Numbered<'a>(&'a Shared);

#[cfg(feature = "std")]
impl Numbered<'_> {
    /// Does what is left of the loop.
    pub(crate) fn call(&self, worker: usize) {
        self.0.work(worker);
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
    /// Runs a loop.
    ///
    /// # Safety
    ///
    /// The body may be called with the argument on any thread, for disjoint ranges below `count` at
    /// the same time, as any worker below `workers`.
    pub(crate) unsafe fn run(&self, body: Body, argument: *mut c_void, count: i64) {
        let shared = Shared::new(body, argument, count, self.workers);
        if self.workers > 1 && shared.chunks > 1 {
            let workers = self.workers.min(shared.chunks);
            if self.executor.run_numbered(workers, &Numbered(&shared)) {
                return;
            }
            self.executor.run(workers, &|| shared.task());
        }
        // Whatever the executor has left, or all of it.
        shared.task();
    }

    /// The fields `parallel_for` and `pool` of a [`Context`](crate::abi::Context), as long as this
    /// lives.
    pub(crate) fn as_abi(&self) -> (ParallelFor, *mut c_void) {
        (parallel_for, ptr::from_ref(self).cast_mut().cast())
    }
}

/// A loop that tasks share.
///
/// Each worker has a part of the loop that it begins at, the same in every loop, and goes on with what
/// the others have left of theirs. So what a loop reads is mostly what the same worker has written in
/// the loop before: from the cache of another core it takes some ten times as long.
///
/// All read the first line of memory, which nobody writes to; what is counted is in lines of its own. A
/// line that two cores write to goes from one to the other each time.
#[repr(C)]
struct Shared {
    body: Body,
    argument: *mut c_void,
    count: i64,
    chunks: usize,
    /// How many parts there are, at least 1.
    parts: usize,
    workers: usize,
    /// How many chunks of each part somebody has claimed, or more if there are no more.
    claimed: [Counter; MOST_PARTS],
    /// Tasks without a number that have begun: each is a worker of its own.
    begun: Counter,
}

/// A counter in a line of its own. Processors fetch lines in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicUsize);

// SAFETY: the argument goes to other threads only as the kernel promises that it may: see
// `Team::run`.
unsafe impl Sync for Shared {}

impl Shared {
    fn new(body: Body, argument: *mut c_void, count: i64, workers: usize) -> Self {
        let chunks = chunks(count, workers);
        Shared {
            body,
            argument,
            count,
            chunks,
            parts: workers.min(chunks).clamp(1, MOST_PARTS),
            workers,
            claimed: Default::default(),
            begun: Counter::default(),
        }
    }

    /// Runs chunks until none is left, as a worker whose number is how many came before.
    fn task(&self) {
        // What one task writes another one need not see: executors hand on all writes when a call
        // has returned.
        let worker = take(&self.begun.0);
        if worker < self.workers {
            self.work(worker);
        }
    }

    /// Runs chunks until none is left, those of the worker's own part first.
    fn work(&self, worker: usize) {
        for place in 0..self.parts {
            self.finish_part((worker + place) % self.parts, worker);
        }
    }

    /// Runs chunks of a part until none is left.
    fn finish_part(&self, part: usize, worker: usize) {
        let (first, end) = chunk_of(self.chunks as i64, self.parts, part);
        let (first, count) = (first as usize, (end - first) as usize);
        let claimed = &self.claimed[part].0;
        // Parts that are done are looked at, not written to: others look at them as well.
        while claimed.load(Ordering::Relaxed) < count {
            let place = take(claimed);
            if place >= count {
                return;
            }
            let (begin, end) = chunk_of(self.count, self.chunks, first + place);
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
    // SAFETY: kernels promise what is asked for.
    unsafe { team.run(body, argument, count) };
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicPtr;
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

    /// What a loop reads is where the loop before it was computed.
    #[test]
    fn each_worker_begins_at_a_part_of_its_own() {
        struct Begun {
            shared: AtomicPtr<Shared>,
            /// The first iteration of each worker.
            first: Mutex<Vec<i64>>,
        }

        /// Lets another worker do all that is left at its first chunk.
        unsafe extern "C" fn body(argument: *mut c_void, begin: i64, _end: i64, worker: usize) {
            // SAFETY: the test hands over this type, and stays until the loop is done.
            let begun = unsafe { &*argument.cast::<Begun>() };
            let mut first = begun.first.lock().unwrap();
            if first.len() == worker {
                first.push(begin);
                drop(first);
                // SAFETY: as above.
                unsafe { (*begun.shared.load(Ordering::Relaxed)).task() };
            }
        }

        for workers in [1, 2, 3, 16, 20] {
            let begun = Begun { shared: AtomicPtr::default(), first: Mutex::default() };
            let argument = (&raw const begun).cast_mut().cast();
            let count = workers * CHUNKS_PER_WORKER * 3;
            let shared = Shared::new(body, argument, count as i64, workers);
            let parts = shared.parts;
            begun.shared.store((&raw const shared).cast_mut(), Ordering::Relaxed);
            shared.task();
            let first = begun.first.into_inner().unwrap();
            assert_eq!(first.len(), workers);
            for (worker, &first) in first.iter().take(parts).enumerate() {
                let (chunk, _) = chunk_of(shared.chunks as i64, parts, worker);
                assert_eq!(first, 3 * chunk, "worker {worker} of {workers}");
            }
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
