//! One definition after the other, or side by side, with the same outcome.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{PassContext, PassError, Result};
use crate::graph::Function;
use crate::ir::GlobalVar;

/// Size of a module, in expressions or statements, below which its definitions are rewritten on the
/// calling thread.
///
/// A thread takes some 30 µs to start, in which a pass rewrites a few hundred expressions.
const MIN_PARALLEL_SIZE: usize = 2048;

/// One definition to be rewritten.
pub(super) struct Work<'a, T> {
    pub(super) global: &'a GlobalVar,
    pub(super) unit: &'a T,
    /// The graph function, if that is what it is; for remarks.
    pub(super) function: Option<&'a Function>,
    /// How much work it is.
    pub(super) size: usize,
}

/// What a definition became, and the context that heard what was said meanwhile.
type Outcome<R> = (PassContext, Result<R>);

/// Runs `body` on each definition, and hands the results to `finish` in order.
///
/// What `body` says is collected per definition and put together in order, up to the first failure
/// in that order, which is returned: nothing depends on the number of threads.
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
        inner.drain_into(cx);
        result.map(|result| finish(work.global, result))
    };

    let size: usize = work.iter().map(|work| work.size).sum();
    let workers = if size < MIN_PARALLEL_SIZE { 1 } else { cx.jobs().min(work.len()) };
    if workers <= 1 {
        return work.iter().try_for_each(|work| finish(work, run(work)));
    }
    let next = AtomicUsize::new(0);
    let first_failed = AtomicUsize::new(usize::MAX);
    let done: Vec<Mutex<Option<Outcome<R>>>> = work.iter().map(|_| Mutex::new(None)).collect();
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let _attached = ambient.attach();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    // Indices are handed out in order: all before a failure are done or under way.
                    if index >= work.len() || index > first_failed.load(Ordering::Relaxed) {
                        break;
                    }
                    let result = run(&work[index]);
                    if result.1.is_err() {
                        first_failed.fetch_min(index, Ordering::Relaxed);
                    }
                    *done[index].lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                }
            });
        }
    });
    work.iter().zip(done).try_for_each(|(work, result)| {
        let result = result.into_inner().unwrap_or_else(PoisonError::into_inner);
        finish(work, result.expect("only definitions after a failed one are left out"))
    })
}
