//! Sums in registers that are matrices, by AMX.

use inkwell::module::Linkage;
use inkwell::values::BasicMetadataValueEnum;

use super::kernel::{Emitter, Failure, Result};
use crate::codegen::matrix::{Instruction, Matrices, MatrixEmitter, Operand};
use crate::tir::{PrimFuncData, Stmt};

impl MatrixEmitter for Emitter<'_, '_> {
    type Failure = Failure;

    fn func(&self) -> &PrimFuncData {
        self.func
    }

    fn place(&mut self) -> &mut Matrices {
        &mut self.matrices
    }

    fn any(&mut self, stmt: &Stmt) -> Result<()> {
        self.stmt(stmt)
    }

    fn instruction(&mut self, instruction: Instruction<'_>) -> Result<()> {
        match instruction {
            Instruction::Configure(config) => {
                let bytes = self.unit.context.const_string(&config, false);
                let global = self.unit.module.add_global(bytes.get_type(), None, "tiles");
                global.set_initializer(&bytes);
                global.set_constant(true);
                global.set_linkage(Linkage::Private);
                self.call_amx("llvm.x86.ldtilecfg", &[global.as_pointer_value().into()])
            }
            Instruction::Release => self.call_amx("llvm.x86.tilerelease", &[]),
            Instruction::Zero(register) => self.on_tiles("llvm.x86.tilezero", &[register], None),
            Instruction::Load(register, place) => {
                self.on_tiles("llvm.x86.tileloadd64", &[register], Some(place))
            }
            Instruction::Multiply { sums, left, right } => {
                self.on_tiles("llvm.x86.tdpbusd", &[sums, left, right], None)
            }
            Instruction::Store(register, place) => {
                self.on_tiles("llvm.x86.tilestored64", &[register], Some(place))
            }
        }
    }
}

impl<'ctx> Emitter<'_, 'ctx> {
    fn call_amx(&self, name: &str, arguments: &[BasicMetadataValueEnum<'ctx>]) -> Result<()> {
        let function = self.unit.intrinsic(name, &[])?;
        self.builder.build_call(function, arguments, "")?;
        Ok(())
    }

    /// An instruction on registers, and a place in memory.
    fn on_tiles(&mut self, name: &str, registers: &[u8], place: Option<&Operand>) -> Result<()> {
        let byte = self.unit.context.i8_type();
        let numbers = registers.iter().map(|&number| byte.const_int(number.into(), false).into());
        let mut arguments: Vec<BasicMetadataValueEnum<'ctx>> = numbers.collect();
        if let Some(Operand { buffer, first, stride }) = place {
            let pointer = self.pointer(*buffer)?;
            arguments.push(self.element(*buffer, pointer, first)?.into());
            arguments.push(self.i64(*stride).into());
        }
        self.call_amx(name, &arguments)
    }
}
