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
        let mut reader = Reader { text, rest: text.trim_start() };
        if reader.rest.is_empty() {
            return Ok(facts);
        }
        loop {
            let start = reader.offset();
            let refused = |message: String| ParseError { offset: start, message };
            if let Some(behind) = reader.rest.strip_prefix('*') {
                reader.rest = behind.trim_start();
                let (relation, bound) = (reader.relation()?, reader.expr()?);
                facts.narrow_default(relation, &bound).map_err(refused)?;
            } else {
                let (left, relation, right) = (reader.expr()?, reader.relation()?, reader.expr()?);
                match relation {
                    Relation::Equal => facts.assume_eq(&left, &right),
                    Relation::AtMost => facts.assume_le(&left, &right),
                    Relation::AtLeast => facts.assume_le(&right, &left),
                    Relation::Less => facts.assume_le(&(left + 1), &right),
                    Relation::Greater => facts.assume_le(&(right + 1), &left),
                }
                .map_err(|mismatch| refused(mismatch.to_string()))?;
            }
            match reader.rest.strip_prefix(',') {
                Some(behind) => reader.rest = behind.trim_start(),
                None if reader.rest.is_empty() => return Ok(facts),
                None => return Err(reader.error("expected `,` or the end")),
            }
        }
    }
}

impl Facts {
    fn narrow_default(&mut self, relation: Relation, bound: &IntExpr) -> Result<(), String> {
        let bounds = match (relation, bound.as_const()) {
            (Relation::AtLeast, Some(lower)) => Interval::at_least(lower),
            (Relation::AtMost, Some(upper)) => Interval::at_most(upper),
            _ => return Err("the bounds of `*` are numbers after `>=` or `<=`".to_owned()),
        };
        match self.default.intersect(&bounds) {
            Some(default) if self.is_empty() => {
                self.default = default;
                Ok(())
            }
            _ => Err("the bounds of `*` come first and leave at least one value".to_owned()),
        }
    }
}

#[derive(Clone, Copy)]
enum Relation {
    Equal,
    AtMost,
    AtLeast,
    Less,
    Greater,
}

struct Reader<'a> {
    text: &'a str,
    /// What is not read yet, without white space before it.
    rest: &'a str,
}

impl Reader<'_> {
    fn offset(&self) -> usize {
        self.text.len() - self.rest.len()
    }

    fn error(&self, message: &str) -> ParseError {
        ParseError { offset: self.offset(), message: message.to_owned() }
    }

    fn expr(&mut self) -> Result<IntExpr, ParseError> {
        let (expr, length) = IntExpr::parse_prefix(self.rest).map_err(|inner| ParseError {
            offset: self.offset() + inner.offset,
            message: inner.message,
        })?;
        self.rest = self.rest[length..].trim_start();
        Ok(expr)
    }

    fn relation(&mut self) -> Result<Relation, ParseError> {
        let known = [
            ("==", Relation::Equal),
            ("<=", Relation::AtMost),
            (">=", Relation::AtLeast),
            ("<", Relation::Less),
            (">", Relation::Greater),
        ];
        for (token, relation) in known {
            if let Some(behind) = self.rest.strip_prefix(token) {
                self.rest = behind.trim_start();
                return Ok(relation);
            }
        }
        Err(self.error("expected `==`, `<=`, `>=`, `<` or `>`"))
    }
}
