//! Ranges of indices, given the loops around.

use crate::tir::affine::{Affine, Bounds, Range};
use crate::tir::{Buffer, PrimExpr, PrimFuncData, PrimType, Stmt, VarId};

/// Ranges of the variables in scope.
pub(crate) struct Ranges {
    bounds: Bounds,
}

impl Ranges {
    /// The ranges before the body begins: dimensions are not negative.
    pub(crate) fn of(func: &PrimFuncData) -> Self {
        let size = Range { min: 0, max: i64::MAX };
        Ranges { bounds: func.dims.iter().map(|dim| (*dim, size)).collect() }
    }

    /// Calls `visit` with every statement, outer ones first, and the ranges that hold in it.
    pub(crate) fn visit(&mut self, stmt: &mut Stmt, visit: &mut dyn FnMut(&Self, &mut Stmt)) {
        visit(self, stmt);
        let bound: Option<(VarId, Option<Range>)> = match &*stmt {
            Stmt::For { var, min, extent, .. } => Some((*var, self.of_loop(min, extent))),
            Stmt::Let { var, value, .. } => Some((*var, self.of_scalar(value))),
            _ => None,
        };
        if let Some((var, Some(range))) = bound {
            self.bounds.insert(var, range);
        }
        stmt.for_each_child_mut(&mut |child| self.visit(child, visit));
        if let Some((var, _)) = bound {
            self.bounds.remove(&var);
        }
    }

    /// The range of a loop's variable.
    fn of_loop(&self, min: &PrimExpr, extent: &PrimExpr) -> Option<Range> {
        let (first, count) = (self.of_scalar(min)?, self.of_scalar(extent)?);
        Some(Range { min: first.min, max: first.max.checked_add(count.max.checked_sub(1)?)? })
    }

    fn of_scalar(&self, expr: &PrimExpr) -> Option<Range> {
        if expr.ty() != PrimType::INDEX {
            return None;
        }
        Affine::of(expr).range(&self.bounds)
    }

    /// The least and the greatest lane of an index.
    pub(crate) fn of_index(&self, index: &PrimExpr) -> Option<Range> {
        match index {
            PrimExpr::Ramp { base, stride, lanes } => {
                let base = self.of_scalar(base)?;
                let span = stride.as_int()?.checked_mul(i64::from(*lanes) - 1)?;
                Some(Range {
                    min: base.min.checked_add(span.min(0))?,
                    max: base.max.checked_add(span.max(0))?,
                })
            }
            PrimExpr::Broadcast { value, lanes: _ } => self.of_scalar(value),
            other => self.of_scalar(other),
        }
    }
}

/// Whether an access is surely inside its buffer, halo and padding lanes included.
pub(crate) fn is_inside(buffer: &Buffer, indices: &[PrimExpr], ranges: &Ranges) -> bool {
    indices.len() == buffer.shape().len()
        && indices.iter().enumerate().all(|(axis, index)| {
            let allowed = buffer.spec.addressable_range(axis);
            let range = ranges.of_index(index);
            range.is_some_and(|it| allowed.contains(&it.min) && allowed.contains(&it.max))
        })
}
