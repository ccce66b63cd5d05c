//! The instruments that come with niello: for timing, printing, verifying and bisecting passes.
//!
//! They use only the public hooks of [`PassInstrument`](super::PassInstrument). Give one to a
//! context, run the passes, then read its results:
//!
//! ```
//! use std::sync::Arc;
//! use niello::ir::IRModule;
//! use niello::pass::instruments::PassTiming;
//! use niello::pass::{Pass, PassContext, Sequential};
//!
//! # fn main() -> niello::pass::Result<()> {
//! let timing = Arc::new(PassTiming::default());
//! let cx = PassContext::builder().shared_instrument(timing.clone()).build()?;
//! let profile = cx.scope(|cx| {
//!     Sequential::default().run(IRModule::new(), cx)?;
//!     timing.render()
//! })?;
//! assert!(profile.starts_with("sequential: "));
//! # Ok(())
//! # }
//! ```
//!
//! | instrument | what it does | in the command |
//! |---|---|---|
//! | [`PassTiming`] | measures passes: a tree, JSON, or a trace for a browser | `--time-passes` |
//! | [`PrintIr`] | prints the module before and after passes, or what they changed | `--print-after` |
//! | [`DumpIr`] | writes the module to numbered files | `--dump-dir` |
//! | [`VerifyEach`] | verifies the module after each pass | `--verify-each` |
//! | [`IrStatistics`] | counts calls, constants and bytes before and after | `--stats` |
//! | [`PassMemory`] | measures allocations and peaks | `--stats` |
//! | [`PassStatistics`] | keeps what passes count, and the rewrites they did not make | `--stats` |
//! | [`PassTable`] | tells what each pass of a list changed | `niello inspect --passes` |
//! | [`OptBisect`] | runs only the first passes | `--opt-bisect-limit` |
//! | [`CrashReproducer`] | writes what is needed to repeat a failure | `--reproducer` |

mod counting_allocator;
mod crash_reproducer;
mod dump_ir;
mod ir_statistics;
mod opt_bisect;
mod pass_memory;
mod pass_statistics;
mod pass_table;
mod per_thread;
mod print_ir;
mod reproducer;
mod text_output;
mod timing;
mod timing_report;
mod verify_each;

pub use counting_allocator::CountingAllocator;
pub use crash_reproducer::CrashReproducer;
pub use dump_ir::DumpIr;
pub use ir_statistics::IrStatistics;
pub use opt_bisect::OptBisect;
pub use pass_memory::PassMemory;
pub use pass_statistics::PassStatistics;
pub use pass_table::{Effect, PassRow, PassTable};
pub use print_ir::{PassSelection, PrintChanged, PrintIr};
pub use reproducer::{Replay, Reproducer};
pub use text_output::TextOutput;
pub use timing::{PassTiming, TimingFormat};
pub use verify_each::VerifyEach;

#[cfg(test)]
mod tests;
