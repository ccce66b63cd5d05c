//! Shared state of the parser: words with one of lookahead, and the list of errors.

use super::error::{MAX_ERRORS, ParseError};
use super::lexer::{Lexer, Pos, Token};
use crate::diagnostics::suggest;
use crate::graph::Sidecar;

/// Nesting of types, attribute values and operands beyond which a text is refused: they are parsed
/// by recursion. Scopes nest without a limit.
pub(super) const MAX_NESTING: u32 = 64;

/// Longest misspelt name for which a suggestion is looked for.
const MAX_SUGGEST: usize = 64;

/// A token for an error that is already in the list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported;

pub(super) type Result<T> = std::result::Result<T, Reported>;

struct Peeked<'a> {
    token: Token<'a>,
    pos: Pos,
    /// The lexer after the word.
    after: Lexer<'a>,
}

/// A reader of words, with the errors so far.
pub(super) struct Parser<'a> {
    text: &'a str,
    lexer: Lexer<'a>,
    peeked: Option<Peeked<'a>>,
    pub(super) errors: Vec<ParseError>,
    pub(super) sidecar: Option<&'a Sidecar>,
}

impl<'a> Parser<'a> {
    pub(super) fn new(text: &'a str, sidecar: Option<&'a Sidecar>) -> Parser<'a> {
        Parser { text, lexer: Lexer::new(text), peeked: None, errors: Vec::new(), sidecar }
    }

    /// The next word, without consuming it.
    pub(super) fn peek(&mut self) -> &Token<'a> {
        &self.peeked().token
    }

    fn peeked(&mut self) -> &Peeked<'a> {
        let lexer = &self.lexer;
        self.peeked.get_or_insert_with(|| {
            let mut after = lexer.clone();
            let (token, pos) = after.next();
            Peeked { token, pos, after }
        })
    }

    /// The word after the next one.
    pub(super) fn peek_second(&mut self) -> Token<'a> {
        self.peeked().after.clone().next().0
    }

    /// The place of the next word.
    pub(super) fn pos(&mut self) -> Pos {
        self.peeked().pos
    }

    pub(super) fn next(&mut self) -> (Token<'a>, Pos) {
        self.peek();
        match self.peeked.take() {
            Some(Peeked { token, pos, after }) => {
                self.lexer = after;
                (token, pos)
            }
            None => (Token::End, self.lexer.pos()),
        }
    }

    /// The lexer before the next word, for text that does not consist of words.
    pub(super) fn raw(&mut self) -> &mut Lexer<'a> {
        self.peeked = None;
        self.lexer.skip_space();
        &mut self.lexer
    }

    /// The lexer before the next word, to return to later.
    pub(super) fn lexer(&self) -> Lexer<'a> {
        self.lexer.clone()
    }

    /// Continues at another place of the text.
    pub(super) fn set_lexer(&mut self, lexer: Lexer<'a>) {
        self.peeked = None;
        self.lexer = lexer;
    }

    pub(super) fn at(&mut self, mark: &str) -> bool {
        matches!(self.peek(), Token::Punct(found) if *found == mark)
    }

    pub(super) fn at_keyword(&mut self, word: &str) -> bool {
        matches!(self.peek(), Token::Ident(found) if *found == word)
    }

    pub(super) fn eat(&mut self, mark: &str) -> bool {
        let found = self.at(mark);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn eat_keyword(&mut self, word: &str) -> bool {
        let found = self.at_keyword(word);
        if found {
            self.next();
        }
        found
    }

    pub(super) fn expect(&mut self, mark: &str) -> Result<Pos> {
        let pos = self.pos();
        if self.eat(mark) { Ok(pos) } else { Err(self.unexpected(&format!("`{mark}`"))) }
    }

    pub(super) fn expect_keyword(&mut self, word: &str) -> Result<()> {
        if self.eat_keyword(word) { Ok(()) } else { Err(self.unexpected(&format!("`{word}`"))) }
    }

    /// Reports that the next word is not the expected one.
    pub(super) fn unexpected(&mut self, expected: &str) -> Reported {
        let pos = self.pos();
        let message = match self.peek() {
            Token::Bad(message) => message.clone(),
            token => format!("expected {expected}, found {token}"),
        };
        self.error(pos, message)
    }

    pub(super) fn error(&mut self, pos: Pos, message: impl Into<String>) -> Reported {
        self.error_with_help(pos, message, None)
    }

    pub(super) fn error_with_help(
        &mut self,
        pos: Pos,
        message: impl Into<String>,
        help: Option<String>,
    ) -> Reported {
        if !self.gave_up() {
            self.errors.push(ParseError::new(self.text, pos, message.into(), help));
        }
        Reported
    }

    /// Whether there are too many errors to go on.
    pub(super) fn gave_up(&self) -> bool {
        self.errors.len() >= MAX_ERRORS
    }

    /// Refuses text that is nested too deeply.
    pub(super) fn check_nesting(&mut self, nesting: u32, pos: Pos) -> Result<()> {
        if nesting <= MAX_NESTING {
            return Ok(());
        }
        Err(self.error(pos, format!("this nests more than {MAX_NESTING} deep")))
    }

    /// Reads `item, item, …` up to and including a closing mark; a comma before the mark is
    /// allowed.
    pub(super) fn list(
        &mut self,
        close: &str,
        mut item: impl FnMut(&mut Parser<'a>) -> Result<()>,
    ) -> Result<()> {
        while !self.eat(close) {
            item(self)?;
            if !self.eat(",") && !self.at(close) {
                return Err(self.unexpected(&format!("`,` or `{close}`")));
            }
        }
        Ok(())
    }
}

/// `did you mean …`, if a candidate is near.
pub(super) fn did_you_mean<'c>(
    name: &str,
    candidates: impl IntoIterator<Item = &'c str>,
) -> Option<String> {
    if name.len() > MAX_SUGGEST {
        return None;
    }
    suggest(name, candidates).map(|candidate| format!("did you mean `{candidate}`?"))
}
