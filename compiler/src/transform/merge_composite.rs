//! Patterns of operators as functions, for code generators that know them.

use std::iter::Peekable;

use cranelift_entity::SecondaryMap;

use super::calls::op_of;
use super::external::{COMPOSITE, enclose, taken_scopes};
use crate::analysis::{Anf, bound_values};
use crate::diagnostics::Problem;
use crate::graph::{Expr, ExprId, Function, Rewriter, ScopeId};
use crate::ir::{Attrs, IRModule};
use crate::ops::Op;
use crate::pass::{PassContext, Result, function_pass};
use crate::transform::InferType;

crate::register_pass_config_option! {
    /// Names of patterns with the patterns, such as `["dsp.dense_relu", "nn.relu(nn.dense(*, const))"]`:
    /// calls of operators, `*` for any value, `const` for constants. The first that fits is taken.
    pub COMPOSITE_PATTERNS: Vec<(String, String)> = "relay.MergeComposite.patterns";
}

/// Deepest nesting of calls in a pattern.
const MAX_PATTERN_DEPTH: usize = 64;

/// Makes each instance of a pattern a closure with the attribute `Composite`, the pattern's name.
///
/// Patterns are in `relay.MergeComposite.patterns`. Values within an instance have no other use.
/// Sums and products fit in both orders of their operands. Where instances overlap, the pattern that
/// is listed first has it, and of one pattern the instance that is computed first.
#[function_pass(opt_level = 0, required = [InferType], clears = [Anf])]
pub fn merge_composite(
    function: Function,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<Function> {
    let mut patterns = Vec::new();
    for (name, text) in cx.get(&COMPOSITE_PATTERNS) {
        let pattern = Pattern::parse(&text).map_err(|what| {
            let option = COMPOSITE_PATTERNS.name();
            Problem::new(format!("{option}: the pattern `{name}`, `{text}`: {what}"))
        })?;
        patterns.push((name, pattern));
    }
    if function.attrs().flag("Primitive") || patterns.is_empty() {
        return Ok(function);
    }
    let live = function.live();
    let mut matcher = Matcher {
        uses: function.use_counts_among(&live),
        bound: bound_values(&function, &live),
        scopes: taken_scopes(&function),
        taken: SecondaryMap::with_capacity(function.len()),
        function: &function,
        found: Vec::new(),
    };
    let mut instances: SecondaryMap<ExprId, Option<(usize, Vec<ExprId>)>> = SecondaryMap::new();
    for (index, (_, pattern)) in patterns.iter().enumerate() {
        for id in function.ids().filter(|&id| live[id]) {
            let scope = function.data_of(id).scope;
            matcher.found.clear();
            if matcher.scopes[scope] || !matcher.fits(pattern, id, None) {
                continue;
            }
            let mut calls = matcher.found.clone();
            calls.sort_unstable();
            for &call in &calls {
                matcher.taken[call] = true;
            }
            instances[id] = Some((index, calls));
        }
    }
    let mut rewriter = Rewriter::new(function.clone());
    while let Some(id) = rewriter.next_expr()? {
        let Some((index, calls)) = &instances[id] else { continue };
        let attrs = Attrs::new().with(COMPOSITE, patterns[*index].0.as_str());
        let new = enclose(&mut rewriter, calls, None, None, attrs)?;
        cx.count("composite functions", 1);
        rewriter.replace(new);
    }
    Ok(rewriter.finish()?)
}

/// A tree of operators.
#[derive(Clone, PartialEq, Debug)]
enum Pattern {
    /// Any value.
    Any,
    /// A constant.
    Constant,
    /// A call of an operator with as many arguments.
    Call(Op, Vec<Pattern>),
}

impl Pattern {
    /// A pattern of a text, or what is wrong with it.
    fn parse(text: &str) -> std::result::Result<Pattern, String> {
        let mut chars = text.chars().filter(|c| !c.is_whitespace()).peekable();
        let pattern = Pattern::parse_at(&mut chars, 0)?;
        match (chars.next(), &pattern) {
            (Some(c), _) => Err(format!("`{c}` is after its end")),
            (None, Pattern::Call(..)) => Ok(pattern),
            (None, _) => Err("it is no call of an operator".to_owned()),
        }
    }

    fn parse_at(
        chars: &mut Peekable<impl Iterator<Item = char>>,
        depth: usize,
    ) -> std::result::Result<Pattern, String> {
        if depth > MAX_PATTERN_DEPTH {
            return Err(format!("it is nested more than {MAX_PATTERN_DEPTH} deep"));
        }
        if chars.next_if_eq(&'*').is_some() {
            return Ok(Pattern::Any);
        }
        let mut name = String::new();
        while let Some(c) = chars.next_if(|&c| c.is_ascii_alphanumeric() || c == '.' || c == '_') {
            name.push(c);
        }
        if chars.next_if_eq(&'(').is_none() {
            return match (name.as_str(), chars.peek()) {
                ("const", _) => Ok(Pattern::Constant),
                ("", None) => Err("it ends where a value is expected".to_owned()),
                ("", Some(c)) => Err(format!("`{c}` is where a value is expected")),
                _ => Err(format!("`{name}` has no arguments; `*` and `const` are values")),
            };
        }
        let op = Op::get(&name).ok_or_else(|| format!("`{name}` is no operator"))?;
        let mut args = Vec::new();
        loop {
            args.push(Pattern::parse_at(chars, depth + 1)?);
            match chars.next() {
                Some(',') => {}
                Some(')') => return Ok(Pattern::Call(op, args)),
                Some(c) => return Err(format!("`{c}` is where `,` or `)` is expected")),
                None => return Err("a `)` is missing".to_owned()),
            }
        }
    }
}

/// Finds the calls of an instance.
struct Matcher<'a> {
    function: &'a Function,
    uses: SecondaryMap<ExprId, u32>,
    bound: SecondaryMap<ExprId, bool>,
    /// Those whose expressions are another one's.
    scopes: SecondaryMap<ScopeId, bool>,
    /// The calls of earlier instances.
    taken: SecondaryMap<ExprId, bool>,
    found: Vec<ExprId>,
}

