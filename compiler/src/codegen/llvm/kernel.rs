//! From a lowered loop function to LLVM functions.

use std::collections::BTreeMap;
use std::fmt;

use inkwell::AddressSpace;
use inkwell::attributes::{Attribute, AttributeLoc};
use inkwell::basic_block::BasicBlock;
use inkwell::builder::{Builder, BuilderError};
use inkwell::context::Context;
use inkwell::module::{Linkage, Module};
use inkwell::types::{
    BasicMetadataTypeEnum, BasicType, BasicTypeEnum, FunctionType, IntType, StructType,
};
use inkwell::values::{
    BasicMetadataValueEnum, BasicValueEnum, FunctionValue, IntValue, PointerValue,
};
use inkwell::{GlobalVisibility, intrinsics};

use crate::codegen::CodegenError;
use crate::codegen::kernel::{Locals, has_weak_functions, is_distinct};
use crate::codegen::matrix::Matrices;
use crate::ir::DType;
use crate::target::Target;
use crate::tir::{BufferId, ParamKind, PrimFunc, PrimFuncData, PrimType, VarId};

/// Why a kernel cannot be generated.
#[derive(Debug)]
pub(super) struct Failure(pub(super) String);

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Failure(message)
    }
}

impl From<&str> for Failure {
    fn from(message: &str) -> Self {
        Failure(message.to_owned())
    }
}

impl From<BuilderError> for Failure {
    fn from(error: BuilderError) -> Self {
        Failure(format!("LLVM refuses an instruction: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) type Result<T> = std::result::Result<T, Failure>;

/// A value of the loop IR: an integer (`Bool` is `i1`), a float or a vector of either.
pub(super) type Value<'ctx> = BasicValueEnum<'ctx>;

/// Fields of `struct niello_context` (`niello_runtime::abi::Context`), by position.
pub(super) mod field {
    pub(in super::super) const WEIGHTS: u32 = 0;
    pub(in super::super) const WORKSPACE: u32 = 1;
    pub(in super::super) const SCRATCH: u32 = 2;
    pub(in super::super) const SCRATCH_STRIDE: u32 = 3;
    pub(in super::super) const PARALLEL_FOR: u32 = 4;
    pub(in super::super) const POOL: u32 = 5;
    pub(in super::super) const WORKERS: u32 = 6;
    pub(in super::super) const LEVEL: u32 = 7;
}

/// What functions of one module have in common.
pub(super) struct Unit<'a, 'ctx> {
    pub(super) context: &'ctx Context,
    pub(super) module: &'a Module<'ctx>,
    pub(super) target: &'a Target,
    /// Attributes of every function: the CPU, its features, what the code never does.
    attributes: Vec<Attribute>,
}

impl<'a, 'ctx> Unit<'a, 'ctx> {
    pub(super) fn new(
        context: &'ctx Context,
        module: &'a Module<'ctx>,
        target: &'a Target,
    ) -> Self {
        let flag =
            |name: &str| context.create_enum_attribute(Attribute::get_named_enum_kind_id(name), 0);
        let text = |name: &str, value: &str| context.create_string_attribute(name, value);
        let mut attributes = vec![
            flag("nounwind"),
            // A call of libm stays that call, so that every backend gives its result.
            text("no-builtins", ""),
            text("no-trapping-math", "true"),
            text("target-cpu", super::machine::cpu(target)),
            text("tune-cpu", super::machine::tune_cpu(target)),
            text("target-features", &super::machine::features(target)),
        ];
        if matches!(target.vector_bits(), 256 | 512) {
            // Some CPUs of this width are tuned for half of it.
            attributes.push(text("prefer-vector-width", &target.vector_bits().to_string()));
        }
        if target.os == "windows" {
            // A frame of at most two pages needs no function that touches them.
            attributes.push(text("no-stack-arg-probe", ""));
        }
        Unit { context, module, target, attributes }
    }

    pub(super) fn pointer_type(&self) -> inkwell::types::PointerType<'ctx> {
        self.context.ptr_type(AddressSpace::default())
    }

    /// The integer as wide as a pointer.
    pub(super) fn usize_type(&self) -> IntType<'ctx> {
        match self.target.pointer_width {
            32 => self.context.i32_type(),
            _ => self.context.i64_type(),
        }
    }

    /// `struct niello_context`.
    pub(super) fn context_type(&self) -> StructType<'ctx> {
        let (pointer, usize) = (self.pointer_type().into(), self.usize_type().into());
        let fields = [pointer, pointer, pointer, usize, pointer, pointer, usize, usize];
        self.context.struct_type(&fields, false)
    }

    /// Declares a function that returns nothing.
    pub(super) fn function(
        &self,
        name: &str,
        params: &[BasicMetadataTypeEnum<'ctx>],
        linkage: Linkage,
    ) -> FunctionValue<'ctx> {
        self.declare(name, self.context.void_type().fn_type(params, false), linkage)
    }

    /// Declares a function; what other objects can call is hidden from everything else.
    pub(super) fn declare(
        &self,
        name: &str,
        ty: FunctionType<'ctx>,
        linkage: Linkage,
    ) -> FunctionValue<'ctx> {
        let function = self.module.add_function(name, ty, Some(linkage));
        if linkage != Linkage::Internal {
            function.as_global_value().set_visibility(GlobalVisibility::Hidden);
        }
        for attribute in &self.attributes {
            function.add_attribute(AttributeLoc::Function, *attribute);
        }
        function
    }

