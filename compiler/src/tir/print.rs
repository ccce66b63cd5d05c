//! The text form of loop functions.
//!
//! ```text
//! prim_func @scale(x: input float32[4, 16], y: output float32[4, 16], n: dim) {
//!   for i in parallel(n) {
//!     for j in vectorized(16) {
//!       y[i, j] = x[i, j] * 2.0
//!     }
//!   }
//! }
//! ```
//!
//! A block that can be scheduled has variables, each with its extent and its value, as in
//! `block "C"(vi: spatial(16) = i, vk: reduce(8) = k) where i < 12 { init { … } … }`.
//!
//! Extents of a dense buffer may be expressions over dimensions, as in `float32[m, n * 2]`.
//!
//! A loop is `kind(extent)` or `kind(first, extent)`; its variable has the extent's type. A number is an `int64`, a number with a point
//! a `float32`; other constants name their type, as in `int32(3)`. The scope of a `let` or an
//! `allocate` without braces is the rest of the block.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::verify::by_statement;
use super::{
    Annotations, BlockRealize, Buffer, BufferId, BufferScope, ParamKind, PrimExpr, PrimFunc,
    PrimFuncData, Stmt, UnaryOp, VarId, VerifyError,
};
use crate::ir::DType;
use crate::ir::text::is_dotted_identifier;

/// Words that cannot be names.
const KEYWORDS: &[&str] = &[
    "allocate",
    "assert",
    "block",
    "bool",
    "broadcast",
    "cast",
    "const",
    "dim",
    "dot_add",
    "else",
    "false",
    "fma",
    "for",
    "if",
    "in",
    "init",
    "input",
    "let",
    "local",
    "neg",
    "not",
    "output",
    "prefetch",
    "prim_func",
    "ramp",
    "read",
    "reduce",
    "register",
    "reinterpret",
    "select",
    "shuffle",
    "spatial",
    "true",
    "where",
    "write",
];

/// The precedence of operators, for the parser as well.
pub(super) fn precedence(symbol: &str) -> Option<u8> {
    Some(match symbol {
        "|" => 1,
        "^" => 2,
        "&" => 3,
        "==" | "!=" | "<" | "<=" | ">" | ">=" => 4,
        "<<" | ">>" => 5,
        "+" | "-" => 6,
        "*" | "/" | "%" => 7,
        _ => return None,
    })
}

impl fmt::Display for PrimFunc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&print_with_errors(self, &[]))
    }
}

/// The text of a function with each violation below the statement that it is about.
pub fn print_with_errors(func: &PrimFunc, errors: &[VerifyError]) -> String {
    let mut printer = Printer::new(func);
    printer.errors = by_statement(errors);
    printer.function();
    printer.out
}

/// Like [`print_with_errors`], for a function that has that name in a module.
pub(crate) fn print_as(func: &PrimFunc, name: &str, errors: &[VerifyError]) -> String {
    let mut printer = Printer::new(func);
    printer.errors = by_statement(errors);
    printer.name = global_name(name);
    printer.function();
    printer.out
}

/// The text of a function with numbers for names and without comments: equal for functions that
/// differ in names, in the order of declarations or in their origin.
pub(super) fn anonymous_text(func: &PrimFunc) -> String {
    let mut printer = Printer::new(func);
    (printer.anonymous, printer.name) = (true, String::new());
    printer.function();
    printer.out
}

/// The text of an expression, with the names that variables and buffers were declared with.
pub(crate) fn expr_text(func: &PrimFuncData, expr: &PrimExpr) -> String {
    let mut printer = Printer::new(func);
    printer.vars = func.vars.iter().map(|(var, decl)| (var, decl.name.clone())).collect();
    printer.expr(expr, 0)
}

struct Printer<'a> {
    /// Whether names are numbers.
    anonymous: bool,
    /// The function's name.
    name: String,
    func: &'a PrimFuncData,
    vars: BTreeMap<VarId, String>,
    buffers: BTreeMap<BufferId, String>,
    used: BTreeSet<String>,
    out: String,
    indent: usize,
    errors: BTreeMap<Option<usize>, Vec<&'a str>>,
    statement: usize,
}

