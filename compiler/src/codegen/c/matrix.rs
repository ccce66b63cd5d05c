//! Sums in registers that are matrices, by AMX: in assembly, which compilers understand before they have
//! functions for it.

use super::kernel::{Emitter, Result};
use crate::codegen::matrix::{Block, Matrices, Operand, Shape, Step};
use crate::tir::Stmt;

impl Emitter<'_> {
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
            self.tile(&format!("tilezero %%tmm{}", Shape::sums(row, column)));
        }
        self.matrices = Matrices::InBlock;
        block.terms.iter().try_for_each(|stmt| self.stmt(stmt))?;
        self.matrices = Matrices::Configured;
        for ((row, column), place) in block.shape.each().zip(&block.stored) {
            let register = Shape::sums(row, column);
            self.tile_at(&format!("tilestored %%tmm{register}, (%0,%1,1)"), place)?;
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
        let name = self.names.unique("tiles");
        let bytes = shape.config().map(|byte| byte.to_string()).join(", ");
        self.line(format!("static const u8 {name}[64] = {{{bytes}}};"));
        self.line(format!("__asm__ volatile(\"ldtilecfg %0\" : : \"m\"({name}));"));
        self.matrices = Matrices::Configured;
        write(self)?;
        self.matrices = Matrices::Outside;
        self.tile("tilerelease");
        Ok(true)
    }

    fn matrix_step(&mut self, step: &Step) -> Result<()> {
        for (row, place) in step.left.iter().enumerate() {
            self.tile_at(&format!("tileloadd (%0,%1,1), %%tmm{}", Shape::left(row)), place)?;
        }
        for (column, place) in step.right.iter().enumerate() {
            self.tile_at(&format!("tileloadd (%0,%1,1), %%tmm{}", Shape::right(column)), place)?;
        }
        for (row, column) in step.shape.each() {
            let [sums, left, right] =
                [Shape::sums(row, column), Shape::left(row), Shape::right(column)];
            // The last operand is the one that is added to.
            self.tile(&format!("tdpbusd %%tmm{right}, %%tmm{left}, %%tmm{sums}"));
        }
        Ok(())
    }

    /// An instruction on registers.
    fn tile(&mut self, instruction: &str) {
        self.line(format!("__asm__ volatile(\"{instruction}\" : :);"));
    }

    /// An instruction on registers and a place in memory.
    fn tile_at(&mut self, instruction: &str, place: &Operand) -> Result<()> {
        let pointer = self.pointer(place.buffer)?;
        let index = self.index(&place.first)?.text;
        self.line(format!(
            "__asm__ volatile(\"{instruction}\" : : \"r\"(&{pointer}[{index}]), \"r\"((i64){}) : \"memory\");",
            place.stride
        ));
        Ok(())
    }
}