impl Matcher<'_> {
    /// Whether a value fits a pattern; adds its calls. Within an instance, `scope` is its scope.
    fn fits(&mut self, pattern: &Pattern, id: ExprId, scope: Option<ScopeId>) -> bool {
        let (op, patterns) = match pattern {
            Pattern::Any => return true,
            Pattern::Constant => return matches!(self.function.expr(id), Expr::Constant(_)),
            Pattern::Call(op, patterns) => (*op, patterns),
        };
        let function = self.function;
        let data = function.data_of(id);
        let is_inner = |scope| scope == data.scope && self.uses[id] == 1 && !self.bound[id];
        if self.taken[id] || !scope.is_none_or(is_inner) {
            return false;
        }
        let Some((of_call, call)) = op_of(&data.expr) else { return false };
        let args: Option<Vec<ExprId>> = call.args.iter().take(patterns.len()).copied().collect();
        let others = call.args.iter().skip(patterns.len());
        let Some(mut args) = args.filter(|args| args.len() == patterns.len()) else { return false };
        if of_call.name != op.name || others.flatten().next().is_some() {
            return false;
        }
        let before = self.found.len();
        let orders = if args.len() == 2 && matches!(op.name, "add" | "multiply") { 2 } else { 1 };
        for _ in 0..orders {
            self.found.push(id);
            let mut pairs = patterns.iter().zip(&args);
            if pairs.all(|(pattern, &arg)| self.fits(pattern, arg, Some(data.scope))) {
                return true;
            }
            self.found.truncate(before);
            args.reverse();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_are_none_tell_why() {
        for (text, expected) in [
            ("", "ends where a value is expected"),
            ("*", "no call of an operator"),
            ("nn.relu", "`nn.relu` has no arguments"),
            ("nn.rellu(*)", "`nn.rellu` is no operator"),
            ("nn.relu(*", "a `)` is missing"),
            ("nn.relu(* *)", "`*` is where `,` or `)` is expected"),
            ("nn.relu(*))", "`)` is after its end"),
            ("nn.relu(,)", "`,` is where a value is expected"),
        ] {
            let error = Pattern::parse(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        let deep = format!("{}*{}", "nn.relu(".repeat(100_000), ")".repeat(100_000));
        assert!(Pattern::parse(&deep).unwrap_err().contains("nested more than 64"));
        let relu = Op::get("nn.relu").unwrap();
        let parsed = Pattern::parse(" nn.relu( const ) ").unwrap();
        assert_eq!(parsed, Pattern::Call(relu, vec![Pattern::Constant]));
    }
}
