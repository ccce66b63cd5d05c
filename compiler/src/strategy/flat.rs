//! Kernels of computations without sums over dense tensors, whose loops go over memory as it lies.
//!
//! Each tensor is read and written at the position of its element, as an expression of the loops'
//! variables. A loop is cut in two where a position divides by a part of its extent, as behind a
//! change of shape, so that positions become linear; two loops are one where every position takes
//! them for one. What is left is as few and as long loops as can be: a channel shuffle copies whole
//! planes, and an element-wise kernel is one loop.

use std::collections::BTreeMap;

use super::emit::{Emitter, Root, is_vectorized};
use super::nest::{coefficient, position};
use super::pieces::Probe;
use crate::ir::{BufferSpec, DType};
use crate::te::StageKind;
use crate::tir::{Affine, Analyzer, BinaryOp, BufferId, BufferScope, PrimExpr, Stmt, VarId};

/// Places along an axis whose elements, a few for each, are picked in one row of vectors; all of them if
/// they are no multiple.
const PARTS_OF_ROWS: [i64; 4] = [64, 32, 16, 8];

/// Most loops that are cut in two for one tensor: the shapes of networks ask for two or three.
const MOST_CUTS: usize = 8;

impl Emitter {
    /// Gives all tensors of a kernel one axis if it has no sums and they are dense, unless places along
    /// an axis are those of a table, or a run's; returns whether it does.
    pub(super) fn flatten(&mut self, roots: &[Root]) -> bool {
        let computes = roots.iter().all(|root| {
            matches!(
                self.dag.stages[root.fused.unwrap_or(root.stage)].kind,
                StageKind::Compute(_) | StageKind::Concat { .. }
            )
        });
        let dense = self.materialised.values().all(|&buffer| {
            let data = &self.func.buffers[buffer];
            data.spec.is_dense() && data.scope != BufferScope::Register
        });
        // Of inner axes that end where a run says, positions behind the end lie in between.
        let linear = self.materialised.keys().all(|&stage| {
            let shape = self.dag.shape(stage);
            let is_first = |axis: usize| shape[..axis].iter().all(|&extent| extent == 1);
            self.dag.limits(stage).iter().all(|limit| is_first(limit.axis))
        });
        if !computes || !dense || !linear || self.picks() || self.samples() {
            return false;
        }
        for (stage, &buffer) in &self.materialised {
            let elements = self.dag.shape(*stage).iter().product();
            self.func.buffers[buffer].spec = BufferSpec::dense(&[elements]);
        }
        true
    }

    /// Loops over tensors of one axis: `stmt` stores the element of an index whose variables and
    /// extents are `axes`.
    pub(super) fn cover_flat(&mut self, axes: &[(VarId, i64)], stmt: Stmt, root: BufferId) -> Stmt {
        if axes.iter().any(|axis| axis.1 == 0) {
            return Stmt::nop();
        }
        let dtype = self.func.buffers[root].dtype;
        let whole = self.by_position(stmt);
        let (mut loops, stmt) = self.cut(axes.to_vec(), whole.clone());
        let stmt = join(&mut loops, stmt);
        if let Some(stmt) = self.cover_periodic(&loops, &stmt, dtype) {
            return stmt;
        }
        let covered = self.cover_loops(&loops, &stmt, dtype, true);
        if is_vectorized(&covered) {
            return covered;
        }
        let extents: Vec<i64> = axes.iter().map(|axis| axis.1).collect();
        let picked =
            self.cover_known(&BufferSpec::dense(&extents), dtype, &mut |emitter, index| {
                let values = axes.iter().map(|axis| axis.0).zip(index.iter().cloned()).collect();
                emitter.func.copy_of(&whole, &values)
            });
        picked.or_else(|| self.cover_mixed(axes, &whole, dtype)).unwrap_or(covered)
    }

