//! Symbolic extents: their allowed form, and their values.

use std::collections::BTreeMap;

use crate::arith::{Atom, Symbol, View};
use crate::ir::Dim;

use super::{BinaryOp, Buffer, PrimExpr, PrimFunc, PrimFuncData, PrimType, VarId};

/// The value of an extent; `None` if it overflows, divides by zero, or is no arithmetic over
/// variables with a value.
pub(crate) fn value_of(extent: &PrimExpr, dims: &BTreeMap<VarId, i64>) -> Option<i64> {
    match extent {
        PrimExpr::Int { value, .. } => Some(*value),
        PrimExpr::Var { var, .. } => dims.get(var).copied(),
        PrimExpr::Binary { op, lhs, rhs } => {
            let (lhs, rhs) = (value_of(lhs, dims)?, value_of(rhs, dims)?);
            match op {
                BinaryOp::Add => lhs.checked_add(rhs),
                BinaryOp::Sub => lhs.checked_sub(rhs),
                BinaryOp::Mul => lhs.checked_mul(rhs),
                BinaryOp::FloorDiv if rhs > 0 => Some(lhs.div_euclid(rhs)),
                BinaryOp::FloorMod if rhs > 0 => Some(lhs.rem_euclid(rhs)),
                BinaryOp::Min => Some(lhs.min(rhs)),
                BinaryOp::Max => Some(lhs.max(rhs)),
                BinaryOp::Div
                | BinaryOp::Rem
                | BinaryOp::FloorDiv
                | BinaryOp::FloorMod
                | BinaryOp::And
                | BinaryOp::Or
                | BinaryOp::Xor
                | BinaryOp::Shl
                | BinaryOp::Shr => None,
            }
        }
        _ => None,
    }
}

/// A dimension as an expression over a function's own; `None` if a symbol has none, or it has no
/// value.
pub(crate) fn extent_of(
    dim: &Dim,
    symbol: &dyn Fn(&Symbol) -> Option<PrimExpr>,
) -> Option<PrimExpr> {
    let poly = match dim.view() {
        View::Const(value) => return Some(PrimExpr::index(value)),
        View::Poison(_) => return None,
        View::Poly(poly) => poly,
    };
    let fold = |operands: &[Dim], with: fn(PrimExpr, PrimExpr) -> PrimExpr| {
        let operands: Option<Vec<PrimExpr>> =
            operands.iter().map(|operand| extent_of(operand, symbol)).collect();
        operands?.into_iter().reduce(with)
    };
    let mut sum: Option<PrimExpr> = None;
    for term in poly.terms() {
        let mut product: Option<PrimExpr> = None;
        for factor in term.factors() {
            let atom = match &factor.atom {
                Atom::Symbol(name) => symbol(name)?,
                Atom::FloorDiv(a, b) => extent_of(a, symbol)?.floordiv(extent_of(b, symbol)?),
                Atom::Mod(a, b) => extent_of(a, symbol)?.floormod(extent_of(b, symbol)?),
                Atom::Min(operands) => fold(operands, PrimExpr::min)?,
                Atom::Max(operands) => fold(operands, PrimExpr::max)?,
            };
            for _ in 0..factor.power {
                product = Some(match product {
                    Some(product) => product * atom.clone(),
                    None => atom.clone(),
                });
            }
        }
        let product = product? * term.coefficient();
        sum = Some(match sum {
            Some(sum) => sum + product,
            None => product,
        });
    }
    Some(sum? + poly.constant())
}

/// The reason why an expression cannot be an extent, if there is one.
fn problem_of(extent: &PrimExpr, func: &PrimFuncData) -> Option<String> {
    if extent.ty() != PrimType::INDEX {
        return Some(format!("an extent is {}, not int64", extent.ty()));
    }
    let mut problem = None;
    extent.walk(&mut |expr| {
        let found = match expr {
            PrimExpr::Int { .. } => None,
            PrimExpr::Var { var, .. } if func.dims.contains(var) => None,
            PrimExpr::Var { var, .. } => {
                let name = func.vars.get(*var).map_or("?", |decl| &decl.name);
                Some(format!("an extent is made of `{name}`, which is no dimension"))
            }
            PrimExpr::Binary { op, .. } => match op {
                BinaryOp::Add
                | BinaryOp::Sub
                | BinaryOp::Mul
                | BinaryOp::FloorDiv
                | BinaryOp::FloorMod
                | BinaryOp::Min
                | BinaryOp::Max => None,
                BinaryOp::Div
                | BinaryOp::Rem
                | BinaryOp::And
                | BinaryOp::Or
                | BinaryOp::Xor
                | BinaryOp::Shl
                | BinaryOp::Shr => Some(format!("an extent is made with `{}`", op.symbol())),
            },
            _ => Some("an extent is no arithmetic over dimensions".to_owned()),
        };
        problem = problem.take().or(found);
    });
    problem
}

