//! The function that calls a model's kernels in order.

use std::collections::BTreeMap;

use inkwell::builder::Builder;
use inkwell::module::Linkage;
use inkwell::values::{BasicMetadataValueEnum, FunctionValue, IntValue, PointerValue};
use inkwell::{GlobalVisibility, IntPredicate, attributes::AttributeLoc};

use super::kernel::{Failure, Result, Unit, field, param_types, pointer_param};
use crate::executor::aot::{CALLS_PER_FUNCTION, Call, Entry, Pointer, SizeCount};
use crate::executor::{Part, RegionKind, Units};

/// Writes `<symbol>_run` and its parts.
pub(super) fn generate<'ctx>(unit: &Unit<'_, 'ctx>, entry: &Entry) -> Result<()> {
    let mut writer = Writer { unit, entry, kernels: BTreeMap::new() };
    let name = format!("{}_run", entry.symbol);
    let run = writer.function(&name, Linkage::External)?;
    let body = Body::new(unit, run)?;
    let saved = unit.flush_denormals(&body.builder, entry.flush_denormals)?;
    match &entry.units {
        None => writer.steps(&name, &body)?,
        Some(units) => {
            let once = writer.function(&format!("{}_unit", entry.symbol), Linkage::Internal)?;
            let part = Body::new(unit, once)?;
            writer.steps(&name, &part)?;
            part.builder.build_return(None)?;
            writer.units(units, once, &body)?;
        }
    }
    unit.restore_denormals(&body.builder, saved)?;
    body.builder.build_return(None)?;
    Ok(())
}

struct Writer<'a, 'ctx> {
    unit: &'a Unit<'a, 'ctx>,
    entry: &'a Entry,
    /// Functions of kernels that have been declared, by symbol.
    kernels: BTreeMap<&'a str, FunctionValue<'ctx>>,
}

/// The calls of one level being written.
struct Calls<'a, 'ctx> {
    level: usize,
    /// Prefix of the names of functions that have some of the calls, and how many there are.
    name: &'a str,
    functions: usize,
    /// The copy of the context that calls of the function being written get.
    context: PointerValue<'ctx>,
}

/// A function being written, and the bases that pointers are relative to.
struct Body<'ctx> {
    builder: Builder<'ctx>,
    function: FunctionValue<'ctx>,
    ctx: PointerValue<'ctx>,
    inputs: PointerValue<'ctx>,
    outputs: PointerValue<'ctx>,
    weights: PointerValue<'ctx>,
    workspace: PointerValue<'ctx>,
}

impl<'ctx> Body<'ctx> {
    fn new(unit: &Unit<'_, 'ctx>, function: FunctionValue<'ctx>) -> Result<Self> {
        let builder = unit.context.create_builder();
        builder.position_at_end(unit.context.append_basic_block(function, "entry"));
        let ctx = pointer_param(function, 0, "ctx")?;
        let base = |number, name: &str| -> Result<PointerValue<'ctx>> {
            let field = builder.build_struct_gep(unit.context_type(), ctx, number, "")?;
            Ok(builder.build_load(unit.pointer_type(), field, name)?.into_pointer_value())
        };
        let weights = base(field::WEIGHTS, "weights")?;
        let workspace = base(field::WORKSPACE, "workspace")?;
        let inputs = pointer_param(function, 1, "inputs")?;
        let outputs = pointer_param(function, 2, "outputs")?;
        Ok(Body { builder, function, ctx, inputs, outputs, weights, workspace })
    }
}

