//! Runs work on each definition of a module, on one or several threads, with the same outcome.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{PassContext, PassError, Result};
use crate::graph::Function;
use crate::ir::GlobalVar;
use crate::parallel;

/// How long the calling thread works alone before others join it.
///
/// A thread takes some 30 µs to start and to end. So passes that have little to do pay nothing for
/// threads, and those that take long lose a tenth of a millisecond.
const ALONE: Duration = Duration::from_micros(100);

/// Size of a definition, in expressions or statements, that is assumed to take longer than
/// [`ALONE`]: threads start before it rather than after.
const LARGE: usize = 32_768;

/// One definition for the body to rewrite.
pub(super) struct Work<'a, T> {
    pub(super) global: &'a GlobalVar,
    pub(super) unit: &'a T,
    /// The definition, if it is a graph function; for remarks.
    pub(super) function: Option<&'a Function>,
    /// The size of the definition, in expressions or statements.
    pub(super) size: usize,
}

/// The new definition, and the context with the diagnostics and remarks of its rewriting.
type Outcome<R> = (PassContext, Result<R>);

/// Runs `body` on each definition, and hands the results to `finish` in order.
///
/// Diagnostics and remarks are collected per definition and joined in order, up to the first
/// failure in that order, which is returned: nothing depends on the number of threads.
pub(super) fn fan_out<T: Sync, R: Send>(
    work: &[Work<'_, T>],
    cx: &PassContext,
    body: impl Fn(&T, &PassContext) -> Result<R> + Sync,
    mut finish: impl FnMut(&GlobalVar, R),
) -> Result<()> {
    let ambient = PassContext::current();
    let run = |work: &Work<'_, T>| {
        let inner = cx.for_definition(work.global, work.function);
        let result = {
            let _installed = inner.install();
            catch_unwind(AssertUnwindSafe(|| body(work.unit, &inner)))
        };
        let result = result.unwrap_or_else(|payload| Err(PassError::from_panic(&*payload)));
        (inner, result.map_err(|error| error.about(work.global)))
    };
    let mut finish = |work: &Work<'_, T>, (inner, result): Outcome<R>| {
        cx.absorb(inner.take_records());
        result.map(|result| finish(work.global, result))
    };

    let threads = cx.jobs().min(work.len());
    if threads <= 1 {
        return work.iter().try_for_each(|work| finish(work, run(work)));
    }
    let next = AtomicUsize::new(0);
    let first_failed = AtomicUsize::new(usize::MAX);
    let done: Vec<Mutex<Option<Outcome<R>>>> = work.iter().map(|_| Mutex::new(None)).collect();
    // Rewrites one definition; false if none is left, or an earlier one has failed. Indices are
    // handed out in order, so all definitions before a failure are done or under way.
    let step = || {
        let index = next.fetch_add(1, Ordering::Relaxed);
        if index >= work.len() || index > first_failed.load(Ordering::Relaxed) {
            return false;
        }
        let result = run(&work[index]);
        if result.1.is_err() {
            first_failed.fetch_min(index, Ordering::Relaxed);
        }
        *done[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        true
    };
    let begun = Instant::now();
    let mut more = true;
    while more && begun.elapsed() < ALONE {
        if work.get(next.load(Ordering::Relaxed)).is_some_and(|work| work.size >= LARGE) {
            break;
        }
        more = step();
    }
    let left = work.len().saturating_sub(next.load(Ordering::Relaxed));
    if more && left > 0 {
        parallel::together(threads.min(left), || {
            let _attached = ambient.attach();
            while step() {}
        });
    }
    work.iter().zip(done).try_for_each(|(work, result)| {
        let result = result.into_inner().unwrap_or_else(PoisonError::into_inner);
        finish(work, result.expect("only definitions after a failed one are left out"))
    })
}
