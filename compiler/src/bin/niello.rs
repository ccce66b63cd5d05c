//! The `niello` command.

fn main() {}
