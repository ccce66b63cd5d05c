//! The elements of a buffer that a statement accesses.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Affine, Analyzer, Bounds, Buffer, BufferId, PrimExpr, PrimFuncData, PrimType, Range, Stmt,
    VarId,
};

/// A box of elements: for each axis the first index, in terms of the outer variables, and the
/// number of indices.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Region {
    pub(crate) axes: Vec<Extent>,
}

/// The accessed indices along one axis.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Extent {
    /// The part that depends on outer variables alone.
    pub(crate) base: Affine,
    /// The range that is added to the base.
    pub(crate) offsets: Range,
}

impl Extent {
    /// All of an axis.
    pub(crate) fn whole(extent: i64) -> Extent {
        Extent { base: Affine::default(), offsets: Range { min: 0, max: extent.max(1) - 1 } }
    }

    /// The first index.
    pub(crate) fn min(&self) -> PrimExpr {
        self.base.clone().into_expr() + self.offsets.min
    }

    /// The number of indices; [`NO_BOUND`] for a symbolic axis that is used as a whole.
    pub(crate) fn len(&self) -> i64 {
        self.offsets.max.saturating_sub(self.offsets.min).saturating_add(1)
    }
}

/// The extent of a symbolic axis.
pub(crate) const NO_BOUND: i64 = i64::MAX;

/// The extents of a buffer, as [`region`] takes them.
pub(crate) fn most(buffer: &Buffer) -> Vec<i64> {
    let bound = |&extent: &i64| if extent == Buffer::SYMBOLIC { NO_BOUND } else { extent };
    buffer.shape().iter().map(bound).collect()
}

/// The loops around a statement and the function's dimensions.
#[derive(Clone, Default, Debug)]
pub(crate) struct Outside {
    dims: Vec<VarId>,
    /// Variable, first value and extent, outermost first.
    loops: Vec<(VarId, PrimExpr, PrimExpr)>,
}

impl Outside {
    /// No loops.
    pub(crate) fn of(func: &PrimFuncData) -> Outside {
        Outside { dims: func.dims.clone(), loops: Vec::new() }
    }

    /// Adds a loop inside the present ones.
    pub(crate) fn push(&mut self, var: VarId, min: PrimExpr, extent: PrimExpr) {
        self.loops.push((var, min, extent));
    }

    /// The number of loops.
    pub(crate) fn depth(&self) -> usize {
        self.loops.len()
    }

    /// Removes the innermost loops until `depth` are left.
    pub(crate) fn truncate(&mut self, depth: usize) {
        self.loops.truncate(depth);
    }

    /// The ranges of the loop variables with constant ranges.
    pub(crate) fn bounds(&self) -> Bounds {
        let range = |(var, min, extent): &(VarId, PrimExpr, PrimExpr)| {
            let (min, extent) = (min.as_int()?, extent.as_int()?);
            Some((*var, Range { min, max: min.saturating_add(extent.max(1) - 1) }))
        };
        self.loops.iter().filter_map(range).collect()
    }

    /// An analyser that knows the dimensions and variables.
    pub(crate) fn analyzer(&self) -> Analyzer {
        let mut analyzer = Analyzer::of_dims(&self.dims);
        for (var, min, extent) in &self.loops {
            // A loop without iterations is treated as if it had one.
            let extent = match extent.as_int() {
                Some(count) => PrimExpr::int(count.max(1), extent.dtype()),
                None => extent.clone(),
            };
            analyzer.bind(*var, min, &extent);
        }
        analyzer
    }
}

/// The kind of access to find.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Load,
    Store,
    Any,
}

/// The least box that contains every element of `buffer` that `stmt` accesses in one iteration of
/// the outer loops; `None` if there is no access. `shape` is the buffer's extents, [`NO_BOUND`] for
/// a symbolic one, and `outside` the outer loops.
pub(crate) fn region(
    stmt: &Stmt,
    buffer: BufferId,
    access: Access,
    shape: &[i64],
    outside: &Outside,
) -> Option<Region> {
    let bounds = outside.bounds();
    let mut collector = Collector {
        buffer,
        access,
        shape,
        outside: &bounds,
        bounds: bounds.clone(),
        analyzer: outside.analyzer(),
        inside: BTreeSet::new(),
        values: BTreeMap::new(),
        region: None,
    };
    collector.stmt(stmt);
    let mut region = collector.region?;
    // Accesses before the first index of an axis are under a condition: an axis without bounds is
    // used as a whole.
    for (axis, &extent) in region.axes.iter_mut().zip(shape) {
        if extent == NO_BOUND && axis.len() == NO_BOUND {
            *axis = Extent::whole(extent);
        }
    }
    Some(region)
}

struct Collector<'a> {
    buffer: BufferId,
    access: Access,
    shape: &'a [i64],
    outside: &'a Bounds,
    /// The ranges of all known variables.
    bounds: Bounds,
    analyzer: Analyzer,
    /// Variables bound within the statement.
    inside: BTreeSet<VarId>,
    /// Values of block variables.
    values: BTreeMap<VarId, PrimExpr>,
    region: Option<Region>,
}

