//! Replacement of data types that code generators do not support.
//!
//! Floats of 16 bits and fewer are computed in `float32` and kept in memory as the integers of
//! their bits; integers narrower than a byte are computed in bytes. This is what TVM's
//! `BF16ComputeLegalize`, `FP8ComputeLegalize` and the storage passes that go with them do, in one
//! sweep; passes for single types are made of [`compute_legalize`] and [`legalize`].
//!
//! A value is rounded to its type where it is stored to memory and where it is cast to the type,
//! and nowhere in between: a chain of operators in one kernel, and sums in registers, keep the
//! precision of `float32`.

mod compute;
pub(super) mod convert;
mod halves;

use crate::ir::{DType, IRModule};
use crate::pass::{PassContext, Result, prim_func_pass};
use crate::tir::transform::FlattenBuffer;
use crate::tir::{BufferId, BufferScope, PrimExpr, PrimFunc, PrimFuncData, Stmt};
pub(super) use compute::compute_legalize;

crate::register_pass_config_option! {
    /// Whether sums of products of `float16` are computed in it where the target has such arithmetic.
    pub FLOAT16_ARITHMETIC: bool = "tir.float16_arithmetic", default = false;
}

/// Computes floats of 16 bits and fewer in `float32`, and integers narrower than a byte in bytes.
///
/// The function is flattened. With [`FLOAT16_ARITHMETIC`], functions with sums of products of
/// `float16` keep it if the target has arithmetic for it.
///
/// # Errors
///
/// A buffer's elements share bytes: such tensors must be unpacked before a kernel uses them.
#[prim_func_pass(opt_level = 0, name = "tir.UnsupportedDtypeLegalize", after = [FlattenBuffer], crate = crate)]
pub fn unsupported_dtype_legalize(
    func: PrimFunc,
    _module: &IRModule,
    cx: &PassContext,
) -> Result<PrimFunc> {
    let keeps = cx.get(&FLOAT16_ARITHMETIC) && cx.target().has_fp16_arithmetic();
    if keeps && halves::are_summed(&func) {
        let func = legalize(func, |dtype| dtype != DType::F16 && is_unsupported(dtype))?;
        return Ok(halves::widen_others(func));
    }
    legalize(func, is_unsupported)
}

/// Legalises values and buffers of those unsupported types that are `chosen`.
pub(super) fn legalize(mut func: PrimFunc, chosen: fn(DType) -> bool) -> Result<PrimFunc> {
    let types = Types { chosen };
    if !types.are_mentioned(&func) {
        return Ok(func);
    }
    let packed = |dtype: DType| chosen(dtype) && dtype.bits() < 8;
    if let Some(buffer) = func.buffers.values().find(|buffer| packed(buffer.dtype)) {
        let (name, dtype) = (&buffer.name, buffer.dtype);
        return Err(format!("buffer `{name}` holds packed elements of {dtype}").into());
    }
    let data = func.make_mut();
    let mut body = std::mem::replace(&mut data.body, Stmt::nop());
    let mut legalize = Legalize { data, types };
    body = body.rewrite(&mut |stmt| legalize.stmt(stmt));
    data.body = body;
    for var in data.vars.values_mut() {
        var.ty.dtype = types.computed_in(var.ty.dtype).unwrap_or(var.ty.dtype);
    }
    for buffer in data.buffers.values_mut() {
        let dtype = if buffer.scope == BufferScope::Register {
            types.computed_in(buffer.dtype)
        } else {
            types.stored_as(buffer.dtype)
        };
        buffer.dtype = dtype.unwrap_or(buffer.dtype);
    }
    Ok(func)
}

/// The type in which values of an unsupported type are computed; `None` for supported types.
fn computed_in(dtype: DType) -> Option<DType> {
    match dtype {
        DType::F16
        | DType::BF16
        | DType::F8E4M3FN
        | DType::F8E4M3FNUZ
        | DType::F8E5M2
        | DType::F8E5M2FNUZ
        | DType::F8E8M0
        | DType::F4E2M1 => Some(DType::F32),
        DType::I4 | DType::I2 => Some(DType::I8),
        DType::U4 | DType::U2 => Some(DType::U8),
        DType::Bool
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64
        | DType::F32
        | DType::F64 => None,
    }
}

fn is_unsupported(dtype: DType) -> bool {
    computed_in(dtype).is_some()
}

/// The set of unsupported types that are replaced.
#[derive(Clone, Copy)]
pub(super) struct Types {
    pub(super) chosen: fn(DType) -> bool,
}

impl Types {
    /// The type in which values are computed; `None` for types that stay.
    pub(super) fn computed_in(self, dtype: DType) -> Option<DType> {
        computed_in(dtype).filter(|_| (self.chosen)(dtype))
    }

    /// The type of the bits in memory; `None` for types that stay.
    fn stored_as(self, dtype: DType) -> Option<DType> {
        self.computed_in(dtype)?;
        Some(if dtype.bits() == 16 { DType::U16 } else { DType::U8 })
    }

    fn contain(self, dtype: DType) -> bool {
        self.computed_in(dtype).is_some()
    }

