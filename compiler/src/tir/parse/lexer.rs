//! Tokens of the text form.

use std::fmt;

/// One token.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Token<'a> {
    Word(&'a str),
    /// Digits, with a fraction or exponent if it is a float; never signed.
    Number(&'a str),
    Text(String),
    Symbol(&'static str),
    End,
}

impl fmt::Display for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Token::Word(word) | Token::Number(word) => write!(f, "`{word}`"),
            Token::Text(_) => f.write_str("a string"),
            Token::Symbol(symbol) => write!(f, "`{symbol}`"),
            Token::End => f.write_str("the end"),
        }
    }
}

/// Longest first, because one may be the beginning of another.
const SYMBOLS: [&str; 28] = [
    "==", "!=", "<=", ">=", "<<", ">>", "{", "}", "(", ")", "[", "]", "<", ">", ",", ":", "=", "@",
    "+", "-", "*", "/", "%", "&", "|", "^", ".", ";",
];

pub(super) struct Lexer<'a> {
    text: &'a str,
    /// The start of the next token, or of spaces before it.
    offset: usize,
    /// The start of the last token.
    last: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn at(text: &'a str, offset: usize) -> Self {
        Lexer { text, offset, last: offset }
    }

    /// The start of the last token.
    pub(super) fn last(&self) -> usize {
        self.last
    }

    /// The end of the last token.
    pub(super) fn end(&self) -> usize {
        self.offset
    }

    /// Line and column of the last token.
    pub(super) fn position(&self) -> (usize, usize) {
        let before = &self.text[..self.last];
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        (line, column)
    }

    pub(super) fn peek(&mut self) -> Result<Token<'a>, String> {
        let (offset, last) = (self.offset, self.last);
        let token = self.next();
        self.offset = offset;
        // After an error the position stays at the error.
        if token.is_ok() {
            self.last = last;
        }
        token
    }

    pub(super) fn next(&mut self) -> Result<Token<'a>, String> {
        self.skip();
        let text = self.text;
        let rest = &text[self.offset..];
        self.last = self.offset;
        let Some(first) = rest.chars().next() else { return Ok(Token::End) };
        if first.is_ascii_alphabetic() || first == '_' {
            let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let len = rest.find(|c| !word(c)).unwrap_or(rest.len());
            self.offset += len;
            return Ok(Token::Word(&rest[..len]));
        }
        if first.is_ascii_digit() {
            let len = number_len(rest);
            self.offset += len;
            return Ok(Token::Number(&rest[..len]));
        }
        if first == '"' {
            return self.string(rest);
        }
        for symbol in SYMBOLS {
            if rest.starts_with(symbol) {
                self.offset += symbol.len();
                return Ok(Token::Symbol(symbol));
            }
        }
        Err(format!("`{first}` means nothing here"))
    }

    /// A layout: text in brackets, and in braces that follow without a space.
    pub(super) fn layout(&mut self) -> Result<&'a str, String> {
        self.skip();
        self.last = self.offset;
        let rest = &self.text[self.offset..];
        let unclosed = || "a shape in brackets is expected".to_owned();
        if !rest.starts_with('[') {
            return Err(unclosed());
        }
        let mut len = rest.find(']').ok_or_else(unclosed)? + 1;
        if rest[len..].starts_with('{') {
            len += rest[len..].find('}').ok_or("`}` is missing")? + 1;
        }
        self.offset += len;
        Ok(&rest[..len])
    }

    /// Whether the brackets here contain a name.
    pub(super) fn is_symbolic_shape(&mut self) -> bool {
        self.skip();
        let rest = &self.text[self.offset..];
        let inside = rest.strip_prefix('[').and_then(|rest| rest.split(']').next());
        inside.is_some_and(|text| text.contains(|c: char| c.is_ascii_alphabetic() || c == '_'))
    }

    /// Skips spaces, and comments from `;` to the end of a line.
    fn skip(&mut self) {
        loop {
            let rest = self.text[self.offset..].trim_start();
            self.offset = self.text.len() - rest.len();
            if !rest.starts_with(';') {
                return;
            }
            self.offset += rest.find('\n').unwrap_or(rest.len());
        }
    }

    fn string(&mut self, rest: &str) -> Result<Token<'a>, String> {
        let mut value = String::new();
        let mut chars = rest.char_indices().skip(1);
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.offset += at + 1;
                    return Ok(Token::Text(value));
                }
                '\\' => match chars.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, c @ ('"' | '\\'))) => value.push(c),
                    _ => return Err("a string has an unknown escape".to_owned()),
                },
                '\n' => break,
                c => value.push(c),
            }
        }
        Err("a string does not end on its line".to_owned())
    }
}

/// Length of digits, a fraction and an exponent.
fn number_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(u8::is_ascii_digit) {
            at += 1;
        }
        at
    };
    let mut len = digits(0);
    if bytes.get(len) == Some(&b'.') && bytes.get(len + 1).is_some_and(u8::is_ascii_digit) {
        len = digits(len + 1);
    }
    if matches!(bytes.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
        let end = digits(len + 1 + sign);
        if end > len + 1 + sign {
            len = end;
        }
    }
    len
}
