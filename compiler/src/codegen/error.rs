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

impl CodegenError {
    /// The problem that it is in a kernel that strategies made: no model is to blame for that.
    pub(crate) fn of_strategy(&self) -> Problem {
        Problem::new(format!("internal error: {self}")).help(
            "this is a defect of niello, not of the model; kernels that are made otherwise may do: \
             -O0 or --disable-pass FuseOps on the command line, `.opt_level(0)` or \
             `.disable_pass(\"FuseOps\")` in a build script",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_cannot_be_code_is_told_as_a_defect_with_what_works_around_it() {
        let message = "an index of register buffer `acc` is not constant".to_owned();
        let error = CodegenError { kernel: "fused_nn_matmul_cast".to_owned(), message };
        let text = error.of_strategy().to_string();
        for part in ["internal error", "fused_nn_matmul_cast", "defect of niello", "FuseOps"] {
            assert!(text.contains(part), "{text}");
        }
    }
}
