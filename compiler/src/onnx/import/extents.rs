//! What the symbols in the types of a model's inputs are.

use std::collections::BTreeMap;

use super::{ImportOptions, ModelPort};
use crate::arith::{Atom, Symbol, View};
use crate::graph::FunctionBuilder;
use crate::ir::Dim;

/// How symbolic extents of inputs are taken.
pub(super) enum Extents<'a> {
    /// As any numbers for which that holds.
    Declared(&'a FoundExtents),
    /// As what weights, attributes and other inputs ask for.
    Found(&'a mut FoundExtents),
}

/// What a model needs the symbols to be in the types of its inputs.
#[derive(Default)]
pub(super) struct FoundExtents {
    /// Those that are numbers, by their names, if the caller says nothing of them.
    pub(super) sizes: BTreeMap<String, u64>,
    /// Those that follow from sizes of which the caller says something.
    pub(super) told: BTreeMap<Symbol, Dim>,
    /// What is equal for all sizes.
    pub(super) equal: Vec<(Dim, Dim)>,
}

impl FoundExtents {
    /// Adds what the uses of a graph's inputs say.
    pub(super) fn add(
        &mut self,
        builder: &FunctionBuilder,
        inputs: &[ModelPort],
        options: &ImportOptions,
    ) {
        let is_told = |symbol: &Symbol| options.dims.contains_key(symbol.name());
        for symbol in inputs.iter().flat_map(|input| input.ty.shape.iter()).flat_map(Dim::symbols) {
            let size = builder.facts().simplify(&Dim::from(&symbol));
            if let Some(number) = size.as_const().and_then(|number| u64::try_from(number).ok())
                && !is_told(&symbol)
            {
                self.sizes.insert(symbol.name().to_owned(), number);
            }
        }
        self.equal = builder.equations().map(|(a, b)| (a.clone(), b.clone())).collect();
        while let Some((symbol, size)) =
            self.equal.iter().find_map(|(left, right)| solved(&(left - right), &is_told))
        {
            let known = |other: &Symbol| (*other == symbol).then(|| size.clone());
            for side in self.equal.iter_mut().flat_map(|(left, right)| [left, right]) {
                *side = side.substitute(&known);
            }
            self.told.insert(symbol, size);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sizes.is_empty() && self.equal.is_empty()
    }
}

/// The symbol, of which the caller says nothing, of an expression that is zero, and what it is by
/// those of which the caller says something.
fn solved(zero: &Dim, is_told: &dyn Fn(&Symbol) -> bool) -> Option<(Symbol, Dim)> {
    let View::Poly(poly) = zero.view() else { return None };
    poly.terms().iter().find_map(|term| {
        let Some(Atom::Symbol(symbol)) = term.as_atom() else { return None };
        let own = Dim::from(symbol) * term.coefficient();
        let rest = zero - &own;
        let size = match term.coefficient() {
            1 => Dim::from(0) - rest,
            -1 => rest,
            _ => return None,
        };
        let follows = !is_told(symbol) && size.symbols().iter().all(is_told);
        (follows && !size.is_const()).then(|| (symbol.clone(), size))
    })
}
