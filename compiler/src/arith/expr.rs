//! The expression type: its parts, how to look at them, and how to give symbols a value.

use std::collections::BTreeSet;
use std::iter;
use std::sync::Arc;

use super::canonical::Rules;
use super::symbol::Symbol;

/// Largest number of nodes in one expression; beyond it, operations yield
/// [`Poison::TooComplex`].
///
/// A hundred symbolic sizes concatenated are a hundred nodes. Products of sums grow exponentially
/// with their depth, so a model can ask for any number in a few lines.
pub const MAX_SIZE: u32 = 256;

/// Largest nesting of divisions, remainders, minima and maxima. It bounds every recursion here.
pub const MAX_DEPTH: u32 = 32;

/// Why an expression has no value. Absorbing: whatever is computed from it has none either.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Poison {
    /// A coefficient or constant left the range of `i64`.
    Overflow,
    /// The expression outgrew [`MAX_SIZE`] or [`MAX_DEPTH`].
    TooComplex,
    /// A division by the constant zero.
    Undefined,
}

impl Poison {
    /// The keyword that stands for it in text.
    pub fn keyword(self) -> &'static str {
        match self {
            Poison::Overflow => "overflow",
            Poison::TooComplex => "too_complex",
            Poison::Undefined => "undefined",
        }
    }
}

/// An integer expression over symbols, always in canonical form: a sum of products.
///
/// Cheap to clone: constants are inline, everything else is shared. Equality is structural, which
/// for sums and products is equality of value. The order is total and stable but means nothing.
///
/// Division rounds towards negative infinity and `modulo` has the sign of the divisor. Arithmetic
/// is that of the mathematical integers: a result whose coefficients do not fit `i64` is poisoned,
/// never wrapped.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IntExpr(Repr);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Repr {
    Const(i64),
    Poison(Poison),
    Poly(Arc<Polynomial>),
}

/// What an expression is, for those who must take it apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum View<'a> {
    /// A number.
    Const(i64),
    /// No value.
    Poison(Poison),
    /// A sum with at least one term that is not a number.
    Poly(&'a Polynomial),
}

/// A sum of terms and a constant; the terms are distinct products in canonical order.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Polynomial {
    terms: Vec<Term>,
    constant: i64,
    size: u32,
    depth: u32,
}

impl Polynomial {
    /// The terms, of which there is at least one, highest degree first.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// The summand that has no symbol.
    pub fn constant(&self) -> i64 {
        self.constant
    }
}

/// A coefficient other than zero times a product.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Term {
    pub(super) product: Product,
    pub(super) coefficient: i64,
}

impl Term {
    /// The number before the product; never zero.
    pub fn coefficient(&self) -> i64 {
        self.coefficient
    }

    /// The factors of the product, of which there is at least one.
    pub fn factors(&self) -> &[Factor] {
        self.product.factors()
    }

    /// The atom, if the product is one atom to the first power.
    pub fn as_atom(&self) -> Option<&Atom> {
        match self.factors() {
            [Factor { atom, power: 1 }] => Some(atom),
            _ => None,
        }
    }
}

/// An atom to a power of at least one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Factor {
    /// What is raised.
    pub atom: Atom,
    /// The exponent, at least one.
    pub power: u32,
}

/// What a product is made of: a symbol, or an operation that is not a polynomial.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Atom {
    /// A named integer.
    Symbol(Symbol),
    /// Quotient, rounded towards negative infinity.
    FloorDiv(IntExpr, IntExpr),
    /// Remainder of the [`Atom::FloorDiv`]; zero or of the divisor's sign.
    Mod(IntExpr, IntExpr),
    /// The least of two or more operands.
    Min(Arc<[IntExpr]>),
    /// The greatest of two or more operands.
    Max(Arc<[IntExpr]>),
}

impl Atom {
    /// The expressions this atom is made of, in order.
    pub fn operands(&self) -> impl Iterator<Item = &IntExpr> {
        let (pair, list): ([Option<&IntExpr>; 2], &[IntExpr]) = match self {
            Atom::Symbol(_) => ([None, None], &[]),
            Atom::FloorDiv(a, b) | Atom::Mod(a, b) => ([Some(a), Some(b)], &[]),
            Atom::Min(operands) | Atom::Max(operands) => ([None, None], operands),
        };
        pair.into_iter().flatten().chain(list)
    }
}

/// A product of atoms in ascending order, with a power each.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Product(Arc<ProductData>);

#[derive(PartialEq, Eq, Hash, Debug)]
struct ProductData {
    degree: u32,
    size: u32,
    depth: u32,
    factors: Vec<Factor>,
}

