//! What the pool is synchronised with: the standard library's, or in a build with `--cfg loom` loom's,
//! which tries every interleaving of a test.

#[cfg(not(all(loom, test)))]
mod real {
    pub(in crate::threads) use core::hint::spin_loop;
    pub(in crate::threads) use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
    pub(in crate::threads) use std::thread::{Builder, JoinHandle, park, yield_now};

    /// As [`core::cell::UnsafeCell`], with the calls that loom's has.
    pub(in crate::threads) struct Cell<T>(core::cell::UnsafeCell<T>);

    impl<T> Cell<T> {
        pub(in crate::threads) fn new(value: T) -> Self {
            Cell(core::cell::UnsafeCell::new(value))
        }

        /// What `read` makes of a pointer that it only reads by.
        pub(in crate::threads) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        /// What `write` makes of a pointer that it may write by.
        pub(in crate::threads) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}

#[cfg(all(loom, test))]
mod real {
    pub(in crate::threads) use loom::cell::UnsafeCell as Cell;
    pub(in crate::threads) use loom::hint::spin_loop;
    pub(in crate::threads) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
    pub(in crate::threads) use loom::thread::{Builder, JoinHandle, park, yield_now};
}

pub(super) use real::{
    AtomicBool, AtomicU32, AtomicUsize, Builder, Cell, JoinHandle, park, spin_loop, yield_now,
};
