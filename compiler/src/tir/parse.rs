//! The parser of the text form; [`print`](super::print) describes it.

mod expr;
mod lexer;

use std::collections::BTreeMap;
use std::fmt;

use lexer::{Lexer, Token};

use super::{
    Annotations, BlockIter, BlockRealize, BufferId, BufferScope, ForKind, IterKind, MAX_DEPTH,
    Param, ParamKind, PrimExpr, PrimFunc, PrimFuncData, PrimType, Stmt, VarId,
};
use crate::ir::{BufferSpec, DType};

/// The error of a text that is not a loop function.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// The message.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for ParseError {}

/// Parses one function, which may have violations that [`verify`](super::verify) reports.
pub fn parse(text: &str) -> Result<PrimFunc, ParseError> {
    let mut parser = Parser::at(text, 0);
    let result = parser.function().and_then(|()| match parser.lexer.next()? {
        Token::End => Ok(()),
        other => Err(format!("{other} stands after the function")),
    });
    result.map_err(|message| {
        let (line, column) = parser.lexer.position();
        ParseError { line, column, message }
    })?;
    Ok(PrimFunc::new(parser.func))
}

/// A function that was parsed from within a text.
pub(crate) struct ParsedFunc {
    pub(crate) func: PrimFunc,
    /// The start of each statement, in bytes of the text, in the order in which they print.
    pub(crate) statements: Vec<usize>,
    /// The start of the text after the function.
    pub(crate) end: usize,
}

/// Parses the function that starts at an offset of a text.
///
/// # Errors
///
/// The offset of an error, and its message.
pub(crate) fn parse_at(text: &str, start: usize) -> Result<ParsedFunc, (usize, String)> {
    let mut parser = Parser::at(text, start);
    match parser.function() {
        Err(message) => Err((parser.lexer.last(), message)),
        Ok(()) => Ok(ParsedFunc {
            func: PrimFunc::new(parser.func),
            statements: parser.statements,
            end: parser.lexer.end(),
        }),
    }
}

type Result<T, E = String> = std::result::Result<T, E>;

/// The meaning of a name.
#[derive(Clone, Copy)]
enum Named {
    Var(VarId),
    Buffer(BufferId),
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    func: PrimFuncData,
    names: BTreeMap<String, Named>,
    /// Whether the parser is among the parameters, where extents name dimensions that come later.
    in_header: bool,
    /// Dimensions that were named before their declaration.
    forward: BTreeMap<String, VarId>,
    /// The current nesting of statements and expressions.
    depth: usize,
    /// The start of each statement.
    statements: Vec<usize>,
}

impl<'a> Parser<'a> {
    fn at(text: &'a str, start: usize) -> Parser<'a> {
        Parser {
            lexer: Lexer::at(text, start),
            func: PrimFuncData::new(""),
            names: BTreeMap::new(),
            in_header: false,
            forward: BTreeMap::new(),
            depth: 0,
            statements: Vec::new(),
        }
    }
}

impl Parser<'_> {
    fn function(&mut self) -> Result<()> {
        self.expect_word("prim_func")?;
        self.expect("@")?;
        self.func.name = match self.lexer.peek()? {
            Token::Text(_) => self.string()?,
            _ => self.dotted_word()?,
        };
        self.expect("(")?;
        while !self.accept(")") {
            self.param()?;
            if !self.accept(",") {
                self.expect(")")?;
                break;
            }
        }
        if let Some(name) = self.forward.keys().next() {
            return Err(format!("`{name}` is in an extent and no dimension: add `{name}: dim`"));
        }
        while self.accept_word("inplace") {
            self.expect("(")?;
            let output = self.number()?;
            self.expect(",")?;
            let input = self.number()?;
            self.expect(")")?;
            self.func.inplace.push((output, input));
        }
        self.expect("{")?;
        loop {
            if self.accept_word("origin") {
                let line = self.string()?;
                self.func.origin.push(line);
            } else if self.accept_word("attr") {
                let key = self.string()?;
                self.expect("=")?;
                let value = self.string()?;
                self.func.attrs.insert(key, value);
            } else {
                break;
            }
        }
        self.func.body = self.block_rest()?;
        Ok(())
    }

    fn dotted_word(&mut self) -> Result<String> {
        let mut word = self.word()?;
        while self.accept(".") {
            word.push('.');
            word += &self.word()?;
        }
        Ok(word)
    }

    fn param(&mut self) -> Result<()> {
        let name = self.word()?;
        self.expect(":")?;
        let kind = match self.word()?.as_str() {
            "dim" => {
                let var = match self.forward.remove(&name) {
                    Some(var) => var,
                    None => self.func.index_var(&name),
                };
                self.func.dims.push(var);
                self.names.insert(name, Named::Var(var));
                return Ok(());
            }
            "input" => ParamKind::Input,
            "const" => ParamKind::Constant,
            "output" => ParamKind::Output,
            other => {
                return Err(format!("`{other}` is none of input, const, output and dim"));
            }
        };
        self.in_header = true;
        let buffer = self.buffer_decl(&name, BufferScope::Param)?;
        self.in_header = false;
        self.func.params.push(Param { buffer, kind });
        self.names.insert(name, Named::Buffer(buffer));
        Ok(())
    }