    pub(super) fn are_mentioned(self, func: &PrimFunc) -> bool {
        let mut found = func.buffers.values().any(|buffer| self.contain(buffer.dtype))
            || func.vars.values().any(|var| self.contain(var.ty.dtype));
        // Other expressions take their types from constants and casts.
        func.body.walk_exprs(&mut |expr| {
            found |= match expr {
                PrimExpr::Int { dtype, .. }
                | PrimExpr::Float { dtype, .. }
                | PrimExpr::Cast { dtype, .. }
                | PrimExpr::Reinterpret { dtype, .. } => self.contain(*dtype),
                _ => false,
            };
        });
        found
    }
}

struct Legalize<'a> {
    data: &'a mut PrimFuncData,
    types: Types,
}

impl Legalize<'_> {
    fn stmt(&mut self, mut stmt: Stmt) -> Stmt {
        if let Stmt::Store { buffer, indices, value } = stmt {
            let indices = indices.into_iter().map(|index| self.expr(index)).collect();
            let dtype = self.data.buffers[buffer].dtype;
            let value = if self.types.contain(dtype) && !self.is_register(buffer) {
                self.bits_of(value, dtype)
            } else {
                self.expr(value)
            };
            return Stmt::Store { buffer, indices, value };
        }
        stmt.for_each_expr_mut(&mut |expr| {
            let taken = std::mem::replace(expr, PrimExpr::index(0));
            *expr = self.expr(taken);
        });
        stmt
    }

    fn is_register(&self, buffer: BufferId) -> bool {
        self.data.buffers[buffer].scope == BufferScope::Register
    }

    /// The expression in supported types. Each kind has a function of its own, so that the frames
    /// of the recursion stay small in unoptimised builds.
    fn expr(&mut self, expr: PrimExpr) -> PrimExpr {
        match expr {
            PrimExpr::Reinterpret { value, dtype } => self.reinterpret(*value, dtype),
            PrimExpr::Cast { value, dtype } => {
                let value = self.expr(*value);
                self.cast(value, dtype)
            }
            other => {
                let rebuilt = other.map_children(&mut |child| self.expr(child));
                self.leaf(rebuilt)
            }
        }
    }

    /// Constants, variables and loads; everything else has the types of its operands.
    fn leaf(&mut self, expr: PrimExpr) -> PrimExpr {
        match expr {
            PrimExpr::Int { value, dtype } => {
                PrimExpr::Int { value, dtype: self.types.computed_in(dtype).unwrap_or(dtype) }
            }
            PrimExpr::Float { value, dtype } => {
                PrimExpr::Float { value, dtype: self.types.computed_in(dtype).unwrap_or(dtype) }
            }
            PrimExpr::Var { var, ty } => {
                let dtype = self.types.computed_in(ty.dtype).unwrap_or(ty.dtype);
                PrimExpr::Var { var, ty: ty.with_dtype(dtype) }
            }
            PrimExpr::Load { buffer, dtype, indices } => match self.types.computed_in(dtype) {
                None => PrimExpr::Load { buffer, dtype, indices },
                Some(wide) if self.is_register(buffer) => {
                    PrimExpr::Load { buffer, dtype: wide, indices }
                }
                Some(_) => {
                    let bits = self.load_bits(buffer, dtype, indices);
                    convert::from_bits(self.data, bits, dtype)
                }
            },
            other => other,
        }
    }

    /// `value` is legal already.
    fn cast(&mut self, value: PrimExpr, dtype: DType) -> PrimExpr {
        match self.types.computed_in(dtype) {
            None => value.cast(dtype),
            Some(DType::F32) => {
                let bits = convert::to_bits(self.data, value, dtype);
                convert::from_bits(self.data, bits, dtype)
            }
            Some(_) => convert::narrow_int(value, dtype),
        }
    }

    fn reinterpret(&mut self, value: PrimExpr, dtype: DType) -> PrimExpr {
        let from = value.dtype();
        let bits =
            if self.types.contain(from) { self.bits_of(value, from) } else { self.expr(value) };
        if self.types.contain(dtype) {
            return convert::from_bits(self.data, bits, dtype);
        }
        bits.reinterpret(dtype)
    }

    /// The bits of a value of an unsupported type, as an unsigned integer. An expression made from
    /// such bits is not converted there and back.
    fn bits_of(&mut self, value: PrimExpr, dtype: DType) -> PrimExpr {
        match value {
            PrimExpr::Load { buffer, dtype, indices } if !self.is_register(buffer) => {
                let indices = indices.into_iter().map(|index| self.expr(index)).collect();
                self.load_bits(buffer, dtype, indices)
            }
            PrimExpr::Reinterpret { value, dtype: _ } if !self.types.contain(value.dtype()) => {
                self.expr(*value)
            }
            // A cast is rounded once, on the way to the bits.
            PrimExpr::Cast { value, dtype: to } if to == dtype => {
                let value = self.expr(*value);
                convert::to_bits(self.data, value, dtype)
            }
            value => {
                let value = self.expr(value);
                convert::to_bits(self.data, value, dtype)
            }
        }
    }

    fn load_bits(&self, buffer: BufferId, dtype: DType, indices: Vec<PrimExpr>) -> PrimExpr {
        let dtype = self.types.stored_as(dtype).unwrap_or(dtype);
        PrimExpr::Load { buffer, dtype, indices }
    }
}

#[cfg(test)]
mod tests;
