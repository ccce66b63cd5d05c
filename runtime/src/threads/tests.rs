//! Tests of the pool: what runs, how often and where; never how fast.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::String;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, AtomicU32};
use std::{thread, vec};

use super::*;

/// How often each of `count` indices was run.
fn tally(active: &Active<'_>, count: usize) -> Vec<u8> {
    let seen: Vec<AtomicU8> = (0..count).map(|_| AtomicU8::new(0)).collect();
    active.parallel_for(count, |range, worker| {
        assert!(worker < active.workers());
        for index in range {
            seen[index].fetch_add(1, Ordering::Relaxed);
        }
    });
    seen.into_iter().map(AtomicU8::into_inner).collect()
}

#[test]
fn every_index_runs_once_whatever_the_numbers() {
    for workers in [0, 1, 2, 3, 8] {
        let pool = ThreadPool::new(workers);
        assert!((1..=workers.max(1)).contains(&pool.workers()));
        for limit in [0, 1, 2, 100] {
            let active = pool.activate(limit);
            assert_eq!(active.workers(), limit.clamp(1, pool.workers()));
            for count in [0, 1, 2, 3, 7, 31, 32, 33, 1000] {
                assert_eq!(tally(&active, count), vec![1; count], "{workers} workers, {count}");
            }
        }
    }
}

#[test]
fn many_short_loops_after_one_another_lose_nothing() {
    let pool = ThreadPool::new(3);
    let active = pool.activate(3);
    let (mut expected, mut sum) = (0u64, 0u64);
    // Miri takes its time.
    let rounds = if cfg!(miri) { 50 } else { 20_000 };
    for round in 0..rounds {
        // What workers write is seen here, and what is written here is seen by workers.
        let values = [const { AtomicU32::new(0) }; 12];
        active.parallel_for(12, |range, _| {
            for index in range {
                values[index].store(round as u32 + index as u32, Ordering::Relaxed);
            }
        });
        sum += values.iter().map(|value| u64::from(value.load(Ordering::Relaxed))).sum::<u64>();
        expected += 12 * round + 66;
    }
    assert_eq!(sum, expected);
}

/// Both ranges of a loop wait for each other, so it ends only if two threads run it.
#[test]
fn workers_run_at_the_same_time_also_after_they_slept() {
    let pool = ThreadPool::new(2);
    assert_eq!(pool.workers(), 2, "the system has no thread to give");
    for pause in [0, 0, 5] {
        thread::sleep(LINGER * pause);
        let active = pool.activate(2);
        let (meeting, met) = (Barrier::new(2), AtomicUsize::new(0));
        // A caller claims what nobody else does, so only the first two chunks meet, and the caller
        // waits for the other before it can claim the second.
        let arrived = AtomicUsize::new(0);
        active.parallel_for(8, |_, worker| {
            let first_of_worker =
                arrived.fetch_or(1 << worker, Ordering::SeqCst) & 1 << worker == 0;
            if first_of_worker {
                meeting.wait();
                met.fetch_add(1, Ordering::SeqCst);
            }
        });
        assert_eq!(met.into_inner(), 2);
    }
}

#[test]
fn a_busy_pool_means_that_loops_run_where_they_are_called() {
    let pool = ThreadPool::new(2);
    let active = pool.activate(2);
    active.parallel_for(4, |_, _| {
        let outer = thread::current().id();
        active.parallel_for(3, |range, worker| {
            assert_eq!((range, worker, thread::current().id()), (0..3, 0, outer));
        });
    });
}

/// So do tasks, as when a loop of a program runs models on the pool that runs the loop.
#[test]
fn a_busy_pool_leaves_the_calls_of_a_task_to_its_caller() {
    let pool = ThreadPool::new(3);
    let (outer, inner) = (AtomicUsize::new(0), AtomicUsize::new(0));
    pool.during(3, &mut || {
        Parallel::run(&pool, 3, &|| {
            outer.fetch_add(1, Ordering::Relaxed);
            let here = thread::current().id();
            pool.during(3, &mut || {
                Parallel::run(&pool, 3, &|| {
                    assert_eq!(thread::current().id(), here);
                    inner.fetch_add(1, Ordering::Relaxed);
                });
            });
        });
    });
    // The outer loop keeps the pool busy until the last of its calls has returned.
    assert_eq!((outer.into_inner(), inner.into_inner()), (3, 9));
    assert!(pool.shared.slots.iter().all(|slot| slot.wanted.load(Ordering::SeqCst) == 0));
}

#[test]
fn callers_on_several_threads_share_one_pool() {
    let pool = ThreadPool::new(3);
    thread::scope(|scope| {
        for caller in 0..4 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..200 {
                    let active = pool.activate(1 + (caller + round) % 3);
                    let count = 17 * caller + round;
                    assert_eq!(tally(&active, count), vec![1; count]);
                }
            });
        }
    });
    assert!(pool.shared.slots.iter().all(|slot| slot.wanted.load(Ordering::SeqCst) == 0));
}

