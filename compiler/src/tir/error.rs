//! Why a pass could not lower a function.

use std::fmt;

/// A construct that a pass does not support.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LowerError {
    /// The function.
    pub function: String,
    /// The pass.
    pub pass: &'static str,
    /// What is wrong, and what would help.
    pub message: String,
}

impl fmt::Display for LowerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on loop function `{}`: {}", self.pass, self.function, self.message)
    }
}

impl std::error::Error for LowerError {}