impl Product {
    /// The product of these factors, which must be in ascending order of distinct atoms.
    pub(super) fn new(factors: Vec<Factor>) -> Product {
        let (mut degree, mut size, mut depth) = (0u32, 0u32, 0u32);
        for factor in &factors {
            let (mut atom_size, mut atom_depth) = (1u32, 0);
            for operand in factor.atom.operands() {
                atom_size = atom_size.saturating_add(operand.size());
                atom_depth = atom_depth.max(operand.depth() + 1);
            }
            degree = degree.saturating_add(factor.power);
            size = size.saturating_add(atom_size.saturating_mul(factor.power));
            depth = depth.max(atom_depth);
        }
        Product(Arc::new(ProductData { degree, size, depth, factors }))
    }

    pub(super) fn factors(&self) -> &[Factor] {
        &self.0.factors
    }

    pub(super) fn size(&self) -> u32 {
        self.0.size
    }
}

impl PartialOrd for Product {
    fn partial_cmp(&self, other: &Product) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Product {
    /// Graded lexicographic, the greatest monomial first: higher degrees, then more of the earlier
    /// atoms. Multiplying two products by a third keeps their order, which polynomial division
    /// relies on.
    fn cmp(&self, other: &Product) -> std::cmp::Ordering {
        if Arc::ptr_eq(&self.0, &other.0) {
            return std::cmp::Ordering::Equal;
        }
        let by_factors = || {
            iter::zip(self.factors(), other.factors())
                .map(|(a, b)| a.atom.cmp(&b.atom).then(b.power.cmp(&a.power)))
                .find(|order| order.is_ne())
        };
        other
            .0
            .degree
            .cmp(&self.0.degree)
            .then_with(|| by_factors().unwrap_or(std::cmp::Ordering::Equal))
    }
}

impl IntExpr {
    /// The number zero.
    pub const ZERO: IntExpr = IntExpr::constant(0);
    /// The number one.
    pub const ONE: IntExpr = IntExpr::constant(1);

    /// A number.
    pub const fn constant(value: i64) -> IntExpr {
        IntExpr(Repr::Const(value))
    }

    /// A symbol.
    pub fn symbol(symbol: impl Into<Symbol>) -> IntExpr {
        IntExpr::atom(Atom::Symbol(symbol.into()))
    }

    /// The value of arithmetic that leaves `i64`.
    pub const fn overflow() -> IntExpr {
        IntExpr::poisoned(Poison::Overflow)
    }

    /// The value of a division by zero.
    pub const fn undefined() -> IntExpr {
        IntExpr::poisoned(Poison::Undefined)
    }

    /// The expression without a value for this reason.
    pub const fn poisoned(poison: Poison) -> IntExpr {
        IntExpr(Repr::Poison(poison))
    }

    /// One atom. Its operands must be such that no rule applies to it.
    pub(super) fn atom(atom: Atom) -> IntExpr {
        let product = Product::new(vec![Factor { atom, power: 1 }]);
        IntExpr::from_terms(vec![Term { product, coefficient: 1 }], 0)
    }

    /// The sum of terms in canonical order and without zero coefficients.
    pub(super) fn from_terms(terms: Vec<Term>, constant: i64) -> IntExpr {
        if terms.is_empty() {
            return IntExpr::constant(constant);
        }
        let (mut size, mut depth) = (1u32, 0);
        for term in &terms {
            size = size.saturating_add(term.product.size());
            depth = depth.max(term.product.0.depth);
        }
        if size > MAX_SIZE || depth > MAX_DEPTH {
            return IntExpr::poisoned(Poison::TooComplex);
        }
        IntExpr(Repr::Poly(Arc::new(Polynomial { terms, constant, size, depth })))
    }

    /// What the expression is made of.
    pub fn view(&self) -> View<'_> {
        match &self.0 {
            Repr::Const(value) => View::Const(*value),
            Repr::Poison(poison) => View::Poison(*poison),
            Repr::Poly(poly) => View::Poly(poly),
        }
    }

    /// The value, if it is a number.
    pub fn as_const(&self) -> Option<i64> {
        match self.0 {
            Repr::Const(value) => Some(value),
            Repr::Poison(_) | Repr::Poly(_) => None,
        }
    }

    /// The value, if it is a number that counts something.
    pub fn as_usize(&self) -> Option<usize> {
        self.as_const().and_then(|value| usize::try_from(value).ok())
    }

    /// Whether this is a number.
    pub fn is_const(&self) -> bool {
        matches!(self.0, Repr::Const(_))
    }

    /// Whether this is the given number.
    pub fn is(&self, value: i64) -> bool {
        self.as_const() == Some(value)
    }

    /// The symbol, if this is one and nothing else.
    pub fn as_symbol(&self) -> Option<&Symbol> {
        match self.as_atom() {
            Some(Atom::Symbol(symbol)) => Some(symbol),
            _ => None,
        }
    }

