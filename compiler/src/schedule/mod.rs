//! Schedules: checked rewrites of loop nests.
