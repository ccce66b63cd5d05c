//! Prints one function, scope by scope.

use std::fmt::Write;

use cranelift_entity::packed_option::PackedOption;
use cranelift_entity::{EntityRef, SecondaryMap};

use super::constant::write_constant;
use super::names::Names;
use super::{AttrsText, GlobalText, PrintOptions};
use crate::arith::{Facts, Interval};
use crate::graph::sidecar::Sidecar;
use crate::graph::visit::{ScopeTree, is_trivial};
use crate::graph::{
    Binding, Call, Callee, Closure, Expr, ExprData, ExprId, Function, If, Scope, ScopeId, While,
};
use crate::ir::{GlobalVar, Span};

/// Nesting beyond which lines are not indented further, so that the text stays linear in the size
/// of the function.
const MAX_INDENT: usize = 24;

/// Writes a function and returns the line, from 0, of each expression.
///
/// Any function whose ids are in range can be printed, even if the verifier refuses it: an
/// expression that is not visible at its use prints as `%?`.
pub(super) fn write_function(
    out: &mut String,
    function: &Function,
    global: Option<&GlobalVar>,
    options: &PrintOptions,
    sidecar: &mut Option<Sidecar>,
) -> SecondaryMap<ExprId, Option<u32>> {
    let mut bound: SecondaryMap<ExprId, Option<u32>> = SecondaryMap::new();
    for (id, scope) in function.scopes() {
        for (index, binding) in scope.bindings.iter().enumerate() {
            let data = function.data_of(binding.value);
            let first = data.scope == id && bound[binding.value].is_none();
            if first && !matches!(data.expr, Expr::Var(_)) {
                bound[binding.value] = Some(index as u32);
            }
        }
    }
    let mut printer = Printer {
        function,
        tree: ScopeTree::new(function),
        options,
        sidecar,
        out,
        names: Names::default(),
        bound,
        frames: Vec::new(),
        opened: SecondaryMap::new(),
        line: 0,
        lines: SecondaryMap::new(),
    };
    printer.function(global);
    printer.lines
}

/// The text after the value of an expression.
#[derive(Clone, Copy)]
enum Dest {
    /// `;` after a statement.
    Statement,
    /// Nothing after the result of a scope.
    Result,
}

/// The construct that an open scope is a part of, which decides the text after it.
#[derive(Clone, Copy)]
enum Part {
    Body,
    Then(ScopeId),
    LoopCond(ScopeId),
    /// The last scope of an expression: the else branch, the body of a loop, or a closure.
    Last,
}

struct Frame {
    scope: ScopeId,
    part: Part,
    /// The text after the expression that the scope is a part of.
    dest: Dest,
    /// Index of the next expression in the scope.
    next: usize,
    /// Index of the next binding.
    binding: usize,
    /// The last expression that was printed or skipped.
    passed: PackedOption<ExprId>,
    /// The result of the scope, if its expression is on the scope's last line.
    inline_result: PackedOption<ExprId>,
    mark: usize,
}

struct Printer<'a> {
    function: &'a Function,
    tree: ScopeTree,
    options: &'a PrintOptions,
    sidecar: &'a mut Option<Sidecar>,
    out: &'a mut String,
    names: Names,
    /// The first binding of each expression that its own scope binds.
    bound: SecondaryMap<ExprId, Option<u32>>,
    frames: Vec<Frame>,
    opened: SecondaryMap<ScopeId, bool>,
    line: u32,
    lines: SecondaryMap<ExprId, Option<u32>>,
}

