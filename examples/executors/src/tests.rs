//! Executors compute what one thread does, and no call of a task is lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;

use niello_runtime::ThreadPool;

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

/// The outputs for one image, by a model of the caller's own.
fn probabilities_of(image: usize, executor: &dyn Parallel) -> [u32; 10] {
    let pixels = &TEST_SET[image * PIXELS..][..PIXELS];
    let image = std::array::from_fn(|at| f32::from(pixels[at]) / 16.0);
    let mut model = digits::Model::new();
    let outputs = model.run_with(executor, &digits::Inputs { image: &image });
    outputs.probabilities.map(f32::to_bits)
}

/// Whatever the others do, each run has its own results, and none waits for ever.
fn assert_shared(executor: &(dyn Parallel + Sync)) {
    let serial: Vec<_> = (0..32).map(|image| probabilities_of(image, &Serial)).collect();
    let right = |image: usize| probabilities_of(image, executor) == serial[image];
    thread::scope(|scope| {
        for caller in 0..4 {
            scope.spawn(move || assert!((0..128).all(|run| right((caller + run) % 32))));
        }
    });
}

#[test]
fn models_on_several_threads_share_an_executor() {
    let _alone = ALONE.lock();
    let pool = ThreadPool::new(3);
    assert_shared(&pool);
    // Models in a loop of the pool run on it as well, one thread each.
    let serial = probabilities_of(0, &Serial);
    pool.parallel_for(32, |range, _| {
        assert!(range.into_iter().all(|_| probabilities_of(0, &pool) == serial));
    });
    let rayon = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    assert_shared(&Rayon(&rayon));
    serving(2, || assert_shared(&CORES));
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