    /// `float32[1, 16]` with an optional layout in braces directly behind, or `float32[m, 2 * n]`.
    fn buffer_decl(&mut self, name: &str, scope: BufferScope) -> Result<BufferId> {
        let dtype = self.dtype()?;
        if self.lexer.is_symbolic_shape() {
            let extents = self.indices()?;
            return Ok(self.func.dense_buffer(name, dtype, extents, scope));
        }
        let text = self.lexer.layout()?;
        let spec = text.parse::<BufferSpec>().map_err(|error| error.to_string())?;
        Ok(self.func.buffer(name, dtype, spec, scope))
    }

    fn dtype(&mut self) -> Result<DType> {
        self.word()?.parse::<DType>().map_err(|error| error.to_string())
    }

    /// Runs `inside` one level deeper.
    fn nested<T>(&mut self, inside: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.depth >= MAX_DEPTH {
            return Err(format!("statements and expressions nest deeper than {MAX_DEPTH}"));
        }
        self.depth += 1;
        let result = inside(self);
        self.depth -= 1;
        result
    }

    /// Statements up to and including the closing brace.
    fn block_rest(&mut self) -> Result<Stmt> {
        let body = self.stmts()?;
        self.expect("}")?;
        Ok(body)
    }

    fn block(&mut self) -> Result<Stmt> {
        self.expect("{")?;
        self.nested(Self::block_rest)
    }

    /// Statements up to a closing brace.
    fn stmts(&mut self) -> Result<Stmt> {
        let mut stmts = Vec::new();
        loop {
            match self.lexer.peek()? {
                Token::Symbol("}") | Token::End => return Ok(Stmt::seq(stmts)),
                _ => stmts.push(self.nested(Self::stmt)?),
            }
        }
    }

    fn stmt(&mut self) -> Result<Stmt> {
        let word = self.word()?;
        self.statements.push(self.lexer.last());
        match word.as_str() {
            "block" => {
                let name = self.string()?;
                if self.accept("(") {
                    return self.realize(name);
                }
                Ok(Stmt::block(name, self.block()?))
            }
            "for" => self.for_loop(),
            "if" => {
                let cond = self.expr()?;
                let then = self.block()?;
                if self.accept_word("else") {
                    return Ok(Stmt::if_then_else(cond, then, self.block()?));
                }
                Ok(Stmt::if_then(cond, then))
            }
            "let" => {
                let name = self.word()?;
                self.expect("=")?;
                let value = self.expr()?;
                let var = self.func.var(&name, value.ty());
                let outer = self.names.insert(name.clone(), Named::Var(var));
                let body = self.scope()?;
                self.restore(name, outer);
                Ok(Stmt::let_(var, value, body))
            }
            "allocate" => {
                let name = self.word()?;
                self.expect(":")?;
                let scope = match self.word()?.as_str() {
                    "local" => BufferScope::Local,
                    "register" => BufferScope::Register,
                    other => return Err(format!("`{other}` is neither local nor register")),
                };
                let buffer = self.buffer_decl(&name, scope)?;
                let outer = self.names.insert(name.clone(), Named::Buffer(buffer));
                let body = self.scope()?;
                self.restore(name, outer);
                Ok(Stmt::allocate(buffer, body))
            }
            "prefetch" => {
                let name = self.word()?;
                let buffer = self.buffer(&name)?;
                let indices = self.indices()?;
                let offset = if self.accept("+") { self.expr()? } else { PrimExpr::index(0) };
                let write = match self.word()?.as_str() {
                    "read" => false,
                    "write" => true,
                    other => return Err(format!("`{other}` is neither read nor write")),
                };
                let locality = self.number()?.try_into().map_err(|_| "no such locality")?;
                Ok(Stmt::Prefetch { buffer, indices, offset, locality, write })
            }
            "assert" => {
                let cond = self.expr()?;
                self.expect(",")?;
                Ok(Stmt::Assert { cond, message: self.string()? })
            }
            _ => {
                let buffer = self.buffer(&word)?;
                let indices = self.indices()?;
                self.expect("=")?;
                let value = self.expr()?;
                Ok(Stmt::Store { buffer, indices, value })
            }
        }
    }

    /// The scope of a declaration: a block, or the rest of the enclosing block.
    fn scope(&mut self) -> Result<Stmt> {
        if matches!(self.lexer.peek()?, Token::Symbol("{")) {
            return self.block();
        }
        self.stmts()
    }

    fn restore(&mut self, name: String, outer: Option<Named>) {
        match outer {
            Some(outer) => self.names.insert(name, outer),
            None => self.names.remove(&name),
        };
    }

