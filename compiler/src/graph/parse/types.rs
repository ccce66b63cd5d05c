//! Types and attribute values.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::lexer::{Pos, Token};
use super::parser::{Parser, Reported, Result, did_you_mean};
use crate::ir::text::parse_float;
use crate::ir::{AttrValue, Attrs, DType, Dim, FuncType, Shape, TensorType, Type};
use crate::ops::{self, Op};

/// Nodes that a type may have when it is written out. Tuples of tuples share their parts, so a few
/// lines could describe a type larger than any tool can process.
pub(super) const MAX_TYPE_NODES: usize = 1 << 16;

impl Parser<'_> {
    /// A type.
    pub(super) fn ty(&mut self, nesting: u32) -> Result<Type> {
        let pos = self.pos();
        self.check_nesting(nesting, pos)?;
        if self.eat("(") {
            return Ok(Type::Tuple(self.types(nesting)?.into()));
        }
        let word = match self.peek() {
            Token::Ident(word @ ("Tensor" | "fn" | "Seq" | "Optional")) => *word,
            _ => return Err(self.unexpected("a type")),
        };
        if word == "Tensor" {
            return Ok(Type::Tensor(self.tensor_type()?));
        }
        self.next();
        if word == "fn" {
            self.expect("(")?;
            let params = self.types(nesting)?;
            self.expect("->")?;
            let ret = self.ty(nesting + 1)?;
            return Ok(Type::Func(Arc::new(FuncType { params, ret })));
        }
        self.expect("[")?;
        let element = Arc::new(self.ty(nesting + 1)?);
        self.expect("]")?;
        Ok(if word == "Seq" { Type::Sequence(element) } else { Type::Optional(element) })
    }

    /// Types up to a closing parenthesis, after the opening one.
    pub(super) fn types(&mut self, nesting: u32) -> Result<Vec<Type>> {
        let mut types = Vec::new();
        self.list(")", |parser| {
            types.push(parser.ty(nesting + 1)?);
            Ok(())
        })?;
        Ok(types)
    }

    /// `Tensor[(1, n), float32]`.
    pub(super) fn tensor_type(&mut self) -> Result<TensorType> {
        self.expect_keyword("Tensor")?;
        self.expect("[")?;
        self.expect("(")?;
        let mut dims = Vec::new();
        self.list(")", |parser| {
            dims.push(parser.dim()?);
            Ok(())
        })?;
        self.expect(",")?;
        let dtype = self.dtype()?;
        self.expect("]")?;
        Ok(TensorType::new(Shape::new(dims), dtype))
    }

    /// An integer expression.
    pub(super) fn dim(&mut self) -> Result<Dim> {
        self.raw().int_expr().map_err(|(pos, message)| self.error(pos, message))
    }

    pub(super) fn dtype(&mut self) -> Result<DType> {
        let pos = self.pos();
        let Token::Ident(word) = *self.peek() else {
            return Err(self.unexpected("a data type"));
        };
        match word.parse() {
            Ok(dtype) => {
                self.next();
                Ok(dtype)
            }
            Err(error) => {
                let help = did_you_mean(word, DType::all().map(DType::name));
                Err(self.error_with_help(pos, error.to_string(), help))
            }
        }
    }

    /// The operator of a name.
    pub(super) fn op(&mut self, name: &str, pos: Pos) -> Result<Op> {
        if let Some(op) = Op::get(name) {
            return Ok(op);
        }
        let names = ops::all().iter().map(|def| def.name).chain(ops::registered());
        let (message, help) = match ops::ambiguous(name) {
            Some(places) => (format!("the operator `{name}` is defined at {places}"), None),
            None => (format!("there is no operator `{name}`"), did_you_mean(name, names)),
        };
        Err(self.error_with_help(pos, message, help))
    }

    /// `name=value, …` up to and including a closing mark.
    pub(super) fn attrs(&mut self, close: &str) -> Result<Attrs> {
        let mut attrs = BTreeMap::new();
        self.list(close, |parser| {
            parser.attr(&mut attrs)?;
            Ok(())
        })?;
        Ok(attrs.into_iter().collect())
    }

    /// ` {name=value, …}` after a definition's type, if present. A `{` that starts a body is not
    /// followed by a name and `=`.
    pub(super) fn braced_attrs(&mut self) -> Result<Attrs> {
        if !self.at("{") {
            return Ok(Attrs::new());
        }
        let before = self.lexer();
        self.next();
        if self.at_attr() {
            return self.attrs("}");
        }
        self.set_lexer(before);
        Ok(Attrs::new())
    }

    /// Whether `name=` comes next.
    pub(super) fn at_attr(&mut self) -> bool {
        matches!(self.peek(), Token::Ident(_) | Token::Str(_))
            && self.peek_second() == Token::Punct("=")
    }

    /// Parses one `name=value` and adds it to the list; returns the place of the name.
    pub(super) fn attr(&mut self, attrs: &mut BTreeMap<String, AttrValue>) -> Result<Pos> {
        let pos = self.pos();
        let name = match self.peek() {
            Token::Ident(name) => (*name).to_owned(),
            Token::Str(name) => name.clone(),
            _ => return Err(self.unexpected("the name of an attribute")),
        };
        self.next();
        self.expect("=")?;
        let value = self.attr_value(0)?;
        if attrs.contains_key(&name) {
            return Err(self.error(pos, format!("attribute `{name}` is given twice")));
        }
        attrs.insert(name, value);
        Ok(pos)
    }

    fn attr_value(&mut self, nesting: u32) -> Result<AttrValue> {
        let pos = self.pos();
        self.check_nesting(nesting, pos)?;
        if self.eat("[") {
            let mut list = Vec::new();
            self.list("]", |parser| {
                list.push(parser.attr_value(nesting + 1)?);
                Ok(())
            })?;
            return Ok(AttrValue::List(list));
        }
        match self.peek().clone() {
            Token::Str(text) => {
                self.next();
                Ok(AttrValue::from(text))
            }
            Token::Ident(word @ ("true" | "false")) => {
                self.next();
                Ok(AttrValue::Bool(word == "true"))
            }
            Token::Ident("dim") => {
                self.next();
                self.expect("(")?;
                let dim = self.dim()?;
                self.expect(")")?;
                Ok(AttrValue::from(dim))
            }
            Token::Number(_) | Token::Ident("nan" | "inf") => {
                let text = self.number()?;
                let integer = text.bytes().all(|c| c.is_ascii_digit() || c == b'-');
                let value = match integer {
                    true => text.parse().ok().map(AttrValue::Int),
                    false => parse_float(&text).map(AttrValue::Float),
                };
                value.ok_or_else(|| self.not_a_number(pos, &text, "64-bit number"))
            }
            _ => {
                Err(self
                    .unexpected("a value: a number, a string, `true`, `false`, `dim(…)` or a list"))
            }
        }
    }

    pub(super) fn not_a_number(&mut self, pos: Pos, text: &str, what: &str) -> Reported {
        self.error(pos, format!("`{text}` is not a {what}"))
    }

    /// The text of a number or of a word that stands for one: `-1`, `0.5`, `inf`,
    /// `nan(0x7fc00001)`, `true`.
    pub(super) fn number(&mut self) -> Result<String> {
        match *self.peek() {
            Token::Number(text) | Token::Ident(text @ ("inf" | "true" | "false")) => {
                self.next();
                Ok(text.to_owned())
            }
            Token::Ident("nan") => {
                self.next();
                if !self.eat("(") {
                    return Ok("nan".to_owned());
                }
                let Token::Number(bits) = *self.peek() else {
                    return Err(self.unexpected("the bits of a NaN, `0x…`"));
                };
                self.next();
                self.expect(")")?;
                Ok(format!("nan({bits})"))
            }
            _ => Err(self.unexpected("a number")),
        }
    }
}

/// Whether a type has no more than [`MAX_TYPE_NODES`] nodes and does not nest deeper than text does.
pub(super) fn type_fits(ty: &Type) -> bool {
    let mut stack = vec![(ty, 0)];
    let mut nodes = 0;
    while let Some((ty, depth)) = stack.pop() {
        nodes += 1;
        if nodes > MAX_TYPE_NODES || depth > super::parser::MAX_NESTING {
            return false;
        }
        match ty {
            Type::Tensor(_) => {}
            Type::Tuple(fields) => stack.extend(fields.iter().map(|field| (field, depth + 1))),
            Type::Func(func) => {
                stack.extend(func.params.iter().map(|param| (param, depth + 1)));
                stack.push((&func.ret, depth + 1));
            }
            Type::Sequence(element) | Type::Optional(element) => stack.push((element, depth + 1)),
        }
    }
    true
}
