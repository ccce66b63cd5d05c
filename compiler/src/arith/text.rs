//! Text of expressions: printer and parser. Printing and parsing again is the identity.

use std::fmt;
use std::str::FromStr;

use super::canonical::add_scaled;
use super::expr::{Atom, Factor, IntExpr, Poison, Term, View};
use super::symbol::Symbol;

/// Words that are not symbols unless quoted.
const KEYWORDS: [&str; 8] =
    ["ceildiv", "floordiv", "max", "min", "mod", "overflow", "too_complex", "undefined"];

/// Deepest nesting of parentheses and calls that is read. Printed expressions nest less than
/// [`MAX_DEPTH`](super::expr::MAX_DEPTH).
const MAX_NESTING: u32 = 64;

impl fmt::Display for Symbol {
    /// The name, in quotes unless it reads as an identifier.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        if is_identifier(name) && !KEYWORDS.contains(&name) {
            return f.write_str(name);
        }
        f.write_str("\"")?;
        for c in name.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c.is_control() => write!(f, "\\u{{{:x}}}", u32::from(c))?,
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("\"")
    }
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

impl fmt::Debug for IntExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for IntExpr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let poly = match self.view() {
            View::Const(value) => return write!(f, "{value}"),
            View::Poison(poison) => return f.write_str(poison.keyword()),
            View::Poly(poly) => poly,
        };
        let terms: Vec<_> = poly.terms().iter().map(Printed::new).collect();
        // `m - n` rather than `-n + m`, `4 - n` rather than `-n + 4`.
        let first = terms.iter().position(|term| term.coefficient > 0);
        let constant_first = first.is_none() && poly.constant() > 0;
        if constant_first {
            write!(f, "{}", poly.constant())?;
        } else {
            terms[first.unwrap_or(0)].fmt(f, true)?;
        }
        for (index, term) in terms.iter().enumerate() {
            if constant_first || index != first.unwrap_or(0) {
                term.fmt(f, false)?;
            }
        }
        match poly.constant() {
            0 => Ok(()),
            _ if constant_first => Ok(()),
            i64::MIN => write!(f, " + {}", i64::MIN),
            constant if constant < 0 => write!(f, " - {}", -constant),
            constant => write!(f, " + {constant}"),
        }
    }
}

/// A term with the sign it prints with.
struct Printed<'a> {
    term: &'a Term,
    coefficient: i64,
    /// The factor that prints as a ceiling of the negated dividend, taking the term's sign.
    ceiling: Option<(usize, IntExpr)>,
}

impl Printed<'_> {
    fn new(term: &Term) -> Printed<'_> {
        let plain = Printed { term, coefficient: term.coefficient(), ceiling: None };
        let (true, Some(positive)) = (plain.coefficient < 0, plain.coefficient.checked_neg())
        else {
            return plain;
        };
        let ceiling = term.factors().iter().enumerate().find_map(|(index, factor)| {
            let Factor { atom: Atom::FloorDiv(a, b), power: 1 } = factor else { return None };
            let (terms, constant) = a.parts();
            let leading = terms.first().map_or(constant, Term::coefficient);
            let negated = add_scaled(&IntExpr::ZERO, a, -1);
            (!b.is_const() && leading < 0 && !negated.is_poison()).then_some((index, negated))
        });
        match ceiling {
            Some(ceiling) => Printed { term, coefficient: positive, ceiling: Some(ceiling) },
            None => plain,
        }
    }

    fn fmt(&self, f: &mut fmt::Formatter<'_>, first: bool) -> fmt::Result {
        match (self.coefficient, first) {
            (1, true) => {}
            (-1, true) => f.write_str("-")?,
            (coefficient, true) => write!(f, "{coefficient}*")?,
            (1, false) => f.write_str(" + ")?,
            (-1, false) => f.write_str(" - ")?,
            (i64::MIN, false) => write!(f, " + {}*", i64::MIN)?,
            (coefficient, false) if coefficient < 0 => write!(f, " - {}*", -coefficient)?,
            (coefficient, false) => write!(f, " + {coefficient}*")?,
        }
        for (index, factor) in self.term.factors().iter().enumerate() {
            for repetition in 0..factor.power {
                if index > 0 || repetition > 0 {
                    f.write_str("*")?;
                }
                match (&self.ceiling, &factor.atom) {
                    (Some((at, dividend)), Atom::FloorDiv(_, b)) if *at == index => {
                        write!(f, "ceildiv({dividend}, {b})")?;
                    }
                    (_, atom) => write!(f, "{atom}")?,
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Atom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let call = |f: &mut fmt::Formatter<'_>, name: &str, operands: &[IntExpr]| {
            write!(f, "{name}(")?;
            for (index, operand) in operands.iter().enumerate() {
                write!(f, "{}{operand}", if index == 0 { "" } else { ", " })?;
            }
            f.write_str(")")
        };
        match self {
            Atom::Symbol(symbol) => write!(f, "{symbol}"),
            Atom::FloorDiv(a, b) => {
                // A dividend that was raised by one less than the divisor was a ceiling.
                if let (Some(divisor), (_, constant)) = (b.as_const(), a.parts())
                    && divisor > 1
                    && constant == divisor - 1
                {
                    let dividend = add_scaled(a, &IntExpr::constant(constant), -1);
                    return write!(f, "ceildiv({dividend}, {divisor})");
                }
                write!(f, "floordiv({a}, {b})")
            }
            Atom::Mod(a, b) => write!(f, "mod({a}, {b})"),
            Atom::Min(operands) => call(f, "min", operands),
            Atom::Max(operands) => call(f, "max", operands),
        }
    }
}

/// Why a text is not an expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// Where, in bytes from the start of the text.
    pub offset: usize,
    /// What was found and what is expected there.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at byte {}: {}", self.offset, self.message)
    }
}

