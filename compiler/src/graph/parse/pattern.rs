//! Patterns of expressions.

use std::collections::BTreeMap;

use super::lexer::{Local, Pos, Token};
use super::parser::{Parser, Result, did_you_mean};
use crate::graph::pattern::Node;
use crate::graph::typing::check_arity;
use crate::ops::{self, Op};

impl Parser<'_> {
    /// `a | b | …`
    pub(super) fn pattern(&mut self, nesting: u32) -> Result<Node> {
        let pos = self.pos();
        self.check_nesting(nesting, pos)?;
        let mut nodes = vec![self.pattern_of_one(nesting)?];
        while self.eat("|") {
            nodes.push(self.pattern_of_one(nesting)?);
        }
        let first = nodes.swap_remove(0);
        if nodes.is_empty() {
            return Ok(first);
        }
        nodes.insert(0, first);
        Ok(Node::Either(nodes))
    }

    fn pattern_of_one(&mut self, nesting: u32) -> Result<Node> {
        let pos = self.pos();
        if self.eat("*") {
            return Ok(Node::Any);
        } else if self.eat_keyword("const") {
            return Ok(Node::Constant);
        } else if self.eat("(") {
            let inner = self.pattern(nesting + 1)?;
            self.expect(")")?;
            return Ok(inner);
        }
        match self.peek().clone() {
            Token::Local(local) => {
                self.next();
                let name = match local {
                    Local::Name(name) => name,
                    Local::Number(number) => number.to_string(),
                };
                let node = if self.eat("=") { self.pattern(nesting + 1)? } else { Node::Any };
                Ok(Node::Named(name, Box::new(node)))
            }
            Token::Number(_) => {
                let text = self.number()?;
                let number = text.parse().map(Node::Number);
                number.map_err(|_| self.not_a_number(pos, &text, "number"))
            }
            Token::Ident(name) => {
                self.next();
                if name == "_" {
                    return Err(self.error(pos, "`_` stands for an absent argument of a call"));
                }
                let op = self.op(name, pos)?;
                self.pattern_of_call(op, pos, nesting)
            }
            _ => {
                Err(self
                    .unexpected("a value: `*`, `%x`, `const`, a number or a call of an operator"))
            }
        }
    }
    /// `(argument, …, name=value, …)` of a call. What no call of the operator has is an error.
    fn pattern_of_call(&mut self, op: Op, pos: Pos, nesting: u32) -> Result<Node> {
        self.expect("(")?;
        let (mut args, mut attrs) = (Vec::new(), BTreeMap::new());
        self.list(")", |parser| {
            if parser.at_attr() {
                let name = match parser.peek() {
                    Token::Ident(name) => (*name).to_owned(),
                    Token::Str(name) => name.clone(),
                    _ => String::new(),
                };
                let pos = parser.attr(&mut attrs)?;
                parser.check_attr_of(op, &name, pos)
            } else if parser.eat_keyword("_") {
                args.push(None);
                Ok(())
            } else {
                args.push(Some(parser.pattern(nesting + 1)?));
                Ok(())
            }
        })?;
        match check_arity(op, &args) {
            Ok(()) => Ok(Node::Call { op, args, attrs: attrs.into_iter().collect() }),
            Err(error) => Err(self.error(pos, format!("no call can fit: {error}"))),
        }
    }

    /// Checks that calls of an operator can have an attribute of that name.
    fn check_attr_of(&mut self, op: Op, name: &str, pos: Pos) -> Result<()> {
        let Ok(listed) = op.attrs() else { return Ok(()) };
        let names = listed.iter().map(|attr| attr.name);
        // An operator of another crate need not list its attributes.
        let unlisted = listed.is_empty() && ops::registered().any(|other| other == op.name);
        if unlisted || names.clone().any(|known| known == name) {
            return Ok(());
        }
        let help = did_you_mean(name, names.clone()).or_else(|| match listed.is_empty() {
            true => Some("it has none".to_owned()),
            false => Some(format!("it has {}", names.collect::<Vec<_>>().join(", "))),
        });
        let message = format!("no call can fit: `{op}` has no attribute `{name}`");
        Err(self.error_with_help(pos, message, help))
    }
}
