//! What is known about the symbols of a function.

use std::collections::BTreeMap;

use super::interval::Interval;
use super::symbol::Symbol;

/// Facts about symbols that hold wherever they are used.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Facts {
    default: Interval,
    bounds: BTreeMap<Symbol, Interval>,
}

impl Facts {
    /// Nothing is known of any symbol.
    pub const fn new() -> Facts {
        Facts { default: Interval::ALL, bounds: BTreeMap::new() }
    }

    /// What is known of one symbol's value.
    pub fn symbol_bounds(&self, symbol: &Symbol) -> Interval {
        self.bounds.get(symbol).copied().unwrap_or(self.default)
    }
}
