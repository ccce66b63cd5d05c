//! The lexer of the text format.

use std::fmt;

use crate::arith::{Facts, IntExpr, ParseError};
use crate::ir::text::read_quoted;

/// A place in a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Pos {
    /// In bytes, from 0.
    pub(super) offset: usize,
    /// From 1.
    pub(super) line: u32,
    /// In characters, from 1.
    pub(super) column: u32,
}

/// The name of a value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Local {
    /// `%3`.
    Number(u32),
    /// `%x`, or `%"any text"`.
    Name(String),
}

impl fmt::Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Local::Number(number) => write!(f, "%{number}"),
            Local::Name(name) => write!(f, "%{}", crate::ir::text::Name(name)),
        }
    }
}

/// One word.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Token<'a> {
    /// The end of the text.
    End,
    /// Identifiers joined by dots.
    Ident(&'a str),
    /// `%x`.
    Local(Local),
    /// `@main`, without the `@`.
    Global(String),
    /// `"text"`, with its escapes replaced.
    Str(String),
    /// A number, or text that starts with a digit, or with a minus and a digit or `inf`.
    Number(&'a str),
    /// A punctuation mark.
    Punct(&'static str),
    /// Malformed text, with the reason.
    Bad(String),
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::End => f.write_str("the end"),
            Token::Ident(text) | Token::Number(text) => write!(f, "`{text}`"),
            Token::Local(local) => write!(f, "`{local}`"),
            Token::Global(name) => write!(f, "`@{name}`"),
            Token::Str(_) => f.write_str("a string"),
            Token::Punct(mark) => write!(f, "`{mark}`"),
            Token::Bad(message) => f.write_str(message),
        }
    }
}

/// Marks, longer ones before their beginnings.
const MARKS: [&str; 21] = [
    "->", ">=", "<=", "==", "(", ")", "[", "]", "{", "}", ",", ";", ":", "=", ".", "#", "/", "<",
    ">", "*", "|",
];

/// The message about `//` within an integer expression, whose parser would take it for a quotient.
const NO_COMMENT: &str = "there is no comment here; write a quotient as `floordiv(a, b)`";

