//! The parser of functions and modules. `docs/text-format.md` describes the language.
//!
//! A module is read twice: first the headers of definitions, so that functions may call later ones,
//! then the bodies. Every error is reported with its place; a statement with an error is skipped,
//! and uses of its value cause no further errors.

mod body;
mod constant;
mod error;
mod lexer;
mod parser;
mod pattern;
mod types;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use indexmap::IndexMap;

use body::{Header, Param};
pub use error::{ParseError, ParseErrors};
use lexer::{Lexer, Token};
use parser::{Parser, Result};

use super::{Function, Pattern, Sidecar};
use crate::arith::Facts;
use crate::ir::{Constant, Definition, ExternFunction, FuncType, GlobalVar, IRModule};
use crate::tir::{ParsedFunc, PrimFunc, parse_at};

/// Parses a module. Constants named by their digest are opaque.
///
/// # Errors
///
/// All errors in the text, each with its place.
pub fn parse_module(text: &str) -> std::result::Result<IRModule, ParseErrors> {
    module(Parser::new(text, None))
}

/// Parses a module, with the elements of large constants from a sidecar. A constant that is not in
/// the sidecar is opaque.
///
/// # Errors
///
/// As [`parse_module`]; also if the sidecar's elements do not fit a constant's type.
pub fn parse_module_with(
    text: &str,
    sidecar: &Sidecar,
) -> std::result::Result<IRModule, ParseErrors> {
    module(Parser::new(text, Some(sidecar)))
}

/// Parses a function `fn (…) -> … { … }`, the form in which a function prints without a name. It
/// cannot use globals.
///
/// # Errors
///
/// As [`parse_module`].
pub fn parse_function(text: &str) -> std::result::Result<Function, ParseErrors> {
    let mut parser = Parser::new(text, None);
    let function = anonymous(&mut parser);
    match function {
        Ok(Some(function)) if parser.errors.is_empty() => Ok(function),
        _ => Err(ParseErrors(parser.errors)),
    }
}

/// Parses a [`Pattern`].
pub(super) fn parse_pattern(text: &str) -> std::result::Result<Pattern, ParseErrors> {
    let mut parser = Parser::new(text, None);
    let node = parser.pattern(0);
    if node.is_ok() && !parser.at_token(&Token::End) {
        parser.unexpected("the end");
    }
    match node {
        Ok(node) if parser.errors.is_empty() => Ok(Pattern(node)),
        _ => Err(ParseErrors(parser.errors)),
    }
}

fn anonymous(parser: &mut Parser<'_>) -> Result<Option<Function>> {
    parser.expect_keyword("fn")?;
    let header = parser.header()?;
    parser.expect("{")?;
    let function = body::function(parser, &IndexMap::new(), header);
    if function.is_some() && !parser.at_token(&Token::End) {
        return Err(parser.unexpected("the end"));
    }
    Ok(function)
}

/// Parses constants such as `const([1, 2], float32), splat(0, Tensor[(3), int64])`.
///
/// # Errors
///
/// As [`parse_module`].
pub fn parse_constants(text: &str) -> std::result::Result<Vec<Constant>, ParseErrors> {
    let mut parser = Parser::new(text, None);
    let mut constants = Vec::new();
    while !parser.at_token(&Token::End) {
        let Ok(constant) = parser.constant() else { return Err(ParseErrors(parser.errors)) };
        constants.push(constant);
        if !parser.eat(",") && !parser.at_token(&Token::End) {
            parser.unexpected("`,` or the end");
            return Err(ParseErrors(parser.errors));
        }
    }
    Ok(constants)
}

/// A definition whose body is still to be parsed.
enum Pending<'a> {
    Graph { header: Box<Header>, body: Lexer<'a> },
    Prim(PrimFunc),
    Extern(ExternFunction),
}

fn module(mut parser: Parser<'_>) -> std::result::Result<IRModule, ParseErrors> {
    let mut module = IRModule::new();
    let mut pending = IndexMap::new();
    let mut globals = IndexMap::new();
    while !parser.at_token(&Token::End) && !parser.gave_up() {
        if definition(&mut parser, &mut module, &mut pending, &mut globals).is_err() {
            skip_to_definition(&mut parser);
        }
    }
    for (global, pending) in pending {
        let definition = match pending {
            Pending::Extern(function) => Definition::Extern(Arc::new(function)),
            Pending::Prim(function) => Definition::Prim(function),
            Pending::Graph { header, body } => {
                parser.set_lexer(body);
                match body::function(&mut parser, &globals, *header) {
                    Some(function) => Definition::Graph(function),
                    None => continue,
                }
            }
        };
        module.insert(global, definition);
    }
    if parser.errors.is_empty() {
        return Ok(module);
    }
    parser.errors.sort_by_key(|error| (error.line, error.column));
    Err(ParseErrors(parser.errors))
}

