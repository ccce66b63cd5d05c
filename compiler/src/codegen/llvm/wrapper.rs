//! Functions that call kernels with arguments from arrays or from tensors, in LLVM IR.

use inkwell::basic_block::BasicBlock;
use inkwell::builder::Builder;
use inkwell::module::Linkage;
use inkwell::types::{BasicType, BasicTypeEnum, IntType, StructType};
use inkwell::values::{
    BasicMetadataValueEnum, BasicValueEnum, FunctionValue, GlobalValue, IntValue, PointerValue,
};
use inkwell::{AtomicOrdering, AtomicRMWBinOp, GlobalVisibility, IntPredicate};

use super::kernel::{Failure, Result, Unit, pointer_param};
use crate::codegen::size::{Size, SizeOp};
use crate::codegen::wrapper::{ArrayWrapper, Condition, Field, PackedWrapper, STRING, Wrapper};

/// Writes a wrapper after its kernel.
pub(super) fn generate(unit: &Unit<'_, '_>, wrapper: &Wrapper) -> Result<()> {
    match wrapper {
        Wrapper::Array(array) => array_wrapper(unit, array),
        Wrapper::Packed(packed) => packed_wrapper(unit, packed),
    }
}

fn array_wrapper(unit: &Unit<'_, '_>, wrapper: &ArrayWrapper) -> Result<()> {
    let function =
        unit.function(&wrapper.symbol, &[unit.pointer_type().into(); 3], Linkage::External);
    function.as_global_value().set_visibility(GlobalVisibility::Default);
    let body = Body::new(unit, function);
    let ctx = pointer_param(function, 0, "ctx")?;
    let buffers = pointer_param(function, 1, "buffers")?;
    let dims = pointer_param(function, 2, "dims")?;
    let mut args: Vec<BasicMetadataValueEnum<'_>> = vec![ctx.into()];
    for number in 0..wrapper.buffers {
        args.push(body.nth(buffers, unit.pointer_type(), number)?.into());
    }
    for number in 0..wrapper.dims {
        args.push(body.nth(dims, unit.context.i64_type(), number)?.into());
    }
    let saved = unit.flush_denormals(&body.builder, wrapper.flush_denormals)?;
    body.builder.build_call(kernel(unit, &wrapper.kernel)?, &args, "")?;
    unit.restore_denormals(&body.builder, saved)?;
    body.builder.build_return(None)?;
    Ok(())
}

fn packed_wrapper(unit: &Unit<'_, '_>, wrapper: &PackedWrapper) -> Result<()> {
    let (pointer, int) = (unit.pointer_type(), unit.context.i32_type());
    let params = [
        pointer.into(),
        pointer.into(),
        int.into(),
        pointer.into(),
        pointer.into(),
        pointer.into(),
    ];
    let ty = int.fn_type(&params, false);
    let function = unit.declare(&wrapper.symbol, ty, Linkage::External);
    function.as_global_value().set_visibility(GlobalVisibility::Default);
    let body = Body::new(unit, function);
    let count = function.get_nth_param(2).ok_or("there is no num_args")?;
    count.set_name("num_args");
    let mut packed = Packed {
        args: pointer_param(function, 0, "args")?,
        tensors: wrapper.tensors.len(),
        type_codes: pointer_param(function, 1, "type_codes")?,
        count: count.into_int_value(),
        value: pointer_param(function, 3, "out_ret_value")?,
        tcode: pointer_param(function, 4, "out_ret_tcode")?,
        context: body.builder.build_alloca(unit.context_type(), "context")?,
        refuse: body.block("refuse"),
        refusals: Vec::new(),
        body,
    };
    for (condition, message) in wrapper.conditions() {
        let holds = packed.condition(&condition)?;
        packed.refuse_unless(holds, &message)?;
    }
    let mut args: Vec<BasicMetadataValueEnum<'_>> = Vec::new();
    for number in 0..wrapper.tensors.len() {
        args.push(packed.field(number, Field::Data)?.into_pointer_value().into());
    }
    for dim in &wrapper.dims {
        args.push(packed.size(&dim.size)?.0.into());
    }
    packed.call(wrapper, args)?;
    packed.refusal()
}

/// The kernel of that name, which is in the module already.
fn kernel<'ctx>(unit: &Unit<'_, 'ctx>, symbol: &str) -> Result<FunctionValue<'ctx>> {
    unit.module
        .get_function(symbol)
        .ok_or_else(|| Failure(format!("there is no kernel `{symbol}` to be called")))
}

/// A function being written.
struct Body<'a, 'ctx> {
    unit: &'a Unit<'a, 'ctx>,
    function: FunctionValue<'ctx>,
    builder: Builder<'ctx>,
}