/// The reason why the extents of a buffer contradict its layout or are not allowed, if there is
/// one.
pub(super) fn problem_of_buffer(buffer: &Buffer, func: &PrimFuncData) -> Option<String> {
    match &buffer.symbolic {
        None => buffer.spec.physical_len().err().map(|problem| problem.to_string()),
        Some(extents) => match extents.iter().find_map(|extent| problem_of(extent, func)) {
            None if *buffer != dense_like(buffer, extents) => {
                Some("its layout is not that of its extents, which are not constant".to_owned())
            }
            problem => problem,
        },
    }
}

fn dense_like(buffer: &Buffer, extents: &[PrimExpr]) -> Buffer {
    Buffer::dense(buffer.name.clone(), buffer.dtype, extents.to_vec(), buffer.scope)
}

impl PrimFuncData {
    /// The values of the dimensions by variable.
    pub(crate) fn dim_values(&self, dims: &[i64]) -> BTreeMap<VarId, i64> {
        self.dims.iter().copied().zip(dims.iter().copied()).collect()
    }
}

impl PrimFunc {
    /// The function with constant extents in place of symbolic ones, for these values of its
    /// dimensions. The dimensions remain.
    /// # Errors
    ///
    /// An extent is negative or exceeds `int64`.
    pub fn with_extents(&self, dims: &[i64]) -> Result<PrimFunc, String> {
        if self.buffers.values().all(|buffer| buffer.symbolic.is_none()) {
            return Ok(self.clone());
        }
        let dims = self.dim_values(dims);
        let mut func = self.clone();
        for buffer in func.make_mut().buffers.values_mut() {
            let Some(extents) = buffer.symbolic.take() else { continue };
            let values: Option<Vec<i64>> = extents
                .iter()
                .map(|extent| value_of(extent, &dims).filter(|value| *value >= 0))
                .collect();
            let values = values.ok_or_else(|| {
                format!("buffer `{}` would have extents below 0 or beyond 2^63", buffer.name)
            })?;
            buffer.set_extents(values.into_iter().map(PrimExpr::index).collect());
        }
        Ok(func)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::{BufferSpec, DType};
    use crate::tir::{BufferScope, verify};

    #[test]
    fn extents_have_the_values_of_the_dimensions() {
        let mut func = PrimFuncData::new("f");
        let n = func.dim("n");
        let dims = func.dim_values(&[10]);
        let half = (n.clone() + 1).floordiv(2).min(100) * 3;
        assert_eq!(value_of(&half, &dims), Some(15));
        assert_eq!(value_of(&(n.clone() - 11), &dims), Some(-1));
        assert_eq!(value_of(&(n.clone() * i64::MAX), &dims), None);
        assert_eq!(value_of(&n.clone().floordiv(PrimExpr::index(0)), &dims), None);
        let x =
            func.dense_buffer("x", DType::F32, vec![n.clone() - 11, 4.into()], BufferScope::Local);
        let func = PrimFunc::new(func);
        assert_eq!(func.with_extents(&[12]).unwrap().buffers[x].shape(), [1, 4]);
        let error = func.with_extents(&[10]).unwrap_err();
        assert_eq!(error, "buffer `x` would have extents below 0 or beyond 2^63");
    }

    #[test]
    fn the_verifier_refuses_invalid_extents() {
        let message = |extent: &dyn Fn(&mut PrimFuncData, PrimExpr) -> PrimExpr| {
            let mut func = PrimFuncData::new("f");
            let n = func.dim("n");
            let extent = extent(&mut func, n);
            func.dense_buffer("x", DType::F32, vec![extent], BufferScope::Param);
            verify(&PrimFunc::new(func)).map_err(|errors| errors[0].message.clone())
        };
        assert_eq!(message(&|_, n| n.clone() * 2 + n.floormod(3)), Ok(()));
        let error = message(&|func, n| n + PrimExpr::var(func.index_var("i"), PrimType::INDEX));
        assert_eq!(
            error.unwrap_err(),
            "buffer `x`: an extent is made of `i`, which is no dimension"
        );
        let error = message(&|_, n| n / 2).unwrap_err();
        assert_eq!(error, "buffer `x`: an extent is made with `/`");
        let mut func = PrimFuncData::new("f");
        let n = func.dim("n");
        let x = func.dense_buffer("x", DType::F32, vec![n], BufferScope::Param);
        func.buffers[x].spec = BufferSpec::dense(&[4]);
        let errors = verify(&PrimFunc::new(func)).unwrap_err();
        assert!(errors[0].message.contains("is not that of its extents"), "{errors:?}");
    }
}
