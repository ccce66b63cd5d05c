//! What both IRs share: modules, types, dimensions, attributes, constants.

mod dtype;

pub use dtype::{DType, UnknownDType};
