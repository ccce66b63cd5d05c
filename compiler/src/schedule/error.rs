//! Why a primitive cannot be applied.

use std::fmt;

/// A primitive that was not applied: the function is as it was before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScheduleError {
    /// The primitive.
    pub primitive: &'static str,
    /// Why not, and what would help.
    pub message: String,
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.primitive, self.message)
    }
}

impl std::error::Error for ScheduleError {}

/// What a rewrite returns; the schedule adds the primitive's name.
pub(super) type Rewrite<T> = Result<T, String>;