    pub(super) fn mark(&self, function: FunctionValue<'ctx>, at: AttributeLoc, name: &str) {
        let kind = Attribute::get_named_enum_kind_id(name);
        function.add_attribute(at, self.context.create_enum_attribute(kind, 0));
    }

    /// The type of an element in memory: a `Bool` is a byte that is 0 or 1.
    pub(super) fn memory_scalar(&self, dtype: DType) -> Result<BasicTypeEnum<'ctx>> {
        match dtype {
            DType::Bool => Ok(self.context.i8_type().into()),
            _ => self.scalar(dtype),
        }
    }

    /// The type of one lane of a value.
    pub(super) fn scalar(&self, dtype: DType) -> Result<BasicTypeEnum<'ctx>> {
        let context = self.context;
        Ok(match dtype {
            DType::Bool => context.bool_type().into(),
            DType::I8 | DType::U8 => context.i8_type().into(),
            DType::I16 | DType::U16 => context.i16_type().into(),
            DType::I32 | DType::U32 => context.i32_type().into(),
            DType::I64 | DType::U64 => context.i64_type().into(),
            DType::F32 => context.f32_type().into(),
            DType::F64 => context.f64_type().into(),
            DType::F16 if self.target.has_fp16_arithmetic() => context.f16_type().into(),
            DType::F16
            | DType::BF16
            | DType::I4
            | DType::U4
            | DType::I2
            | DType::U2
            | DType::F8E4M3FN
            | DType::F8E4M3FNUZ
            | DType::F8E5M2
            | DType::F8E5M2FNUZ
            | DType::F8E8M0
            | DType::F4E2M1 => return Err(format!("the LLVM backend has no {dtype}").into()),
        })
    }

    /// The type of a value.
    pub(super) fn value_type(&self, ty: PrimType) -> Result<BasicTypeEnum<'ctx>> {
        Ok(with_lanes(self.scalar(ty.dtype)?, ty.lanes))
    }

    /// An intrinsic function of LLVM for one type.
    /// Sets the processor's mode in which denormal numbers count as zeros, if `flush`, and returns
    /// what restores it. In between there are calls alone, as LLVM may move operations on floats.
    pub(super) fn flush_denormals(
        &self,
        builder: &Builder<'ctx>,
        flush: bool,
    ) -> Result<Option<SavedMode<'ctx>>> {
        if !flush {
            return Ok(None);
        }
        if self.target.arch == "aarch64" {
            let get = self.intrinsic("llvm.aarch64.get.fpcr", &[])?;
            let mode = builder.build_call(get, &[], "mode")?.try_as_basic_value();
            let mode = mode.basic().ok_or("the mode is no value")?.into_int_value();
            let flag = self.context.i64_type().const_int(1 << 24, false);
            let flushing = builder.build_or(mode, flag, "")?;
            let set = self.intrinsic("llvm.aarch64.set.fpcr", &[])?;
            builder.build_call(set, &[flushing.into()], "")?;
            return Ok(Some(SavedMode::Fpcr(mode)));
        }
        let int = self.context.i32_type();
        let saved = builder.build_alloca(int, "mode")?;
        let flushing = builder.build_alloca(int, "flushing")?;
        let store = self.intrinsic("llvm.x86.sse.stmxcsr", &[])?;
        builder.build_call(store, &[saved.into()], "")?;
        let mode = builder.build_load(int, saved, "")?.into_int_value();
        // FTZ and DAZ.
        let mode = builder.build_or(mode, int.const_int(0x8040, false), "")?;
        builder.build_store(flushing, mode)?;
        let load = self.intrinsic("llvm.x86.sse.ldmxcsr", &[])?;
        builder.build_call(load, &[flushing.into()], "")?;
        Ok(Some(SavedMode::Mxcsr(saved)))
    }

    /// Restores what [`flush_denormals`](Self::flush_denormals) found.
    pub(super) fn restore_denormals(
        &self,
        builder: &Builder<'ctx>,
        saved: Option<SavedMode<'ctx>>,
    ) -> Result<()> {
        let (name, argument): (&str, BasicMetadataValueEnum<'ctx>) = match saved {
            None => return Ok(()),
            Some(SavedMode::Mxcsr(saved)) => ("llvm.x86.sse.ldmxcsr", saved.into()),
            Some(SavedMode::Fpcr(mode)) => ("llvm.aarch64.set.fpcr", mode.into()),
        };
        builder.build_call(self.intrinsic(name, &[])?, &[argument], "")?;
        Ok(())
    }

    pub(super) fn intrinsic(
        &self,
        name: &str,
        types: &[BasicTypeEnum<'ctx>],
    ) -> Result<FunctionValue<'ctx>> {
        intrinsics::Intrinsic::find(name)
            .and_then(|intrinsic| intrinsic.get_declaration(self.module, types))
            .ok_or_else(|| format!("LLVM has no intrinsic {name} of this type").into())
    }
}

