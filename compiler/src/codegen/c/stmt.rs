//! Statements.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::expr::is_zero;
use super::kernel::{Binding, Emitter, Registers, Result};
use super::preamble::denormals_around;
use super::text::{Piece, Prec, comment_text, signature};
use crate::codegen::kernel::{
    NOT_VECTORIZED, Place, first_position, local_bytes, local_elements, unlowered, uses,
};
use crate::codegen::matrix::MatrixEmitter;
use crate::ir::DType;
use crate::tir::{BufferId, BufferScope, ForKind, PrimExpr, PrimType, Stmt, VarId};

/// Largest number that C compilers take in a pragma about unrolling.
const MAX_UNROLL: i64 = 65_534;

impl Emitter<'_> {
    pub(super) fn stmt(&mut self, stmt: &Stmt) -> Result<()> {
        if self.matrices(stmt)? {
            return Ok(());
        }
        match stmt {
            Stmt::Seq(stmts) => stmts.iter().try_for_each(|stmt| self.stmt(stmt)),
            Stmt::Block { name, body } => {
                self.comment(name);
                self.stmt(body)
            }
            Stmt::BlockRealize(block) => Err(unlowered(&block.name)),
            Stmt::For { var, min, extent, kind, annotations, body } => {
                for (key, value) in annotations {
                    self.comment(&format!("{key}: {value}"));
                }
                match kind {
                    ForKind::Serial => self.serial_loop(*var, min, extent, body),
                    ForKind::Parallel => self.parallel_loop(*var, min, extent, body),
                    ForKind::Unrolled => {
                        if let Some(count) = extent.as_int() {
                            self.line(format!("#pragma GCC unroll {}", count.clamp(1, MAX_UNROLL)));
                        }
                        self.serial_loop(*var, min, extent, body)
                    }
                    ForKind::Vectorized => Err(NOT_VECTORIZED.to_owned()),
                }
            }
            Stmt::Store { buffer, indices, value } => self.store(*buffer, indices, value),
            Stmt::Let { var, value, body } => {
                let value = self.expr(value)?;
                let outer = self.bind(*var, value)?;
                self.stmt(body)?;
                self.restore(*var, outer);
                Ok(())
            }
            Stmt::If { cond, then, otherwise } => {
                let cond = self.expr(cond)?;
                self.line(format!("if ({}) {{", cond.piece.text));
                self.scope(|emitter| emitter.stmt(then))?;
                if let Some(otherwise) = otherwise {
                    self.line("} else {");
                    self.scope(|emitter| emitter.stmt(otherwise))?;
                }
                self.line("}");
                Ok(())
            }
            Stmt::Allocate { buffer, body } => self.allocate(*buffer, body),
            Stmt::Prefetch { buffer, indices, offset, locality, write } => {
                let pointer = self.pointer(*buffer)?;
                let index = self.only_index(*buffer, indices)?.behind(offset);
                let index = self.index(&index)?;
                let write = u8::from(*write);
                self.line(format!(
                    "__builtin_prefetch(&{pointer}[{}], {write}, {locality});",
                    index.text
                ));
                Ok(())
            }
            Stmt::Assert { cond, message } => {
                let cond = self.expr(cond)?;
                let message = comment_text(message);
                self.line(format!("if (!({})) __builtin_trap(); /* {message} */", cond.piece.text));
                Ok(())
            }
        }
    }

    /// Indented statements, whose names are their own.
    fn scope(&mut self, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let scope = self.names.enter();
        self.indent += 1;
        let result = body(self);
        self.indent -= 1;
        self.names.leave(scope);
        result
    }

    /// A loop whose header is written by `head` from the name of the variable.
    fn counting(
        &mut self,
        var: VarId,
        head: impl FnOnce(&str) -> String,
        body: &Stmt,
    ) -> Result<()> {
        let scope = self.names.enter();
        let name = self.names.unique(&self.func.vars[var].name);
        self.line(format!("for ({}) {{", head(&name)));
        let ctype = format!("{} ", self.index_type(var));
        let outer = self.vars.insert(var, Binding { ctype, name });
        self.scope(|emitter| emitter.stmt(body))?;
        self.restore(var, outer);
        self.names.leave(scope);
        self.line("}");
        Ok(())
    }

    fn serial_loop(
        &mut self,
        var: VarId,
        min: &PrimExpr,
        extent: &PrimExpr,
        body: &Stmt,
    ) -> Result<()> {
        let first = self.index(min)?.text;
        let end = match (min.as_int(), extent.as_int()) {
            (Some(min), Some(extent)) => min.saturating_add(extent).to_string(),
            _ => {
                let end = self.index(&(min.clone() + extent))?.text;
                let name = format!("{}_end", self.func.vars[var].name);
                self.bound(end, self.index_type(var), &name)
            }
        };
        let ctype = self.index_type(var);
        self.counting(var, |i| format!("{ctype} {i} = {first}; {i} < {end}; {i}++"), body)
    }

    /// The type of a loop's variable.
    fn index_type(&self, var: VarId) -> &'static str {
        if self.func.vars[var].ty.dtype == DType::I32 { "i32" } else { "i64" }
    }

    /// A value that is computed once: in a variable, unless it is one or a constant.
    fn bound(&mut self, text: String, ctype: &str, name: &str) -> String {
        if text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            return text;
        }
        let name = self.names.unique(name);
        self.line(format!("const {ctype} {name} = {text};"));
        name
    }

    /// Writes the body as a function of its own and hands it to the context's `parallel_for`.
    fn parallel_loop(
        &mut self,
        var: VarId,
        min: &PrimExpr,
        extent: &PrimExpr,
        body: &Stmt,
    ) -> Result<()> {
        if self.in_body {
            return Err("a parallel loop is inside another one".to_owned());
        }
        let number = self.bodies;
        self.bodies += 1;
        let first = self.index(min)?.text;
        let count = self.index(extent)?.text;
        let (used_vars, used_buffers) = uses(body);
        if let Some(id) = used_buffers.iter().find(|id| self.registers.contains_key(id)) {
            return Err(format!(
                "register buffer `{}` is used in a parallel loop inside its Allocate",
                self.func.buffers[*id].name
            ));
        }
        // What the body sees, and the name of each here: first those that only some bodies need.
        let mut captured: Vec<(Binding, String)> = Vec::new();
        let scope = self.names.enter();
        let start = self.names.unique("first");
        if !min.is_const(0) {
            let binding = Binding { ctype: "i64 ".to_owned(), name: start.clone() };
            captured.push((binding, first));
        }
        let used = used_vars.iter().filter_map(|var| self.vars.get(var));
        let used = used.chain(used_buffers.iter().filter_map(|id| self.buffers.get(id)));
        captured.extend(used.map(|binding| (binding.clone(), binding.name.clone())));

        // The body's side.
        let outer_lines = std::mem::take(&mut self.lines);
        let outer_indent = std::mem::replace(&mut self.indent, 1);
        let outer_ctx = std::mem::take(&mut self.uses_ctx);
        self.in_body = true;
        let ctype = self.index_type(var);
        let head = |i: &str| match min.is_const(0) {
            true => format!("{ctype} {i} = begin; {i} < end; {i}++"),
            false => format!("{ctype} {i} = {start} + begin; {i} < {start} + end; {i}++"),
        };
        let matrices = self.matrices;
        self.matrices = matrices.of_other_function();
        if !self.configured(body, |inner| inner.counting(var, head, body))? {
            self.counting(var, head, body)?;
        }
        self.matrices = matrices;
        self.in_body = false;
        self.indent = outer_indent;
        let body_lines = std::mem::replace(&mut self.lines, outer_lines);
        self.names.leave(scope);
        if self.uses_ctx {
            let ctype = "const struct niello_context *".to_owned();
            captured.insert(0, (Binding { ctype, name: "ctx".to_owned() }, "ctx".to_owned()));
        }
        let (body_name, args_name) =
            (self.own_name(&format!("body{number}")), self.own_name(&format!("args{number}")));
        self.body_function(&body_name, &args_name, &captured, &body_lines);
        self.uses_ctx |= outer_ctx;

        // The kernel's side.
        self.uses_ctx = true;
        let count = self.bound(count, "i64", "count");
        let args = self.names.unique("args");
        let values: Vec<&str> = captured.iter().map(|(_, value)| value.as_str()).collect();
        self.line(format!("struct {args_name} {args} = {{{}}};", values.join(", ")));
        self.line("if (ctx->parallel_for)");
        self.line(format!("    ctx->parallel_for(ctx->pool, {body_name}, &{args}, {count});"));
        self.line("else");
        self.line(format!("    {body_name}(&{args}, 0, {count}, 0);"));
        Ok(())
    }

    /// Defines the body of a parallel loop, from the lines of the loop, and what it is handed.
    fn body_function(
        &mut self,
        name: &str,
        args: &str,
        captured: &[(Binding, String)],
        lines: &[String],
    ) {
        let mut text = format!("struct {args} {{\n");
        for (Binding { ctype, name }, _) in captured {
            text.push_str(&format!("    {ctype}{name};\n"));
        }
        text.push_str("};\n\n");
        let params = ["void *argument", "i64 begin", "i64 end", "usize worker"].map(str::to_owned);
        let head = |head: &str| signature(head, &params);
        let flush = self.func.flushes_denormals();
        text.push_str(&match flush {
            true => head(&format!("static __attribute__((noinline)) void {name}_loop")),
            false => head(&format!("static void {name}")),
        });
        text.push_str(&format!(" {{\n    const struct {args} *const args = argument;\n"));
        for (Binding { ctype, name }, _) in captured {
            text.push_str(&format!("    {ctype}const {name} = args->{name};\n"));
        }
        // The context is read to find the memory of this worker.
        if !self.uses_ctx {
            text.push_str("    (void)worker;\n");
        }
        for line in lines {
            text.push_str(line);
            text.push('\n');
        }
        text.push_str("}\n\n");
        if flush {
            // Each worker has a mode of its own.
            let [before, after] = denormals_around(flush);
            text.push_str(&head(&format!("static void {name}")));
            text.push_str(&format!(
                " {{\n{before}    {name}_loop(argument, begin, end, worker);\n"
            ));
            text.push_str(&format!("{after}}}\n\n"));
        }
        self.definition.push_str(&text);
    }

    fn allocate(&mut self, id: BufferId, body: &Stmt) -> Result<()> {
        let buffer = &self.func.buffers[id];
        match buffer.scope {
            BufferScope::Param => Err(format!("parameter `{}` cannot be allocated", buffer.name)),
            BufferScope::Register => {
                let registers = self.registers_of(id, body)?;
                let ty = PrimType::vector(buffer.dtype, registers.lanes);
                if ty.dtype == DType::Bool && !ty.is_scalar() {
                    return Err(format!("register buffer `{}` holds vectors of bool", buffer.name));
                }
                let ctype = self.value_type(ty, 0)?;
                let rest = self.declare(id, &registers, &ctype, body)?;
                self.registers.insert(id, registers);
                rest.into_iter().try_for_each(|stmt| self.stmt(stmt))?;
                self.registers.remove(&id);
                Ok(())
            }
            BufferScope::Local => {
                let element = self.element_type(buffer)?;
                let len = local_elements(buffer)?;
                let bytes = local_bytes(buffer)?;
                let name = self.names.unique(&buffer.name);
                let place = self.locals.reserve(bytes);
                match place {
                    Place::Stack { .. } => {
                        self.line(format!("{element} {name}[{len}] __attribute__((aligned(64)));"));
                    }
                    Place::Scratch { offset, .. } => {
                        self.uses_ctx = true;
                        let mut at = Piece::primary("ctx->scratch");
                        if self.in_body {
                            let own = " + worker * ctx->scratch_stride";
                            at = Piece::new(at.text + own, Prec::Sum);
                        }
                        if offset != 0 {
                            at = Piece::new(format!("{} + {offset}", at.text), Prec::Sum);
                        }
                        let at = at.tight();
                        self.line(format!("{element} *const {name} = (void *){at};"));
                    }
                }
                self.buffers.insert(id, Binding { ctype: format!("{element} *"), name });
                self.stmt(body)?;
                self.buffers.remove(&id);
                self.locals.release(place);
                Ok(())
            }
        }
    }

    /// Declares the variables of a register buffer, with the values that its first stores give them;
    /// returns the statements after those.
    fn declare<'s>(
        &mut self,
        id: BufferId,
        registers: &Registers,
        ctype: &str,
        body: &'s Stmt,
    ) -> Result<Vec<&'s Stmt>> {
        let mut rest = match body {
            Stmt::Seq(stmts) => stmts.iter().collect(),
            one => vec![one],
        };
        let mut values: BTreeMap<i64, String> = BTreeMap::new();
        if let Some(Stmt::Block { name, body }) = rest.first()
            && let stores = std::slice::from_ref(&**body)
            && let stores = if let Stmt::Seq(stores) = &**body { stores } else { stores }
            && stores.iter().all(|stmt| initial_value(id, stmt).is_some())
        {
            self.comment(name);
            rest.splice(..1, stores);
        }
        let mut stores = 0;
        for (position, value) in rest.iter().map_while(|stmt| initial_value(id, stmt)) {
            let Entry::Vacant(entry) = values.entry(position) else { break };
            entry.insert(if is_zero(value) && registers.lanes > 1 {
                "{0}".to_owned()
            } else {
                self.expr(value)?.piece.text
            });
            stores += 1;
        }
        rest.drain(..stores);
        // Lines of a readable length.
        let mut line = String::new();
        for (position, name) in &registers.variables {
            let declarator = match values.get(position) {
                Some(value) => format!("{name} = {value}"),
                None => name.clone(),
            };
            if line.len() + declarator.len() > 80 {
                self.line(format!("{};", std::mem::take(&mut line)));
            }
            line.push_str(if line.is_empty() { ctype } else { "," });
            line.push_str(&format!(" {declarator}"));
        }
        if !line.is_empty() {
            self.line(format!("{line};"));
        }
        Ok(rest)
    }
}

/// Which part of a register buffer a statement stores, and the value, if that does not depend on the
/// buffer.
fn initial_value(id: BufferId, stmt: &Stmt) -> Option<(i64, &PrimExpr)> {
    let Stmt::Store { buffer, indices, value } = stmt else { return None };
    let mut reads = false;
    value.walk(&mut |expr| {
        reads |= matches!(expr, PrimExpr::Load { buffer, .. } if *buffer == id);
    });
    (*buffer == id && !reads).then_some(())?;
    Some((first_position(indices)?, value))
}
