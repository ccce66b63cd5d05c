//! The error of a primitive.

use std::fmt;

/// The refusal of a primitive, which leaves the function unchanged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScheduleError {
    /// The primitive.
    pub primitive: &'static str,
    /// The reason, and a remedy.
    pub message: String,
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.primitive, self.message)
    }
}

impl std::error::Error for ScheduleError {}

/// The result of a rewrite; the schedule adds the primitive's name to an error.
pub(super) type Rewrite<T> = Result<T, String>;
