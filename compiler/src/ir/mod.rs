//! What both IRs share: modules, types, dimensions, attributes, constants.

mod buffer_spec;
mod dtype;

pub use buffer_spec::{BUFFER_ALIGNMENT, BufferSpec, BufferSpecError, Halo, PhysicalDim};
pub use dtype::{DType, UnknownDType};
