//! Patterns of expressions.

use std::collections::BTreeMap;

use super::lexer::{Local, Token};
use super::parser::{Parser, Result};
use crate::graph::pattern::Node;

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
                let op = self.op(name, pos)?;
                self.expect("(")?;
                let (mut args, mut attrs) = (Vec::new(), BTreeMap::new());
                self.list(")", |parser| {
                    if parser.at_attr() {
                        parser.attr(&mut attrs)?;
                    } else {
                        args.push(parser.pattern(nesting + 1)?);
                    }
                    Ok(())
                })?;
                Ok(Node::Call { op, args, attrs: attrs.into_iter().collect() })
            }
            _ => {
                Err(self
                    .unexpected("a value: `*`, `%x`, `const`, a number or a call of an operator"))
            }
        }
    }
}