impl<'a, 'ctx> Writer<'a, 'ctx> {
    fn function(&self, name: &str, linkage: Linkage) -> Result<FunctionValue<'ctx>> {
        let function = self.unit.function(name, &[self.unit.pointer_type().into(); 3], linkage);
        if linkage == Linkage::Internal {
            self.unit.mark(function, AttributeLoc::Function, "noinline");
        }
        Ok(function)
    }

    /// All calls and copies.
    fn steps(&mut self, name: &str, body: &Body<'ctx>) -> Result<()> {
        if self.entry.levels == 1 {
            self.level(0, name, body)?;
        } else {
            self.choose_level(name, body)?;
        }
        self.copies(body)
    }

    /// Calls a function for each unit of a run.
    fn units(&self, units: &Units, once: FunctionValue<'ctx>, body: &Body<'ctx>) -> Result<()> {
        let (context, builder) = (self.unit.context, &body.builder);
        let (i64_type, pointer) = (context.i64_type(), self.unit.pointer_type());
        let count = self.run_time_size(body, 0)?;
        let array = |strides: &[u64], name: &str| {
            let len = u32::try_from(strides.len()).unwrap_or(u32::MAX);
            builder.build_alloca(pointer.array_type(len), name)
        };
        let inputs = array(&units.inputs, "own_inputs")?;
        let outputs = array(&units.outputs, "own_outputs")?;
        let counter = builder.build_alloca(i64_type, "unit")?;
        builder.build_store(counter, i64_type.const_zero())?;
        let block = |name| context.append_basic_block(body.function, name);
        let (head, inside, end) = (block("units"), block("unit"), block("units.end"));
        builder.build_unconditional_branch(head)?;
        builder.position_at_end(head);
        let number = builder.build_load(i64_type, counter, "unit")?.into_int_value();
        let more = builder.build_int_compare(IntPredicate::SLT, number, count, "")?;
        builder.build_conditional_branch(more, inside, end)?;
        builder.position_at_end(inside);
        for (strides, all, own) in
            [(&units.inputs, body.inputs, inputs), (&units.outputs, body.outputs, outputs)]
        {
            for (position, &stride) in strides.iter().enumerate() {
                let base = self.nth(body, all, position)?;
                let offset =
                    builder.build_int_mul(number, i64_type.const_int(stride, false), "")?;
                let offset = builder.build_int_cast(offset, self.unit.usize_type(), "")?;
                let byte = context.i8_type();
                // SAFETY: the tensor has that many bytes for each unit of the run.
                let at = unsafe { builder.build_in_bounds_gep(byte, base, &[offset], "")? };
                let place = self.size(position as u64);
                // SAFETY: the array has a pointer for each tensor.
                let place = unsafe { builder.build_in_bounds_gep(pointer, own, &[place], "")? };
                builder.build_store(place, at)?;
            }
        }
        builder.build_call(once, &[body.ctx.into(), inputs.into(), outputs.into()], "")?;
        let next = builder.build_int_add(number, i64_type.const_int(1, false), "")?;
        builder.build_store(counter, next)?;
        builder.build_unconditional_branch(head)?;
        builder.position_at_end(end);
        Ok(())
    }

    /// Makes the calls of the level that the context says, in a function for each level.
    fn choose_level(&mut self, name: &str, body: &Body<'ctx>) -> Result<()> {
        let unit = self.unit;
        let usize_type = unit.usize_type();
        let field =
            body.builder.build_struct_gep(unit.context_type(), body.ctx, field::LEVEL, "")?;
        let level = body.builder.build_load(usize_type, field, "level")?.into_int_value();
        let end = unit.context.append_basic_block(body.function, "end");
        for number in 0..self.entry.levels {
            let level_name = format!("{name}_level_{number}");
            let function = self.function(&level_name, Linkage::Internal)?;
            let part = Body::new(unit, function)?;
            self.level(number, &level_name, &part)?;
            part.builder.build_return(None)?;
            if number + 1 == self.entry.levels {
                call_alike(body, function)?;
                body.builder.build_unconditional_branch(end)?;
                break;
            }
            let this = usize_type.const_int(number as u64, false);
            let is_this = body.builder.build_int_compare(IntPredicate::EQ, level, this, "")?;
            let then = unit.context.append_basic_block(body.function, &format!("level.{number}"));
            let next = unit.context.append_basic_block(body.function, "wider");
            body.builder.build_conditional_branch(is_this, then, next)?;
            body.builder.position_at_end(then);
            call_alike(body, function)?;
            body.builder.build_unconditional_branch(end)?;
            body.builder.position_at_end(next);
        }
        body.builder.position_at_end(end);
        Ok(())
    }

    /// Makes the calls of one level.
    fn level(&mut self, level: usize, name: &str, body: &Body<'ctx>) -> Result<()> {
        let mut calls = Calls { level, name, functions: 0, context: self.context(body)? };
        self.parts(&self.entry.parts, &mut calls, body)
    }

    /// A copy of the context whose scratch memory changes.
    fn context(&self, body: &Body<'ctx>) -> Result<PointerValue<'ctx>> {
        let (unit, entry, builder) = (self.unit, self.entry, &body.builder);
        let context_type = unit.context_type();
        let context = builder.build_alloca(context_type, "context")?;
        let value = builder.build_load(context_type, body.ctx, "")?;
        builder.build_store(context, value)?;
        let pointer = |number| builder.build_struct_gep(context_type, context, number, "");
        let workers = builder.build_load(unit.usize_type(), pointer(field::WORKERS)?, "workers")?;
        let planned = self.size(entry.workers as u64);
        let more = IntPredicate::UGT;
        let more = builder.build_int_compare(more, workers.into_int_value(), planned, "")?;
        let place = pointer(field::PARALLEL_FOR)?;
        let parallel = builder.build_load(unit.pointer_type(), place, "parallel_for")?;
        let none = unit.pointer_type().const_null();
        let parallel = builder.build_select(more, none, parallel.into_pointer_value(), "")?;
        builder.build_store(place, parallel)?;
        Ok(context)
    }

    /// Parts in order, in functions of their own if there are many.
    fn parts(
        &mut self,
        parts: &'a [Part<Pointer>],
        calls: &mut Calls<'_, 'ctx>,
        body: &Body<'ctx>,
    ) -> Result<()> {
        if parts.len() <= CALLS_PER_FUNCTION {
            return parts.iter().try_for_each(|part| self.part(part, calls, body));
        }
        let outer = calls.context;
        for parts in parts.chunks(CALLS_PER_FUNCTION) {
            let name = format!("{}_{}", calls.name, calls.functions);
            calls.functions += 1;
            let function = self.function(&name, Linkage::Internal)?;
            let part = Body::new(self.unit, function)?;
            calls.context = self.context(&part)?;
            parts.iter().try_for_each(|inner| self.part(inner, calls, &part))?;
            part.builder.build_return(None)?;
            call_alike(body, function)?;
        }
        calls.context = outer;
        Ok(())
    }

    /// A call, or a region. Calls itself for each region within another one.
    fn part(
        &mut self,
        part: &'a Part<Pointer>,
        calls: &mut Calls<'_, 'ctx>,
        body: &Body<'ctx>,
    ) -> Result<()> {
        let (kind, condition, parts) = match part {
            Part::Step(number) => return self.call(&self.entry.calls[*number], calls, body),
            Part::Region { kind, condition, parts } => (*kind, *condition, parts),
        };
        let (unit, builder) = (self.unit, &body.builder);
        let block = |name| unit.context.append_basic_block(body.function, name);
        let (head, inside, end) = (block("region"), block("region.inside"), block("region.end"));
        builder.build_unconditional_branch(head)?;
        builder.position_at_end(head);
        let byte = unit.context.i8_type();
        let condition = builder.build_load(byte, self.pointer(body, condition)?, "")?;
        let zero = byte.const_zero();
        let (condition, not) = (condition.into_int_value(), IntPredicate::NE);
        let holds = builder.build_int_compare(not, condition, zero, "")?;
        let (if_so, if_not, next) = match kind {
            RegionKind::If => (inside, end, end),
            RegionKind::Unless => (end, inside, end),
            RegionKind::While => (inside, end, head),
        };
        builder.build_conditional_branch(holds, if_so, if_not)?;
        builder.position_at_end(inside);
        self.parts(parts, calls, body)?;
        builder.build_unconditional_branch(next)?;
        builder.position_at_end(end);
        Ok(())
    }

    fn call(&mut self, call: &'a Call, calls: &Calls<'_, 'ctx>, body: &Body<'ctx>) -> Result<()> {
        let (unit, builder) = (self.unit, &body.builder);
        let Some(symbol) = self.entry.functions[call.kernel].get(calls.level) else {
            return Ok(());
        };
        if let Some((offset, stride)) = call.scratch {
            let field =
                |number| builder.build_struct_gep(unit.context_type(), calls.context, number, "");
            let scratch = self.at(body, body.workspace, offset)?;
            builder.build_store(field(field::SCRATCH)?, scratch)?;
            let stride = unit.usize_type().const_int(stride, false);
            builder.build_store(field(field::SCRATCH_STRIDE)?, stride)?;
        }
        let kernel = *self.kernels.entry(symbol).or_insert_with(|| {
            let mut params = param_types(unit, call.args.len(), call.sizes);
            if !call.external {
                return unit.function(symbol, &params, Linkage::External);
            }
            params.remove(0);
            let function = unit.function(symbol, &params, Linkage::External);
            function.as_global_value().set_visibility(GlobalVisibility::Default);
            function
        });
        let context = (!call.external).then(|| calls.context.into());
        let mut args: Vec<BasicMetadataValueEnum<'ctx>> = context.into_iter().collect();
        for &pointer in &call.args {
            args.push(self.pointer(body, pointer)?.into());
        }
        for number in 0..call.sizes {
            args.push(self.run_time_size(body, number)?.into());
        }
        builder.build_call(kernel, &args, "")?;
        call.counts.iter().try_for_each(|count| self.count(body, count))
    }

    /// Stores a size that the run has computed.
    fn count(&self, body: &Body<'ctx>, count: &SizeCount) -> Result<()> {
        let builder = &body.builder;
        let ty = self.unit.context.i64_type();
        let is = builder.build_load(ty, self.pointer(body, count.from)?, "")?.into_int_value();
        let (zero, max) = (ty.const_zero(), ty.const_int(count.max.unsigned_abs(), false));
        let negative = builder.build_int_compare(IntPredicate::SLT, is, zero, "")?;
        let is = builder.build_select(negative, zero, is, "")?.into_int_value();
        let beyond = builder.build_int_compare(IntPredicate::SGT, is, max, "")?;
        let is = builder.build_select(beyond, max, is, "")?;
        builder.build_store(self.run_time_size_place(body, count.size)?, is)?;
        Ok(())
    }

    fn copies(&self, body: &Body<'ctx>) -> Result<()> {
        for copy in &self.entry.copies {
            let from = self.pointer(body, copy.from)?;
            let to = self.pointer(body, Pointer::Output(copy.output, 0))?;
            let bytes = self.size(copy.bytes);
            body.builder.build_memcpy(to, 1, from, 1, bytes)?;
        }
        Ok(())
    }

    fn pointer(&self, body: &Body<'ctx>, pointer: Pointer) -> Result<PointerValue<'ctx>> {
        match pointer {
            Pointer::Input(position) => self.nth(body, body.inputs, position),
            Pointer::Output(position, offset) => {
                let output = self.nth(body, body.outputs, position)?;
                self.at(body, output, offset)
            }
            Pointer::Weights(offset) => self.at(body, body.weights, offset),
            Pointer::Shared(offset) => self.at(body, self.other_weights(), offset),
            Pointer::Workspace(offset) => self.at(body, body.workspace, offset),
            Pointer::Null => Ok(self.unit.pointer_type().const_null()),
        }
    }

    /// A size of the run.
    fn run_time_size(&self, body: &Body<'ctx>, number: usize) -> Result<IntValue<'ctx>> {
        let place = self.run_time_size_place(body, number)?;
        let ty = self.unit.context.i64_type();
        Ok(body.builder.build_load(ty, place, "")?.into_int_value())
    }

    fn run_time_size_place(&self, body: &Body<'ctx>, number: usize) -> Result<PointerValue<'ctx>> {
        let sizes = self.nth(body, body.inputs, self.entry.sizes_input)?;
        let ty = self.unit.context.i64_type();
        let number = self.size(number as u64);
        // SAFETY: the array has a number for each size of the model.
        Ok(unsafe { body.builder.build_in_bounds_gep(ty, sizes, &[number], "")? })
    }

    /// The address of another model's weights.
    fn other_weights(&self) -> PointerValue<'ctx> {
        let symbol = self.entry.other_weights.as_deref().unwrap_or_default();
        let known = self.unit.module.get_global(symbol);
        let global = known.unwrap_or_else(|| {
            let global = self.unit.module.add_global(self.unit.context.i8_type(), None, symbol);
            global.set_constant(true);
            global.set_visibility(GlobalVisibility::Hidden);
            global
        });
        global.as_pointer_value()
    }

    /// A pointer of the caller's array.
    fn nth(
        &self,
        body: &Body<'ctx>,
        array: PointerValue<'ctx>,
        position: usize,
    ) -> Result<PointerValue<'ctx>> {
        let ty = self.unit.pointer_type();
        let position = self.size(position as u64);
        // SAFETY: the array has a pointer for each input or output of the model.
        let place = unsafe { body.builder.build_in_bounds_gep(ty, array, &[position], "")? };
        Ok(body.builder.build_load(ty, place, "")?.into_pointer_value())
    }

    /// That many bytes after a base.
    fn at(
        &self,
        body: &Body<'ctx>,
        base: PointerValue<'ctx>,
        offset: u64,
    ) -> Result<PointerValue<'ctx>> {
        let byte = self.unit.context.i8_type();
        let offset = self.size(offset);
        // SAFETY: weights and workspace are as large as the model says.
        Ok(unsafe { body.builder.build_in_bounds_gep(byte, base, &[offset], "")? })
    }

    fn size(&self, bytes: u64) -> IntValue<'ctx> {
        self.unit.usize_type().const_int(bytes, false)
    }
}

/// Calls a function with the parameters of the caller.
fn call_alike<'ctx>(body: &Body<'ctx>, function: FunctionValue<'ctx>) -> Result<()> {
    let args = [body.ctx.into(), body.inputs.into(), body.outputs.into()];
    body.builder.build_call(function, &args, "").map(drop).map_err(Failure::from)
}
