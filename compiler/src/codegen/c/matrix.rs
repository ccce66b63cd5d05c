//! Sums in registers that are matrices, by AMX: in assembly, which compilers understand before they have
//! functions for it.

use super::kernel::{Emitter, Result};
use crate::codegen::matrix::{Instruction, Matrices, MatrixEmitter, Operand};
use crate::tir::{PrimFuncData, Stmt};

impl MatrixEmitter for Emitter<'_> {
    type Failure = String;

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
        let (text, operands) = match instruction {
            Instruction::Configure(config) => {
                let name = self.names.unique("tiles");
                let bytes = config.map(|byte| byte.to_string()).join(", ");
                self.line(format!("static const u8 {name}[64] = {{{bytes}}};"));
                ("ldtilecfg %0".to_owned(), format!("\"m\"({name})"))
            }
            Instruction::Release => ("tilerelease".to_owned(), String::new()),
            Instruction::Zero(register) => (format!("tilezero %%tmm{register}"), String::new()),
            // The last operand is the one that is written, or added to.
            Instruction::Load(register, place) => {
                (format!("tileloadd (%0,%1,1), %%tmm{register}"), self.rows(place)?)
            }
            Instruction::Multiply { sums, left, right } => {
                (format!("tdpbusd %%tmm{right}, %%tmm{left}, %%tmm{sums}"), String::new())
            }
            Instruction::Store(register, place) => {
                (format!("tilestored %%tmm{register}, (%0,%1,1)"), self.rows(place)?)
            }
        };
        self.line(format!("__asm__ volatile(\"{text}\" : : {operands} : \"memory\");"));
        Ok(())
    }
}

impl Emitter<'_> {
    /// The operands of an instruction that reads or writes rows in memory.
    fn rows(&mut self, place: &Operand) -> Result<String> {
        let pointer = self.pointer(place.buffer)?;
        let index = self.index(&place.first)?.text;
        Ok(format!("\"r\"(&{pointer}[{index}]), \"r\"((i64){})", place.stride))
    }
}
