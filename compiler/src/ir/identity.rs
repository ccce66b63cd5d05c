//! Which shared data is which, without keeping it alive.

use std::any::Any;
use std::sync::{Arc, Weak};

/// Tells the data behind a handle from all other data.
///
/// It does not keep the data alive. As long as it exists no other data can take the place of that
/// data in memory, and data that is changed in place through its only handle becomes other data.
#[derive(Clone, Debug)]
pub(crate) struct Identity(Weak<dyn Any + Send + Sync>);

impl Identity {
    /// That of the data of a handle.
    pub(crate) fn of<T: Any + Send + Sync>(data: &Arc<T>) -> Identity {
        let weak: Weak<T> = Arc::downgrade(data);
        Identity(weak)
    }

    /// A number that no other data has while this exists.
    pub(crate) fn address(&self) -> usize {
        self.0.as_ptr().addr()
    }

    /// Whether a handle to the data is left.
    pub(crate) fn is_alive(&self) -> bool {
        self.0.strong_count() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_changed_in_place_becomes_other_data() {
        let mut data = Arc::new(1);
        let before = Identity::of(&data);
        assert_eq!(before.address(), Identity::of(&data.clone()).address());
        *Arc::make_mut(&mut data) = 2;
        assert!(!before.is_alive());
        assert_ne!(before.address(), Identity::of(&data).address());
    }
}
