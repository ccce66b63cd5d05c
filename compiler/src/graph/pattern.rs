//! Patterns of expressions, as text: what calls of operators look like that belong together.
//!
//! They are what TVM calls dataflow patterns. The text is that of calls in a module, with
//! placeholders: `multiply(%x, sigmoid(%x))`. `docs/adding-a-pass.md` has all of it.

use std::collections::BTreeMap;

use super::parse::{ParseErrors, parse_pattern};
use super::{Callee, Expr, ExprId, Function};
use crate::ir::{AttrValue, Constant};
use crate::ops::Op;

/// What an expression must look like.
///
/// ```
/// use niello::graph::Pattern;
///
/// let swish: Pattern = "multiply(%x, sigmoid(%x))".parse()?;
/// let twice: Pattern = "add(%x, %x) | multiply(%x, 2)".parse()?;
/// let scaled: Pattern = "multiply(%sum = nn.dense(*, const), %scale = const)".parse()?;
/// let means: Pattern = "mean(*, axis=[-1], keepdims=true)".parse()?;
/// assert!("nn.rellu(*)".parse::<Pattern>().is_err());
/// # Ok::<(), niello::graph::ParseErrors>(())
/// ```
#[derive(Clone, PartialEq, Debug)]
pub struct Pattern(pub(super) Node);

#[derive(Clone, PartialEq, Debug)]
pub(super) enum Node {
    /// `*`: any value.
    Any,
    /// `const`: a constant.
    Constant,
    /// A number: a constant that is that number in each place.
    Number(f64),
    /// `%x = …`: what has the name fits; `%x` alone is any value. It is the same value everywhere.
    Named(String, Box<Node>),
    /// `op(…, name=value)`: a call of an operator with as many arguments and, among others, these
    /// attributes. `None` is `_`: an argument that is absent.
    Call { op: Op, args: Vec<Option<Node>>, attrs: Vec<(String, AttrValue)> },
    /// `a | b`: what one of them fits, the first that does.
    Either(Vec<Node>),
}

impl std::str::FromStr for Pattern {
    type Err = ParseErrors;

    /// # Errors
    ///
    /// Text that is no pattern, an operator that does not exist, a call that its operator never has:
    /// too few or too many arguments, an attribute that it does not know. Each with its place.
    fn from_str(text: &str) -> Result<Pattern, ParseErrors> {
        parse_pattern(text)
    }
}

/// An expression that fits a pattern.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Match {
    calls: Vec<ExprId>,
    names: BTreeMap<String, ExprId>,
}

impl Match {
    /// The calls that the pattern names, in the order of the pattern: the expression itself first.
    pub fn calls(&self) -> &[ExprId] {
        &self.calls
    }

    /// The value that `%name` of the pattern stands for.
    pub fn get(&self, name: &str) -> Option<ExprId> {
        self.names.get(name).copied()
    }
}

impl Pattern {
    /// Whether what fits is a call of an operator that the pattern names.
    pub fn is_of_calls(&self) -> bool {
        let mut pending = vec![&self.0];
        while let Some(node) = pending.pop() {
            match node {
                Node::Call { .. } => {}
                Node::Named(_, node) => pending.push(node),
                Node::Either(nodes) => pending.extend(nodes),
                Node::Any | Node::Constant | Node::Number(_) => return false,
            }
        }
        true
    }

    /// How an expression fits the pattern, if it does. Sums, products, the greater and the smaller
    /// of two fit in both orders of their operands.
    ///
    /// A call may have other uses than those in the pattern: [`Pattern::find_if`] can tell them apart.
    pub fn find(&self, function: &Function, id: ExprId) -> Option<Match> {
        self.find_if(function, id, &|_| true)
    }

    /// The same where all calls that the pattern names are such that `accepts` holds.
    ///
    /// Takes time that is exponential in how many commutative operators are nested in the pattern,
    /// if operands are alike; it does not depend on the size of the function.
    pub fn find_if(
        &self,
        function: &Function,
        id: ExprId,
        accepts: &dyn Fn(ExprId) -> bool,
    ) -> Option<Match> {
        let mut found = Match::default();
        let matcher = Matcher { function, accepts };
        matcher.fits(&[(&self.0, id)], &mut found).then_some(found)
    }
}