/// The processor's mode for floats before it was set.
pub(super) enum SavedMode<'ctx> {
    /// Where MXCSR was stored, on x86.
    Mxcsr(PointerValue<'ctx>),
    /// The value of FPCR, on AArch64.
    Fpcr(IntValue<'ctx>),
}

/// A vector type of a scalar type, or the scalar type for one lane.
pub(super) fn with_lanes(scalar: BasicTypeEnum<'_>, lanes: u32) -> BasicTypeEnum<'_> {
    match scalar {
        _ if lanes == 1 => scalar,
        BasicTypeEnum::IntType(ty) => ty.vec_type(lanes).into(),
        BasicTypeEnum::FloatType(ty) => ty.vec_type(lanes).into(),
        other => other,
    }
}

/// Where the statements being written end up: a function, its first block and what it was given.
#[derive(Clone, Copy)]
pub(super) struct Scope<'ctx> {
    pub(super) function: FunctionValue<'ctx>,
    /// Holds nothing but `alloca`s; it leads to the next block once the function is finished.
    entry: BasicBlock<'ctx>,
    /// Where the statements begin.
    start: BasicBlock<'ctx>,
    pub(super) ctx: PointerValue<'ctx>,
    /// The number of the worker, inside a parallel loop.
    pub(super) worker: Option<IntValue<'ctx>>,
}

/// A register buffer: memory of its own for each part, which becomes registers.
pub(super) struct Registers<'ctx> {
    pub(super) ty: BasicTypeEnum<'ctx>,
    pub(super) parts: BTreeMap<i64, PointerValue<'ctx>>,
}

