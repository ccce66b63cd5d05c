//! Expressions of the text form.

use super::lexer::Token;
use super::{Named, Parser, Result};
use crate::ir::DType;
use crate::tir::print::precedence;
use crate::tir::{BinaryOp, CompareOp, FloatImm, Intrinsic, PrimExpr, UnaryOp, scalar};

impl Parser<'_> {
    pub(super) fn expr(&mut self) -> Result<PrimExpr> {
        self.infix(1)
    }

    /// Operators that bind at least as tightly as `level`, grouped from the left.
    fn infix(&mut self, level: u8) -> Result<PrimExpr> {
        let mut lhs = self.nested(Self::primary)?;
        let mut depth = 0;
        while let Token::Symbol(symbol) = self.lexer.peek()? {
            let Some(found) = precedence(symbol).filter(|found| *found >= level) else { break };
            self.lexer.next()?;
            let rhs = self.nested(|this| this.infix(found + 1))?;
            let (lhs_box, rhs) = (Box::new(lhs), Box::new(rhs));
            let binary = BinaryOp::ALL.iter().find(|row| row.1 == symbol);
            let compare = CompareOp::ALL.iter().find(|row| row.1 == symbol);
            lhs = match (binary, compare) {
                (Some(row), _) => PrimExpr::Binary { op: row.0, lhs: lhs_box, rhs },
                (None, Some(row)) => PrimExpr::Compare { op: row.0, lhs: lhs_box, rhs },
                (None, None) => return Err(format!("`{symbol}` is not an operator")),
            };
            // A chain of operators is as deep as it is long.
            depth += 1;
            if self.depth + depth > crate::tir::MAX_DEPTH {
                return self.nested(|_| Err("an expression is too long".to_owned()));
            }
        }
        Ok(lhs)
    }

    fn primary(&mut self) -> Result<PrimExpr> {
        match self.lexer.next()? {
            Token::Number(digits) => number("", digits, None),
            Token::Symbol("-") => match self.lexer.next()? {
                Token::Number(digits) => number("-", digits, None),
                other => Err(format!("a number is expected after `-`, not {other}")),
            },
            Token::Symbol("(") => {
                let expr = if self.accept_word("let") { self.let_in()? } else { self.expr()? };
                self.expect(")")?;
                Ok(expr)
            }
            Token::Word(word) => {
                let word = word.to_owned();
                self.named(&word)
            }
            other => Err(format!("an expression is expected, not {other}")),
        }
    }

    fn let_in(&mut self) -> Result<PrimExpr> {
        let name = self.word()?;
        self.expect("=")?;
        let value = self.expr()?;
        self.expect_word("in")?;
        let var = self.func.var(&name, value.ty());
        let outer = self.names.insert(name.clone(), Named::Var(var));
        let body = self.expr()?;
        self.restore(name, outer);
        Ok(PrimExpr::Let { var, value: Box::new(value), body: Box::new(body) })
    }

    fn named(&mut self, word: &str) -> Result<PrimExpr> {
        match self.names.get(word) {
            Some(Named::Var(var)) => return Ok(self.func.var_expr(*var)),
            Some(Named::Buffer(buffer)) => {
                let (buffer, dtype) = (*buffer, self.func.buffers[*buffer].dtype);
                return Ok(PrimExpr::Load { buffer, dtype, indices: self.indices()? });
            }
            None => {}
        }
        match word {
            "true" | "false" => return Ok(PrimExpr::bool(word == "true")),
            "cast" | "reinterpret" => {
                self.expect("<")?;
                let dtype = self.dtype()?;
                self.expect(">")?;
                let value = Box::new(self.one()?);
                return Ok(match word {
                    "cast" => PrimExpr::Cast { value, dtype },
                    _ => PrimExpr::Reinterpret { value, dtype },
                });
            }
            "shuffle" => {
                self.expect("<")?;
                let mut lanes = Vec::new();
                while !self.accept(">") {
                    let lane = self.number()?;
                    lanes.push(u32::try_from(lane).map_err(|_| format!("no lane {lane}"))?);
                    self.accept(",");
                }
                return Ok(PrimExpr::Shuffle { vectors: self.args()?, lanes });
            }
            "reduce" => {
                self.expect("<")?;
                let symbol = match self.lexer.next()? {
                    Token::Symbol(symbol) => symbol.to_owned(),
                    Token::Word(word) => word.to_owned(),
                    other => return Err(format!("an operator is expected, not {other}")),
                };
                let row = BinaryOp::ALL.iter().find(|row| row.1 == symbol);
                let op = row.ok_or_else(|| format!("`{symbol}` is not an operator"))?.0;
                self.expect(">")?;
                return Ok(PrimExpr::VectorReduce { op, value: Box::new(self.one()?) });
            }
            "ramp" | "broadcast" => {
                let mut args = self.args()?;
                let lanes = args.pop().and_then(|lanes| lanes.as_int());
                let lanes = lanes
                    .and_then(|lanes| u32::try_from(lanes).ok())
                    .ok_or_else(|| format!("the last argument of {word} is its lanes"))?;
                let mut args = args.into_iter().map(Box::new);
                return match (word, args.next(), args.next(), args.next()) {
                    ("ramp", Some(base), Some(stride), None) => {
                        Ok(PrimExpr::Ramp { base, stride, lanes })
                    }
                    ("broadcast", Some(value), None, None) => {
                        Ok(PrimExpr::Broadcast { value, lanes })
                    }
                    _ => Err(format!("{word} has another number of arguments")),
                };
            }
            _ => {}
        }
        if let Ok(dtype) = word.parse::<DType>() {
            return self.constant(dtype);
        }
        if let Some(row) = Intrinsic::ALL.iter().find(|row| row.1 == word) {
            return Ok(PrimExpr::Call { intrinsic: row.0, args: self.args()? });
        }
        if let Some(row) = BinaryOp::ALL.iter().find(|row| row.1 == word) {
            let [lhs, rhs] = self.some(word)?;
            return Ok(PrimExpr::Binary { op: row.0, lhs, rhs });
        }
        match word {
            "neg" => Ok(PrimExpr::Unary { op: UnaryOp::Neg, value: Box::new(self.one()?) }),
            "not" => Ok(PrimExpr::Unary { op: UnaryOp::Not, value: Box::new(self.one()?) }),
            "select" => {
                let [cond, then, otherwise] = self.some(word)?;
                Ok(PrimExpr::Select { cond, then, otherwise })
            }
            "dot_add" => {
                let [a, b, c] = self.some(word)?;
                Ok(PrimExpr::DotAdd { a, b, c })
            }
            "fma" => {
                let [a, b, c] = self.some(word)?;
                Ok(PrimExpr::MulAdd { a, b, c })
            }
            _ if self.in_header => {
                let var = self.func.index_var(word);
                self.forward.insert(word.to_owned(), var);
                self.names.insert(word.to_owned(), Named::Var(var));
                Ok(self.func.var_expr(var))
            }
            _ => Err(format!("there is nothing called `{word}` here")),
        }
    }

    /// The constant in parentheses after its type.
    fn constant(&mut self, dtype: DType) -> Result<PrimExpr> {
        self.expect("(")?;
        let sign = if self.accept("-") { "-" } else { "" };
        let constant = match self.lexer.next()? {
            Token::Number(digits) => number(sign, digits, Some(dtype))?,
            Token::Word(word @ ("inf" | "NaN")) if dtype.is_float() => {
                let value = if word == "NaN" { f64::NAN } else { f64::INFINITY };
                let value = if sign == "-" { -value } else { value };
                PrimExpr::Float { value: FloatImm::new(value), dtype }
            }
            other => return Err(format!("a constant of {dtype} is expected, not {other}")),
        };
        self.expect(")")?;
        Ok(constant)
    }

    /// Arguments in parentheses.
    fn args(&mut self) -> Result<Vec<PrimExpr>> {
        self.expect("(")?;
        let mut args = Vec::new();
        while !self.accept(")") {
            args.push(self.expr()?);
            if !self.accept(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(args)
    }

    fn some<const N: usize>(&mut self, word: &str) -> Result<[Box<PrimExpr>; N]> {
        let args: Vec<_> = self.args()?.into_iter().map(Box::new).collect();
        let count = args.len();
        args.try_into().map_err(|_| format!("{word} has {N} arguments, not {count}"))
    }

    fn one(&mut self) -> Result<PrimExpr> {
        self.expect("(")?;
        let value = self.expr()?;
        self.expect(")")?;
        Ok(value)
    }
}

/// A number of the given type, or of the type that its form implies.
fn number(sign: &str, digits: &str, dtype: Option<DType>) -> Result<PrimExpr> {
    let is_float = digits.contains(['.', 'e', 'E']);
    let dtype = dtype.unwrap_or(if is_float { DType::F32 } else { DType::I64 });
    let text = format!("{sign}{digits}");
    let wrong = || format!("`{text}` is not a constant of {dtype}");
    if dtype.is_float() {
        let value: f64 = text.parse().map_err(|_| wrong())?;
        // A single rounding, because the text may be the shortest one for this `float32`.
        let value = match dtype {
            DType::F32 => f64::from(text.parse::<f32>().map_err(|_| wrong())?),
            _ => scalar::float_bits(value, dtype)
                .and_then(|bits| scalar::float_value(bits, dtype))
                .ok_or_else(wrong)?,
        };
        return Ok(PrimExpr::Float { value: FloatImm::new(value), dtype });
    }
    let value = match dtype {
        DType::U64 => text.parse::<u64>().map_err(|_| wrong())? as i64,
        _ => text.parse::<i64>().map_err(|_| wrong())?,
    };
    if is_float || scalar::wrap_int(value, dtype) != value {
        return Err(wrong());
    }
    Ok(PrimExpr::Int { value, dtype })
}
