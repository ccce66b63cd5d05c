//! The state of a running list of passes: results that hold, and properties of the module.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::property::Properties;
use super::{PassInfo, PassKind, Property, names};
use crate::ir::IRModule;

/// The state of a running list of passes; shared with the lists within it.
#[derive(Clone, Default, Debug)]
pub(super) struct Progress(Arc<Mutex<State>>);

#[derive(Default, Debug)]
struct State {
    /// Passes whose results still hold, by canonical name.
    holding: Vec<String>,
    properties: Properties,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the result of a pass still holds, so that it need not run again.
    pub(super) fn holds(&self, info: &PassInfo) -> bool {
        self.lock().holding.contains(&names::canonical(info.name()))
    }

    /// Whether a module has a property, because a pass has set it or a look at the module shows it.
    pub(super) fn has(&self, property: &Property, module: &IRModule) -> bool {
        let set = self.lock().properties.contains(property);
        set || property.holds(module) == Some(true)
    }

    pub(super) fn properties(&self) -> Properties {
        self.lock().properties.clone()
    }

    /// A state of its own that begins as this one is.
    pub(super) fn fork(&self) -> Progress {
        let State { holding, properties } = &*self.lock();
        let state = State { holding: holding.clone(), properties: properties.clone() };
        Progress(Arc::new(Mutex::new(state)))
    }

    /// Makes this the state in which only what holds in both states holds.
    pub(super) fn meet(&self, other: &Progress) {
        let (holding, properties) = {
            let other = other.lock();
            (other.holding.clone(), other.properties.clone())
        };
        let mut state = self.lock();
        state.holding.retain(|name| holding.contains(name));
        state.properties.keep(&properties);
    }

    /// Makes this the same state as the other.
    pub(super) fn become_like(&self, other: &Progress) {
        let (holding, properties) = {
            let other = other.lock();
            (other.holding.clone(), other.properties.clone())
        };
        *self.lock() = State { holding, properties };
    }

    /// Records that a pass has run, or that it had nothing to do.
    pub(super) fn ran(&self, info: &PassInfo, changed: bool) {
        let mut state = self.lock();
        // The passes of a list have been recorded one by one.
        if changed && info.kind() != PassKind::Sequential {
            state.holding.retain(|name| info.preserves().contains(name));
        }
        if changed {
            state.properties.clear(info.clears());
        }
        state.properties.set(info.sets());
        let name = names::canonical(info.name());
        if !state.holding.contains(&name) {
            state.holding.push(name);
        }
    }
}
