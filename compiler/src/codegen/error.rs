//! Why a kernel cannot be turned into code.

use std::fmt;

use crate::diagnostics::Problem;

/// A construct that a code generator does not support, or that should have been lowered before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodegenError {
    /// The function.
    pub kernel: String,
    /// What is wrong, and what would help.
    pub message: String,
}

impl fmt::Display for CodegenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel `{}`: {}", self.kernel, self.message)
    }
}

impl std::error::Error for CodegenError {}

impl From<CodegenError> for Problem {
    /// Models have nothing that code cannot be generated for: the importer refuses it, or lowering
    /// takes it apart.
    fn from(error: CodegenError) -> Problem {
        Problem::defect(error)
    }
}
