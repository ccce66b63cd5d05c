//! Arithmetic in `float32` on buffers that keep their type.

use super::Types;
use crate::ir::DType;
use crate::tir::{BufferId, BufferScope, PrimExpr, PrimFunc, PrimFuncData, Stmt};

/// Computes arithmetic on the float type `chosen` in `float32`, and keeps the type in memory:
/// values are cast where they are loaded and stored.
pub(in super::super) fn compute_legalize(
    mut func: PrimFunc,
    chosen: fn(DType) -> bool,
) -> PrimFunc {
    let types = Types { chosen };
    if !types.are_mentioned(&func) {
        return func;
    }
    let data = func.make_mut();
    for var in data.vars.values_mut() {
        var.ty.dtype = types.computed_in(var.ty.dtype).unwrap_or(var.ty.dtype);
    }
    for buffer in data.buffers.values_mut() {
        if buffer.scope == BufferScope::Register {
            buffer.dtype = types.computed_in(buffer.dtype).unwrap_or(buffer.dtype);
        }
    }
    let body = std::mem::replace(&mut data.body, Stmt::nop());
    let compute = Compute { data, types };
    data.body = body.rewrite(&mut |stmt| compute.stmt(stmt));
    func
}

struct Compute<'a> {
    data: &'a PrimFuncData,
    types: Types,
}

impl Compute<'_> {
    fn stmt(&self, mut stmt: Stmt) -> Stmt {
        if let Stmt::Store { buffer, indices, value } = stmt {
            let indices = indices.into_iter().map(|index| self.expr(index)).collect();
            let value = match self.types.computed_in(self.data.buffers[buffer].dtype) {
                Some(_) => self.as_stored(value),
                None => self.expr(value),
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

    /// The value, cast to `float32` if it was of the chosen type.
    fn expr(&self, expr: PrimExpr) -> PrimExpr {
        match expr {
            PrimExpr::Float { value, dtype } => {
                PrimExpr::Float { value, dtype: self.computed_in(dtype) }
            }
            PrimExpr::Var { var, ty } => {
                PrimExpr::Var { var, ty: ty.with_dtype(self.computed_in(ty.dtype)) }
            }
            PrimExpr::Load { buffer, dtype, indices } => {
                let indices = indices.into_iter().map(|index| self.expr(index)).collect();
                if self.is_register(buffer) {
                    let dtype = self.computed_in(dtype);
                    return PrimExpr::Load { buffer, dtype, indices };
                }
                self.widened(PrimExpr::Load { buffer, dtype, indices })
            }
            PrimExpr::Cast { value, dtype } => {
                let value = self.expr(*value);
                self.widened(cast(value, dtype))
            }
            PrimExpr::Reinterpret { value, dtype } => {
                let value = self.as_stored(*value);
                self.widened(PrimExpr::Reinterpret { value: Box::new(value), dtype })
            }
            other => other.map_children(&mut |child| self.expr(child)),
        }
    }

    /// The value in its stored type; a value cast from that type is not converted there and back.
    fn as_stored(&self, value: PrimExpr) -> PrimExpr {
        let dtype = value.dtype();
        match self.expr(value) {
            PrimExpr::Cast { value, dtype: _ } if value.dtype() == dtype => *value,
            legal => cast(legal, dtype),
        }
    }

    /// The value cast to the type in which it is computed.
    fn widened(&self, value: PrimExpr) -> PrimExpr {
        match self.types.computed_in(value.dtype()) {
            Some(wide) => cast(value, wide),
            None => value,
        }
    }

    fn computed_in(&self, dtype: DType) -> DType {
        self.types.computed_in(dtype).unwrap_or(dtype)
    }
}

/// A cast that is not folded: it rounds.
fn cast(value: PrimExpr, dtype: DType) -> PrimExpr {
    if value.dtype() == dtype {
        return value;
    }
    PrimExpr::Cast { value: Box::new(value), dtype }
}
