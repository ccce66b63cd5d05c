//! What the symbols in the types of a model's inputs are.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexSet;

use super::{ImportOptions, ModelPort};
use crate::arith::{Atom, Symbol, View};
use crate::diagnostics::{Problem, pin};
use crate::graph::{ExprId, FunctionBuilder, ScopeId};
use crate::ir::Dim;
use crate::options::DimSize;

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
    /// What the sizes have to be that a run computes, by those of which the caller says something and
    /// by sizes that it computes before.
    pub(super) counts: BTreeMap<Symbol, Dim>,
    /// What is equal for all sizes.
    pub(super) equal: Vec<(Dim, Dim)>,
}

/// The symbols of sizes, as they come.
#[derive(Default)]
pub(in crate::onnx) struct SizeNames {
    /// Those of inputs, then those that a run computes.
    pub(super) names: IndexSet<String>,
    /// Those that a run computes.
    pub(super) counted: BTreeSet<Symbol>,
    /// What options say of sizes that no input has, and the problem if no node computes them.
    pub(super) asked: BTreeMap<String, (DimSize, Problem)>,
    /// What some of the latter have to be.
    pub(super) expected: BTreeMap<Symbol, Dim>,
    /// Where tensors hold, by the scope in which that was computed: what asks again has the same size.
    pub(in crate::onnx) places: BTreeMap<(ScopeId, ExprId), ExprId>,
}

impl SizeNames {
    /// How to make extents known that are not, if there are any.
    pub(super) fn fix(&self, dims: &[Dim]) -> Option<String> {
        let counted = |dim: &Dim| dim.symbols().intersection(&self.counted).next().cloned();
        pin(dims.iter().filter(|dim| counted(dim).is_none())).or_else(|| {
            let size = dims.iter().find_map(counted)?;
            Some(format!("`{size}` is a size that each run computes: no option says what it is"))
        })
    }
}

impl FoundExtents {
    /// Adds what the uses of a graph's inputs say, and those of sizes that a run computes.
    pub(super) fn add(
        &mut self,
        builder: &FunctionBuilder,
        inputs: &[ModelPort],
        names: &SizeNames,
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
        let number = |symbol: &Symbol| self.sizes.get(symbol.name()).map(|&size| Dim::from(size));
        for side in self.equal.iter_mut().flat_map(|(left, right)| [left, right]) {
            *side = side.substitute(&number);
        }
        let is_counted = |symbol: &Symbol| names.counted.contains(symbol);
        // A size that is computed may follow from those before it.
        for name in names.names.iter().rev() {
            let symbol = Symbol::new(name);
            let is_before = |other: &Symbol| {
                let [own, other] = [&symbol, other].map(|s| names.names.get_index_of(s.name()));
                other < own
            };
            let follows = |_: &Symbol, size: &Dim| {
                size.symbols().iter().all(|of| is_told(of) || is_counted(of) && is_before(of))
            };
            if is_counted(&symbol)
                && let Some((_, size)) = self.solve(&|of, size| *of == symbol && follows(of, size))
            {
                self.counts.insert(symbol, size);
            }
        }
        while let Some((symbol, size)) = self.solve(&|symbol, size| {
            !is_told(symbol) && !size.is_const() && size.symbols().iter().all(is_told)
        }) {
            self.told.insert(symbol, size);
        }
    }

    /// A symbol and what it is, of those that `is_wanted` says, by an equation. It is put in
    /// everywhere else.
    fn solve(&mut self, is_wanted: &dyn Fn(&Symbol, &Dim) -> bool) -> Option<(Symbol, Dim)> {
        let mut equations = self.equal.iter().map(|(left, right)| left - right);
        let (symbol, size) = equations.find_map(|zero| solved(&zero, is_wanted))?;
        let known = |other: &Symbol| (*other == symbol).then(|| size.clone());
        let sides = self.equal.iter_mut().flat_map(|(left, right)| [left, right]);
        for side in sides.chain(self.counts.values_mut()) {
            *side = side.substitute(&known);
        }
        Some((symbol, size))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sizes.is_empty() && self.equal.is_empty() && self.counts.is_empty()
    }
}

/// A symbol of an expression that is zero, and what it is by the others.
fn solved(zero: &Dim, is_wanted: &dyn Fn(&Symbol, &Dim) -> bool) -> Option<(Symbol, Dim)> {
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
        is_wanted(symbol, &size).then(|| (symbol.clone(), size))
    })
}
