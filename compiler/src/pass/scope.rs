//! The stack of entered contexts, one per thread.
//!
//! Hooks of instruments run while the stack is not borrowed, so they may enter and leave contexts
//! themselves.

use std::cell::RefCell;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{PassContext, PassError, PassErrorKind, Result};

struct Entry {
    cx: PassContext,
    token: u64,
    hooks: Hooks,
    /// Left while an inner entry was active: removed as soon as it is the innermost.
    closed: bool,
}

/// Whether instruments are told when an entry is left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hooks {
    Run,
    None,
}

thread_local! {
    static STACK: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
    static DEFAULT: PassContext = PassContext::default();
    static DEFERRED: RefCell<Vec<PassError>> = const { RefCell::new(Vec::new()) };
}

/// Runs `f` on this thread's stack; `None` if the thread is ending.
fn with_stack<T>(f: impl FnOnce(&mut Vec<Entry>) -> T) -> Option<T> {
    STACK.try_with(|stack| f(&mut stack.borrow_mut())).ok()
}

/// A number that no other entry of any thread has.
fn new_token() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

fn push(cx: PassContext, token: u64, hooks: Hooks) {
    with_stack(|stack| stack.push(Entry { cx, token, hooks, closed: false }));
}

/// Takes the entry of that token off the stack, innermost first, with the entries above it if
/// `deeper`, and with the entries directly below it that were left earlier.
fn pop(token: u64, deeper: bool) -> Result<Vec<Entry>> {
    with_stack(|stack| {
        let Some(position) = stack.iter().rposition(|entry| entry.token == token) else {
            // An enclosing scope has ended already.
            return Ok(Vec::new());
        };
        if position + 1 < stack.len() && !deeper {
            stack[position].closed = true;
            return Err(PassErrorKind::NotInnermost.into());
        }
        let mut popped: Vec<Entry> = stack.drain(position..).rev().collect();
        while stack.last().is_some_and(|entry| entry.closed) {
            popped.extend(stack.pop());
        }
        Ok(popped)
    })
    .unwrap_or_else(|| Ok(Vec::new()))
}

fn leave(token: u64, deeper: bool) -> Result<()> {
    let mut errors = Vec::new();
    for entry in pop(token, deeper)?.into_iter().filter(|entry| entry.hooks == Hooks::Run) {
        errors.extend(entry.cx.leave_instruments(entry.token).err());
    }
    let mut errors = errors.into_iter();
    match errors.next() {
        None => Ok(()),
        Some(first) => Err(first.followed_by(errors)),
    }
}

/// Errors on leaving contexts whose guard was dropped, which cannot return them; of this thread,
/// oldest first.
pub fn take_deferred_errors() -> Vec<PassError> {
    DEFERRED.try_with(|errors| std::mem::take(&mut *errors.borrow_mut())).unwrap_or_default()
}

/// Keeps a context current until it is dropped. Stays on its thread.
#[must_use = "the context is left as soon as the guard is dropped"]
#[derive(Debug)]
pub struct ScopeGuard {
    token: u64,
    deeper: bool,
    left: bool,
    not_send: PhantomData<*const ()>,
}

impl ScopeGuard {
    /// Leaves the context and returns any error, which dropping the guard cannot.
    ///
    /// # Errors
    ///
    /// If an instrument's exit hook fails: the context loses its instruments. Or if a context that
    /// was entered later is still active: nothing happens until that one is left.
    pub fn exit(mut self) -> Result<()> {
        self.left = true;
        leave(self.token, self.deeper)
    }
}

impl Drop for ScopeGuard {
    fn drop(&mut self) {
        if self.left {
            return;
        }
        if let Err(error) = leave(self.token, self.deeper) {
            // The thread is ending, so the error is lost.
            let _ = DEFERRED.try_with(|errors| errors.borrow_mut().push(error));
        }
    }
}

/// Keeps a context current without telling instruments.
#[must_use = "the context is no longer current as soon as the guard is dropped"]
#[derive(Debug)]
pub struct AttachGuard {
    token: Option<u64>,
    not_send: PhantomData<*const ()>,
}

impl Drop for AttachGuard {
    fn drop(&mut self) {
        // An attached entry has no hooks; entries above it that were never left go with it.
        if let Some(token) = self.token
            && let Err(error) = leave(token, true)
        {
            let _ = DEFERRED.try_with(|errors| errors.borrow_mut().push(error));
        }
    }
}

impl PassContext {
    /// The innermost context that this thread has entered, else the thread's own default one.
    pub fn current() -> PassContext {
        with_stack(|stack| stack.last().map(|entry| entry.cx.clone()))
            .flatten()
            .or_else(|| DEFAULT.try_with(PassContext::clone).ok())
            .unwrap_or_default()
    }

    /// How many contexts this thread has entered and not left.
    pub fn depth() -> usize {
        with_stack(|stack| stack.len()).unwrap_or(0)
    }

    /// Makes this the current context of the thread until the guard goes. Instruments' enter hooks
    /// run before, and exit hooks after, so both see the outer context as the current one.
    ///
    /// # Errors
    ///
    /// If an enter hook fails: the instruments before it are left again, the context loses its
    /// instruments and does not become current.
    pub fn enter(&self) -> Result<ScopeGuard> {
        let token = new_token();
        self.enter_instruments(token)?;
        push(self.clone(), token, Hooks::Run);
        Ok(ScopeGuard { token, deeper: false, left: false, not_send: PhantomData })
    }

    /// Runs `body` with this as the current context. However `body` ends, the stack is the same
    /// afterwards as before.
    ///
    /// # Errors
    ///
    /// The errors of `body`, of entering and of leaving; an error that follows another is
    /// [secondary](PassError::secondary).
    pub fn scope<T>(&self, body: impl FnOnce(&PassContext) -> Result<T>) -> Result<T> {
        let mut guard = self.enter()?;
        // Guards that the body forgot are left with the scope.
        guard.deeper = true;
        let result = body(self);
        match (result, guard.exit()) {
            (Ok(value), Ok(())) => Ok(value),
            (Ok(_), Err(error)) => Err(error),
            (Err(error), exit) => Err(error.followed_by(exit.err())),
        }
    }

    /// Makes this the current context of a worker thread, without calling instruments: they were
    /// called on the thread that entered the context.
    pub fn attach(&self) -> AttachGuard {
        let token = new_token();
        push(self.clone(), token, Hooks::None);
        AttachGuard { token: Some(token), not_send: PhantomData }
    }

    /// A future under which this is the current context while it is polled, on whatever thread that
    /// is. A [`ScopeGuard`] stays on its thread, and so cannot be held while a task waits.
    pub fn wrap<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        let cx = self.clone();
        let mut future = Box::pin(future);
        std::future::poll_fn(move |task| {
            let _attached = cx.attach();
            future.as_mut().poll(task)
        })
    }

    /// Makes this the current context if the current one is the same context, so that records
    /// emitted through [`current`](Self::current) go to this one's sink.
    pub(super) fn install(&self) -> AttachGuard {
        if PassContext::current().same(self) {
            self.attach()
        } else {
            AttachGuard { token: None, not_send: PhantomData }
        }
    }
}