impl<'a> Printer<'a> {
    fn new(func: &'a PrimFuncData) -> Printer<'a> {
        Printer {
            anonymous: false,
            name: global_name(&func.name),
            func,
            vars: BTreeMap::new(),
            buffers: BTreeMap::new(),
            used: BTreeSet::new(),
            out: String::new(),
            indent: 1,
            errors: BTreeMap::new(),
            statement: 0,
        }
    }
}

impl Printer<'_> {
    /// An unused name that the parser accepts.
    fn unique(&mut self, wanted: &str) -> String {
        if self.anonymous {
            let name = format!("_{}", self.used.len());
            self.used.insert(name.clone());
            return name;
        }
        let word = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
        let mut base: String = wanted.chars().map(word).collect();
        if !base.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            base.insert(0, '_');
        }
        let is_type = base.parse::<DType>().is_ok();
        let is_function = super::Intrinsic::ALL.iter().any(|row| row.1 == base)
            || super::BinaryOp::ALL.iter().any(|row| row.1 == base)
            || super::ForKind::ALL.iter().any(|row| row.1 == base);
        let mut name = base.clone();
        if is_type || is_function || KEYWORDS.contains(&base.as_str()) {
            name.push('_');
        }
        let mut number = 0;
        while self.used.contains(&name) {
            number += 1;
            name = format!("{base}_{number}");
        }
        self.used.insert(name.clone());
        name
    }

    fn bind(&mut self, var: VarId) -> String {
        let wanted = self.func.vars.get(var).map_or("undeclared", |decl| &decl.name);
        let name = self.unique(wanted);
        self.vars.insert(var, name.clone());
        name
    }

    fn declare(&mut self, id: BufferId) -> String {
        let wanted = self.func.buffers.get(id).map_or("undeclared", |buffer| &buffer.name);
        let name = self.unique(wanted);
        self.buffers.insert(id, name.clone());
        name
    }

    /// Type, extents and layout of a buffer.
    fn tensor_type(&mut self, id: BufferId) -> String {
        let func = self.func;
        match func.buffers.get(id) {
            None => "bool[]".to_owned(),
            Some(Buffer { dtype, spec, symbolic: None, .. }) => format!("{dtype}{spec}"),
            Some(Buffer { dtype, symbolic: Some(extents), .. }) => {
                let extents: Vec<String> =
                    extents.iter().map(|extent| self.expr(extent, 0)).collect();
                format!("{dtype}[{}]", extents.join(", "))
            }
        }
    }

    fn function(&mut self) {
        let func = self.func;
        let mut params = Vec::new();
        let names: Vec<String> =
            func.params.iter().map(|param| self.declare(param.buffer)).collect();
        // Extents name dimensions.
        let dims: Vec<String> = func.dims.iter().map(|&dim| self.bind(dim)).collect();
        for (param, name) in func.params.iter().zip(names) {
            let ty = self.tensor_type(param.buffer);
            let kind = match param.kind {
                ParamKind::Input => "input",
                ParamKind::Constant => "const",
                ParamKind::Output => "output",
            };
            params.push(format!("{name}: {kind} {ty}"));
        }
        params.extend(dims.into_iter().map(|name| format!("{name}: dim")));
        let header = format!("prim_func @{}({})", self.name, params.join(", "));
        self.out.push_str(&header);
        for (output, input) in &func.inplace {
            self.out.push_str(&format!(" inplace({output}, {input})"));
        }
        self.out.push_str(" {\n");
        self.report(None);
        let origin: &[String] = if self.anonymous { &[] } else { &func.origin };
        for line in origin {
            self.line(&format!("origin {}", quote(line)));
        }
        for (key, value) in &func.attrs {
            self.line(&format!("attr {} = {}", quote(key), quote(value)));
        }
        self.stmt(&func.body, true);
        self.out.push_str("}\n");
    }

    fn line(&mut self, text: &str) {
        self.out.push_str(&"  ".repeat(self.indent));
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn report(&mut self, statement: Option<usize>) {
        for message in self.errors.remove(&statement).unwrap_or_default() {
            self.line(&format!("; error: {}", message.replace('\n', " ")));
        }
    }

    /// A line that begins a statement, with the violations found in it.
    fn begin(&mut self, text: &str) {
        self.line(text);
        self.report(Some(self.statement));
        self.statement += 1;
    }

    fn scope(&mut self, body: &Stmt) {
        self.indent += 1;
        self.stmt(body, true);
        self.indent -= 1;
    }

    /// Prints a statement; `is_last` says that its block ends with it.
    fn stmt(&mut self, stmt: &Stmt, is_last: bool) {
        match stmt {
            Stmt::Seq(stmts) => {
                for (position, stmt) in stmts.iter().enumerate() {
                    self.stmt(stmt, is_last && position + 1 == stmts.len());
                }
            }
            Stmt::Block { name, body } => {
                if self.anonymous {
                    return self.stmt(body, is_last);
                }
                self.begin(&format!("block {} {{", quote(name)));
                self.scope(body);
                self.line("}");
            }
            Stmt::BlockRealize(block) => self.realize(block),
            Stmt::For { var, min, extent, kind, annotations, body } => {
                let range = match min.as_int() {
                    Some(0) => self.expr(extent, 0),
                    _ => format!("{}, {}", self.expr(min, 0), self.expr(extent, 0)),
                };
                let name = self.bind(*var);
                let mut text = format!("for {name} in {}({range})", kind.name());
                text.push_str(&notes(annotations));
                self.begin(&format!("{text} {{"));
                self.scope(body);
                self.line("}");
            }
            Stmt::Store { buffer, indices, value } => {
                let place = self.access(*buffer, indices);
                let value = self.expr(value, 0);
                self.begin(&format!("{place} = {value}"));
            }
            Stmt::Let { var, value, body } => {
                let value = self.expr(value, 0);
                let name = self.bind(*var);
                self.rest(&format!("let {name} = {value}"), body, is_last);
            }
            Stmt::Allocate { buffer, body } => {
                let scope = match self.func.buffers.get(*buffer).map(|decl| decl.scope) {
                    Some(BufferScope::Register) => "register",
                    _ => "local",
                };
                let (name, ty) = (self.declare(*buffer), self.tensor_type(*buffer));
                self.rest(&format!("allocate {name}: {scope} {ty}"), body, is_last);
            }
            Stmt::If { cond, then, otherwise } => {
                let cond = self.expr(cond, 0);
                self.begin(&format!("if {cond} {{"));
                self.scope(then);
                if let Some(otherwise) = otherwise {
                    self.line("} else {");
                    self.scope(otherwise);
                }
                self.line("}");
            }
            Stmt::Prefetch { buffer, indices, offset, locality, write } => {
                let mut place = self.access(*buffer, indices);
                if !offset.is_const(0) {
                    place = format!("{place} + {}", self.expr(offset, 0));
                }
                let intent = if *write { "write" } else { "read" };
                self.begin(&format!("prefetch {place} {intent} {locality}"));
            }
            Stmt::Assert { cond, message } => {
                let cond = self.expr(cond, 0);
                self.begin(&format!("assert {cond}, {}", quote(message)));
            }
        }
    }

    /// `block "C"(vi: spatial(16) = i, vk: reduce(8) = k) where i < 12 { init { … } … }`.
    fn realize(&mut self, block: &BlockRealize) {
        let BlockRealize { name, iters, predicate, annotations, init, body } = block;
        // Values and predicate belong to the outer scope.
        let outside: Vec<(String, String)> = iters
            .iter()
            .map(|iter| (self.expr(&iter.extent, 0), self.expr(&iter.value, 0)))
            .collect();
        let condition = match predicate.as_int() {
            Some(1) => String::new(),
            _ => format!(" where {}", self.expr(predicate, 0)),
        };
        let iters: Vec<String> = iters
            .iter()
            .zip(outside)
            .map(|(iter, (extent, value))| {
                let var = self.bind(iter.var);
                format!("{var}: {}({extent}) = {value}", iter.kind.name())
            })
            .collect();
        let name = if self.anonymous { quote("") } else { quote(name) };
        let notes = notes(annotations);
        self.begin(&format!("block {name}({}){condition}{notes} {{", iters.join(", ")));
        if let Some(init) = init {
            self.indent += 1;
            self.line("init {");
            self.scope(init);
            self.line("}");
            self.indent -= 1;
        }
        self.scope(body);
        self.line("}");
    }

    /// A declaration and its scope: the rest of the block, or a block of its own.
    fn rest(&mut self, text: &str, body: &Stmt, is_last: bool) {
        if is_last {
            self.begin(text);
            self.stmt(body, true);
        } else {
            self.begin(&format!("{text} {{"));
            self.scope(body);
            self.line("}");
        }
    }

    fn access(&mut self, id: BufferId, indices: &[PrimExpr]) -> String {
        let name = self.buffers.get(&id).cloned().unwrap_or_else(|| {
            self.func.buffers.get(id).map_or_else(|| id.to_string(), |decl| decl.name.clone())
        });
        format!("{name}[{}]", self.list(indices))
    }

    fn list(&mut self, exprs: &[PrimExpr]) -> String {
        exprs.iter().map(|expr| self.expr(expr, 0)).collect::<Vec<_>>().join(", ")
    }

    /// An expression as an operand of an operator with precedence `outer`.
    fn expr(&mut self, expr: &PrimExpr, outer: u8) -> String {
        match expr {
            PrimExpr::Int { value, dtype: DType::I64 } => value.to_string(),
            PrimExpr::Int { value, dtype: DType::Bool } => (*value != 0).to_string(),
            PrimExpr::Int { value, dtype: DType::U64 } => format!("uint64({})", *value as u64),
            PrimExpr::Int { value, dtype } => format!("{dtype}({value})"),
            PrimExpr::Float { value, dtype: DType::F32 } if value.get().is_finite() => {
                format!("{:?}", value.get() as f32)
            }
            PrimExpr::Float { value, dtype } => format!("{dtype}({:?})", value.get()),
            PrimExpr::Var { var, ty: _ } => self.vars.get(var).cloned().unwrap_or_else(|| {
                self.func.vars.get(*var).map_or_else(|| var.to_string(), |decl| decl.name.clone())
            }),
            PrimExpr::Unary { op, value } => {
                let name = if *op == UnaryOp::Neg { "neg" } else { "not" };
                format!("{name}({})", self.expr(value, 0))
            }
            PrimExpr::Binary { op, lhs, rhs } => {
                if op.is_call() {
                    return format!(
                        "{}({}, {})",
                        op.symbol(),
                        self.expr(lhs, 0),
                        self.expr(rhs, 0)
                    );
                }
                self.infix(op.symbol(), lhs, rhs, outer)
            }
            PrimExpr::Compare { op, lhs, rhs } => self.infix(op.symbol(), lhs, rhs, outer),
            PrimExpr::Select { cond, then, otherwise } => format!(
                "select({}, {}, {})",
                self.expr(cond, 0),
                self.expr(then, 0),
                self.expr(otherwise, 0)
            ),
            PrimExpr::Cast { value, dtype } => format!("cast<{dtype}>({})", self.expr(value, 0)),
            PrimExpr::Reinterpret { value, dtype } => {
                format!("reinterpret<{dtype}>({})", self.expr(value, 0))
            }
            PrimExpr::Load { buffer, dtype: _, indices } => self.access(*buffer, indices),
            PrimExpr::Ramp { base, stride, lanes } => {
                format!("ramp({}, {}, {lanes})", self.expr(base, 0), self.expr(stride, 0))
            }
            PrimExpr::Broadcast { value, lanes } => {
                format!("broadcast({}, {lanes})", self.expr(value, 0))
            }
            PrimExpr::Shuffle { vectors, lanes } => {
                let lanes: Vec<_> = lanes.iter().map(u32::to_string).collect();
                format!("shuffle<{}>({})", lanes.join(", "), self.list(vectors))
            }
            PrimExpr::VectorReduce { op, value } => {
                format!("reduce<{}>({})", op.symbol(), self.expr(value, 0))
            }
            PrimExpr::MulAdd { a, b, c } => {
                format!("fma({}, {}, {})", self.expr(a, 0), self.expr(b, 0), self.expr(c, 0))
            }
            PrimExpr::DotAdd { a, b, c } => {
                let [a, b, c] = [a, b, c].map(|operand| self.expr(operand, 0));
                format!("dot_add({a}, {b}, {c})")
            }
            PrimExpr::Call { intrinsic, args } => {
                format!("{}({})", intrinsic.name(), self.list(args))
            }
            PrimExpr::Let { var, value, body } => {
                let value = self.expr(value, 0);
                let name = self.bind(*var);
                format!("(let {name} = {value} in {})", self.expr(body, 0))
            }
        }
    }

    /// Operators group from the left.
    fn infix(&mut self, symbol: &str, lhs: &PrimExpr, rhs: &PrimExpr, outer: u8) -> String {
        let level = precedence(symbol).unwrap_or(0);
        let text = format!("{} {symbol} {}", self.expr(lhs, level), self.expr(rhs, level + 1));
        if level < outer { format!("({text})") } else { text }
    }
}

/// Annotations as text after their loop or block.
fn notes(annotations: &Annotations) -> String {
    if annotations.is_empty() {
        return String::new();
    }
    let note = |(key, value): (&String, &String)| format!("{} = {}", quote(key), quote(value));
    format!(" [{}]", annotations.iter().map(note).collect::<Vec<_>>().join(", "))
}

/// The name of a function as it prints: in quotes unless it is identifiers joined by dots.
fn global_name(name: &str) -> String {
    if is_dotted_identifier(name) { name.to_owned() } else { quote(name) }
}

/// A string literal.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
