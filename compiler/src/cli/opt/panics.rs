//! Where a pass panicked, for the message about it.

use std::sync::{Mutex, PoisonError};

use crate::pass::{PassError, PassErrorKind};

/// Place of the last panic, in whichever thread.
static LAST: Mutex<Option<String>> = Mutex::new(None);

/// Keeps the places of panics instead of printing them: a panic of a pass is told like any failure.
/// Whoever wants backtraces gets what Rust prints.
pub(super) fn listen() {
    if std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0") {
        return;
    }
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(ToString::to_string);
        *LAST.lock().unwrap_or_else(PoisonError::into_inner) = place;
    }));
}

/// Where the panic happened that an error is about.
pub(super) fn place_of(error: &PassError) -> Option<String> {
    match error.kind() {
        PassErrorKind::Panicked(_) => LAST.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        _ => None,
    }
}
