//! What a model compiled by niello needs at run time: `no_std`, no dependencies.
//!
//! A build script compiles the model with `niello-build`; [`include_model!`] brings the bindings
//! into the crate:
//!
//! ```text
//! mod digits {
//!     niello_runtime::include_model!("digits");
//! }
//!
//! let mut model = digits::Model::new();
//! let outputs = model.run(&digits::Inputs { image: &pixels });
//! ```
//!
//! A model may have code for several [CPU levels](CpuLevel); [`cpu_level`] tells which one runs.
//!
//! Features: `alloc` gives `Model::new()`, which keeps the workspace on the heap; `std`, on by
//! default, implies it, reads `NIELLO_CPU_LEVEL` and has a [`ThreadPool`]. Without both, a model
//! runs in a [`Workspace`] of the caller's: `Model::with_workspace`; one that was compiled for
//! several threads takes them as [`Parallel`].
#![no_std]

#[cfg(feature = "alloc")]
extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod abi;
mod bindings;
mod cpu;
mod error;
mod parallel;
mod sizes;
#[cfg(feature = "std")]
mod threads;
mod weights;
mod workspace;

pub use cpu::{CpuLevel, cpu_level};
pub use error::{ShapeError, SizeError, WeightsError};
pub use parallel::{Parallel, Serial};
#[cfg(feature = "std")]
pub use threads::{Active, ThreadPool};
pub use weights::{Aligned, Checksum, checksum};
pub use workspace::{Heap, Workspace};

/// Includes the bindings of a model that the build script has compiled.
///
/// The argument is the model's name: the stem of its file, or what the build script gave to
/// `Config::name`. The bindings are items; give them a module of their own.
///
/// ```text
/// mod digits {
///     niello_runtime::include_model!("digits");
/// }
/// ```
#[macro_export]
macro_rules! include_model {
    ($name:literal) => {
        ::core::include!(::core::concat!(::core::env!("OUT_DIR"), "/", $name, ".rs"));
    };
}

/// What the macros of bindings expand to.
#[doc(hidden)]
pub use bindings::invoke as __invoke;
#[doc(hidden)]
pub use workspace::Zeroable as __Zeroable;

/// What generated bindings use. Nothing in here is for people.
#[doc(hidden)]
pub mod __private {
    /// The interface between generated bindings and this crate.
    ///
    /// Its name is the version check: bindings name the module of the version they were made for,
    /// so a runtime that does not belong to them fails to compile with both versions in the
    /// message.
    pub mod niello_build_0_1_needs_niello_runtime_0_1 {
        pub use crate::__call_model as call_model;
        pub use crate::__embedded_weights as embedded_weights;
        pub use crate::__link_weights as link_weights;
        pub use crate::__when_alloc as when_alloc;
        pub use crate::__zeroable as zeroable;
        pub use crate::abi::Context;
        pub use crate::bindings::{Entry, Memory, Share, executor, stub};
        pub use crate::cpu::{CpuLevel, version};
        pub use crate::sizes::{RunSize, check_equal, check_input, check_output};
        pub use crate::weights::verify;
        pub use crate::{Heap, Parallel, ShapeError, SizeError, WeightsError, Workspace};
    }
}

/// Keeps the items it is given where there is a heap, and drops them elsewhere.
///
/// The feature is this crate's, so generated code cannot ask for it with `cfg`.
#[doc(hidden)]
#[cfg(feature = "alloc")]
#[macro_export]
macro_rules! __when_alloc {
    ($($item:item)*) => { $($item)* };
}

/// Keeps the items it is given where there is a heap, and drops them elsewhere.
///
/// The feature is this crate's, so generated code cannot ask for it with `cfg`.
#[doc(hidden)]
#[cfg(not(feature = "alloc"))]
#[macro_export]
macro_rules! __when_alloc {
    ($($item:item)*) => {};
}

#[cfg(test)]
mod tests {
    use std::{format, string::String};

    /// The module's name is written by hand, as an identifier cannot be computed.
    #[test]
    fn the_version_check_is_that_of_this_version() {
        let version =
            format!("{}_{}", env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"));
        let path = String::from(core::any::type_name::<
            crate::__private::niello_build_0_1_needs_niello_runtime_0_1::Context,
        >());
        assert!(path.starts_with("niello_runtime::"), "{path}");
        let source = include_str!("lib.rs");
        let module = format!("pub mod niello_build_{version}_needs_niello_runtime_{version} {{");
        assert!(source.contains(&module), "the module should be declared as `{module}`");
    }
}
