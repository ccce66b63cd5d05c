//! The body of one function: statements, scopes and operands.

use std::collections::BTreeMap;
use std::sync::Arc;

use cranelift_entity::packed_option::ReservedValue;
use indexmap::IndexMap;

use super::lexer::{Local, Pos, Token};
use super::parser::{Parser, Reported, Result, did_you_mean};
use super::types::{MAX_TYPE_NODES, type_fits};
use crate::arith::Facts;
use crate::graph::{
    Call, Callee, Closure, Expr, ExprId, Function, FunctionBuilder, INFER_SHAPES, If, ScopeId,
    ScopeKind, While,
};
use crate::ir::{Attrs, FuncType, GlobalVar, Span, Type};

/// A parameter as it is declared.
pub(super) struct Param {
    pub(super) name: Local,
    pub(super) ty: Type,
    pub(super) pos: Pos,
}

/// The part of a definition before the body.
pub(super) struct Header {
    pub(super) params: Vec<Param>,
    pub(super) ret: Type,
    pub(super) ret_pos: Pos,
    pub(super) facts: Facts,
    pub(super) attrs: Attrs,
}

/// A value, or `None` where an error that is reported already left it without one.
type Value = Option<ExprId>;

/// The destination of a statement's value.
enum Dest {
    /// `%name = …;`
    Name(Local, Pos),
    /// `let %name = …;`
    Let(Local, Pos),
    /// The scope's result.
    Result,
}

struct Statement {
    dest: Dest,
    /// The type declared after the name.
    declared: Option<(Type, Pos)>,
    /// The start of the value.
    pos: Pos,
}

/// The construct that an open scope is a part of.
enum Part {
    Body,
    Then { cond: Value },
    Else { cond: Value, then_scope: Option<ScopeId> },
    LoopCond { init: Option<Vec<ExprId>> },
    LoopBody { init: Option<Vec<ExprId>>, cond: Option<ScopeId> },
    Closure { recursive: Value, ret: Type, ret_pos: Pos, attrs: Attrs },
}

struct Frame {
    part: Part,
    /// The statement that the scope is a part of; `None` for the body.
    owner: Option<Statement>,
    mark: usize,
}

enum Trail {
    Name(Local),
    Field((ExprId, u32)),
}

/// Reads one body into a builder.
struct Body<'p, 'a> {
    parser: &'p mut Parser<'a>,
    globals: &'p IndexMap<GlobalVar, FuncType>,
    builder: FunctionBuilder,
    /// The values that are visible.
    names: IndexMap<Local, Value>,
    /// Fields that were taken of visible tuples: a field that is named twice is one expression.
    fields: BTreeMap<(ExprId, u32), ExprId>,
    /// The names to forget at the end of each scope.
    trail: Vec<Trail>,
    frames: Vec<Frame>,
    ret: (Type, Pos),
}

/// Reads a function's body up to its `}`. `None` if there were errors.
pub(super) fn function(
    parser: &mut Parser<'_>,
    globals: &IndexMap<GlobalVar, FuncType>,
    header: Header,
) -> Option<Function> {
    let errors = parser.errors.len();
    let Header { params, ret, ret_pos, facts, attrs } = header;
    let mut builder = FunctionBuilder::new();
    let finds_symbols = attrs.flag(INFER_SHAPES);
    if finds_symbols {
        builder.find_symbols();
    }
    builder.set_attrs(attrs);
    *builder.facts_mut() = facts;
    let mut body = Body {
        parser,
        globals,
        builder,
        names: IndexMap::new(),
        fields: BTreeMap::new(),
        trail: Vec::new(),
        frames: Vec::new(),
        ret: (ret, ret_pos),
    };
    body.params(params);
    body.frames.push(Frame { part: Part::Body, owner: None, mark: 0 });
    let result = body.statements();
    let builder = body.builder;
    let result = result.ok().flatten()?;
    if parser.errors.len() > errors {
        return None;
    }
    if !finds_symbols {
        return Some(builder.finish(result));
    }
    match builder.finish_found(result) {
        Ok(function) => Some(function),
        Err(error) => {
            parser.error(ret_pos, error.to_string());
            None
        }
    }
}