/// Runs of models on one pool: each loop is done once, be the pool busy or not, and by none of more
/// workers than there is memory for.
#[test]
fn runs_on_several_threads_share_one_pool() {
    struct Counts {
        cells: Vec<AtomicUsize>,
        most: usize,
    }

    unsafe extern "C" fn body(counts: *mut c_void, begin: i64, end: i64, worker: usize) {
        // SAFETY: the loops below hand over this type, and stay until they are done.
        let counts = unsafe { &*counts.cast::<Counts>() };
        assert!(worker < counts.most);
        for cell in &counts.cells[begin as usize..end as usize] {
            cell.fetch_add(1, Ordering::Relaxed);
        }
    }

    let pool = ThreadPool::new(3);
    thread::scope(|scope| {
        for caller in 0..4 {
            let pool = &pool;
            scope.spawn(move || {
                for round in 0..200 {
                    let (most, count) = (1 + (caller + round) % 3, 17 * caller + round);
                    let cells = (0..count).map(|_| AtomicUsize::new(0)).collect();
                    let counts = Counts { cells, most };
                    let team = Team { executor: pool, workers: most };
                    let (run, of) = team.as_abi();
                    let argument = (&raw const counts).cast_mut().cast();
                    pool.during(most, &mut || {
                        // SAFETY: `body` takes the argument on any thread.
                        unsafe { run(of, body, argument, count as i64) };
                    });
                    assert!(counts.cells.iter().all(|cell| cell.load(Ordering::Relaxed) == 1));
                }
            });
        }
    });
    assert!(pool.shared.slots.iter().all(|slot| slot.wanted.load(Ordering::SeqCst) == 0));
}

#[test]
fn a_panic_during_a_run_lets_the_pool_sleep() {
    let pool = ThreadPool::new(2);
    let run = || pool.during(2, &mut || panic!("a caller fails"));
    assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
    assert!(pool.shared.slots.iter().all(|slot| slot.wanted.load(Ordering::SeqCst) == 0));
    assert_eq!(tally(&pool.activate(2), 100), vec![1; 100]);
}

#[test]
fn a_panic_comes_out_of_the_call_and_the_pool_goes_on() {
    let pool = ThreadPool::new(2);
    for bad in [0, 7] {
        let ran = AtomicUsize::new(0);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            pool.parallel_for(8, |range, _| {
                ran.fetch_add(range.len(), Ordering::Relaxed);
                assert!(!range.contains(&bad), "range {bad} fails");
            });
        }));
        let payload = caught.unwrap_err();
        assert_eq!(*payload.downcast_ref::<String>().unwrap(), std::format!("range {bad} fails"));
        assert_eq!(ran.into_inner(), 8);
    }
    assert_eq!(tally(&pool.activate(2), 100), vec![1; 100]);
}

#[test]
fn a_pool_can_be_dropped_awake_or_asleep() {
    for pause in [0, 3] {
        let pool = ThreadPool::new(4);
        pool.parallel_for(16, |_, _| {});
        thread::sleep(LINGER * pause);
        let shared = Arc::downgrade(&pool.shared);
        drop(pool);
        assert!(shared.upgrade().is_none(), "a thread is left");
    }
}

#[test]
fn kernels_run_through_the_binary_interface() {
    /// Adds 1 to each of the 32-bit numbers at the argument.
    unsafe extern "C" fn body(argument: *mut c_void, begin: i64, end: i64, _worker: usize) {
        for index in begin..end {
            // SAFETY: the test hands over as many numbers as it counts.
            unsafe { *argument.cast::<u32>().add(index as usize) += 1 };
        }
    }

    let active = ThreadPool::global().activate(usize::MAX);
    assert_eq!(active.workers(), ThreadPool::global().workers());
    let (run, pool) = active.as_abi();
    let mut numbers = [0u32; 77];
    for count in [77, 0, -1] {
        // SAFETY: `body` takes such an argument, and `active` lives.
        unsafe { run(pool, body, numbers.as_mut_ptr().cast(), count) };
    }
    assert_eq!(numbers, [1; 77]);
}

#[test]
fn chunks_cover_the_largest_count() {
    /// Counts how many iterations it was given, and notes the last.
    unsafe extern "C" fn body(argument: *mut c_void, begin: i64, end: i64, _worker: usize) {
        // SAFETY: the test hands over two numbers.
        let [total, last] = unsafe { &mut *argument.cast::<[i64; 2]>() };
        *total += end - begin;
        *last = end;
    }

    let mut seen = [0i64; 2];
    let argument = (&raw mut seen).cast();
    let whole = Loop { body, argument, count: i64::MAX, chunks: 4096 };
    for chunk in 0..whole.chunks {
        // SAFETY: the body takes this argument.
        unsafe { whole.run(chunk, 0) };
    }
    assert_eq!(seen, [i64::MAX; 2]);
}

/// What a loop reads is where the same thread has computed it in the loop before.
#[test]
fn threads_begin_at_the_same_part_of_each_loop() {
    const WORKERS: usize = 3;

    struct Begun {
        first: Mutex<BTreeMap<String, i64>>,
        here: AtomicUsize,
    }

    /// At its first chunk, each thread waits for all others.
    unsafe extern "C" fn body(argument: *mut c_void, begin: i64, _end: i64, _worker: usize) {
        // SAFETY: the test hands over this type, and stays until the loop is done.
        let begun = unsafe { &*argument.cast::<Begun>() };
        let name = std::format!("{:?}", thread::current().id());
        if let Entry::Vacant(entry) = begun.first.lock().unwrap().entry(name) {
            entry.insert(begin);
        } else {
            return;
        }
        begun.here.fetch_add(1, Ordering::Relaxed);
        while begun.here.load(Ordering::Relaxed) < WORKERS {
            thread::yield_now();
        }
    }

    let pool = ThreadPool::new(WORKERS);
    let _awake = pool.activate(WORKERS);
    let mut loops = Vec::new();
    for _ in 0..100 {
        let begun = Begun { first: Mutex::default(), here: AtomicUsize::new(0) };
        let team = Team { executor: &pool, workers: WORKERS };
        let argument = (&raw const begun).cast_mut().cast();
        // SAFETY: the body takes the argument on any thread.
        unsafe { team.run(body, argument, 24) };
        loops.push(begun.first.into_inner().unwrap());
    }
    assert_eq!(loops[0].values().copied().collect::<BTreeSet<i64>>(), BTreeSet::from([0, 8, 16]));
    assert!(loops.iter().all(|first| *first == loops[0]), "{loops:?}");
}
