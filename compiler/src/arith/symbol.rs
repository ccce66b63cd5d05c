//! Names of integers that are not known while compiling.

use std::fmt;
use std::sync::Arc;

/// A named integer: a dimension of an ONNX model, a size only known at run time, a loop index.
///
/// Two symbols are the same if their names are; the order is that of the names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Symbol(Arc<str>);

impl Symbol {
    /// The symbol of this name. Any text is a name, also an empty one.
    pub fn new(name: &str) -> Symbol {
        Symbol(name.into())
    }

    /// The name, without the quotes that [`Display`](fmt::Display) may add.
    pub fn name(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Symbol {
    fn from(name: &str) -> Symbol {
        Symbol::new(name)
    }
}

impl From<&Symbol> for Symbol {
    fn from(symbol: &Symbol) -> Symbol {
        symbol.clone()
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