impl<'a, 'ctx> Body<'a, 'ctx> {
    fn new(unit: &'a Unit<'a, 'ctx>, function: FunctionValue<'ctx>) -> Self {
        let builder = unit.context.create_builder();
        builder.position_at_end(unit.context.append_basic_block(function, "entry"));
        Body { unit, function, builder }
    }

    fn block(&self, name: &str) -> BasicBlock<'ctx> {
        self.unit.context.append_basic_block(self.function, name)
    }

    /// An element of an array.
    fn nth<T: BasicType<'ctx>>(
        &self,
        array: PointerValue<'ctx>,
        ty: T,
        number: usize,
    ) -> Result<BasicValueEnum<'ctx>> {
        let number = self.unit.usize_type().const_int(number as u64, false);
        let ty = ty.as_basic_type_enum();
        // SAFETY: the caller's arrays are as long as it has been checked or said that they are.
        let place = unsafe { self.builder.build_in_bounds_gep(ty, array, &[number], "")? };
        Ok(self.builder.build_load(ty, place, "")?)
    }
}

/// A packed function being written.
struct Packed<'a, 'ctx> {
    body: Body<'a, 'ctx>,
    args: PointerValue<'ctx>,
    /// Number of tensors among them.
    tensors: usize,
    type_codes: PointerValue<'ctx>,
    count: IntValue<'ctx>,
    value: PointerValue<'ctx>,
    tcode: PointerValue<'ctx>,
    /// Room for the context of the kernel.
    context: PointerValue<'ctx>,
    /// Where it goes on if a condition does not hold.
    refuse: BasicBlock<'ctx>,
    /// The messages with the blocks they come from.
    refusals: Vec<(PointerValue<'ctx>, BasicBlock<'ctx>)>,
}

