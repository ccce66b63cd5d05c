//! Tests that cross the crates of niello.