impl std::error::Error for ParseError {}

impl FromStr for IntExpr {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<IntExpr, ParseError> {
        IntExpr::parse(text)
    }
}

impl FromStr for Symbol {
    type Err = ParseError;

    /// Reads the name as it prints: an identifier, or any text in quotes.
    fn from_str(text: &str) -> Result<Symbol, ParseError> {
        let mut parser = Parser { text, offset: 0 };
        let name = match parser.peek() {
            Some('"') => parser.quoted()?,
            _ => parser.identifier().to_owned(),
        };
        if name.is_empty() && !text.contains('"') {
            return Err(parser.unexpected("a symbol"));
        }
        parser.end()?;
        Ok(Symbol::new(&name))
    }
}

impl IntExpr {
    /// Reads an expression as it prints; also `//` for floor division, `%` for the remainder, and
    /// parentheses.
    ///
    /// As in Python, a sign binds more tightly than `*`, `//` and `%`, which are of equal
    /// precedence.
    pub fn parse(text: &str) -> Result<IntExpr, ParseError> {
        let mut parser = Parser { text, offset: 0 };
        let expr = parser.sum(0)?;
        parser.end()?;
        Ok(expr)
    }

    /// Reads the expression at the start of a text, and says how many bytes it takes. What follows
    /// must not be an operator.
    pub fn parse_prefix(text: &str) -> Result<(IntExpr, usize), ParseError> {
        let mut parser = Parser { text, offset: 0 };
        let expr = parser.sum(0)?;
        Ok((expr, parser.offset))
    }
}

