//! What both IRs share: modules, types, dimensions, attributes, constants, physical layouts.

mod attrs;
mod buffer_spec;
mod constant;
mod digest;
mod dtype;
mod identity;
mod layout;
mod module;
mod packing;
pub mod small_float;
mod span;
pub mod text;
mod types;

pub use attrs::{AttrError, AttrValue, Attrs};
pub use buffer_spec::{BUFFER_ALIGNMENT, BufferSpec, BufferSpecError, Halo, PhysicalDim};
pub use constant::{Constant, ConstantData, ConstantError, SharedBytes};
pub use digest::{Blake3, Digest, digest};
pub use dtype::{DType, UnknownDType};
pub(crate) use identity::Identity;
pub(crate) use layout::LayoutMap;
pub use layout::{Layout, LayoutError};
pub use module::{Definition, ExternFunction, GlobalVar, IRModule};
pub use packing::{pack_elements, unpack_elements};
pub use span::{OnnxSpan, Span};
pub use types::{Dim, FuncType, Shape, TensorType, Type, normalize_axis};