    /// Vectors of several places along the last axis but one, with the few along the last one in turns:
    /// of planes that become the channels of pixels, of elements of up to 32 bits.
    fn cover_mixed(&mut self, axes: &[(VarId, i64)], stmt: &Stmt, dtype: DType) -> Option<Stmt> {
        let wide: Vec<(VarId, i64)> = axes.iter().copied().filter(|axis| axis.1 != 1).collect();
        let [around @ .., (outer, count), (inner, few)] = wide.as_slice() else { return None };
        let (outer, count, inner, few) = (*outer, *count, *inner, *few);
        // Floats of 8 bits are wider in registers than their vectors.
        let mixes =
            |dtype: DType| matches!(dtype.bits(), 16 | 32) || (dtype.bits() == 8 && dtype.is_int());
        let mut read = None;
        let mut fits = mixes(dtype);
        stmt.walk_exprs(&mut |expr| {
            if let PrimExpr::Load { dtype, .. } = expr {
                fits &= mixes(*dtype) && *read.get_or_insert(dtype.bits()) == dtype.bits();
            }
        });
        if !fits {
            return None;
        }
        let part = PARTS_OF_ROWS.into_iter().find(|part| count % part == 0).unwrap_or(count);
        let [first, place] = ["part", "place"].map(|name| self.func.index_var(name));
        let loops: Vec<(VarId, i64)> =
            around.iter().copied().chain([(first, count / part), (place, part * few)]).collect();
        let [at, place] = [first, place].map(|var| self.func.var_expr(var));
        let zeros = axes.iter().filter(|axis| axis.1 == 1).map(|axis| (axis.0, 0.into()));
        let mut values: BTreeMap<VarId, PrimExpr> = zeros.collect();
        values.insert(outer, at * part + place.clone().floordiv(few));
        values.insert(inner, place.floormod(few));
        let stmt = stmt.clone().substitute(&values);
        let stmt = positions(stmt, &mut |at| simplified(at, &loops));
        let extents: Vec<i64> = loops.iter().map(|axis| axis.1).collect();
        self.cover_known(&BufferSpec::dense(&extents), dtype, &mut |emitter, index| {
            let values = loops.iter().map(|axis| axis.0).zip(index.iter().cloned()).collect();
            emitter.func.copy_of(&stmt, &values)
        })
    }

    /// Loops over a dense tensor of several axes that are cut in the same way, so that what a vector
    /// reads lies side by side; none if no loop is.
    pub(super) fn cover_cut(
        &mut self,
        spec: &BufferSpec,
        dtype: DType,
        overrun: bool,
        probe: &Probe,
    ) -> Option<Stmt> {
        let extents = spec.shape().iter().copied();
        let axes: Vec<(VarId, i64)> = probe.axes.iter().copied().zip(extents).collect();
        let loops = axes.iter().filter(|axis| axis.1 != 1).count();
        if !spec.is_dense() || !self.rows.is_empty() || axes.iter().any(|axis| axis.1 == 0) {
            return None;
        }
        let (cut, stmt) = self.cut(axes, probe.stmt.clone());
        (cut.len() > loops.max(1)).then(|| self.cover_loops(&cut, &stmt, dtype, overrun))
    }

    /// Loops of some extents over a statement of their variables.
    fn cover_loops(
        &mut self,
        loops: &[(VarId, i64)],
        stmt: &Stmt,
        dtype: DType,
        overrun: bool,
    ) -> Stmt {
        let extents: Vec<i64> = loops.iter().map(|axis| axis.1).collect();
        self.cover(&BufferSpec::dense(&extents), dtype, overrun, &mut |emitter, index| {
            let values = loops.iter().map(|axis| axis.0).zip(index.iter().cloned()).collect();
            emitter.func.copy_of(stmt, &values)
        })
    }

    /// A statement whose tensors are accessed by position.
    fn by_position(&self, stmt: Stmt) -> Stmt {
        let position = |buffer: BufferId, indices: Vec<PrimExpr>| match self.dag.stage_of(buffer) {
            Some(stage) => vec![position(self.dag.shape(stage), indices)],
            None => indices,
        };
        let stmt = stmt.map_exprs(&mut |expr| {
            expr.rewrite(&mut |expr| match expr {
                PrimExpr::Load { buffer, dtype, indices } => {
                    PrimExpr::Load { buffer, dtype, indices: position(buffer, indices) }
                }
                other => other,
            })
        });
        stmt.rewrite(&mut |stmt| match stmt {
            Stmt::Store { buffer, indices, value } => {
                Stmt::Store { buffer, indices: position(buffer, indices), value }
            }
            other => other,
        })
    }

    /// Cuts loops until positions have no division by a part of an extent, as far as they divide.
    fn cut(&mut self, axes: Vec<(VarId, i64)>, stmt: Stmt) -> (Vec<(VarId, i64)>, Stmt) {
        let single: BTreeMap<VarId, PrimExpr> = (axes.iter().filter(|axis| axis.1 == 1))
            .map(|axis| (axis.0, PrimExpr::index(0)))
            .collect();
        let mut loops: Vec<(VarId, i64)> = axes.into_iter().filter(|axis| axis.1 != 1).collect();
        let mut stmt = positions(stmt, &mut |at| simplified(at.substitute(&single), &loops));
        stmt = stmt.map_exprs(&mut |expr| expr.substitute(&single));
        for _ in 0..MOST_CUTS {
            let Some((at, inner)) = cut_point(&stmt, &loops) else { break };
            let (var, extent) = loops[at];
            let [high, low] = ["o", "i"].map(|name| self.func.index_var(name));
            loops.splice(at..=at, [(high, extent / inner), (low, inner)]);
            let value = self.func.var_expr(high) * inner + self.func.var_expr(low);
            let values = BTreeMap::from([(var, value)]);
            stmt = stmt.map_exprs(&mut |expr| expr.substitute(&values));
            stmt = positions(stmt, &mut |at| simplified(at, &loops));
        }
        if loops.is_empty() {
            loops.push((self.func.index_var("i"), 1));
        }
        (loops, stmt)
    }
}

