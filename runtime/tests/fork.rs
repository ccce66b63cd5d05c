//! The child of a fork, which has none of a pool's threads, runs loops by itself and ends.

#![cfg(all(unix, not(miri), feature = "std"))]

use core::ffi::{c_int, c_uint};
use core::mem::ManuallyDrop;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use niello_runtime::ThreadPool;

unsafe extern "C" {
    fn fork() -> c_int;
    fn waitpid(child: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn alarm(seconds: c_uint) -> c_uint;
    fn _exit(status: c_int) -> !;
}

/// The sum of the numbers below 1000, by a loop of the pool.
fn sum(pool: &ThreadPool) -> u64 {
    let sum = AtomicU64::new(0);
    pool.parallel_for(1000, |range, _| {
        sum.fetch_add(range.map(|index| index as u64).sum(), Ordering::Relaxed);
    });
    sum.into_inner()
}

/// Has a child do something, and returns its status: that of a signal if it takes a minute.
fn in_child(what: impl FnOnce() -> bool) -> c_int {
    // SAFETY: the child allocates, which the system's library allows, and takes no lock that another
    // thread of this process may hold; it ends without anything that this process would do.
    unsafe {
        let child = fork();
        if child == 0 {
            alarm(60);
            _exit(c_int::from(!what()));
        }
        assert!(child > 0, "no process can be started");
        let mut status = 0;
        assert_eq!(waitpid(child, &raw mut status, 0), child);
        status
    }
}

/// Loops of the child, and the end of the pool in it.
fn child(pool: ThreadPool) -> bool {
    let right = (0..3).all(|_| sum(&pool) == 499_500);
    drop(pool);
    right
}

#[test]
fn a_pool_that_spins_or_sleeps() {
    for pause in [0, 20] {
        let pool = ThreadPool::new(3);
        assert_eq!(sum(&pool), 499_500);
        thread::sleep(Duration::from_millis(pause));
        // The pool is dropped in the child; here it is kept, and goes on.
        let pool = ManuallyDrop::new(pool);
        // SAFETY: a bitwise copy in another process, where nothing else uses it.
        let copy = || unsafe { core::ptr::read(&*pool) };
        assert_eq!(in_child(|| child(copy())), 0, "after {pause} ms");
        assert_eq!(sum(&pool), 499_500);
        drop(ManuallyDrop::into_inner(pool));
    }
}

#[test]
fn a_pool_in_the_middle_of_a_loop() {
    let pool = ThreadPool::new(2);
    let (begun, end) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            pool.parallel_for(8, |range, _| {
                // The caller's own chunk, which keeps the pool busy.
                if range.contains(&0) {
                    begun.wait();
                    end.wait();
                }
            });
        });
        begun.wait();
        assert_eq!(in_child(|| sum(&pool) == 499_500), 0);
        end.wait();
    });
    assert_eq!(sum(&pool), 499_500);
}
