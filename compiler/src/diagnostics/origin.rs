//! Places in the source of crates that add something to niello.

use std::fmt;

/// The place in the source where a pass, an option or an operator is defined.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Origin {
    /// The package.
    pub package: &'static str,
    /// The source file, as its path was given to the compiler.
    pub file: &'static str,
    /// The line, from 1.
    pub line: u32,
}

impl Origin {
    /// A place in a package's source.
    pub const fn new(package: &'static str, file: &'static str, line: u32) -> Origin {
        Origin { package, file, line }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{} (in {})", self.file, self.line, self.package)
    }
}