impl Printer<'_> {
    fn function(&mut self, global: Option<&GlobalVar>) {
        let function = self.function;
        match global {
            Some(global) => {
                let _ = write!(self.out, "def {}", GlobalText(global));
            }
            None => self.out.push_str("fn "),
        }
        self.open(function.body(), Part::Body, Dest::Result);
        let ret = function.ty(function.result());
        let _ = write!(self.out, " -> {ret}");
        self.facts();
        let _ = write!(self.out, "{} {{", AttrsText(function.attrs()));
        self.end_line();
        while let Some(frame) = self.frames.pop() {
            self.step(frame);
        }
    }

    /// Prints the facts about the symbols. That symbols are sizes is the default, which `*` takes
    /// back.
    fn facts(&mut self) {
        let facts = self.function.facts();
        if *facts == Facts::dims() {
            return;
        }
        let text = facts.to_string();
        let implied = format!("{}, ", Facts::dims());
        self.out.push_str(" where ");
        if facts.default_bounds() == Interval::ALL {
            self.out.push_str(if text.is_empty() { "*" } else { "*, " });
        }
        let same_default = facts.default_bounds() == Facts::dims().default_bounds();
        let explicit = text.strip_prefix(&implied).filter(|_| same_default);
        self.out.push_str(explicit.unwrap_or(&text));
    }

    /// Continues a scope up to the next nested scope, or to its end.
    fn step(&mut self, mut frame: Frame) {
        let (function, scope) = (self.function, frame.scope);
        let Scope { kind: _, parent: _, params: _, bindings, result } = function.scope(scope);
        loop {
            self.aliases(&mut frame, bindings);
            let Some(&id) = self.tree.exprs(scope).get(frame.next) else { break };
            frame.next += 1;
            frame.passed = id.into();
            let data = function.data_of(id);
            let dest = match self.bound[id] {
                Some(index) if index as usize == frame.binding => {
                    frame.binding += 1;
                    self.indent();
                    let name = self.names.declare(&bindings[index as usize].name, Some(id));
                    let _ = write!(self.out, "let {name}");
                    self.statement(data);
                    Dest::Statement
                }
                // Its line comes with a later binding, or it has none.
                _ if is_trivial(&data.expr) => continue,
                _ if frame.inline_result.expand() == Some(id) => {
                    self.indent();
                    Dest::Result
                }
                _ => {
                    self.indent();
                    let name = self.names.number(id);
                    self.out.push_str(&name);
                    self.statement(data);
                    Dest::Statement
                }
            };
            self.lines[id] = Some(self.line);
            match self.value(id, dest) {
                None => self.finish_value(dest, &data.span),
                Some(inner) => {
                    self.frames.push(frame);
                    self.frames.push(inner);
                    return;
                }
            }
        }
        if frame.inline_result.is_none() {
            self.indent();
            self.operand(*result, None);
            self.end_line();
        }
        self.close(&frame);
    }

    /// Prints the next bindings whose values are printed already or have no line of their own.
    fn aliases(&mut self, frame: &mut Frame, bindings: &[Binding]) {
        while let Some(Binding { name, value }) = bindings.get(frame.binding) {
            let data = self.function.data_of(*value);
            let here = data.scope == frame.scope && !matches!(data.expr, Expr::Var(_));
            if here && frame.passed.expand().is_none_or(|passed| passed < *value) {
                return;
            }
            frame.binding += 1;
            self.indent();
            let mark = self.out.len();
            self.operand(*value, None);
            let value_text = self.out.split_off(mark);
            let unnamed = self.names.get(*value).is_none();
            let name = self.names.declare(name, unnamed.then_some(*value));
            let _ = write!(self.out, "let {name}");
            self.statement(data);
            self.out.push_str(&value_text);
            self.finish_value(Dest::Statement, &Span::Unknown);
        }
    }

    fn statement(&mut self, data: &ExprData) {
        let _ = match self.options.types {
            true => write!(self.out, ": {} = ", data.ty),
            false => write!(self.out, " = "),
        };
    }

    fn finish_value(&mut self, dest: Dest, span: &Span) {
        match dest {
            Dest::Statement => self.out.push(';'),
            Dest::Result => {}
        }
        if self.options.spans && matches!(span, Span::Onnx(_)) {
            let _ = write!(self.out, "  // {}", span.to_string().escape_default());
        }
        self.end_line();
    }

    /// Opens a scope: prints its parameters, unless it is a branch, and declares their names.
    fn open(&mut self, scope: ScopeId, part: Part, dest: Dest) {
        let mark = self.names.mark();
        let frame = self.frame(scope, part, dest, mark);
        self.params(scope);
        self.frames.push(frame);
    }

    fn frame(&mut self, scope: ScopeId, part: Part, dest: Dest, mark: usize) -> Frame {
        let Scope { kind: _, parent: _, params: _, bindings, result } = self.function.scope(scope);
        let result = *result;
        // A scope with two owners is printed once.
        let printed = std::mem::replace(&mut self.opened[scope], true);
        let last = self
            .tree
            .exprs(scope)
            .iter()
            .rev()
            .copied()
            .find(|&id| self.bound[id].is_some() || !is_trivial(self.function.expr(id)));
        let inline = last.filter(|&id| id == result && self.bound[id].is_none() && !printed);
        Frame {
            scope,
            part,
            dest,
            next: if printed { self.tree.exprs(scope).len() } else { 0 },
            binding: if printed { bindings.len() } else { 0 },
            passed: None.into(),
            inline_result: inline.into(),
            mark,
        }
    }

    fn params(&mut self, scope: ScopeId) {
        let function = self.function;
        self.out.push('(');
        for (index, &param) in function.scope(scope).params.iter().enumerate() {
            let name = self.names.declare(function.var_name(param).unwrap_or(""), Some(param));
            let comma = if index == 0 { "" } else { ", " };
            let _ = write!(self.out, "{comma}{name}: {}", function.ty(param));
            self.lines[param] = Some(self.line);
        }
        self.out.push(')');
    }

    /// Ends a scope, and continues with the text after it.
    fn close(&mut self, frame: &Frame) {
        self.names.forget(frame.mark);
        self.indent_of(self.frames.len());
        self.out.push('}');
        let mark = self.names.mark();
        match frame.part {
            Part::Body => self.end_line(),
            Part::Then(otherwise) => {
                self.out.push_str(" else {");
                self.end_line();
                let frame = self.frame(otherwise, Part::Last, frame.dest, mark);
                self.frames.push(frame);
            }
            Part::LoopCond(body) => {
                self.out.push_str(" do ");
                self.open(body, Part::Last, frame.dest);
                self.out.push_str(" {");
                self.end_line();
            }
            Part::Last => {
                let owner = self.frames.last().and_then(|outer| outer.passed.expand());
                let span = owner.map(|id| self.function.span(id).clone()).unwrap_or_default();
                self.finish_value(frame.dest, &span);
            }
        }
    }

    /// Prints the value of an expression up to its first scope, and returns that scope's frame.
    fn value(&mut self, id: ExprId, dest: Dest) -> Option<Frame> {
        let function = self.function;
        match function.expr(id) {
            Expr::Var(_) | Expr::GlobalVar(_) | Expr::Constant(_) | Expr::TupleGet { .. } => {
                self.trivial(id);
                None
            }
            Expr::Tuple(fields) => {
                self.out.push('(');
                self.list(fields.iter().map(|&field| Some(field)), id);
                self.out.push_str(if fields.len() == 1 { ",)" } else { ")" });
                None
            }
            Expr::Call(Call { callee, args, attrs }) => {
                match callee {
                    Callee::Op(op) => self.out.push_str(op.name),
                    Callee::Expr(callee) => self.operand(*callee, Some(id)),
                }
                self.out.push('(');
                self.list(args.iter().copied(), id);
                if !attrs.is_empty() {
                    let comma = if args.is_empty() { "" } else { ", " };
                    let _ = write!(self.out, "{comma}{attrs}");
                }
                self.out.push(')');
                None
            }
            Expr::If(If { cond, then_scope, else_scope }) => {
                self.out.push_str("if (");
                self.operand(*cond, Some(id));
                self.out.push_str(") {");
                self.inner(*then_scope, Part::Then(*else_scope), dest, false)
            }
            Expr::While(While { init, cond, body }) => {
                self.out.push_str("loop (");
                self.list(init.iter().map(|&value| Some(value)), id);
                self.out.push_str(") while ");
                self.inner(*cond, Part::LoopCond(*body), dest, true)
            }
            Expr::Func(Closure { scope, recursive, attrs }) => {
                self.out.push_str("fn ");
                let mark = self.names.mark();
                if let Some(recursive) = recursive {
                    let name = function.var_name(*recursive).unwrap_or("");
                    let name = self.names.declare(name, Some(*recursive));
                    self.lines[*recursive] = Some(self.line);
                    let _ = write!(self.out, "{name} ");
                }
                let mut frame = self.frame(*scope, Part::Last, dest, mark);
                frame.mark = mark;
                self.params(*scope);
                let ret = function.ty(function.scope(*scope).result);
                let _ = write!(self.out, " -> {ret}{} {{", AttrsText(attrs));
                self.end_line();
                Some(frame)
            }
        }
    }

    fn inner(&mut self, scope: ScopeId, part: Part, dest: Dest, params: bool) -> Option<Frame> {
        let mark = self.names.mark();
        let frame = self.frame(scope, part, dest, mark);
        if params {
            self.params(scope);
            self.out.push_str(" {");
        }
        self.end_line();
        Some(frame)
    }

    fn list(&mut self, operands: impl Iterator<Item = Option<ExprId>>, user: ExprId) {
        for (index, operand) in operands.enumerate() {
            if index > 0 {
                self.out.push_str(", ");
            }
            match operand {
                Some(operand) => self.operand(operand, Some(user)),
                None => self.out.push('_'),
            }
        }
    }

    /// Prints an expression as an operand: by its name, or in full if it is trivial.
    fn operand(&mut self, id: ExprId, user: Option<ExprId>) {
        if let Some(name) = self.names.get(id) {
            self.out.push_str(name);
        } else if user.is_some_and(|user| user <= id) {
            let _ = write!(self.out, "%?{}", id.index());
        } else {
            self.trivial(id);
        }
    }

    fn trivial(&mut self, mut id: ExprId) {
        let mut fields = Vec::new();
        let function = self.function;
        loop {
            if self.lines[id].is_none() {
                self.lines[id] = Some(self.line);
            }
            match function.expr(id) {
                // This recursion ends, because each tuple has a smaller id than its field.
                Expr::TupleGet { tuple, index } if *tuple < id => {
                    fields.push(*index);
                    id = *tuple;
                    if let Some(name) = self.names.get(id) {
                        self.out.push_str(name);
                        break;
                    }
                }
                Expr::GlobalVar(global) => {
                    let _ = write!(self.out, "{}", GlobalText(global));
                    break;
                }
                Expr::Constant(constant) => {
                    let digest = write_constant(self.out, constant, self.options.inline_elements);
                    if let Some(sidecar) = self.sidecar
                        && digest
                    {
                        sidecar.insert(constant);
                    }
                    break;
                }
                Expr::Var(_)
                | Expr::TupleGet { .. }
                | Expr::Tuple(_)
                | Expr::Call(_)
                | Expr::If(_)
                | Expr::While(_)
                | Expr::Func(_) => {
                    let _ = write!(self.out, "%?{}", id.index());
                    break;
                }
            }
        }
        for index in fields.iter().rev() {
            let _ = write!(self.out, ".{index}");
        }
    }

    fn indent(&mut self) {
        self.indent_of(self.frames.len() + 1);
    }

    fn indent_of(&mut self, depth: usize) {
        let depth = depth.min(MAX_INDENT);
        self.out.extend(std::iter::repeat_n("  ", depth));
    }

    fn end_line(&mut self) {
        self.out.push('\n');
        self.line += 1;
    }
}