impl Collector<'_> {
    fn stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::For { var, min, extent, body, .. } => {
                self.expr(min);
                self.expr(extent);
                let first = Affine::of(min).range(&self.bounds);
                let count = extent.as_int().filter(|count| *count > 0);
                if let (Some(first), Some(count)) = (first, count) {
                    let max = first.max.saturating_add(count - 1);
                    self.bounds.insert(*var, Range { min: first.min, max });
                    self.analyzer.bind(*var, first.min, max - first.min + 1);
                } else if extent.as_int().is_none() {
                    self.analyzer.bind(*var, min, extent);
                }
                self.inside.insert(*var);
                self.stmt(body);
            }
            Stmt::BlockRealize(block) => {
                for iter in &block.iters {
                    let value = iter.value.clone().substitute(&self.values);
                    self.values.insert(iter.var, value);
                }
                for stmt in block.init.iter().chain([&block.body]) {
                    self.stmt(stmt);
                }
            }
            Stmt::Store { buffer, indices, value } => {
                if *buffer == self.buffer && self.access != Access::Load {
                    self.touch(indices);
                }
                indices.iter().chain([value]).for_each(|expr| self.expr(expr));
            }
            other => {
                if let Stmt::Let { var, .. } = other {
                    self.inside.insert(*var);
                }
                other.for_each_expr(&mut |expr| self.expr(expr));
                other.for_each_child(&mut |child| self.stmt(child));
            }
        }
    }

    fn expr(&mut self, expr: &PrimExpr) {
        if self.access == Access::Store {
            return;
        }
        expr.walk(&mut |expr| {
            if let PrimExpr::Load { buffer, indices, .. } = expr
                && *buffer == self.buffer
            {
                self.touch(indices);
            }
        });
    }

    fn touch(&mut self, indices: &[PrimExpr]) {
        let axes: Vec<Extent> = indices
            .iter()
            .zip(self.shape)
            .map(|(index, &extent)| self.extent(index, extent))
            .collect();
        match &mut self.region {
            None => self.region = Some(Region { axes }),
            Some(region) => {
                for ((known, new), &extent) in region.axes.iter_mut().zip(axes).zip(self.shape) {
                    *known = union(known, &new, self.outside, extent);
                }
            }
        }
    }

    /// The indices that an expression covers while the inner variables take all their values.
    fn extent(&mut self, index: &PrimExpr, extent: i64) -> Extent {
        let lanes = index.ty().lanes;
        if lanes > 1 {
            let mut joined = self.extent(&index.lane_expr(0), extent);
            for lane in 1..lanes {
                let each = self.extent(&index.lane_expr(lane), extent);
                joined = union(&joined, &each, self.outside, extent);
            }
            return joined;
        }
        let index = self.analyzer.simplify(&index.clone().substitute(&self.values));
        let affine = Affine::of(&index);
        let mut base = Affine::default();
        let mut inner = Affine { terms: Vec::new(), constant: affine.constant };
        for (atom, factor) in affine.terms {
            let is_outside = vars_of(&atom).iter().all(|var| !self.inside.contains(var))
                && !atom.any(&mut |expr| matches!(expr, PrimExpr::Load { .. }));
            let part = if is_outside { &mut base } else { &mut inner };
            part.terms.push((atom, factor));
        }
        match inner.range(&self.bounds) {
            Some(offsets) => Extent { base, offsets },
            None => Extent::whole(extent),
        }
    }
}

fn union(a: &Extent, b: &Extent, outside: &Bounds, extent: i64) -> Extent {
    let join = |a: Range, b: Range| Range { min: a.min.min(b.min), max: a.max.max(b.max) };
    let difference = b.base.clone().plus(&a.base, -1);
    if let Some(distance) = difference.as_ref().and_then(Affine::as_const)
        && let (Some(min), Some(max)) =
            (b.offsets.min.checked_add(distance), b.offsets.max.checked_add(distance))
    {
        return Extent { base: a.base.clone(), offsets: join(a.offsets, Range { min, max }) };
    }
    let range = |e: &Extent| {
        let base = e.base.range(outside)?;
        let (min, max) = (base.min.checked_add(e.offsets.min), base.max.checked_add(e.offsets.max));
        Some(Range { min: min?, max: max? })
    };
    match (range(a), range(b)) {
        (Some(a), Some(b)) => Extent { base: Affine::default(), offsets: join(a, b) },
        _ => Extent::whole(extent),
    }
}

/// The conditions for an index to be within an axis, without those that always hold.
pub(crate) fn within(index: &PrimExpr, extent: &PrimExpr, outside: &Outside) -> Vec<PrimExpr> {
    let mut analyzer = outside.analyzer();
    let conditions = [index.clone().greater_equal(0), index.clone().less(extent)];
    conditions.into_iter().filter(|condition| !analyzer.can_prove(condition)).collect()
}

/// A use of a loop variable.
pub(crate) fn var(var: VarId) -> PrimExpr {
    PrimExpr::var(var, PrimType::INDEX)
}

/// The variables of an expression.
pub(crate) fn vars_of(expr: &PrimExpr) -> BTreeSet<VarId> {
    let mut vars = BTreeSet::new();
    expr.walk(&mut |expr| {
        if let PrimExpr::Var { var, .. } = expr {
            vars.insert(*var);
        }
    });
    vars
}
