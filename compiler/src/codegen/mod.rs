//! Code generators: loop IR in, object code out.

pub mod c;
mod error;
mod external;
mod features;
mod kernel;
#[cfg(feature = "llvm")]
pub mod llvm;
mod matrix;
pub mod object;
mod size;
mod wrapper;

pub use error::CodegenError;
pub use external::{
    ExternalCode, ExternalCodegen, ExternalCodegenEntry, ExternalFunction, ExternalTensor,
    external_codegen,
};
pub(crate) use external::{ExternalOptions, check_external};
pub use kernel::{STACK_BUFFER_BYTES, STACK_BYTES, ScratchBytes, scratch_bytes};
pub use size::{Size, SizeOp};
pub use wrapper::{ArrayWrapper, PackedDim, PackedExtent, PackedTensor, PackedWrapper, Wrapper};

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
