//! Classifies handwritten digits.

fn main() {}
