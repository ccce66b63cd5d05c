//! Traces: the recorded steps of a schedule.

use std::fmt;
use std::str::FromStr;

use super::{BlockRv, LoopRv};
use crate::ir::text::{is_identifier, read_quoted};

/// A loop or block that a step names; prints as `l3` or `b0`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Rv {
    /// A loop.
    Loop(LoopRv),
    /// A block.
    Block(BlockRv),
}

impl fmt::Display for Rv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rv::Loop(rv) => write!(f, "l{}", rv.0),
            Rv::Block(rv) => write!(f, "b{}", rv.0),
        }
    }
}

/// An argument of a step.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Arg {
    /// A loop or block.
    Rv(Rv),
    /// A number.
    Int(i64),
    /// A factor that is left to be computed, `_`.
    Open,
    /// A text.
    Text(String),
    /// Several arguments.
    List(Vec<Arg>),
}

impl From<LoopRv> for Rv {
    fn from(rv: LoopRv) -> Rv {
        Rv::Loop(rv)
    }
}

impl From<BlockRv> for Rv {
    fn from(rv: BlockRv) -> Rv {
        Rv::Block(rv)
    }
}

impl From<Rv> for Arg {
    fn from(rv: Rv) -> Arg {
        Arg::Rv(rv)
    }
}

impl From<LoopRv> for Arg {
    fn from(rv: LoopRv) -> Arg {
        Arg::Rv(rv.into())
    }
}

impl From<BlockRv> for Arg {
    fn from(rv: BlockRv) -> Arg {
        Arg::Rv(rv.into())
    }
}

impl From<i64> for Arg {
    fn from(value: i64) -> Arg {
        Arg::Int(value)
    }
}

impl From<usize> for Arg {
    fn from(value: usize) -> Arg {
        Arg::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<&str> for Arg {
    fn from(text: &str) -> Arg {
        Arg::Text(text.to_owned())
    }
}

impl From<Option<i64>> for Arg {
    fn from(factor: Option<i64>) -> Arg {
        factor.map_or(Arg::Open, Arg::Int)
    }
}

impl<T: Clone + Into<Arg>> From<&[T]> for Arg {
    fn from(list: &[T]) -> Arg {
        Arg::List(list.iter().cloned().map(Into::into).collect())
    }
}

impl fmt::Display for Arg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Arg::Rv(rv) => write!(f, "{rv}"),
            Arg::Int(value) => write!(f, "{value}"),
            Arg::Open => f.write_str("_"),
            Arg::Text(text) => write!(f, "{text:?}"),
            Arg::List(list) => {
                f.write_str("[")?;
                for (position, arg) in list.iter().enumerate() {
                    let comma = if position == 0 { "" } else { ", " };
                    write!(f, "{comma}{arg}")?;
                }
                f.write_str("]")
            }
        }
    }
}

/// One use of a primitive, or one look at the function that named loops or blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// The method of [`Schedule`](super::Schedule).
    pub primitive: String,
    /// The arguments.
    pub args: Vec<Arg>,
    /// The loops and blocks that it returned.
    pub results: Vec<Rv>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, result) in self.results.iter().enumerate() {
            write!(f, "{}{result}", if position == 0 { "" } else { ", " })?;
        }
        if !self.results.is_empty() {
            f.write_str(" = ")?;
        }
        write!(f, "{}(", self.primitive)?;
        for (position, arg) in self.args.iter().enumerate() {
            write!(f, "{}{arg}", if position == 0 { "" } else { ", " })?;
        }
        f.write_str(")")
    }
}

/// All steps in order. Prints one step a line, as `l3, l4 = split(l0, [_, 16])`, and parses that
/// text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    /// The steps.
    pub steps: Vec<Step>,
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}

/// The error of a text that is no trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceError {
    /// The line, from 1.
    pub line: usize,
    /// The problem in that line.
    pub message: String,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the trace: {}", self.line, self.message)
    }
}

impl std::error::Error for TraceError {}

impl FromStr for Trace {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Trace, TraceError> {
        let mut steps = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let step =
                read_step(line).map_err(|message| TraceError { line: number + 1, message })?;
            steps.push(step);
        }
        Ok(Trace { steps })
    }
}

fn read_step(line: &str) -> Result<Step, String> {
    let (head, rest) = line.split_once('(').ok_or("a step is `results = primitive(arguments)`")?;
    let (results, primitive) = match head.split_once('=') {
        Some((results, primitive)) => (results, primitive.trim()),
        None => ("", head.trim()),
    };
    if !is_identifier(primitive) {
        return Err(format!("`{primitive}` is not the name of a primitive"));
    }
    let results = results
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(|name| read_rv(name).ok_or_else(|| format!("`{name}` is not a loop or block")))
        .collect::<Result<_, _>>()?;
    let mut reader = Reader { rest };
    let args = reader.list(')')?;
    if !reader.rest.trim().is_empty() {
        return Err(format!("`{}` stands after the step", reader.rest.trim()));
    }
    Ok(Step { primitive: primitive.to_owned(), args, results })
}

fn read_rv(name: &str) -> Option<Rv> {
    match name.split_at_checked(1)? {
        ("l", number) => number.parse().ok().map(|number| Rv::Loop(LoopRv(number))),
        ("b", number) => number.parse().ok().map(|number| Rv::Block(BlockRv(number))),
        _ => None,
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    /// Arguments up to the closing bracket; lists in lists are as deep as a primitive's arguments.
    fn list(&mut self, close: char) -> Result<Vec<Arg>, String> {
        let mut args = Vec::new();
        loop {
            self.rest = self.rest.trim_start_matches([' ', ',']);
            if let Some(rest) = self.rest.strip_prefix(close) {
                self.rest = rest;
                return Ok(args);
            }
            args.push(self.arg(close == ')')?);
        }
    }

    fn arg(&mut self, may_be_list: bool) -> Result<Arg, String> {
        if let Some(rest) = self.rest.strip_prefix('[') {
            if !may_be_list {
                return Err("a list is in a list".to_owned());
            }
            self.rest = rest;
            return self.list(']').map(Arg::List);
        }
        if self.rest.starts_with('"') {
            let (text, rest) = read_quoted(self.rest)?;
            self.rest = rest;
            return Ok(Arg::Text(text));
        }
        let end = self.rest.find([',', ')', ']']).ok_or("the list of arguments does not end")?;
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        match word.trim() {
            "_" => Ok(Arg::Open),
            word => read_rv(word)
                .map(Arg::Rv)
                .or_else(|| word.parse().ok().map(Arg::Int))
                .ok_or_else(|| format!("`{word}` is not an argument")),
        }
    }
}