/// Reads one definition up to its body, or the module's attributes.
fn definition<'a>(
    parser: &mut Parser<'a>,
    module: &mut IRModule,
    pending: &mut IndexMap<GlobalVar, Pending<'a>>,
    globals: &mut IndexMap<GlobalVar, FuncType>,
) -> Result<()> {
    let pos = parser.pos();
    if parser.eat("#") {
        if !pending.is_empty() || !module.attrs().is_empty() {
            let message = "the module's attributes stand once, before its definitions";
            return Err(parser.error(pos, message));
        }
        parser.expect("[")?;
        module.set_attrs(parser.attrs("]")?);
        return Ok(());
    }
    if parser.at_keyword("prim_func") {
        let function = prim_func(parser)?.func;
        let global = GlobalVar::new(&function.name);
        if pending.contains_key(&global) {
            return Err(parser.error(pos, format!("`{global}` is defined already")));
        }
        pending.insert(global, Pending::Prim(function));
        return Ok(());
    }
    let external = parser.eat_keyword("extern");
    if !parser.eat_keyword("def") {
        let expected =
            if external { "`def`" } else { "`def`, `prim_func`, `extern def` or `#[…]`" };
        return Err(parser.unexpected(expected));
    }
    let pos = parser.pos();
    let Token::Global(name) = parser.peek().clone() else {
        return Err(parser.unexpected("the name of a definition, `@name`"));
    };
    parser.next();
    let global = GlobalVar::new(&name);
    let (ty, definition) = if external {
        let ty = parser.extern_type()?;
        let attrs = parser.braced_attrs()?;
        parser.expect(";")?;
        (ty.clone(), Pending::Extern(ExternFunction { ty, attrs }))
    } else {
        let header = parser.header()?;
        let brace = parser.expect("{")?;
        let start = parser.lexer();
        skip_body(parser, brace)?;
        let ty = FuncType {
            params: header.params.iter().map(|param| param.ty.clone()).collect(),
            ret: header.ret.clone(),
        };
        let body = start.until(parser.lexer().pos().offset);
        (ty, Pending::Graph { header: Box::new(header), body })
    };
    if pending.contains_key(&global) {
        return Err(parser.error(pos, format!("`{global}` is defined already")));
    }
    globals.insert(global.clone(), ty);
    pending.insert(global, definition);
    Ok(())
}

/// Parses a loop function, which has a language of its own.
fn prim_func(parser: &mut Parser<'_>) -> Result<ParsedFunc> {
    let mut lexer = parser.raw().clone();
    let parsed = parse_at(lexer.text(), lexer.pos().offset);
    lexer.advance_to(match &parsed {
        Ok(parsed) => parsed.end,
        Err((offset, _)) => *offset,
    });
    let pos = lexer.pos();
    parser.set_lexer(lexer);
    parsed.map_err(|(_, message)| parser.error(pos, message))
}

/// The line, from 1, of each statement of the loop functions of a text, in the order in which
/// statements print; errors of their verifier are shown there. Empty if the text is no module.
pub fn statement_lines(text: &str) -> IndexMap<GlobalVar, Vec<u32>> {
    let mut parser = Parser::new(text, None);
    let mut lines = IndexMap::new();
    while !parser.at_token(&Token::End) {
        if !parser.at_keyword("prim_func") {
            parser.next();
            continue;
        }
        let Ok(ParsedFunc { func, statements, end: _ }) = prim_func(&mut parser) else { break };
        // Statements start in the order in which they print, so one pass counts the lines.
        let (mut line, mut counted) = (1, 0);
        let mut line_of = |start: usize| {
            line += text[counted..start].matches('\n').count() as u32;
            counted = start;
            line
        };
        lines
            .insert(GlobalVar::new(&func.name), statements.into_iter().map(&mut line_of).collect());
    }
    lines
}

/// Skips a body up to and including its closing brace, after the opening one.
fn skip_body(parser: &mut Parser<'_>, brace: lexer::Pos) -> Result<()> {
    let mut open = 1usize;
    while open > 0 {
        match parser.next().0 {
            Token::End => return Err(parser.error(brace, "this brace is not closed")),
            Token::Punct("{") => open += 1,
            Token::Punct("}") => open -= 1,
            _ => {}
        }
    }
    Ok(())
}

/// Skips to the start of the next definition after an error.
fn skip_to_definition(parser: &mut Parser<'_>) {
    let mut open = 0usize;
    loop {
        match parser.peek() {
            Token::End => return,
            Token::Ident("def" | "extern" | "prim_func") if open == 0 => return,
            Token::Punct("{") => open += 1,
            Token::Punct("}") => open = open.saturating_sub(1),
            _ => {}
        }
        parser.next();
    }
}

impl Parser<'_> {
    /// `(%x: type, …) -> type where facts {attributes}`.
    fn header(&mut self) -> Result<Header> {
        let params = self.params()?;
        self.expect("->")?;
        let ret_pos = self.pos();
        let ret = self.ty(0)?;
        let facts = match self.eat_keyword("where") {
            true => self.facts()?,
            false => Facts::dims(),
        };
        let attrs = self.braced_attrs()?;
        Ok(Header { params, ret, ret_pos, facts, attrs })
    }

    /// The facts about the symbols up to the next brace, which have a parser of their own.
    fn facts(&mut self) -> Result<Facts> {
        let start = self.raw().clone();
        while !self.at("{") && !self.at_token(&Token::End) {
            self.next();
        }
        let end = self.pos().offset;
        let error = match start.facts(end) {
            Ok(facts) => return Ok(facts),
            Err((pos, message)) => (pos, message),
        };
        Err(self.error(error.0, error.1))
    }

    /// `(%x: type, …)`.
    fn params(&mut self) -> Result<Vec<Param>> {
        let mut params = Vec::new();
        self.expect("(")?;
        self.list(")", |parser| {
            let Token::Local(name) = parser.peek().clone() else {
                return Err(parser.unexpected("a parameter, `%name: type`"));
            };
            let (_, pos) = parser.next();
            parser.expect(":")?;
            params.push(Param { name, ty: parser.ty(0)?, pos });
            Ok(())
        })?;
        Ok(params)
    }

    fn extern_type(&mut self) -> Result<FuncType> {
        self.expect("(")?;
        let params = self.types(0)?;
        self.expect("->")?;
        Ok(FuncType { params, ret: self.ty(0)? })
    }
}
