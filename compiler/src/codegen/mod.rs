//! Code generators: loop IR in, object code out.

pub mod c;
mod error;
pub mod object;

pub use error::CodegenError;