impl<'ctx> Packed<'_, 'ctx> {
    fn int(&self) -> IntType<'ctx> {
        self.body.unit.context.i32_type()
    }

    /// `DLTensor`.
    fn tensor_type(&self) -> StructType<'ctx> {
        let (unit, context) = (self.body.unit, self.body.unit.context);
        let (pointer, int, long) = (unit.pointer_type(), self.int(), context.i64_type());
        let byte = context.i8_type();
        let fields: [BasicTypeEnum<'ctx>; 10] = [
            pointer.into(),
            int.into(),
            int.into(),
            int.into(),
            byte.into(),
            byte.into(),
            context.i16_type().into(),
            pointer.into(),
            pointer.into(),
            long.into(),
        ];
        context.struct_type(&fields, false)
    }

    /// The tensor that an argument points to. `TVMValue` has 8 bytes, whatever a pointer has.
    fn tensor(&self, number: usize) -> Result<PointerValue<'ctx>> {
        let long = self.body.unit.context.i64_type();
        let number = self.body.unit.usize_type().const_int(number as u64, false);
        // SAFETY: the caller says how many arguments there are, which has been checked.
        let place =
            unsafe { self.body.builder.build_in_bounds_gep(long, self.args, &[number], "")? };
        let pointer = self.body.unit.pointer_type();
        Ok(self.body.builder.build_load(pointer, place, "")?.into_pointer_value())
    }

    /// A field of a tensor by its place in [`tensor_type`](Self::tensor_type).
    fn nth_field(&self, number: usize, place: u32) -> Result<BasicValueEnum<'ctx>> {
        let ty = self.tensor_type();
        let field = self.body.builder.build_struct_gep(ty, self.tensor(number)?, place, "")?;
        let field_type = ty.get_field_type_at_index(place).ok_or("a tensor has no such field")?;
        Ok(self.body.builder.build_load(field_type, field, "")?)
    }

    fn field(&self, number: usize, field: Field) -> Result<BasicValueEnum<'ctx>> {
        let place = match field {
            Field::Data => 0,
            Field::DeviceType => 1,
            Field::Ndim => 3,
            Field::DtypeCode => 4,
            Field::DtypeBits => 5,
            Field::DtypeLanes => 6,
            Field::Shape => 7,
            Field::ByteOffset => 9,
        };
        self.nth_field(number, place)
    }

    fn condition(&self, condition: &Condition) -> Result<IntValue<'ctx>> {
        let builder = &self.body.builder;
        let is = |value: IntValue<'ctx>, expected: i64| {
            let expected = value.get_type().const_int(expected as u64, true);
            builder.build_int_compare(IntPredicate::EQ, value, expected, "")
        };
        let long = self.body.unit.context.i64_type();
        Ok(match *condition {
            Condition::Count(count) => is(self.count, count as i64)?,
            Condition::TypeCode(number, codes) => {
                let code = self.body.nth(self.type_codes, self.int(), number)?.into_int_value();
                let mut any = self.body.unit.context.bool_type().const_zero();
                for &known in codes {
                    any = builder.build_or(any, is(code, i64::from(known))?, "")?;
                }
                any
            }
            Condition::Tensor(number) => builder.build_is_not_null(self.tensor(number)?, "")?,
            Condition::Pointer(number, field) => {
                builder.build_is_not_null(self.field(number, field)?.into_pointer_value(), "")?
            }
            Condition::Equal(number, field, value) => {
                is(self.field(number, field)?.into_int_value(), value)?
            }
            Condition::Extent(number, axis, extent) => {
                let shape = self.field(number, Field::Shape)?.into_pointer_value();
                is(self.body.nth(shape, long, axis)?.into_int_value(), extent)?
            }
            Condition::Stride(number, axis, stride, may_be_null) => {
                let strides = self.nth_field(number, 8)?.into_pointer_value();
                let before = builder.get_insert_block().ok_or("no block is being written")?;
                let (given, next) = (self.body.block("strides"), self.body.block("next"));
                let not_null = builder.build_is_not_null(strides, "")?;
                builder.build_conditional_branch(not_null, given, next)?;
                builder.position_at_end(given);
                let equal = is(self.body.nth(strides, long, axis)?.into_int_value(), stride)?;
                builder.build_unconditional_branch(next)?;
                builder.position_at_end(next);
                let bool_type = self.body.unit.context.bool_type();
                let phi = builder.build_phi(bool_type, "")?;
                let if_null = bool_type.const_int(u64::from(may_be_null), false);
                phi.add_incoming(&[(&equal, given), (&if_null, before)]);
                phi.as_basic_value().into_int_value()
            }
            Condition::NotNegative(number, axis) => {
                let extent = self.extent(number, axis)?;
                builder.build_int_compare(IntPredicate::SGE, extent, long.const_zero(), "")?
            }
            Condition::Symbolic(number, axis, ref size) => {
                let (value, is_known) = self.size(size)?;
                let extent = self.extent(number, axis)?;
                let equal = builder.build_int_compare(IntPredicate::EQ, extent, value, "")?;
                builder.build_and(is_known, equal, "")?
            }
            Condition::DenseStride(number, axis, rank) => self.dense_stride(number, axis, rank)?,
            Condition::Data(number, rank) => {
                let data = self.field(number, Field::Data)?.into_pointer_value();
                let is_there = builder.build_is_not_null(data, "")?;
                builder.build_or(is_there, self.is_empty(number, rank)?, "")?
            }
            Condition::Positive(ref size) => {
                let (value, is_known) = self.size(size)?;
                let zero = long.const_zero();
                let positive = builder.build_int_compare(IntPredicate::SGT, value, zero, "")?;
                builder.build_and(is_known, positive, "")?
            }
        })
    }

    /// An extent of a tensor.
    fn extent(&self, number: usize, axis: usize) -> Result<IntValue<'ctx>> {
        let shape = self.field(number, Field::Shape)?.into_pointer_value();
        let long = self.body.unit.context.i64_type();
        Ok(self.body.nth(shape, long, axis)?.into_int_value())
    }

    /// Whether a tensor has no element.
    fn is_empty(&self, number: usize, rank: usize) -> Result<IntValue<'ctx>> {
        let builder = &self.body.builder;
        let zero = self.body.unit.context.i64_type().const_zero();
        let mut any = self.body.unit.context.bool_type().const_zero();
        for axis in 0..rank {
            let extent = self.extent(number, axis)?;
            let is_zero = builder.build_int_compare(IntPredicate::EQ, extent, zero, "")?;
            any = builder.build_or(any, is_zero, "")?;
        }
        Ok(any)
    }

    /// Whether the distance along an axis is that of a dense tensor, or does not matter.
    fn dense_stride(&self, number: usize, axis: usize, rank: usize) -> Result<IntValue<'ctx>> {
        let builder = &self.body.builder;
        let long = self.body.unit.context.i64_type();
        let mut product = long.const_int(1, false);
        for inner in axis + 1..rank {
            product = builder.build_int_mul(product, self.extent(number, inner)?, "")?;
        }
        let one = long.const_int(1, false);
        let is_one =
            builder.build_int_compare(IntPredicate::EQ, self.extent(number, axis)?, one, "")?;
        let ignored = builder.build_or(is_one, self.is_empty(number, rank)?, "")?;
        let strides = self.nth_field(number, 8)?.into_pointer_value();
        let is_null = builder.build_is_null(strides, "")?;
        let ignored = builder.build_or(ignored, is_null, "")?;
        let before = builder.get_insert_block().ok_or("no block is being written")?;
        let (given, next) = (self.body.block("strides"), self.body.block("next"));
        builder.build_conditional_branch(ignored, next, given)?;
        builder.position_at_end(given);
        let stride = self.body.nth(strides, long, axis)?.into_int_value();
        let equal = builder.build_int_compare(IntPredicate::EQ, stride, product, "")?;
        builder.build_unconditional_branch(next)?;
        builder.position_at_end(next);
        let bool_type = self.body.unit.context.bool_type();
        let phi = builder.build_phi(bool_type, "")?;
        let holds = bool_type.const_int(1, false);
        phi.add_incoming(&[(&equal, given), (&holds, before)]);
        Ok(phi.as_basic_value().into_int_value())
    }

    /// An integer made of arguments, and whether there is one.
    fn size(&self, size: &Size) -> Result<(IntValue<'ctx>, IntValue<'ctx>)> {
        let (unit, builder) = (self.body.unit, &self.body.builder);
        let (long, bool_type) = (unit.context.i64_type(), unit.context.bool_type());
        let always = bool_type.const_int(1, false);
        let (op, lhs, rhs) = match size {
            Size::Constant(value) => return Ok((long.const_int(*value as u64, true), always)),
            Size::Extent(number, axis) => return Ok((self.extent(*number, *axis)?, always)),
            Size::Argument(number) => {
                let value = self.body.nth(self.args, long, self.tensors + number)?;
                return Ok((value.into_int_value(), always));
            }
            Size::Binary(op, lhs, rhs) => (op, lhs, rhs),
        };
        let ((lhs, left), (rhs, right)) = (self.size(lhs)?, self.size(rhs)?);
        let known = builder.build_and(left, right, "")?;
        let checked = |name: &str| -> Result<(IntValue<'ctx>, IntValue<'ctx>)> {
            let function = unit.intrinsic(name, &[long.into()])?;
            let call = builder.build_call(function, &[lhs.into(), rhs.into()], "")?;
            let pair = call.try_as_basic_value().basic().ok_or("an intrinsic has no result")?;
            let pair = pair.into_struct_value();
            let value = builder.build_extract_value(pair, 0, "")?.into_int_value();
            let overflows = builder.build_extract_value(pair, 1, "")?.into_int_value();
            let fits = builder.build_not(overflows, "")?;
            Ok((value, builder.build_and(known, fits, "")?))
        };
        let choose = |predicate: IntPredicate| -> Result<(IntValue<'ctx>, IntValue<'ctx>)> {
            let is_left = builder.build_int_compare(predicate, lhs, rhs, "")?;
            Ok((builder.build_select(is_left, lhs, rhs, "")?.into_int_value(), known))
        };
        match op {
            SizeOp::Add => checked("llvm.sadd.with.overflow"),
            SizeOp::Sub => checked("llvm.ssub.with.overflow"),
            SizeOp::Mul => checked("llvm.smul.with.overflow"),
            SizeOp::Min => choose(IntPredicate::SLT),
            SizeOp::Max => choose(IntPredicate::SGT),
            SizeOp::FloorDiv | SizeOp::FloorMod => {
                let (zero, one) = (long.const_zero(), long.const_int(1, false));
                let positive = builder.build_int_compare(IntPredicate::SGT, rhs, zero, "")?;
                let divisor = builder.build_select(positive, rhs, one, "")?.into_int_value();
                let rest = builder.build_int_signed_rem(lhs, divisor, "")?;
                let below = builder.build_int_compare(IntPredicate::SLT, rest, zero, "")?;
                let known = builder.build_and(known, positive, "")?;
                let value = if *op == SizeOp::FloorDiv {
                    let quotient = builder.build_int_signed_div(lhs, divisor, "")?;
                    let down = builder.build_int_z_extend(below, long, "")?;
                    builder.build_int_sub(quotient, down, "")?
                } else {
                    let up = builder.build_select(below, divisor, zero, "")?.into_int_value();
                    builder.build_int_add(rest, up, "")?
                };
                Ok((value, known))
            }
        }
    }

    /// Goes on if a condition holds; else refuses the call with a message.
    fn refuse_unless(&mut self, holds: IntValue<'ctx>, message: &str) -> Result<()> {
        let builder = &self.body.builder;
        let text = builder.build_global_string_ptr(message, "message")?;
        text.set_linkage(Linkage::Private);
        let block = builder.get_insert_block().ok_or("no block is being written")?;
        self.refusals.push((text.as_pointer_value(), block));
        let next = self.body.block("holds");
        builder.build_conditional_branch(holds, next, self.refuse)?;
        builder.position_at_end(next);
        Ok(())
    }

    /// Sets the result to the message of the condition that does not hold and returns −1.
    fn refusal(&self) -> Result<()> {
        let builder = &self.body.builder;
        builder.position_at_end(self.refuse);
        let message = builder.build_phi(self.body.unit.pointer_type(), "message")?;
        for (text, block) in &self.refusals {
            message.add_incoming(&[(text, *block)]);
        }
        let code = self.int().const_int(STRING as u64, true);
        self.store_unless_null(self.value, message.as_basic_value())?;
        self.store_unless_null(self.tcode, code.into())?;
        builder.build_return(Some(&self.int().const_all_ones()))?;
        Ok(())
    }

    fn store_unless_null(
        &self,
        place: PointerValue<'ctx>,
        value: BasicValueEnum<'ctx>,
    ) -> Result<()> {
        let (body, builder) = (&self.body, &self.body.builder);
        let (store, next) = (body.block("store"), body.block("next"));
        let not_null = builder.build_is_not_null(place, "")?;
        builder.build_conditional_branch(not_null, store, next)?;
        builder.position_at_end(store);
        builder.build_store(place, value)?;
        builder.build_unconditional_branch(next)?;
        builder.position_at_end(next);
        Ok(())
    }

    /// Calls the kernel and returns 0.
    fn call(
        &mut self,
        wrapper: &PackedWrapper,
        mut args: Vec<BasicMetadataValueEnum<'ctx>>,
    ) -> Result<()> {
        let unit = self.body.unit;
        let busy =
            (wrapper.scratch_bytes > 0).then(|| self.global(wrapper, "busy", 1)).transpose()?;
        if let Some(busy) = &busy {
            let one = unit.context.i8_type().const_int(1, false);
            let before = self.body.builder.build_atomicrmw(
                AtomicRMWBinOp::Xchg,
                busy.as_pointer_value(),
                one,
                AtomicOrdering::Acquire,
            )?;
            let zero = unit.context.i8_type().const_zero();
            let free =
                self.body.builder.build_int_compare(IntPredicate::EQ, before, zero, "free")?;
            self.refuse_unless(free, &wrapper.busy_message())?;
        }
        let builder = &self.body.builder;
        let (null, size) = (unit.pointer_type().const_null(), unit.usize_type());
        let scratch = match wrapper.scratch_bytes {
            0 => null,
            bytes => self.global(wrapper, "scratch", bytes)?.as_pointer_value(),
        };
        let context_type = unit.context_type();
        let stride = size.const_int(wrapper.scratch_bytes, false);
        let workers = size.const_int(1, false);
        let fields: [BasicValueEnum<'ctx>; 8] = [
            null.into(),
            null.into(),
            scratch.into(),
            stride.into(),
            null.into(),
            null.into(),
            workers.into(),
            size.const_zero().into(),
        ];
        for (number, value) in fields.into_iter().enumerate() {
            let field = builder.build_struct_gep(context_type, self.context, number as u32, "")?;
            builder.build_store(field, value)?;
        }
        args.insert(0, self.context.into());
        let saved = unit.flush_denormals(builder, wrapper.flush_denormals)?;
        builder.build_call(kernel(unit, &wrapper.kernel)?, &args, "")?;
        unit.restore_denormals(builder, saved)?;
        if let Some(busy) = busy {
            let zero = unit.context.i8_type().const_zero();
            let store = builder.build_store(busy.as_pointer_value(), zero)?;
            let refused = |error| format!("LLVM refuses an atomic store: {error}");
            store.set_atomic_ordering(AtomicOrdering::Release).map_err(refused)?;
        }
        builder.build_return(Some(&self.int().const_zero()))?;
        Ok(())
    }

    /// Zeroed bytes of the object's own.
    fn global(&self, wrapper: &PackedWrapper, name: &str, bytes: u64) -> Result<GlobalValue<'ctx>> {
        let unit = self.body.unit;
        let bytes =
            u32::try_from(bytes).map_err(|_| format!("{bytes} bytes of {name} are too many"))?;
        let ty = unit.context.i8_type().array_type(bytes);
        let global = unit.module.add_global(ty, None, &format!("{}.{name}", wrapper.symbol));
        global.set_initializer(&ty.const_zero());
        global.set_linkage(Linkage::Internal);
        global.set_alignment(64);
        Ok(global)
    }
}
