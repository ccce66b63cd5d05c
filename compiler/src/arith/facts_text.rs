//! Text of facts: relations separated by commas. Printing and parsing again is the identity.

use std::fmt;
use std::str::FromStr;

use super::expr::IntExpr;
use super::facts::Facts;
use super::interval::Interval;
use super::text::ParseError;

impl fmt::Display for Facts {
    /// Relations such as `* >= 0, n <= 512, mod(k, 4) == 0, m == 2*n`. The one about `*`, if any,
    /// is about each symbol of which nothing else is said.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut relations = Relations { f, first: true };
        let Interval { lower, upper } = self.default;
        relations.bounds(&"*", lower, upper)?;
        for (symbol, Interval { lower, upper }) in &self.bounds {
            relations.bounds(symbol, *lower, *upper)?;
        }
        for (symbol, set) in &self.congruences {
            let left = format_args!("mod({symbol}, {})", set.coeff());
            relations.write(&left, "==", &set.base())?;
        }
        for (symbol, value) in &self.definitions {
            relations.write(symbol, "==", value)?;
        }
        for zero in &self.zeros {
            relations.write(zero, "==", &0)?;
        }
        for expr in &self.non_negative {
            relations.write(expr, ">=", &0)?;
        }
        Ok(())
    }
}

struct Relations<'a, 'f> {
    f: &'a mut fmt::Formatter<'f>,
    first: bool,
}

impl Relations<'_, '_> {
    fn write(
        &mut self,
        left: &dyn fmt::Display,
        relation: &str,
        right: &dyn fmt::Display,
    ) -> fmt::Result {
        let separator = if self.first { "" } else { ", " };
        self.first = false;
        write!(self.f, "{separator}{left} {relation} {right}")
    }

    fn bounds(
        &mut self,
        left: &dyn fmt::Display,
        lower: Option<i64>,
        upper: Option<i64>,
    ) -> fmt::Result {
        for (relation, bound) in [(">=", lower), ("<=", upper)] {
            if let Some(bound) = bound {
                self.write(left, relation, &bound)?;
            }
        }
        Ok(())
    }
}

impl FromStr for Facts {
    type Err = ParseError;

    /// Reads relations between expressions: `==`, `<=`, `>=`, `<` or `>`. Those about `*` come
    /// first.
    fn from_str(text: &str) -> Result<Facts, ParseError> {
        let mut facts = Facts::new();
        let mut rest = text;
        if text.trim().is_empty() {
            return Ok(facts);
        }
        loop {
            rest = rest.trim_start();
            let start = text.len() - rest.len();
            let error =
                |at: &str, message: String| ParseError { offset: text.len() - at.len(), message };
            let expr = |at: &mut &str| -> Result<IntExpr, ParseError> {
                let (expr, length) = IntExpr::parse_prefix(at).map_err(|inner| ParseError {
                    offset: text.len() - at.len() + inner.offset,
                    ..inner
                })?;
                *at = at[length..].trim_start();
                Ok(expr)
            };
            let default = rest.strip_prefix('*').map(str::trim_start);
            let left = match default {
                Some(behind) => {
                    rest = behind;
                    None
                }
                None => Some(expr(&mut rest)?),
            };
            let relation = ["==", "<=", ">=", "<", ">"]
                .into_iter()
                .find(|relation| rest.starts_with(relation))
                .ok_or_else(|| error(rest, "expected `==`, `<=`, `>=`, `<` or `>`".to_owned()))?;
            rest = &rest[relation.len()..];
            let right = expr(&mut rest)?;
            let Some(left) = left else {
                let bounds = match (relation, right.as_const()) {
                    (">=", Some(lower)) => Interval::at_least(lower),
                    ("<=", Some(upper)) => Interval::at_most(upper),
                    _ => {
                        let message = "the bounds of `*` are numbers after `>=` or `<=`";
                        return Err(ParseError { offset: start, message: message.to_owned() });
                    }
                };
                match facts.default.intersect(&bounds) {
                    Some(default) if facts.is_empty() => facts.default = default,
                    Some(_) | None => {
                        let message = "the bounds of `*` come first and leave at least one value";
                        return Err(ParseError { offset: start, message: message.to_owned() });
                    }
                }
                match rest.strip_prefix(',') {
                    Some(behind) => rest = behind,
                    None if rest.is_empty() => return Ok(facts),
                    None => return Err(error(rest, "expected `,` or the end".to_owned())),
                }
                continue;
            };
            let assumed = match relation {
                "==" => facts.assume_eq(&left, &right),
                "<=" => facts.assume_le(&left, &right),
                ">=" => facts.assume_le(&right, &left),
                "<" => facts.assume_le(&(left + 1), &right),
                _ => facts.assume_le(&(right + 1), &left),
            };
            if let Err(mismatch) = assumed {
                return Err(ParseError { offset: start, message: mismatch.to_string() });
            }
            match rest.strip_prefix(',') {
                Some(behind) => rest = behind,
                None if rest.is_empty() => return Ok(facts),
                None => return Err(error(rest, "expected `,` or the end".to_owned())),
            }
        }
    }
}