    /// A block with variables, from after the parenthesis that opens their list.
    fn realize(&mut self, name: String) -> Result<Stmt> {
        let mut iters = Vec::new();
        let mut names = Vec::new();
        while !self.accept(")") {
            let name = self.word()?;
            self.expect(":")?;
            let word = self.word()?;
            let kind = IterKind::ALL.iter().find(|row| row.1 == word).map(|row| row.0);
            let kind = kind.ok_or_else(|| format!("`{word}` is neither spatial nor reduce"))?;
            self.expect("(")?;
            let extent = self.expr()?;
            self.expect(")")?;
            self.expect("=")?;
            let value = self.expr()?;
            let var = self.func.index_var(&name);
            iters.push(BlockIter { var, extent, kind, value });
            names.push((name, var));
            if !self.accept(",") {
                self.expect(")")?;
                break;
            }
        }
        let predicate = if self.accept_word("where") { self.expr()? } else { PrimExpr::bool(true) };
        let annotations = self.annotations()?;
        let outer: Vec<_> = names
            .into_iter()
            .map(|(name, var)| (name.clone(), self.names.insert(name, Named::Var(var))))
            .collect();
        self.expect("{")?;
        let init = if self.accept_word("init") { Some(self.block()?) } else { None };
        let body = self.nested(Self::block_rest)?;
        for (name, outer) in outer.into_iter().rev() {
            self.restore(name, outer);
        }
        let block = BlockRealize { name, iters, predicate, annotations, init, body };
        Ok(Stmt::BlockRealize(Box::new(block)))
    }

    /// `["key" = "value", …]`, or nothing.
    fn annotations(&mut self) -> Result<Annotations> {
        let mut annotations = Annotations::new();
        if self.accept("[") {
            loop {
                let key = self.string()?;
                self.expect("=")?;
                annotations.insert(key, self.string()?);
                if !self.accept(",") {
                    break;
                }
            }
            self.expect("]")?;
        }
        Ok(annotations)
    }

    fn for_loop(&mut self) -> Result<Stmt> {
        let name = self.word()?;
        self.expect_word("in")?;
        let word = self.word()?;
        let kind = ForKind::ALL
            .iter()
            .find(|row| row.1 == word)
            .map(|row| row.0)
            .ok_or_else(|| format!("`{word}` is not a kind of loop"))?;
        self.expect("(")?;
        let first = self.expr()?;
        let (min, extent) = if self.accept(",") {
            (first, self.expr()?)
        } else {
            (PrimExpr::zero(first.ty()), first)
        };
        self.expect(")")?;
        let annotations = self.annotations()?;
        // The verifier reports an invalid type of a loop's variable.
        let ty = Some(extent.ty()).filter(|ty| ty.is_index()).unwrap_or(PrimType::INDEX);
        let var = self.func.var(&name, ty);
        let outer = self.names.insert(name.clone(), Named::Var(var));
        let body = Box::new(self.block()?);
        self.restore(name, outer);
        Ok(Stmt::For { var, min, extent, kind, annotations, body })
    }

    fn buffer(&self, name: &str) -> Result<BufferId> {
        match self.names.get(name) {
            Some(Named::Buffer(buffer)) => Ok(*buffer),
            Some(Named::Var(_)) => Err(format!("`{name}` is a variable, not a buffer")),
            None => Err(format!("there is no buffer `{name}` here")),
        }
    }

    fn indices(&mut self) -> Result<Vec<PrimExpr>> {
        self.expect("[")?;
        let mut indices = Vec::new();
        while !self.accept("]") {
            indices.push(self.expr()?);
            if !self.accept(",") {
                self.expect("]")?;
                break;
            }
        }
        Ok(indices)
    }

    fn word(&mut self) -> Result<String> {
        match self.lexer.next()? {
            Token::Word(word) => Ok(word.to_owned()),
            other => Err(format!("a name is expected, not {other}")),
        }
    }

    fn string(&mut self) -> Result<String> {
        match self.lexer.next()? {
            Token::Text(text) => Ok(text),
            other => Err(format!("a string is expected, not {other}")),
        }
    }

    fn number(&mut self) -> Result<usize> {
        match self.lexer.next()? {
            Token::Number(digits) => digits.parse().map_err(|_| format!("`{digits}` is no count")),
            other => Err(format!("a number is expected, not {other}")),
        }
    }

    fn accept(&mut self, symbol: &str) -> bool {
        let found = matches!(self.lexer.peek(), Ok(Token::Symbol(found)) if found == symbol);
        // A token that was looked at can be read.
        found && self.lexer.next().is_ok()
    }

    fn accept_word(&mut self, word: &str) -> bool {
        let found = matches!(self.lexer.peek(), Ok(Token::Word(found)) if found == word);
        found && self.lexer.next().is_ok()
    }

    fn expect(&mut self, symbol: &str) -> Result<()> {
        match self.lexer.next()? {
            Token::Symbol(found) if found == symbol => Ok(()),
            other => Err(format!("`{symbol}` is expected, not {other}")),
        }
    }

    fn expect_word(&mut self, word: &str) -> Result<()> {
        match self.lexer.next()? {
            Token::Word(found) if found == word => Ok(()),
            other => Err(format!("`{word}` is expected, not {other}")),
        }
    }
}

#[cfg(test)]
mod tests;