    /// The atom, if this is one with coefficient one and nothing else.
    pub fn as_atom(&self) -> Option<&Atom> {
        match self.as_poly() {
            Some(Polynomial { terms, constant: 0, .. }) => match &terms[..] {
                [term] if term.coefficient == 1 => term.as_atom(),
                _ => None,
            },
            _ => None,
        }
    }

    /// The polynomial, if this is neither a number nor poisoned.
    pub fn as_poly(&self) -> Option<&Polynomial> {
        match &self.0 {
            Repr::Poly(poly) => Some(poly),
            Repr::Const(_) | Repr::Poison(_) => None,
        }
    }

    /// Why there is no value, if there is none.
    pub fn poison(&self) -> Option<Poison> {
        match self.0 {
            Repr::Poison(poison) => Some(poison),
            Repr::Const(_) | Repr::Poly(_) => None,
        }
    }

    /// Whether there is no value, for any reason.
    pub fn is_poison(&self) -> bool {
        self.poison().is_some()
    }

    /// Whether arithmetic has left `i64`.
    pub fn is_overflow(&self) -> bool {
        self.poison() == Some(Poison::Overflow)
    }

    /// The terms, none for a number, and the constant. A poisoned expression has neither; ask
    /// first.
    pub(super) fn parts(&self) -> (&[Term], i64) {
        match &self.0 {
            Repr::Const(value) => (&[], *value),
            Repr::Poison(_) => (&[], 0),
            Repr::Poly(poly) => (&poly.terms, poly.constant),
        }
    }

    /// Two expressions whose difference this is, neither of which subtracts.
    pub fn sides(&self) -> (IntExpr, IntExpr) {
        let (terms, constant) = self.parts();
        let (left, right): (Vec<Term>, Vec<Term>) =
            terms.iter().cloned().partition(|term| term.coefficient() > 0);
        let right = IntExpr::from_terms(right, constant.min(0));
        (IntExpr::from_terms(left, constant.max(0)), &IntExpr::from(0) - &right)
    }

    /// The number of nodes.
    pub(super) fn size(&self) -> u32 {
        self.as_poly().map_or(1, |poly| poly.size)
    }

    fn depth(&self) -> u32 {
        self.as_poly().map_or(0, |poly| poly.depth)
    }

    /// Quotient rounded towards negative infinity.
    pub fn floor_div(&self, divisor: &IntExpr) -> IntExpr {
        Rules::PLAIN.floor_div(self, divisor)
    }

    /// Quotient rounded towards positive infinity.
    pub fn ceil_div(&self, divisor: &IntExpr) -> IntExpr {
        Rules::PLAIN.ceil_div(self, divisor)
    }

    /// What [`floor_div`](IntExpr::floor_div) leaves: zero or of the divisor's sign.
    pub fn modulo(&self, divisor: &IntExpr) -> IntExpr {
        Rules::PLAIN.modulo(self, divisor)
    }

    /// The smaller value. (`min` is [`Ord`]'s and compares the structure.)
    pub fn minimum(&self, other: &IntExpr) -> IntExpr {
        IntExpr::min_of(&[self.clone(), other.clone()])
    }

    /// The greater value. (`max` is [`Ord`]'s and compares the structure.)
    pub fn maximum(&self, other: &IntExpr) -> IntExpr {
        IntExpr::max_of(&[self.clone(), other.clone()])
    }

    /// The smallest of these values; [`IntExpr::undefined`] if there are none.
    pub fn min_of(operands: &[IntExpr]) -> IntExpr {
        Rules::PLAIN.min_of(operands)
    }

    /// The greatest of these values; [`IntExpr::undefined`] if there are none.
    pub fn max_of(operands: &[IntExpr]) -> IntExpr {
        Rules::PLAIN.max_of(operands)
    }

    /// The symbols that occur anywhere in the expression.
    pub fn symbols(&self) -> BTreeSet<Symbol> {
        let mut symbols = BTreeSet::new();
        self.visit_symbols(&mut |symbol| {
            symbols.insert(symbol.clone());
        });
        symbols
    }

    /// Whether the symbol occurs anywhere in the expression.
    pub fn mentions(&self, symbol: &Symbol) -> bool {
        let mut found = false;
        self.visit_symbols(&mut |it| found |= it == symbol);
        found
    }

    /// Calls `visit` for each occurrence of a symbol.
    pub(super) fn visit_symbols(&self, visit: &mut dyn FnMut(&Symbol)) {
        for factor in self.parts().0.iter().flat_map(Term::factors) {
            if let Atom::Symbol(symbol) = &factor.atom {
                visit(symbol);
            }
            for operand in factor.atom.operands() {
                operand.visit_symbols(visit);
            }
        }
    }

    /// The expression with symbols replaced, all at once; those without a replacement stay.
    pub fn substitute(&self, replacement: &dyn Fn(&Symbol) -> Option<IntExpr>) -> IntExpr {
        Rules::PLAIN.rebuild(self, replacement)
    }
}
