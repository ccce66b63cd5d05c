//! Loops cut where conditions on indices begin or cease to hold, so that most of a tensor is computed
//! in vectors without them: windows that reach into padding, and what is put around a tensor.

use std::collections::BTreeSet;

use super::emit::Emitter;
use super::nest::{Nest, Run, innermost};
use crate::ir::{BufferSpec, DType};
use crate::tir::{Analyzer, BinaryOp, CompareOp, PrimExpr, Stmt, VarId};

/// Most pieces of one loop: each is code of its own.
const MOST_PIECES: usize = 8;

/// The statement for an element, and the variables of its index.
pub(super) struct Probe {
    pub(super) stmt: Stmt,
    pub(super) axes: Vec<VarId>,
}

impl Emitter {
    /// The statement of any element of a layout.
    pub(super) fn element_of(
        &mut self,
        spec: &BufferSpec,
        element: &mut dyn FnMut(&mut Emitter, &[PrimExpr]) -> Stmt,
    ) -> Probe {
        let axes: Vec<VarId> = spec.shape().iter().map(|_| self.func.index_var("i")).collect();
        let mut index: Vec<PrimExpr> = axes.iter().map(|&var| self.func.var_expr(var)).collect();
        for (index, row) in index.iter_mut().zip(&self.rows) {
            index.clone_from(row);
        }
        Probe { stmt: element(self, &index), axes }
    }

    /// Nests that cover a dense layout, in vectors wherever conditions on the innermost axis are the
    /// same for all of them; none if there is no such place.
    pub(super) fn cover_pieces(
        &mut self,
        spec: &BufferSpec,
        widths: &[i64],
        probe: &Probe,
        build: &mut dyn FnMut(&mut Emitter, &Nest) -> Option<Stmt>,
    ) -> Option<Stmt> {
        let spec = self.extent_of(spec);
        let axis = spec.dims().get(innermost(&spec)?)?.axis;
        if !spec.is_dense() {
            return None;
        }
        let pieces = self.pieces(probe, axis, Nest::inner(&spec));
        if pieces.len() < 2 {
            return None;
        }
        let mut runs: Vec<Run> = Vec::new();
        let mut vectors = false;
        for &piece in &pieces {
            let wide = Nest::runs(&[piece], widths);
            let any = wide.iter().any(|run| run.lanes > 1);
            if any && self.cover_runs(&spec, &wide, build).is_some() {
                vectors = true;
                runs.extend(wide);
            } else {
                runs.extend(Nest::runs(&[piece], &[]));
            }
        }
        if !vectors {
            return None;
        }
        self.cover_runs(&spec, &runs, build)
    }

    /// Starts and lengths of the pieces of an axis in which conditions are alike.
    fn pieces(&self, probe: &Probe, axis: usize, extent: i64) -> Vec<(i64, i64)> {
        let var = probe.axes[axis];
        let mut analyzer = self.knowing(&probe.stmt);
        analyzer.bind(var, 0, extent);
        let inner: BTreeSet<VarId> = self.extents.keys().copied().collect();
        let mut cuts = BTreeSet::from([0, extent]);
        probe.stmt.walk_exprs(&mut |expr| {
            let points = match expr {
                PrimExpr::Compare { op, lhs, rhs } if lhs.dtype() == DType::I64 => {
                    analyzer.change_points(*op, lhs, rhs, var, &inner)
                }
                PrimExpr::Binary { op: BinaryOp::Min | BinaryOp::Max, lhs, rhs }
                    if lhs.dtype() == DType::I64 =>
                {
                    analyzer.change_points(CompareOp::Lt, lhs, rhs, var, &inner)
                }
                _ => return,
            };
            let points = points.iter().filter_map(PrimExpr::as_int);
            cuts.extend(points.filter(|point| (0..extent).contains(point)));
        });
        if cuts.len() > MOST_PIECES + 1 {
            return Vec::new();
        }
        let cuts: Vec<i64> = cuts.into_iter().collect();
        cuts.windows(2).map(|pair| (pair[0], pair[1] - pair[0])).collect()
    }

    /// A statement with the conditions on indices that the ranges of loops decide put in.
    pub(super) fn decided(&self, stmt: Stmt) -> Stmt {
        let mut conditions = false;
        stmt.walk_exprs(&mut |expr| conditions |= is_condition(expr));
        if !conditions {
            return stmt;
        }
        let mut analyzer = self.knowing(&stmt);
        stmt.map_exprs(&mut |expr| {
            expr.rewrite(&mut |expr| match expr {
                PrimExpr::Select { cond, then, otherwise } => {
                    PrimExpr::select(*cond, *then, *otherwise)
                }
                expr if is_condition(&expr) => analyzer.simplify(&expr),
                PrimExpr::Binary { op: op @ (BinaryOp::And | BinaryOp::Or), lhs, rhs }
                    if lhs.dtype() == DType::Bool =>
                {
                    PrimExpr::binary(op, *lhs, *rhs)
                }
                other => other,
            })
        })
    }

    /// An analyser that knows the ranges of the loops whose variables some expressions use.
    pub(super) fn knowing_loops(&self, exprs: &[PrimExpr]) -> Analyzer {
        let mut analyzer = Analyzer::new();
        for expr in exprs {
            expr.walk(&mut |expr| {
                if let PrimExpr::Var { var, .. } = expr
                    && let Some(&extent) = self.extents.get(var)
                {
                    analyzer.bind(*var, 0, extent);
                }
            });
        }
        analyzer
    }

    /// An analyser that knows the ranges of the loops whose variables a statement uses.
    fn knowing(&self, stmt: &Stmt) -> Analyzer {
        let mut used = BTreeSet::new();
        stmt.walk_exprs(&mut |expr| {
            if let PrimExpr::Var { var, .. } = expr {
                used.insert(*var);
            }
        });
        let mut analyzer = Analyzer::new();
        for var in used {
            if let Some(&extent) = self.extents.get(&var) {
                analyzer.bind(var, 0, extent);
            }
        }
        analyzer
    }
}

/// Whether an expression of indices is one that a range of them may decide.
fn is_condition(expr: &PrimExpr) -> bool {
    match expr {
        PrimExpr::Compare { lhs, .. } => lhs.dtype() == DType::I64,
        PrimExpr::Binary { op: BinaryOp::Min | BinaryOp::Max, lhs, .. } => {
            lhs.dtype() == DType::I64
        }
        _ => false,
    }
}
