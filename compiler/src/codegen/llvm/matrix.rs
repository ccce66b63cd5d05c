//! Sums in registers that are matrices, by AMX.

use inkwell::values::BasicMetadataValueEnum;

use super::kernel::{Emitter, Result};
use crate::codegen::matrix::{Block, Matrices, Operand, Shape, Step};
use crate::tir::Stmt;

impl<'ctx> Emitter<'_, 'ctx> {
    /// Writes a statement in which matrices are used, if it is one: a block, a step of one, or what all
    /// blocks are in for which the registers are alike.
    pub(super) fn matrices(&mut self, stmt: &Stmt) -> Result<bool> {
        match self.matrices {
            Matrices::Unused => return Ok(false),
            Matrices::Outside => return self.configured(stmt, |emitter| emitter.stmt(stmt)),
            Matrices::InBlock => {
                let Some(step) = Step::of_marked(self.func, stmt) else { return Ok(false) };
                return self.matrix_step(&step).map(|()| true);
            }
            Matrices::Configured => {}
        }
        let Some(block) = Block::of(self.func, stmt) else { return Ok(false) };
        for (row, column) in block.shape.each() {
            self.tile("llvm.x86.tilezero", &[Shape::sums(row, column)], None)?;
        }
        self.matrices = Matrices::InBlock;
        block.terms.iter().try_for_each(|stmt| self.stmt(stmt))?;
        self.matrices = Matrices::Configured;
        for ((row, column), place) in block.shape.each().zip(&block.stored) {
            self.tile("llvm.x86.tilestored64", &[Shape::sums(row, column)], Some(place))?;
        }
        Ok(true)
    }

    /// Configures the registers around what `write` writes, if all blocks of a statement want them alike
    /// and nobody has; whether it was written.
    pub(super) fn configured(
        &mut self,
        stmt: &Stmt,
        write: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<bool> {
        let shape = Block::shape(self.func, stmt).filter(|_| self.matrices == Matrices::Outside);
        let Some(shape) = shape else { return Ok(false) };
        let bytes = self.unit.context.const_string(&shape.config(), false);
        let global = self.unit.module.add_global(bytes.get_type(), None, "tiles");
        global.set_initializer(&bytes);
        global.set_constant(true);
        global.set_linkage(inkwell::module::Linkage::Private);
        let load = self.unit.intrinsic("llvm.x86.ldtilecfg", &[])?;
        self.builder.build_call(load, &[global.as_pointer_value().into()], "")?;
        self.matrices = Matrices::Configured;
        write(self)?;
        self.matrices = Matrices::Outside;
        let release = self.unit.intrinsic("llvm.x86.tilerelease", &[])?;
        self.builder.build_call(release, &[], "")?;
        Ok(true)
    }

    fn matrix_step(&mut self, step: &Step) -> Result<()> {
        for (row, place) in step.left.iter().enumerate() {
            self.tile("llvm.x86.tileloadd64", &[Shape::left(row)], Some(place))?;
        }
        for (column, place) in step.right.iter().enumerate() {
            self.tile("llvm.x86.tileloadd64", &[Shape::right(column)], Some(place))?;
        }
        for (row, column) in step.shape.each() {
            let registers = [Shape::sums(row, column), Shape::left(row), Shape::right(column)];
            self.tile("llvm.x86.tdpbusd", &registers, None)?;
        }
        Ok(())
    }

    /// An instruction on registers, and a place in memory.
    fn tile(&mut self, name: &str, registers: &[u8], place: Option<&Operand>) -> Result<()> {
        let byte = self.unit.context.i8_type();
        let numbers = registers.iter().map(|&number| byte.const_int(number.into(), false).into());
        let mut arguments: Vec<BasicMetadataValueEnum<'ctx>> = numbers.collect();
        if let Some(Operand { buffer, first, stride }) = place {
            let pointer = self.pointer(*buffer)?;
            arguments.push(self.element(*buffer, pointer, first)?.into());
            arguments.push(self.i64(*stride).into());
        }
        let function = self.unit.intrinsic(name, &[])?;
        self.builder.build_call(function, &arguments, "")?;
        Ok(())
    }
}