/// Writes one kernel into a module.
pub(super) struct Emitter<'a, 'ctx> {
    pub(super) unit: &'a Unit<'a, 'ctx>,
    pub(super) func: &'a PrimFuncData,
    pub(super) symbol: &'a str,
    pub(super) builder: Builder<'ctx>,
    pub(super) scope: Scope<'ctx>,
    /// Variables and buffers that are visible.
    pub(super) vars: BTreeMap<VarId, Value<'ctx>>,
    pub(super) buffers: BTreeMap<BufferId, PointerValue<'ctx>>,
    pub(super) registers: BTreeMap<BufferId, Registers<'ctx>>,
    /// Number of loop bodies that are functions of their own.
    pub(super) bodies: usize,
    pub(super) locals: Locals,
    pub(super) matrices: Matrices,
}

/// Writes one kernel, to be called `symbol`, into a module. The function must have been lowered for
/// the module's target.
pub(super) fn generate<'ctx>(
    unit: &Unit<'_, 'ctx>,
    func: &PrimFunc,
    symbol: &str,
) -> std::result::Result<FunctionValue<'ctx>, CodegenError> {
    let error = |Failure(message)| CodegenError { kernel: func.name.clone(), message };
    kernel(unit, func, symbol).map_err(error)
}

/// The types of a kernel's parameters: the context, a pointer for each buffer, the dimensions.
pub(super) fn param_types<'ctx>(
    unit: &Unit<'_, 'ctx>,
    buffers: usize,
    dims: usize,
) -> Vec<BasicMetadataTypeEnum<'ctx>> {
    let mut params: Vec<BasicMetadataTypeEnum<'ctx>> =
        vec![unit.pointer_type().into(); 1 + buffers];
    params.extend(vec![BasicMetadataTypeEnum::from(unit.context.i64_type()); dims]);
    params
}

fn kernel<'ctx>(
    unit: &Unit<'_, 'ctx>,
    func: &PrimFuncData,
    symbol: &str,
) -> Result<FunctionValue<'ctx>> {
    let params = param_types(unit, func.params.len(), func.dims.len());
    let linkage =
        if has_weak_functions(unit.target) { Linkage::WeakODR } else { Linkage::External };
    let function = unit.function(symbol, &params, linkage);
    if func.flushes_denormals() {
        // Its operations must not move to where the mode is another one.
        unit.mark(function, AttributeLoc::Function, "noinline");
    }
    let builder = unit.context.create_builder();
    let ctx = pointer_param(function, 0, "ctx")?;
    unit.mark(function, AttributeLoc::Param(0), "readonly");
    let scope = Scope::new(unit, function, ctx, None);
    builder.position_at_end(scope.start);
    let mut emitter = Emitter {
        unit,
        func,
        symbol,
        builder,
        scope,
        vars: BTreeMap::new(),
        buffers: BTreeMap::new(),
        registers: BTreeMap::new(),
        bodies: 0,
        locals: Locals::default(),
        matrices: Matrices::of(func, unit.target),
    };
    let mut number = 0;
    for param in &func.params {
        let buffer = &func.buffers[param.buffer];
        unit.memory_scalar(buffer.dtype)
            .map_err(|error| format!("buffer `{}`: {error}", buffer.name))?;
        number += 1;
        let pointer = pointer_param(function, number, &buffer.name)?;
        emitter.mark_pointer(function, number, param.buffer);
        emitter.buffers.insert(param.buffer, pointer);
    }
    for &dim in &func.dims {
        number += 1;
        let value = function.get_nth_param(number).ok_or("a dimension is no parameter")?;
        value.set_name(&func.vars[dim].name);
        emitter.vars.insert(dim, value);
    }
    emitter.stmt(&func.body)?;
    emitter.finish_function()?;
    Ok(function)
}

/// A parameter of a function that is a pointer.
pub(super) fn pointer_param<'ctx>(
    function: FunctionValue<'ctx>,
    number: u32,
    name: &str,
) -> Result<PointerValue<'ctx>> {
    match function.get_nth_param(number) {
        Some(BasicValueEnum::PointerValue(pointer)) => {
            pointer.set_name(name);
            Ok(pointer)
        }
        _ => Err(format!("parameter {number} of {name} is no pointer").into()),
    }
}

