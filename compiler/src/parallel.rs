//! Work on a list by several threads, no more of them than the jobserver of Cargo or make allows.
//!
//! A process that runs under a jobserver has one token from the start, with which the calling
//! thread works at once. Each further thread takes a token before it begins, and gives it back when
//! nothing is left to do; while none is free, the calling thread goes on alone.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use jobserver::{Acquired, Client, HelperThread};

/// The jobserver that started this process, as `CARGO_MAKEFLAGS` or `MAKEFLAGS` name it. One that
/// cannot be used counts for none.
pub(crate) fn jobserver() -> Option<&'static Client> {
    static SERVER: OnceLock<Option<Client>> = OnceLock::new();
    let find = || {
        // SAFETY: the descriptors are those that the environment names, and are checked to be
        // pipes.
        let client = unsafe { Client::from_env_ext(true) }.client.ok()?;
        // Where no thread can wait for tokens, none would ever come.
        client.clone().into_helper_thread(|_| {}).ok()?;
        Some(client)
    };
    SERVER.get_or_init(find).as_ref()
}

/// Applies `f` to each item with up to `jobs` threads; results come back in the items' order.
pub(crate) fn map<T: Sync, R: Send>(
    items: &[T],
    jobs: usize,
    f: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    map_under(jobserver(), items, jobs, f)
}

/// As [`map`], with tokens of `server`.
pub(crate) fn map_under<T: Sync, R: Send>(
    server: Option<&Client>,
    items: &[T],
    jobs: usize,
    f: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let jobs = jobs.min(items.len());
    if jobs <= 1 {
        return items.iter().map(f).collect();
    }
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<(usize, R)>> = Mutex::new(Vec::with_capacity(items.len()));
    together_under(server, jobs, || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { break };
            done.push((index, f(item)));
        }
        results.lock().unwrap_or_else(PoisonError::into_inner).append(&mut done);
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// Calls `work` on this thread and on up to `jobs - 1` others at the same time. The others may
/// begin late or never: `work` of this thread returns when nothing is left to do.
pub(crate) fn together(jobs: usize, work: impl Fn() + Sync) {
    together_under(jobserver(), jobs, work);
}

fn together_under(server: Option<&Client>, jobs: usize, work: impl Fn() + Sync) {
    let others = jobs.saturating_sub(1);
    let (grant, granted) = mpsc::channel::<Option<Acquired>>();
    let granted = Mutex::new(granted);
    let tokens: Option<HelperThread> = server.and_then(|server| {
        let grant = grant.clone();
        let hand_on = move |token: std::io::Result<Acquired>| {
            // A token that nobody waits for any more is given back as it is dropped.
            let _ = token.map(|token| grant.send(Some(token)));
        };
        server.clone().into_helper_thread(hand_on).ok()
    });
    thread::scope(|scope| {
        let other = || {
            // The token is held until the work is done.
            let _token = match server {
                Some(_) => match next_token(&granted) {
                    Some(token) => Some(token),
                    None => return,
                },
                None => None,
            };
            work();
        };
        // Where no thread can be started, there is one fewer.
        let started = (0..others)
            .map_while(|_| thread::Builder::new().spawn_scoped(scope, other).ok())
            .inspect(|_| tokens.iter().for_each(HelperThread::request_token));
        let started: Vec<_> = started.collect();
        let own = catch_unwind(AssertUnwindSafe(&work));
        // Those that still wait have nothing left to do.
        started.iter().for_each(|_| drop(grant.send(None)));
        let panics = started.into_iter().filter_map(|other| other.join().err());
        if let Some(panic) = own.err().into_iter().chain(panics).next() {
            resume_unwind(panic);
        }
    });
}

/// Waits for a token; none if the work is done.
fn next_token(granted: &Mutex<Receiver<Option<Acquired>>>) -> Option<Acquired> {
    granted.lock().unwrap_or_else(PoisonError::into_inner).recv().ok().flatten()
}

#[cfg(test)]
mod tests {
    use std::sync::Condvar;
    use std::time::Duration;

    use super::*;

    #[test]
    fn results_are_in_order_whatever_the_number_of_threads() {
        let items: Vec<u64> = (0..100).collect();
        let expected: Vec<u64> = items.iter().map(|item| item * item).collect();
        for jobs in [0, 1, 3, 200] {
            assert_eq!(map(&items, jobs, |item| item * item), expected);
        }
        assert_eq!(map(&[] as &[u64], 4, |item| *item), Vec::<u64>::new());
    }

    /// How many are at work, and how many were at most.
    #[derive(Default)]
    struct Gauge {
        state: Mutex<(usize, usize)>,
        changed: Condvar,
    }

    impl Gauge {
        /// Counts a piece of work that goes on until so many have been at work at a time.
        fn work_until(&self, together: usize) {
            let mut state = self.state.lock().unwrap();
            state.0 += 1;
            state.1 = state.1.max(state.0);
            self.changed.notify_all();
            let patience = Duration::from_secs(60);
            let waited =
                self.changed.wait_timeout_while(state, patience, |state| state.1 < together);
            let (mut state, _) = waited.unwrap();
            state.0 -= 1;
        }

        fn most(&self) -> usize {
            self.state.lock().unwrap().1
        }
    }

    #[test]
    fn each_thread_but_the_first_has_a_token() {
        let items: Vec<usize> = (0..50).collect();
        for tokens in [0, 1, 3] {
            let server = Client::new(tokens).unwrap();
            let gauge = Gauge::default();
            let done = map_under(Some(&server), &items, 8, |item| {
                gauge.work_until(tokens + 1);
                *item
            });
            assert_eq!((done, gauge.most()), (items.clone(), tokens + 1));
            assert_eq!(server.available().unwrap(), tokens, "tokens that were not given back");
        }
    }

    #[test]
    fn a_token_that_comes_free_is_taken_while_the_work_goes_on() {
        let server = Client::new(1).unwrap();
        let held = Mutex::new(Some(server.acquire().unwrap()));
        let gauge = Gauge::default();
        map_under(Some(&server), &[0; 4], 2, |_| {
            drop(held.lock().unwrap().take());
            gauge.work_until(2);
        });
        assert_eq!(gauge.most(), 2);
        assert_eq!(server.available().unwrap(), 1);
    }

    #[test]
    fn a_panic_arrives_and_costs_no_token() {
        for bad in [0, 1] {
            let server = Client::new(1).unwrap();
            let gauge = Gauge::default();
            let map = || {
                map_under(Some(&server), &[0, 1], 2, |&item| {
                    gauge.work_until(2);
                    assert_ne!(item, bad, "bad item");
                })
            };
            let panic = catch_unwind(AssertUnwindSafe(map)).unwrap_err();
            assert!(panic.downcast_ref::<String>().unwrap().contains("bad item"));
            assert_eq!(server.available().unwrap(), 1);
        }
    }
}