/// Operators whose two operands may change places.
const COMMUTATIVE: [&str; 4] = ["add", "multiply", "maximum", "minimum"];

struct Matcher<'a> {
    function: &'a Function,
    accepts: &'a dyn Fn(ExprId) -> bool,
}

impl Matcher<'_> {
    /// Whether each expression fits its pattern, the last one first: a choice that was made for one of
    /// them is made anew if the others do not fit then.
    fn fits(&self, pending: &[(&Node, ExprId)], found: &mut Match) -> bool {
        let Some((&(node, id), rest)) = pending.split_last() else { return true };
        match node {
            Node::Any => self.fits(rest, found),
            Node::Constant => self.constant(id).is_some() && self.fits(rest, found),
            Node::Number(number) => {
                let is_number = |constant| is_number(constant, *number).unwrap_or(false);
                self.constant(id).is_some_and(is_number) && self.fits(rest, found)
            }
            Node::Named(name, node) => match found.names.get(name) {
                Some(&same) => same == id && self.fits(&with(rest, [(&**node, id)]), found),
                None => {
                    found.names.insert(name.clone(), id);
                    let fits = self.fits(&with(rest, [(&**node, id)]), found);
                    if !fits {
                        found.names.remove(name);
                    }
                    fits
                }
            },
            Node::Either(nodes) => {
                nodes.iter().any(|node| self.fits(&with(rest, [(node, id)]), found))
            }
            Node::Call { op, args, attrs } => {
                let Some(operands) = self.operands(id, *op, args, attrs) else {
                    return false;
                };
                let calls = found.calls.len();
                found.calls.push(id);
                let fits = self.fits(&with(rest, operands.iter().rev().copied()), found)
                    || match operands[..] {
                        [(first, a), (second, b)] if COMMUTATIVE.contains(&op.name) => {
                            self.fits(&with(rest, [(second, a), (first, b)]), found)
                        }
                        _ => false,
                    };
                if !fits {
                    found.calls.truncate(calls);
                }
                fits
            }
        }
    }

    fn constant(&self, id: ExprId) -> Option<&Constant> {
        self.function.expr(id).as_constant()
    }

    /// The arguments of a call of an operator that are present, each with its pattern: those, and no
    /// others, that `args` has a pattern for.
    fn operands<'n>(
        &self,
        id: ExprId,
        op: Op,
        args: &'n [Option<Node>],
        attrs: &[(String, AttrValue)],
    ) -> Option<Vec<(&'n Node, ExprId)>> {
        let Expr::Call(call) = self.function.expr(id) else { return None };
        let is_op = matches!(call.callee, Callee::Op(of) if of.name == op.name);
        let has = |(name, value): &(String, AttrValue)| call.attrs.get(name) == Some(value);
        if !is_op || !attrs.iter().all(has) || !(self.accepts)(id) {
            return None;
        }
        let mut operands = Vec::with_capacity(args.len());
        // An absent argument at the end is the same as no argument.
        for index in 0..args.len().max(call.args.len()) {
            let node = args.get(index).and_then(Option::as_ref);
            match (node, call.args.get(index).copied().flatten()) {
                (Some(node), Some(operand)) => operands.push((node, operand)),
                (None, None) => {}
                (Some(_), None) | (None, Some(_)) => return None,
            }
        }
        Some(operands)
    }
}

fn with<'n>(
    rest: &[(&'n Node, ExprId)],
    more: impl IntoIterator<Item = (&'n Node, ExprId)>,
) -> Vec<(&'n Node, ExprId)> {
    rest.iter().copied().chain(more).collect()
}

/// Whether a constant is a number in each place, or what its type of floats holds of it.
fn is_number(constant: &Constant, number: f64) -> Option<bool> {
    let dtype = constant.ty().dtype;
    let held = match dtype.is_float() {
        true => Constant::scalar(number, dtype)?.uniform()?,
        false => number,
    };
    Some(constant.uniform()? == held)
}

#[cfg(test)]
mod tests;