/// A recursive-descent parser whose recursion is at most [`MAX_NESTING`] deep.
struct Parser<'a> {
    text: &'a str,
    offset: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.offset..).unwrap_or("")
    }

    /// The next character that is not white space; stays before it.
    fn peek(&mut self) -> Option<char> {
        let trimmed = self.rest().trim_start();
        match trimmed.chars().next() {
            Some(c) => {
                self.offset = self.text.len() - trimmed.len();
                Some(c)
            }
            None => None,
        }
    }

    fn eat(&mut self, token: &str) -> bool {
        let before = self.offset;
        self.peek();
        if self.rest().starts_with(token) {
            self.offset += token.len();
            return true;
        }
        self.offset = before;
        false
    }

    fn expect(&mut self, token: &str) -> Result<(), ParseError> {
        if self.eat(token) { Ok(()) } else { Err(self.unexpected(&format!("`{token}`"))) }
    }

    fn end(&mut self) -> Result<(), ParseError> {
        if self.peek().is_none() { Ok(()) } else { Err(self.unexpected("the end")) }
    }

    fn error(&self, offset: usize, message: impl Into<String>) -> ParseError {
        ParseError { offset, message: message.into() }
    }

    fn unexpected(&mut self, expected: &str) -> ParseError {
        let found = match self.peek() {
            Some(c) => format!("`{c}`"),
            None => {
                self.offset = self.text.len();
                "the end".to_owned()
            }
        };
        self.error(self.offset, format!("found {found}, expected {expected}"))
    }

    fn sum(&mut self, nesting: u32) -> Result<IntExpr, ParseError> {
        if nesting > MAX_NESTING {
            let message = format!("the expression nests more than {MAX_NESTING} levels");
            return Err(self.error(self.offset, message));
        }
        let mut sum = self.product(nesting)?;
        loop {
            if self.eat("+") {
                sum += self.product(nesting)?;
            } else if self.eat("-") {
                sum -= self.product(nesting)?;
            } else {
                return Ok(sum);
            }
        }
    }

    fn product(&mut self, nesting: u32) -> Result<IntExpr, ParseError> {
        let mut product = self.signed(nesting)?;
        loop {
            if self.eat("*") {
                product *= self.signed(nesting)?;
            } else if self.eat("//") {
                product = product.floor_div(&self.signed(nesting)?);
            } else if self.eat("%") {
                product = product.modulo(&self.signed(nesting)?);
            } else {
                return Ok(product);
            }
        }
    }

    fn signed(&mut self, nesting: u32) -> Result<IntExpr, ParseError> {
        let mut negative = false;
        loop {
            if self.eat("-") {
                negative = !negative;
            } else if !self.eat("+") {
                break;
            }
        }
        match self.peek() {
            Some(c) if c.is_ascii_digit() => self.number(negative),
            _ => {
                let operand = self.operand(nesting)?;
                Ok(if negative { -operand } else { operand })
            }
        }
    }

    fn number(&mut self, negative: bool) -> Result<IntExpr, ParseError> {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (digits, start) = (&rest[..end], self.offset);
        self.offset += end;
        let sign = if negative { "-" } else { "" };
        format!("{sign}{digits}").parse().map(IntExpr::constant).map_err(|_| {
            self.error(start, format!("`{sign}{digits}` is not a 64-bit signed integer"))
        })
    }

    fn operand(&mut self, nesting: u32) -> Result<IntExpr, ParseError> {
        match self.peek() {
            Some('(') => {
                self.expect("(")?;
                let inner = self.sum(nesting + 1)?;
                self.expect(")")?;
                Ok(inner)
            }
            Some('"') => Ok(IntExpr::symbol(self.quoted()?.as_str())),
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let start = self.offset;
                match self.identifier() {
                    "overflow" => Ok(IntExpr::poisoned(Poison::Overflow)),
                    "too_complex" => Ok(IntExpr::poisoned(Poison::TooComplex)),
                    "undefined" => Ok(IntExpr::poisoned(Poison::Undefined)),
                    name if KEYWORDS.contains(&name) => self.call(name, start, nesting + 1),
                    name => Ok(IntExpr::symbol(name)),
                }
            }
            _ => Err(self.unexpected("an integer expression")),
        }
    }

    fn call(&mut self, name: &str, start: usize, nesting: u32) -> Result<IntExpr, ParseError> {
        self.expect("(")?;
        let mut operands = vec![self.sum(nesting)?];
        while self.eat(",") {
            operands.push(self.sum(nesting)?);
        }
        self.expect(")")?;
        match (name, &operands[..]) {
            ("floordiv", [a, b]) => Ok(a.floor_div(b)),
            ("ceildiv", [a, b]) => Ok(a.ceil_div(b)),
            ("mod", [a, b]) => Ok(a.modulo(b)),
            ("min", operands) => Ok(IntExpr::min_of(operands)),
            ("max", operands) => Ok(IntExpr::max_of(operands)),
            (_, operands) => {
                let found = operands.len();
                Err(self.error(start, format!("`{name}` takes 2 operands, found {found}")))
            }
        }
    }

    /// The letters, digits and underscores that come next; the caller has looked at the first.
    fn identifier(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let name = &rest[..end.unwrap_or(rest.len())];
        self.offset += name.len();
        name
    }

    fn quoted(&mut self) -> Result<String, ParseError> {
        let start = self.offset;
        self.expect("\"")?;
        let mut name = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.offset += at + 1;
                    return Ok(name);
                }
                '\\' => match unescape(&mut chars) {
                    Some(c) => name.push(c),
                    None => {
                        let message = "unknown escape; known are \\\", \\\\ and \\u{hex}";
                        return Err(self.error(self.offset + at, message));
                    }
                },
                c => name.push(c),
            }
        }
        Err(self.error(start, "the quote is not closed"))
    }
}

/// The character that an escape stands for; `chars` is behind the backslash.
fn unescape(chars: &mut std::str::CharIndices<'_>) -> Option<char> {
    match chars.next()?.1 {
        c @ ('"' | '\\') => Some(c),
        'u' => {
            chars.next().filter(|(_, c)| *c == '{')?;
            let digits: String =
                chars.by_ref().map(|(_, c)| c).take_while(|c| *c != '}').take(9).collect();
            u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32)
        }
        _ => None,
    }
}
