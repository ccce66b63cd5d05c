//! Conversions, integer division and shifts: total functions, where LLVM's instructions are not.

use inkwell::types::BasicTypeEnum;
use inkwell::values::{BasicValueEnum, InstructionOpcode};

use super::expr::{width, zero};
use super::kernel::{Emitter, Result, Value, with_lanes};
use crate::codegen::kernel::{alternate_words, picks_low_bytes};
use crate::ir::DType;
use crate::tir::{BinaryOp, CompareOp, PrimExpr, PrimType};

impl<'ctx> Emitter<'_, 'ctx> {
    /// A conversion of value.
    pub(super) fn convert(&mut self, value: &PrimExpr, to: DType) -> Result<Value<'ctx>> {
        use InstructionOpcode as Op;
        if let Some((bytes, first)) = alternate_words(value, to, self.unit.target) {
            let is_signed = bytes.dtype() == DType::I8;
            let bytes = self.expr(bytes)?;
            return self.alternate(bytes, is_signed, first);
        }
        let from = value.ty();
        let result = self.unit.value_type(from.with_dtype(to))?;
        let value = self.expr(value)?;
        if picks_low_bytes(from, to, self.unit.target) {
            return self.low_bytes(value);
        }
        let from = from.dtype;
        if from == to {
            return Ok(value);
        }
        if to == DType::Bool {
            return match from.is_float() {
                true => self.compare_of(CompareOp::Ne, from, value, zero(value)),
                false => self.is_not_zero(value),
            };
        }
        let opcode = match (from.is_float(), to.is_float()) {
            (true, true) if to.bits() > from.bits() => Op::FPExt,
            (true, true) => Op::FPTrunc,
            (true, false) if from == DType::F32 && !matches!(to, DType::U32 | DType::U64) => {
                return match value {
                    BasicValueEnum::VectorValue(_) => self.saturate_lanes(value, result, to),
                    _ => self.saturate(value, result, to.is_signed_int()),
                };
            }
            (true, false) => return self.saturate(value, result, to.is_signed_int()),
            (false, true) if from.is_signed_int() => Op::SIToFP,
            (false, true) => Op::UIToFP,
            (false, false) if to.bits() < from.bits() && from != DType::Bool => Op::Trunc,
            // The same bits under another sign.
            (false, false) if to.bits() == from.bits() && from != DType::Bool => return Ok(value),
            (false, false) if from.is_signed_int() => Op::SExt,
            (false, false) => Op::ZExt,
        };
        self.cast(opcode, value, result)
    }

    /// Float to integer: truncates, saturates, NaN gives 0.
    fn saturate(
        &self,
        value: Value<'ctx>,
        result: BasicTypeEnum<'ctx>,
        signed: bool,
    ) -> Result<Value<'ctx>> {
        let name = if signed { "llvm.fptosi.sat" } else { "llvm.fptoui.sat" };
        let function = self.unit.intrinsic(name, &[result, value.get_type()])?;
        let call = self.builder.build_call(function, &[value.into()], "")?;
        call.try_as_basic_value().basic().ok_or_else(|| format!("{name} returns nothing").into())
    }

    /// The same of all lanes of a vector of `float32` at once, of narrow integers by way of `int32`: for
    /// those LLVM 19 converts lane by lane. Out of range, the conversion is poison, so what is beyond
    /// is taken out before.
    fn saturate_lanes(
        &mut self,
        value: Value<'ctx>,
        result: BasicTypeEnum<'ctx>,
        to: DType,
    ) -> Result<Value<'ctx>> {
        let from = DType::F32;
        let lanes = width(value);
        let (low, high) = to.int_range().unwrap_or((0, 1));
        let constant = |emitter: &mut Self, bound: f64| {
            let bound = emitter.float(bound, from)?;
            emitter.splat(bound, lanes)
        };
        let low = constant(self, low as f64)?;
        let below = self.compare_of(CompareOp::Lt, from, value, low)?;
        let mut x = self.choose(below, low, value)?;
        let wide = if to.bits() < 32 { DType::I32 } else { to };
        let wide = self.unit.value_type(PrimType::vector(wide, lanes))?;
        // NaN is not equal to itself, and becomes 0.
        let is_nan = self.compare_of(CompareOp::Ne, from, x, x)?;
        x = self.choose(is_nan, zero(x), x)?;
        if to.bits() >= 32 {
            // The greatest integer is no float: it takes the place of what is converted from 0.
            let above = constant(self, high as f64 + 1.0)?;
            let is_above = self.compare_of(CompareOp::Ge, from, x, above)?;
            x = self.choose(is_above, zero(x), x)?;
            let inside = self.cast(InstructionOpcode::FPToSI, x, wide)?;
            let greatest = self.constant(high as i64, inside)?;
            return self.choose(is_above, greatest, inside);
        }
        let high = constant(self, high as f64)?;
        let above = self.compare_of(CompareOp::Gt, from, x, high)?;
        x = self.choose(above, high, x)?;
        let inside = self.cast(InstructionOpcode::FPToSI, x, wide)?;
        self.cast(InstructionOpcode::Trunc, inside, result)
    }

    /// `value != 0`, lane by lane.
    pub(super) fn is_not_zero(&self, value: Value<'ctx>) -> Result<Value<'ctx>> {
        self.compare_of(CompareOp::Ne, DType::U8, value, zero(value))
    }

    /// An integer constant of a value's type.
    pub(super) fn constant(&self, value: i64, like: Value<'ctx>) -> Result<Value<'ctx>> {
        let scalar = match like {
            BasicValueEnum::VectorValue(vector) => vector.get_type().get_element_type(),
            like => like.get_type(),
        };
        let BasicTypeEnum::IntType(ty) = scalar else {
            return Err("an integer constant among floats".into());
        };
        let scalar = ty.const_int(value as u64, true);
        match with_lanes(scalar.get_type().into(), width(like)) {
            BasicTypeEnum::VectorType(_) => self.splat(scalar.into(), width(like)),
            _ => Ok(scalar.into()),
        }
    }

    /// Integer division and remainder: a zero divisor gives 0, and −1 wraps.
    pub(super) fn divide(
        &self,
        op: BinaryOp,
        dtype: DType,
        lhs: Value<'ctx>,
        rhs: Value<'ctx>,
        constant: Option<i64>,
    ) -> Result<Value<'ctx>> {
        if constant.is_some_and(|divisor| divisor > 0) {
            return self.divide_by(op, dtype, lhs, rhs, constant);
        }
        let (none, one) = (zero(rhs), self.constant(1, rhs)?);
        let is_zero = self.compare_of(CompareOp::Eq, dtype, rhs, none)?;
        // Divisors that LLVM leaves undefined are replaced by 1, and so are their results below.
        let mut divisor = self.choose(is_zero, one, rhs)?;
        let mut negated = None;
        if dtype.is_signed_int() {
            let is_minus_one =
                self.compare_of(CompareOp::Eq, dtype, rhs, self.constant(-1, rhs)?)?;
            divisor = self.choose(is_minus_one, one, divisor)?;
            negated = Some(is_minus_one);
        }
        let mut result = self.divide_by(op, dtype, lhs, divisor, None)?;
        if let Some(is_minus_one) = negated {
            let of_minus_one = match op {
                BinaryOp::Div | BinaryOp::FloorDiv => self.op(InstructionOpcode::Sub, none, lhs)?,
                _ => none,
            };
            result = self.choose(is_minus_one, of_minus_one, result)?;
        }
        self.choose(is_zero, none, result)
    }

    /// Division by what is neither 0 nor −1.
    fn divide_by(
        &self,
        op: BinaryOp,
        dtype: DType,
        lhs: Value<'ctx>,
        rhs: Value<'ctx>,
        constant: Option<i64>,
    ) -> Result<Value<'ctx>> {
        use InstructionOpcode as Op;
        let signed = dtype.is_signed_int();
        let (div, rem) = if signed { (Op::SDiv, Op::SRem) } else { (Op::UDiv, Op::URem) };
        let exponent = constant
            .and_then(|divisor| u64::try_from(divisor).ok())
            .filter(|divisor| divisor.is_power_of_two())
            .map(|divisor| i64::from(divisor.trailing_zeros()));
        match (op, exponent) {
            (BinaryOp::Div, _) => self.op(div, lhs, rhs),
            (BinaryOp::Rem, _) => self.op(rem, lhs, rhs),
            (BinaryOp::FloorDiv, _) if !signed => self.op(div, lhs, rhs),
            (_, _) if !signed => self.op(rem, lhs, rhs),
            (BinaryOp::FloorDiv, Some(exponent)) => {
                self.op(Op::AShr, lhs, self.constant(exponent, lhs)?)
            }
            (_, Some(exponent)) => self.op(Op::And, lhs, self.constant((1 << exponent) - 1, lhs)?),
            (_, None) => {
                let rest = self.op(rem, lhs, rhs)?;
                let none = zero(lhs);
                let is_inexact = self.compare_of(CompareOp::Ne, dtype, rest, none)?;
                let is_negative = self.compare_of(CompareOp::Lt, dtype, lhs, none)?;
                let divides_negative = self.compare_of(CompareOp::Lt, dtype, rhs, none)?;
                let signs_differ = self.op(Op::Xor, is_negative, divides_negative)?;
                let is_off = self.op(Op::And, is_inexact, signs_differ)?;
                if op == BinaryOp::FloorDiv {
                    let quotient = self.op(div, lhs, rhs)?;
                    let below = self.op(Op::Sub, quotient, self.constant(1, lhs)?)?;
                    return self.choose(is_off, below, quotient);
                }
                let above = self.op(Op::Add, rest, rhs)?;
                self.choose(is_off, above, rest)
            }
        }
    }

    /// A shift whose amount may be anything.
    pub(super) fn shift(
        &self,
        op: BinaryOp,
        dtype: DType,
        lhs: Value<'ctx>,
        rhs: Value<'ctx>,
        constant: Option<i64>,
    ) -> Result<Value<'ctx>> {
        use InstructionOpcode as Op;
        let opcode = match op {
            BinaryOp::Shl => Op::Shl,
            _ if dtype.is_signed_int() => Op::AShr,
            _ => Op::LShr,
        };
        let bits = i64::from(dtype.bits());
        if constant.is_some_and(|amount| (0..bits).contains(&amount)) {
            return self.op(opcode, lhs, rhs);
        }
        // The amount is taken as unsigned.
        let is_small =
            self.compare_of(CompareOp::Lt, DType::U64, rhs, self.constant(bits, rhs)?)?;
        if opcode == Op::AShr {
            let amount = self.choose(is_small, rhs, self.constant(bits - 1, rhs)?)?;
            return self.op(opcode, lhs, amount);
        }
        let amount = self.choose(is_small, rhs, zero(rhs))?;
        let shifted = self.op(opcode, lhs, amount)?;
        self.choose(is_small, shifted, zero(lhs))
    }
}