impl<'a> Body<'_, 'a> {
    fn params(&mut self, params: Vec<Param>) {
        for Param { name, ty, pos } in params {
            self.set_span(pos);
            let id = self.builder.param(&text_of(&name), ty);
            self.define(name, pos, Some(id));
        }
    }

    fn set_span(&mut self, pos: Pos) {
        self.builder.set_span(Span::Text { line: pos.line, column: pos.column });
    }

    /// Reads statements until the body is closed, and returns its result.
    fn statements(&mut self) -> Result<Value> {
        loop {
            let mut dest = None;
            let done = match self.statement(&mut dest) {
                Ok(done) => done,
                Err(Reported) => self.recover(dest)?,
            };
            if let Some(result) = done {
                return Ok(result);
            }
        }
    }

    /// Skips the rest of a statement with an error, and gives its name no value. An error in a
    /// result closes the scope.
    fn recover(&mut self, dest: Option<Dest>) -> Result<Option<Value>> {
        if self.parser.gave_up() {
            return Err(Reported);
        }
        if let Some(dest) = dest {
            self.poison(dest);
        }
        let mut open = 0usize;
        loop {
            match self.parser.peek() {
                Token::End => return Err(Reported),
                Token::Punct("{") => open += 1,
                Token::Punct("}") if open == 0 => match self.close(None) {
                    Ok(done) => return Ok(done),
                    Err(Reported) if self.frames.is_empty() || self.parser.gave_up() => {
                        return Err(Reported);
                    }
                    Err(Reported) => continue,
                },
                Token::Punct("}") => open -= 1,
                Token::Punct(";") if open == 0 => {
                    self.parser.next();
                    return Ok(None);
                }
                _ => {}
            }
            self.parser.next();
        }
    }

    /// Gives the name of a statement no value, so that its uses cause no further errors.
    fn poison(&mut self, dest: Dest) {
        match dest {
            Dest::Name(name, _) | Dest::Let(name, _) => {
                if !self.names.contains_key(&name) {
                    self.names.insert(name.clone(), None);
                    self.trail.push(Trail::Name(name));
                }
            }
            Dest::Result => {}
        }
    }

    /// Reads one statement, or the part of one up to a scope within it. Returns the body's result
    /// when the body is closed.
    fn statement(&mut self, dest_out: &mut Option<Dest>) -> Result<Option<Value>> {
        let binding = self.parser.eat_keyword("let");
        let named = binding
            || (matches!(self.parser.peek(), Token::Local(_))
                && matches!(self.parser.peek_second(), Token::Punct("=" | ":")));
        let mut declared = None;
        let mut dest = Dest::Result;
        if named {
            let (name, pos) = self.local()?;
            *dest_out = Some(Dest::Name(name.clone(), pos));
            dest = match binding {
                true => Dest::Let(name, pos),
                false => Dest::Name(name, pos),
            };
            if self.parser.eat(":") {
                let pos = self.parser.pos();
                declared = Some((self.parser.ty(0)?, pos));
            }
            self.parser.expect("=")?;
        }
        let statement = Statement { dest, declared, pos: self.parser.pos() };
        self.set_span(statement.pos);
        let word = match self.parser.peek() {
            Token::Ident(word) => *word,
            _ => "",
        };
        match word {
            "if" => self.open_if(statement),
            "loop" => self.open_loop(statement),
            "fn" => self.open_closure(statement),
            _ => {
                let value = self.operand(0)?;
                self.finish(statement, value)
            }
        }
    }

    fn local(&mut self) -> Result<(Local, Pos)> {
        match self.parser.peek().clone() {
            Token::Local(name) => Ok((name, self.parser.next().1)),
            _ => Err(self.parser.unexpected("the name of a value, `%name`")),
        }
    }

    /// Stores a finished value in its statement's destination. A result closes its scope, which
    /// finishes the value of another statement, and so on.
    fn finish(&mut self, statement: Statement, value: Value) -> Result<Option<Value>> {
        let Statement { dest, declared, pos: _ } = statement;
        if let (Some((ty, pos)), Some(id)) = (declared, value)
            && self.builder.ty(id) != &ty
        {
            let found = self.builder.ty(id);
            let message = format!("the value is declared as {ty}, but it is {found}");
            self.parser.error(pos, message);
        }
        match dest {
            Dest::Name(name, pos) => {
                self.define(name, pos, value);
                self.parser.expect(";")?;
                Ok(None)
            }
            Dest::Let(name, pos) => {
                if let Some(id) = value {
                    self.builder.bind(&text_of(&name), id);
                }
                self.define(name, pos, value);
                self.parser.expect(";")?;
                Ok(None)
            }
            Dest::Result => self.close(value),
        }
    }

    fn define(&mut self, name: Local, pos: Pos, value: Value) {
        if self.names.contains_key(&name) {
            self.parser.error(pos, format!("`{name}` is defined already"));
            return;
        }
        self.names.insert(name.clone(), value);
        self.trail.push(Trail::Name(name));
    }

    /// Closes the current scope, whose result is given and whose `}` comes next.
    fn close(&mut self, mut result: Value) -> Result<Option<Value>> {
        loop {
            self.parser.expect("}")?;
            let Some(Frame { part, owner, mark }) = self.frames.pop() else {
                return Err(Reported);
            };
            self.forget(mark);
            let Some(owner) = owner else {
                self.check_result(result, None);
                return Ok(Some(result));
            };
            // The owner of a scope without a result has no value, so the scope is never read.
            let scope = self.builder.close_scope(result.unwrap_or(ExprId::reserved_value()));
            let scope = result.is_some().then_some(scope);
            self.set_span(owner.pos);
            let value = match part {
                Part::Body => return Err(Reported),
                Part::Then { cond } => {
                    if self.between("else").is_err() {
                        self.poison(owner.dest);
                        return Err(Reported);
                    }
                    self.open(ScopeKind::Branch, Part::Else { cond, then_scope: scope }, owner);
                    return Ok(None);
                }
                Part::LoopCond { init } => {
                    let Ok(params) = self.between("do") else {
                        self.poison(owner.dest);
                        return Err(Reported);
                    };
                    self.open(ScopeKind::Loop, Part::LoopBody { init, cond: scope }, owner);
                    self.params(params);
                    return Ok(None);
                }
                Part::Else { cond, then_scope } => match (cond, then_scope, scope) {
                    (Some(cond), Some(then_scope), Some(else_scope)) => {
                        self.push(Expr::If(If { cond, then_scope, else_scope }), owner.pos)
                    }
                    _ => Ok(None),
                },
                Part::LoopBody { init, cond } => match (init, cond, scope) {
                    (Some(init), Some(cond), Some(body)) => {
                        self.push(Expr::While(While { init, cond, body }), owner.pos)
                    }
                    _ => Ok(None),
                },
                Part::Closure { recursive, ret, ret_pos, attrs } => {
                    self.check_result(result, Some((ret, ret_pos)));
                    match scope {
                        Some(scope) => {
                            self.push(Expr::Func(Closure { scope, recursive, attrs }), owner.pos)
                        }
                        None => Ok(None),
                    }
                }
            };
            // The error is reported; parsing goes on.
            let value = value.unwrap_or(None);
            match owner.dest {
                Dest::Result if owner.declared.is_none() => result = value,
                _ => return self.finish(owner, value),
            }
        }
    }

    /// The text between two scopes of one expression: `else {`, or `do (parameters) {`.
    fn between(&mut self, keyword: &str) -> Result<Vec<Param>> {
        self.parser.expect_keyword(keyword)?;
        let params = if keyword == "do" { self.parser.params()? } else { Vec::new() };
        self.parser.expect("{")?;
        Ok(params)
    }

    fn check_result(&mut self, result: Value, declared: Option<(Type, Pos)>) {
        let (declared, pos) = declared.unwrap_or_else(|| self.ret.clone());
        let Some(id) = result else { return };
        let found = self.builder.ty(id).clone();
        if let Err(error) = self.builder.equate(&found, &declared, "the declared result") {
            self.parser.error(pos, error.to_string());
        } else if !self.builder.is_same_type(&found, &declared) {
            let message = format!("the result is declared as {declared}, but it is {found}");
            self.parser.error(pos, message);
        }
    }

    fn forget(&mut self, mark: usize) {
        for entry in self.trail.drain(mark..) {
            match entry {
                Trail::Name(name) => {
                    self.names.swap_remove(&name);
                }
                Trail::Field(field) => {
                    self.fields.remove(&field);
                }
            }
        }
    }

    fn open(&mut self, kind: ScopeKind, part: Part, owner: Statement) {
        let mark = self.trail.len();
        self.builder.open_scope(kind);
        self.frames.push(Frame { part, owner: Some(owner), mark });
    }

    fn open_if(&mut self, owner: Statement) -> Result<Option<Value>> {
        self.parser.next();
        self.parser.expect("(")?;
        let cond = self.operand(0)?;
        self.parser.expect(")")?;
        self.parser.expect("{")?;
        self.open(ScopeKind::Branch, Part::Then { cond }, owner);
        Ok(None)
    }

    fn open_loop(&mut self, owner: Statement) -> Result<Option<Value>> {
        self.parser.next();
        self.parser.expect("(")?;
        let init = self.operands(0)?;
        self.parser.expect_keyword("while")?;
        let params = self.parser.params()?;
        self.parser.expect("{")?;
        self.open(ScopeKind::Loop, Part::LoopCond { init }, owner);
        self.params(params);
        Ok(None)
    }

    fn open_closure(&mut self, owner: Statement) -> Result<Option<Value>> {
        self.parser.next();
        let recursive = match self.parser.peek() {
            Token::Local(_) => Some(self.local()?),
            _ => None,
        };
        let params = self.parser.params()?;
        self.parser.expect("->")?;
        let ret_pos = self.parser.pos();
        let ret = self.parser.ty(0)?;
        let attrs = self.parser.braced_attrs()?;
        self.parser.expect("{")?;
        let part = Part::Closure { recursive: None, ret: ret.clone(), ret_pos, attrs };
        self.open(ScopeKind::Closure, part, owner);
        if let Some((name, pos)) = recursive {
            let ty = FuncType { params: params.iter().map(|p| p.ty.clone()).collect(), ret };
            let id = self.builder.recursive_var(&text_of(&name), ty);
            if let Some(Frame { part: Part::Closure { recursive, .. }, .. }) =
                self.frames.last_mut()
            {
                *recursive = Some(id);
            }
            self.define(name, pos, Some(id));
        }
        self.params(params);
        Ok(None)
    }

    /// Operands up to `)`. `None` if one of them has no value.
    fn operands(&mut self, nesting: u32) -> Result<Option<Vec<ExprId>>> {
        let mut values = Some(Vec::new());
        while !self.parser.eat(")") {
            let value = self.operand(nesting)?;
            values = values.zip(value).map(|(mut values, value)| {
                values.push(value);
                values
            });
            self.comma_or_end()?;
        }
        Ok(values)
    }

    fn comma_or_end(&mut self) -> Result<()> {
        if self.parser.eat(",") || self.parser.at(")") {
            return Ok(());
        }
        Err(self.parser.unexpected("`,` or `)`"))
    }

    /// An expression without scopes.
    fn operand(&mut self, nesting: u32) -> Result<Value> {
        let pos = self.parser.pos();
        self.parser.check_nesting(nesting, pos)?;
        let mut value = match self.parser.peek().clone() {
            Token::Local(name) => {
                self.parser.next();
                self.lookup(&name, pos)?
            }
            Token::Global(name) => {
                self.parser.next();
                Some(self.global(&name, pos)?)
            }
            Token::Punct("(") => {
                self.parser.next();
                self.tuple(nesting, pos)?
            }
            Token::Ident("const" | "splat") => {
                let constant = self.parser.constant()?;
                Some(self.builder.constant(constant))
            }
            Token::Ident(name) => return self.op_call(name, nesting),
            _ => return Err(self.parser.unexpected("an expression")),
        };
        loop {
            if self.parser.eat(".") {
                let index = self.parser.field_index()?;
                value = self.field(value, index, pos)?;
            } else if self.parser.eat("(") {
                let (args, attrs) = self.args(nesting, &mut None)?;
                value = match (value, args) {
                    (Some(callee), Some(args)) => {
                        let callee = Callee::Expr(callee);
                        self.push(Expr::Call(Call { callee, args, attrs }), pos)?
                    }
                    _ => None,
                };
            } else {
                return Ok(value);
            }
        }
    }

    fn lookup(&mut self, name: &Local, pos: Pos) -> Result<Value> {
        if let Some(value) = self.names.get(name) {
            return Ok(*value);
        }
        let candidates: Vec<&str> = match name {
            Local::Number(_) => Vec::new(),
            Local::Name(_) => self.names.keys().filter_map(name_of).take(1000).collect(),
        };
        let help = name_of(name).and_then(|name| did_you_mean(name, candidates));
        let message = format!("`{name}` is not defined here");
        Err(self.parser.error_with_help(pos, message, help))
    }

    fn global(&mut self, name: &str, pos: Pos) -> Result<ExprId> {
        let global = GlobalVar::new(name);
        if let Some(ty) = self.globals.get(&global) {
            return Ok(self.builder.global(global, ty.clone()));
        }
        let help = did_you_mean(name, self.globals.keys().map(GlobalVar::name));
        let message = format!("the module does not define `{global}`");
        Err(self.parser.error_with_help(pos, message, help))
    }

    /// The rest of a tuple, or of an expression in parentheses.
    fn tuple(&mut self, nesting: u32, pos: Pos) -> Result<Value> {
        let mut fields = Some(Vec::new());
        let mut comma = true;
        while !self.parser.eat(")") {
            let field = self.operand(nesting + 1)?;
            fields = fields.zip(field).map(|(mut fields, field)| {
                fields.push(field);
                fields
            });
            comma = self.parser.at(",");
            self.comma_or_end()?;
        }
        let Some(fields) = fields else { return Ok(None) };
        match fields[..] {
            [field] if !comma => Ok(Some(field)),
            _ => self.push(Expr::Tuple(fields), pos),
        }
    }

    fn field(&mut self, tuple: Value, index: u32, pos: Pos) -> Result<Value> {
        let Some(tuple) = tuple else { return Ok(None) };
        if let Some(&field) = self.fields.get(&(tuple, index)) {
            return Ok(Some(field));
        }
        let field = self.push(Expr::TupleGet { tuple, index }, pos)?;
        if let Some(field) = field {
            self.fields.insert((tuple, index), field);
            self.trail.push(Trail::Field((tuple, index)));
        }
        Ok(field)
    }

    fn op_call(&mut self, name: &str, nesting: u32) -> Result<Value> {
        let (_, pos) = self.parser.next();
        if !self.parser.at("(") {
            return Err(self.parser.unexpected("`(` after the name of an operator"));
        }
        let op = self.parser.op(name, pos)?;
        self.parser.next();
        let mut places = Some(Vec::new());
        let (args, attrs) = self.args(nesting, &mut places)?;
        let Some(args) = args else { return Ok(None) };
        let attrs = attrs.or(&(op.definition().defaults)());
        let call = Expr::Call(Call { callee: Callee::Op(op), args, attrs });
        self.set_span(pos);
        match self.builder.push(call) {
            Ok(id) => Ok(Some(id)),
            Err(error) => {
                let message = error.to_string();
                let (pos, help) = blame(&message, &places.unwrap_or_default(), pos);
                let message = format!("`{op}`: {message}");
                Err(self.parser.error_with_help(pos, message, help))
            }
        }
    }

    /// Arguments and attributes up to `)`, with the places of the attributes. No arguments if one
    /// of them has no value.
    #[allow(clippy::type_complexity, reason = "a pair of lists used once")]
    fn args(
        &mut self,
        nesting: u32,
        places: &mut Option<Vec<(String, Pos)>>,
    ) -> Result<(Option<Vec<Option<ExprId>>>, Attrs)> {
        let mut args = Some(Vec::new());
        let mut attrs = BTreeMap::new();
        while !self.parser.eat(")") {
            if self.parser.at_attr() {
                let name = match self.parser.peek() {
                    Token::Ident(name) => (*name).to_owned(),
                    Token::Str(name) => name.clone(),
                    _ => String::new(),
                };
                let pos = self.parser.attr(&mut attrs)?;
                if let Some(places) = places {
                    places.push((name, pos));
                }
            } else {
                let pos = self.parser.pos();
                let arg = match self.parser.eat_keyword("_") {
                    true => Some(None),
                    false => self.operand(nesting + 1)?.map(Some),
                };
                if !attrs.is_empty() {
                    return Err(self.parser.error(pos, "an argument after an attribute"));
                }
                args = args.zip(arg).map(|(mut args, arg)| {
                    args.push(arg);
                    args
                });
            }
            self.comma_or_end()?;
        }
        Ok((args, attrs.into_iter().collect()))
    }

    fn push(&mut self, expr: Expr, pos: Pos) -> Result<Value> {
        self.set_span(pos);
        let id = match self.builder.push(expr) {
            Ok(id) => id,
            Err(error) => return Err(self.parser.error(pos, error.to_string())),
        };
        let grows = match self.builder.expr(id) {
            Expr::Tuple(_) | Expr::While(_) | Expr::Func(_) => true,
            Expr::Var(_)
            | Expr::GlobalVar(_)
            | Expr::Constant(_)
            | Expr::TupleGet { .. }
            | Expr::Call(_)
            | Expr::If(_) => false,
        };
        if grows && !type_fits(self.builder.ty(id)) {
            let message = format!("the type nests too deeply, or has over {MAX_TYPE_NODES} parts");
            return Err(self.parser.error(pos, message));
        }
        Ok(Some(id))
    }
}

/// The place of an error about a call: the attribute that the message names, or else the operator;
/// and the known name that was probably meant.
fn blame(message: &str, attrs: &[(String, Pos)], call: Pos) -> (Pos, Option<String>) {
    let names: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let found = attrs.iter().find(|(name, _)| names.first() == Some(&name.as_str()));
    match found {
        Some((name, pos)) => {
            let known = names.into_iter().filter(|known| known != name);
            (*pos, did_you_mean(name, known))
        }
        None => (call, None),
    }
}

/// The name of a variable or a binding; a numbered one is named by its digits.
fn text_of(name: &Local) -> Arc<str> {
    match name {
        Local::Number(number) => number.to_string().into(),
        Local::Name(name) => name.as_str().into(),
    }
}

fn name_of(name: &Local) -> Option<&str> {
    match name {
        Local::Number(_) => None,
        Local::Name(name) => Some(name),
    }
}
