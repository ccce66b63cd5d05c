//! Models of the pool for loom, which runs each in every interleaving of its threads with a few
//! preemptions, and finds data races, deadlocks and lost wake-ups. `docs/testing.md` has the command.

use std::sync::Arc;
use std::vec::Vec;

use loom::cell::UnsafeCell;
use loom::model::Builder;

use super::*;

/// Runs a model with as many preemptions at a time.
fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// Runs a loop whose iterations write to cells of their own, and reads these: it is a race if what an
/// iteration did is not over, or an error if there was none.
fn fill(active: &Active<'_>, count: usize) {
    struct Cells(Vec<UnsafeCell<usize>>);
    // SAFETY: loom checks the accesses.
    unsafe impl Sync for Cells {}

    let cells = Cells((0..count).map(|_| UnsafeCell::new(0)).collect());
    let all = &cells;
    active.parallel_for(count, |range, worker| {
        assert!(worker < active.workers());
        for index in range {
            // SAFETY: as above.
            all.0[index].with_mut(|cell| unsafe { *cell += 1 });
        }
    });
    for cell in &cells.0 {
        // SAFETY: as above.
        assert_eq!(cell.with(|cell| unsafe { *cell }), 1);
    }
}

#[test]
fn a_loop_is_over_when_the_call_returns() {
    check(3, || {
        let pool = ThreadPool::new(2);
        fill(&pool.activate(2), 3);
    });
}

/// The second loop reuses what the first one wrote for its workers.
#[test]
fn loops_that_follow_each_other_do_not_mix() {
    check(3, || {
        let pool = ThreadPool::new(2);
        let active = pool.activate(2);
        fill(&active, 2);
        fill(&active, 3);
    });
}

/// Both iterations wait for each other, so the loop ends only if the thread was awake or is woken.
#[test]
fn a_thread_on_its_way_to_sleep_is_woken_for_work() {
    check(3, || {
        let pool = ThreadPool::new(2);
        let arrived = AtomicUsize::new(0);
        pool.activate(2).parallel_for(2, |range, _| {
            arrived.fetch_add(range.len(), Ordering::Relaxed);
            while arrived.fetch_add(0, Ordering::Relaxed) < 2 {
                yield_now();
            }
        });
    });
}

#[test]
fn a_thread_on_its_way_to_sleep_is_woken_for_the_end() {
    check(3, || {
        let pool = ThreadPool::new(2);
        drop(pool.activate(2));
        drop(pool);
    });
}

#[test]
fn three_workers_share_a_loop() {
    check(1, || {
        let pool = ThreadPool::new(3);
        fill(&pool.activate(3), 3);
    });
}

#[test]
fn callers_on_two_threads_get_along() {
    check(1, || {
        let pool = Arc::new(ThreadPool::new(2));
        let other = Arc::clone(&pool);
        let thread = loom::thread::spawn(move || fill(&other.activate(2), 2));
        fill(&pool.activate(2), 2);
        thread.join().unwrap();
        drop(pool);
    });
}
