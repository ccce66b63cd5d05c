//! Expressions.

use inkwell::types::{BasicType, BasicTypeEnum, VectorType};
use inkwell::values::{
    BasicMetadataValueEnum, BasicValueEnum, InstructionOpcode, IntValue, VectorValue,
};
use inkwell::{FloatPredicate, IntPredicate};

use super::kernel::{Emitter, Result, Value, with_lanes};
use crate::ir::DType;
use crate::tir::{BinaryOp, CompareOp, Intrinsic, PrimExpr, PrimType, UnaryOp, VarId};

impl<'ctx> Emitter<'_, 'ctx> {
    /// Writes an expression. Each kind has a function of its own, so that the frames of the
    /// recursion stay small in unoptimised builds.
    pub(super) fn expr(&mut self, expr: &PrimExpr) -> Result<Value<'ctx>> {
        match expr {
            PrimExpr::Int { value, dtype } => self.int(*value, *dtype),
            PrimExpr::Float { value, dtype } => self.float(value.get(), *dtype),
            PrimExpr::Var { var, .. } => self.var(*var),
            PrimExpr::Unary { op, value } => self.unary(*op, value),
            PrimExpr::Binary { op, lhs, rhs } => self.binary(*op, lhs, rhs),
            PrimExpr::Compare { op, lhs, rhs } => self.compare(*op, lhs, rhs),
            PrimExpr::Select { cond, then, otherwise } => self.select(cond, then, otherwise),
            PrimExpr::Cast { value, dtype } => self.convert(value, *dtype),
            PrimExpr::Reinterpret { value, dtype } => self.reinterpret(value, *dtype),
            PrimExpr::Load { buffer, dtype, indices } => self.load(*buffer, *dtype, indices),
            PrimExpr::Ramp { base, stride, lanes } => self.ramp(base, stride, *lanes),
            PrimExpr::Broadcast { value, lanes } => {
                let value = self.expr(value)?;
                self.splat(value, *lanes)
            }
            PrimExpr::Shuffle { vectors, lanes } => self.shuffle(vectors, lanes),
            PrimExpr::VectorReduce { .. } => {
                Err("a reduction of lanes must be lowered before code is generated".into())
            }
            PrimExpr::MulAdd { a, b, c } => self.mul_add(a, b, c),
            PrimExpr::DotAdd { a, b, c } => self.dot_add(a, b, c),
            PrimExpr::Call { intrinsic, args } => self.call(*intrinsic, args),
            PrimExpr::Let { var, value, body } => self.let_in(*var, value, body),
        }
    }

    fn pair(&mut self, a: &PrimExpr, b: &PrimExpr) -> Result<(Value<'ctx>, Value<'ctx>)> {
        let a = self.expr(a)?;
        let b = self.expr(b)?;
        Ok((a, b))
    }

    fn int(&mut self, value: i64, dtype: DType) -> Result<Value<'ctx>> {
        let ty = self.unit.scalar(dtype)?.into_int_type();
        Ok(ty.const_int(value as u64, true).into())
    }

    pub(super) fn float(&mut self, value: f64, dtype: DType) -> Result<Value<'ctx>> {
        let ty = self.unit.scalar(dtype)?.into_float_type();
        Ok(ty.const_float(value).into())
    }

    fn var(&self, var: VarId) -> Result<Value<'ctx>> {
        let unknown = || format!("variable `{}` is used outside its scope", self.var_name(var));
        Ok(*self.vars.get(&var).ok_or_else(unknown)?)
    }

    fn let_in(&mut self, var: VarId, value: &PrimExpr, body: &PrimExpr) -> Result<Value<'ctx>> {
        let value = self.expr(value)?;
        value.set_name(self.var_name(var));
        let outer = self.vars.insert(var, value);
        let result = self.expr(body)?;
        self.restore(var, outer);
        Ok(result)
    }

    fn unary(&mut self, op: UnaryOp, value: &PrimExpr) -> Result<Value<'ctx>> {
        let value = self.expr(value)?;
        Ok(match (op, value) {
            (UnaryOp::Neg, BasicValueEnum::FloatValue(v)) => {
                self.builder.build_float_neg(v, "")?.into()
            }
            (UnaryOp::Neg, BasicValueEnum::VectorValue(v)) if is_float(value) => {
                self.builder.build_float_neg(v, "")?.into()
            }
            (UnaryOp::Neg, _) => self.op(InstructionOpcode::Sub, zero(value), value)?,
            (UnaryOp::Not, BasicValueEnum::IntValue(v)) => self.builder.build_not(v, "")?.into(),
            (UnaryOp::Not, BasicValueEnum::VectorValue(v)) => self.builder.build_not(v, "")?.into(),
            (UnaryOp::Not, _) => return Err("`!` of a float".into()),
        })
    }

    fn binary(&mut self, op: BinaryOp, lhs: &PrimExpr, rhs: &PrimExpr) -> Result<Value<'ctx>> {
        let (dtype, constant) = (lhs.dtype(), rhs.as_int());
        let (lhs, rhs) = self.pair(lhs, rhs)?;
        self.binary_of(op, dtype, lhs, rhs, constant)
    }

    /// `constant` is the right operand if it is one.
    fn binary_of(
        &mut self,
        op: BinaryOp,
        dtype: DType,
        lhs: Value<'ctx>,
        rhs: Value<'ctx>,
        constant: Option<i64>,
    ) -> Result<Value<'ctx>> {
        use InstructionOpcode as Op;
        let is_float = dtype.is_float();
        let opcode = match op {
            BinaryOp::Add if is_float => Op::FAdd,
            BinaryOp::Add => Op::Add,
            BinaryOp::Sub if is_float => Op::FSub,
            BinaryOp::Sub => Op::Sub,
            BinaryOp::Mul if is_float => Op::FMul,
            BinaryOp::Mul => Op::Mul,
            BinaryOp::Div if is_float => Op::FDiv,
            BinaryOp::Rem if is_float => {
                self.libm("fmod", dtype)?;
                Op::FRem
            }
            BinaryOp::Div | BinaryOp::Rem | BinaryOp::FloorDiv | BinaryOp::FloorMod => {
                return self.divide(op, dtype, lhs, rhs, constant);
            }
            BinaryOp::Min | BinaryOp::Max => {
                let order = if op == BinaryOp::Min { CompareOp::Lt } else { CompareOp::Gt };
                let cond = self.compare_of(order, dtype, lhs, rhs)?;
                return self.choose(cond, lhs, rhs);
            }
            BinaryOp::And => Op::And,
            BinaryOp::Or => Op::Or,
            BinaryOp::Xor => Op::Xor,
            BinaryOp::Shl | BinaryOp::Shr => return self.shift(op, dtype, lhs, rhs, constant),
        };
        self.op(opcode, lhs, rhs)
    }

    fn compare(&mut self, op: CompareOp, lhs: &PrimExpr, rhs: &PrimExpr) -> Result<Value<'ctx>> {
        let dtype = lhs.dtype();
        let (lhs, rhs) = self.pair(lhs, rhs)?;
        self.compare_of(op, dtype, lhs, rhs)
    }

    pub(super) fn compare_of(
        &self,
        op: CompareOp,
        dtype: DType,
        lhs: Value<'ctx>,
        rhs: Value<'ctx>,
    ) -> Result<Value<'ctx>> {
        if dtype.is_float() {
            let predicate = match op {
                CompareOp::Eq => FloatPredicate::OEQ,
                CompareOp::Ne => FloatPredicate::UNE,
                CompareOp::Lt => FloatPredicate::OLT,
                CompareOp::Le => FloatPredicate::OLE,
                CompareOp::Gt => FloatPredicate::OGT,
                CompareOp::Ge => FloatPredicate::OGE,
            };
            return Ok(match (lhs, rhs) {
                (BasicValueEnum::FloatValue(a), BasicValueEnum::FloatValue(b)) => {
                    self.builder.build_float_compare(predicate, a, b, "")?.into()
                }
                (BasicValueEnum::VectorValue(a), BasicValueEnum::VectorValue(b)) => {
                    self.builder.build_float_compare(predicate, a, b, "")?.into()
                }
                _ => return Err("a comparison of values of different types".into()),
            });
        }
        let signed = dtype.is_signed_int();
        let predicate = match op {
            CompareOp::Eq => IntPredicate::EQ,
            CompareOp::Ne => IntPredicate::NE,
            CompareOp::Lt if signed => IntPredicate::SLT,
            CompareOp::Lt => IntPredicate::ULT,
            CompareOp::Le if signed => IntPredicate::SLE,
            CompareOp::Le => IntPredicate::ULE,
            CompareOp::Gt if signed => IntPredicate::SGT,
            CompareOp::Gt => IntPredicate::UGT,
            CompareOp::Ge if signed => IntPredicate::SGE,
            CompareOp::Ge => IntPredicate::UGE,
        };
        Ok(match (lhs, rhs) {
            (BasicValueEnum::IntValue(a), BasicValueEnum::IntValue(b)) => {
                self.builder.build_int_compare(predicate, a, b, "")?.into()
            }
            (BasicValueEnum::VectorValue(a), BasicValueEnum::VectorValue(b)) => {
                self.builder.build_int_compare(predicate, a, b, "")?.into()
            }
            _ => return Err("a comparison of values of different types".into()),
        })
    }

    fn select(
        &mut self,
        cond: &PrimExpr,
        then: &PrimExpr,
        otherwise: &PrimExpr,
    ) -> Result<Value<'ctx>> {
        let cond = self.expr(cond)?;
        match cond {
            // Only the chosen side may be evaluated.
            BasicValueEnum::IntValue(cond) if !(is_cheap(then) && is_cheap(otherwise)) => {
                self.choose_one(cond, then, otherwise)
            }
            _ => {
                let (then, otherwise) = self.pair(then, otherwise)?;
                self.choose(cond, then, otherwise)
            }
        }
    }

    fn choose_one(
        &mut self,
        cond: IntValue<'ctx>,
        then: &PrimExpr,
        otherwise: &PrimExpr,
    ) -> Result<Value<'ctx>> {
        let (then_block, else_block, end) =
            (self.block("then"), self.block("else"), self.block("chosen"));
        self.builder.build_conditional_branch(cond, then_block, else_block)?;
        self.builder.position_at_end(then_block);
        let then = self.expr(then)?;
        let then_end = self.current()?;
        self.builder.build_unconditional_branch(end)?;
        self.builder.position_at_end(else_block);
        let otherwise = self.expr(otherwise)?;
        let else_end = self.current()?;
        self.builder.build_unconditional_branch(end)?;
        self.builder.position_at_end(end);
        let phi = self.builder.build_phi(then.get_type(), "chosen")?;
        phi.add_incoming(&[(&then, then_end), (&otherwise, else_end)]);
        Ok(phi.as_basic_value())
    }

    /// A choice between two values, lane by lane if the condition is a vector.
    pub(super) fn choose(
        &self,
        cond: Value<'ctx>,
        then: Value<'ctx>,
        otherwise: Value<'ctx>,
    ) -> Result<Value<'ctx>> {
        Ok(match cond {
            BasicValueEnum::VectorValue(cond) => {
                self.builder.build_select(cond, then, otherwise, "")?
            }
            cond => self.builder.build_select(cond.into_int_value(), then, otherwise, "")?,
        })
    }

    fn reinterpret(&mut self, value: &PrimExpr, dtype: DType) -> Result<Value<'ctx>> {
        let ty = value.ty().with_dtype(dtype);
        let value = self.expr(value)?;
        Ok(self.builder.build_bit_cast(value, self.unit.value_type(ty)?, "")?)
    }

    fn ramp(&mut self, base: &PrimExpr, stride: &PrimExpr, lanes: u32) -> Result<Value<'ctx>> {
        let ty = self.unit.scalar(base.dtype())?.into_int_type();
        let (base, stride) = self.pair(base, stride)?;
        let numbers: Vec<IntValue<'ctx>> =
            (0..lanes).map(|lane| ty.const_int(u64::from(lane), false)).collect();
        let numbers = VectorType::const_vector(&numbers);
        let (base, stride) = (self.splat(base, lanes)?, self.splat(stride, lanes)?);
        let distance = self.op(InstructionOpcode::Mul, stride, numbers.into())?;
        self.op(InstructionOpcode::Add, base, distance)
    }

    /// The same scalar in every lane.
    pub(super) fn splat(&self, value: Value<'ctx>, lanes: u32) -> Result<Value<'ctx>> {
        if lanes == 1 {
            return Ok(value);
        }
        let ty = super::kernel::with_lanes(value.get_type(), lanes).into_vector_type();
        let first = self.builder.build_insert_element(
            ty.get_poison(),
            value,
            self.unit.context.i32_type().const_zero(),
            "",
        )?;
        let zeros = self.unit.context.i32_type().vec_type(lanes).const_zero();
        Ok(self.builder.build_shuffle_vector(first, ty.get_poison(), zeros, "")?.into())
    }

    /// A vector of scalars.
    pub(super) fn vector_of(&self, elements: &[Value<'ctx>]) -> Result<Value<'ctx>> {
        let (Some(first), lanes) = (elements.first(), elements.len() as u32) else {
            return Err("a vector of nothing".into());
        };
        if lanes == 1 {
            return Ok(*first);
        }
        let ty = super::kernel::with_lanes(first.get_type(), lanes).into_vector_type();
        let mut vector = ty.get_poison();
        for (lane, element) in elements.iter().enumerate() {
            let lane = self.unit.context.i32_type().const_int(lane as u64, false);
            vector = self.builder.build_insert_element(vector, *element, lane, "")?;
        }
        Ok(vector.into())
    }

    /// One lane of a vector; a scalar is its own.
    pub(super) fn lane(&self, value: Value<'ctx>, lane: u32) -> Result<Value<'ctx>> {
        let BasicValueEnum::VectorValue(vector) = value else { return Ok(value) };
        let lane = self.unit.context.i32_type().const_int(u64::from(lane), false);
        Ok(self.builder.build_extract_element(vector, lane, "")?)
    }

    fn mul_add(&mut self, a: &PrimExpr, b: &PrimExpr, c: &PrimExpr) -> Result<Value<'ctx>> {
        if !self.unit.target.has_fma() {
            return Err("the target has no fused multiply-add: lower it first".into());
        }
        let (a, b) = self.pair(a, b)?;
        let c = self.expr(c)?;
        self.call_intrinsic("llvm.fma", a.get_type(), &[a, b, c])
    }

    fn dot_add(&mut self, a: &PrimExpr, b: &PrimExpr, c: &PrimExpr) -> Result<Value<'ctx>> {
        let (a, b) = self.pair(a, b)?;
        let c = self.expr(c)?;
        let lanes = width(c);
        if width(a) == lanes * 2 {
            return self.add_pairs(a, b, c);
        }
        if self.unit.target.arch == "aarch64" {
            return self.dot_add_aarch64(a, b, c);
        }
        if !self.unit.target.has_dot_add(lanes) {
            return self.pair_add(a, b, c);
        }
        let [a, b] = [a, b].map(|bytes| self.builder.build_bit_cast(bytes, c.get_type(), ""));
        let name = format!("llvm.x86.avx512.vpdpbusd.{}", lanes * 32);
        let function = self.unit.intrinsic(&name, &[])?;
        let call = self.builder.build_call(function, &[c.into(), a?.into(), b?.into()], "")?;
        call.try_as_basic_value().basic().ok_or_else(|| format!("{name} returns nothing").into())
    }

    /// A dot product of unsigned and signed bytes. Without an instruction for both, signed ones are
    /// raised by 128, and 128 times the sum of the others is taken off; without one for either,
    /// products are words, which are added in pairs.
    fn dot_add_aarch64(
        &mut self,
        a: Value<'ctx>,
        b: Value<'ctx>,
        c: Value<'ctx>,
    ) -> Result<Value<'ctx>> {
        let builder = &self.builder;
        let call = |name: &str, args: &[Value<'ctx>]| -> Result<VectorValue<'ctx>> {
            let types = [c.get_type(), args[args.len() - 1].get_type()];
            let function = self.unit.intrinsic(&format!("llvm.aarch64.neon.{name}"), &types)?;
            let args: Vec<_> = args.iter().map(|&arg| arg.into()).collect();
            let value = builder.build_call(function, &args, "")?.try_as_basic_value().basic();
            value
                .map(Value::into_vector_value)
                .ok_or_else(|| format!("{name} returns nothing").into())
        };
        let target = &self.unit.target;
        let sum = match (target.has_dot_add(width(c)), target.has_dot_add_of_signs()) {
            (true, true) => call("usdot", &[c, a, b])?,
            (true, false) => {
                let high = self.constant(128, a)?;
                let b = b.into_vector_value();
                let raised = builder.build_xor(b, high.into_vector_value(), "")?;
                let excess = call("udot", &[self.constant(0, c)?, a, high])?;
                builder.build_int_sub(call("udot", &[c, a, raised.into()])?, excess, "")?
            }
            (false, _) => {
                let words = self.unit.value_type(PrimType::vector(DType::I16, width(a)))?;
                let words = words.into_vector_type();
                let a = builder.build_int_z_extend(a.into_vector_value(), words, "")?;
                let b = builder.build_int_s_extend(b.into_vector_value(), words, "")?;
                let mut sum = c.into_vector_value();
                for first in [0, 2] {
                    let pair = |four: u32| [4 * four + first, 4 * four + first + 1];
                    let lanes: Vec<u32> = (0..width(c)).flat_map(pair).collect();
                    let [a, b] = [a, b].map(|words| self.pick(words, words, &lanes));
                    let products = builder.build_int_mul(a?, b?, "")?;
                    sum = builder.build_int_add(sum, call("saddlp", &[products.into()])?, "")?;
                }
                sum
            }
        };
        Ok(sum.into())
    }

    /// A dot product of bytes by products of words: of even bytes and of odd ones.
    fn pair_add(&mut self, a: Value<'ctx>, b: Value<'ctx>, c: Value<'ctx>) -> Result<Value<'ctx>> {
        let lanes = width(c);
        if !self.unit.target.has_pair_add(lanes) {
            return Err("the target has no dot product of bytes: lower it first".into());
        }
        [0, 1].into_iter().try_fold(c, |sum, first| {
            self.add_pairs(self.alternate(a, false, first)?, self.alternate(b, true, first)?, sum)
        })
    }

    /// `c` plus the products of words, two for each lane.
    fn add_pairs(&self, a: Value<'ctx>, b: Value<'ctx>, c: Value<'ctx>) -> Result<Value<'ctx>> {
        let lanes = width(c);
        if !self.unit.target.has_word_dot_add(lanes) {
            return Err("the target has no dot product of words: lower it first".into());
        }
        let name = match lanes {
            4 => "llvm.x86.sse2.pmadd.wd",
            8 => "llvm.x86.avx2.pmadd.wd",
            _ => "llvm.x86.avx512.pmaddw.d.512",
        };
        let function = self.unit.intrinsic(name, &[])?;
        let call = self.builder.build_call(function, &[a.into(), b.into()], "")?;
        let pairs = call.try_as_basic_value().basic();
        let pairs = pairs.ok_or_else(|| format!("{name} returns nothing"))?;
        let (sum, pairs) = (c.into_vector_value(), pairs.into_vector_value());
        Ok(self.builder.build_int_add(sum, pairs, "")?.into())
    }

    /// Every second one of a vector of bytes as words, the first of all among them or the second.
    pub(super) fn alternate(
        &self,
        bytes: Value<'ctx>,
        is_signed: bool,
        first: u32,
    ) -> Result<Value<'ctx>> {
        let words = self.unit.value_type(PrimType::vector(DType::I16, width(bytes) / 2))?;
        let builder = &self.builder;
        let words = builder.build_bit_cast(bytes, words, "")?.into_vector_value();
        let constant = |value| self.constant(value, words.into()).map(Value::into_vector_value);
        let eight = constant(8)?;
        let alternate = match (is_signed, first) {
            (false, 0) => builder.build_and(words, constant(255)?, "")?,
            (true, 0) => {
                let upper = builder.build_left_shift(words, eight, "")?;
                builder.build_right_shift(upper, eight, true, "")?
            }
            (_, _) => builder.build_right_shift(words, eight, is_signed, "")?,
        };
        Ok(alternate.into())
    }

    fn call(&mut self, intrinsic: Intrinsic, args: &[PrimExpr]) -> Result<Value<'ctx>> {
        let Some(ty) = args.first().map(PrimExpr::ty) else {
            return Err(format!("{} has no argument", intrinsic.name()).into());
        };
        let values = args.iter().map(|arg| self.expr(arg)).collect::<Result<Vec<_>>>()?;
        let name = match intrinsic {
            Intrinsic::Abs => "llvm.fabs",
            Intrinsic::Sqrt => "llvm.sqrt",
            Intrinsic::Floor => "llvm.floor",
            Intrinsic::Ceil => "llvm.ceil",
            Intrinsic::Trunc => "llvm.trunc",
            Intrinsic::Round => "llvm.roundeven",
            Intrinsic::Sigmoid => return Err("sigmoid must be lowered first".into()),
            Intrinsic::Ldexp => return self.ldexp(ty, &values),
            Intrinsic::FromFp16 | Intrinsic::ToFp16 => {
                return self.convert_fp16(intrinsic, ty, &values);
            }
            Intrinsic::Exp
            | Intrinsic::Log
            | Intrinsic::Tanh
            | Intrinsic::Erf
            | Intrinsic::Pow
            | Intrinsic::Sin
            | Intrinsic::Cos
            | Intrinsic::Tan
            | Intrinsic::Asin
            | Intrinsic::Acos
            | Intrinsic::Atan
            | Intrinsic::Sinh
            | Intrinsic::Cosh
            | Intrinsic::Asinh
            | Intrinsic::Acosh
            | Intrinsic::Atanh => return self.call_libm(intrinsic.name(), ty, &values),
        };
        let rounds = !matches!(intrinsic, Intrinsic::Abs | Intrinsic::Sqrt);
        if rounds && !self.unit.target.has_rounding() {
            let name = intrinsic.name();
            let why = format!("the target has no instruction for {name}: lower it first");
            return Err(why.into());
        }
        let ty = self.unit.value_type(ty)?;
        let result = self.call_intrinsic(name, ty, &values)?;
        match intrinsic {
            // LLVM 19 makes `x > 0` of `|x| > 0 or |x| is NaN`; behind a fence it does not see the |x|.
            Intrinsic::Abs => self.call_intrinsic("llvm.arithmetic.fence", ty, &[result]),
            _ => Ok(result),
        }
    }

    /// The value of the bits of a `float16`, or the bits of a value.
    fn convert_fp16(
        &self,
        intrinsic: Intrinsic,
        ty: PrimType,
        values: &[Value<'ctx>],
    ) -> Result<Value<'ctx>> {
        if !self.unit.target.has_fp16_conversion() {
            return Err(format!("{} must be lowered first", intrinsic.name()).into());
        }
        let &[value] = values else { return Err("a conversion takes one value".into()) };
        let with_lanes = |element: BasicTypeEnum<'ctx>| with_lanes(element, ty.lanes);
        let half = with_lanes(self.unit.context.f16_type().into());
        if intrinsic == Intrinsic::ToFp16 {
            let rounded = self.cast(InstructionOpcode::FPTrunc, value, half)?;
            let bits = with_lanes(self.unit.context.i16_type().into());
            return Ok(self.builder.build_bit_cast(rounded, bits, "")?);
        }
        let value = self.builder.build_bit_cast(value, half, "")?;
        let single = with_lanes(self.unit.context.f32_type().into());
        let value = self.cast(InstructionOpcode::FPExt, value, single)?;
        // LLVM would compare halves, for which there is no instruction, instead of their values.
        self.call_intrinsic("llvm.arithmetic.fence", single, &[value])
    }

    /// `x · 2^n`, by the instruction that the target has for it.
    fn ldexp(&self, ty: PrimType, values: &[Value<'ctx>]) -> Result<Value<'ctx>> {
        let &[x, n] = values else { return Err("ldexp takes two values".into()) };
        if ty.dtype != DType::F32 || !self.unit.target.has_ldexp() {
            return Err("ldexp must be lowered first".into());
        }
        if !matches!(ty.lanes, 4 | 8 | 16) {
            let lanes = (0..ty.lanes).map(|lane| {
                let four = |value| self.splat(self.lane(value, lane)?, 4);
                let scaled = self.ldexp(ty.with_lanes(4), &[four(x)?, four(n)?])?;
                self.lane(scaled, 0)
            });
            return self.vector_of(&lanes.collect::<Result<Vec<_>>>()?);
        }
        let name = format!("llvm.x86.avx512.mask.scalef.ps.{}", ty.lanes * 32);
        let function = self.unit.intrinsic(&name, &[])?;
        let context = self.unit.context;
        let mut args = vec![x.into(), n.into(), x.into()];
        if ty.lanes == 16 {
            // The direction of rounding is the present one.
            args.push(context.i16_type().const_all_ones().into());
            args.push(context.i32_type().const_int(4, false).into());
        } else {
            args.push(context.i8_type().const_all_ones().into());
        }
        let call = self.builder.build_call(function, &args, "")?;
        call.try_as_basic_value().basic().ok_or_else(|| format!("{name} returns nothing").into())
    }

    /// Calls a function of the system's mathematical library, for vectors lane by lane.
    fn call_libm(&self, name: &str, ty: PrimType, values: &[Value<'ctx>]) -> Result<Value<'ctx>> {
        let symbol = self.libm(name, ty.dtype)?;
        let scalar = self.unit.scalar(ty.dtype)?;
        let params = vec![scalar.into(); values.len()];
        let function = self.unit.module.get_function(&symbol).unwrap_or_else(|| {
            self.unit.module.add_function(&symbol, scalar.fn_type(&params, false), None)
        });
        let lanes = (0..ty.lanes).map(|lane| {
            let args = values
                .iter()
                .map(|value| Ok(self.lane(*value, lane)?.into()))
                .collect::<Result<Vec<BasicMetadataValueEnum<'ctx>>>>()?;
            let call = self.builder.build_call(function, &args, "")?;
            Ok(call.try_as_basic_value().basic().ok_or("a function of libm returns nothing")?)
        });
        let results = lanes.collect::<Result<Vec<_>>>()?;
        self.vector_of(&results)
    }

    /// The name of a function of the system's mathematical library.
    fn libm(&self, name: &str, dtype: DType) -> Result<String> {
        let target = self.unit.target;
        if target.os == "none" {
            let triple = &target.triple;
            return Err(format!(
                "{name} of {dtype} needs the system's mathematical library, and the target \
                 {triple} has none"
            )
            .into());
        }
        Ok(format!("{name}{}", if dtype == DType::F64 { "" } else { "f" }))
    }

    pub(super) fn call_intrinsic(
        &self,
        name: &str,
        ty: BasicTypeEnum<'ctx>,
        values: &[Value<'ctx>],
    ) -> Result<Value<'ctx>> {
        let function = self.unit.intrinsic(name, &[ty])?;
        let args: Vec<BasicMetadataValueEnum<'ctx>> =
            values.iter().map(|value| (*value).into()).collect();
        let call = self.builder.build_call(function, &args, "")?;
        call.try_as_basic_value().basic().ok_or_else(|| format!("{name} returns nothing").into())
    }

    /// An instruction with two operands.
    pub(super) fn op(
        &self,
        opcode: InstructionOpcode,
        lhs: Value<'ctx>,
        rhs: Value<'ctx>,
    ) -> Result<Value<'ctx>> {
        Ok(self.builder.build_binop(opcode, lhs, rhs, "")?)
    }

    /// A conversion instruction.
    pub(super) fn cast(
        &self,
        opcode: InstructionOpcode,
        value: Value<'ctx>,
        ty: BasicTypeEnum<'ctx>,
    ) -> Result<Value<'ctx>> {
        Ok(self.builder.build_cast(opcode, value, ty, "")?)
    }
}

/// The zero of a value's type.
pub(super) fn zero<'ctx>(value: Value<'ctx>) -> Value<'ctx> {
    value.get_type().const_zero()
}

/// Number of lanes.
pub(super) fn width(value: Value<'_>) -> u32 {
    match value {
        BasicValueEnum::VectorValue(vector) => vector.get_type().get_size(),
        _ => 1,
    }
}

fn is_float(value: Value<'_>) -> bool {
    match value {
        BasicValueEnum::FloatValue(_) => true,
        BasicValueEnum::VectorValue(v) => v.get_type().get_element_type().is_float_type(),
        _ => false,
    }
}

/// Whether a side of a choice may be evaluated though the other one is chosen: it neither reads
/// memory nor calls a function.
fn is_cheap(expr: &PrimExpr) -> bool {
    let mut cheap = true;
    expr.walk(&mut |expr| {
        cheap &= !matches!(expr, PrimExpr::Load { .. } | PrimExpr::Call { .. });
    });
    cheap
}
