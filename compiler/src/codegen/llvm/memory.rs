//! Loads, stores and prefetches.

use inkwell::types::{BasicTypeEnum, VectorType};
use inkwell::values::{
    BasicMetadataValueEnum, BasicValue, BasicValueEnum, InstructionOpcode, InstructionValue,
    IntValue, PointerValue,
};

use super::kernel::{Emitter, Result, Value, with_lanes};
use super::stmt::LOCAL_ALIGNMENT;
use crate::codegen::kernel::first_position;
use crate::ir::{BUFFER_ALIGNMENT, DType};
use crate::tir::{BinaryOp, BufferId, BufferScope, ParamKind, PrimExpr};

impl<'ctx> Emitter<'_, 'ctx> {
    pub(super) fn load(
        &mut self,
        id: BufferId,
        dtype: DType,
        indices: &[PrimExpr],
    ) -> Result<Value<'ctx>> {
        if self.func.buffers[id].scope == BufferScope::Register {
            let (part, ty) = self.register(id, indices)?;
            return Ok(self.builder.build_load(ty, part, "")?);
        }
        let pointer = self.pointer(id)?;
        let index = self.only_index(id, indices)?;
        let lanes = index.ty().lanes;
        let value = match index {
            _ if lanes == 1 => self.load_at(id, pointer, index, 1)?,
            PrimExpr::Ramp { base, stride, .. } if stride.is_const(1) => {
                self.load_at(id, pointer, base, lanes)?
            }
            PrimExpr::Broadcast { value, .. } => {
                let element = self.load_at(id, pointer, value, 1)?;
                self.splat(element, lanes)?
            }
            // A gather, lane by lane.
            _ => {
                let elements = (0..lanes)
                    .map(|lane| self.load_at(id, pointer, &index.lane_expr(lane), 1))
                    .collect::<Result<Vec<_>>>()?;
                self.vector_of(&elements)?
            }
        };
        if dtype == DType::Bool { self.is_not_zero(value) } else { Ok(value) }
    }

    /// Reads consecutive elements from a scalar index on.
    fn load_at(
        &mut self,
        id: BufferId,
        pointer: PointerValue<'ctx>,
        index: &PrimExpr,
        lanes: u32,
    ) -> Result<Value<'ctx>> {
        let alignment = self.alignment(id, index);
        let at = self.element(id, pointer, index)?;
        let ty = with_lanes(self.unit.memory_scalar(self.func.buffers[id].dtype)?, lanes);
        let value = self.builder.build_load(ty, at, &self.func.buffers[id].name)?;
        align(value.as_instruction_value(), alignment)?;
        Ok(value)
    }

    pub(super) fn store(
        &mut self,
        id: BufferId,
        indices: &[PrimExpr],
        value: &PrimExpr,
    ) -> Result<()> {
        if self.func.buffers[id].scope == BufferScope::Register {
            let value = self.expr(value)?;
            let (part, _) = self.register(id, indices)?;
            self.builder.build_store(part, value)?;
            return Ok(());
        }
        let pointer = self.pointer(id)?;
        let index = self.only_index(id, indices)?;
        let lanes = index.ty().lanes;
        let mut value = self.expr(value)?;
        let dtype = self.func.buffers[id].dtype;
        if dtype == DType::Bool {
            let ty = with_lanes(self.unit.memory_scalar(dtype)?, lanes);
            value = self.bytes_of_bools(value, ty)?;
        }
        match index {
            _ if lanes == 1 => self.store_at(id, pointer, index, value),
            PrimExpr::Ramp { base, stride, .. } if stride.is_const(1) => {
                self.store_at(id, pointer, base, value)
            }
            // A scatter.
            _ => (0..lanes).try_for_each(|lane| {
                let element = self.lane(value, lane)?;
                self.store_at(id, pointer, &index.lane_expr(lane), element)
            }),
        }
    }

    /// Bytes that are 0 or 1.
    ///
    /// LLVM takes those of a vector from a constant in memory, under a mask. With AVX-512 that takes a
    /// hundred times as long while no mask has a bit and the page of the constant was not touched yet:
    /// the processor has to see each time that there is no fault. So ones are cut out of bytes that LLVM
    /// does not know to be masks.
    fn bytes_of_bools(&self, value: Value<'ctx>, ty: BasicTypeEnum<'ctx>) -> Result<Value<'ctx>> {
        let vector = match ty {
            BasicTypeEnum::VectorType(vector)
                if vector.get_size() >= 16 && self.unit.target.vector_bits() == 512 =>
            {
                vector
            }
            _ => return self.cast(InstructionOpcode::ZExt, value, ty),
        };
        let masks = self.cast(InstructionOpcode::SExt, value, ty)?;
        let hidden = self.assembly("", "=v,0", &[masks], ty)?;
        let one = vector.get_element_type().into_int_type().const_int(1, false);
        let ones = VectorType::const_vector(&vec![one; vector.get_size() as usize]);
        Ok(self.builder.build_and(hidden.into_vector_value(), ones, "")?.into())
    }

    /// Writes consecutive elements from a scalar index on.
    fn store_at(
        &mut self,
        id: BufferId,
        pointer: PointerValue<'ctx>,
        index: &PrimExpr,
        value: Value<'ctx>,
    ) -> Result<()> {
        let alignment = self.alignment(id, index);
        let at = self.element(id, pointer, index)?;
        let store = self.builder.build_store(at, value)?;
        align(Some(store), alignment)
    }

    pub(super) fn prefetch(
        &mut self,
        id: BufferId,
        index: &PrimExpr,
        locality: u8,
        write: bool,
    ) -> Result<()> {
        let pointer = self.pointer(id)?;
        let index = self.expr(index)?.into_int_value();
        let element = self.unit.memory_scalar(self.func.buffers[id].dtype)?;
        // SAFETY: not `inbounds`, as the index may be outside the buffer; nothing is read.
        let at = unsafe { self.builder.build_gep(element, pointer, &[index], "")? };
        let types = [self.unit.pointer_type().into()];
        let function = self.unit.intrinsic("llvm.prefetch", &types)?;
        let number = |value: u64| self.unit.context.i32_type().const_int(value, false);
        // The last argument says that data is fetched, not instructions.
        let arguments: [BasicMetadataValueEnum<'ctx>; 4] = [
            at.into(),
            number(u64::from(write)).into(),
            number(u64::from(locality)).into(),
            number(1).into(),
        ];
        self.builder.build_call(function, &arguments, "")?;
        Ok(())
    }

    /// The address of an element.
    pub(super) fn element(
        &mut self,
        id: BufferId,
        pointer: PointerValue<'ctx>,
        index: &PrimExpr,
    ) -> Result<PointerValue<'ctx>> {
        let index = self.index(index)?;
        let element = self.unit.memory_scalar(self.func.buffers[id].dtype)?;
        // SAFETY: loop IR accesses nothing outside its buffers.
        Ok(unsafe { self.builder.build_in_bounds_gep(element, pointer, &[index], "")? })
    }

    /// A scalar index.
    fn index(&mut self, index: &PrimExpr) -> Result<IntValue<'ctx>> {
        match self.expr(index)? {
            BasicValueEnum::IntValue(index) => Ok(index),
            other => Err(format!("an index is of the type {}", other.get_type()).into()),
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
            )
            .into()),
        }
    }

    /// A visible buffer's pointer.
    pub(super) fn pointer(&self, id: BufferId) -> Result<PointerValue<'ctx>> {
        let name =
            || format!("buffer `{}` is used outside its Allocate", self.func.buffers[id].name);
        Ok(*self.buffers.get(&id).ok_or_else(name)?)
    }

    /// The memory of a part of a register buffer, and its type.
    fn register(
        &self,
        id: BufferId,
        indices: &[PrimExpr],
    ) -> Result<(PointerValue<'ctx>, inkwell::types::BasicTypeEnum<'ctx>)> {
        let registers = self.registers.get(&id);
        let position = first_position(indices);
        let part = registers.zip(position).and_then(|(registers, position)| {
            Some((*registers.parts.get(&position)?, registers.ty))
        });
        let name = &self.func.buffers[id].name;
        part.ok_or_else(|| format!("register buffer `{name}` is used outside its Allocate").into())
    }

    /// What the address of an element is surely a multiple of, in bytes.
    fn alignment(&self, id: BufferId, index: &PrimExpr) -> u32 {
        let buffer = &self.func.buffers[id];
        let element = (buffer.dtype.bits() / 8).max(1);
        let is_constant = |kind| kind == ParamKind::Constant;
        // Inputs and outputs of the model are in the caller's memory, aligned to their elements.
        let base = match buffer.scope {
            BufferScope::Local => LOCAL_ALIGNMENT,
            BufferScope::Param
                if self.func.param_of(id).is_some_and(|param| is_constant(param.kind)) =>
            {
                BUFFER_ALIGNMENT as u32
            }
            // There the system's own alignment of 8 bytes is 4.
            BufferScope::Param if self.unit.target.arch == "x86" => return element.min(4),
            BufferScope::Param | BufferScope::Register => return element,
        };
        let factor = 1u32 << trailing_zeros(index).min(6);
        (factor * element).min(base)
    }
}

fn align(instruction: Option<InstructionValue<'_>>, bytes: u32) -> Result<()> {
    let instruction = instruction.ok_or("an access to memory is no instruction")?;
    let refused = |error| format!("LLVM refuses an alignment of {bytes} bytes: {error}");
    Ok(instruction.set_alignment(bytes).map_err(refused)?)
}

/// By which power of two an index is surely divisible.
fn trailing_zeros(index: &PrimExpr) -> u32 {
    match index {
        PrimExpr::Int { value, .. } => value.trailing_zeros(),
        PrimExpr::Binary { op: BinaryOp::Add | BinaryOp::Sub, lhs, rhs } => {
            trailing_zeros(lhs).min(trailing_zeros(rhs))
        }
        PrimExpr::Binary { op: BinaryOp::Mul, lhs, rhs } => {
            trailing_zeros(lhs).saturating_add(trailing_zeros(rhs))
        }
        _ => 0,
    }
}
