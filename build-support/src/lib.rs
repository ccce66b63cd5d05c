//! Compiles machine-learning models to native code and typed Rust bindings from a build script.
//!
//! ```no_run
//! // build.rs
//! fn main() {
//!     niello_build::compile("models/digits.onnx");
//! }
//! ```
//!
//! The program includes the bindings with `niello_runtime::include_model!("digits")`. [`configure`]
//! has what can be refined.
//!
//! What Cargo sees: the build script runs again when the model or a `NIELLO_*` variable changes,
//! and no longer when another file of the package does; only `OUT_DIR` is written to, and only
//! files that differ; everything that is wrong with a model is told at once, one line each.
//!
//! | variable | meaning |
//! |---|---|
//! | `NIELLO_BACKEND` | the code generator: `c` |
//! | `NIELLO_OPT_LEVEL` | optimisation level, 0 to 4 |
//! | `NIELLO_TARGET_CPU` | the CPU to compile for: `native`, `x86-64-v3` … |
//! | `NIELLO_STUB` | `1`: bindings only, no C compiler needed; so does `DOCS_RS` |
//! | `NIELLO_TIME_PASSES` | `text`, `json` or `trace`: how long passes take, in `OUT_DIR` |
//! | `NIELLO_PRINT_AFTER` | `all`, or names of passes: the module after them, in `OUT_DIR` |
//! | `NIELLO_DUMP_DIR` | a folder: the module after each pass that changed it, and what repeats a failure |
//!
//! A variable wins over the build script.

#![allow(clippy::needless_doctest_main, reason = "the example is a whole build script")]

mod cargo;
mod config;
mod errors;
mod log;
#[cfg(test)]
mod tests;
mod watch;

pub use config::{Artifacts, Config, Weights};
pub use errors::Errors;
pub use niello;
pub use niello::options::Backend;

use std::path::PathBuf;

/// Compiles the model at `path`, relative to the package, with default options.
///
/// On failure every problem is printed and the build fails; this function does not return then.
pub fn compile(path: impl Into<PathBuf>) {
    if let Err(errors) = configure(path).try_compile() {
        errors.exit();
    }
}

/// Options for compiling the model at `path`, relative to the package.
///
/// ```no_run
/// use niello_build::Weights;
///
/// niello_build::configure("models/digits.onnx")
///     .name("digits")
///     .dim("batch", 1)
///     .opt_level(3)
///     .disable_pass("FoldScaleAxis")
///     .weights(Weights::Embed)
///     .try_compile()
///     .unwrap_or_else(|errors| errors.exit());
/// ```
pub fn configure(path: impl Into<PathBuf>) -> Config {
    Config::new(path.into())
}
