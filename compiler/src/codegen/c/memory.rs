//! Loads and stores.

use super::expr::Value;
use super::kernel::{Emitter, Result};
use super::text::{Piece, Prec};
use crate::ir::DType;
use crate::tir::{BufferId, PrimExpr, PrimType};

impl Emitter<'_> {
    pub(super) fn load(
        &mut self,
        id: BufferId,
        dtype: DType,
        indices: &[PrimExpr],
    ) -> Result<Value> {
        if self.is_register(id) {
            let lanes = indices.first().map_or(1, |index| index.ty().lanes);
            let variable = self.register(id, indices)?;
            return Ok(Value::new(Piece::primary(variable), PrimType::vector(dtype, lanes)));
        }
        let pointer = self.pointer(id)?;
        let index = self.only_index(id, indices)?;
        let lanes = index.ty().lanes;
        let ty = PrimType::vector(dtype, lanes);
        if lanes == 1 {
            self.check_type(ty)?;
            let index = self.index(index)?;
            let element = format!("{pointer}[{}]", index.text);
            let piece = if dtype == DType::Bool {
                Piece::new(format!("{element} != 0"), Prec::Compare)
            } else {
                Piece::primary(element)
            };
            return Ok(Value::new(piece, ty));
        }
        let memory = if dtype == DType::Bool { ty.with_dtype(DType::U8) } else { ty };
        self.check_type(memory)?;
        let text = match index {
            PrimExpr::Ramp { base, stride, .. } if stride.is_const(1) => {
                self.vector_in_memory(&pointer, base, ty)?
            }
            PrimExpr::Broadcast { value, .. } => {
                let at = self.index(value)?;
                let helper = self.splat(memory)?;
                format!("{helper}({pointer}[{}])", at.text)
            }
            // A gather, lane by lane.
            _ => {
                let ctype = self.value_type(memory, 0)?;
                let elements: Vec<_> = (0..lanes)
                    .map(|lane| {
                        let at = self.index(&index.lane_expr(lane))?;
                        Ok(format!("{pointer}[{}]", at.text))
                    })
                    .collect::<Result<_>>()?;
                format!("({ctype}){{{}}}", elements.join(", "))
            }
        };
        if dtype == DType::Bool {
            let mask = self.value_type(ty.with_dtype(DType::I8), 0)?;
            let piece = Piece::new(format!("({mask})({text} != 0)"), Prec::Unary);
            return Ok(Value::mask(piece, lanes, 8));
        }
        Ok(Value::new(Piece::new(text, Prec::Unary), ty))
    }

    /// The lvalue of consecutive elements.
    pub(super) fn vector_in_memory(
        &mut self,
        pointer: &str,
        base: &PrimExpr,
        ty: PrimType,
    ) -> Result<String> {
        let memory = if ty.dtype == DType::Bool { ty.with_dtype(DType::U8) } else { ty };
        self.check_type(memory)?;
        let ctype = self.preamble.memory_type_name(memory);
        let is_const = if self.is_const_pointer(pointer) { "const " } else { "" };
        let base = self.index(base)?;
        Ok(match base.text.as_str() {
            "0" => format!("*({is_const}{ctype} *){pointer}"),
            text => format!("*({is_const}{ctype} *)&{pointer}[{text}]"),
        })
    }

    fn is_const_pointer(&self, pointer: &str) -> bool {
        self.buffers
            .values()
            .any(|binding| binding.name == pointer && binding.ctype.starts_with("const "))
    }

    pub(super) fn store(
        &mut self,
        id: BufferId,
        indices: &[PrimExpr],
        value: &PrimExpr,
    ) -> Result<()> {
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
        let value = if dtype == DType::Bool { self.mask_to_bytes(value)? } else { value.piece };
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