impl<'ctx> Scope<'ctx> {
    pub(super) fn new(
        unit: &Unit<'_, 'ctx>,
        function: FunctionValue<'ctx>,
        ctx: PointerValue<'ctx>,
        worker: Option<IntValue<'ctx>>,
    ) -> Self {
        let entry = unit.context.append_basic_block(function, "entry");
        let start = unit.context.append_basic_block(function, "start");
        Scope { function, entry, start, ctx, worker }
    }
}

impl<'ctx> Emitter<'_, 'ctx> {
    /// Notes what is known of a pointer that a function is handed for a buffer.
    pub(super) fn mark_pointer(&self, function: FunctionValue<'ctx>, number: u32, id: BufferId) {
        let at = AttributeLoc::Param(number);
        let position = self.func.params.iter().position(|param| param.buffer == id);
        if position.is_none_or(|position| is_distinct(self.func, position)) {
            self.unit.mark(function, at, "noalias");
        }
        self.unit.mark(function, at, "nocapture");
        if position.is_some_and(|position| self.func.params[position].kind != ParamKind::Output) {
            self.unit.mark(function, at, "readonly");
        }
    }

    /// Starts writing another function, after which [`finish_function`](Self::finish_function) is
    /// called and the returned scope restored.
    pub(super) fn enter(&mut self, scope: Scope<'ctx>) -> (Scope<'ctx>, Option<BasicBlock<'ctx>>) {
        let block = self.builder.get_insert_block();
        let outer = std::mem::replace(&mut self.scope, scope);
        self.builder.position_at_end(scope.start);
        (outer, block)
    }

    /// Goes back to the function that was being written.
    pub(super) fn leave(&mut self, (scope, block): (Scope<'ctx>, Option<BasicBlock<'ctx>>)) {
        self.scope = scope;
        if let Some(block) = block {
            self.builder.position_at_end(block);
        }
    }

    /// Ends the function being written.
    pub(super) fn finish_function(&mut self) -> Result<()> {
        self.builder.build_return(None)?;
        self.builder.position_at_end(self.scope.entry);
        self.builder.build_unconditional_branch(self.scope.start)?;
        Ok(())
    }

    /// Memory of the function's frame.
    pub(super) fn frame<T: BasicType<'ctx>>(
        &self,
        ty: T,
        name: &str,
        alignment: Option<u32>,
    ) -> Result<PointerValue<'ctx>> {
        let block = self.builder.get_insert_block();
        self.builder.position_at_end(self.scope.entry);
        let pointer = self.builder.build_alloca(ty, name)?;
        if let (Some(alignment), Some(instruction)) = (alignment, pointer.as_instruction()) {
            let refused = |error| format!("LLVM refuses the alignment of `{name}`: {error}");
            instruction.set_alignment(alignment).map_err(refused)?;
        }
        if let Some(block) = block {
            self.builder.position_at_end(block);
        }
        Ok(pointer)
    }

    pub(super) fn block(&self, name: &str) -> BasicBlock<'ctx> {
        self.unit.context.append_basic_block(self.scope.function, name)
    }

    /// The block that instructions are being added to.
    pub(super) fn current(&self) -> Result<BasicBlock<'ctx>> {
        self.builder.get_insert_block().ok_or_else(|| "no block is being written".into())
    }

    /// Reads a field of the context.
    pub(super) fn context_field(&self, number: u32, name: &str) -> Result<Value<'ctx>> {
        let ty = self.unit.context_type();
        let field = self.builder.build_struct_gep(ty, self.scope.ctx, number, "")?;
        let field_type =
            ty.get_field_type_at_index(number).ok_or("the context has no such field")?;
        Ok(self.builder.build_load(field_type, field, name)?)
    }

    pub(super) fn i64(&self, value: i64) -> IntValue<'ctx> {
        self.unit.context.i64_type().const_int(value as u64, true)
    }

    pub(super) fn var_name(&self, var: VarId) -> &str {
        &self.func.vars[var].name
    }
}
