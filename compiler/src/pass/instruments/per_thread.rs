//! State that instruments keep for each thread that runs passes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

use indexmap::IndexMap;

/// One `T` for each thread, in the order in which threads first came.
///
/// A context may be entered by several threads at once, each with its own nesting of passes.
#[derive(Debug)]
pub(super) struct PerThread<T>(Mutex<IndexMap<ThreadId, T>>);

impl<T> Default for PerThread<T> {
    fn default() -> Self {
        PerThread(Mutex::new(IndexMap::new()))
    }
}

impl<T: Default> PerThread<T> {
    fn lock(&self) -> MutexGuard<'_, IndexMap<ThreadId, T>> {
        // Nothing within this crate panics while it holds the lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `f` on the state of the calling thread.
    pub(super) fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        f(self.lock().entry(std::thread::current().id()).or_default())
    }

    /// Removes and returns the state of the calling thread.
    pub(super) fn take(&self) -> T {
        self.lock().shift_remove(&std::thread::current().id()).unwrap_or_default()
    }

    /// Runs `f` on the states of all threads, in order.
    pub(super) fn all<R>(&self, f: impl FnOnce(&mut dyn Iterator<Item = &T>) -> R) -> R {
        f(&mut self.lock().values())
    }
}
