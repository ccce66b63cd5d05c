//! Tests of schedules.
