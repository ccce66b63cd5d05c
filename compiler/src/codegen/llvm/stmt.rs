//! Statements.

use inkwell::IntPredicate;
use inkwell::attributes::AttributeLoc;
use inkwell::module::Linkage;
use inkwell::types::{BasicMetadataTypeEnum, BasicTypeEnum};
use inkwell::values::{
    BasicMetadataValueEnum, BasicValueEnum, FunctionValue, IntValue, PointerValue,
};

use super::kernel::{Emitter, Registers, Result, Scope, field, pointer_param, with_lanes};
use crate::codegen::kernel::{NOT_VECTORIZED, Place, RegisterParts, local_bytes, unlowered, uses};
use crate::codegen::matrix::MatrixEmitter;
use crate::tir::{BufferId, BufferScope, ForKind, PrimExpr, Stmt, VarId};

/// Alignment of local buffers in bytes.
pub(super) const LOCAL_ALIGNMENT: u32 = 64;

impl<'ctx> Emitter<'_, 'ctx> {
    pub(super) fn stmt(&mut self, stmt: &Stmt) -> Result<()> {
        if self.matrices(stmt)? {
            return Ok(());
        }
        match stmt {
            Stmt::Seq(stmts) => stmts.iter().try_for_each(|stmt| self.stmt(stmt)),
            Stmt::Block { name: _, body } => self.stmt(body),
            Stmt::BlockRealize(block) => Err(unlowered(&block.name).into()),
            Stmt::For { var, min, extent, kind, annotations: _, body } => match kind {
                // LLVM decides by itself what to unroll.
                ForKind::Serial | ForKind::Unrolled => self.serial_loop(*var, min, extent, body),
                ForKind::Parallel => self.parallel_loop(*var, min, extent, body),
                ForKind::Vectorized => Err(NOT_VECTORIZED.to_owned().into()),
            },
            Stmt::Store { buffer, indices, value } => self.store(*buffer, indices, value),
            Stmt::Let { var, value, body } => {
                let value = self.expr(value)?;
                value.set_name(self.var_name(*var));
                let outer = self.vars.insert(*var, value);
                self.stmt(body)?;
                self.restore(*var, outer);
                Ok(())
            }
            Stmt::If { cond, then, otherwise } => self.branch(cond, then, otherwise.as_deref()),
            Stmt::Allocate { buffer, body } => self.allocate(*buffer, body),
            Stmt::Prefetch { buffer, indices, offset, locality, write } => {
                let index = self.only_index(*buffer, indices)?.behind(offset);
                self.prefetch(*buffer, &index, *locality, *write)
            }
            Stmt::Assert { cond, message: _ } => self.assert(cond),
        }
    }

    /// Ends the scope of a variable.
    pub(super) fn restore(&mut self, var: VarId, outer: Option<BasicValueEnum<'ctx>>) {
        match outer {
            Some(value) => self.vars.insert(var, value),
            None => self.vars.remove(&var),
        };
    }

    /// A trap where the condition does not hold. LLVM's optimiser keeps it: it has a side effect.
    fn assert(&mut self, cond: &PrimExpr) -> Result<()> {
        let cond = self.expr(cond)?.into_int_value();
        let (trap, end) = (self.block("trap"), self.block("asserted"));
        self.builder.build_conditional_branch(cond, end, trap)?;
        self.builder.position_at_end(trap);
        let function = self.unit.intrinsic("llvm.trap", &[])?;
        self.builder.build_call(function, &[], "")?;
        self.builder.build_unreachable()?;
        self.builder.position_at_end(end);
        Ok(())
    }

    fn branch(&mut self, cond: &PrimExpr, then: &Stmt, otherwise: Option<&Stmt>) -> Result<()> {
        let cond = self.expr(cond)?.into_int_value();
        let (then_block, end) = (self.block("then"), self.block("end"));
        let else_block = if otherwise.is_some() { self.block("else") } else { end };
        self.builder.build_conditional_branch(cond, then_block, else_block)?;
        self.builder.position_at_end(then_block);
        self.stmt(then)?;
        self.builder.build_unconditional_branch(end)?;
        if let Some(otherwise) = otherwise {
            self.builder.position_at_end(else_block);
            self.stmt(otherwise)?;
            self.builder.build_unconditional_branch(end)?;
        }
        self.builder.position_at_end(end);
        Ok(())
    }

    fn serial_loop(
        &mut self,
        var: VarId,
        min: &PrimExpr,
        extent: &PrimExpr,
        body: &Stmt,
    ) -> Result<()> {
        let first = self.expr(min)?.into_int_value();
        let count = self.expr(extent)?.into_int_value();
        let end = self.builder.build_int_add(first, count, "end")?;
        // Whether the loop runs at all need not be asked where both bounds are known.
        match (min.as_int(), extent.as_int()) {
            (Some(_), Some(extent)) if extent <= 0 => Ok(()),
            (Some(_), Some(_)) => self.loop_between(var, first, end, false, body),
            _ => self.loop_between(var, first, end, true, body),
        }
    }

    /// A loop from `first` to before `end`, with the test at its end, as LLVM's passes like it.
    fn loop_between(
        &mut self,
        var: VarId,
        first: IntValue<'ctx>,
        end: IntValue<'ctx>,
        may_be_empty: bool,
        body: &Stmt,
    ) -> Result<()> {
        let name = self.var_name(var).to_owned();
        let (block, after) = (self.block(&name), self.block(&format!("{name}.end")));
        if may_be_empty {
            let runs = self.builder.build_int_compare(IntPredicate::SLT, first, end, "")?;
            let ready = self.block(&format!("{name}.first"));
            self.builder.build_conditional_branch(runs, ready, after)?;
            self.builder.position_at_end(ready);
        }
        let before = self.current()?;
        self.builder.build_unconditional_branch(block)?;
        self.builder.position_at_end(block);
        let phi = self.builder.build_phi(first.get_type(), &name)?;
        phi.add_incoming(&[(&first, before)]);
        let outer = self.vars.insert(var, phi.as_basic_value());
        self.stmt(body)?;
        self.restore(var, outer);
        let index = phi.as_basic_value().into_int_value();
        // `end` is representable, so that the index does not wrap.
        let one = first.get_type().const_int(1, false);
        let next = self.builder.build_int_nsw_add(index, one, &format!("{name}.next"))?;
        let goes_on = self.builder.build_int_compare(IntPredicate::SLT, next, end, "")?;
        phi.add_incoming(&[(&next, self.current()?)]);
        self.builder.build_conditional_branch(goes_on, block, after)?;
        self.builder.position_at_end(after);
        Ok(())
    }

    /// Makes the body a function of its own and hands it to the context's `parallel_for`.
    ///
    /// `parallel_for` calls a function that takes one pointer for everything the body uses. It calls
    /// another one, whose parameters say that the buffers do not overlap.
    fn parallel_loop(
        &mut self,
        var: VarId,
        min: &PrimExpr,
        extent: &PrimExpr,
        body: &Stmt,
    ) -> Result<()> {
        if self.scope.worker.is_some() {
            return Err("a parallel loop is inside another one".into());
        }
        let (used_vars, used_buffers) = uses(body);
        if let Some(id) = used_buffers.iter().find(|id| self.registers.contains_key(id)) {
            let name = &self.func.buffers[*id].name;
            return Err(format!(
                "register buffer `{name}` is used in a parallel loop inside its Allocate"
            )
            .into());
        }
        let long = self.unit.context.i64_type();
        let [first, count] = [min, extent].map(|bound| -> Result<IntValue<'ctx>> {
            let bound = self.expr(bound)?.into_int_value();
            Ok(self.builder.build_int_s_extend_or_bit_cast(bound, long, "")?)
        });
        let (first, count) = (first?, count?);
        let vars: Vec<(VarId, BasicValueEnum<'ctx>)> =
            used_vars.iter().filter_map(|id| Some((*id, *self.vars.get(id)?))).collect();
        let buffers: Vec<(BufferId, PointerValue<'ctx>)> =
            used_buffers.iter().filter_map(|id| Some((*id, *self.buffers.get(id)?))).collect();

        // The context, the first index, then what the body uses.
        let mut captured: Vec<BasicValueEnum<'ctx>> = vec![self.scope.ctx.into(), first.into()];
        captured.extend(vars.iter().map(|(_, value)| *value));
        captured.extend(buffers.iter().map(|(_, pointer)| BasicValueEnum::from(*pointer)));
        let types: Vec<BasicTypeEnum<'ctx>> = captured.iter().map(|v| v.get_type()).collect();
        let args_type = self.unit.context.struct_type(&types, false);
        let number = self.bodies;
        self.bodies += 1;
        let inner = self.loop_function(number, var, &types, &vars, &buffers, body)?;
        let outer = self.body_function(number, args_type, &types, inner)?;

        let args = self.frame(args_type, "args", None)?;
        for (position, value) in captured.iter().enumerate() {
            let field = self.builder.build_struct_gep(args_type, args, position as u32, "")?;
            self.builder.build_store(field, *value)?;
        }
        self.call_parallel_for(outer, args, count)
    }

    /// `static void <symbol>_loop<n>(ctx, first, captured…, begin, end, worker)`
    fn loop_function(
        &mut self,
        number: usize,
        var: VarId,
        types: &[BasicTypeEnum<'ctx>],
        vars: &[(VarId, BasicValueEnum<'ctx>)],
        buffers: &[(BufferId, PointerValue<'ctx>)],
        body: &Stmt,
    ) -> Result<FunctionValue<'ctx>> {
        let (i64_type, usize_type) = (self.unit.context.i64_type(), self.unit.usize_type());
        let mut params: Vec<BasicMetadataTypeEnum<'ctx>> =
            types.iter().map(|ty| (*ty).into()).collect();
        params.extend([i64_type, i64_type, usize_type].map(BasicMetadataTypeEnum::from));
        let name = format!("{}_loop{number}", self.symbol);
        let function = self.unit.function(&name, &params, Linkage::Internal);
        self.unit.mark(function, AttributeLoc::Function, "noinline");
        let param = |position: usize, name: &str| -> Result<BasicValueEnum<'ctx>> {
            let value = function.get_nth_param(position as u32).ok_or("a parameter is missing")?;
            value.set_name(name);
            Ok(value)
        };
        let ctx = pointer_param(function, 0, "ctx")?;
        self.unit.mark(function, AttributeLoc::Param(0), "readonly");
        let first = param(1, "first")?.into_int_value();
        let begin = param(types.len(), "begin")?.into_int_value();
        let end = param(types.len() + 1, "end")?.into_int_value();
        let worker = param(types.len() + 2, "worker")?.into_int_value();
        let outer = self.enter(Scope::new(self.unit, function, ctx, Some(worker)));
        let (outer_vars, outer_buffers) = (self.vars.clone(), self.buffers.clone());
        for (position, (id, _)) in vars.iter().enumerate() {
            let value = param(2 + position, self.var_name(*id))?;
            self.vars.insert(*id, value);
        }
        for (position, (id, _)) in buffers.iter().enumerate() {
            let number = (2 + vars.len() + position) as u32;
            let pointer = pointer_param(function, number, &self.func.buffers[*id].name)?;
            self.mark_pointer(function, number, *id);
            self.buffers.insert(*id, pointer);
        }
        let from = self.builder.build_int_add(first, begin, "from")?;
        let to = self.builder.build_int_add(first, end, "to")?;
        // Both are in the range of the variable's type.
        let ty = self.unit.scalar(self.func.vars[var].ty.dtype)?.into_int_type();
        let from = self.builder.build_int_truncate_or_bit_cast(from, ty, "")?;
        let to = self.builder.build_int_truncate_or_bit_cast(to, ty, "")?;
        let matrices = self.matrices;
        self.matrices = matrices.of_other_function();
        if !self.configured(body, |inner| inner.loop_between(var, from, to, true, body))? {
            self.loop_between(var, from, to, true, body)?;
        }
        self.matrices = matrices;
        self.finish_function()?;
        (self.vars, self.buffers) = (outer_vars, outer_buffers);
        self.leave(outer);
        Ok(function)
    }

    /// `static void <symbol>_body<n>(void *args, i64 begin, i64 end, usize worker)`
    fn body_function(
        &mut self,
        number: usize,
        args_type: inkwell::types::StructType<'ctx>,
        types: &[BasicTypeEnum<'ctx>],
        inner: FunctionValue<'ctx>,
    ) -> Result<FunctionValue<'ctx>> {
        let (i64_type, usize_type) = (self.unit.context.i64_type(), self.unit.usize_type());
        let params =
            [self.unit.pointer_type().into(), i64_type.into(), i64_type.into(), usize_type.into()];
        let name = format!("{}_body{number}", self.symbol);
        let function = self.unit.function(&name, &params, Linkage::Internal);
        let args = pointer_param(function, 0, "args")?;
        let outer = self.enter(Scope::new(self.unit, function, args, None));
        let mut values: Vec<BasicMetadataValueEnum<'ctx>> = Vec::new();
        for (position, ty) in types.iter().enumerate() {
            let field = self.builder.build_struct_gep(args_type, args, position as u32, "")?;
            values.push(self.builder.build_load(*ty, field, "")?.into());
        }
        let range = function.get_params().into_iter().skip(1);
        values.extend(range.map(BasicMetadataValueEnum::from));
        // Each worker has a mode of its own.
        let flush = self.func.flushes_denormals();
        let saved = self.unit.flush_denormals(&self.builder, flush)?;
        self.builder.build_call(inner, &values, "")?;
        self.unit.restore_denormals(&self.builder, saved)?;
        self.finish_function()?;
        self.leave(outer);
        Ok(function)
    }

    /// Without a pool the body runs here, in one go.
    fn call_parallel_for(
        &mut self,
        body: FunctionValue<'ctx>,
        args: PointerValue<'ctx>,
        count: IntValue<'ctx>,
    ) -> Result<()> {
        let parallel_for =
            self.context_field(field::PARALLEL_FOR, "parallel_for")?.into_pointer_value();
        let is_null = self.builder.build_is_null(parallel_for, "")?;
        let (serial, parallel, end) =
            (self.block("serial"), self.block("parallel"), self.block("joined"));
        self.builder.build_conditional_branch(is_null, serial, parallel)?;
        self.builder.position_at_end(serial);
        let nobody = self.unit.usize_type().const_zero();
        let whole = [args.into(), self.i64(0).into(), count.into(), nobody.into()];
        self.builder.build_call(body, &whole, "")?;
        self.builder.build_unconditional_branch(end)?;
        self.builder.position_at_end(parallel);
        let pointer = self.unit.pointer_type().into();
        let params = [pointer, pointer, pointer, self.unit.context.i64_type().into()];
        let ty = self.unit.context.void_type().fn_type(&params, false);
        let pool = self.context_field(field::POOL, "pool")?;
        let body = body.as_global_value().as_pointer_value();
        let arguments = [pool.into(), body.into(), args.into(), count.into()];
        self.builder.build_indirect_call(ty, parallel_for, &arguments, "")?;
        self.builder.build_unconditional_branch(end)?;
        self.builder.position_at_end(end);
        Ok(())
    }

    fn allocate(&mut self, id: BufferId, body: &Stmt) -> Result<()> {
        let buffer = &self.func.buffers[id];
        match buffer.scope {
            BufferScope::Param => {
                Err(format!("parameter `{}` cannot be allocated", buffer.name).into())
            }
            BufferScope::Register => {
                let parts = RegisterParts::of(self.func, id, body)?;
                let ty = with_lanes(self.unit.scalar(buffer.dtype)?, parts.lanes);
                let part = |&position: &i64| {
                    Ok((position, self.frame(ty, &parts.name(buffer, position), None)?))
                };
                let memory = parts.positions.iter().map(part).collect::<Result<_>>()?;
                self.registers.insert(id, Registers { ty, parts: memory });
                self.stmt(body)?;
                self.registers.remove(&id);
                Ok(())
            }
            BufferScope::Local => {
                let bytes = local_bytes(buffer)?;
                let place = self.locals.reserve(bytes);
                let outer = match place {
                    Place::Stack { .. } => self.on_stack(id, bytes, body)?,
                    Place::Scratch { offset, .. } => {
                        let pointer = self.in_scratch(offset, &buffer.name)?;
                        let outer = self.buffers.insert(id, pointer);
                        self.stmt(body)?;
                        outer
                    }
                };
                match outer {
                    Some(pointer) => self.buffers.insert(id, pointer),
                    None => self.buffers.remove(&id),
                };
                self.locals.release(place);
                Ok(())
            }
        }
    }

    /// The lifetime of a buffer on the stack; buffers that live at different times share memory.
    fn on_stack(
        &mut self,
        id: BufferId,
        bytes: u64,
        body: &Stmt,
    ) -> Result<Option<PointerValue<'ctx>>> {
        let ty = self.unit.context.i8_type().array_type(bytes as u32);
        let name = self.func.buffers[id].name.clone();
        let pointer = self.frame(ty, &name, Some(LOCAL_ALIGNMENT))?;
        let size = self.unit.context.i64_type().const_int(bytes, false);
        let marker = |emitter: &Self, name: &str| -> Result<()> {
            let types = [emitter.unit.pointer_type().into()];
            let function = emitter.unit.intrinsic(name, &types)?;
            emitter.builder.build_call(function, &[size.into(), pointer.into()], "")?;
            Ok(())
        };
        marker(self, "llvm.lifetime.start")?;
        let outer = self.buffers.insert(id, pointer);
        self.stmt(body)?;
        marker(self, "llvm.lifetime.end")?;
        Ok(outer)
    }

    /// A place in the scratch memory of this worker.
    fn in_scratch(&mut self, offset: u64, name: &str) -> Result<PointerValue<'ctx>> {
        let scratch = self.context_field(field::SCRATCH, "scratch")?.into_pointer_value();
        let byte = self.unit.context.i8_type();
        let mut base = scratch;
        if let Some(worker) = self.scope.worker {
            let stride = self.context_field(field::SCRATCH_STRIDE, "stride")?.into_int_value();
            let distance = self.builder.build_int_mul(worker, stride, "")?;
            // SAFETY: the scratch area has `stride` bytes for each worker.
            base = unsafe { self.builder.build_in_bounds_gep(byte, base, &[distance], "")? };
        }
        let offset = self.unit.usize_type().const_int(offset, false);
        // SAFETY: the area of one worker is as large as the kernel says it needs.
        Ok(unsafe { self.builder.build_in_bounds_gep(byte, base, &[offset], name)? })
    }
}
