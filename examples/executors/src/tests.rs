//! Executors compute what one thread does, and no call of a task is lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;

use super::*;

/// Tests that count the cores that serve run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn assert_same(found: &[f32], serial: &[f32]) {
    assert!(bits(found).eq(bits(serial)));
    assert!(percent(found) > 98.0);
}

#[test]
fn every_executor_computes_what_one_thread_does() {
    let _alone = ALONE.lock();
    let serial = probabilities(&Serial);
    for threads in [1, 2, 3, 7] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        assert_eq!(Rayon(&pool).workers(), threads + 1);
        assert_same(&probabilities(&Rayon(&pool)), &serial);
        // A thread of the pool may run the model as well.
        let (workers, found) =
            pool.install(|| (Rayon(&pool).workers(), probabilities(&Rayon(&pool))));
        assert_eq!(workers, threads);
        assert_same(&found, &serial);
        assert_same(&serving(threads, || probabilities(&CORES)), &serial);
    }
    // Nobody serves any more.
    assert_eq!(CORES.workers(), 1);
    assert_same(&probabilities(&CORES), &serial);
}

/// Calls wait for each other, so the loop ends only if they run at the same time.
fn meets(executor: &dyn Parallel, times: usize) {
    let (meeting, calls) = (Barrier::new(times), AtomicUsize::new(0));
    executor.run(times, &|| {
        calls.fetch_add(1, Ordering::Relaxed);
        meeting.wait();
    });
    assert_eq!(calls.into_inner(), times);
}

#[test]
fn calls_run_at_the_same_time() {
    let _alone = ALONE.lock();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    meets(&Rayon(&pool), 4);
    pool.install(|| meets(&Rayon(&pool), 3));
}

/// Each call notes what it did before it ends, which the core that runs the loop sees.
#[test]
fn loops_on_cores_are_over_when_they_return() {
    let _alone = ALONE.lock();
    serving(3, || {
        for round in 0..2000 {
            let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
            CORES.run(1 + round % 4, &|| {
                begun.fetch_add(1, Ordering::Relaxed);
                hint::spin_loop();
                ended.fetch_add(1, Ordering::Relaxed);
            });
            let (begun, ended) = (begun.into_inner(), ended.into_inner());
            assert_eq!(begun, ended);
            assert!((1..=1 + round % 4).contains(&begun), "{begun} calls in round {round}");
        }
    });
}

#[test]
fn a_busy_executor_leaves_a_loop_to_its_caller() {
    let _alone = ALONE.lock();
    serving(2, || {
        let calls = AtomicUsize::new(0);
        CORES.run(3, &|| {
            let outer = thread::current().id();
            CORES.run(3, &|| {
                assert_eq!(thread::current().id(), outer);
            });
            calls.fetch_add(1, Ordering::Relaxed);
        });
        assert!((1..=3).contains(&calls.into_inner()));
    });
}

#[test]
fn cores_go_on_after_a_task_that_panics() {
    let _alone = ALONE.lock();
    let serial = probabilities(&Serial);
    serving(2, || {
        let caller = thread::current().id();
        let fails = || {
            CORES.run(3, &|| assert_ne!(thread::current().id(), caller, "the caller's call fails"));
        };
        assert!(catch_unwind(AssertUnwindSafe(fails)).is_err());
        assert_same(&probabilities(&CORES), &serial);
    });
}
