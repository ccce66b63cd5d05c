//! The C code generator: readable, freestanding GNU C (`gnu11`), one function a kernel.
//!
//! Vectors are GNU vector types, never wider than the target's registers. What C cannot say
//! portably (fused multiply-add, minimum as the hardware does it) is a small inline function,
//! written for gcc and clang, and only when it is used. Integer overflow wraps (`-fwrapv`), and
//! nothing is contracted or reassociated (`-ffp-contract=off`).
//!
//! ```c
//! void <symbol>(const struct niello_context *ctx, const float *restrict x, float *restrict y, i64 n);
//! ```
//!
//! A pointer stands at the start of the buffer's physical layout. Local buffers are on the stack up
//! to [`STACK_BUFFER_BYTES`](super::STACK_BUFFER_BYTES) each and [`STACK_BYTES`](super::STACK_BYTES)
//! together, else in the scratch area of the
//! worker.

mod bytes;
mod call;
mod convert;
mod expr;
mod folder;
mod halves;
mod helpers;
mod kernel;
mod level;
mod link;
mod machine;
mod matrix;
mod memory;
mod names;
mod preamble;
mod standalone;
mod stmt;
mod text;
mod toolchain;
mod wrapper;

pub use call::LIBM_FUNCTIONS;
pub(crate) use folder::TempFolder;
pub use kernel::{KernelSource, generate};
pub use level::level_function;
pub use link::link_shared;
pub(crate) use names::Names;
pub(crate) use preamble::{GENERATED, denormals_around};
pub use preamble::{declarations, translation_unit, words};
pub use standalone::{standalone, weights_in_c};
pub(crate) use text::{signature, wrap};
pub use toolchain::{
    CompileError, SourceFile, assembly, compile_c, compiler_identity, compiler_variables,
};
