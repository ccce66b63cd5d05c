//! The `niello` command.

use std::process::ExitCode;

use niello::pass::instruments::CountingAllocator;

/// For `niello opt --memory`; counts nothing until then.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn main() -> ExitCode {
    niello::cli::main()
}