/// Reads words off a text. Cheap to clone: a look ahead reads on with a clone.
#[derive(Clone)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    pos: Pos,
    /// Whether only white space precedes on this line.
    fresh_line: bool,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Lexer<'a> {
        Lexer { text, pos: Pos { offset: 0, line: 1, column: 1 }, fresh_line: true }
    }

    /// This lexer with the text cut off at an offset, where the end is.
    pub(super) fn until(&self, end: usize) -> Lexer<'a> {
        Lexer { text: &self.text[..end], pos: self.pos, fresh_line: self.fresh_line }
    }

    /// The current position; see [`skip_space`](Self::skip_space).
    pub(super) fn pos(&self) -> Pos {
        self.pos
    }

    /// The whole text.
    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    /// Goes on to an offset, which is not before this one.
    pub(super) fn advance_to(&mut self, offset: usize) {
        self.advance(offset.saturating_sub(self.pos.offset));
    }

    fn rest(&self) -> &'a str {
        &self.text[self.pos.offset..]
    }

    fn advance(&mut self, bytes: usize) {
        for c in self.rest()[..bytes].chars() {
            if c == '\n' {
                self.pos.line += 1;
                self.pos.column = 1;
                self.fresh_line = true;
            } else {
                self.pos.column += 1;
                self.fresh_line &= c.is_whitespace();
            }
        }
        self.pos.offset += bytes;
    }

    /// Goes on to the next word: past white space and comments, which are `// …`, `/* … */`, and
    /// lines that start with `;`. A comment that is not closed ends with the text.
    pub(super) fn skip_space(&mut self) {
        loop {
            let rest = self.rest();
            let space = rest.len() - rest.trim_start().len();
            self.advance(space);
            let rest = self.rest();
            let comment = if rest.starts_with("//") || (self.fresh_line && rest.starts_with(';')) {
                rest.find('\n').unwrap_or(rest.len())
            } else if let Some(inner) = rest.strip_prefix("/*") {
                inner.find("*/").map_or(rest.len(), |end| end + 4)
            } else {
                return;
            };
            self.advance(comment);
        }
    }

    /// The next word and its position.
    pub(super) fn next(&mut self) -> (Token<'a>, Pos) {
        self.skip_space();
        let start = self.pos;
        (self.token(), start)
    }

    fn token(&mut self) -> Token<'a> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Token::End };
        match first {
            '%' => {
                self.advance(1);
                self.local()
            }
            '@' => {
                self.advance(1);
                match self.rest().chars().next() {
                    Some('"') => self.string().map_or_else(Token::Bad, Token::Global),
                    _ => match self.dotted() {
                        "" => Token::Bad("`@` without a name".to_owned()),
                        name => Token::Global(name.to_owned()),
                    },
                }
            }
            '"' => self.string().map_or_else(Token::Bad, Token::Str),
            c if c.is_ascii_alphabetic() || c == '_' => Token::Ident(self.dotted()),
            c if c.is_ascii_digit() => self.number(),
            '-' if rest[1..].starts_with(|c: char| c.is_ascii_digit() || c == 'i') => self.number(),
            _ => match MARKS.iter().find(|mark| rest.starts_with(**mark)) {
                Some(mark) => {
                    self.advance(mark.len());
                    Token::Punct(mark)
                }
                None => {
                    self.advance(first.len_utf8());
                    Token::Bad(format!("{first:?} is not a part of the language"))
                }
            },
        }
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = &rest[..rest.find(|c| !keep(c)).unwrap_or(rest.len())];
        self.advance(taken.len());
        taken
    }

    fn identifier(&mut self) -> &'a str {
        self.take_while(|c| c.is_ascii_alphanumeric() || c == '_')
    }

    /// Identifiers joined by dots; empty if there is none.
    fn dotted(&mut self) -> &'a str {
        let rest = self.rest();
        let mut len = 0;
        loop {
            let piece = &rest[len..];
            if !piece.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
                break;
            }
            let end = piece.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            len += end.unwrap_or(piece.len());
            match rest[len..].strip_prefix('.') {
                Some(next) if next.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') => {
                    len += 1;
                }
                _ => break,
            }
        }
        self.advance(len);
        &rest[..len]
    }

    fn local(&mut self) -> Token<'a> {
        match self.rest().chars().next() {
            Some('"') => {
                self.string().map_or_else(Token::Bad, |name| Token::Local(Local::Name(name)))
            }
            Some(c) if c.is_ascii_digit() => match self.index() {
                Some(number) => Token::Local(Local::Number(number)),
                None => Token::Bad("the number of a value is beyond 32 bits".to_owned()),
            },
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                Token::Local(Local::Name(self.identifier().to_owned()))
            }
            _ => Token::Bad("`%` without a name".to_owned()),
        }
    }

    /// Decimal digits as a number, if there are any and it fits.
    pub(super) fn index(&mut self) -> Option<u32> {
        self.take_while(|c| c.is_ascii_digit()).parse().ok()
    }

    /// The letters and digits that come next: a digest.
    pub(super) fn hex(&mut self) -> &'a str {
        self.take_while(|c| c.is_ascii_alphanumeric())
    }

    /// An integer expression, read by its own parser.
    pub(super) fn int_expr(&mut self) -> Result<IntExpr, (Pos, String)> {
        self.skip_space();
        match IntExpr::parse_prefix(self.rest()) {
            Ok((expr, len)) => {
                // Elsewhere `//` starts a comment; a text must not have both meanings.
                if let Some(comment) = self.rest()[..len].find("//") {
                    self.advance(comment);
                    return Err((self.pos, NO_COMMENT.to_owned()));
                }
                self.advance(len);
                Ok(expr)
            }
            Err(error) => {
                let mut at = self.clone();
                at.advance(error.offset);
                Err((at.pos, error.message))
            }
        }
    }

    /// Facts about symbols, from here to an offset, read by their own parser.
    pub(super) fn facts(&self, end: usize) -> Result<Facts, (Pos, String)> {
        let text = self.text[self.pos.offset..end].trim_end();
        let fail = |offset: usize, message: &str| {
            let mut at = self.clone();
            at.advance(offset);
            (at.pos, message.to_owned())
        };
        if let Some(comment) = text.find("//") {
            return Err(fail(comment, NO_COMMENT));
        }
        // `*` alone means that nothing is known about symbols that are not mentioned. Without any
        // relation about `*`, all symbols are sizes.
        if let Some(rest) = text.strip_prefix('*').map(str::trim_start)
            && (rest.is_empty() || rest.starts_with(','))
        {
            let rest = rest.strip_prefix(',').unwrap_or(rest);
            let skipped = text.len() - rest.len();
            return rest
                .parse()
                .map_err(|error: ParseError| fail(skipped + error.offset, &error.message));
        }
        let implied = match text.starts_with('*') {
            true => String::new(),
            false => format!("{}, ", Facts::dims()),
        };
        format!("{implied}{text}").parse().map_err(|error: ParseError| {
            fail(error.offset.saturating_sub(implied.len()).min(text.len()), &error.message)
        })
    }

    fn number(&mut self) -> Token<'a> {
        let rest = self.rest();
        let hex = rest.starts_with("0x");
        let mut exponent = false;
        let end = rest.char_indices().find(|&(index, c)| {
            let sign = index == 0 || (exponent && !hex);
            exponent = c == 'e';
            !(c.is_ascii_alphanumeric() || c == '.' || (sign && matches!(c, '-' | '+')))
        });
        let text = &rest[..end.map_or(rest.len(), |(index, _)| index)];
        self.advance(text.len());
        Token::Number(text)
    }

    /// Text in quotes, with the escapes of a Rust string.
    fn string(&mut self) -> Result<String, String> {
        let rest = self.rest();
        match read_quoted(rest) {
            Ok((text, behind)) => {
                self.advance(rest.len() - behind.len());
                Ok(text)
            }
            Err(message) => {
                // Goes on reading at the next line.
                self.advance(rest.find('\n').unwrap_or(rest.len()));
                Err(message.to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let mut lexer = Lexer::new(text);
        std::iter::from_fn(|| match lexer.next().0 {
            Token::End => None,
            token => Some(format!("{token:?}")),
        })
        .collect()
    }

    #[test]
    fn the_lexer_tells_words_apart() {
        assert_eq!(
            words("%x %3.0 @a.b nn.relu -1.5e-3,->_"),
            [
                r#"Local(Name("x"))"#,
                "Local(Number(3))",
                r#"Punct(".")"#,
                r#"Number("0")"#,
                r#"Global("a.b")"#,
                r#"Ident("nn.relu")"#,
                r#"Number("-1.5e-3")"#,
                r#"Punct(",")"#,
                r#"Punct("->")"#,
                r#"Ident("_")"#,
            ]
        );
        assert_eq!(
            words("-inf 0x1e-2"),
            [r#"Number("-inf")"#, r#"Number("0x1e")"#, r#"Number("-2")"#]
        );
    }

    #[test]
    fn strings_hold_anything() {
        for text in ["", "a\"b\\c", "line\nbreak\u{1}", "ünï\u{301}", "'"] {
            let mut lexer = Lexer::new("");
            let quoted = format!("{text:?}");
            lexer.text = &quoted;
            assert_eq!(lexer.next().0, Token::Str(text.to_owned()));
        }
        assert!(words(r#""\q""#)[0].contains("unknown escape"));
        assert!(words("\"abc").concat().contains("not closed"));
    }

    #[test]
    fn comments_are_skipped_and_places_are_counted() {
        let mut lexer = Lexer::new("; note\n  ; another\n/* ü\n */ a ; // b\nc");
        assert_eq!(lexer.next().0, Token::Ident("a"));
        assert_eq!(lexer.next().0, Token::Punct(";"), "only a line's first `;` starts a comment");
        let (token, pos) = lexer.next();
        assert_eq!((token, pos.line, pos.column), (Token::Ident("c"), 5, 1));
    }
}
