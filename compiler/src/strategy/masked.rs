//! Loops in vectors whose lanes choose by their place, which differs from row to row: a triangle of a
//! matrix. A place is compared as a number as wide as the elements.

use super::emit::Emitter;
use super::nest::coefficient;
use super::turn::lanes_of;
use crate::ir::{BufferSpec, DType};
use crate::tir::{Analyzer, PrimExpr, Stmt, VarId};

impl Emitter {
    /// Loops over a layout in vectors, in which conditions on places choose between lanes; none if a
    /// condition keeps loads within their buffers, or is none on places.
    pub(super) fn cover_masked(
        &mut self,
        spec: &BufferSpec,
        dtype: DType,
        element: &mut dyn FnMut(&mut Emitter, &[PrimExpr]) -> Stmt,
    ) -> Option<Stmt> {
        let widths = self.widths_for(&self.extent_of(spec), dtype);
        self.cover_in(spec, &widths, &mut |emitter, nest| {
            let Some((_, lanes)) = nest.lane.filter(|_| !nest.overruns) else {
                return emitter.lane_stmt(nest, |emitter, index, _| element(emitter, index));
            };
            let (lane, var) = emitter.counter("l", lanes);
            let body = element(emitter, &nest.index_at(&lane));
            let body = emitter.decided(body);
            let body = emitter.with_masks(body, (var, lanes), dtype)?;
            emitter.can_vectorize_values(&body, var, lanes).then(|| lanes_of(var, lanes, body))
        })
    }

    /// A statement whose choices by the place of a lane are such by its number; none if there is
    /// another condition on places, or what is chosen could be outside of its buffer.
    fn with_masks(&self, stmt: Stmt, lane: (VarId, i64), dtype: DType) -> Option<Stmt> {
        let mut fits = true;
        let stmt = stmt.map_exprs(&mut |expr| {
            expr.rewrite(&mut |expr| match expr {
                PrimExpr::Select { cond, then, otherwise } if cond.uses(lane.0) => {
                    fits &= self.is_inside(&then) && self.is_inside(&otherwise);
                    let cond = cond.rewrite(&mut |expr| match expr {
                        PrimExpr::Compare { op, lhs, rhs } if lhs.dtype() == DType::I64 => {
                            let mut analyzer = self.knowing_loops(&[*lhs.clone(), *rhs.clone()]);
                            let distance = analyzer.simplify(&(*lhs.clone() - *rhs.clone()));
                            let number = self.func.var_expr(lane.0);
                            let pair = numbers(&mut analyzer, &distance, (lane, number), dtype);
                            let Some([lhs, rhs]) = pair else {
                                fits &= !distance.uses(lane.0);
                                return PrimExpr::Compare { op, lhs, rhs };
                            };
                            PrimExpr::compare(op, lhs, rhs)
                        }
                        other => other,
                    });
                    PrimExpr::select(cond, *then, *otherwise)
                }
                other => other,
            })
        });
        fits.then_some(stmt)
    }

    /// Whether all that an expression loads is in its buffer, in each run and whatever is chosen.
    fn is_inside(&self, expr: &PrimExpr) -> bool {
        let mut inside = true;
        expr.walk(&mut |expr| {
            let PrimExpr::Load { buffer, indices, .. } = expr else { return };
            let mut analyzer = self.knowing_loops(indices);
            let shape = self.func.buffers[*buffer].shape();
            inside &= !self.is_open(*buffer);
            inside &= indices.iter().zip(shape).all(|(index, &extent)| {
                let (least, most) = analyzer.const_int_bound(index);
                least >= 0 && most < extent
            });
        });
        inside
    }
}

/// Two numbers that compare as a distance of places does with 0, of which one is that of the lane.
fn numbers(
    analyzer: &mut Analyzer,
    distance: &PrimExpr,
    ((lane, lanes), number): ((VarId, i64), PrimExpr),
    dtype: DType,
) -> Option<[PrimExpr; 2]> {
    let counter = DType::counter(dtype.bits());
    let step = coefficient(distance, lane)?;
    let rest = distance.clone().substitute(&[(lane, PrimExpr::index(0))].into());
    // A place before the first lane or behind the last one is as good as the next to it.
    let mut bound = |place: &PrimExpr| analyzer.simplify(place).max(-1).min(lanes).cast(counter);
    let number = number.cast(counter);
    match step {
        1 => Some([number, bound(&(PrimExpr::index(0) - rest))]),
        -1 => Some([bound(&rest), number]),
        _ => None,
    }
}