/// Replaces the positions of loads and stores.
fn positions(stmt: Stmt, map: &mut dyn FnMut(PrimExpr) -> PrimExpr) -> Stmt {
    let stmt = stmt.map_exprs(&mut |expr| {
        expr.rewrite(&mut |expr| match expr {
            PrimExpr::Load { buffer, dtype, indices } => {
                let indices = indices.into_iter().map(&mut *map).collect();
                PrimExpr::Load { buffer, dtype, indices }
            }
            other => other,
        })
    });
    stmt.rewrite(&mut |stmt| match stmt {
        Stmt::Store { buffer, indices, value } => {
            let indices = indices.into_iter().map(&mut *map).collect();
            Stmt::Store { buffer, indices, value }
        }
        other => other,
    })
}

fn simplified(expr: PrimExpr, loops: &[(VarId, i64)]) -> PrimExpr {
    let mut analyzer = Analyzer::new();
    for &(var, extent) in loops {
        analyzer.bind(var, 0, extent);
    }
    analyzer.simplify(&expr)
}

/// A loop, and the iterations of the inner one that is cut from it so that a division goes.
fn cut_point(stmt: &Stmt, loops: &[(VarId, i64)]) -> Option<(usize, i64)> {
    let mut found = None;
    stmt.walk_exprs(&mut |expr| {
        let PrimExpr::Binary { op: BinaryOp::FloorDiv | BinaryOp::FloorMod, lhs, rhs } = expr
        else {
            return;
        };
        let Some(divisor) = rhs.as_int().filter(|divisor| *divisor > 1) else { return };
        if found.is_some() {
            return;
        }
        let form = Affine::of(lhs);
        found = form.terms.iter().find_map(|(atom, factor)| {
            let PrimExpr::Var { var, .. } = atom else { return None };
            let at = loops.iter().position(|axis| axis.0 == *var)?;
            let inner = divisor / factor;
            let fits = *factor > 0 && divisor % factor == 0 && loops[at].1 % inner == 0;
            (fits && inner > 1 && inner < loops[at].1).then_some((at, inner))
        });
    });
    found
}

/// Makes one loop of two wherever every position counts them as one.
fn join(loops: &mut Vec<(VarId, i64)>, mut stmt: Stmt) -> Stmt {
    let mut at = loops.len();
    while at > 1 {
        at -= 1;
        let (outer, (inner, extent)) = (loops[at - 1], loops[at]);
        let mut linear = [0usize; 2];
        let mut fits = true;
        let mut position = |index: &PrimExpr| {
            let steps = [outer.0, inner].map(|var| coefficient(index, var));
            match steps {
                [Some(far), Some(near)] => {
                    fits &= near.checked_mul(extent) == Some(far);
                    linear[0] += uses(index, outer.0);
                    linear[1] += uses(index, inner);
                }
                _ => fits = false,
            }
        };
        stmt.walk(&mut |stmt| {
            if let Stmt::Store { indices, .. } = stmt {
                indices.iter().for_each(&mut position);
            }
        });
        stmt.walk_exprs(&mut |expr| {
            if let PrimExpr::Load { indices, .. } = expr {
                indices.iter().for_each(&mut position);
            }
        });
        // Besides positions, nothing may depend on the loops.
        let mut all = [0usize; 2];
        stmt.walk_exprs(&mut |expr| {
            if let PrimExpr::Var { var, .. } = expr {
                all[0] += usize::from(*var == outer.0);
                all[1] += usize::from(*var == inner);
            }
        });
        if !fits || all != linear {
            continue;
        }
        let values = BTreeMap::from([(outer.0, PrimExpr::index(0))]);
        stmt = stmt.map_exprs(&mut |expr| expr.substitute(&values));
        loops[at].1 = outer.1 * extent;
        loops.remove(at - 1);
    }
    stmt
}

fn uses(expr: &PrimExpr, wanted: VarId) -> usize {
    let mut count = 0;
    expr.walk(&mut |expr| {
        count += usize::from(matches!(expr, PrimExpr::Var { var, .. } if *var == wanted))
    });
    count
}
