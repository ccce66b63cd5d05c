//! Statements.

use super::kernel::{Binding, Emitter, Result};
use super::text::{Piece, Prec, comment_text, memory_type};
use crate::codegen::kernel::{NOT_VECTORIZED, Place, local_bytes, local_elements, unlowered, uses};
use crate::ir::DType;
use crate::tir::{BufferId, BufferScope, ForKind, PrimExpr, PrimType, Stmt, VarId};

/// Largest number that C compilers take in a pragma about unrolling.
const MAX_UNROLL: i64 = 65_534;

impl Emitter<'_> {
    pub(super) fn stmt(&mut self, stmt: &Stmt) -> Result<()> {
        match stmt {
            Stmt::Seq(stmts) => stmts.iter().try_for_each(|stmt| self.stmt(stmt)),
            Stmt::Block { name, body } => {
                self.line(format!("/* {} */", comment_text(name)));
                self.stmt(body)
            }
            Stmt::BlockRealize(block) => Err(unlowered(&block.name)),
            Stmt::For { var, min, extent, kind, annotations, body } => {
                for (key, value) in annotations {
                    self.line(format!("/* {}: {} */", comment_text(key), comment_text(value)));
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
                self.bind(*var, value)?;
                self.stmt(body)
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
            Stmt::Prefetch { buffer, indices, locality, write } => {
                let pointer = self.pointer(*buffer)?;
                let index = self.only_index(*buffer, indices)?;
                let index = self.index(index)?;
                self.line(format!(
                    "__builtin_prefetch({pointer} + {}, {}, {locality});",
                    index.at(Prec::Sum),
                    u8::from(*write)
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

    /// Indented statements.
    fn scope(&mut self, body: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        self.indent += 1;
        let result = body(self);
        self.indent -= 1;
        result
    }

    fn serial_loop(
        &mut self,
        var: VarId,
        min: &PrimExpr,
        extent: &PrimExpr,
        body: &Stmt,
    ) -> Result<()> {
        let name = self.names.unique(&self.func.vars[var].name);
        let first = self.index(min)?;
        let end = match (min.as_int(), extent.as_int()) {
            (Some(min), Some(extent)) => min.saturating_add(extent).to_string(),
            _ => {
                let end = self.index(&(min.clone() + extent))?;
                let end_name = self.names.unique(&format!("{name}_end"));
                self.line(format!("const i64 {end_name} = {};", end.text));
                end_name
            }
        };
        self.line(format!("for (i64 {name} = {}; {name} < {end}; {name}++) {{", first.text));
        self.vars.insert(var, Binding { ctype: "i64 ".to_owned(), name });
        self.scope(|emitter| emitter.stmt(body))?;
        self.vars.remove(&var);
        self.line("}");
        Ok(())
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
        let min_piece = self.index(min)?;
        let extent_piece = self.index(extent)?;
        let (used_vars, used_buffers) = uses(body);
        if let Some(id) = used_buffers.iter().find(|id| self.registers.contains_key(id)) {
            return Err(format!(
                "register buffer `{}` is used in a parallel loop inside its Allocate",
                self.func.buffers[*id].name
            ));
        }
        let mut captured: Vec<Binding> = Vec::new();
        captured.extend(used_vars.iter().filter_map(|var| self.vars.get(var)).cloned());
        captured.extend(used_buffers.iter().filter_map(|id| self.buffers.get(id)).cloned());

        // The kernel's side.
        let (body_name, args_name) =
            (self.own_name(&format!("body{number}")), self.own_name(&format!("args{number}")));
        let first = self.names.unique("first");
        let args = self.names.unique("args");
        let count = self.names.unique("count");
        let fields: String = captured.iter().map(|binding| format!(", {}", binding.name)).collect();
        self.line(format!("const i64 {count} = {};", extent_piece.text));
        self.line(format!("struct {args_name} {args} = {{ctx, {}{fields}}};", min_piece.text));
        self.line("if (ctx->parallel_for)");
        self.line(format!("    ctx->parallel_for(ctx->pool, {body_name}, &{args}, {count});"));
        self.line("else");
        self.line(format!("    {body_name}(&{args}, 0, {count}, 0);"));

        // The body's side.
        let outer_lines = std::mem::take(&mut self.lines);
        let outer_indent = std::mem::replace(&mut self.indent, 1);
        self.in_body = true;
        self.line(format!("const struct {args_name} *const captured = argument;"));
        self.line("const struct niello_context *const ctx = captured->ctx;");
        self.line(format!("const i64 {first} = captured->first;"));
        for Binding { ctype, name } in &captured {
            self.line(format!("{ctype}const {name} = captured->{name};"));
        }
        self.line("(void)ctx, (void)worker;");
        let name = self.names.unique(&self.func.vars[var].name);
        self.line(format!(
            "for (i64 {name} = {first} + begin; {name} < {first} + end; {name}++) {{"
        ));
        self.vars.insert(var, Binding { ctype: "i64 ".to_owned(), name });
        self.scope(|emitter| emitter.stmt(body))?;
        self.vars.remove(&var);
        self.line("}");
        self.in_body = false;
        self.indent = outer_indent;
        let body_lines = std::mem::replace(&mut self.lines, outer_lines);

        let mut text = format!("struct {args_name} {{\n    const struct niello_context *ctx;\n");
        text.push_str("    i64 first;\n");
        for Binding { ctype, name } in &captured {
            text.push_str(&format!("    {ctype}{name};\n"));
        }
        text.push_str("};\n\n");
        text.push_str(&format!(
            "static void {body_name}(void *argument, i64 begin, i64 end, usize worker) {{\n"
        ));
        for line in body_lines {
            text.push_str(&line);
            text.push('\n');
        }
        text.push_str("}\n\n");
        self.definition.push_str(&text);
        Ok(())
    }

    fn store(&mut self, id: BufferId, indices: &[PrimExpr], value: &PrimExpr) -> Result<()> {
        if self.is_register(id) {
            let value = self.expr(value)?;
            let variable = self.register(id, indices)?;
            self.line(format!("{variable} = {};", value.piece.text));
            return Ok(());
        }
        let pointer = self.pointer(id)?;
        let index = self.only_index(id, indices)?;
        let lanes = index.ty().lanes;
        let dtype = self.func.buffers[id].dtype;
        if lanes == 1 {
            let index = self.index(index)?;
            let value = self.expr(value)?;
            self.line(format!("{pointer}[{}] = {};", index.text, value.piece.text));
            return Ok(());
        }
        let value = self.expr(value)?;
        let value = if dtype == DType::Bool { self.mask_to_bytes(&value)? } else { value.piece };
        if let PrimExpr::Ramp { base, stride, .. } = index
            && stride.is_const(1)
        {
            let target = self.vector_in_memory(&pointer, base, PrimType::vector(dtype, lanes))?;
            self.line(format!("{target} = {};", value.text));
            return Ok(());
        }
        // A scatter.
        let memory = if dtype == DType::Bool { DType::U8 } else { dtype };
        let ctype = self.value_type(PrimType::vector(memory, lanes), 0)?;
        let values = self.names.unique("values");
        self.line(format!("const {ctype} {values} = {};", value.text));
        for lane in 0..lanes {
            let at = self.index(&index.lane_expr(lane))?;
            self.line(format!("{pointer}[{}] = {values}[{lane}];", at.text));
        }
        Ok(())
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
                let variables: Vec<_> = registers.variables.values().cloned().collect();
                // Lines of a readable length.
                for names in variables.chunks(8) {
                    self.line(format!("{ctype} {};", names.join(", ")));
                }
                self.registers.insert(id, registers);
                self.stmt(body)?;
                self.registers.remove(&id);
                Ok(())
            }
            BufferScope::Local => {
                let element = memory_type(buffer.dtype)
                    .ok_or_else(|| format!("the C backend has no {}", buffer.dtype))?;
                let len = local_elements(buffer)?;
                let bytes = local_bytes(buffer)?;
                let name = self.names.unique(&buffer.name);
                let place = self.locals.reserve(bytes);
                match place {
                    Place::Stack { .. } => {
                        self.line(format!("{element} {name}[{len}] __attribute__((aligned(64)));"));
                    }
                    Place::Scratch { offset, .. } => {
                        let worker =
                            if self.in_body { " + worker * ctx->scratch_stride" } else { "" };
                        self.line(format!(
                            "{element} *const {name} = ({element} *)(ctx->scratch{worker} + {offset});"
                        ));
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

    /// The physical index of an access.
    pub(super) fn only_index<'e>(
        &self,
        id: BufferId,
        indices: &'e [PrimExpr],
    ) -> Result<&'e PrimExpr> {
        match indices {
            [index] => Ok(index),
            _ => Err(format!(
                "buffer `{}` is accessed by {} indices; it must be flattened first",
                self.func.buffers[id].name,
                indices.len()
            )),
        }
    }

    /// An index or bound: constants need no suffix, as everything is `i64`.
    pub(super) fn index(&mut self, expr: &PrimExpr) -> Result<Piece> {
        let outer = std::mem::replace(&mut self.in_index, true);
        let piece = self.expr(expr).map(|value| value.piece);
        self.in_index = outer;
        piece
    }
}
