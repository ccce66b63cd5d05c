//! Lanes that change their places.

use inkwell::types::{BasicType, BasicTypeEnum, VectorType};
use inkwell::values::{BasicValueEnum, IntValue, VectorValue};

use super::expr::width;
use super::kernel::{Emitter, Result, Value, with_lanes};
use crate::codegen::kernel::{low_bytes, repeated, turned_quarters, turns_quarters};
use crate::ir::DType;
use crate::tir::{PrimExpr, PrimType};

impl<'ctx> Emitter<'_, 'ctx> {
    /// Lanes of two vectors side by side.
    pub(super) fn pick(
        &self,
        a: VectorValue<'ctx>,
        b: VectorValue<'ctx>,
        lanes: &[u32],
    ) -> Result<VectorValue<'ctx>> {
        let i32_type = self.unit.context.i32_type();
        let lanes: Vec<IntValue<'ctx>> =
            lanes.iter().map(|lane| i32_type.const_int(u64::from(*lane), false)).collect();
        Ok(self.builder.build_shuffle_vector(a, b, VectorType::const_vector(&lanes), "")?)
    }

    pub(super) fn shuffle(&mut self, vectors: &[PrimExpr], lanes: &[u32]) -> Result<Value<'ctx>> {
        let values = vectors.iter().map(|vector| self.expr(vector)).collect::<Result<Vec<_>>>()?;
        let widths: Vec<u32> = values.iter().map(|value| width(*value)).collect();
        let same = widths.iter().all(|width| *width == widths[0]) && widths[0] > 1;
        if let ([value], [vector]) = (values.as_slice(), vectors)
            && let Some(word) = repeated(vector.ty(), lanes)
        {
            // As one wider scalar in each lane: the instructions for that are fast.
            let word = self.unit.scalar(word)?;
            let word = self.builder.build_bit_cast(*value, word, "")?;
            let words = self.splat(word, lanes.len() as u32 / widths[0])?;
            let ty = with_lanes(self.unit.scalar(vector.dtype())?, lanes.len() as u32);
            return Ok(self.builder.build_bit_cast(words, ty, "")?);
        }
        if let [value] = values.as_slice()
            && turns_quarters(vectors[0].ty(), lanes, self.unit.target)
        {
            return self.turn(*value);
        }
        match values.as_slice() {
            [BasicValueEnum::VectorValue(a), rest @ ..]
                if same && rest.len() <= 1 && lanes.len() > 1 =>
            {
                let b = match rest {
                    [BasicValueEnum::VectorValue(b)] => *b,
                    _ => a.get_type().get_poison(),
                };
                Ok(self.pick(*a, b, lanes)?.into())
            }
            _ => {
                let pick = |&lane: &u32| {
                    let (mut part, mut rest) = (0, lane);
                    while part + 1 < widths.len() && rest >= widths[part] {
                        rest -= widths[part];
                        part += 1;
                    }
                    self.lane(*values.get(part).ok_or("a shuffle of nothing")?, rest)
                };
                let elements = lanes.iter().map(pick).collect::<Result<Vec<_>>>()?;
                self.vector_of(&elements)
            }
        }
    }

    /// 64 bytes of which the quarters are turned.
    fn turn(&self, bytes: Value<'ctx>) -> Result<Value<'ctx>> {
        let (words, places) = turned_quarters();
        let places = [
            self.constants(PrimType::vector(DType::I32, 16), &words)?,
            self.constants(PrimType::vector(DType::I8, 64), &places)?,
        ];
        let text = "vpermd $1, $2, $0\n\tvpshufb $3, $0, $0";
        self.assembly(text, "=&v,v,v,v", &[bytes, places[0], places[1]], bytes.get_type())
    }

    /// The lowest byte of each of eight integers.
    pub(super) fn low_bytes(&self, words: Value<'ctx>) -> Result<Value<'ctx>> {
        let (bytes, order) = low_bytes();
        let bytes = self.constants(PrimType::vector(DType::I8, 32), &bytes)?;
        let order = self.constants(PrimType::vector(DType::I32, 8), &order)?;
        let text = "vpshufb $2, $1, $0\n\tvpermd $0, $3, $0";
        let value = self.assembly(text, "=&x,x,x,x", &[words, bytes, order], bytes.get_type())?;
        let bytes = value.into_vector_value();
        Ok(self.pick(bytes, bytes, &[0, 1, 2, 3, 4, 5, 6, 7])?.into())
    }

    /// A vector of integers.
    fn constants(&self, ty: PrimType, values: &[u32]) -> Result<Value<'ctx>> {
        let element = self.unit.scalar(ty.dtype)?.into_int_type();
        let values: Vec<IntValue<'ctx>> =
            values.iter().map(|&value| element.const_int(value.into(), false)).collect();
        Ok(VectorType::const_vector(&values).into())
    }

    /// Instructions of the target, which do nothing but compute a value.
    pub(super) fn assembly(
        &self,
        text: &str,
        constraints: &str,
        args: &[Value<'ctx>],
        result: BasicTypeEnum<'ctx>,
    ) -> Result<Value<'ctx>> {
        let types: Vec<_> = args.iter().map(|arg| arg.get_type().into()).collect();
        let ty = result.fn_type(&types, false);
        let (text, constraints) = (text.to_owned(), constraints.to_owned());
        let context = self.unit.context;
        let code = context.create_inline_asm(ty, text, constraints, false, false, None, false);
        let args: Vec<_> = args.iter().map(|&arg| arg.into()).collect();
        let call = self.builder.build_indirect_call(ty, code, &args, "")?;
        Ok(call.try_as_basic_value().basic().ok_or("instructions return nothing")?)
    }
}
